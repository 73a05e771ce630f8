//! The run file: TOML. Every key has a default; unknown keys are errors.

mod differences;
mod explain;
mod losses;
mod parse;
mod registered;
mod schema;
mod text;
mod text_and_network;
mod validate;

pub(crate) use differences::{Difference, differences};
pub use losses::{LossTerm, LossTerms};
pub use parse::loss_from_settings;
pub use schema::{
    CheckpointKind, DEFAULTS, DataConfig, DistributedConfig, EvaluationConfig, Fold, LogConfig,
    MEMORY_OF_GPU_MIB, MEMORY_PER_THREAD_MIB, ReportConfig, RunConfig, TrainConfig, ValidationConfig,
};
pub(crate) use schema::{by_classes, threads};
pub use text::TextConfig;
