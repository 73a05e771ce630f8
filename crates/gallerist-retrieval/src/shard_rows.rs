//! Contiguous rows of a set that is stored in several files.

use crate::search::check_count;
use crate::{MatrixView, Result};

/// Contiguous rows of a set that is stored in shards: a whole shard, or a part of one.
///
/// Rows are numbered over all shards: row `i` here is row `first + i` of the set.
#[derive(Clone, Copy, Debug)]
pub struct ShardRows<'a> {
    /// One embedding per row.
    pub embeddings: MatrixView<'a>,
    /// The number of the first row in the whole set.
    pub first: usize,
}

impl<'a> ShardRows<'a> {
    /// Rows `first..` of the whole set.
    ///
    /// # Errors
    /// [`Error::TooManyRows`](crate::Error::TooManyRows) when the last row's number does not fit 32 bits.
    pub fn new(embeddings: impl Into<MatrixView<'a>>, first: usize) -> Result<Self> {
        let embeddings = embeddings.into();
        check_count(first.saturating_add(embeddings.rows()), "the set of all shards")?;
        Ok(Self { embeddings, first })
    }
}
