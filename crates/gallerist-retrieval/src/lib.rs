//! Embeddings on disk, exact search, ranked lists and retrieval metrics.
//!
//! No tensor engine is needed here: a [`Matrix`] holds one embedding per row, [`mod@file`] reads and
//! writes it, [`columns`] and [`condition`] filter its rows, [`search`] ranks a gallery for every query, [`rerank`] ranks it again, [`index`] keeps a
//! gallery that changes, [`eval`] turns ranks into metrics, [`cluster`] compares clusters with classes, and
//! [`issues`] finds wrong labels, near-duplicates and outliers.
//!
//! Three promises hold everywhere:
//!
//! - the order of a ranked list is fixed: distance, then the lower index;
//! - the score of a pair depends on its two rows alone, not on their positions, on the block they
//!   are in or on the number of threads, so equal rows have equal scores to the last bit;
//! - a row with a NaN or an infinity is refused by name, never ranked.
//!
//! ```
//! use gallerist_retrieval::{Matrix, eval, search};
//!
//! let embeddings = Matrix::new(4, 2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 0.9])?;
//! let lists = search::self_search(&embeddings, &search::SearchOptions::new(1))?;
//! assert_eq!(lists.indices(0), [1]);
//!
//! let report = eval::evaluate(&embeddings, &[0, 0, 1, 1], &eval::EvalOptions::default())?;
//! assert_eq!(report.metrics["recall@1"], 1.0);
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

pub mod cluster;
pub mod columns;
mod compact;
pub mod condition;
mod error;
pub mod eval;
pub mod file;
pub mod fingerprint;
mod gallery;
pub mod index;
mod instructions;
pub mod issues;
pub mod labels;
mod matrix;
mod product;
mod random;
pub mod rerank;
mod score_rows;
pub mod search;
mod shard_rows;

pub use compact::{Code, CompactMatrix};
pub use error::{Error, Result};
pub use file::shards;
pub use file::{EmbeddingSet, load_labels, prepare_to_write, sweep_stray_files, write_atomically};
pub use gallery::GalleryFile;
pub use matrix::{Matrix, MatrixView};
pub use shard_rows::ShardRows;
