//! Where the files of shards are.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use gallerist_util::{files, hex};
use sha2::{Digest, Sha256};

use super::record::ShardFile;
use crate::file::format::format_of;
use crate::file::set::EmbeddingSet;
use crate::file::single;
use crate::{Error, Result};

/// A folder with the files of shards.
#[derive(Clone, Debug)]
pub struct ShardFolder {
    path: PathBuf,
}

impl ShardFolder {
    /// The folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        ShardFolder { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder, and a folder `name` in it if it is not empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        files::create_dir_all(&path).map_err(|source| Error::io("create", &path, source))
    }

    /// Prepares to [write](Self::write) a file after long work: refuses what is in its place and is no regular file, and
    /// removes what killed processes left.
    ///
    /// # Errors
    /// As [`prepare_to_write`](crate::prepare_to_write), except that the folder need not exist.
    pub fn prepare(&self, name: &str) -> Result<()> {
        if self.path.is_dir() { crate::prepare_to_write(self.path.join(name)) } else { Ok(()) }
    }

    /// The names of its files.
    ///
    /// # Errors
    /// [`Error::Io`], also for a folder that does not exist.
    pub fn names(&self) -> Result<Vec<String>> {
        let failed = |source| Error::io("list", &self.path, source);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// A small file; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match files::read_regular(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io("read", &path, source)),
        }
    }

    /// Replaces a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        crate::write_atomically(self.path.join(name), |file| file.write_all(bytes))
    }

    /// Compares a file with its length and its checksum: what is wrong with it, or nothing.
    ///
    /// # Errors
    /// [`Error::Io`] when the file is there and cannot be read.
    pub fn verify(&self, file: &ShardFile) -> Result<Option<String>> {
        let path = self.path.join(&file.name);
        let opened = match files::open_regular(&path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Some(format!("there is no file `{}`", file.name)));
            }
            Err(source) => return Err(Error::io("read", &path, source)),
        };
        let failed = |source| Error::io("read", &path, source);
        let bytes = opened.metadata().map_err(failed)?.len();
        if bytes != file.bytes {
            return Ok(Some(format!("`{}` has {bytes} bytes, not {}", file.name, file.bytes)));
        }
        let found = digest(opened).map_err(failed)?;
        Ok((found != file.sha256)
            .then(|| format!("the SHA-256 of `{}` is not the one it was written with", file.name)))
    }

    /// Writes a file of embeddings: `write` writes it to the path that it is given.
    ///
    /// # Errors
    /// [`Error::Io`], and those of `write`.
    pub fn save(&self, name: &str, write: impl FnOnce(&Path) -> Result<()>) -> Result<ShardFile> {
        let path = self.path.join(name);
        write(&path)?;
        describe(name, &path)
    }

    /// Reads a file of embeddings.
    ///
    /// # Errors
    /// As [`EmbeddingSet::load`].
    pub fn load(&self, name: &str) -> Result<EmbeddingSet> {
        let path = self.path.join(name);
        single::load(&path, &format_of(&path)?)
    }

    /// Removes a folder in it with its files, if it is there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn remove_folder(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        if std::fs::symlink_metadata(&path).is_err() {
            return Ok(());
        }
        let failed = |source| Error::io("remove", &path, source);
        match std::fs::remove_dir_all(&path) {
            // Another process that embeds the same shard may be removing it, too.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        files::sync_folder(&self.path).map_err(failed)
    }
}

fn describe(name: &str, path: &Path) -> Result<ShardFile> {
    let failed = |source| Error::io("read", path, source);
    let file = files::open_regular(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    Ok(ShardFile { name: name.to_owned(), bytes, sha256: digest(file).map_err(failed)? })
}

/// The SHA-256 of a file, 64 hexadecimal digits.
fn digest(mut file: File) -> std::io::Result<String> {
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 18];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(hex::encode(&digest.finalize())),
            Ok(n) => digest.update(&block[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
