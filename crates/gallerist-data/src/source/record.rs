//! What a source says of its images before one is decoded.

use std::borrow::Cow;

use super::bounding_box::BoundingBox;
use super::idx::Pictures;

/// One image as its source lists it: a path, and what is known of the image without decoding it.
///
/// ```
/// use gallerist_data::ImageRecord;
///
/// let record = ImageRecord::new("wren/1.png").with_label("wren").with_split("train");
/// assert_eq!(record.path(), "wren/1.png");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRecord {
    pub(super) path: String,
    pub(super) label: Option<String>,
    pub(super) camera: Option<String>,
    pub(super) split: Option<Cow<'static, str>>,
    pub(super) bounding_box: Option<BoundingBox>,
    /// The label is that of a correction, and so the name of its class.
    pub(super) is_corrected: bool,
    /// Line of a manifest.
    pub(super) line: Option<u64>,
    /// Position in the list of its source.
    pub(super) number: u32,
}

impl ImageRecord {
    /// An image without a label. `path` names it within its source: unique, with `/` between the parts.
    pub fn new(path: impl Into<String>) -> Self {
        ImageRecord { path: path.into(), ..ImageRecord::default() }
    }

    /// With a label, the name of its class. `a|b` are two labels: two images match when they share one.
    pub fn with_label(self, label: impl Into<String>) -> Self {
        ImageRecord { label: Some(label.into()), ..self }
    }

    /// With the camera that took it; protocols of person re-identification compare images of different cameras.
    pub fn with_camera(self, camera: impl Into<String>) -> Self {
        ImageRecord { camera: Some(camera.into()), ..self }
    }

    /// In a split: `train`, `test`, `query`, `gallery` or any other name.
    pub fn with_split(self, split: impl Into<String>) -> Self {
        ImageRecord { split: Some(Cow::from(split.into())), ..self }
    }

    /// With the part of the image that shows the object; used where
    /// [`OpenOptions::crop_boxes`](crate::OpenOptions::crop_boxes) is set.
    pub fn with_bounding_box(self, bounding_box: BoundingBox) -> Self {
        ImageRecord { bounding_box: Some(bounding_box), ..self }
    }

    /// Its path within the source.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its label, as the source writes it.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// Its split.
    pub fn split(&self) -> Option<&str> {
        self.split.as_deref()
    }
}

/// A further column of a list of images: prices, dates, tags, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedColumn {
    /// Its name, unique in the list.
    pub name: String,
    /// One value per image, in the order of the list; empty where it is missing.
    pub values: Vec<String>,
}

/// The images of a source, and what the user should know about them.
///
/// ```
/// use gallerist_data::{ImageListing, ImageRecord};
///
/// let listing = ImageListing::from(vec![ImageRecord::new("1.png"), ImageRecord::new("2.png")]);
/// assert_eq!(listing.records.len(), 2);
/// ```
#[derive(Default)]
pub struct ImageListing {
    /// The images, in the order in which the source numbers them.
    pub records: Vec<ImageRecord>,
    /// Further columns. Embeddings files keep them.
    pub columns: Vec<ListedColumn>,
    /// Files that are no images by their extension.
    pub skipped: usize,
    /// What the user should know, one sentence each.
    pub notes: Vec<String>,
    /// Folders and files that are not part of the set because the folders next to them are splits, with their
    /// numbers of images.
    pub left_out: Vec<(String, usize)>,
    /// Paths of listed images that do not exist and are left out.
    pub missing: Vec<String>,
    /// The images where they are no files.
    pub(super) pictures: Option<Pictures>,
    /// For images without splits.
    pub(super) lone_split: Option<LoneSplit>,
}

/// The name of a split that a folder has that all images share. It is their split only if a split is chosen.
pub(super) struct LoneSplit {
    pub(super) split: &'static str,
    /// The shared folders in it, with their last `/`. They are no part of the classes unless the split is chosen.
    pub(super) folders: String,
}

impl LoneSplit {
    /// Makes it the split of the images, as it is if there are other splits next to it.
    pub(super) fn apply(self, records: &mut [ImageRecord]) {
        for record in records {
            record.split = Some(Cow::Borrowed(self.split));
            if let Some(label) = &mut record.label {
                *label = format!("{}{label}", self.folders).trim_end_matches('/').to_owned();
            }
        }
    }
}

impl From<Vec<ImageRecord>> for ImageListing {
    fn from(records: Vec<ImageRecord>) -> Self {
        ImageListing { records, ..ImageListing::default() }
    }
}
