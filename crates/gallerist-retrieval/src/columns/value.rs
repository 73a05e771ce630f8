//! One value of a column.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::labels;

/// One value of a column. It is serialized as a number, a text, or a list of texts (tags).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A finite number.
    Number(f64),
    /// A date or a time (ISO 8601), as it was written.
    Date(&'a str),
    /// Text, never empty.
    Text(&'a str),
    /// A set of texts, in the order of their bytes, separated by `|`: see [`Value::tags`].
    Tags(&'a str),
}

impl<'a> Value<'a> {
    /// The tags of a value of [`Value::Tags`]; no other value has any.
    pub fn tags(self) -> impl Iterator<Item = &'a str> {
        labels::split(if let Self::Tags(text) = self { text } else { "" })
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Date(text) | Self::Text(text) | Self::Tags(text) => text.fmt(f),
        }
    }
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // `12` and not `12.0`, as it is shown.
            Self::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                serializer.serialize_i64(*number as i64)
            }
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Date(text) | Self::Text(text) => serializer.serialize_str(text),
            Self::Tags(_) => serializer.collect_seq(self.tags()),
        }
    }
}
