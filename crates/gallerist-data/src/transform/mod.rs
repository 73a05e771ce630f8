//! From an image to the planar `f32` tensor that a network reads.
//!
//! Two steps, so that the result of the first can be kept in memory: *fit* brings an image of
//! any size to the stored size and number of channels; *apply* makes the
//! tensor, for training with random changes, for evaluation always the
//! same way.
//!
//! ```text
//! decoded image -> preparations (trim, …) -> fit -> stored image
//! training:   stored image -> affine map -> augmentations (colours) -> normalise -> augmentations
//! evaluation: stored image -> views -> normalise
//! ```

mod affine;
mod augmentation;
mod border;
mod check;
mod config;
mod crop;
mod erase;
mod jitter;
mod pipeline;
mod planes;
mod preparation;
mod steps;
mod trim;
mod warp;

pub use augmentation::{Augmentation, AugmentationStage, Planes};
pub use border::Border;
pub use config::{AugmentConfig, Fit, FurtherView, ImageConfig, View};
pub use crop::CropConfig;
pub use erase::{EraseConfig, EraseFill};
pub use jitter::JitterConfig;
pub use pipeline::Transform;
pub use preparation::Preparation;
pub use steps::{AugmentationConfig, PreparationConfig};
pub use trim::TrimConfig;
