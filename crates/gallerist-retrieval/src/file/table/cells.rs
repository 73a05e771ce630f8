//! Cells of Arrow arrays as numbers and texts.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use super::fault::Fault;
use super::guard::Claims;
use crate::columns::date_text;
use crate::file::npy;
use crate::labels::SEPARATOR;

/// The metadata of a field: the kind of the column.
pub(super) const KIND: &str = "gallerist.kind";

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    /// Integers and decimals, as text: those that f64 does not hold are codes.
    Exact,
    Floats,
    Dates,
    Text,
    Tags,
}

/// Whether the cells of this type are texts.
pub(super) fn is_text(kind: &DataType) -> bool {
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
        kind if kind.is_integer() || kind.is_decimal() => CellKind::Exact,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => CellKind::Dates,
        DataType::Boolean => CellKind::Text,
        kind if is_text(kind) => CellKind::Text,
        DataType::Dictionary(_, value) => kind_of(value).filter(|&kind| kind != CellKind::Tags)?,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if is_text(item.data_type()) =>
        {
            CellKind::Tags
        }
        _ => return None,
    })
}

/// The name of a type in messages, without the types inside.
pub(super) fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Struct(_) => "Struct".to_owned(),
        DataType::Map(..) => "Map".to_owned(),
        kind if is_text(kind) => "Utf8".to_owned(),
        DataType::Union(..) => "Union".to_owned(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            format!("List of {}", type_name(item.data_type()))
        }
        kind => kind.to_string(),
    }
}

/// Whether the cells of this type can be embeddings.
pub(super) fn is_vector(kind: &DataType) -> bool {
    let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) = kind else {
        return false;
    };
    matches!(item.data_type(), DataType::Float16 | DataType::Float32 | DataType::Float64)
}

/// Why a cell has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// A time outside of the years that dates have.
    Year,
    /// A tag with the character that separates tags.
    Tag,
    /// Bytes that are no text.
    Encoding,
}

impl Unfit {
    /// What the cell is.
    pub(super) fn problem(self) -> &'static str {
        match self {
            Self::Year => "a time outside of the years 0 to 9999",
            Self::Tag => "a text with `|` in its list, which would be two tags",
            Self::Encoding => "a text that is not UTF-8",
        }
    }

    /// What to do.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Year => "leave the value empty, or write the column as text",
            Self::Tag => "write another character in place of `|`",
            Self::Encoding => "write the column as text in UTF-8",
        }
    }
}

type Cell = Result<Option<String>, Unfit>;

/// The text of each cell; `None` where it is missing. Empty for a type without texts. Else the first cell that has no text, and
/// why.
pub(super) fn texts(array: &ArrayRef) -> Result<Vec<Option<String>>, (usize, Unfit)> {
    let text = |(row, cell): (usize, Cell)| cell.map_err(|unfit| (row, unfit));
    cells(array).into_iter().enumerate().map(text).collect()
}

fn cells(array: &ArrayRef) -> Vec<Cell> {
    macro_rules! shown {
        ($array:expr) => {
            $array.iter().map(|value| Ok(value.map(|value| value.to_string()))).collect()
        };
    }
    macro_rules! times {
        ($kind:ty, $per_second:expr, $utc:expr) => {
            array.as_primitive::<$kind>().iter().map(|value| time(value, $per_second, $utc)).collect()
        };
    }
    match array.data_type() {
        DataType::Utf8 => shown!(array.as_string::<i32>()),
        DataType::LargeUtf8 => shown!(array.as_string::<i64>()),
        DataType::Utf8View => {
            // The reader of Parquet checks texts only where an old annotation of the column says that they are UTF-8.
            let bytes = array.as_string_view().clone().to_binary_view();
            let text = |bytes: &[u8]| str::from_utf8(bytes).map(str::to_owned).map_err(|_| Unfit::Encoding);
            bytes.iter().map(|value| value.map(text).transpose()).collect()
        }
        DataType::Boolean => shown!(array.as_boolean()),
        DataType::Int8 => shown!(array.as_primitive::<Int8Type>()),
        DataType::Int16 => shown!(array.as_primitive::<Int16Type>()),
        DataType::Int32 => shown!(array.as_primitive::<Int32Type>()),
        DataType::Int64 => shown!(array.as_primitive::<Int64Type>()),
        DataType::UInt8 => shown!(array.as_primitive::<UInt8Type>()),
        DataType::UInt16 => shown!(array.as_primitive::<UInt16Type>()),
        DataType::UInt32 => shown!(array.as_primitive::<UInt32Type>()),
        DataType::UInt64 => shown!(array.as_primitive::<UInt64Type>()),
        DataType::Decimal32(..) => decimals::<Decimal32Type>(array),
        DataType::Decimal64(..) => decimals::<Decimal64Type>(array),
        DataType::Decimal128(..) => decimals::<Decimal128Type>(array),
        DataType::Decimal256(..) => decimals::<Decimal256Type>(array),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            numbers(array).into_iter().map(|value| Ok(value.map(|value| value.to_string()))).collect()
        }
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().iter();
            days.map(|days| time(days.map(|days| i64::from(days) * 86_400), 1, false)).collect()
        }
        DataType::Date64 => times!(Date64Type, 1000, false),
        DataType::Timestamp(unit, zone) => match unit {
            TimeUnit::Second => times!(TimestampSecondType, 1, zone.is_some()),
            TimeUnit::Millisecond => times!(TimestampMillisecondType, 1000, zone.is_some()),
            TimeUnit::Microsecond => times!(TimestampMicrosecondType, 1_000_000, zone.is_some()),
            TimeUnit::Nanosecond => times!(TimestampNanosecondType, 1_000_000_000, zone.is_some()),
        },
        DataType::Dictionary(..) => of_dictionary(array, Ok(None), cells),
        DataType::List(_) => array.as_list::<i32>().iter().map(joined).collect(),
        DataType::LargeList(_) => array.as_list::<i64>().iter().map(joined).collect(),
        DataType::FixedSizeList(..) => array.as_fixed_size_list().iter().map(joined).collect(),
        _ => Vec::new(),
    }
}

/// A time of `per_second` units since 1970.
fn time(value: Option<i64>, per_second: i64, utc: bool) -> Cell {
    let Some(value) = value else { return Ok(None) };
    let nanoseconds = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
    let text = date_text(value.div_euclid(per_second), nanoseconds as u32, utc);
    text.map(Some).ok_or(Unfit::Year)
}

/// Decimals without zeros at the end of the fraction.
fn decimals<T: DecimalType + ArrowPrimitiveType>(array: &ArrayRef) -> Vec<Cell> {
    let array = array.as_primitive::<T>();
    let text = |row: usize| {
        let text = array.value_as_string(row);
        let is_fraction = text.contains('.');
        if is_fraction { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    (0..array.len()).map(|row| Ok((!array.is_null(row)).then(|| text(row)))).collect()
}

/// The values of a dictionary for each row, as `read` reads them.
fn of_dictionary<T: Clone>(array: &ArrayRef, missing: T, read: impl Fn(&ArrayRef) -> Vec<T>) -> Vec<T> {
    let dictionary = array.as_any_dictionary();
    if dictionary.values().is_empty() {
        return vec![missing; array.len()];
    }
    let values = read(dictionary.values());
    let keys = dictionary.normalized_keys();
    let value =
        |row: usize| values.get(keys[row]).filter(|_| !array.is_null(row)).unwrap_or(&missing).clone();
    (0..array.len()).map(value).collect()
}

/// A list of tags as `a|b`.
fn joined(list: Option<ArrayRef>) -> Cell {
    let Some(list) = list else { return Ok(None) };
    let tags: Vec<String> =
        cells(&list).into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    match tags.iter().any(|tag| tag.contains(SEPARATOR)) {
        true => Err(Unfit::Tag),
        false => Ok(Some(tags.join("|"))),
    }
}

/// The floats of a column; `None` where one is missing. NaN is missing, as pandas writes it. A float of less precision than f64
/// is the number that its shortest text names: 12.1, and not 12.100000381469727.
pub(super) fn numbers(array: &ArrayRef) -> Vec<Option<f64>> {
    let numbers: Vec<Option<f64>> = match array.data_type() {
        DataType::Float16 => {
            type Half = <Float16Type as ArrowPrimitiveType>::Native;
            let number = |value: Half| {
                // Five digits tell all f16 apart.
                let texts = (0..5).map(|digits| format!("{:.digits$e}", value.to_f64()));
                let numbers = texts.filter_map(|text| text.parse().ok());
                let mut same = numbers.filter(|&number| Half::from_f64(number) == value);
                same.next().unwrap_or(value.to_f64())
            };
            array.as_primitive::<Float16Type>().iter().map(|value| value.map(number)).collect()
        }
        DataType::Float32 => {
            let number = |value: f32| value.to_string().parse().unwrap_or(f64::from(value));
            array.as_primitive::<Float32Type>().iter().map(|value| value.map(number)).collect()
        }
        DataType::Float64 => array.as_primitive::<Float64Type>().iter().collect(),
        DataType::Dictionary(..) => of_dictionary(array, None, numbers),
        _ => Vec::new(),
    };
    numbers.into_iter().map(|number| number.filter(|number| !number.is_nan())).collect()
}

/// Appends the embedding of a row, rounded to f32; what is wrong with one of f64 that f32 does not hold.
pub(super) fn append_f32(array: &dyn Array, row: usize, to: &mut Vec<f32>) -> Result<(), String> {
    match array.data_type() {
        DataType::Float16 => {
            to.extend(array.as_primitive::<Float16Type>().values().iter().map(|v| v.to_f32()))
        }
        DataType::Float32 => to.extend_from_slice(array.as_primitive::<Float32Type>().values()),
        DataType::Float64 => {
            to.extend(npy::to_f32(array.as_primitive::<Float64Type>().values(), array.len(), row)?)
        }
        _ => {}
    }
    Ok(())
}

/// The array of a column of the schema in a batch, whose column `i` is column `places[i]` of the schema.
pub(super) fn array_of<'a>(
    batch: &'a RecordBatch,
    places: &[usize],
    column: usize,
) -> Result<&'a ArrayRef, Fault> {
    let place = places.iter().position(|&place| place == column);
    let place = place.filter(|&place| place < batch.num_columns());
    let missing = || ("a batch has other columns than the schema".to_owned(), None);
    place.map(|place| batch.column(place)).ok_or_else(missing)
}

/// Adds the bytes that the cells of a column will take as texts; those of numbers are short.
pub(super) fn claim(array: &ArrayRef, claims: &mut Claims) -> Result<(), Fault> {
    claims.add(array.len().saturating_mul(size_of::<Option<String>>()))?;
    claims.add(lengths(array).into_iter().fold(0, usize::saturating_add))
}

/// The bytes of the text of each cell.
fn lengths(array: &ArrayRef) -> Vec<usize> {
    /// About the length of a number or date.
    const NUMBER: usize = 16;
    // A list is for a moment a list of the texts of its items.
    let of_items = |items: &ArrayRef| {
        let items = lengths(items).into_iter().map(|length| length + size_of::<Option<String>>());
        vec![items.fold(0, usize::saturating_add)]
    };
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().offsets().lengths().collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().offsets().lengths().collect(),
        DataType::Utf8View => array.as_string_view().lengths().map(|length| length as usize).collect(),
        DataType::Dictionary(..) => of_dictionary(array, 0, lengths),
        DataType::List(_) => of_items(array.as_list::<i32>().values()),
        DataType::LargeList(_) => of_items(array.as_list::<i64>().values()),
        DataType::FixedSizeList(..) => of_items(array.as_fixed_size_list().values()),
        _ => vec![NUMBER; array.len()],
    }
}
