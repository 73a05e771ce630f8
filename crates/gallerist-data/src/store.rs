//! Images made ready for their transform, and kept where memory allows.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::error::{Broken, Error};
use crate::image::Image;
use crate::source::ImageSet;
use crate::transform::Transform;

/// An image set with its transform and a cache of decoded images.
///
/// Images are kept at the transform's stored size until the limit is reached;
/// later ones are decoded every time they are asked for. Nothing is evicted:
/// training comes back to every image after about the same time, where evicting
/// the oldest would evict what is needed next.
///
/// Shared by the loaders of all epochs.
pub struct ImageStore {
    set: Arc<ImageSet>,
    transform: Transform,
    cells: Vec<OnceLock<Result<Arc<Image>, Arc<Error>>>>,
    used: AtomicUsize,
    limit: usize,
    reported: Mutex<HashSet<u32>>,
    members: OnceLock<Vec<Vec<u32>>>,
}

impl ImageStore {
    /// A store that keeps at most `limit` bytes of pixels; 0 keeps none.
    pub fn new(set: Arc<ImageSet>, transform: Transform, limit: usize) -> ImageStore {
        ImageStore {
            cells: (0..set.len()).map(|_| OnceLock::new()).collect(),
            set,
            transform,
            used: AtomicUsize::new(0),
            limit,
            reported: Mutex::new(HashSet::new()),
            members: OnceLock::new(),
        }
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

    /// Image `i` at the stored size, from memory or decoded now.
    ///
    /// A failure is remembered: an image that was broken once stays broken for
    /// this store.
    ///
    /// # Errors
    ///
    /// As [`ImageSet::decode`].
    ///
    /// # Panics
    ///
    /// If `i` is not below the set's length.
    pub fn get(&self, i: usize) -> Result<Arc<Image>, Arc<Error>> {
        if let Some(known) = self.cells[i].get() {
            return known.clone();
        }
        match self.set.decode(i) {
            Err(error) => {
                let error = Arc::new(error);
                // Another thread may have been first; its error is as good.
                self.cells[i].get_or_init(|| Err(error)).clone()
            }
            Ok(image) => {
                let image = Arc::new(self.transform.fit(image));
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
