//! The images of a gallery and their thumbnails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gallerist_data::{Image, ImageSet, OpenOptions};
use gallerist_report::{Picture, ReportError};
use gallerist_retrieval::file::Source;
use gallerist_util::{files, hex};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use sha2::{Digest, Sha256};

use crate::gallery::{Catalog, Gallery};
use crate::source_images::SourceImages;
use crate::{Error, Result};

/// The sizes of thumbnails: the longer side, in pixels.
pub(crate) const SIZES: [u16; 3] = [64, 160, 320];

/// Files up to this size serve as their own thumbnails if they need no reduction.
const SMALL_FILE: usize = 32 << 10;

/// The JPEG quality of thumbnails, out of 100.
const QUALITY: u8 = 85;

/// A picture with an ETag of its content.
#[derive(Clone)]
pub(crate) struct Encoded {
    pub(crate) picture: Picture,
    pub(crate) etag: Arc<str>,
}

impl From<Picture> for Encoded {
    fn from(picture: Picture) -> Self {
        let etag = format!("\"{}\"", digest(picture.bytes())).into();
        Self { picture, etag }
    }
}

/// The first 128 bits of the SHA-256, in hexadecimal.
fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..16])
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<(u32, u16), Encoded> for ByBytes {
    fn weight(&self, _: &(u32, u16), thumbnail: &Encoded) -> u64 {
        // Plus about the size of the entry itself.
        thumbnail.picture.bytes().len() as u64 + 200
    }
}

impl From<ReportError> for Unreadable {
    fn from(error: ReportError) -> Self {
        Self(error.to_string())
    }
}

/// The image files of a gallery and their thumbnails. Clones share both.
#[derive(Clone)]
pub struct Images {
    set: SourceImages,
    thumbnails: Arc<Cache<(u32, u16), Encoded, ByBytes>>,
    folder: Option<PathBuf>,
}

/// Why an image cannot be shown.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(crate) String);

impl From<gallerist_data::Error> for Unreadable {
    /// Without the name of the file, which clients must not see.
    fn from(error: gallerist_data::Error) -> Self {
        Self(match error {
            gallerist_data::Error::Decode { problem, .. } => problem,
            _ => "the file cannot be read".to_owned(),
        })
    }
}

impl Images {
    /// Opens a folder, a zip file or any other source of [`ImageSet::open`]. Thumbnails are cached in up to `memory`
    /// bytes, and in `folder` if it is given.
    ///
    /// # Errors
    /// As [`ImageSet::open`], and when the folder cannot be created.
    pub fn open(path: &Path, memory: u64, folder: Option<PathBuf>) -> Result<Self> {
        Self::open_all(&[path], memory, folder)
    }

    /// Opens the images of sources that the items name: pairs of a name and a path. For a gallery of several sources whose
    /// images were moved.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_sources(sources: &[(String, PathBuf)], memory: u64, folder: Option<PathBuf>) -> Result<Self> {
        let paths: Vec<&Path> = sources.iter().map(|(_, path)| path.as_path()).collect();
        let images = Self::open_all(&paths, memory, folder)?;
        Ok(Self { set: images.set.named(sources.iter().map(|(name, _)| name.clone())), ..images })
    }

    /// Opens the sources of a gallery whose images are in several places.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(paths: &[impl AsRef<Path>], memory: u64, folder: Option<PathBuf>) -> Result<Self> {
        let options = OpenOptions { allow_repeats: true, ..OpenOptions::default() };
        let set = ImageSet::open_with(paths, &options)?;
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).map_err(|source| Error::Io {
                action: format!("make the folder `{}`", folder.display()),
                source,
            })?;
        }
        // An estimate of the number of entries, at 4 KiB each, for the tables of the cache.
        let entries = (memory / 4096).clamp(64, 1 << 20) as usize;
        let thumbnails = Arc::new(Cache::with_weighter(entries, memory, ByBytes));
        Ok(Self { set: SourceImages::new(set), thumbnails, folder })
    }

    /// Refuses images if none of them belongs to the gallery.
    ///
    /// # Errors
    /// [`Error::OtherImages`].
    pub fn check(&self, gallery: &Gallery) -> Result<()> {
        let images = self.clone().of_sources(gallery.sources());
        let catalog = gallery.catalog();
        let mut rows = (0..catalog.len()).filter(|&row| catalog.path(row).is_some());
        let Some(first) = rows.clone().find_map(|row| catalog.path(row)).map(str::to_owned) else {
            return Ok(());
        };
        if rows.any(|row| images.find(&catalog, row).is_some()) {
            return Ok(());
        }
        Err(Error::OtherImages { images: self.set.set().name().to_owned(), path: first })
    }

    /// The names of the sources of a gallery of whose items no image is found, sorted.
    pub fn missing_sources(&self, gallery: &Gallery) -> Vec<String> {
        let images = self.clone().of_sources(gallery.sources());
        let catalog = gallery.catalog();
        let mut sources = BTreeMap::new();
        for row in (0..catalog.len()).filter(|&row| catalog.path(row).is_some()) {
            let Some(source) = catalog.sources.get(row) else { continue };
            let is_found = sources.entry(source).or_insert(false);
            *is_found = *is_found || images.find(&catalog, row).is_some();
        }
        sources.into_iter().filter(|&(_, is_found)| !is_found).map(|(name, _)| name.to_owned()).collect()
    }

    /// The images of items whose sources these are.
    pub(crate) fn of_sources(self, sources: &[Source]) -> Self {
        Self { set: self.set.of_sources(sources), ..self }
    }

    /// The image of a row. Where one source was opened and all items of the gallery have the same source or none, the path
    /// identifies it.
    pub(crate) fn find(&self, catalog: &Catalog, row: usize) -> Option<u32> {
        let path = catalog.path(row)?;
        let several = self.set.set().sources() > 1 || catalog.only_source().is_none();
        let source = catalog.sources.get(row).filter(|_| several);
        self.set.find(source, path, || catalog.is_only_path(path))
    }

    /// The original file of an image. Formats that browsers do not show (TIFF, pictures in an IDX file) become PNG.
    pub(crate) fn original(&self, image: u32) -> std::result::Result<Encoded, Unreadable> {
        let bytes = self.set.set().read(image as usize)?;
        if let Ok(picture) = Picture::from_encoded(bytes) {
            return Ok(picture.into());
        }
        let decoded = self.set.set().decode(image as usize)?;
        let (width, height) = (decoded.width() as u32, decoded.height() as u32);
        Ok(Picture::from_pixels(width, height, decoded.channels() as u8, decoded.pixels())?.into())
    }

    pub(crate) fn decode(&self, image: u32) -> std::result::Result<Image, Unreadable> {
        Ok(self.set.set().decode(image as usize)?)
    }

    /// The thumbnail if it is in memory.
    pub(crate) fn remembered(&self, image: u32, size: u16) -> Option<Encoded> {
        self.thumbnails.get(&(image, size))
    }

    /// The image with its longer side at most `size`. It is computed once, also for concurrent requests.
    pub(crate) fn thumbnail(&self, image: u32, size: u16) -> std::result::Result<Encoded, Unreadable> {
        self.thumbnails.get_or_insert_with(&(image, size), || self.make(image, size))
    }

    fn make(&self, image: u32, size: u16) -> std::result::Result<Encoded, Unreadable> {
        let bytes = self.set.set().read(image as usize)?;
        // Named by content, so that a changed image gets a new thumbnail.
        let kept = self.folder.as_ref().map(|folder| folder.join(format!("{}-{size}.jpg", digest(&bytes))));
        if let Some(jpeg) = kept.as_ref().and_then(|path| files::read_regular(path).ok())
            && let Ok(picture) = Picture::from_encoded(jpeg)
        {
            return Ok(picture.into());
        }
        let decoded = self.set.set().decode(image as usize)?;
        let wanted = usize::from(size);
        if decoded.width().max(decoded.height()) <= wanted
            && bytes.len() <= SMALL_FILE
            && let Ok(picture) = Picture::from_encoded(bytes)
        {
            return Ok(picture.into());
        }
        let jpeg = jpeg(&decoded.shrink_to(wanted))?;
        if let Some(path) = kept {
            // A full disk is no error: the thumbnail is computed again next time.
            let _ = files::write(path, |file| file.write_all(&jpeg));
        }
        Ok(Picture::from_encoded(jpeg)?.into())
    }
}

fn jpeg(image: &Image) -> std::result::Result<Vec<u8>, Unreadable> {
    let color =
        if image.channels() == 1 { jpeg_encoder::ColorType::Luma } else { jpeg_encoder::ColorType::Rgb };
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, QUALITY)
        .encode(image.pixels(), image.width() as u16, image.height() as u16, color)
        .map_err(|error| Unreadable(error.to_string()))?;
    Ok(bytes)
}
