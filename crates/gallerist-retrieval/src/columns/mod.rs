//! Further columns of the rows of a set: numbers, dates, text and tags.
//!
//! A column has one value per row, or none where it is missing. Its kind follows from its values
//! ([`Column::infer`]): numbers where all are numbers, dates where all are dates, tags where one contains `|`, else text.
//!
//! ```
//! use gallerist_retrieval::columns::{Column, ColumnKind, Columns, Value};
//!
//! let price = Column::infer("price", ["12.50", "", "80"])?;
//! assert_eq!((price.kind(), price.value(0), price.value(1)), (ColumnKind::Number, Some(Value::Number(12.5)), None));
//! let colour = Column::infer("colour", ["red|blue", "red", ""])?;
//! assert_eq!(colour.kind(), ColumnKind::Tags);
//! let columns = Columns::new(vec![price, colour])?;
//! assert_eq!(columns.names().collect::<Vec<_>>(), ["price", "colour"]);
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

mod column;
mod date;
mod json;
mod texts;
mod value;

pub(crate) use column::number;
pub use column::{Column, ColumnKind};
pub(crate) use date::Instant;
#[cfg(feature = "arrow")]
pub(crate) use date::date_text;
pub(crate) use texts::MISSING;
pub use value::Value;

use std::collections::{BTreeMap, HashSet};

use crate::{Error, Result};

/// Names that are not free: conditions use them for the lists that every set may have.
pub const RESERVED: [&str; 3] = ["label", "camera", "path"];

/// The most columns of a set.
pub const MAX_COLUMNS: usize = 1000;

/// The columns of a set, in order; all have the same number of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    list: Vec<Column>,
}

impl Columns {
    /// # Errors
    /// [`Error::Column`] for two columns of one name, for a [reserved](RESERVED) name and for more than
    /// [`MAX_COLUMNS`]; [`Error::Count`] for columns of different lengths.
    pub fn new(list: Vec<Column>) -> Result<Self> {
        if list.len() > MAX_COLUMNS {
            return Err(too_many(list[MAX_COLUMNS].name(), list.len()));
        }
        let mut names = HashSet::new();
        for column in &list {
            let name = column.name();
            let refuse = |problem: &str, hint: &str| Error::Column {
                name: name.to_owned(),
                problem: problem.to_owned(),
                hint: Some(hint.to_owned()),
            };
            if RESERVED.contains(&name) {
                return Err(refuse(
                    "its name is reserved",
                    "rename it; labels, cameras and paths have lists of their own",
                ));
            }
            if !names.insert(name) {
                return Err(refuse("two columns have this name", "rename one of them"));
            }
            if column.len() != list[0].len() {
                let (wanted, found) = (list[0].len(), column.len());
                return Err(Error::Count {
                    what: "values of a column",
                    rows: "rows of the first",
                    wanted,
                    found,
                });
            }
        }
        Ok(Self { list })
    }

    /// Refuses columns that make more than [`MAX_COLUMNS`] together with these.
    ///
    /// # Errors
    /// [`Error::Column`].
    pub fn check_joined(&self, others: &Self) -> Result<()> {
        let new = others.names().filter(|name| self.get(name).is_none());
        let names: Vec<&str> = self.names().chain(new).collect();
        match names.get(MAX_COLUMNS) {
            Some(name) => Err(too_many(name, names.len())),
            None => Ok(()),
        }
    }

    /// True when there are no columns.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Number of rows; `None` without columns.
    pub fn rows(&self) -> Option<usize> {
        self.list.first().map(Column::len)
    }

    /// The columns, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.list.iter()
    }

    /// The names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(Column::name)
    }

    /// The column of this name.
    pub fn get(&self, name: &str) -> Option<&Column> {
        self.list.iter().find(|column| column.name() == name)
    }

    /// The names and values of a row; columns in which it has no value are left out.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> Vec<(&str, Value<'_>)> {
        self.list.iter().filter_map(|column| Some((column.name(), column.value(row)?))).collect()
    }

    /// [`row`](Self::row) as JSON: numbers, texts, and lists of tags. Without columns it is empty.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row_as_json(&self, row: usize) -> serde_json::Map<String, serde_json::Value> {
        let value = |value| serde_json::to_value(value).expect("finite numbers and texts");
        self.row(row).into_iter().map(|(name, of_row)| (name.to_owned(), value(of_row))).collect()
    }

    /// The columns of one row that have a value in it, in the order of their names.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn of_row(&self, row: usize) -> Self {
        let with_value = self.list.iter().filter(|column| column.value(row).is_some());
        let mut list: Vec<Column> = with_value.map(|column| column.select(&[row])).collect();
        list.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        Self { list }
    }

    /// The columns of rows that are each given by themselves, as by [`of_row`](Self::of_row). Columns that `first` names
    /// come first, in that order.
    #[must_use]
    pub fn of_rows<'a>(first: &[(String, ColumnKind)], rows: impl IntoIterator<Item = &'a Self>) -> Self {
        let first = Self { list: first.iter().map(|(name, kind)| Column::empty(name, *kind)).collect() };
        let rows = rows.into_iter().map(|row| (row, 1));
        Self::concat([(&first, 0)].into_iter().chain(rows))
    }

    /// These rows, in the given order.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { list: self.list.iter().map(|column| column.select(rows)).collect() }
    }

    /// Adds the rows of another set at the end: [`concat`](Self::concat) of the two, `before` and `rows` rows. The values that
    /// are here are not copied, except those of columns whose kind changes.
    pub fn append(&mut self, before: usize, others: &Self, rows: usize) {
        for column in &mut self.list {
            column.append(others.get(column.name()), rows);
        }
        let new = others.iter().filter(|other| self.get(other.name()).is_none());
        let new: Vec<Column> =
            new.map(|other| Column::concat(other.name(), &[(None, before), (Some(other), rows)])).collect();
        self.list.extend(new);
    }

    /// The columns of several sets one after the other, each given with its number of rows. The result has the columns
    /// of all: in rows of a set without a column, its value is missing. Where a column has two kinds, it becomes tags if
    /// one of them is tags, else text.
    #[must_use]
    pub fn concat<'a>(sets: impl IntoIterator<Item = (&'a Self, usize)>) -> Self {
        let sets: Vec<_> = sets.into_iter().collect();
        let mut names = Vec::new();
        let mut known = HashSet::new();
        for name in sets.iter().flat_map(|(columns, _)| columns.names()) {
            if known.insert(name) {
                names.push(name);
            }
        }
        let parts = |name| sets.iter().map(|(columns, rows)| (columns.get(name), *rows)).collect::<Vec<_>>();
        Self { list: names.into_iter().map(|name| Column::concat(name, &parts(name))).collect() }
    }
}

/// Values of one column and kind that become text or tags: see [`values_to_text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BecomesText {
    /// The name of the column.
    pub column: String,
    /// Their kind.
    pub kind: ColumnKind,
    /// The kind of the column in another set.
    pub other: ColumnKind,
    /// How many they are.
    pub values: usize,
}

/// The numbers and dates that become text or tags when these sets are [joined](Columns::concat). Something is lost
/// ([`ColumnKind::loses_as_text`]): `1.50` becomes `1.5`, and dates are no longer compared by time.
///
/// ```
/// use gallerist_retrieval::columns::{BecomesText, Column, ColumnKind, Columns, values_to_text};
///
/// let prices = |values: [&str; 2]| Columns::new(vec![Column::infer("price", values)?]);
/// let (numbers, texts) = (prices(["1.50", "2.00"])?, prices(["n/a", "3.10"])?);
/// let found = values_to_text([&numbers, &texts]);
/// let (kind, other) = (ColumnKind::Number, ColumnKind::Text);
/// assert_eq!(found, [BecomesText { column: "price".to_owned(), kind, other, values: 2 }]);
/// assert!(values_to_text([&numbers, &numbers]).is_empty());
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
pub fn values_to_text<'a>(sets: impl IntoIterator<Item = &'a Columns>) -> Vec<BecomesText> {
    let mut found: BTreeMap<&str, Vec<(ColumnKind, usize)>> = BTreeMap::new();
    for column in sets.into_iter().flat_map(Columns::iter).filter(|column| column.has_values()) {
        let values = if column.kind().loses_as_text() { column.values() } else { 0 };
        let kinds = found.entry(column.name()).or_default();
        match kinds.iter_mut().find(|(kind, _)| *kind == column.kind()) {
            Some((_, count)) => *count += values,
            None => kinds.push((column.kind(), values)),
        }
    }
    let mut lost = Vec::new();
    for (column, kinds) in found {
        for &(kind, values) in kinds.iter().filter(|(kind, _)| kind.loses_as_text()) {
            if let Some(&(other, _)) = kinds.iter().find(|(other, _)| *other != kind) {
                lost.push(BecomesText { column: column.to_owned(), kind, other, values });
            }
        }
    }
    lost
}

fn too_many(name: &str, count: usize) -> Error {
    Error::Column {
        name: name.to_owned(),
        problem: format!("there are {count} columns; a set has at most {MAX_COLUMNS}"),
        hint: Some("leave out columns that are not needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn column(name: &str, values: &[&str]) -> Column {
        Column::infer(name, values).unwrap()
    }

    #[test]
    fn columns_of_one_name_of_a_reserved_name_and_of_two_lengths_are_refused() {
        let message = |list| Columns::new(list).unwrap_err().to_string();
        let twice = vec![column("a", &["1"]), column("a", &["2"])];
        assert_eq!(message(twice), "column `a`: two columns have this name");
        assert_eq!(message(vec![column("label", &["1"])]), "column `label`: its name is reserved");
        let uneven = vec![column("a", &["1"]), column("b", &["2", "3"])];
        assert_eq!(message(uneven), "2 values of a column for 1 rows of the first");
        let many = (0..=MAX_COLUMNS).map(|i| column(&format!("c{i}"), &["1"])).collect();
        assert!(message(many).contains("at most 1000"));
    }

    #[test]
    fn joined_sets_have_the_columns_of_both_and_missing_values_for_the_others() {
        let one = Columns::new(vec![column("price", &["1", "2"]), column("shop", &["x", "y"])]).unwrap();
        let two = Columns::new(vec![column("shop", &["x|z"]), column("day", &["2024-05-01"])]).unwrap();
        let none = Columns::default();
        let all = Columns::concat([(&one, 2), (&none, 1), (&two, 1)]);
        let wanted = Columns::new(vec![
            column("price", &["1", "2", "", ""]),
            column("shop", &["x", "y", "", "x|z"]),
            column("day", &["", "", "", "2024-05-01"]),
        ]);
        assert_eq!(all, wanted.unwrap());
        assert_eq!(all.row(1), [("price", Value::Number(2.0)), ("shop", Value::Tags("y"))]);
        assert_eq!(all.select(&[3, 0]).select(&[1, 0]), all.select(&[0, 3]));
        assert_eq!(Columns::concat([(&none, 3)]), none);
    }

    #[test]
    fn numbers_and_words_of_one_name_become_text_and_no_values_change_nothing() {
        let of = |values: &[&str]| Columns::new(vec![column("size", values)]).unwrap();
        let kind = |a: &[&str], b: &[&str]| {
            let all = Columns::concat([(&of(a), a.len()), (&of(b), b.len())]);
            (all.get("size").unwrap().kind(), all.get("size").unwrap().value(0).unwrap().to_string())
        };
        assert_eq!(kind(&["2.50"], &["XL"]), (ColumnKind::Text, "2.5".to_owned()));
        assert_eq!(kind(&["2.5"], &[""]), (ColumnKind::Number, "2.5".to_owned()));
        assert_eq!(kind(&["2024-05-01"], &["3"]), (ColumnKind::Text, "2024-05-01".to_owned()));
        assert_eq!(kind(&["a"], &["b|a"]), (ColumnKind::Tags, "a".to_owned()));
    }

    #[test]
    fn numbers_and_dates_of_a_column_of_several_kinds_become_text() {
        use ColumnKind::{Date, Number, Tags, Text};
        let lost = |sets: &[&[&str]]| {
            let sets = sets.iter().map(|values| Columns::new(vec![column("x", values)]).unwrap());
            let sets: Vec<Columns> = sets.collect();
            let found = values_to_text(&sets).into_iter();
            found.map(|lost| (lost.kind, lost.other, lost.values)).collect::<Vec<_>>()
        };
        let (days, day) = (&["2024-05-01", "", "2024-06"][..], &["2024-05-01"][..]);
        assert_eq!(lost(&[days, &["bald"], day]), [(Date, Text, 3)]);
        assert_eq!(lost(&[&["a|b"], days]), [(Date, Tags, 2)]);
        assert_eq!(lost(&[days, &["1.50"]]), [(Date, Number, 2), (Number, Date, 1)]);
        let unchanged: [&[&[&str]]; 4] =
            [&[days, day], &[days, &["", ""]], &[&["a"], &["a|b"]], &[&["1"], &["2"]]];
        for sets in unchanged {
            assert!(lost(sets).is_empty(), "{sets:?}");
        }
    }

    /// A set of up to four columns, each of values of one kind or missing ones, and its number of rows.
    fn sets() -> impl Strategy<Value = (Columns, usize)> {
        let values = [
            &["1", "2.5", "-3", ""][..],
            &["2024-05-01", "2024-05", ""],
            &["x", "y", "ä", "2.5", ""],
            &["x|y", "y", "|x", ""],
            &[""],
        ];
        let kinds = prop::collection::vec(prop::option::of(prop::sample::select(values.to_vec())), 4);
        (kinds, 1..6usize).prop_flat_map(|(kinds, rows)| {
            let lists: Vec<_> = kinds
                .into_iter()
                .enumerate()
                .filter_map(|(at, kind)| {
                    let values = prop::collection::vec(prop::sample::select(kind?.to_vec()), rows);
                    Some(values.prop_map(move |values| column(["a", "b", "c", "d"][at], &values)))
                })
                .collect();
            lists.prop_map(move |list| (Columns::new(list).unwrap(), rows))
        })
    }

    proptest! {
        #[test]
        fn appended_rows_are_joined_rows(parts in prop::collection::vec(sets(), 1..5)) {
            let (mut all, mut count) = parts[0].clone();
            for (new, rows) in &parts[1..] {
                let wanted = Columns::concat([(&all, count), (new, *rows)]);
                all.append(count, new, *rows);
                count += rows;
                prop_assert_eq!(&all, &wanted);
            }
        }
    }
}
