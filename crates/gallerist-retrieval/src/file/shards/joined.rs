//! The list of the shards of a gallery.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::ShardFolder;
use super::record::ShardFile;
use crate::eval::MatchRule;
use crate::file::join::Join;
use crate::file::set::EmbeddingSet;
use crate::search::Metric;
use crate::{Error, Result};

const FORMAT: &str = "gallerist-shards";
const VERSION: u32 = 1;

/// The list of the shards of a gallery, a `.json` file. Rows are not copied.
///
/// Every command and function that reads a file of embeddings reads the list in its place: all rows of all shards, in
/// their order, are then in memory, in f32. [`CheckedShards::join`](super::CheckedShards::join) writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedShards {
    format: String,
    format_version: u32,
    /// Rows of all shards.
    pub rows: u64,
    /// Values of a row.
    pub dimensions: usize,
    /// The fingerprint of the network.
    pub model: String,
    /// How the rows are compared.
    pub metric: Metric,
    /// The threshold of a match, if one was calibrated for the whole gallery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<MatchRule>,
    /// The shards with rows, in their order.
    pub shards: Vec<JoinedShard>,
}

/// A shard of a gallery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedShard {
    /// Its file: an absolute path, the address of an object, or a path relative to the folder of the list, with `/` between
    /// the parts.
    pub file: String,
    /// Rows of the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: String,
}

fn refuse(path: &Path, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Format {
        path: path.to_owned(),
        format: "a list of shards",
        problem: problem.into(),
        hint: hint.map(str::to_owned),
    }
}

const AGAIN: &str = "verify the shards and write the list again with `gallerist merge`";

impl JoinedShards {
    /// A list of these shards.
    pub fn new(model: String, metric: Metric, dimensions: usize, shards: Vec<JoinedShard>) -> Self {
        JoinedShards {
            format: FORMAT.to_owned(),
            format_version: VERSION,
            rows: shards.iter().map(|shard| shard.rows).sum(),
            dimensions,
            model,
            metric,
            threshold: None,
            shards,
        }
    }

    /// Reads a list. The files of the shards are not looked at.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for another file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = gallerist_util::files::read_regular_to_string(path);
        let text = text.map_err(|source| Error::io("read", path, source))?;
        let list: Self = serde_json::from_str(&text).map_err(|error| {
            let hint = "a .json file of embeddings is the list that `gallerist merge` writes";
            refuse(path, error.to_string(), Some(hint))
        })?;
        if list.format != FORMAT || list.format_version != VERSION {
            let (format, version) = (&list.format, list.format_version);
            let problem = format!("wanted `{FORMAT}` of version {VERSION}, found `{format}` {version}");
            let hint = "a newer version of Gallerist may have written it: update this program";
            return Err(refuse(path, problem, Some(hint)));
        }
        let rows = list.shards.iter().try_fold(0u64, |all, shard| all.checked_add(shard.rows));
        if rows != Some(list.rows) || list.shards.iter().any(|shard| shard.rows == 0) {
            let problem = format!("its shards do not have the {} rows that it states", list.rows);
            return Err(refuse(path, problem, Some(AGAIN)));
        }
        if list.shards.is_empty() {
            return Err(refuse(path, "it lists no shard", Some(AGAIN)));
        }
        Ok(list)
    }

    /// Writes the list.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        crate::write_atomically(path, |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })
    }

    /// All rows of all shards; `path` is the file of the list. Every shard is compared with its checksum.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for a shard that is missing, damaged or not the one that was listed.
    pub fn load(&self, path: &Path) -> Result<EmbeddingSet> {
        let places = self.places(path)?;
        // Before memory is taken: a value takes at least a byte of its file.
        let mut bytes = 0u64;
        for ((folder, file), shard) in places.iter().zip(&self.shards) {
            let found = folder.bytes(&file.name)?;
            let problem = match found {
                Some(found) if found == shard.bytes => None,
                Some(found) => {
                    Some(format!("its shard `{}` has {found} bytes, not {}", shard.file, shard.bytes))
                }
                None => Some(format!("there is no shard `{}`", shard.file)),
            };
            if let Some(problem) = problem {
                return Err(refuse(path, problem, Some(AGAIN)));
            }
            bytes = bytes.saturating_add(shard.bytes);
        }
        let values = self.rows.saturating_mul(self.dimensions as u64).min(bytes) as usize;
        let mut all: Option<Join> = None;
        for ((folder, file), shard) in places.iter().zip(&self.shards) {
            let set = folder.load_verified(file)?;
            let rows = set.embeddings.rows() as u64;
            if rows != shard.rows || set.embeddings.cols() != self.dimensions {
                let found = format!("{rows} x {}", set.embeddings.cols());
                let wanted = format!("{} x {}", shard.rows, self.dimensions);
                let problem = format!("its shard `{}` is of {found} values, not {wanted}", shard.file);
                return Err(refuse(path, problem, Some(AGAIN)));
            }
            if set.model.as_ref() != Some(&self.model) || set.metric != Some(self.metric) {
                let problem = format!("its shard `{}` is of another network or metric", shard.file);
                return Err(refuse(path, problem, Some(AGAIN)));
            }
            match &mut all {
                None => all = Some(Join::new(set, false, values)?),
                Some(all) => all.push(set)?,
            }
        }
        let all = all.ok_or(Error::Empty { what: "the list of shards" })?.finish()?;
        Ok(EmbeddingSet { threshold: self.threshold.clone().or(all.threshold.clone()), ..all })
    }

    /// Compares every shard with its length and checksum; `path` is the file of the list.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for a shard that is missing or damaged.
    pub fn verify(&self, path: &Path) -> Result<()> {
        for ((folder, file), shard) in self.places(path)?.iter().zip(&self.shards) {
            if let Some(problem) = folder.verify(file)? {
                return Err(refuse(path, format!("its shard `{}`: {problem}", shard.file), Some(AGAIN)));
            }
        }
        Ok(())
    }

    /// The folder and the file of each shard.
    fn places(&self, path: &Path) -> Result<Vec<(ShardFolder, ShardFile)>> {
        let own = path.parent().unwrap_or(Path::new(""));
        let mut folders: HashMap<PathBuf, ShardFolder> = HashMap::new();
        let place = |shard: &JoinedShard| {
            let is_address = gallerist_store::is_address(&shard.file);
            let file = if is_address { PathBuf::from(&shard.file) } else { own.join(&shard.file) };
            let above = file.parent().unwrap_or(Path::new("")).to_owned();
            let folder = match folders.get(&above) {
                Some(folder) => folder.clone(),
                // One client for all objects of an address.
                None => {
                    let folder = ShardFolder::open(&above)?;
                    folders.insert(above, folder.clone());
                    folder
                }
            };
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((folder, ShardFile { name, bytes: shard.bytes, sha256: shard.sha256.clone() }))
        };
        self.shards.iter().map(place).collect()
    }
}
