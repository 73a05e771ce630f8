//! The interface of everything that images are read from.

use std::path::Path;

use super::content::ImageContent;
use super::layout::DatasetLayout;
use super::record::ImageListing;
use crate::error::Error;

/// A source of images: lists them without decoding, and reads one at a time.
///
/// Folders, archives and manifests are sources; implement it for your own data, such as a database or images that
/// a program makes. [`ImageSet::from_source`](crate::ImageSet::from_source) makes a set of it, which everything
/// else works with: trainer, embedding, caches, evaluation, reports. With
/// [`register_source`](crate::register_source) a run file can name it: `train = ["cells://plate-7"]`.
///
/// # Example
///
/// ```
/// use gallerist_data::{Error, Image, ImageContent, ImageListing, ImageRecord, ImageSet, ImageSource};
///
/// /// Grey squares; the brightness is the class.
/// struct Squares;
///
/// impl ImageSource for Squares {
///     fn name(&self) -> &str {
///         "squares"
///     }
///
///     fn list(&mut self) -> Result<ImageListing, Error> {
///         let record = |i: usize| ImageRecord::new(format!("{i:03}")).with_label(["dark", "light"][i % 2]);
///         Ok((0..100).map(record).collect::<Vec<_>>().into())
///     }
///
///     fn read(&self, number: usize, _path: &str) -> Result<ImageContent, Error> {
///         let brightness = [40, 200][number % 2];
///         Ok(ImageContent::Decoded(Image::new(8, 8, 1, vec![brightness; 64])))
///     }
/// }
///
/// let set = ImageSet::from_source(Squares)?;
/// assert_eq!(set.len(), 100);
/// assert_eq!(set.class_names(), ["dark", "light"]);
/// assert_eq!(set.decode(1)?.pixels()[0], 200);
/// # Ok::<(), Error>(())
/// ```
pub trait ImageSource: Send + Sync {
    /// The source in messages, reports and files of embeddings: a path, or an address such as `cells://plate-7`.
    fn name(&self) -> &str;

    /// Lists the images with labels, cameras and splits; decodes none. Called once, before all other methods but
    /// [`name`](Self::name).
    ///
    /// Every image has a path of its own. Either all images have a label, which is not empty, or none has; the same holds
    /// for cameras. Where images have splits, a set
    /// takes those that [`OpenOptions`](crate::OpenOptions) name.
    ///
    /// # Errors
    ///
    /// [`Error::Source`], or whatever else describes the fault.
    fn list(&mut self) -> Result<ImageListing, Error>;

    /// Reads the image at position `number` of the list; `path` is its record's path. Called from several threads
    /// at once.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`] or [`Error::Io`]: training replaces the image by another of its class and reports it,
    /// embedding leaves it out and reports it.
    fn read(&self, number: usize, path: &str) -> Result<ImageContent, Error>;

    /// Checks the images of the `split` that was chosen; `None`: all. May leave images out and add notes. Called
    /// once, after [`list`](Self::list). The default accepts all.
    ///
    /// # Errors
    ///
    /// Where the list contradicts the source.
    fn check(&mut self, listing: &mut ImageListing, split: Option<&str>) -> Result<(), Error> {
        let _ = (listing, split);
        Ok(())
    }

    /// Numbers that change when the image changes, such as length and modification time. An image without them
    /// (`None`, the default) is never kept in a [cache on disk](crate::ImageStore::with_disk_cache).
    fn version(&self, number: usize, path: &str) -> Option<[u64; 3]> {
        let _ = (number, path);
        None
    }

    /// Where an image is, for messages; default: the name of the source and the path.
    fn location(&self, path: &str) -> String {
        format!("{}/{path}", self.name())
    }

    /// What the paths of the images are relative to; default: the name of the source.
    fn root(&self) -> &Path {
        Path::new(self.name())
    }

    /// What to open to find the images again; default: the name of the source.
    fn address(&self) -> &Path {
        Path::new(self.name())
    }

    /// The layout of a published data set that the source has; default: none.
    fn layout(&self) -> Option<DatasetLayout> {
        None
    }
}
