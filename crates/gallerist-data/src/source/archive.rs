//! Reading straight from a zip archive, from several threads at once.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::links::{Link, absence, follow};
use super::names::{has_ignored_part, is_any_archive};
use crate::decode::MAX_FILE_BYTES;
use crate::error::Error;
use crate::positioned::read_at;

/// Deflate's largest possible ratio is 1032 to 1; a directory that states
/// a larger one is wrong.
const MAX_RATIO: u64 = 1032;

/// A path of Linux has at most so many bytes.
const MAX_LINK_BYTES: u64 = 4096;

/// An open archive. Its directory is shared; every read has a position of its
/// own and so needs no lock.
pub(super) struct Archive {
    name: String,
    /// Bytes of the archive.
    length: u64,
    zip: ZipArchive<Window>,
    /// Path of a file in the archive -> its number in the directory. Symbolic links have those of their files.
    numbers: HashMap<String, usize>,
    /// Links whose files are not in the archive, and what they name.
    lost: HashMap<String, String>,
}

impl Archive {
    /// Opens the archive at `path`, which messages call `name`.
    pub(super) fn open(path: &Path, name: &Path) -> Result<Archive, Error> {
        let name = name.display().to_string();
        let file =
            gallerist_util::files::open_regular(path).map_err(|e| Error::io("open", name.clone(), e))?;
        let length = file.metadata().map_err(|e| Error::io("read", name.clone(), e))?.len();
        let window = Window { file: Arc::new(file), length, position: 0, buffer: Buffer::default() };
        // Found by the size of the directory, the start may be wrong where the archive has records of zip64, as those of many files
        // do. So it is looked for only if it is not that of the file.
        let from_start = Config { archive_offset: ArchiveOffset::Known(0) };
        let zip = ZipArchive::with_config(from_start, window.clone())
            .or_else(|_| ZipArchive::new(window))
            .map_err(|e| problem(&name, None, e))?;
        let fault = |problem: String, hint| Error::Archive { path: name.clone(), problem, hint };
        if zip.has_duplicate_names() {
            return Err(fault("two of its entries have the same name".to_owned(), None));
        }
        let mut numbers = HashMap::with_capacity(zip.len());
        let mut links = Vec::new();
        for number in 0..zip.len() {
            let entry = zip.by_index_data(number).map_err(|e| problem(&name, None, e))?;
            let Ok(path) = std::str::from_utf8(entry.name_raw()) else {
                return Err(fault(
                    format!("the name of entry {number} is not UTF-8"),
                    Some("pack the archive again with UTF-8 names"),
                ));
            };
            // First, because `..` would pass for a hidden folder.
            let Some(normal) = normal(path) else {
                return Err(fault(format!("entry `{path}` has a path that leads outside"), None));
            };
            if entry.is_dir() || has_ignored_part(&normal) {
                continue;
            }
            if entry.is_symlink() {
                links.push(normal.clone());
            }
            if let Some(other) = numbers.insert(normal, number) {
                let other = zip.by_index_data(other).map_err(|e| problem(&name, None, e))?;
                return Err(fault(
                    format!(
                        "its entries `{}` and `{path}` are the same file",
                        String::from_utf8_lossy(other.name_raw())
                    ),
                    Some("pack the archive again with every file once"),
                ));
            }
        }
        let mut archive = Archive { name, length, zip, numbers, lost: HashMap::new() };
        archive.follow(links)?;
        Ok(archive)
    }

    /// Gives each symbolic link the number of the file that it leads to.
    fn follow(&mut self, links: Vec<String>) -> Result<(), Error> {
        // The content of a link is what it names. One that cannot be read stays a file, and so a broken one.
        let readable = links.into_iter().filter_map(|path| {
            let (_, size) = self.content(&path)?;
            let target = if size <= MAX_LINK_BYTES { self.read(&path).ok()? } else { return None };
            let target = String::from_utf8_lossy(&target).into_owned();
            Some((path, Link { target, is_symbolic: true }))
        });
        let links: HashMap<String, Link> = readable.collect();
        for link in links.keys() {
            self.numbers.remove(link);
        }
        let fault = |problem| Error::Archive { path: self.name.clone(), problem, hint: None };
        self.lost = follow(&mut self.numbers, &links).map_err(fault)?;
        Ok(())
    }

    /// All files and lost links but hidden ones, in no particular order.
    pub(super) fn list(&self) -> Vec<String> {
        self.numbers.keys().chain(self.lost.keys()).cloned().collect()
    }

    /// Links whose files are not in the archive.
    pub(super) fn lost_links(&self) -> Vec<String> {
        self.lost.keys().cloned().collect()
    }

    /// Refuses an archive with another inside, which may hold the images that were meant.
    pub(super) fn refuse_nested(&self) -> Result<(), Error> {
        // One inside another is refused, not silently skipped.
        let nested = self.numbers.keys().filter(|path| is_any_archive(path)).min();
        match nested {
            None => Ok(()),
            Some(path) => Err(Error::Archive {
                path: self.name.clone(),
                problem: format!("it holds another archive, `{path}`"),
                hint: Some("unpack it; archives inside archives are not read"),
            }),
        }
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.numbers.contains_key(path) || self.lost.contains_key(path)
    }

    /// What the directory says of a file's content: CRC-32 and length.
    pub(super) fn content(&self, path: &str) -> Option<(u32, u64)> {
        let entry = self.zip.by_index_data(*self.numbers.get(path)?).ok()?;
        Some((entry.crc32(), entry.size()))
    }

    /// The bytes of one file, checked against its CRC-32.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        let fault = |problem: String| Error::Decode { path: format!("{}/{path}", self.name), problem };
        let number = *self.numbers.get(path).ok_or_else(|| fault(absence(path, &self.lost)))?;
        // A clone shares the directory and the file, and has its own position.
        let mut zip = self.zip.clone();
        let entry = zip.by_index_data(number).map_err(|e| problem(&self.name, Some(path), e))?;
        let (packed, size) = (entry.compressed_size(), entry.size());
        if entry.encrypted() {
            return Err(fault("it is encrypted".to_owned()));
        }
        match entry.compression() {
            CompressionMethod::Stored | CompressionMethod::Deflated => {}
            method => return Err(fault(format!("it is packed with {method}, not with deflate"))),
        }
        if size > MAX_FILE_BYTES {
            return Err(fault(format!(
                "it unpacks to {} MiB, and a file may have {} MiB",
                size.div_ceil(1 << 20),
                MAX_FILE_BYTES >> 20
            )));
        }
        if packed > self.length {
            return Err(fault(format!(
                "the archive promises {packed} packed bytes, and has {} in all",
                self.length
            )));
        }
        if size / MAX_RATIO > packed {
            return Err(fault(format!(
                "the archive promises {size} bytes from {packed}, more than deflate can give"
            )));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        zip.by_index(number)
            .map_err(|e| problem(&self.name, Some(path), e))?
            // One byte more than promised shows an entry that is too long.
            .take(size + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| fault(format!("the archive is damaged here: {e}")))?;
        if bytes.len() as u64 != size {
            return Err(fault(format!(
                "the archive promises {size} bytes and gives {}",
                if bytes.len() as u64 > size { "more".to_owned() } else { bytes.len().to_string() }
            )));
        }
        Ok(bytes)
    }
}

/// The path of an entry with `/` between its parts, whatever was written between them, and without parts `.`;
/// `None` where it is absolute or has a part `..`.
pub(super) fn normal(path: &str) -> Option<String> {
    // Some programs for Windows write its separator, which the format does not permit.
    let path = path.replace('\\', "/");
    let drive = path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic();
    let parts = || path.split('/').filter(|part| !matches!(*part, "" | "."));
    let outside = path.starts_with('/') || drive || parts().any(|part| part == "..");
    (!outside).then(|| parts().collect::<Vec<_>>().join("/"))
}

fn problem(name: &str, path: Option<&str>, error: ZipError) -> Error {
    let what = match error {
        ZipError::Io(e) => return Error::io("read", name, e),
        ZipError::InvalidArchive(what) => format!("not a whole zip archive: {what}"),
        ZipError::UnsupportedArchive(what) => format!("of an unsupported kind: {what}"),
        other => other.to_string(),
    };
    match path {
        None => Error::Archive { path: name.to_owned(), problem: what, hint: None },
        Some(path) => Error::Decode { path: format!("{name}/{path}"), problem: what },
    }
}

/// A reader with its own position over a shared file, with a small read-ahead
/// buffer: a drawing of 300 bytes costs one system call, not five.
#[derive(Clone)]
struct Window {
    file: Arc<File>,
    length: u64,
    position: u64,
    buffer: Buffer,
}

#[derive(Default)]
struct Buffer {
    start: u64,
    bytes: Vec<u8>,
}

impl Clone for Buffer {
    /// A clone starts empty.
    fn clone(&self) -> Self {
        Buffer::default()
    }
}

const READ_AHEAD: usize = 2048;

impl Read for Window {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let held = self.buffer.start..self.buffer.start + self.buffer.bytes.len() as u64;
        if !held.contains(&self.position) {
            if out.len() >= READ_AHEAD {
                let n = read_at(&self.file, out, self.position)?;
                self.position += n as u64;
                return Ok(n);
            }
            self.buffer.bytes.resize(READ_AHEAD, 0);
            let n = read_at(&self.file, &mut self.buffer.bytes, self.position);
            self.buffer.bytes.truncate(*n.as_ref().unwrap_or(&0));
            self.buffer.start = self.position;
            n?;
        }
        let from = (self.position - self.buffer.start) as usize;
        let n = out.len().min(self.buffer.bytes.len() - from);
        out[..n].copy_from_slice(&self.buffer.bytes[from..from + n]);
        self.position += n as u64;
        Ok(n)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(n) => self.length.checked_add_signed(n),
            SeekFrom::Current(n) => self.position.checked_add_signed(n),
        };
        self.position =
            position.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a negative position"))?;
        Ok(self.position)
    }
}
