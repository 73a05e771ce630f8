//! One column.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::date::Instant;
use super::texts::{MISSING, Texts};
use super::value::Value;
use crate::labels::{self, SEPARATOR};
use crate::{Error, Result};

/// The most bytes of a name, and of a text value.
const MAX_NAME: usize = 256;
const MAX_TEXT: usize = 1 << 16;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    /// Finite numbers (f64).
    Number,
    /// Dates and times (ISO 8601), kept as written, ordered by time.
    Date,
    /// Text.
    Text,
    /// Sets of texts, written `a|b`.
    Tags,
}

impl ColumnKind {
    /// The kind of a column of values of two kinds: tags if one of them is tags, else text.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Tags, _) | (_, Self::Tags) => Self::Tags,
            _ => Self::Text,
        }
    }

    /// Whether something of its values is lost when they become text: numbers are not kept as written, and dates are no longer
    /// compared by time.
    pub fn loses_as_text(self) -> bool {
        matches!(self, Self::Number | Self::Date)
    }
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "number",
            Self::Date => "date",
            Self::Text => "text",
            Self::Tags => "tags",
        })
    }
}

/// A column: a name and one value per row, or none where it is missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    name: String,
    kind: ColumnKind,
    cells: Cells,
}

#[derive(Clone, Debug)]
pub(super) enum Cells {
    /// NaN where the value is missing: a number of a column is finite.
    Numbers(Vec<f64>),
    Texts(Texts),
}

impl PartialEq for Cells {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Numbers(a), Self::Numbers(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
            }
            (Self::Texts(a), Self::Texts(b)) => a == b,
            _ => false,
        }
    }
}

impl Column {
    /// A column of the kind that follows from its values; an empty text is a missing value.
    ///
    /// - [`ColumnKind::Number`] where all are decimal numbers, such as `-3`, `0.5` and `1e-3`. A number with a leading
    ///   zero (`0042`), with a plus sign, or an integer of 2^53 and more is a code and not a number, and so is
    ///   a number whose digits f64 does not hold: of more than 17 significant digits, or of 2^53 and more with other
    ///   digits than f64 has (`9007199254740993.5`). No digit is lost.
    /// - [`ColumnKind::Date`] where all are dates or times of ISO 8601: `2024-05`, `2024-05-01`, `2024-05-01T10:30`,
    ///   `2024-05-01T10:30:15.5+02:00`.
    /// - [`ColumnKind::Tags`] where one contains `|`: spaces around tags, empty and repeated tags are dropped.
    /// - Else, and where all are missing, [`ColumnKind::Text`].
    ///
    /// # Errors
    /// [`Error::Column`] for an empty name, control characters in it, more than 256 bytes of it, and more than 65,536
    /// bytes of a text.
    pub fn infer<S: AsRef<str>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = S>,
    ) -> Result<Self> {
        let texts = Texts::new(values.into_iter().map(Some));
        let all = |test: fn(&str) -> bool| {
            !texts.distinct().is_empty() && texts.distinct().iter().all(|text| test(text))
        };
        let kind = if all(|text| number(text).is_some()) {
            ColumnKind::Number
        } else if all(|text| Instant::parse(text).is_some()) {
            ColumnKind::Date
        } else if texts.distinct().iter().any(|text| text.contains(SEPARATOR)) {
            ColumnKind::Tags
        } else {
            ColumnKind::Text
        };
        Self::of_texts(name.into(), kind, texts)
    }

    /// A column of this kind from text: numbers and dates as [`infer`](Self::infer) reads them.
    ///
    /// # Errors
    /// As [`infer`](Self::infer), and [`Error::Column`] for text that is no value of the kind.
    pub fn parse<S: AsRef<str>>(
        name: impl Into<String>,
        kind: ColumnKind,
        values: impl IntoIterator<Item = Option<S>>,
    ) -> Result<Self> {
        Self::of_texts(name.into(), kind, Texts::new(values))
    }

    /// A column of dates, text or tags by the places of its rows in a list of texts, as [`as_texts`](Self::as_texts)
    /// returns them.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    ///
    /// # Panics
    /// When there is no such place.
    pub(crate) fn of_places(
        name: String,
        kind: ColumnKind,
        distinct: Vec<String>,
        places: Vec<u32>,
    ) -> Result<Self> {
        Self::of_texts(name, kind, Texts::of_places(distinct, places))
    }

    /// A column of numbers.
    ///
    /// # Errors
    /// As [`infer`](Self::infer), and [`Error::Column`] for a number that is not finite.
    pub fn numbers(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Result<Self> {
        let name = checked(name.into())?;
        let finite = |value: Option<f64>| match value {
            Some(value) if !value.is_finite() => Err(Error::Column {
                name: name.clone(),
                problem: format!("a value is {value}; numbers must be finite"),
                hint: Some("leave the value out".to_owned()),
            }),
            value => Ok(value.unwrap_or(f64::NAN)),
        };
        let numbers = values.into_iter().map(finite).collect::<Result<_>>()?;
        Ok(Self { name, kind: ColumnKind::Number, cells: Cells::Numbers(numbers) })
    }

    /// A column without rows.
    pub(super) fn empty(name: &str, kind: ColumnKind) -> Self {
        let cells = match kind {
            ColumnKind::Number => Cells::Numbers(Vec::new()),
            _ => Cells::Texts(Texts::default()),
        };
        Self { name: name.to_owned(), kind, cells }
    }

    fn of_texts(name: String, kind: ColumnKind, texts: Texts) -> Result<Self> {
        let name = checked(name)?;
        let refuse = |problem: String| Error::Column { name: name.clone(), problem, hint: None };
        if let Some(long) = texts.distinct().iter().find(|text| text.len() > MAX_TEXT) {
            return Err(refuse(format!(
                "a value has {} bytes; at most {MAX_TEXT} are permitted",
                long.len()
            )));
        }
        let unfit = |text: &&String| match kind {
            ColumnKind::Number => number(text).is_none(),
            ColumnKind::Date => Instant::parse(text).is_none(),
            ColumnKind::Text | ColumnKind::Tags => false,
        };
        if let Some(text) = texts.distinct().iter().find(unfit) {
            return Err(refuse(format!("`{text}` is no {kind}")));
        }
        let cells = match kind {
            ColumnKind::Number => {
                let of = |row: usize| texts.get(row).and_then(number).unwrap_or(f64::NAN);
                Cells::Numbers((0..texts.len()).map(of).collect())
            }
            ColumnKind::Tags => Cells::Texts(texts.map(canonical_tags)),
            ColumnKind::Date | ColumnKind::Text => Cells::Texts(texts),
        };
        Ok(Self { name, kind, cells })
    }

    /// The column of one name of several sets, each with its number of rows.
    pub(super) fn concat<'a>(name: &str, parts: &[(Option<&'a Self>, usize)]) -> Self {
        let mut kinds =
            parts.iter().filter_map(|(column, _)| column.filter(|c| c.has_values())).map(Self::kind);
        let first = kinds.next();
        let kind = first.unwrap_or(ColumnKind::Text);
        let kind = kinds.fold(kind, ColumnKind::joined);
        let rows = || {
            let of = |&(column, rows): &(Option<&'a Self>, usize)| {
                (0..rows).map(move |row| column.and_then(|column| column.value(row)))
            };
            parts.iter().flat_map(of)
        };
        let cells = match kind {
            ColumnKind::Number => Cells::Numbers(
                rows()
                    .map(|value| if let Some(Value::Number(number)) = value { number } else { f64::NAN })
                    .collect(),
            ),
            kind => {
                let texts = Texts::new(rows().map(|value| value.map(|value| value.to_string())));
                Cells::Texts(if kind == ColumnKind::Tags { texts.map(canonical_tags) } else { texts })
            }
        };
        Self { name: name.to_owned(), kind, cells }
    }

    /// Adds the rows of another column at the end, or as many rows without a value: [`concat`](Self::concat) of the two.
    /// The values that are here are copied only where their kind changes.
    pub(super) fn append(&mut self, other: Option<&Self>, rows: usize) {
        if !self.has_values() || other.is_some_and(|other| other.has_values() && other.kind != self.kind) {
            let before = self.len();
            *self = Self::concat(&self.name, &[(Some(self), before), (other, rows)]);
            return;
        }
        match (&mut self.cells, other.filter(|other| other.kind == self.kind).map(|other| &other.cells)) {
            (Cells::Numbers(numbers), Some(Cells::Numbers(others))) => numbers.extend_from_slice(others),
            (Cells::Texts(texts), Some(Cells::Texts(others))) => texts.extend(others),
            (Cells::Numbers(numbers), _) => numbers.resize(numbers.len() + rows, f64::NAN),
            (Cells::Texts(texts), _) => texts.extend_missing(rows),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its values are.
    pub fn kind(&self) -> ColumnKind {
        self.kind
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match &self.cells {
            Cells::Numbers(numbers) => numbers.len(),
            Cells::Texts(texts) => texts.len(),
        }
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a row; `None` where it is missing.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn value(&self, row: usize) -> Option<Value<'_>> {
        match &self.cells {
            Cells::Numbers(numbers) => {
                Some(numbers[row]).filter(|number| !number.is_nan()).map(Value::Number)
            }
            Cells::Texts(texts) => texts.get(row).map(|text| match self.kind {
                ColumnKind::Date => Value::Date(text),
                ColumnKind::Tags => Value::Tags(text),
                ColumnKind::Number | ColumnKind::Text => Value::Text(text),
            }),
        }
    }

    /// Sorts rows by their values: numbers by size, dates by time, texts and tags by their bytes; `descending` the other way
    /// round. Rows without a value come last in both, and equal rows keep their order.
    ///
    /// ```
    /// # use gallerist_retrieval::columns::Column;
    /// let price = Column::infer("price", ["80", "", "5", "12.5"])?;
    /// let mut rows = vec![0, 1, 2, 3];
    /// price.sort(&mut rows, false);
    /// assert_eq!(rows, [2, 3, 0, 1]);
    /// price.sort(&mut rows, true);
    /// assert_eq!(rows, [0, 3, 2, 1]);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Panics
    /// When there is no such row.
    pub fn sort(&self, rows: &mut [usize], descending: bool) {
        // The rank of each row's value, with the rows without one after all others.
        let ranks: Vec<u32> = match &self.cells {
            Cells::Numbers(numbers) => ranks(numbers, f64::total_cmp),
            Cells::Texts(texts) => {
                let of_texts = match self.kind {
                    ColumnKind::Date => {
                        let days: Vec<_> = texts.distinct().iter().map(|text| Instant::parse(text)).collect();
                        ranks(&days, Ord::cmp)
                    }
                    _ => ranks(texts.distinct(), Ord::cmp),
                };
                let rank = |&place: &u32| of_texts.get(place as usize).copied().unwrap_or(MISSING);
                texts.places().iter().map(rank).collect()
            }
        };
        let has_value = |row: usize| self.value(row).is_some();
        match descending {
            false => rows.sort_by_key(|&row| (!has_value(row), ranks[row])),
            true => rows.sort_by_key(|&row| (!has_value(row), std::cmp::Reverse(ranks[row]))),
        }
    }

    /// The numbers, with NaN where one is missing; `None` for a column of another kind.
    pub(crate) fn as_numbers(&self) -> Option<&[f64]> {
        if let Cells::Numbers(numbers) = &self.cells { Some(numbers) } else { None }
    }

    /// The distinct texts, and the place of each row's among them or `u32::MAX` where it is missing; `None` for numbers.
    pub fn as_texts(&self) -> Option<(&[String], &[u32])> {
        if let Cells::Texts(texts) = &self.cells { Some((texts.distinct(), texts.places())) } else { None }
    }

    pub(super) fn select(&self, rows: &[usize]) -> Self {
        let cells = match &self.cells {
            Cells::Numbers(numbers) => Cells::Numbers(rows.iter().map(|&row| numbers[row]).collect()),
            Cells::Texts(texts) => Cells::Texts(texts.select(rows)),
        };
        Self { name: self.name.clone(), kind: self.kind, cells }
    }

    /// Whether a row has a value.
    pub fn has_values(&self) -> bool {
        match &self.cells {
            Cells::Numbers(numbers) => numbers.iter().any(|number| !number.is_nan()),
            Cells::Texts(texts) => !texts.distinct().is_empty(),
        }
    }

    /// The number of rows with a value.
    pub fn values(&self) -> usize {
        (0..self.len()).filter(|&row| self.value(row).is_some()).count()
    }
}

fn checked(name: String) -> Result<String> {
    let problem = if name.is_empty() {
        "its name is empty".to_owned()
    } else if name.len() > MAX_NAME {
        format!("its name has {} bytes; at most {MAX_NAME} are permitted", name.len())
    } else if name.chars().any(char::is_control) {
        "its name has control characters".to_owned()
    } else {
        return Ok(name);
    };
    Err(Error::Column { name, problem, hint: Some("rename the column".to_owned()) })
}

/// The rank of each value: equal values have equal ranks.
fn ranks<T>(values: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Vec<u32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| compare(&values[a], &values[b]));
    let mut ranks = vec![0; values.len()];
    for pair in order.windows(2) {
        let differ = compare(&values[pair[0]], &values[pair[1]]) != Ordering::Equal;
        ranks[pair[1]] = ranks[pair[0]] + u32::from(differ);
    }
    ranks
}

/// Integers from here on (2^53) are not all numbers of a column, which are f64.
pub(super) const MAX_INTEGER: f64 = 9_007_199_254_740_992.0;

/// A decimal number, as [`Column::infer`] defines it.
pub(crate) fn number(text: &str) -> Option<f64> {
    let magnitude = text.strip_prefix('-').unwrap_or(text);
    let whole = magnitude.bytes().take_while(u8::is_ascii_digit).count();
    // `1.`, `.5`, `inf` and `NaN` parse, but are not written as numbers in tables.
    let rest_starts_well = match &magnitude.as_bytes()[whole..] {
        [] => true,
        [b'.', digit, ..] => digit.is_ascii_digit(),
        [b'e' | b'E', ..] => true,
        _ => false,
    };
    if whole == 0 || !rest_starts_well || whole > 1 && magnitude.starts_with('0') {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    let is_large = number.abs() >= MAX_INTEGER;
    let loses_digits = match significant(magnitude) {
        // f64 keeps every number of 15 digits apart from the others.
        digits if digits.len() <= 15 => false,
        digits if digits.len() > 17 => true,
        digits => is_large && digits != significant(&format!("{number:e}")),
    };
    (number.is_finite() && !loses_digits && !(is_large && whole == magnitude.len())).then_some(number)
}

/// The digits of a number without its point, its exponent, and the zeros at both ends.
fn significant(magnitude: &str) -> String {
    let end = magnitude.find(['e', 'E']).unwrap_or(magnitude.len());
    let digits: String = magnitude[..end].chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

/// The tags in the order of their bytes, each once.
fn canonical_tags(text: &str) -> String {
    let mut tags: Vec<&str> = labels::split(text).collect();
    tags.sort_unstable();
    tags.dedup();
    tags.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_follows_from_all_values() {
        for (values, kind) in [
            (&["1", "", "-2.5e3"][..], ColumnKind::Number),
            (&["2024-05-01", "2024-05-01T10:00Z"], ColumnKind::Date),
            (&["2024", "2024-05"], ColumnKind::Text),
            (&["1", "x"], ColumnKind::Text),
            (&["1", "2|3"], ColumnKind::Tags),
            (&["", ""], ColumnKind::Text),
            (&[], ColumnKind::Text),
        ] {
            assert_eq!(Column::infer("c", values).unwrap().kind(), kind, "{values:?}");
        }
    }

    #[test]
    fn rows_are_sorted_by_their_values_with_missing_ones_last() {
        let sorted = |values: &[&str], descending| {
            let mut rows: Vec<usize> = (0..values.len()).collect();
            Column::infer("c", values).unwrap().sort(&mut rows, descending);
            rows
        };
        assert_eq!(sorted(&["3", "", "-1", "3", "20"], false), [2, 0, 3, 4, 1]);
        assert_eq!(sorted(&["3", "", "-1", "3", "20"], true), [4, 0, 3, 2, 1]);
        let days = ["2024-05-01T01:00+02:00", "2024-04-30", "", "2024-04-30T23:00Z"];
        assert_eq!(sorted(&days, false), [1, 0, 3, 2]);
        assert_eq!(sorted(&["b", "a", "", "b"], true), [0, 3, 1, 2]);
    }

    #[test]
    fn codes_are_no_numbers() {
        for text in [
            "0042",
            "+49",
            "1.",
            ".5",
            "inf",
            "NaN",
            "1e",
            "1e999",
            "9007199254740992",
            "1_000",
            "1,5",
            "-",
            "0x1",
            "0.12345678901234567890",
            "9007199254740993.5",
            "-9007199254740993e0",
            "900719925474099.3e1",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
        for (text, wanted) in [
            ("0", 0.0),
            ("-0.25", -0.25),
            ("9007199254740991", 9007199254740991.0),
            ("1E3", 1e3),
            ("6.02214076e23", 6.02214076e23),
            ("0.30000000000000004", 0.1 + 0.2),
            ("0.100000000000000000000", 0.1),
            ("1.2345678901234568e+17", 1.2345678901234568e17),
            ("9007199254740994.0", 9007199254740994.0),
        ] {
            assert_eq!(number(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn tags_are_a_set() {
        let column = Column::infer("c", ["b | a|b", "|", "a"]).unwrap();
        let tags = |row| column.value(row).map(|value: Value| value.tags().collect::<Vec<_>>());
        assert_eq!((tags(0), tags(1), tags(2)), (Some(vec!["a", "b"]), None, Some(vec!["a"])));
        assert_eq!(column, Column::infer("c", ["a|b", "", "a|a"]).unwrap());
        assert_eq!(serde_json::to_string(&column.value(0)).unwrap(), r#"["a","b"]"#);
    }

    #[test]
    fn names_and_values_that_no_file_may_have_are_refused() {
        let message = |name: &str| Column::infer(name, ["1"]).unwrap_err().to_string();
        assert_eq!(message(""), "column ``: its name is empty");
        assert!(message("a\nb").ends_with("its name has control characters"));
        assert!(message(&"x".repeat(257)).ends_with("its name has 257 bytes; at most 256 are permitted"));
        let long = Column::infer("c", ["x".repeat(MAX_TEXT + 1)]).unwrap_err().to_string();
        assert!(long.ends_with("a value has 65537 bytes; at most 65536 are permitted"), "{long}");
        assert!(Column::numbers("c", [Some(f64::NAN)]).is_err());
        let unfit = Column::parse("c", ColumnKind::Date, [Some("today")]).unwrap_err();
        assert_eq!(unfit.to_string(), "column `c`: `today` is no date");
    }
}
