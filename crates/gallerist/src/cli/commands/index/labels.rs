//! Values of a filter: labels that are complete, a branch (`Fruit` or `Fruit/*`) or misspelt, and cameras, paths and ids that no
//! item has.

use crate::data::to_nfc;
use crate::retrieval::Error;
use crate::retrieval::index::{Index, ItemFilter};
use crate::retrieval::labels::split;
use crate::train::nearest;

use crate::cli::args::index::FilterArgs;

/// Maximum number of labels in a suggestion.
const SUGGESTED: usize = 4;

/// A value that no item has; a label with similar ones.
#[derive(Debug, PartialEq)]
pub(super) struct Unknown {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl FilterArgs {
    /// Replaces branches by the labels of the index. Values that no item has are kept and returned.
    pub(super) fn resolve(&mut self, index: &dyn Index) -> Result<Vec<Unknown>, Error> {
        let has_labels = !self.label.is_empty() || !self.not_label.is_empty();
        let known = if has_labels { index.labels(&ItemFilter::default())? } else { Vec::new() };
        let mut unknown = self.select(known.into_iter().map(|(_, label)| label));
        let any = ItemFilter::default;
        let cameras = self.camera.iter().chain(&self.not_camera);
        let paths = self.path.iter().chain(&self.not_path);
        let ids = self.id.iter().chain(&self.not_id);
        let cameras =
            cameras.map(|camera| (format!("no item is of the camera `{camera}`"), any().camera_in([camera])));
        let paths = paths.map(|path| (format!("no item has the path `{path}`"), any().path_in([path])));
        let ids = ids.map(|&id| (format!("no item has the id {id}"), any().id_in([id])));
        for (message, filter) in cameras.chain(paths).chain(ids) {
            if index.ids(&filter)?.is_empty() {
                unknown.push(Unknown { message, hint: None });
            }
        }
        Ok(unknown)
    }

    /// Replaces branches by the labels of the index. Labels that no item has are kept and returned.
    fn select(&mut self, known: impl IntoIterator<Item = Option<String>>) -> Vec<Unknown> {
        let mut known: Vec<String> = known.into_iter().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let mut unknown = Vec::new();
        for list in [&mut self.label, &mut self.not_label] {
            *list = list
                .iter()
                .flat_map(|wanted| {
                    let found = selected(wanted, &known);
                    if found.is_empty() {
                        unknown.push(suggestion(wanted, &known));
                        return vec![wanted.clone()];
                    }
                    found
                })
                .collect();
        }
        unknown
    }
}

/// The label of that name and the labels of that branch, as they are written and in the form NFC of Unicode, which labels of image
/// sets have. Of a set (`a|b`), one of the labels is enough.
fn selected(wanted: &str, known: &[String]) -> Vec<String> {
    let mut composed = wanted.to_owned();
    to_nfc(&mut composed);
    let forms = [wanted, &composed].map(|form| match form.strip_suffix('*') {
        Some(start) => (form, start.to_owned()),
        None => (form, format!("{}/", form.trim_end_matches('/'))),
    });
    let fits = |label: &str| forms.iter().any(|(form, start)| label == *form || label.starts_with(start));
    known.iter().filter(|label| fits(label) || split(label).any(fits)).cloned().collect()
}

fn suggestion(wanted: &str, known: &[String]) -> Unknown {
    let part = wanted.trim_end_matches('*').trim_end_matches('/').to_lowercase();
    let mut near: Vec<&str> =
        known.iter().map(String::as_str).filter(|label| label.to_lowercase().contains(&part)).collect();
    if near.is_empty() {
        let all: Vec<&str> = known.iter().map(String::as_str).collect();
        let last = |label: &str| label.rsplit('/').next().unwrap_or(label).to_lowercase();
        let lasts: Vec<String> = all.iter().map(|label| last(label)).collect();
        let lasts: Vec<&str> = lasts.iter().map(String::as_str).collect();
        near = match nearest(wanted, &all) {
            Some(label) => vec![label],
            None => nearest(&last(wanted), &lasts)
                .and_then(|found| lasts.iter().position(|last| *last == found))
                .map(|at| all[at])
                .into_iter()
                .collect(),
        };
    }
    let hint = match &near[..] {
        [] => None,
        near => {
            let named: Vec<String> = near.iter().take(SUGGESTED).map(|label| format!("`{label}`")).collect();
            let more = match near.len().saturating_sub(SUGGESTED) {
                0 => String::new(),
                more => format!(" or one of {more} more with that in their name"),
            };
            Some(format!("did you mean {}{more}?", named.join(", ")))
        }
    };
    Unknown { message: format!("no item has the label `{wanted}`"), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<String> {
        ["Fruit/Apple/Golden", "Fruit/Apple/Royal-Gala", "Fruit/Pear", "Milk", "Fruits of the forest"]
            .map(String::from)
            .to_vec()
    }

    #[test]
    fn a_branch_selects_the_labels_below_it() {
        let of = |wanted: &str| selected(wanted, &known());
        assert_eq!(of("Milk"), ["Milk"]);
        assert_eq!(of("Fruit/*").len(), 3);
        assert_eq!(of("Fruit"), of("Fruit/*"));
        assert_eq!(of("Fruit/Apple/"), ["Fruit/Apple/Golden", "Fruit/Apple/Royal-Gala"]);
        assert_eq!(of("Fruit*").len(), 4);
        assert!(of("Apple").is_empty());
    }

    #[test]
    fn a_label_selects_its_branch_and_the_sets_that_it_is_in() {
        let known = ["Fruit", "Fruit/Apple", "a", "a|b", "b | a/x"].map(String::from);
        assert_eq!(selected("Fruit", &known), ["Fruit", "Fruit/Apple"]);
        assert_eq!(selected("a", &known), ["a", "a|b", "b | a/x"]);
        assert_eq!(selected("b", &known), ["a|b", "b | a/x"]);
        assert_eq!(selected("a|b", &known), ["a|b"]);
        // Decomposed, as macOS writes it.
        let composed = ["caf\u{e9}/au lait".to_owned()];
        assert_eq!(selected("cafe\u{301}", &composed), composed);
        assert_eq!(selected("cafe\u{301}/*", &composed), composed);
    }

    #[test]
    fn a_label_that_does_not_exist_brings_near_ones() {
        let hint = |wanted: &str| suggestion(wanted, &known()).hint.unwrap_or_default();
        assert_eq!(hint("apple"), "did you mean `Fruit/Apple/Golden`, `Fruit/Apple/Royal-Gala`?");
        assert_eq!(hint("Mlik"), "did you mean `Milk`?");
        assert_eq!(hint("Paer"), "did you mean `Fruit/Pear`?");
        assert_eq!(
            suggestion("zzz", &known()),
            Unknown { message: "no item has the label `zzz`".into(), hint: None }
        );
    }
}
