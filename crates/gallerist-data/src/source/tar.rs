//! Reading straight from a tar archive, from several threads at once.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use super::archive::normal;
use super::names::has_ignored_part;
use crate::decode::MAX_FILE_BYTES;
use crate::error::Error;
use crate::positioned::read_whole_at;

/// An open archive without compression, and the place of each of its files.
pub(super) struct TarArchive {
    name: String,
    file: File,
    /// Path of a file in the archive -> position and length of its bytes.
    places: HashMap<String, (u64, u64)>,
}

impl TarArchive {
    /// Opens the archive at `path`, which messages call `name`. The headers of all its files are read.
    pub(super) fn open(path: &Path, name: &Path) -> Result<TarArchive, Error> {
        let name = name.display().to_string();
        let failed = |e| Error::io("read", name.clone(), e);
        let file = gallerist_util::files::open_regular(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let fault = |problem: String| Error::Archive { path: name.clone(), problem, hint: None };
        let mut places = HashMap::new();
        let mut archive = tar::Archive::new(&file);
        for entry in archive.entries_with_seek().map_err(failed)? {
            let entry = entry.map_err(|e| fault(format!("not a whole tar archive: {e}")))?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = entry.path_bytes();
            let Ok(path) = std::str::from_utf8(&path) else {
                return Err(fault(format!("the name of entry {} is not UTF-8", places.len())));
            };
            let Some(path) = normal(path) else {
                return Err(fault(format!("entry `{path}` has a path that leads outside")));
            };
            let (start, size) = (entry.raw_file_position(), entry.size());
            if start.checked_add(size).is_none_or(|end| end > length) {
                return Err(fault(format!("not a whole tar archive: `{path}` is cut short")));
            }
            if has_ignored_part(&path) {
                continue;
            }
            if places.contains_key(&path) {
                return Err(fault(format!("two of its entries are the file `{path}`")));
            }
            places.insert(path, (start, size));
        }
        Ok(TarArchive { name, file, places })
    }

    /// All files but hidden ones, in no particular order.
    pub(super) fn list(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Position and length of a file.
    pub(super) fn place(&self, path: &str) -> Option<(u64, u64)> {
        self.places.get(path).copied()
    }

    /// The bytes of one file.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        let fault = |problem: String| Error::Decode { path: format!("{}/{path}", self.name), problem };
        let (start, size) =
            self.place(path).ok_or_else(|| fault("there is no such file in the archive".to_owned()))?;
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
