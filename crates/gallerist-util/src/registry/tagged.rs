//! The serde format of a named part: a map with the name among its fields, as in serde's internally tagged enums.

use std::fmt;

use serde::Serialize;
use serde::de::{self, Deserializer, MapAccess, Unexpected, Visitor};
use serde::ser::{Error as _, Impossible, SerializeMap, SerializeStruct, Serializer};

/// Writes a struct or a map with `tag = name` as its first field.
pub(super) struct Tagged<S> {
    pub(super) to: S,
    pub(super) tag: &'static str,
    pub(super) name: &'static str,
}

impl<S: Serializer> Tagged<S> {
    fn refused<T>(&self, what: &str) -> Result<T, S::Error> {
        Err(S::Error::custom(format_args!("`{}` is {what}, not a struct with named fields", self.name)))
    }

    fn alone(self) -> Result<S::Ok, S::Error> {
        let mut map = self.to.serialize_map(Some(1))?;
        map.serialize_entry(self.tag, self.name)?;
        map.end()
    }
}

macro_rules! refuse {
    ($($method:ident($type:ty),)*) => {
        $(fn $method(self, _: $type) -> Result<S::Ok, S::Error> {
            self.refused("a single value")
        })*
    };
}

impl<S: Serializer> Serializer for Tagged<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Impossible<S::Ok, S::Error>;
    type SerializeTuple = Impossible<S::Ok, S::Error>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = S::SerializeMap;
    type SerializeStruct = S::SerializeStruct;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    refuse! {
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_f32(f32),
        serialize_f64(f64),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.refused("an option")
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.alone()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<S::Ok, S::Error> {
        self.alone()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<S::Ok, S::Error> {
        self.refused("an enum")
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        self.refused("an enum")
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.refused("a list")
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.refused("a tuple")
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.refused("a tuple")
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.refused("an enum")
    }

    fn serialize_map(self, length: Option<usize>) -> Result<S::SerializeMap, S::Error> {
        let mut map = self.to.serialize_map(length.map(|length| length + 1))?;
        map.serialize_entry(self.tag, self.name)?;
        Ok(map)
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<S::SerializeStruct, S::Error> {
        let mut fields = self.to.serialize_struct(name, length + 1)?;
        fields.serialize_field(self.tag, self.name)?;
        Ok(fields)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.refused("an enum")
    }
}

/// The table of a part. Fields without a value (JSON's `null`) are absent from it.
pub(super) fn table<'de, D: Deserializer<'de>>(
    deserializer: D,
    kind: &'static str,
) -> Result<toml::Table, D::Error> {
    struct Fields(&'static str);

    impl<'de> Visitor<'de> for Fields {
        type Value = toml::Table;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "internally tagged enum {}", self.0)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<toml::Table, A::Error> {
            let mut table = toml::Table::new();
            while let Some((key, value)) = map.next_entry::<String, Option<toml::Value>>()? {
                if let Some(value) = value {
                    table.insert(key, value);
                }
            }
            Ok(table)
        }
    }

    deserializer.deserialize_any(Fields(kind))
}

/// Takes the name out of a table.
///
/// # Errors
///
/// When there is none, or it is no text.
pub(super) fn take_name<E: de::Error>(table: &mut toml::Table, tag: &'static str) -> Result<String, E> {
    let found = match table.remove(tag) {
        Some(toml::Value::String(name)) => return Ok(name),
        None => return Err(E::missing_field(tag)),
        Some(other) => other,
    };
    let unexpected = match &found {
        toml::Value::Integer(value) => Unexpected::Signed(*value),
        toml::Value::Float(value) => Unexpected::Float(*value),
        toml::Value::Boolean(value) => Unexpected::Bool(*value),
        toml::Value::Array(_) => Unexpected::Seq,
        _ => Unexpected::Map,
    };
    Err(E::invalid_type(unexpected, &"variant identifier"))
}

/// The words of serde for a name that is not among the known ones.
pub(super) fn unknown<E: de::Error>(name: &str, known: &[&str]) -> E {
    let quoted: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let expected = match &quoted[..] {
        [] => "there are no variants".into(),
        [only] => format!("expected {only}"),
        [a, b] => format!("expected {a} or {b}"),
        several => format!("expected one of {}", several.join(", ")),
    };
    E::custom(format_args!("unknown variant `{name}`, {expected}"))
}
