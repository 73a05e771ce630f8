//! Where the files of shards are.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use gallerist_store::{LocalCopy, Store};
use gallerist_util::{files, hex};

use super::record::ShardFile;
use crate::file::format::{Format, format_of};
use crate::file::map::FileMap;
use crate::file::set::EmbeddingSet;
use crate::file::{single, tensors};
use crate::{Error, Matrix, Result};

/// The largest file that is read as a whole into memory: records, and what is known of parts.
const MAX_SMALL_BYTES: u64 = 1 << 30;

/// A folder with the files of shards: on this machine, or below the address of an object store, such as
/// `s3://bucket/shards` (feature `object-store`).
#[derive(Clone, Debug)]
pub struct ShardFolder {
    path: PathBuf,
    store: Option<Store>,
}

/// A file of a folder on this machine.
enum Local {
    File(PathBuf),
    Copy(LocalCopy),
}

impl Local {
    fn path(&self) -> &Path {
        match self {
            Local::File(path) => path,
            Local::Copy(copy) => copy.path(),
        }
    }
}

impl ShardFolder {
    /// The folder at a path or an address. It need not exist.
    ///
    /// # Errors
    /// [`Error::Remote`] for an address that cannot be used, also one of a scheme that is not known.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let address = path.to_str().map(gallerist_store::address_of_store).transpose()?.flatten();
        let store = address.map(Store::open).transpose()?;
        Ok(ShardFolder { path, store })
    }

    /// Its path or address.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is in an object store.
    pub fn is_remote(&self) -> bool {
        self.store.is_some()
    }

    /// Makes the folder, and a folder `name` in it if it is not empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(&self, name: &str) -> Result<()> {
        if self.store.is_some() {
            return Ok(());
        }
        let path = self.path.join(name);
        files::create_dir_all(&path).map_err(|source| Error::io("create", &path, source))
    }

    /// Prepares to [write](Self::write) a file after long work: refuses what is in its place and is no regular file, and
    /// removes what killed processes left.
    ///
    /// # Errors
    /// As [`prepare_to_write`](crate::prepare_to_write), except that the folder need not exist.
    pub fn prepare(&self, name: &str) -> Result<()> {
        match self.store.is_none() && self.path.is_dir() {
            true => crate::prepare_to_write(self.path.join(name)),
            false => Ok(()),
        }
    }

    /// The names of its files.
    ///
    /// # Errors
    /// [`Error::Io`], also for a folder that does not exist, and [`Error::Remote`].
    pub fn names(&self) -> Result<Vec<String>> {
        if let Some(store) = &self.store {
            let objects = store.list("")?.objects.into_iter().map(|object| object.name);
            return Ok(objects.filter(|name| !name.contains('/')).collect());
        }
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
    /// [`Error::Io`], [`Error::Remote`].
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        if let Some(store) = &self.store {
            return Ok(store.read(name, MAX_SMALL_BYTES)?);
        }
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
    /// [`Error::Io`], [`Error::Remote`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match &self.store {
            Some(store) => Ok(store.write(name, bytes.to_vec())?),
            None => crate::write_atomically(self.path.join(name), |file| file.write_all(bytes)),
        }
    }

    /// The length of a file in bytes; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Remote`].
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        if let Some(store) = &self.store {
            return Ok(store.size(name)?);
        }
        let path = self.path.join(name);
        match std::fs::metadata(&path) {
            Ok(file) => Ok(Some(file.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::io("read", &path, source)),
        }
    }

    /// Compares a file with its length and its checksum: what is wrong with it, or nothing.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Remote`] when the file is there and cannot be read.
    pub fn verify(&self, file: &ShardFile) -> Result<Option<String>> {
        Ok(self.verified(file)?.err())
    }

    /// The keys of the images of a file, which is compared as [`verify`](Self::verify) does; else what is wrong with it. A file
    /// without paths has none.
    pub(super) fn verified_images(&self, file: &ShardFile) -> Result<std::result::Result<Vec<u64>, String>> {
        let local = match self.verified(file)? {
            Ok(local) => local,
            Err(problem) => return Ok(Err(problem)),
        };
        let lists = lists(local.path()).map_err(|error| self.of_file(error, &file.name))?;
        Ok(Ok(keys_of_images(&lists)))
    }

    /// The path of the image with this key in a file.
    pub(super) fn path_of(&self, file: &ShardFile, key: u64) -> Result<Option<String>> {
        let lists = lists(self.local(&file.name)?.path()).map_err(|error| self.of_file(error, &file.name))?;
        let row = keys_of_images(&lists).iter().position(|&one| one == key);
        Ok(row.zip(lists.paths).map(|(row, paths)| paths[row].clone()))
    }

    /// The file, if it has its length and its checksum; else what is wrong with it.
    fn verified(&self, file: &ShardFile) -> Result<std::result::Result<Local, String>> {
        match self.bytes(&file.name)? {
            None => return Ok(Err(format!("there is no file `{}`", file.name))),
            Some(bytes) if bytes != file.bytes => {
                return Ok(Err(format!("`{}` has {bytes} bytes, not {}", file.name, file.bytes)));
            }
            Some(_) => {}
        }
        let local = self.local(&file.name)?;
        let found = digest(local.path())?;
        let problem = || format!("the SHA-256 of `{}` is not the one it was written with", file.name);
        Ok(if found == file.sha256 { Ok(local) } else { Err(problem()) })
    }

    /// Writes a file of embeddings: `write` writes it to the path that it is given.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Remote`], and those of `write`.
    pub fn save(&self, name: &str, write: impl FnOnce(&Path) -> Result<()>) -> Result<ShardFile> {
        let local = match &self.store {
            Some(store) => Local::Copy(store.temporary(name)?),
            None => Local::File(self.path.join(name)),
        };
        let path = local.path();
        write(path)?;
        let bytes = std::fs::metadata(path).map_err(|source| Error::io("read", path, source))?.len();
        let file = ShardFile { name: name.to_owned(), bytes, sha256: digest(path)? };
        if let Some(store) = &self.store {
            store.upload(name, path)?;
        }
        Ok(file)
    }

    /// Reads a file of embeddings.
    ///
    /// # Errors
    /// As [`EmbeddingSet::load`], and [`Error::Remote`].
    pub fn load(&self, name: &str) -> Result<EmbeddingSet> {
        let local = self.local(name)?;
        let read = format_of(local.path()).and_then(|format| single::load(local.path(), &format));
        read.map_err(|error| self.of_file(error, name))
    }

    /// Reads a file of embeddings, if it has this length and checksum.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`Error::Format`] for another file.
    pub fn load_verified(&self, file: &ShardFile) -> Result<EmbeddingSet> {
        let local = self.local(&file.name)?;
        let path = local.path();
        match format_of(path)? {
            Format::Safetensors => tensors::load_known(path, &file.sha256),
            format if digest(path)? == file.sha256 => single::load(path, &format),
            _ => Err(Error::Format {
                path: path.to_owned(),
                format: "a shard",
                problem: "its SHA-256 is not the one it was written with".to_owned(),
                hint: None,
            }),
        }
        .map_err(|error| self.of_file(error, &file.name))
    }

    /// The error of a file, which names the object where a copy of it was read.
    fn of_file(&self, error: Error, name: &str) -> Error {
        match error {
            Error::Format { format, problem, hint, .. } => {
                Error::Format { path: self.path.join(name), format, problem, hint }
            }
            error => error,
        }
    }

    /// Removes a folder in it with its files, if it is there.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Remote`].
    pub fn remove_folder(&self, name: &str) -> Result<()> {
        if let Some(store) = &self.store {
            return Ok(store.remove_below(name)?);
        }
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

    /// A file, or a copy of the object.
    fn local(&self, name: &str) -> Result<Local> {
        Ok(match &self.store {
            Some(store) => Local::Copy(store.download(name)?),
            None => Local::File(self.path.join(name)),
        })
    }
}

/// The labels, paths and other lists of a file of embeddings. Of a `.safetensors` file, the embeddings are not read.
fn lists(path: &Path) -> Result<EmbeddingSet> {
    match format_of(path)? {
        Format::Safetensors => {
            let map = FileMap::open(path)?;
            let set = tensors::open(path, &map).and_then(|(found, metadata)| {
                let (rows, ..) = tensors::embeddings(path, &found)?;
                tensors::with_lists((path, &found), &metadata, Matrix::new(rows, 0, Vec::new())?, None)
            });
            map.check()?;
            set
        }
        format => single::load(path, &format),
    }
}

/// A key of each row's image, by its source and its path.
fn keys_of_images(set: &EmbeddingSet) -> Vec<u64> {
    let key = |(row, path): (usize, &String)| {
        let mut hash = DefaultHasher::new();
        (set.source_of(row), path).hash(&mut hash);
        hash.finish()
    };
    set.paths.iter().flatten().enumerate().map(key).collect()
}

/// The SHA-256 of a file, 64 hexadecimal digits.
fn digest(path: &Path) -> Result<String> {
    let failed = |source| Error::io("read", path, source);
    let file = files::open_regular(path).map_err(failed)?;
    Ok(hex::sha256_of(file).map_err(failed)?.1)
}
