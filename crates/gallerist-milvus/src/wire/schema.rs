//! `milvus.proto.schema`: what a collection looks like, and rows column by column.

use prost::{Message, Oneof};

/// `DataType`.
pub(crate) const INT64: i32 = 5;
pub(crate) const VARCHAR: i32 = 21;
pub(crate) const JSON: i32 = 23;
pub(crate) const FLOAT_VECTOR: i32 = 101;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValuePair {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

impl KeyValuePair {
    pub(crate) fn new(key: &str, value: impl ToString) -> Self {
        Self { key: key.to_owned(), value: value.to_string() }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionSchema {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) description: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) fields: Vec<FieldSchema>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldSchema {
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(bool, tag = "3")]
    pub(crate) is_primary_key: bool,
    #[prost(int32, tag = "5")]
    pub(crate) data_type: i32,
    #[prost(message, repeated, tag = "6")]
    pub(crate) type_params: Vec<KeyValuePair>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldData {
    #[prost(int32, tag = "1")]
    pub(crate) data_type: i32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(oneof = "Field", tags = "3, 4")]
    pub(crate) field: Option<Field>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Field {
    #[prost(message, tag = "3")]
    Scalars(ScalarField),
    #[prost(message, tag = "4")]
    Vectors(VectorField),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScalarField {
    #[prost(oneof = "Scalars", tags = "3, 6, 9")]
    pub(crate) data: Option<Scalars>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Scalars {
    #[prost(message, tag = "3")]
    Longs(LongArray),
    #[prost(message, tag = "6")]
    Strings(StringArray),
    #[prost(message, tag = "9")]
    Jsons(JsonArray),
}

/// JSON texts.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct JsonArray {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(crate) data: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LongArray {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) data: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StringArray {
    #[prost(string, repeated, tag = "1")]
    pub(crate) data: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FloatArray {
    #[prost(float, repeated, tag = "1")]
    pub(crate) data: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VectorField {
    #[prost(int64, tag = "1")]
    pub(crate) dim: i64,
    #[prost(oneof = "Vectors", tags = "2")]
    pub(crate) data: Option<Vectors>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Vectors {
    #[prost(message, tag = "2")]
    Floats(FloatArray),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ids {
    #[prost(message, optional, tag = "1")]
    pub(crate) longs: Option<LongArray>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SearchResultData {
    #[prost(int64, tag = "1")]
    pub(crate) num_queries: i64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) fields_data: Vec<FieldData>,
    #[prost(float, repeated, tag = "4")]
    pub(crate) scores: Vec<f32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) ids: Option<Ids>,
    #[prost(int64, repeated, tag = "6")]
    pub(crate) topks: Vec<i64>,
}

impl FieldData {
    pub(crate) fn longs(name: &str, data: Vec<i64>) -> Self {
        let scalars = ScalarField { data: Some(Scalars::Longs(LongArray { data })) };
        Self { data_type: INT64, name: name.to_owned(), field: Some(Field::Scalars(scalars)) }
    }

    pub(crate) fn strings(name: &str, data: Vec<String>) -> Self {
        let scalars = ScalarField { data: Some(Scalars::Strings(StringArray { data })) };
        Self { data_type: VARCHAR, name: name.to_owned(), field: Some(Field::Scalars(scalars)) }
    }

    pub(crate) fn jsons(name: &str, data: Vec<Vec<u8>>) -> Self {
        let scalars = ScalarField { data: Some(Scalars::Jsons(JsonArray { data })) };
        Self { data_type: JSON, name: name.to_owned(), field: Some(Field::Scalars(scalars)) }
    }

    pub(crate) fn vectors(name: &str, dimensions: usize, data: Vec<f32>) -> Self {
        let vectors =
            VectorField { dim: dimensions as i64, data: Some(Vectors::Floats(FloatArray { data })) };
        Self { data_type: FLOAT_VECTOR, name: name.to_owned(), field: Some(Field::Vectors(vectors)) }
    }

    /// The integers of this column, if it has any.
    pub(crate) fn as_longs(&self) -> Option<&[i64]> {
        match &self.field {
            Some(Field::Scalars(ScalarField { data: Some(Scalars::Longs(longs)) })) => Some(&longs.data),
            _ => None,
        }
    }

    /// The strings of this column, if it has any.
    pub(crate) fn as_strings(&self) -> Option<&[String]> {
        match &self.field {
            Some(Field::Scalars(ScalarField { data: Some(Scalars::Strings(strings)) })) => {
                Some(&strings.data)
            }
            _ => None,
        }
    }

    /// The JSON texts of this column, if it has any.
    pub(crate) fn as_jsons(&self) -> Option<&[Vec<u8>]> {
        match &self.field {
            Some(Field::Scalars(ScalarField { data: Some(Scalars::Jsons(jsons)) })) => Some(&jsons.data),
            _ => None,
        }
    }

    /// The vectors of this column one after the other, if it has any.
    pub(crate) fn as_vectors(&self) -> Option<&[f32]> {
        match &self.field {
            Some(Field::Vectors(VectorField { data: Some(Vectors::Floats(floats)), .. })) => {
                Some(&floats.data)
            }
            _ => None,
        }
    }
}
