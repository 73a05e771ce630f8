//! The main path: one function for each thing that the program does with images.

mod calibrate;
mod database;
mod embed;
mod evaluate;
mod gallery;
mod issues;
mod loss;
mod model;
mod search;
mod serve;
mod shards;
mod test_images;
mod threshold;
mod train;

pub use calibrate::{CalibrateOptions, Calibrated, DEFAULT_CALIBRATION_IMAGES, calibrate};
pub use embed::{EmbedOptions, embed, embed_images, open_model};
pub use evaluate::{
    EmbeddingsFile, EvaluateInput, EvaluateOptions, EvaluateRun, Evaluated, ImagePart, evaluate,
};
#[cfg(feature = "cli")]
pub(crate) use gallery::not_applied;
pub use gallery::{FoundItem, FoundList};
pub use issues::{
    FoundIssues, IssueClasses, IssueGroup, IssueImage, IssueLabel, IssueOutlier, IssuesOptions, issues,
};
pub use loss::{ComputedLoss, LossOptions, compute_loss};
pub use model::set_threads;
pub use search::{Found, ImageSearchOptions, search};
#[cfg(feature = "cli")]
pub(crate) use serve::FURTHER_IMAGES;
pub use serve::{NamedGallery, ServeOptions, serve, serve_all};
pub use shards::{DEFAULT_PART_IMAGES, EmbeddedShard, ShardFormat, ShardOptions, embed_shard};
pub use threshold::{ThresholdInput, ThresholdSettings, check_save_threshold, save_threshold, threshold};
pub(crate) use train::train_keeping;
pub use train::{Trained, TrainingEnd, complete, report, resume, train, world};

pub(crate) use database::is_remote;
#[cfg(feature = "cli")]
pub(crate) use database::{Remote, open as open_database};
#[cfg(all(feature = "cli", feature = "database"))]
pub(crate) use database::{WithCollection, with_collection};
#[cfg(feature = "cli")]
pub(crate) use embed::with_heads;
