//! `json_with_int.proto`: values of payloads and of the metadata of a collection.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

/// A JSON object.
pub(crate) type Object = BTreeMap<String, Value>;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(oneof = "Kind", tags = "2, 3, 4, 6, 7")]
    pub(crate) kind: Option<Kind>,
}

/// Null and boolean values are passed over: this program writes none.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Kind {
    #[prost(double, tag = "2")]
    Double(f64),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(string, tag = "4")]
    Text(String),
    #[prost(message, tag = "6")]
    Object(Struct),
    #[prost(message, tag = "7")]
    List(ListValue),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) fields: Object,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<Value>,
}

impl Value {
    pub(crate) fn double(value: f64) -> Self {
        Self { kind: Some(Kind::Double(value)) }
    }

    pub(crate) fn integer(value: i64) -> Self {
        Self { kind: Some(Kind::Integer(value)) }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self { kind: Some(Kind::Text(text.to_owned())) }
    }

    pub(crate) fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        Self { kind: Some(Kind::List(ListValue { values: texts.map(Self::text).collect() })) }
    }

    pub(crate) fn object(fields: Object) -> Self {
        Self { kind: Some(Kind::Object(Struct { fields })) }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Some(Kind::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_integer(&self) -> Option<i64> {
        match self.kind {
            Some(Kind::Integer(value)) => Some(value),
            _ => None,
        }
    }

    /// A number, with or without a fraction.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self.kind {
            Some(Kind::Integer(value)) => Some(value as f64),
            Some(Kind::Double(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        match &self.kind {
            Some(Kind::List(list)) => Some(&list.values),
            _ => None,
        }
    }

    pub(crate) fn as_object(&self) -> Option<&Object> {
        match &self.kind {
            Some(Kind::Object(object)) => Some(&object.fields),
            _ => None,
        }
    }
}
