//! Columns from JSON.

use gallerist_util::text::shortened;
use serde_json::{Map, Value};

use super::column::MAX_INTEGER;
use super::{Column, ColumnKind, Columns};
use crate::labels::SEPARATOR;
use crate::{Error, Result};

impl Columns {
    /// One row from a JSON object, of values by the names of their columns: numbers, texts, lists of tags, and null for no value.
    /// Where the column of this name in `existing` has values, a value must be of its kind. A text of another name makes a column of the kind that
    /// [`Column::infer`] finds.
    ///
    /// ```
    /// use gallerist_retrieval::columns::Columns;
    ///
    /// let row = serde_json::json!({"price": 12.5, "colour": ["red", "blue"]});
    /// let columns = Columns::from_json(row.as_object().unwrap(), &Columns::default())?;
    /// assert_eq!(columns.names().collect::<Vec<_>>(), ["colour", "price"]);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Column`] for a value of another kind, for an integer of 2^53 and more, as [`new`](Self::new), and for more than
    /// [`MAX_COLUMNS`](super::MAX_COLUMNS) together with `existing`.
    pub fn from_json(row: &Map<String, Value>, existing: &Self) -> Result<Self> {
        let mut list = Vec::new();
        for (name, value) in row {
            // A column without values takes the kind of the first that it gets.
            let existing = existing.get(name).filter(|column| column.has_values());
            list.extend(column(name, value, existing.map(Column::kind))?);
        }
        let columns = Self::new(list)?;
        existing.check_joined(&columns)?;
        Ok(columns)
    }
}

/// The column of one value; `None` without a value. Without a `kind` it is that of the value.
fn column(name: &str, value: &Value, kind: Option<ColumnKind>) -> Result<Option<Column>> {
    let refuse = |problem: String, hint: Option<&str>| {
        Err(Error::Column { name: name.to_owned(), problem, hint: hint.map(str::to_owned) })
    };
    let fits = |of_value| kind.is_none_or(|kind| kind == of_value);
    let column = match value {
        Value::Null => return Ok(None),
        Value::String(text) if text.is_empty() => return Ok(None),
        Value::Number(number) if fits(ColumnKind::Number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number.abs() >= MAX_INTEGER && number.fract() == 0.0 {
                let problem = format!("{value} has more digits than a number of a column keeps");
                return refuse(problem, Some("write it as text"));
            }
            Column::numbers(name, [Some(number)])
        }
        Value::String(text) => match kind {
            Some(kind) => Column::parse(name, kind, [Some(text)]),
            None => Column::infer(name, [text]),
        },
        Value::Array(tags) if fits(ColumnKind::Tags) => {
            let text = |tag: &Value| tag.as_str().filter(|tag| !tag.contains(SEPARATOR)).map(str::to_owned);
            match tags.iter().map(text).collect::<Option<Vec<String>>>() {
                Some(texts) if texts.is_empty() => return Ok(None),
                Some(texts) => {
                    Column::parse(name, ColumnKind::Tags, [Some(texts.join(&SEPARATOR.to_string()))])
                }
                None => {
                    let problem =
                        format!("wanted a list of texts without `{SEPARATOR}`, found {}", shown(value));
                    return refuse(problem, None);
                }
            }
        }
        value => {
            let wanted = kind.map_or("a number, a text or a list of texts", |kind| match kind {
                ColumnKind::Number => "a number",
                ColumnKind::Date => "a date, such as \"2024-05-01\"",
                ColumnKind::Text => "a text",
                ColumnKind::Tags => "a list of texts",
            });
            return refuse(format!("wanted {wanted}, found {}", shown(value)), None);
        }
    };
    column.map(Some)
}

/// A value as JSON, without the end of a long one.
fn shown(value: &Value) -> String {
    shortened(&value.to_string(), 100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn existing() -> Columns {
        let column = |name, value| Column::infer(name, [value]).unwrap();
        let columns = [("price", "12.5"), ("shop", "north"), ("colour", "red|blue"), ("day", "2024-05-01")];
        Columns::new(columns.map(|(name, value)| column(name, value)).to_vec()).unwrap()
    }

    fn row(text: &str) -> Result<Columns> {
        Columns::from_json(&serde_json::from_str(text).unwrap(), &existing())
    }

    #[test]
    fn values_have_the_kinds_of_their_columns_or_make_new_ones() {
        let columns = row(
            r#"{"price": 3, "shop": "7", "colour": ["red"], "day": "2024-06", "size": "12", "seen": null,
            "note": "", "none": []}"#,
        );
        let columns = columns.unwrap();
        let wanted = json!({"price": 3, "shop": "7", "colour": ["red"], "day": "2024-06", "size": 12});
        assert_eq!(Value::Object(columns.row_as_json(0)), wanted);
        assert_eq!(columns.get("shop").unwrap().kind(), ColumnKind::Text);
        assert_eq!(columns.get("size").unwrap().kind(), ColumnKind::Number);
        assert!(row("{}").unwrap().is_empty());
    }

    #[test]
    fn values_of_other_kinds_are_refused() {
        for (text, wanted) in [
            (r#"{"price": "cheap"}"#, "column `price`: `cheap` is no number"),
            (r#"{"price": [1]}"#, "column `price`: wanted a number, found [1]"),
            (r#"{"shop": 7}"#, "column `shop`: wanted a text, found 7"),
            (r#"{"day": 2024}"#, "column `day`: wanted a date, such as \"2024-05-01\", found 2024"),
            (r#"{"colour": [1]}"#, "column `colour`: wanted a list of texts without `|`, found [1]"),
            (
                r#"{"colour": ["a|b"]}"#,
                "column `colour`: wanted a list of texts without `|`, found [\"a|b\"]",
            ),
            (r#"{"sold": true}"#, "column `sold`: wanted a number, a text or a list of texts, found true"),
            (r#"{"label": "x"}"#, "column `label`: its name is reserved"),
            (r#"{"code": 9007199254740993}"#, "column `code`: 9007199254740993 has more digits"),
        ] {
            let found = row(text).unwrap_err().to_string();
            assert!(found.starts_with(wanted), "{found}");
        }
    }
}
