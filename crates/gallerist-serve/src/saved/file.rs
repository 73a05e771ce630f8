//! The file of tags and selections: JSON with a version.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use gallerist_util::files;
use serde::{Deserialize, Serialize};

use super::lists::{Fault, Kind, Lists};
use crate::id::Id;

/// The version that is read and written.
const VERSION: u32 = 1;

/// The largest file that is read, in bytes. A file of the most lists and items is smaller.
const BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    #[serde(default)]
    tags: BTreeMap<String, Vec<Id>>,
    #[serde(default)]
    selections: BTreeMap<String, Vec<Id>>,
}

/// The version alone, which is read first: a newer file may have other fields.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The lists of a file; none if it does not exist.
pub(super) fn read(path: &Path) -> Result<Lists, Fault> {
    let fault = |problem: &dyn std::fmt::Display| Fault::File(format!("`{}`: {problem}", path.display()));
    let bytes = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Lists::default()),
        Ok(about) if about.len() > BYTES => {
            return Err(fault(&format!("it has {} bytes; at most {BYTES} are read", about.len())));
        }
        _ => files::read_regular(path).map_err(|error| fault(&error))?,
    };
    let not_json = |error: serde_json::Error| fault(&format!("it is no JSON of tags: {error}"));
    let Version { version } = serde_json::from_slice(&bytes).map_err(not_json)?;
    if version != VERSION {
        return Err(fault(&format!("it has version {version}; this program reads version {VERSION}")));
    }
    let stored: Stored = serde_json::from_slice(&bytes).map_err(not_json)?;
    let mut lists = Lists::default();
    for (kind, list) in [(Kind::Tags, stored.tags), (Kind::Selections, stored.selections)] {
        for (name, ids) in list {
            let ids = ids.into_iter().map(|id| id.0).collect();
            lists.insert(kind, name, ids).map_err(|error| fault(&error))?;
        }
    }
    lists.check().map_err(|error| fault(&error))?;
    Ok(lists)
}

pub(super) fn write(path: &Path, lists: &Lists) -> Result<(), Fault> {
    let of = |kind| {
        let lists = lists.all(kind);
        lists.map(|(name, ids)| (name.to_owned(), ids.iter().map(|&id| Id(id)).collect())).collect()
    };
    let stored = Stored { version: VERSION, tags: of(Kind::Tags), selections: of(Kind::Selections) };
    let mut bytes = serde_json::to_vec(&stored).expect("keys are strings");
    bytes.push(b'\n');
    files::write(path, |file| file.write_all(&bytes))
        .map_err(|error| Fault::File(format!("`{}` cannot be written: {error}", path.display())))
}
