//! The keys in which two run files differ.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A key with another value, or in one of the two only.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// With its section: `image.size`.
    pub(crate) key: String,
    pub(crate) before: Option<Value>,
    pub(crate) now: Option<Value>,
}

/// The keys in which `now` differs from `before`, in alphabetical order. Lists are compared as wholes.
pub(crate) fn differences(before: &Value, now: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    descend("", Some(before), Some(now), &mut found);
    found
}

fn descend(key: &str, before: Option<&Value>, now: Option<&Value>, found: &mut Vec<Difference>) {
    if before == now {
        return;
    }
    let sections = [before, now].map(|value| value.and_then(Value::as_object));
    if sections.iter().all(Option::is_none) {
        found.push(Difference { key: key.into(), before: before.cloned(), now: now.cloned() });
        return;
    }
    let empty = Map::new();
    let [before, now] = sections.map(|section| section.unwrap_or(&empty));
    for inner in before.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
        let key = if key.is_empty() { inner.clone() } else { format!("{key}.{inner}") };
        descend(&key, before.get(inner), now.get(inner), found);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_named_with_their_sections() {
        let before =
            json!({"train": {"seed": 1, "steps": 5}, "loss": {"kind": "rll"}, "crop": {"kind": "none"}});
        let now = json!({"train": {"seed": 2, "steps": 5}, "loss": {"kind": "rll", "alpha": 1.5}});
        let found: Vec<_> =
            differences(&before, &now).into_iter().map(|of| (of.key, of.before, of.now)).collect();
        let wanted = [
            ("crop.kind", Some(json!("none")), None),
            ("loss.alpha", None, Some(json!(1.5))),
            ("train.seed", Some(json!(1)), Some(json!(2))),
        ];
        assert_eq!(found, wanted.map(|(key, before, now)| (key.to_owned(), before, now)));
        assert_eq!(differences(&now, &now), []);
    }
}
