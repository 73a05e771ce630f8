//! Further columns of the items of a collection.
//!
//! The payload of an item has its values by kind, and then by the name of the column:
//! `{"numbers": {"price": 12.5}, "texts": {"shop": "x"}, "tags": {"colour": ["blue", "red"]}, "dates": {"day": "2024-05-01"}}`.
//! The metadata has a key for each kind that a column was ever sent as: `gallerist.column.numbers.price`, with its place
//! among the columns. Keys are only added, so that programs that push at the same time lose none.
//!
//! Qdrant stores payloads as JSON, and its reader of JSON may change the last bit of a number of more than 15 digits. Such a
//! number is stored as text in `digits`, and a column with one of them is not compared by the server.

use std::collections::BTreeMap;

use gallerist_retrieval::columns::{Column, ColumnKind, Columns, Value as Cell};

use crate::wire::points::{FLOAT, KEYWORD};
use crate::wire::value::{Object, Value};

const KEY: &str = "gallerist.column.";

/// Where the values of a kind are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Store {
    Numbers,
    Digits,
    Texts,
    Tags,
    Dates,
}

impl Store {
    pub(crate) const ALL: [Self; 5] = [Self::Numbers, Self::Digits, Self::Texts, Self::Tags, Self::Dates];

    /// The field of the payload.
    pub(crate) const fn field(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Digits => "digits",
            Self::Texts => "texts",
            Self::Tags => "tags",
            Self::Dates => "dates",
        }
    }

    fn kind(self) -> ColumnKind {
        match self {
            Self::Numbers | Self::Digits => ColumnKind::Number,
            Self::Texts => ColumnKind::Text,
            Self::Tags => ColumnKind::Tags,
            Self::Dates => ColumnKind::Date,
        }
    }

    fn of(cell: Cell) -> Self {
        match cell {
            Cell::Number(number) if is_kept(number) => Self::Numbers,
            Cell::Number(_) => Self::Digits,
            Cell::Text(_) => Self::Texts,
            Cell::Tags(_) => Self::Tags,
            Cell::Date(_) => Self::Dates,
        }
    }

    /// The type of the index that evaluates tests of this store, if there is one.
    pub(crate) fn index(self) -> Option<i32> {
        match self {
            Self::Numbers => Some(FLOAT),
            Self::Texts | Self::Tags => Some(KEYWORD),
            Self::Digits | Self::Dates => None,
        }
    }

    /// The path of a column in the payload.
    pub(crate) fn path(self, column: &str) -> String {
        format!("{}.\"{}\"", self.field(), escaped(column))
    }
}

/// The name of a column as a key of JSON that Qdrant can read in a path: without quotation marks and backslashes.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('"', "%22").replace('\\', "%5C")
}

fn unescaped(key: &str) -> String {
    key.replace("%5C", "\\").replace("%22", "\"").replace("%25", "%")
}

/// Whether a number comes back from the server bit for bit.
///
/// True for whole numbers up to 2^53, which are sent as integers, and for numbers whose decimal digits are a whole number of
/// at most 2^53 with an exponent of at most 22: a reader of JSON multiplies or divides two numbers that are exact.
fn is_kept(number: f64) -> bool {
    const MOST: f64 = (1_u64 << 53) as f64;
    if whole(number).is_some() || number == 0.0 {
        return true;
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').expect("a number with an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent");
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    let significand: f64 = digits.parse().expect("digits");
    let exponent = exponent + 1 - digits.len() as i32;
    // Large whole numbers may be written with all their zeros.
    significand <= MOST && exponent.abs() <= 22 && !(1e15..1e17).contains(&number.abs())
}

/// The number as an integer that `f64` and JSON have exactly.
fn whole(number: f64) -> Option<i64> {
    const MOST: f64 = (1_u64 << 53) as f64;
    let is_whole =
        number.fract() == 0.0 && number.abs() <= MOST && (number != 0.0 || number.is_sign_positive());
    is_whole.then_some(number as i64)
}

/// The fields of the payload with the columns of a row.
pub(crate) fn fields(columns: &Columns, row: usize) -> Vec<(&'static str, Value)> {
    let mut stores: BTreeMap<Store, Object> = BTreeMap::new();
    let columns = columns.of_row(row);
    for (name, cell) in if columns.is_empty() { vec![] } else { columns.row(0) } {
        let value = match cell {
            Cell::Number(number) => match (whole(number), is_kept(number)) {
                (Some(whole), _) => Value::integer(whole),
                (None, true) => Value::double(number),
                (None, false) => Value::text(&format!("{number:e}")),
            },
            Cell::Text(text) | Cell::Date(text) => Value::text(text),
            Cell::Tags(_) => Value::texts(cell.tags()),
        };
        stores.entry(Store::of(cell)).or_default().insert(escaped(name), value);
    }
    stores.into_iter().map(|(store, values)| (store.field(), Value::object(values))).collect()
}

/// The columns of a payload, each of one row; `None` for values that this program does not write.
pub(crate) fn read(payload: &Object) -> Option<Columns> {
    let mut columns = BTreeMap::new();
    for store in Store::ALL {
        let Some(values) = payload.get(store.field()) else { continue };
        for (key, value) in values.as_object()? {
            let name = unescaped(key);
            let column = match store {
                Store::Numbers => Column::numbers(name.clone(), [Some(value.as_number()?)]),
                Store::Digits => Column::numbers(name.clone(), [Some(value.as_text()?.parse().ok()?)]),
                Store::Texts | Store::Dates => Column::parse(name.clone(), store.kind(), [value.as_text()]),
                Store::Tags => {
                    let tags: Option<Vec<&str>> = value.as_list()?.iter().map(Value::as_text).collect();
                    Column::parse(name.clone(), ColumnKind::Tags, [Some(tags?.join("|"))])
                }
            };
            // Two values of one column.
            if columns.insert(name, column.ok()?).is_some() {
                return None;
            }
        }
    }
    let columns = Columns::new(columns.into_values().collect()).ok()?;
    Some(if columns.is_empty() { columns } else { columns.of_row(0) })
}

/// The stores of each column, and its place among the columns.
fn stores(metadata: &Object) -> BTreeMap<String, (i64, Vec<Store>)> {
    let mut columns: BTreeMap<String, (i64, Vec<Store>)> = BTreeMap::new();
    for (key, place) in metadata {
        let Some(rest) = key.strip_prefix(KEY) else { continue };
        let Some((field, name)) = rest.split_once('.') else { continue };
        let Some(store) = Store::ALL.into_iter().find(|store| store.field() == field) else { continue };
        let place = place.as_integer().unwrap_or(i64::MAX);
        let column = columns.entry(name.to_owned()).or_insert((place, Vec::new()));
        column.0 = column.0.min(place);
        column.1.push(store);
    }
    columns
}

/// Names and kinds of all columns that were ever sent, in the order of their first items.
pub(crate) fn listed(metadata: &Object) -> Vec<(String, ColumnKind)> {
    let mut columns: Vec<_> = stores(metadata).into_iter().collect();
    columns.sort_by_key(|(_, (place, _))| *place);
    let kind = |stores: &[Store]| {
        stores.iter().map(|store| store.kind()).reduce(ColumnKind::joined).expect("a column has a store")
    };
    columns.into_iter().map(|(name, (_, stores))| (name, kind(&stores))).collect()
}

/// The columns whose values are all in one store that the server compares, without rows.
pub(crate) fn comparable(metadata: &Object) -> Columns {
    let only = |(name, (_, stores)): (String, (i64, Vec<Store>))| match stores[..] {
        [store] if store != Store::Digits => Some(Column::parse::<&str>(name, store.kind(), [])),
        _ => None,
    };
    stores(metadata)
        .into_iter()
        .filter_map(only)
        .collect::<Result<_, _>>()
        .and_then(Columns::new)
        .unwrap_or_default()
}

/// The store of a [comparable](comparable) column of this kind.
pub(crate) fn store(kind: ColumnKind) -> Store {
    match kind {
        ColumnKind::Number => Store::Numbers,
        ColumnKind::Text => Store::Texts,
        ColumnKind::Tags => Store::Tags,
        ColumnKind::Date => Store::Dates,
    }
}

/// The columns and stores of a set that the metadata do not have, with their keys and places.
pub(crate) fn new(metadata: &Object, columns: &Columns) -> Vec<(Store, String, (String, Value))> {
    let known = stores(metadata);
    let mut next = known.values().map(|(place, _)| place.saturating_add(1)).max().unwrap_or(0);
    let mut all = Vec::new();
    for column in columns.iter().filter(|column| column.has_values()) {
        let name = column.name();
        let mut used: Vec<Store> =
            (0..column.len()).filter_map(|row| Some(Store::of(column.value(row)?))).collect();
        used.sort_unstable();
        used.dedup();
        let (place, there) = known.get(name).map_or((next, &[][..]), |(place, stores)| (*place, stores));
        for store in used.into_iter().filter(|store| !there.contains(store)) {
            let key = format!("{KEY}{}.{name}", store.field());
            all.push((store, name.to_owned(), (key, Value::integer(place))));
        }
        next = next.max(place.saturating_add(1));
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn columns(list: &[(&str, &str)]) -> Columns {
        Columns::new(list.iter().map(|(name, value)| Column::infer(*name, [*value]).unwrap()).collect())
            .unwrap()
    }

    fn payload(columns: &Columns) -> Object {
        fields(columns, 0).into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
    }

    #[test]
    fn values_come_back() {
        let row = columns(&[
            ("colour", "b|a"),
            ("day", "2024-05"),
            ("none", ""),
            ("price", "-0.1"),
            ("shop", "x"),
            ("the \"%22\" \\", "7"),
        ]);
        let stored = payload(&row);
        assert_eq!(stored.keys().collect::<Vec<_>>(), ["dates", "numbers", "tags", "texts"]);
        assert_eq!(read(&stored).unwrap(), row.of_row(0));
        assert_eq!(read(&Object::new()), Some(Columns::default()));
        let wrong = |field: &str, value: Value| {
            let object = Value::object([("a".to_owned(), value)].into());
            read(&[(field.to_owned(), object)].into())
        };
        assert_eq!(wrong("numbers", Value::text("1")), None);
        assert_eq!(wrong("digits", Value::text("x")), None);
        assert_eq!(wrong("dates", Value::text("x")), None);
        assert_eq!(wrong("tags", Value::text("x")), None);
        assert_eq!(wrong("numbers", Value::double(f64::NAN)), None);
        let twice = ["numbers", "digits"].map(|field| {
            let value = if field == "numbers" { Value::integer(1) } else { Value::text("1e0") };
            (field.to_owned(), Value::object([("a".to_owned(), value)].into()))
        });
        assert_eq!(read(&twice.into()), None);
    }

    #[test]
    fn only_numbers_of_few_digits_are_compared_by_the_server() {
        for number in [0.0, -0.0, 0.1, -12.5, 1e21, 9007199254740991.0, 123456.789, 1e-7, 3.0] {
            assert!(is_kept(number), "{number}");
        }
        for number in [0.1 + 0.2, 1e-300, 1e23, 9007199254740994.0, f64::MAX, 5e-324, 1e16] {
            assert!(!is_kept(number), "{number}");
        }
        assert_eq!((whole(-3.0), whole(-0.0), whole(0.5)), (Some(-3), None, None));
    }

    #[test]
    fn columns_of_one_kind_are_comparable_and_keys_are_only_added() {
        let mut metadata = Object::new();
        let mut note = |columns: &Columns| {
            let new = new(&metadata, columns);
            let keys: Vec<String> = new.iter().map(|(_, _, (key, _))| key.clone()).collect();
            metadata.extend(new.into_iter().map(|(_, _, entry)| entry));
            (keys, listed(&metadata), comparable(&metadata).names().map(str::to_owned).collect::<Vec<_>>())
        };
        let (number, text) = (ColumnKind::Number, ColumnKind::Text);
        let listed = |list: &[(&str, ColumnKind)]| -> Vec<(String, ColumnKind)> {
            list.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
        };
        let (keys, all, server) = note(&columns(&[("shop.a", "x"), ("price", "1"), ("size", "")]));
        assert_eq!(keys, ["gallerist.column.texts.shop.a", "gallerist.column.numbers.price"]);
        assert_eq!(all, listed(&[("shop.a", text), ("price", number)]));
        assert_eq!(server, ["price", "shop.a"]);
        let (keys, all, server) = note(&columns(&[("price", "0.30000000000000004"), ("size", "7")]));
        assert_eq!(keys, ["gallerist.column.digits.price", "gallerist.column.numbers.size"]);
        assert_eq!(all, listed(&[("shop.a", text), ("price", number), ("size", number)]));
        assert_eq!(server, ["shop.a", "size"]);
        let (keys, all, server) = note(&columns(&[("size", "XL"), ("price", "2")]));
        assert_eq!(keys, ["gallerist.column.texts.size"]);
        assert_eq!(all[2].1, text);
        assert_eq!(server, ["shop.a"]);
    }

    proptest! {
        #[test]
        fn names_come_back(name in "[%\"\\\\a25C]{1,8}") {
            let key = escaped(&name);
            prop_assert!(!key.contains(['"', '\\']));
            prop_assert_eq!(unescaped(&key), name);
        }

        #[test]
        fn numbers_come_back(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let row = Columns::new(vec![Column::numbers("n", [Some(number)]).unwrap()]).unwrap();
            prop_assert_eq!(read(&payload(&row)).unwrap(), row);
        }
    }
}
