//! What a shard was made of.

use std::collections::BTreeMap;

use gallerist_util::shard::Shard;
use serde::{Deserialize, Serialize};

use crate::fingerprint::{differ_in_length, shown};
use crate::search::Metric;

const FORMAT: &str = "gallerist-shard";
const VERSION: u32 = 1;

/// Options that the fingerprint of the network covers. They are recorded for the command that embeds a missing shard.
const OF_FINGERPRINT: [&str; 3] = ["checkpoint", "combine", "head"];

/// What a shard was made of. It is written after the shard's file, as `shard-00007-of-01000.json`: a shard with a record
/// is whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardRecord {
    format: String,
    format_version: u32,
    /// Its number, from 0.
    pub index: u32,
    /// The number of shards.
    pub count: u32,
    /// Rows of its file.
    pub rows: u64,
    /// Values of a row; 0 without rows.
    pub dimensions: usize,
    /// The file of its embeddings; `None` where no image of the shard could be read, or it has none.
    pub file: Option<ShardFile>,
    /// What determines the embeddings.
    pub origin: ShardOrigin,
    /// The manifest that was read.
    pub manifest: String,
    /// The run directory of the network.
    pub run: String,
    /// The images that could not be read, and have no row.
    pub broken: Vec<UnreadImage>,
}

/// The file of the embeddings of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardFile {
    /// Its name in the folder.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// SHA-256 of the file, 64 hexadecimal digits.
    pub sha256: String,
}

/// What determines the embeddings of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardOrigin {
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// SHA-256 of the shard's lines of the manifest.
    pub lines_sha256: String,
    /// The fingerprint of the network.
    pub model: String,
    /// How the rows are compared.
    pub metric: Metric,
    /// The options of `gallerist embed` that change the file, by their names. Without `products`, they are f32.
    pub options: BTreeMap<String, String>,
}

/// An image that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnreadImage {
    /// Its path in its source.
    pub image: String,
    /// Why it could not be read.
    pub reason: String,
}

impl ShardRecord {
    /// The record of a shard without rows.
    pub fn new(shard: Shard, origin: ShardOrigin, manifest: String, run: String) -> Self {
        ShardRecord {
            format: FORMAT.to_owned(),
            format_version: VERSION,
            index: shard.index(),
            count: shard.count(),
            rows: 0,
            dimensions: 0,
            file: None,
            origin,
            manifest,
            run,
            broken: Vec::new(),
        }
    }

    /// The name of the file of a shard's record.
    pub fn file_name(shard: Shard) -> String {
        format!("{}.json", shard.name())
    }

    /// Reads the record of `shard` from the bytes of its file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8], shard: Shard) -> Result<Self, String> {
        let record: Self =
            serde_json::from_slice(bytes).map_err(|e| format!("its record is damaged ({e})"))?;
        if record.format != FORMAT || record.format_version != VERSION {
            let (format, version) = (&record.format, record.format_version);
            return Err(format!(
                "wanted a record `{FORMAT}` of version {VERSION}, found `{format}` {version}"
            ));
        }
        if Shard::new(record.index, record.count) != Some(shard) {
            return Err(format!("its record is of shard {}/{}", record.index, record.count));
        }
        if record.file.is_some() != (record.rows > 0) || (record.rows > 0) != (record.dimensions > 0) {
            return Err("its record contradicts itself".to_owned());
        }
        // A name from outside stays in the folder.
        match &record.file {
            Some(file) if Shard::of_name(&file.name) != Some(shard) || file.name.contains(['/', '\\']) => {
                Err(format!("its record names the file `{}`", file.name))
            }
            _ => Ok(record),
        }
    }

    /// The bytes that [`parse`](Self::parse) reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("texts and numbers");
        bytes.push(b'\n');
        bytes
    }
}

impl ShardOrigin {
    /// What differs from another origin, the first difference in words; `None` if the embeddings are the same.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let networks = || format!("the network {}, not {}", shown(&self.model), shown(&other.model));
        if self.model != other.model && !differ_in_length(&self.model, &other.model) {
            return Some(networks());
        }
        if self.metric != other.metric {
            return Some(format!("rows for {}, not for {}", self.metric, other.metric));
        }
        let names = self.options.keys().chain(other.options.keys());
        for name in names.filter(|name| !OF_FINGERPRINT.contains(&name.as_str())) {
            let absent = if name == "products" { "f32" } else { "default" };
            let [own, other] =
                [self, other].map(|origin| origin.options.get(name).map_or(absent, String::as_str));
            if own != other {
                return Some(format!("{name} {own}, not {other}"));
            }
        }
        // Where the option is the same, one of them was written before the rows were marked.
        if self.model != other.model {
            return Some(networks());
        }
        if self.manifest_bytes != other.manifest_bytes {
            let (own, other) = (self.manifest_bytes, other.manifest_bytes);
            return Some(format!("a manifest of {own} bytes, not of {other}"));
        }
        (self.lines_sha256 != other.lines_sha256).then(|| "other lines of the manifest".to_owned())
    }
}
