//! Worker threads that decode and transform batches in advance.

mod batch;
mod options;
mod slot;
mod stream;
mod worker;

pub use batch::{Batch, BatchPlan};
pub use options::{LoaderOptions, OnBroken};
pub use stream::Loader;
