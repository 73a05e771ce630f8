//! Objects of a store as the files of a tree.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gallerist_store::{Object, Store};
use gallerist_util::shard::Shard;

use super::manifest::resolve;
use super::names::has_ignored_part;
use super::part::{Lines, check_is_manifest};
use crate::decode::MAX_FILE_BYTES;
use crate::error::Error;

/// The objects below an address, such as `s3://bucket/photos`.
pub(super) struct Objects {
    store: Store,
    address: PathBuf,
    /// The listed objects; empty where they are read by name.
    listed: HashMap<String, Object>,
    is_listed: bool,
    /// The names of objects below the address that cannot be read.
    unreadable: Vec<String>,
}

impl Objects {
    /// All objects below the address, but hidden ones.
    pub(super) fn list(address: &str) -> Result<Objects, Error> {
        let store = Store::open(address)?;
        let found = store.list("")?;
        let named = found.objects.into_iter().filter(|object| !has_ignored_part(&object.name));
        let listed = named.map(|object| (object.name.clone(), object)).collect();
        let unreadable = found.unreadable;
        Ok(Objects { address: store.address().into(), store, listed, is_listed: true, unreadable })
    }

    /// Objects that are read by name, never listed.
    pub(super) fn unlisted(address: &str) -> Result<Objects, Error> {
        let store = Store::open(address)?;
        let address = store.address().into();
        Ok(Objects { address, store, listed: HashMap::new(), is_listed: false, unreadable: Vec::new() })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.listed.keys().cloned().collect()
    }

    /// The names of objects below the address that cannot be read, sorted.
    pub(super) fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    pub(super) fn address(&self) -> &Path {
        &self.address
    }

    pub(super) fn location(&self, path: &str) -> String {
        self.store.location(path)
    }

    /// Whether there is such an object. Unlisted ones, and those above the address, are not asked for, one by one: what is missing
    /// is found when it is read.
    pub(super) fn contains(&self, path: &str) -> bool {
        !self.is_listed || resolve("", path).is_none_or(|path| self.listed.contains_key(&path))
    }

    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        match self.store.read(path, MAX_FILE_BYTES) {
            Ok(bytes) => bytes.ok_or_else(|| self.missing(path)),
            Err(error) if error.is_too_large() => {
                Err(Error::Decode { path: self.location(path), problem: error.problem })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn missing(&self, path: &str) -> Error {
        let answer = io::Error::new(io::ErrorKind::NotFound, "there is no such object");
        Error::io("read", self.location(path), answer)
    }

    /// Length and time of the object, where it was listed.
    pub(super) fn version(&self, path: &str) -> Option<[u64; 3]> {
        self.listed.get(path).map(|object| [object.bytes, object.written, u64::MAX])
    }

    /// The lines of a shard of the manifest at `path`.
    pub(super) fn lines(&self, path: &str, shard: Shard) -> Result<Lines, Error> {
        let name = self.location(path);
        check_is_manifest(&name)?;
        let length = self.store.size(path)?.ok_or_else(|| self.missing(path))?;
        Lines::of(&name, length, shard, &|range: Range<u64>| Ok(self.store.read_range(path, range)?))
    }
}
