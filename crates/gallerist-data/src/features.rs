//! Features of images that a frozen model computed, kept instead of the images.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::disk::DiskCache;
use crate::error::{Broken, Error};
use crate::source::ImageSet;
use crate::transform::Transform;

/// One row of features for each view of each image of a set, in memory.
///
/// [`ImageStore::with_features`](crate::ImageStore::with_features) gives them to loaders in place of the images.
#[derive(Debug)]
pub struct Features {
    length: usize,
    views: usize,
    /// Rows of the views of an image one after the other; zeros for an image without features.
    rows: Vec<f32>,
    known: Vec<bool>,
    broken: HashMap<u32, Arc<Error>>,
}

impl Features {
    /// Features of `count` images, none of which are known yet.
    pub fn new(count: usize, views: usize, length: usize) -> Self {
        Features {
            length,
            views,
            rows: vec![0.0; count * views * length],
            known: vec![false; count],
            broken: HashMap::new(),
        }
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True when there are no images.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Length of a row.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Rows of an image.
    pub fn views(&self) -> usize {
        self.views
    }

    /// The rows of image `i`, `[views, length]`.
    ///
    /// # Panics
    ///
    /// If there is no such image.
    pub fn row(&self, i: usize) -> &[f32] {
        let length = self.views * self.length;
        &self.rows[i * length..][..length]
    }

    /// Sets the rows of image `i`.
    ///
    /// # Panics
    ///
    /// If there is no such image, or `row` is not of `views * length` numbers.
    pub fn set(&mut self, i: usize, row: &[f32]) {
        let length = self.views * self.length;
        self.rows[i * length..][..length].copy_from_slice(row);
        self.known[i] = true;
    }

    /// Marks images that cannot be read.
    pub fn set_broken(&mut self, broken: Vec<Broken>) {
        for Broken { item, error } in broken {
            self.known[item as usize] = true;
            self.broken.insert(item, error);
        }
    }

    /// Whether image `i` cannot be read.
    pub fn is_broken(&self, i: usize) -> bool {
        self.broken.contains_key(&(i as u32))
    }

    /// The images that are neither known nor broken, in their order.
    pub fn unknown(&self) -> Vec<u32> {
        (0..self.len() as u32).filter(|&i| !self.known[i as usize]).collect()
    }

    /// The features of some images, in this order.
    ///
    /// # Panics
    ///
    /// If there is no such image.
    #[must_use]
    pub fn select(&self, images: &[u32]) -> Self {
        let mut selected = Features::new(images.len(), self.views, self.length);
        for (to, &from) in images.iter().enumerate() {
            selected.set(to, self.row(from as usize));
            selected.known[to] = self.known[from as usize];
            if let Some(error) = self.broken.get(&from) {
                selected.broken.insert(to as u32, error.clone());
            }
        }
        selected
    }

    /// The reason why image `i` has no features.
    pub(crate) fn check(&self, i: usize) -> Result<(), Arc<Error>> {
        self.broken.get(&(i as u32)).map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// Features of an image set in a file, so that they are computed once for all runs with the same images, preparation and
/// model.
///
/// Each image has a place with a checksum. An image that changed since has another digest, and its features are computed
/// again; so are those of a place that a killed process left unfinished.
pub struct FeatureFile {
    disk: DiskCache,
    set: Arc<ImageSet>,
    /// Numbers of an image.
    numbers: usize,
}

impl FeatureFile {
    /// The file in `folder`, which is created if necessary. `model` identifies the model and its output.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the file cannot be opened or made.
    pub fn open(
        folder: &Path,
        set: &Arc<ImageSet>,
        transform: &Transform,
        model: &str,
        length: usize,
    ) -> Result<Self, Error> {
        let form = [&transform.tensor_form()[..], b"\0", model.as_bytes(), &length.to_le_bytes()].concat();
        let disk = DiskCache::open(folder, set, &form, "features")?;
        Ok(FeatureFile { disk, set: set.clone(), numbers: transform.views() * length })
    }

    /// The features of image `i`, if the file has them.
    pub fn read(&self, i: usize) -> Option<Vec<f32>> {
        let bytes = self.disk.read(i, self.set.digest(i)?, self.numbers * size_of::<f32>())?;
        let (numbers, _) = bytes.as_chunks::<4>();
        Some(numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
    }

    /// Writes the features of image `i`. Images without a digest are not written: no one could say whether they changed.
    ///
    /// # Panics
    ///
    /// If there are not as many numbers as the file has for an image.
    pub fn write(&self, i: usize, row: &[f32]) {
        assert_eq!(row.len(), self.numbers, "numbers of an image in the file of features");
        if let Some(source) = self.set.digest(i) {
            let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.disk.write(i, source, &bytes);
        }
    }

    /// Why no further features are kept: the first write that failed, as on a full disk.
    pub fn problem(&self) -> Option<&Error> {
        self.disk.problem()
    }
}
