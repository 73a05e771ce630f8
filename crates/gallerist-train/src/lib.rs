//! Training: from a run file to a run directory.
//!
//! A run directory holds
//!
//! | file | what |
//! | --- | --- |
//! | `config.toml` | the run file, resolved: every key |
//! | `log.jsonl` | one JSON object a line: steps, validations, warnings ([`log`]) |
//! | `checkpoints/last.safetensors` | everything needed to continue the run ([`crate::checkpoint`]) |
//! | `checkpoints/best.safetensors` | the same, at the best validation |
//! | `embeddings.safetensors` | the test images' embeddings, labels and paths |
//! | `query.safetensors`, `gallery.safetensors` | the same, where queries are compared with a gallery |
//! | `metrics.json` | the test metrics |
//! | `images.csv` | the images of training and validation, and the test images that `data.test_fraction` holds out, with their labels ([`gallerist_data::DataRecord`]) |
//! | `broken_images.json` | the images that could not be read, if there are any ([`BrokenImage`]) |
//! | `nonfinite/` | steps whose loss, gradient or weights were not finite ([`OnNonfinite`]) |
//! | `timing.json` | times and speed ([`Timing`]); other files that have times are the log, `profile.json` and those for TensorBoard |
//! | `place.toml` | where the run directory was made |
//! | `profile.json` | the time of every operation, with `log.profile` ([`profile`]) |

#![recursion_limit = "256"]

mod average;
mod broken;
pub mod checkpoint;
mod collapse_watch;
pub mod config;
mod crossing;
mod directory;
mod error;
mod evaluation;
mod events;
mod features;
mod gradient_sums;
mod head_init;
pub mod json;
pub mod limits;
pub mod log;
mod means;
pub mod model;
mod nonfinite;
mod notices;
mod objective;
mod observer;
pub mod optim;
mod places;
mod precision;
pub mod profile;
mod rank_watch;
mod ranks;
mod record;
mod tap;
mod test_images;
mod timing;
mod trainer;
mod validation;

pub use broken::BrokenImage;
pub use collapse_watch::CollapseWatch;
pub use config::{
    CheckpointKind, DEFAULTS, DataConfig, DistributedConfig, EvaluationConfig, Fold, LogConfig, LossTerm,
    LossTerms, ReportConfig, RunConfig, TrainConfig, ValidationConfig,
};
pub use directory::{RunDirectory, State};
pub use error::{Error, Result};
pub use evaluation::{NO_PROTOCOL, measures, protocol, published_protocol};
pub use gallerist_nn::MAX_PARAMETERS;
pub use gallerist_util::text::nearest;
pub use nonfinite::{OnNonfinite, SkippedSteps};
pub use observer::{Observer, Phase};
pub use precision::{LossScale, Precision};
pub use profile::Profile;
pub use rank_watch::RankWatch;
pub use test_images::{TestImages, open_test, open_test_of};
pub use timing::Timing;
pub use trainer::{ResumeOptions, RunEnd, Trainer, TrainerBuilder};
