//! Galleries of many files: the shards that `gallerist embed --shard` writes, and the list that joins them.
//!
//! A folder has for each shard a file of embeddings and a [`ShardRecord`], which says what it was made of.
//! [`ShardFolder::check`] verifies all of them, and [`CheckedShards::join`] lists them in a small file, the
//! [`JoinedShards`]. [`EmbeddingSet::load`](crate::EmbeddingSet::load) reads that file like one file with all rows.

mod check;
mod folder;
mod joined;
mod record;

pub use check::{CheckedShards, UnusableShard};
pub use folder::ShardFolder;
pub use gallerist_util::shard::Shard;
pub use joined::{JoinedShard, JoinedShards};
pub use record::{ShardFile, ShardOrigin, ShardRecord, UnreadImage};
