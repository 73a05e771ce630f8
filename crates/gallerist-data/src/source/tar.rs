//! Reading straight from a tar archive, from several threads at once.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use super::archive::normal;
use super::links::{Link, absence, follow};
use super::names::has_ignored_part;
use crate::decode::MAX_FILE_BYTES;
use crate::error::Error;
use crate::positioned::read_whole_at;

/// An open archive without compression, and the place of each of its files.
pub(super) struct TarArchive {
    name: String,
    file: File,
    /// Path of a file in the archive -> position and length of its bytes. Links have those of their files.
    places: HashMap<String, (u64, u64)>,
    /// Links whose files are not in the archive, and what they name.
    lost: HashMap<String, String>,
}

impl TarArchive {
    /// Opens the archive at `path`, which messages call `name`. The headers of all its files are read.
    pub(super) fn open(path: &Path, name: &Path) -> Result<TarArchive, Error> {
        let name = name.display().to_string();
        let failed = |e| Error::io("read", name.clone(), e);
        let file = gallerist_util::files::open_regular(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        refuse_other_formats(&file, &name)?;
        let fault = |problem: String| Error::Archive { path: name.clone(), problem, hint: None };
        let mut places = HashMap::new();
        let mut links: HashMap<String, Link> = HashMap::new();
        let mut archive = tar::Archive::new(&file);
        for entry in archive.entries_with_seek().map_err(failed)? {
            let entry = entry.map_err(|e| fault(format!("not a whole tar archive: {}", readable(&e))))?;
            let kind = entry.header().entry_type();
            let is_link = kind.is_hard_link() || kind.is_symlink();
            if !(kind.is_file() || kind.is_contiguous() || kind.is_gnu_sparse() || is_link) {
                continue;
            }
            let path = entry.path_bytes();
            let Ok(path) = std::str::from_utf8(&path) else {
                return Err(fault(format!("the name of entry {} is not UTF-8", places.len() + links.len())));
            };
            let Some(path) = normal(path) else {
                return Err(fault(format!("entry `{path}` has a path that leads outside")));
            };
            let (start, size) = (entry.raw_file_position(), entry.size());
            if !is_link && start.checked_add(size).is_none_or(|end| end > length) {
                return Err(fault(format!("not a whole tar archive: `{path}` is cut short")));
            }
            if has_ignored_part(&path) {
                continue;
            }
            if kind.is_gnu_sparse() {
                return Err(Error::Archive {
                    path: name,
                    problem: format!("`{path}` is packed as a sparse file"),
                    hint: Some("pack the archive again without --sparse"),
                });
            }
            if places.contains_key(&path) || links.contains_key(&path) {
                return Err(fault(format!("two of its entries are the file `{path}`")));
            }
            if is_link {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = String::from_utf8_lossy(&target).into_owned();
                links.insert(path, Link { target, is_symbolic: kind.is_symlink() });
            } else {
                places.insert(path, (start, size));
            }
        }
        let lost = follow(&mut places, &links).map_err(fault)?;
        Ok(TarArchive { name, file, places, lost })
    }

    /// All files and lost links but hidden ones, in no particular order.
    pub(super) fn list(&self) -> Vec<String> {
        self.places.keys().chain(self.lost.keys()).cloned().collect()
    }

    /// Links whose files are not in the archive.
    pub(super) fn lost_links(&self) -> Vec<String> {
        self.lost.keys().cloned().collect()
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.places.contains_key(path) || self.lost.contains_key(path)
    }

    /// Position and length of a file.
    pub(super) fn place(&self, path: &str) -> Option<(u64, u64)> {
        self.places.get(path).copied()
    }

    /// The bytes of one file.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        let fault = |problem: String| Error::Decode { path: format!("{}/{path}", self.name), problem };
        let (start, size) = self.place(path).ok_or_else(|| fault(absence(path, &self.lost)))?;
        if size > MAX_FILE_BYTES {
            let (found, most) = (size.div_ceil(1 << 20), MAX_FILE_BYTES >> 20);
            return Err(fault(format!("it has {found} MiB, and a file may have {most} MiB")));
        }
        let mut bytes = vec![0; size as usize];
        match read_whole_at(&self.file, &mut bytes, start) {
            Ok(true) => Ok(bytes),
            Ok(false) => Err(fault("the archive is cut short here".to_owned())),
            Err(e) => Err(Error::io("read", self.name.clone(), e)),
        }
    }
}

/// Refuses an archive of another format, by its first bytes.
fn refuse_other_formats(file: &File, name: &str) -> Result<(), Error> {
    const FORMATS: [(&[u8], &str, &str); 6] = [
        (b"\x1f\x8b", "gzip", "unpack it with gunzip"),
        (b"BZh", "bzip2", "unpack it with bunzip2"),
        (b"\xfd7zXZ\0", "xz", "unpack it with unxz"),
        (b"\x28\xb5\x2f\xfd", "zstd", "unpack it with unzstd"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip", "unpack it with 7z"),
        (b"PK\x03\x04", "zip", "call it .zip"),
    ];
    let mut start = [0; 8];
    if !read_whole_at(file, &mut start, 0).map_err(|e| Error::io("read", name, e))? {
        return Ok(());
    }
    match FORMATS.into_iter().find(|(magic, ..)| start.starts_with(magic)) {
        None => Ok(()),
        Some((_, format, hint)) => Err(Error::Archive {
            path: name.to_owned(),
            problem: format!("it is called .tar, and is of the format {format}"),
            hint: Some(hint),
        }),
    }
}

/// The text of an error, without the bytes of the archive that it quotes.
fn readable(error: &std::io::Error) -> String {
    let text = error.to_string();
    let is_text = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
    match text.chars().all(|c| is_text(&c)) {
        true => text,
        false => "a header is damaged".to_owned(),
    }
}
