//! Exact search, retrieval metrics and near-duplicates of a gallery that is stored in shards, as DataFusion jobs: in this
//! process, or on a Ballista cluster.
//!
//! A shard is a file of embeddings, and a partition of every job. The products of rows are those of
//! [`gallerist_retrieval`], and the results equal those of one machine to the last bit. `docs/cluster.md` has the
//! commands, the memory of a partition and measured figures.
//!
//! | module | content |
//! | --- | --- |
//! | [`shards`] | the files of a gallery, and their rows in memory |
//! | [`job`] | what a job does with each shard, as bytes and as a table of DataFusion |
//! | [`engine`] | where jobs run: [`Engine`] |
//! | [`search()`], [`evaluate()`], [`duplicates()`] | the commands |
//! | [`cluster`] | the processes of a cluster |

pub mod cluster;
mod driver;
pub mod engine;
mod error;
pub mod job;
pub mod shards;
mod work;

pub use driver::duplicates::{Duplicates, DuplicatesOptions, duplicates};
pub use driver::evaluate::{EvaluateOptions, Evaluated, evaluate};
pub use driver::search::{Lists, SearchRequest, search};
pub use driver::{Gallery, Progress};
pub use engine::Engine;
pub use error::{Error, Result};
