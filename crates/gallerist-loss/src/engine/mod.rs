//! List losses: losses that are functions of one query's list ([`ListLoss`]), and the engine that runs them.
//!
//! A block of query rows is multiplied with the gallery. Each row of distances (or similarities) is read once while it
//! is in the cache, and turned into the query's loss and its derivatives. Two more products turn a block of derivatives
//! into gradients, and the block is reused. The gradient is known when the forward pass ends; `attach.rs` hands it to
//! the backward pass of the tensor engine.
//!
//! The result depends on the input alone, not on the number of threads: the size of a block follows from the batch's,
//! and every sum is accumulated in a fixed order.
//!
//! With a memory of `m` rows, lists have `n + m` values. The gradient is still that of the batch: a pair with the
//! memory gives the query its part of the gradient, whichever side the loss gives one to.
//!
//! The gallery may also be `g` other rows, such as learned proxies ([`Listed::forward_among`]). No query is then in its
//! own list, and both sides get a gradient. Where the proxies are the queries and the batch is the gallery
//! ([`ListLoss::PROXY_QUERIES`]), the diagnostics are still those of the samples.
//!
//! Memory: the gradient (`n x d`, with proxies `(n + g) x d`), a block of at most 32 MiB and a row per thread. Time: a product of
//! `n x (n + m) x d` for the distances (half of the `n x n x d` where all fit into one block) and one for each side
//! that gets a gradient. Where few pairs have a derivative, as for the batch-hard triplet loss, the gradient costs
//! next to nothing.
//!
//! Within [`Shared::within`](gallerist_collective::Shared::within), the ranks of a distributed run divide the lists of a
//! batch that is larger than a block.
//!
//! Embeddings in f64 are computed in f64, all others in f32. Where a squared norm overflows f32, f64 is used. A batch
//! with a value that is not finite has the value NaN and a gradient of NaN.

mod attach;
mod batch;
mod compute;
mod differentiate;
mod division;
mod gradients;
pub mod lanes;
mod list;
mod listed;
mod product;
mod real;
mod relatives;
mod walk;

pub use list::{Counts, List, ListLoss, ListValue, Measure, Sides};
pub use listed::Listed;
pub use real::Real;
pub(crate) use relatives::Relatives;

pub use crate::rows::{RowBatch, RowLoss};
