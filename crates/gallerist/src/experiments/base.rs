//! Bases: run files with their requirements. The rows of experiments change their keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::built_in;
use super::file::{Found, find};
use crate::{Error, Result};

/// The default folder for images.
const DATA: &str = "data";

/// The file of a base.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Base {
    pub(super) base: About,
    /// The run file, whose paths are `{NAME}` of `base.files`.
    #[serde(flatten)]
    pub(super) run: toml::Table,
    /// Whether it is one of the program.
    #[serde(skip)]
    pub(super) is_built_in: bool,
}

/// `[base]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct About {
    /// The data, network and steps, for the head of a table.
    pub(super) about: String,
    /// Files by the name that the run file uses: the places in the folder of the images where they may be.
    #[serde(default)]
    pub(super) files: BTreeMap<String, Vec<String>>,
    /// What to put there.
    pub(super) needs: String,
}

impl Base {
    /// A base of the program, or the one in a file.
    pub(super) fn find(name: &str) -> Result<Base> {
        let names: Vec<&str> = built_in::BASES.iter().map(|(name, _)| *name).collect();
        let all = format!("the bases are {}", names.join(", "));
        let Found { text, origin, is_built_in } = find(name, built_in::BASES, Path::new(""), ("base", &all))?;
        let base: Base = toml::from_str(&text).map_err(|e| {
            let reason = e.to_string();
            Error::new(
                format!("the run file in {origin} is wrong\n  {}", reason.trim().replace('\n', "\n  ")),
                Some("docs/experiments.md explains the file"),
            )
        })?;
        Ok(Base { is_built_in, ..base })
    }

    /// The places of the files: in the given folders, else in `data`. A file that is nowhere is at its first place.
    pub(super) fn places(&self, data: &[PathBuf]) -> BTreeMap<&str, PathBuf> {
        let folders = folders(data);
        let place = |places: &Vec<String>| {
            let mut all =
                folders.iter().flat_map(|folder| places.iter().map(move |place| folder.join(place)));
            let first = all.clone().next().unwrap_or_default();
            all.find(|path| path.exists()).unwrap_or(first)
        };
        self.base.files.iter().map(|(name, places)| (name.as_str(), place(places))).collect()
    }

    /// The message for a missing file; `None` if all exist.
    pub(super) fn missing(&self, data: &[PathBuf]) -> Option<String> {
        let places = self.places(data);
        let (name, _) = places.iter().find(|(_, path)| !path.exists())?;
        let names: Vec<String> = self.base.files[*name].iter().map(|name| format!("`{name}`")).collect();
        let folders: Vec<String> =
            folders(data).iter().map(|folder| format!("`{}`", folder.display())).collect();
        Some(format!(
            "found no {} in {}; it needs {}",
            names.join(" or "),
            folders.join(", "),
            self.base.needs
        ))
    }
}

/// The folders that may have the files: the given ones, then `data`.
fn folders(data: &[PathBuf]) -> Vec<&Path> {
    data.iter().map(PathBuf::as_path).chain([Path::new(DATA)]).collect()
}

/// Replaces `{NAME}` in every text of a table, also `{NAME}/FURTHER`, by the place of that file.
///
/// # Errors
///
/// The text with a name that is none of `places`.
pub(super) fn fill_in(
    table: &mut toml::Table,
    places: &BTreeMap<&str, PathBuf>,
) -> std::result::Result<(), String> {
    fn fill(value: &mut toml::Value, places: &BTreeMap<&str, PathBuf>) -> std::result::Result<(), String> {
        match value {
            toml::Value::String(text) => {
                let named = text.strip_prefix('{').and_then(|text| text.split_once('}'));
                if let Some((name, further)) = named.filter(|(_, further)| is_path_or_empty(further)) {
                    let place = places.get(name).ok_or_else(|| text.clone())?;
                    *text = format!("{}{further}", place.to_string_lossy());
                }
                Ok(())
            }
            toml::Value::Array(items) => items.iter_mut().try_for_each(|item| fill(item, places)),
            toml::Value::Table(inner) => inner.iter_mut().try_for_each(|(_, item)| fill(item, places)),
            _ => Ok(()),
        }
    }
    fn is_path_or_empty(text: &str) -> bool {
        text.is_empty() || text.starts_with('/')
    }
    table.iter_mut().try_for_each(|(_, value)| fill(value, places))
}

/// Merges `over` into `table`. Where both have a table, it is merged key by key, unless `over` makes another choice
/// (`name`, `kind`, `preset`): then it is replaced.
pub(super) fn merge(table: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(before)), toml::Value::Table(after)) if !chooses_anew(before, after) => {
                merge(before, after);
            }
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

fn chooses_anew(before: &toml::Table, after: &toml::Table) -> bool {
    ["name", "kind", "preset"]
        .into_iter()
        .any(|key| after.contains_key(key) && before.get(key) != after.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_filled_in_also_before_a_folder_and_unknown_names_are_refused() {
        let places = BTreeMap::from([("chars", PathBuf::from("data/chars"))]);
        let mut table: toml::Table =
            "[data]\ntrain = [\"{chars}/train\"]\ntest = [\"{chars}\"]".parse().unwrap();
        fill_in(&mut table, &places).unwrap();
        let expected = "[data]\ntrain = [\"data/chars/train\"]\ntest = [\"data/chars\"]";
        assert_eq!(table, expected.parse().unwrap());
        let mut typo: toml::Table = "[data]\ntrain = [\"{char}/train\"]".parse().unwrap();
        assert_eq!(fill_in(&mut typo, &places), Err("{char}/train".to_owned()));
    }

    #[test]
    fn tables_are_merged_and_replaced_where_another_choice_is_made() {
        let mut table: toml::Table =
            "[loss]\nname = \"rll\"\nmargin = 0.4\n[train]\nsteps = 5".parse().unwrap();
        merge(&mut table, &"[loss]\nt_neg = 5.0\n[train]\nseed = 2".parse().unwrap());
        let expected = "[loss]\nname = \"rll\"\nmargin = 0.4\nt_neg = 5.0\n[train]\nsteps = 5\nseed = 2";
        assert_eq!(table, expected.parse().unwrap());
        merge(&mut table, &"[loss]\nname = \"ice\"".parse().unwrap());
        assert_eq!(table["loss"].to_string(), "{ name = \"ice\" }");
    }
}
