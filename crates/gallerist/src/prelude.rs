//! The types and traits that most programs need: `use gallerist::prelude::*;`.
//!
//! The calls of the main path are not in it; programs name them: `gallerist::train(…)`, `gallerist::search(…)`.

pub use gallerist_data::{
    BatchPlan, BatchSampler, ImageConfig, ImageContent, ImageListing, ImageRecord, ImageSet, ImageSource,
    ImageStore, Loader, LoaderOptions, Named, OpenOptions, SamplerConfig, Transform,
};
pub use gallerist_loss::{Labels, LossConfig, LossOutput, LossSpec, Progress, RankingLoss};
pub use gallerist_nn::{AnyEmbedder, Embedder, Head, InputShape, NetworkConfig, NetworkSpec, Setting};
pub use gallerist_retrieval::index::{Index, ItemFilter, Items};
pub use gallerist_retrieval::search::{Metric, SearchOptions};
pub use gallerist_retrieval::{EmbeddingSet, Matrix};
pub use gallerist_tensor::burn;
pub use gallerist_tensor::device::DeviceChoice;
pub use gallerist_train::model::Model;
pub use gallerist_train::{CheckpointKind, EvaluationConfig, RunConfig, RunDirectory, Trainer};

pub use crate::measured::Measured;
pub use crate::{
    EmbedOptions, EmbeddingsFile, EvaluateInput, EvaluateOptions, EvaluateRun, ImageSearchOptions, Observer,
    Registry, ServeOptions,
};
