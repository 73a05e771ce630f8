//! The run file: TOML. Every key has a default; unknown keys are errors.

mod explain;
mod losses;
mod parse;
mod schema;
mod text;
mod text_and_network;
mod validate;

pub use losses::{LossTerm, LossTerms};
pub use parse::loss_from_settings;
pub(crate) use schema::threads;
pub use schema::{
    CheckpointKind, DEFAULTS, DataConfig, DistributedConfig, EvaluationConfig, Fold, LogConfig,
    MEMORY_OF_GPU_MIB, MEMORY_PER_THREAD_MIB, ReportConfig, RunConfig, TrainConfig, ValidationConfig,
};
pub use text::TextConfig;
