//! Filters as expressions of Milvus.

use std::fmt::Write;

use gallerist_retrieval::index::{Among, ItemFilter};

use crate::layout::{self, CAMERA, ID, LABEL, PATH};

/// The expression that admits what `filter` admits, its condition on columns aside; empty for every item.
pub(crate) fn expression(filter: &ItemFilter) -> String {
    // A condition that is added there must be added here.
    let ItemFilter { label, camera, path, id, condition: _ } = filter;
    let texts = [(LABEL, label), (CAMERA, camera), (PATH, path)];
    let texts = texts
        .into_iter()
        .filter_map(|(field, among)| Some(term(field, among.as_ref()?, |text| quoted(text))));
    let id = id.as_ref().map(|among| term(ID, among, key));
    let terms: Vec<String> = texts.chain(id).collect();
    terms.join(" and ")
}

/// The expression that admits what both admit; an empty `expr` admits every item.
pub(crate) fn both(expr: &str, condition: &str) -> String {
    if expr.is_empty() { condition.to_owned() } else { format!("{condition} and {expr}") }
}

/// The expression that admits these ids, or all others.
pub(crate) fn among(among: &Among<u64>) -> String {
    term(ID, among, key)
}

/// The expression that admits these ids.
pub(crate) fn ids(ids: &[u64]) -> String {
    list(ID, "in", ids, key)
}

/// `expr`, where there is one, and only ids above `id`.
pub(crate) fn above(id: i64, expr: &str) -> String {
    if expr.is_empty() { format!("{ID} > {id}") } else { format!("{ID} > {id} and {expr}") }
}

fn term<T>(field: &str, among: &Among<T>, write: impl Fn(&T) -> String) -> String {
    match among {
        Among::In(values) => list(field, "in", values, write),
        Among::NotIn(values) => list(field, "not in", values, write),
    }
}

fn list<T>(field: &str, operator: &str, values: &[T], write: impl Fn(&T) -> String) -> String {
    let values: Vec<String> = values.iter().map(write).collect();
    format!("{field} {operator} [{}]", values.join(", "))
}

fn key(id: &u64) -> String {
    layout::key(*id).to_string()
}

/// A text as Milvus reads it: in double quotes, with the escapes of C.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                write!(out, "\\u{:04x}", c as u32).expect("control characters lie below U+0100");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_joined_and_texts_quoted() {
        let all = ItemFilter::default();
        assert_eq!(expression(&all), "");
        let filter =
            all.label_in(["a \"b\"", "c\\d\n\u{1}'ü"]).camera_not_in(["c1"]).path_in(["p"]).id_not_in([7, 8]);
        assert_eq!(
            expression(&filter),
            r#"label in ["a \"b\"", "c\\d\n\u0001'ü"] and camera not in ["c1"] and path in ["p"] and id not in [7, 8]"#
        );
        assert_eq!(expression(&ItemFilter::default().id_in([])), "id in []");
    }

    #[test]
    fn no_text_ends_its_quotes_early() {
        let attack = r#"x"] or id in [1"#;
        assert_eq!(quoted(attack), r#""x\"] or id in [1""#);
        assert_eq!(quoted("\\"), r#""\\""#);
    }
}
