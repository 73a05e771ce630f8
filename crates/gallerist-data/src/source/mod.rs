//! Where images come from: folders, zip archives, manifests, single files, and sources of the user's own.
//!
//! ```text
//! ImageSource::list -> ImageListing -> split chosen -> ImageSet (paths, labels, cameras)
//! ImageSource::read -> ImageContent -> decode -> Image
//! ```

mod address;
mod archive;
mod bounding_box;
mod content;
mod files;
mod folder;
mod idx;
mod image_source;
mod labels;
mod layout;
mod links;
mod manifest;
mod manifest_part;
mod mat;
mod names;
mod objects;
mod one_shot;
mod open;
mod overlap;
mod part;
mod record;
mod relabel;
mod repeats;
mod select;
mod set;
mod table;
mod tar;
mod tree;

pub use address::{AddressedSource, register_source};
pub use bounding_box::BoundingBox;
pub use content::ImageContent;
pub use image_source::ImageSource;
pub use labels::{LabelFrom, canonical as canonical_label, to_nfc};
pub(crate) use labels::{encode_parts, turned_names};
pub use layout::DatasetLayout;
pub use manifest::tidy_path;
pub use manifest_part::ManifestPart;
pub use names::{is_archive_or_manifest, is_training_split};
pub use one_shot::{OneShotRun, OneShotRuns};
pub use open::OpenOptions;
pub use overlap::ClassOverlap;
pub use record::{ImageListing, ImageRecord, ListedColumn};
pub use relabel::{digest_of_corrections, has_corrections};
pub use set::ImageSet;
