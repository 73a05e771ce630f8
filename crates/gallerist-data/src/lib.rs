//! Image sets, decoding, augmentation, batch samplers and the loader.
//!
//! An image takes this way through the crate:
//!
//! ```text
//! folder, zip, manifest, ImageSource -> ImageSet -> decode -> Transform -> Loader -> Batch
//!                                       labels -> BatchSampler -> plan ->
//! ```
//!
//! * [`ImageSet`] knows paths, labels and cameras without decoding anything.
//! * [`decode`](decode()) turns the bytes of a file into an [`Image`] and refuses broken ones.
//! * [`Transform`] fits, augments and normalises an image into a planar `f32` tensor.
//! * [`SamplerConfig`] chooses how the batches of an epoch are formed.
//! * [`Loader`] decodes and transforms ahead on worker threads and yields batches in order.
//!
//! Your own parts take the place of the built-in ones, in code and by name in a run file: an [`ImageSource`], a
//! sampler ([`SamplerFactory`]), a random change of training images ([`Augmentation`]), a step of the preparation of
//! all images ([`Preparation`]).
//!
//! Everything random is a pure function of `(seed, purpose, epoch, index)`, see [`Random`]:
//! the number of threads never changes a bit.
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use gallerist_data::*;
//!
//! # fn main() -> Result<(), Error> {
//! let set = Arc::new(ImageSet::open("data/train")?);
//! let config = SamplerConfig::from(ClassesImagesConfig {
//!     classes_per_batch: 32,
//!     images_per_class: 4,
//!     small_classes: SmallClasses::LeaveOut,
//! });
//! let sampler = config.build(&set)?;
//! let transform = Transform::training(&ImageConfig::new(28, 1), &AugmentConfig::default())?;
//! let store = Arc::new(ImageStore::new(set, transform, 1 << 30));
//! for epoch in 0..10 {
//!     let plan = BatchPlan::epoch(epoch, sampler.epoch(1, epoch));
//!     for batch in Loader::new(store.clone(), plan, LoaderOptions::training(1, 2))? {
//!         let batch = batch?;
//!         println!("{:?} images, labels {:?}", batch.shape(), batch.labels);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod canvas;
mod decode;
mod disk;
mod error;
mod features;
mod image;
mod inspect;
mod loader;
mod parallel;
mod positioned;
mod record;
mod region;
mod sampler;
mod size;
mod source;
mod store;
mod survey;
mod text;
mod transform;

pub use crate::decode::{
    DECODER_GAVE_UP, DecodeLimits, MAX_DECODED_BYTES, MAX_FILE_BYTES, MAX_SIDE, decode, decode_with,
};
pub use crate::error::{Broken, Error};
pub use crate::features::{FeatureFile, Features};
pub use crate::image::Image;
pub use crate::inspect::{Bin, Inspection, Leak, LeftOut, Split, inspect};
pub use crate::loader::{Batch, BatchPlan, Loader, LoaderOptions, OnBroken};
pub use crate::record::{DataChanges, DataRecord};
pub use crate::region::{REGION_FORM, Region};
pub use crate::sampler::{
    BatchSampler, ClassLabels, ClassMeans, ClassesImages, ClassesImagesConfig, HardClasses,
    HardClassesConfig, HardIdentities, HardIdentitiesConfig, NGroup, NGroupConfig, RandomBatches,
    RandomBatchesConfig, Refresh, SamplerConfig, SamplerFactory, SmallClasses, checked_epoch,
};
pub use crate::size::Size;
pub use crate::source::{
    AddressedSource, BoundingBox, ClassOverlap, DatasetLayout, ImageContent, ImageListing, ImageRecord,
    ImageSet, ImageSource, LabelFrom, ListedColumn, ManifestPart, OneShotRun, OneShotRuns, OpenOptions,
    canonical_label, digest_of_corrections, has_corrections, is_archive_or_manifest, is_training_split,
    register_source, tidy_path, to_nfc,
};
pub use crate::store::ImageStore;
pub use crate::survey::{Survey, survey};
pub use crate::transform::{
    AugmentConfig, Augmentation, AugmentationConfig, AugmentationStage, Border, CropConfig, EraseConfig,
    EraseFill, Fit, FurtherView, ImageConfig, JitterConfig, Planes, Preparation, PreparationConfig,
    Transform, TrimConfig, View,
};
pub use gallerist_util::random::Random;
pub use gallerist_util::registry::{Named, Part};
pub use gallerist_util::shard::Shard;
