//! Images at their stored size, kept in memory up to a limit.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::disk::DiskCache;
use crate::error::{Broken, Error};
use crate::features::Features;
use crate::image::Image;
use crate::source::{ImageContent, ImageSet};
use crate::transform::Transform;
use gallerist_util::random::Random;

/// What the tensors of an image are made of.
pub(crate) enum Prepared {
    Image(Arc<Image>),
    /// The features of the image of this number.
    Features(usize),
}

/// An image set with its transform and a cache of decoded images.
///
/// Images are kept at the transform's stored size until the limit is reached;
/// later ones are decoded every time they are needed. Nothing is evicted:
/// training uses every image about once an epoch, so that evicting
/// the oldest would evict the image that is needed next.
///
/// Shared by the loaders of all epochs.
pub struct ImageStore {
    set: Arc<ImageSet>,
    transform: Transform,
    disk: Option<DiskCache>,
    features: Option<Arc<Features>>,
    cells: Vec<OnceLock<Result<Arc<Image>, Arc<Error>>>>,
    used: AtomicUsize,
    limit: usize,
    /// The content of each image when it was read first.
    first: Vec<OnceLock<Content>>,
    reported: Mutex<HashSet<u32>>,
    members: OnceLock<Vec<Vec<u32>>>,
}

/// What tells whether an image is still the one that was read first.
#[derive(Clone, Copy)]
struct Content {
    /// Length and CRC-32 of the file; `None` of an image that came from the cache on disk.
    file: Option<(usize, u32)>,
    /// The digest of the file by which the cache on disk knows it ([`ImageSet::digest`]).
    source: Option<[u8; 8]>,
}

impl ImageStore {
    /// A store that keeps at most `limit` bytes of pixels; 0 keeps none.
    pub fn new(set: Arc<ImageSet>, transform: Transform, limit: usize) -> ImageStore {
        let first = (0..set.len()).map(|_| OnceLock::new()).collect();
        ImageStore {
            cells: (0..set.len()).map(|_| OnceLock::new()).collect(),
            set,
            transform,
            disk: None,
            features: None,
            used: AtomicUsize::new(0),
            limit,
            first,
            reported: Mutex::new(HashSet::new()),
            members: OnceLock::new(),
        }
    }

    /// Also keeps decoded images in a file in `folder`, for this store and later ones of the same images
    /// at the same stored form.
    ///
    /// An image whose file has changed since (another length or time of change; in an archive, another
    /// length or CRC-32) and one that is damaged in the cache are decoded again. Several processes may
    /// share a folder. The file grows to the size of all pixels; nothing is ever deleted from the folder.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be opened or made. One that cannot be written later is no
    /// error, see [`ImageStore::disk_problem`].
    pub fn with_disk_cache(mut self, folder: &Path) -> Result<ImageStore, Error> {
        self.disk = Some(DiskCache::open(folder, &self.set, &self.transform.stored_form(), "images")?);
        Ok(self)
    }

    /// Gives loaders the features of the images instead of the images: tensors of shape `[features, 1, 1]`. No image is
    /// decoded, and random changes are not made.
    ///
    /// # Panics
    ///
    /// If there are not as many features as images, or an image has fewer views than the transform gives.
    pub fn with_features(mut self, features: Arc<Features>) -> ImageStore {
        assert_eq!(features.len(), self.set.len(), "images with features");
        assert!(features.views() >= self.transform.views(), "views with features");
        self.features = Some(features);
        self
    }

    /// A store of these images alone, with their features, which keeps no pixels.
    #[must_use]
    pub fn subset(&self, images: &[u32], transform: Transform) -> ImageStore {
        let store = ImageStore::new(Arc::new(self.set.subset(images)), transform, 0);
        match &self.features {
            Some(features) => store.with_features(Arc::new(features.select(images))),
            None => store,
        }
    }

    /// The features that loaders give instead of images.
    pub fn features(&self) -> Option<&Arc<Features>> {
        self.features.as_ref()
    }

    /// Channels, height and width of a tensor that loaders give.
    pub fn tensor_shape(&self) -> [usize; 3] {
        self.features.as_ref().map_or_else(|| self.transform.shape(), |features| [features.length(), 1, 1])
    }

    /// Numbers in all tensors of an image.
    pub(crate) fn tensor_length(&self) -> usize {
        self.transform.views() * self.tensor_shape().iter().product::<usize>()
    }

    /// What the tensors of image `i` are made of.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub(crate) fn prepared(&self, i: usize) -> Result<Prepared, Arc<Error>> {
        match &self.features {
            None => self.get(i).map(Prepared::Image),
            Some(features) => features.check(i).map(|()| Prepared::Features(i)),
        }
    }

    /// Writes the tensors of an image.
    pub(crate) fn fill(&self, prepared: &Prepared, random: &mut Random, out: &mut [f32]) {
        match (prepared, &self.features) {
            (Prepared::Image(image), _) => self.transform.apply(image, random, out),
            (Prepared::Features(i), Some(features)) => out.copy_from_slice(&features.row(*i)[..out.len()]),
            (Prepared::Features(_), None) => unreachable!("a store keeps its features"),
        }
    }

    /// Why no further images are kept on disk: the first write that failed, as on a full disk.
    pub fn disk_problem(&self) -> Option<&Error> {
        self.disk.as_ref()?.problem()
    }

    /// The image set.
    pub fn set(&self) -> &Arc<ImageSet> {
        &self.set
    }

    /// The transform.
    pub fn transform(&self) -> &Transform {
        &self.transform
    }

    /// Bytes of pixels kept at present.
    pub fn cached_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Image `i` at the stored size, from memory, from disk or decoded now.
    ///
    /// A failure is remembered: an image that was broken once stays broken for
    /// this store. So is the content of the file (length and CRC-32): an image that is read again and has another
    /// is broken. One that came from the cache on disk is broken if its file is another by length or time of change.
    ///
    /// # Errors
    ///
    /// As [`ImageSet::decode`], and [`Error::Changed`].
    ///
    /// # Panics
    ///
    /// If `i` is not below the set's length.
    pub fn get(&self, i: usize) -> Result<Arc<Image>, Arc<Error>> {
        if let Some(known) = self.cells[i].get() {
            return known.clone();
        }
        match self.load(i) {
            Err(error) => {
                let error = Arc::new(error);
                // Another thread may have been first; its error is as good.
                self.cells[i].get_or_init(|| Err(error)).clone()
            }
            Ok(image) => {
                let image = Arc::new(image);
                let bytes = image.pixels().len();
                let room = self
                    .used
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                        used.checked_add(bytes).filter(|&sum| sum <= self.limit)
                    })
                    .is_ok();
                if room && self.cells[i].set(Ok(image.clone())).is_err() {
                    // Two threads decoded the same image; it counts once.
                    self.used.fetch_sub(bytes, Ordering::Relaxed);
                }
                Ok(image)
            }
        }
    }

    /// Image `i` at the stored size, from disk or decoded.
    fn load(&self, i: usize) -> Result<Image, Error> {
        // Before the file is read: if it changes meanwhile, the digest is the one that is outdated.
        let disk = self.disk.as_ref().and_then(|disk| Some((disk, self.set.digest(i)?)));
        let (size, channels) = (self.transform.stored_size(), self.transform.channels());
        let source = disk.map(|(_, source)| source);
        let is_known = self.first[i].get().is_none_or(|first| first.source == source);
        let kept = disk.filter(|_| is_known);
        if let Some(pixels) = kept.and_then(|(disk, source)| disk.read(i, source, size.area() * channels)) {
            self.first[i].get_or_init(|| Content { file: None, source });
            return Ok(Image::new(size.width, size.height, channels, pixels));
        }
        let content = self.set.load(i)?;
        if let ImageContent::Encoded(bytes) = &content {
            let file = Some((bytes.len(), crc32fast::hash(bytes)));
            let first = self.first[i].get_or_init(|| Content { file, source });
            let is_same = if first.file.is_some() { first.file == file } else { first.source == source };
            if !is_same {
                return Err(Error::Changed { path: self.set.location(i) });
            }
        }
        // A box is cut in pixels of the whole image.
        let least = self.transform.least_side().filter(|_| !self.set.is_cropped(i));
        let image = self.transform.fit(self.set.decode_loaded(i, content, least)?);
        if let Some((disk, source)) = disk {
            disk.write(i, source, image.pixels());
        }
        Ok(image)
    }

    /// The images of each class; all images as one class where there are no labels.
    pub(crate) fn classmates(&self, i: usize) -> &[u32] {
        let labels = self.set.labels();
        let members = self.members.get_or_init(|| {
            let mut members = vec![Vec::new(); self.set.class_names().len().max(1)];
            for i in 0..self.set.len() {
                members[labels.map_or(0, |l| l[i] as usize)].push(i as u32);
            }
            members
        });
        &members[labels.map_or(0, |l| l[i] as usize)]
    }

    /// Keeps those that no batch has reported yet, and remembers them.
    pub(crate) fn keep_unreported(&self, broken: &mut Vec<Broken>) {
        if !broken.is_empty() {
            let mut reported = self.reported.lock().expect("no code panics while holding it");
            broken.retain(|b| reported.insert(b.item));
        }
    }
}
