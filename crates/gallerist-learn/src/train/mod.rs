//! Training: from a run file to a run directory.
//!
//! A run directory holds
//!
//! | file | what |
//! | --- | --- |
//! | `config.toml` | the run file, resolved: every key |
//! | `log.jsonl` | one JSON object a line: steps, validations, warnings ([`log`]) |
//! | `checkpoints/last.safetensors` | everything needed to go on ([`crate::checkpoint`]) |
//! | `checkpoints/best.safetensors` | the same, at the best validation |
//! | `embeddings.safetensors` | the test images' embeddings, labels and paths |
//! | `query.safetensors`, `gallery.safetensors` | the same, where queries are compared with a gallery |
//! | `metrics.json` | the test metrics |
//! | `profile.json` | where the time went, with `log.profile` ([`profile`]) |

mod average;
pub mod config;
mod crossing;
mod diagnostics;
mod directory;
mod evaluation;
mod events;
mod explain;
mod head_init;
pub mod limits;
pub mod log;
mod means;
mod notices;
mod objective;
mod phase;
mod places;
mod precision;
pub mod profile;
mod rank_watch;
mod test_images;
mod trainer;
mod validation;

pub use config::{
    DEFAULTS, DataConfig, EvaluationConfig, LogConfig, ReportConfig, RunConfig, TrainConfig,
    ValidationConfig, Which, nearest,
};
pub use directory::{RunDirectory, State};
pub use evaluation::{NO_PROTOCOL, measures, protocol, published_protocol};
pub use limits::MAX_PARAMETERS;
pub(crate) use limits::numbers_in_words;
pub use objective::{LossTerm, LossTerms};
pub use phase::Phase;
pub use precision::{LossScale, Precision};
pub use profile::Profile;
pub use rank_watch::RankWatch;
pub use test_images::{TestImages, open_test};
pub use trainer::{Observer, Outcome, Trainer};
