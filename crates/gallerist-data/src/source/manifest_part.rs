//! What a shard of a manifest was made of.

use std::path::Path;

use gallerist_util::shard::Shard;

use super::objects::Objects;
use super::part::Lines;
use crate::error::Error;

/// The part of a manifest that belongs to a shard.
///
/// The bytes after the first line are divided into as many equal parts as there are shards. A shard has the lines that
/// begin in its part. So the shards follow each other in the order of the manifest, and each reads only its own lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPart {
    /// Bytes of the whole manifest.
    pub manifest_bytes: u64,
    /// SHA-256 of the first line and the lines of the shard, 64 hexadecimal digits.
    pub sha256: String,
}

impl ManifestPart {
    /// The part of the manifest at `path`, a file or the address of an object.
    ///
    /// ```
    /// use gallerist_data::ManifestPart;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("list.csv");
    /// std::fs::write(&path, "path,label\n1.png,a\n2.png,b\n").unwrap();
    /// let part = ManifestPart::read(&path, "0/2".parse()?)?;
    /// assert_eq!(part.manifest_bytes, 27);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`], [`Error::Manifest`], and [`Error::Source`] for what is no CSV or TSV file.
    pub fn read(path: impl AsRef<Path>, shard: Shard) -> Result<ManifestPart, Error> {
        let path = path.as_ref();
        let address = path.to_str().filter(|text| gallerist_store::is_address(text));
        let lines = match address.map(gallerist_store::split_address).transpose()?.flatten() {
            Some((above, name)) => Objects::unlisted(above)?.lines(&name, shard)?,
            None => Lines::of_file(path, shard)?,
        };
        Ok(ManifestPart {
            manifest_bytes: lines.manifest_bytes,
            sha256: gallerist_util::hex::sha256(&lines.bytes),
        })
    }
}
