//! Decoded images, or features of images, on disk: one place of a fixed length for each image.
//!
//! One file for an image set at one stored form: its name is a digest of that form (size, fit,
//! channels, what is cut off; for features also the whole preparation and the model) and of the paths of all images in
//! their order, and image `i` has place `i` in it. A place consists of
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | digest of the image's source: of a file its path, length and time of change, in an archive the CRC-32 and length of the entry |
//! | 4 | CRC-32 of that and of the pixels |
//! | rest | the pixels or features |
//!
//! so that every place can be verified on its own. A place that was never written (the file is sparse), half
//! written by a killed process, damaged, or made from a file that has changed since does
//! not match its digest and checksum; the image is decoded and written again. Processes that share the
//! file write the same bytes to the same places.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gallerist_util::hex;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::positioned::{read_whole_at, write_whole_at};
use crate::source::ImageSet;

/// Raise it when the same file and form give other pixels than before.
const VERSION: u32 = 1;

/// Bytes before the pixels of a place.
const HEAD: usize = 12;

pub(crate) struct DiskCache {
    path: PathBuf,
    file: File,
    /// Set when a place could not be written; nothing is written from then on.
    problem: OnceLock<Error>,
}

impl DiskCache {
    /// The file in `folder` for this set; `form` decides what an image's place holds, `extension` ends the name.
    pub(crate) fn open(
        folder: &Path,
        set: &ImageSet,
        form: &[u8],
        extension: &str,
    ) -> Result<DiskCache, Error> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |e| Error::io("use as a cache", path, e)
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(format!("{}.{extension}", name(set, form)));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed(&path))?;
        Ok(DiskCache { path, file, problem: OnceLock::new() })
    }

    /// The first write that failed.
    pub(crate) fn problem(&self) -> Option<&Error> {
        self.problem.get()
    }

    /// The `length` bytes of image `i` from `source` ([`ImageSet::digest`]), if its place holds them.
    pub(crate) fn read(&self, i: usize, source: [u8; 8], length: usize) -> Option<Vec<u8>> {
        let mut pixels = vec![0; length];
        let mut found = [0; HEAD];
        let position = i as u64 * (HEAD + pixels.len()) as u64;
        // A place that cannot be read counts as empty.
        let whole = read_whole_at(&self.file, &mut found, position).unwrap_or(false)
            && found[..8] == source
            && read_whole_at(&self.file, &mut pixels, position + HEAD as u64).unwrap_or(false);
        let fits = whole && found == head(source, &pixels);
        fits.then_some(pixels)
    }

    /// Writes the bytes of image `i` to its place.
    pub(crate) fn write(&self, i: usize, source: [u8; 8], bytes: &[u8]) {
        if self.problem.get().is_some() {
            return;
        }
        let place = [&head(source, bytes)[..], bytes].concat();
        if let Err(e) = write_whole_at(&self.file, &place, i as u64 * place.len() as u64) {
            // Another thread may have been first; its problem is as good.
            let _ = self.problem.set(Error::io("write to the cache", self.path.display().to_string(), e));
        }
    }
}

fn head(source: [u8; 8], pixels: &[u8]) -> [u8; HEAD] {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&source);
    checksum.update(pixels);
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&source);
    head[8..].copy_from_slice(&checksum.finalize().to_le_bytes());
    head
}

/// The name of the file: a digest of what the places hold.
fn name(set: &ImageSet, form: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(VERSION.to_le_bytes());
    digest.update(form);
    for i in 0..set.len() {
        set.describe(i, &mut |bytes| digest.update(bytes));
    }
    hex::encode(&digest.finalize()[..16])
}
