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
//! | `profile.json` | the time of every operation, with `log.profile` ([`profile`]) |

#![recursion_limit = "256"]

mod average;
pub mod checkpoint;
pub mod config;
mod crossing;
mod directory;
mod error;
mod evaluation;
mod events;
mod features;
mod head_init;
pub mod limits;
pub mod log;
mod means;
pub mod model;
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
mod test_images;
mod trainer;
mod validation;

pub use config::{
    CheckpointKind, DEFAULTS, DataConfig, DistributedConfig, EvaluationConfig, Fold, LogConfig, LossTerm,
    LossTerms, ReportConfig, RunConfig, TrainConfig, ValidationConfig,
};
pub use directory::{RunDirectory, State};
pub use error::{Error, Result};
pub use evaluation::{NO_PROTOCOL, measures, protocol, published_protocol};
pub use gallerist_nn::MAX_PARAMETERS;
pub use gallerist_util::text::nearest;
pub use observer::{Observer, Phase};
pub use precision::{LossScale, Precision};
pub use profile::Profile;
pub use rank_watch::RankWatch;
pub use test_images::{TestImages, open_test};
pub use trainer::{RunEnd, Trainer, TrainerBuilder};
