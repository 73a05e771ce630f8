//! Class names to numbers, and labels `a|b` to sets of labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gallerist_util::disjoint::components;
use serde::{Deserialize, Serialize};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::error::Error;
use crate::text::counted;

/// Between the labels of an image that has several.
pub(super) const SEPARATOR: char = '|';

/// Which part of a label of several folders is the class: `Fruit/Apple/Golden` or `Golden`.
///
/// `label = "leaf"` in `[data]` of a run file, `--label-from leaf` on the command line.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use gallerist_data::{ImageSet, LabelFrom, OpenOptions};
///
/// for path in ["Fruit/Apple/1.png", "Fruit/Pear/1.png", "Juice/Apple/1.png"] {
///     let path = folder.path().join(path);
///     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
///     std::fs::write(path, "").unwrap();
/// }
/// let options = OpenOptions { label_from: LabelFrom::Leaf, ..OpenOptions::default() };
/// let set = ImageSet::open_with(&[folder.path()], &options).unwrap();
/// assert_eq!(set.class_names(), ["Apple", "Pear"]);
/// assert_eq!(
///     set.notes(),
///     ["with the last part of each label as its class, one class joins several: `Apple` (`Fruit/Apple`, `Juice/Apple`)"]
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelFrom {
    /// All of it.
    #[default]
    Path,
    /// What follows the last `/`.
    Leaf,
}

impl fmt::Display for LabelFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LabelFrom::Path => "path",
            LabelFrom::Leaf => "leaf",
        })
    }
}

impl FromStr for LabelFrom {
    type Err = Error;

    fn from_str(name: &str) -> Result<LabelFrom, Error> {
        match name {
            "path" => Ok(LabelFrom::Path),
            "leaf" => Ok(LabelFrom::Leaf),
            _ => {
                Err(Error::Config { field: "label", wanted: "`path` or `leaf`", found: format!("`{name}`") })
            }
        }
    }
}

impl LabelFrom {
    /// The labels of the images; notes which of them were different before, or may have been meant to be the same. Labels that are
    /// corrected stay as they are.
    pub(super) fn apply(
        self,
        labels: Vec<String>,
        is_corrected: &[bool],
        notes: &mut Vec<String>,
    ) -> Vec<String> {
        const SHOWN: usize = 3;
        if self == LabelFrom::Path {
            notes.extend(same_folders_note(&labels));
            return labels;
        }
        let mut whole: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let own = labels.iter().zip(is_corrected).filter(|(_, is_corrected)| !**is_corrected);
        for part in own.flat_map(|(label, _)| label.split(SEPARATOR)) {
            whole.entry(leaf(part)).or_default().insert(part.trim());
        }
        let joined: Vec<_> = whole.iter().filter(|(_, parts)| parts.len() > 1).collect();
        if !joined.is_empty() {
            let mut named: Vec<String> = joined
                .iter()
                .take(SHOWN)
                .map(|(leaf, parts)| {
                    let more = if parts.len() > SHOWN { ", …" } else { "" };
                    let parts: Vec<String> = parts.iter().take(SHOWN).map(|p| format!("`{p}`")).collect();
                    format!("`{leaf}` ({}{more})", parts.join(", "))
                })
                .collect();
            if joined.len() > SHOWN {
                named.push("…".to_owned());
            }
            let count = if joined.len() == 1 {
                "one class joins".into()
            } else {
                format!("{} classes join", joined.len())
            };
            notes.push(format!(
                "with the last part of each label as its class, {count} several: {}",
                named.join(", ")
            ));
        }
        let class = |(label, is_corrected): (&String, &bool)| match is_corrected {
            true => label.clone(),
            false => self.class_of(label),
        };
        labels.iter().zip(is_corrected).map(class).collect()
    }

    /// The class of a label of a source.
    pub(super) fn class_of(self, label: &str) -> String {
        match self {
            LabelFrom::Path => label.to_owned(),
            LabelFrom::Leaf => {
                label.split(SEPARATOR).map(leaf).collect::<Vec<_>>().join(&SEPARATOR.to_string())
            }
        }
    }
}

/// What follows the last `/` of a label.
fn leaf(label: &str) -> &str {
    label.trim().rsplit('/').next().unwrap_or_default()
}

/// Notes folders of labels `folder/class` that have the same classes: they may be splits.
fn same_folders_note(labels: &[String]) -> Option<String> {
    // A set has no more splits.
    const MOST: usize = 4;
    let mut folders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for label in labels {
        let (folder, class) = label.split_once('/').filter(|_| !label.contains(SEPARATOR))?;
        folders.entry(folder).or_default().insert(class);
        if folders.len() > MOST {
            return None;
        }
    }
    let most = folders.values().max_by_key(|classes| classes.len())?;
    let are_alike = folders.values().all(|classes| classes.len() > 1 && classes.is_subset(most));
    let mut names = folders.keys();
    let (first, second) = (names.next()?, names.next().filter(|_| are_alike)?);
    let class = folders[first].intersection(&folders[second]).next()?;
    let quoted: Vec<String> = folders.keys().map(|name| format!("`{name}`")).collect();
    Some(format!(
        "the folders {} have the same subfolders, and each of these is a class of its own, such as `{first}/{class}` and \
         `{second}/{class}`; if the folders are splits, call them `train` and `test`; if subfolders of the same name are \
         one class, set label = \"leaf\" in [data], or --label-from leaf",
        quoted.join(", ")
    ))
}

/// Labels in the form NFC of Unicode, so that an accented letter is the same character from every system: macOS writes it
/// as two. Notes classes that were written in several forms.
pub(super) fn normalized(mut labels: Vec<String>, notes: &mut Vec<String>) -> Vec<String> {
    if labels.iter().all(|label| is_nfc(label)) {
        return labels;
    }
    let before: BTreeSet<String> = labels.iter().cloned().collect();
    labels.iter_mut().for_each(to_nfc);
    let joined = before.len() - labels.iter().collect::<BTreeSet<_>>().len();
    if joined > 0 {
        let labels = counted(joined, "label is", "labels are");
        notes.push(format!(
            "{labels} written in two forms of Unicode (NFC and another), and count as the same label"
        ));
    }
    labels
}

/// Brings a label to the form NFC of Unicode, in which the labels of every [`ImageSet`](crate::ImageSet) are.
///
/// ```
/// let mut label = "e\u{301}".to_owned();
/// gallerist_data::to_nfc(&mut label);
/// assert_eq!(label, "\u{e9}");
/// ```
pub fn to_nfc(label: &mut String) {
    if !is_nfc(label) {
        *label = label.nfc().collect();
    }
}

/// Numbers in the byte order of the names, from 0, without gaps.
pub(super) fn encode(labels: &[String]) -> (Vec<u32>, Vec<String>) {
    let mut ids: BTreeMap<&str, u32> = labels.iter().map(|l| (l.as_str(), 0)).collect();
    for (number, id) in ids.values_mut().enumerate() {
        *id = number as u32;
    }
    let numbers = labels.iter().map(|l| ids[l.as_str()]).collect();
    let names = ids.keys().map(|&name| name.to_owned()).collect();
    (numbers, names)
}

/// The numbers of all labels of `a|b`, one after the other, and their names, as of [`encode`].
pub(crate) fn encode_parts<'a>(labels: impl Iterator<Item = &'a str>) -> (Vec<u32>, Vec<String>) {
    let all: Vec<String> = labels.flat_map(|label| label.split(SEPARATOR).map(str::to_owned)).collect();
    encode(&all)
}

/// The names of classes or labels after all quarter turns: each turn of one is one of its own.
pub(crate) fn turned_names(names: &[String]) -> Vec<String> {
    let turned = |turn: u8, name: &String| match turn {
        0 => name.clone(),
        turn => format!("{name}@{}", u32::from(turn) * 90),
    };
    (0..4).flat_map(|turn| names.iter().map(move |name| turned(turn, name))).collect()
}

/// A label `b | a` in one spelling, as manifests and the sets of labels of an [`ImageSet`](crate::ImageSet) have it: its labels once
/// each, in byte order, without spaces around them. `None` where one is empty.
///
/// ```
/// assert_eq!(gallerist_data::canonical_label("wading | heron").as_deref(), Some("heron|wading"));
/// assert_eq!(gallerist_data::canonical_label("heron||wading"), None);
/// ```
pub fn canonical(label: &str) -> Option<String> {
    let mut parts: Vec<&str> = label.split(SEPARATOR).map(str::trim).collect();
    parts.sort_unstable();
    parts.dedup();
    (!parts[0].is_empty()).then(|| parts.join("|"))
}

/// The labels of the images of a set in which an image may have several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LabelSets {
    /// One ascending, non-empty list per image.
    pub(super) sets: Vec<Vec<u32>>,
    pub(super) names: Vec<String>,
}

impl LabelSets {
    /// Sets from labels `a|b`; `None` where every image has one label. The labels are brought to
    /// one spelling.
    pub(super) fn parse(labels: &mut [String], source: &str) -> Result<Option<Arc<LabelSets>>, Error> {
        if !labels.iter().any(|l| l.contains(SEPARATOR)) {
            return Ok(None);
        }
        for label in &mut *labels {
            *label = canonical(label).ok_or_else(|| Error::Layout {
                path: source.to_owned(),
                problem: format!("the label `{label}` has an empty part"),
                hint: "write the labels of an image as `a|b`",
            })?;
        }
        let (numbers, names) = encode_parts(labels.iter().map(String::as_str));
        let mut numbers = numbers.into_iter();
        let sets =
            labels.iter().map(|l| numbers.by_ref().take(l.split(SEPARATOR).count()).collect()).collect();
        Ok(Some(Arc::new(LabelSets { sets, names })))
    }

    /// The sets of some images, their labels numbered anew.
    pub(super) fn subset(&self, indices: &[u32]) -> LabelSets {
        let mut new_ids = vec![u32::MAX; self.names.len()];
        for &i in indices {
            for &label in &self.sets[i as usize] {
                new_ids[label as usize] = 0;
            }
        }
        let mut names = Vec::new();
        for (id, name) in new_ids.iter_mut().zip(&self.names) {
            if *id == 0 {
                *id = names.len() as u32;
                names.push(name.clone());
            }
        }
        let renumbered = |&i: &u32| self.sets[i as usize].iter().map(|&l| new_ids[l as usize]).collect();
        LabelSets { sets: indices.iter().map(renumbered).collect(), names }
    }

    /// All sets once for each quarter turn, with labels of their own.
    pub(super) fn turned(&self) -> LabelSets {
        let labels = self.names.len() as u32;
        let shifted = |turn: u8| {
            self.sets.iter().map(move |s| s.iter().map(|l| l + u32::from(turn) * labels).collect())
        };
        LabelSets { sets: (0..4).flat_map(shifted).collect(), names: turned_names(&self.names) }
    }

    /// For each image the smallest label that is linked to its own by a chain of images that share
    /// labels: images of different groups have no label in common.
    pub(super) fn groups(&self) -> Vec<u32> {
        let pairs = self.sets.iter().flat_map(|set| set.windows(2));
        let root = components(self.names.len(), pairs.map(|pair| (pair[0] as usize, pair[1] as usize)));
        self.sets.iter().map(|set| root[set[0] as usize] as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_label_set_has_one_spelling() {
        assert_eq!(canonical("b | a|b").as_deref(), Some("a|b"));
        assert_eq!(canonical("a").as_deref(), Some("a"));
        for empty in ["a||b", "|", "a|", ""] {
            assert_eq!(canonical(empty), None, "{empty}");
        }
    }

    proptest! {
        #[test]
        fn groups_are_the_components_of_shared_labels(
            sets in prop::collection::vec(prop::collection::btree_set(0u32..12, 1..4), 1..20)
        ) {
            let sets: Vec<Vec<u32>> = sets.into_iter().map(|s| s.into_iter().collect()).collect();
            let names = (0..12).map(|i| format!("{i:02}")).collect();
            let groups = LabelSets { sets: sets.clone(), names }.groups();
            // Reachability by repeated widening.
            for i in 0..sets.len() {
                let mut reached: std::collections::BTreeSet<u32> = sets[i].iter().copied().collect();
                loop {
                    let before = reached.len();
                    for set in &sets {
                        if set.iter().any(|l| reached.contains(l)) {
                            reached.extend(set);
                        }
                    }
                    if reached.len() == before { break; }
                }
                prop_assert_eq!(groups[i], *reached.first().unwrap());
            }
        }
    }
}
