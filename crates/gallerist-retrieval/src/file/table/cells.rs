//! Cells of Arrow arrays as numbers and texts.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

use crate::columns::date_text;

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    /// Integers, as text: those of 2^53 and more are codes.
    Integers,
    Floats,
    Dates,
    Text,
    Tags,
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

/// What the cells of this type are; `None` for types that no column has.
pub(super) fn kind_of(kind: &DataType) -> Option<CellKind> {
    Some(match kind {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => CellKind::Floats,
        kind if kind.is_integer() => CellKind::Integers,
        DataType::Dictionary(_, value) if value.is_integer() => CellKind::Integers,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => CellKind::Dates,
        DataType::Boolean => CellKind::Text,
        kind if is_text(kind) => CellKind::Text,
        DataType::List(item) | DataType::LargeList(item) if is_text(item.data_type()) => CellKind::Tags,
        _ => return None,
    })
}

/// Whether the cells of this type can be embeddings.
pub(super) fn is_vector(kind: &DataType) -> bool {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) = kind else {
        return false;
    };
    matches!(item.data_type(), DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// The text of each cell; `None` where it is missing. Empty for a type without texts.
pub(super) fn texts(array: &ArrayRef) -> Vec<Option<String>> {
    macro_rules! shown {
        ($array:expr) => {
            $array.iter().map(|value| value.map(|value| value.to_string())).collect()
        };
    }
    /// `per_second` units of time.
    fn times(values: impl Iterator<Item = Option<i64>>, per_second: i64, utc: bool) -> Vec<Option<String>> {
        let text = |value: i64| {
            let nanoseconds = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
            date_text(value.div_euclid(per_second), nanoseconds as u32, utc)
        };
        values.map(|value| value.and_then(text)).collect()
    }
    match array.data_type() {
        DataType::Utf8 => shown!(array.as_string::<i32>()),
        DataType::LargeUtf8 => shown!(array.as_string::<i64>()),
        DataType::Utf8View => shown!(array.as_string_view()),
        DataType::Boolean => shown!(array.as_boolean()),
        DataType::Int8 => shown!(array.as_primitive::<Int8Type>()),
        DataType::Int16 => shown!(array.as_primitive::<Int16Type>()),
        DataType::Int32 => shown!(array.as_primitive::<Int32Type>()),
        DataType::Int64 => shown!(array.as_primitive::<Int64Type>()),
        DataType::UInt8 => shown!(array.as_primitive::<UInt8Type>()),
        DataType::UInt16 => shown!(array.as_primitive::<UInt16Type>()),
        DataType::UInt32 => shown!(array.as_primitive::<UInt32Type>()),
        DataType::UInt64 => shown!(array.as_primitive::<UInt64Type>()),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            numbers(array).into_iter().map(|value| value.map(|value| value.to_string())).collect()
        }
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().iter();
            days.map(|days| date_text(i64::from(days?) * 86_400, 0, false)).collect()
        }
        DataType::Date64 => times(array.as_primitive::<Date64Type>().iter(), 1000, false),
        DataType::Timestamp(unit, zone) => {
            let utc = zone.is_some();
            match unit {
                TimeUnit::Second => times(array.as_primitive::<TimestampSecondType>().iter(), 1, utc),
                TimeUnit::Millisecond => {
                    times(array.as_primitive::<TimestampMillisecondType>().iter(), 1000, utc)
                }
                TimeUnit::Microsecond => {
                    times(array.as_primitive::<TimestampMicrosecondType>().iter(), 1_000_000, utc)
                }
                TimeUnit::Nanosecond => {
                    times(array.as_primitive::<TimestampNanosecondType>().iter(), 1_000_000_000, utc)
                }
            }
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return vec![None; array.len()];
            }
            let values = texts(dictionary.values());
            let keys = dictionary.normalized_keys();
            let text = |row: usize| values.get(keys[row]).filter(|_| !array.is_null(row))?.clone();
            (0..array.len()).map(text).collect()
        }
        DataType::List(_) => joined(array.as_list::<i32>().iter()),
        DataType::LargeList(_) => joined(array.as_list::<i64>().iter()),
        _ => Vec::new(),
    }
}

/// Lists of tags as `a|b`.
fn joined(lists: impl Iterator<Item = Option<ArrayRef>>) -> Vec<Option<String>> {
    lists.map(|list| Some(texts(&list?).into_iter().flatten().collect::<Vec<_>>().join("|"))).collect()
}

/// The floats of a column; `None` where one is missing. NaN is missing, as pandas writes it.
pub(super) fn numbers(array: &ArrayRef) -> Vec<Option<f64>> {
    let numbers: Vec<Option<f64>> = match array.data_type() {
        DataType::Float16 => {
            array.as_primitive::<Float16Type>().iter().map(|value| Some(value?.to_f64())).collect()
        }
        DataType::Float32 => {
            array.as_primitive::<Float32Type>().iter().map(|value| value.map(f64::from)).collect()
        }
        DataType::Float64 => array.as_primitive::<Float64Type>().iter().collect(),
        _ => Vec::new(),
    };
    numbers.into_iter().map(|number| number.filter(|number| !number.is_nan())).collect()
}

/// Appends the values of an array of floats, rounded to f32.
pub(super) fn append_f32(array: &dyn Array, to: &mut Vec<f32>) {
    match array.data_type() {
        DataType::Float16 => {
            to.extend(array.as_primitive::<Float16Type>().values().iter().map(|v| v.to_f32()))
        }
        DataType::Float32 => to.extend_from_slice(array.as_primitive::<Float32Type>().values()),
        DataType::Float64 => {
            to.extend(array.as_primitive::<Float64Type>().values().iter().map(|&v| v as f32))
        }
        _ => {}
    }
}
