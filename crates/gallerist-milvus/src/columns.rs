//! Further columns of items in a collection.
//!
//! The field `columns` has a JSON object of an item's values by the names of their columns: a number, a text, a list of
//! tags, or `{"date": "2024-05-01"}`. Missing values are left out. The property `gallerist.columns` lists the columns of
//! all items that were ever sent, with their kinds: `[{"name": "price", "kind": "number"}]`.

use gallerist_retrieval::columns::{Column, ColumnKind, Columns, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

/// Bytes that Milvus allows in a value of JSON.
pub(crate) const LIMIT: usize = 65_536;

pub(crate) const PROPERTY: &str = "gallerist.columns";

/// An entry of the property.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Entry {
    name: String,
    kind: ColumnKind,
}

/// The values of a row as JSON; `None` if it has none.
pub(crate) fn of_row(columns: &Columns, row: usize) -> Option<Vec<u8>> {
    let of_value = |value: Value| match value {
        Value::Number(number) => json!(number),
        Value::Date(text) => json!({ "date": text }),
        Value::Text(text) => json!(text),
        Value::Tags(_) => json!(value.tags().collect::<Vec<_>>()),
    };
    // In the order of the names, so that the digest does not depend on the order of columns.
    let columns = columns.of_row(row);
    let values: Map<String, Json> = match columns.is_empty() {
        true => Map::new(),
        false => columns.row(0).into_iter().map(|(name, value)| (name.to_owned(), of_value(value))).collect(),
    };
    (!values.is_empty()).then(|| serde_json::to_vec(&values).expect("names and values are valid JSON"))
}

/// The columns of an item, each of one row; `None` for JSON that this program does not write.
pub(crate) fn read(json: &[u8]) -> Option<Columns> {
    let values: Map<String, Json> = serde_json::from_slice(json).ok()?;
    let column = |(name, value): (String, Json)| {
        let text = |kind, text: &str| Column::parse(name.clone(), kind, [Some(text)]).ok();
        match &value {
            Json::Number(number) => Column::numbers(name.clone(), [Some(number.as_f64()?)]).ok(),
            Json::String(value) => text(ColumnKind::Text, value),
            Json::Object(date) => text(ColumnKind::Date, date.get("date")?.as_str()?),
            Json::Array(tags) => {
                let tags: Option<Vec<&str>> = tags.iter().map(Json::as_str).collect();
                text(ColumnKind::Tags, &tags?.join("|"))
            }
            Json::Null | Json::Bool(_) => None,
        }
    };
    let columns = values.into_iter().map(column).collect::<Option<Vec<_>>>()?;
    let columns = Columns::new(columns).ok()?;
    Some(if columns.is_empty() { columns } else { columns.of_row(0) })
}

/// Names and kinds of a property; empty without one.
pub(crate) fn listed(property: Option<&str>) -> Vec<(String, ColumnKind)> {
    let entries: Vec<Entry> = property.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    entries.into_iter().map(|Entry { name, kind }| (name, kind)).collect()
}

/// The property after items with these columns were added; `None` if it stays as it is.
pub(crate) fn joined(property: Option<&str>, columns: &Columns) -> Option<String> {
    let before = listed(property);
    let mut all = before.clone();
    for column in columns.iter().filter(|column| column.has_values()) {
        match all.iter_mut().find(|(name, _)| name == column.name()) {
            Some((_, kind)) => *kind = kind.joined(column.kind()),
            None => all.push((column.name().to_owned(), column.kind())),
        }
    }
    let entries: Vec<Entry> =
        all.iter().map(|(name, kind)| Entry { name: name.clone(), kind: *kind }).collect();
    (all != before).then(|| serde_json::to_string(&entries).expect("names are valid JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(list: &[(&str, &str)]) -> Columns {
        Columns::new(list.iter().map(|(name, value)| Column::infer(*name, [*value]).unwrap()).collect())
            .unwrap()
    }

    #[test]
    fn values_come_back() {
        let row =
            columns(&[("shop", "x"), ("price", "-0.1"), ("day", "2024-05"), ("colour", "b|a"), ("none", "")]);
        let json = of_row(&row, 0).unwrap();
        let text = r#"{"colour":["a","b"],"day":{"date":"2024-05"},"price":-0.1,"shop":"x"}"#;
        assert_eq!(String::from_utf8(json.clone()).unwrap(), text);
        assert_eq!(read(&json).unwrap(), row.of_row(0));
        assert_eq!(of_row(&columns(&[("none", "")]), 0), None);
        assert_eq!(read(b"{}"), Some(Columns::default()));
        for other in
            ["[]", r#"{"a":true}"#, r#"{"a":{"day":"x"}}"#, r#"{"a":{"date":"x"}}"#, r#"{"label":1}"#, "{"]
        {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn the_list_of_columns_grows_and_kinds_are_joined() {
        let one = joined(None, &columns(&[("price", "1"), ("size", ""), ("shop", "x")])).unwrap();
        let kinds = [("price".to_owned(), ColumnKind::Number), ("shop".to_owned(), ColumnKind::Text)];
        assert_eq!(listed(Some(&one)), kinds);
        assert_eq!(joined(Some(&one), &columns(&[("price", "2")])), None);
        let two = joined(Some(&one), &columns(&[("price", "cheap"), ("shop", "a|b")])).unwrap();
        assert_eq!(
            listed(Some(&two)).iter().map(|(_, kind)| *kind).collect::<Vec<_>>(),
            [ColumnKind::Text, ColumnKind::Tags]
        );
        assert_eq!(joined(None, &Columns::default()), None);
    }
}
