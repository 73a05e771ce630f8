//! Names of the labels that have nothing to be found.

use std::collections::BTreeMap;

use super::query_values::QueryValues;

/// Labels that are named.
const SHOWN: usize = 5;

/// The labels of the queries without a relevant item, the most frequent first; `None` where every query has one.
pub(super) fn note(queries: &QueryValues, labels: &[String]) -> Option<String> {
    if queries.len() != labels.len() {
        return None;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let without = labels.iter().enumerate().filter(|(query, _)| !queries.has_match(*query));
    without.for_each(|(_, label)| *counts.entry(label).or_default() += 1);
    let total: usize = counts.values().sum();
    if total == 0 {
        return None;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|&(label, count)| (std::cmp::Reverse(count), label));
    let named: Vec<String> = counts
        .iter()
        .take(SHOWN)
        .map(|(label, count)| if *count == 1 { format!("`{label}`") } else { format!("`{label}` ({count})") })
        .collect();
    let more = match counts.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more labels"),
    };
    let have = if total == 1 { "query has" } else { "queries have" };
    Some(format!("{total} {have} no relevant item in the gallery: {}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(has_match: &[bool], labels: &[&str]) -> Option<String> {
        let values = QueryValues { measures: Vec::new(), values: Vec::new(), has_match: has_match.to_vec() };
        note(&values, &labels.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn the_labels_of_queries_without_a_match_are_named_and_counted() {
        assert_eq!(of(&[true, true], &["a", "b"]), None);
        let one = "1 query has no relevant item in the gallery: `b`";
        assert_eq!(of(&[true, false], &["a", "b"]).as_deref(), Some(one));
        let some = "3 queries have no relevant item in the gallery: `b` (2), `a`";
        assert_eq!(of(&[false; 3], &["a", "b", "b"]).as_deref(), Some(some));
        let many =
            "7 queries have no relevant item in the gallery: `1`, `2`, `3`, `4`, `5` and 2 more labels";
        assert_eq!(of(&[false; 7], &["7", "6", "5", "4", "3", "2", "1"]).as_deref(), Some(many));
    }
}
