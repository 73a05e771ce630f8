//! Further columns of items in a collection.
//!
//! The field `columns` has a JSON object of an item's values by the names of their columns: a number, a text, a list of
//! tags, or `{"date": "2024-05-01"}`. Missing values are left out. The property `gallerist.columns` lists the columns of
//! all items that were ever sent, with their kinds: `[{"name": "price", "kind": "number", "uniform": true}]`. A column is
//! uniform if all its values were sent as values of this kind. Entries of older programs do not say it.

use gallerist_retrieval::columns::{Column, ColumnKind, Columns};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// Bytes that Milvus allows in a value of JSON.
pub(crate) const LIMIT: usize = 65_536;

pub(crate) const PROPERTY: &str = "gallerist.columns";

/// An entry of the property.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Entry {
    name: String,
    kind: ColumnKind,
    #[serde(default)]
    uniform: bool,
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

fn entries(property: Option<&str>) -> Vec<Entry> {
    property.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Names and kinds of a property; empty without one.
pub(crate) fn listed(property: Option<&str>) -> Vec<(String, ColumnKind)> {
    entries(property).into_iter().map(|Entry { name, kind, .. }| (name, kind)).collect()
}

/// The uniform columns of a property, without rows.
pub(crate) fn uniform(property: Option<&str>) -> Columns {
    let uniform = entries(property).into_iter().filter(|entry| entry.uniform);
    let column = |Entry { name, kind, .. }| Column::parse::<&str>(name, kind, []);
    uniform.map(column).collect::<Result<_, _>>().and_then(Columns::new).unwrap_or_default()
}

/// The property after items with these columns were added; `None` if it stays as it is.
pub(crate) fn joined(property: Option<&str>, columns: &Columns) -> Option<String> {
    let before = entries(property);
    let mut all = before.clone();
    for column in columns.iter().filter(|column| column.has_values()) {
        let kind = column.kind();
        match all.iter_mut().find(|entry| entry.name == column.name()) {
            Some(entry) => {
                entry.uniform &= entry.kind == kind;
                entry.kind = entry.kind.joined(kind);
            }
            None => all.push(Entry { name: column.name().to_owned(), kind, uniform: true }),
        }
    }
    (all != before).then(|| serde_json::to_string(&all).expect("names are valid JSON"))
}

#[cfg(test)]
mod tests {
    use gallerist_database::row::columns_as_json as of_row;

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
        for number in [9007199254740991.0, 0.1 + 0.2, 1e-300, -1.7976931348623157e308] {
            let row = Columns::new(vec![Column::numbers("n", [Some(number)]).unwrap()]).unwrap();
            assert_eq!(read(&of_row(&row, 0).unwrap()).unwrap(), row);
        }
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
        assert_eq!(uniform(Some(&one)).names().collect::<Vec<_>>(), ["price", "shop"]);
        let three = joined(Some(&two), &columns(&[("size", "7")])).unwrap();
        assert_eq!(uniform(Some(&three)).names().collect::<Vec<_>>(), ["size"], "two kinds are not uniform");
        // An older program does not say whether the column had another kind before.
        let old = r#"[{"name":"price","kind":"number"}]"#;
        assert!(uniform(Some(old)).is_empty());
        assert_eq!(joined(Some(old), &columns(&[("price", "1")])), None);
        assert_eq!(joined(None, &Columns::default()), None);
    }
}
