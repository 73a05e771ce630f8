//! The images of a gallery and their thumbnails.

use std::collections::HashMap;
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

/// A source that was opened. Both paths are absolute.
struct Opened {
    /// What the paths of its images are relative to.
    root: String,
    /// What was opened: the same, or a manifest in it.
    address: String,
}

/// The image files of a gallery and their thumbnails. Clones share both.
#[derive(Clone)]
pub struct Images {
    set: Arc<ImageSet>,
    /// Numbers of the images in the order of their sources and paths.
    sorted: Arc<[u32]>,
    sources: Arc<[Opened]>,
    /// The places of the images of named sources.
    places: Arc<HashMap<String, String>>,
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
        let names = sources.iter().map(|(name, _)| name.clone());
        let places = names.zip(images.sources.iter().map(|opened| opened.root.clone())).collect();
        Ok(Self { places: Arc::new(places), ..images })
    }

    /// Opens the sources of a gallery whose images are in several places.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_all(paths: &[impl AsRef<Path>], memory: u64, folder: Option<PathBuf>) -> Result<Self> {
        let options = OpenOptions { allow_repeats: true, ..OpenOptions::default() };
        let set = ImageSet::open_with(paths, &options)?;
        let mut sorted: Vec<u32> = (0..set.len() as u32).collect();
        sorted.sort_by(|&a, &b| place(&set, a).cmp(&place(&set, b)));
        let opened = |source| Opened {
            root: Source::name_of(set.source_root(source)),
            address: Source::name_of(set.source_path(source)),
        };
        let sources = (0..set.sources()).map(opened).collect();
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).map_err(|source| Error::Io {
                action: format!("make the folder `{}`", folder.display()),
                source,
            })?;
        }
        // An estimate of the number of entries, at 4 KiB each, for the tables of the cache.
        let entries = (memory / 4096).clamp(64, 1 << 20) as usize;
        let thumbnails = Arc::new(Cache::with_weighter(entries, memory, ByBytes));
        let set = Arc::new(set);
        Ok(Self { set, sorted: sorted.into(), sources, places: Arc::default(), thumbnails, folder })
    }

    /// Refuses images if none of them belongs to the gallery.
    ///
    /// # Errors
    /// [`Error::OtherImages`].
    pub fn check(&self, gallery: &Gallery) -> Result<()> {
        let images = self.clone().of_sources(gallery.sources());
        let catalog = &gallery.read().catalog;
        let mut rows = (0..catalog.len()).filter(|&row| catalog.path(row).is_some());
        let Some(first) = rows.clone().find_map(|row| catalog.path(row)).map(str::to_owned) else {
            return Ok(());
        };
        if rows.any(|row| images.find(catalog, row).is_some()) {
            return Ok(());
        }
        Err(Error::OtherImages { images: self.set.name().to_owned(), path: first })
    }

    /// The images of items whose sources these are: an item may name its source by another name than its place.
    pub(crate) fn of_sources(self, sources: &[Source]) -> Self {
        let place =
            |source: &Source| Some((source.name.clone(), Source::name_of(source.images.as_ref()?.as_ref())));
        let mut places: HashMap<_, _> = sources.iter().filter_map(place).collect();
        places.extend(self.places.iter().map(|(name, place)| (name.clone(), place.clone())));
        Self { places: Arc::new(places), ..self }
    }

    /// The image of a row. Only images that were listed when the source was opened are found, so no path leads out of
    /// the folder.
    ///
    /// If all items of a gallery have the same source or none, the path identifies the image. With several sources the
    /// same path may name different images: an image is then searched only in its own source, or in a folder that
    /// contains it. The image of a source that was moved is found by its path, if no other item has that path.
    pub(crate) fn find(&self, catalog: &Catalog, row: usize) -> Option<u32> {
        let path = catalog.path(row)?;
        let mut anywhere = (0..self.sources.len()).filter_map(|at| self.at(at, path));
        let source = catalog.sources.get(row).filter(|_| catalog.only_source().is_none());
        let Some(source) = source else { return anywhere.next() };
        let place = self.places.get(source).map(String::as_str);
        let places = || place.into_iter().chain([source]);
        if places().any(|place| self.below(place).next().is_some()) {
            return places()
                .find_map(|place| self.below(place).find_map(|(at, folder)| self.at(at, &(folder + path))));
        }
        // A source without a place was named by a client that added an item, whose image is not stored.
        let moved = place.is_some() && catalog.is_only_path(path);
        anywhere.next().filter(|_| moved && anywhere.next().is_none())
    }

    /// The opened sources that contain `place`, with its path in each: empty, or with a `/` at its end.
    fn below<'a>(&'a self, place: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        self.sources.iter().enumerate().filter_map(move |(at, Opened { root, address })| {
            if place == root || place == address {
                return Some((at, String::new()));
            }
            let folder = place.strip_prefix(root.as_str())?.strip_prefix('/')?;
            Some((at, format!("{folder}/")))
        })
    }

    fn at(&self, source: usize, path: &str) -> Option<u32> {
        let at = self.sorted.binary_search_by(|&image| place(&self.set, image).cmp(&(source, path))).ok()?;
        Some(self.sorted[at])
    }

    /// The original file of an image. Formats that browsers do not show (TIFF, pictures in an IDX file) become PNG.
    pub(crate) fn original(&self, image: u32) -> std::result::Result<Encoded, Unreadable> {
        let bytes = self.set.read(image as usize)?;
        if let Ok(picture) = Picture::from_encoded(bytes) {
            return Ok(picture.into());
        }
        let decoded = self.set.decode(image as usize)?;
        let (width, height) = (decoded.width() as u32, decoded.height() as u32);
        Ok(Picture::from_pixels(width, height, decoded.channels() as u8, decoded.pixels())?.into())
    }

    pub(crate) fn decode(&self, image: u32) -> std::result::Result<Image, Unreadable> {
        Ok(self.set.decode(image as usize)?)
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
        let bytes = self.set.read(image as usize)?;
        // Named by content, so that a changed image gets a new thumbnail.
        let kept = self.folder.as_ref().map(|folder| folder.join(format!("{}-{size}.jpg", digest(&bytes))));
        if let Some(jpeg) = kept.as_ref().and_then(|path| files::read_regular(path).ok())
            && let Ok(picture) = Picture::from_encoded(jpeg)
        {
            return Ok(picture.into());
        }
        let decoded = self.set.decode(image as usize)?;
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

fn place(set: &ImageSet, image: u32) -> (usize, &str) {
    (set.source(image as usize), set.path(image as usize))
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
