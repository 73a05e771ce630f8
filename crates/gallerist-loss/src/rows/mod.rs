//! The losses' path on the CPU: value and gradient row by row, without the `n x n` matrix.
//!
//! The general path of every loss is tensor code that runs on any backend; it makes a dozen
//! matrices of `n x n` and as many passes over memory. In `f32` the losses that have a
//! [`RowLoss`] take this path instead: a block of query rows is multiplied with the gallery, each
//! row of distances (or similarities) is read once while it is in the cache and turned into the
//! query's loss and its derivatives, two more products turn a block of derivatives into gradients,
//! and the block is thrown away. The gradient is known when the forward pass ends; the operation
//! that [`attach`] makes hands it to the engine's backward pass.
//!
//! The result differs from the general path's by rounding only. It depends on the input alone, not
//! on the number of threads: every block has a size that follows from the batch's, every sum is
//! added in a fixed order.
//!
//! With a memory of `m` rows behind the batch, rows are of `n + m` values, and the gradient is still the
//! batch's: a pair with the memory gives its query the query's part, whatever side the loss gives one to.
//!
//! Memory: the gradient (`n x d`), a block of at most [`BLOCK_VALUES`] values (32 MiB) and a row per
//! thread. Time: a product of `n x (n + m) x d` for the distances (half of the `n x n x d` where all
//! fit into one block) and one for each side that gets a gradient; where few pairs matter, as for the batch-hard
//! triplet loss, the gradient costs next to nothing.
//!
//! [`on_general_path`] turns the path off.

mod attach;
mod engine;
mod lanes;
mod product;
mod relatives;
mod row;

mod circle;
mod contrastive;
mod ice;
mod multi_similarity;
mod nra;
mod rll;
mod srt;
mod triplet;

use std::cell::Cell;

use burn::backend::Flex;
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::pairs::with_gradient;
use crate::lists::Lists;
use crate::ranking::{LossOutput, Queries};

pub(crate) use circle::CircleRows;
pub(crate) use contrastive::ContrastiveRows;
use engine::BLOCK_VALUES;
pub(crate) use ice::IceRows;
pub(crate) use multi_similarity::MultiSimilarityRows;
pub(crate) use nra::NraRows;
pub(crate) use rll::RllRows;
use row::{Counts, Measure, Row, RowLoss, Seen, Sides};
pub(crate) use srt::SrtRows;
pub(crate) use triplet::{AdaptiveRows, AllTripletsRows, BatchHardRows, HardNegativeRows, SemihardRows};

thread_local! {
    static GENERAL: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with the losses' path for the CPU switched off on this thread: every loss takes its
/// general path.
///
/// For tests, and for the curious who want to see what a difference of rounding it makes. The two
/// paths compute the same values and gradients.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, RllConfig, on_general_path};
///
/// let x = Tensor::<2>::random([4, 3], Distribution::Default, &Device::flex());
/// let value = || {
///     let output = RllConfig::cvpr().init().forward(x.clone(), Labels::Classes(&[0, 0, 1, 1]), Progress::default());
///     output.value.into_scalar::<f32>()
/// };
/// assert!((value() - on_general_path(value)).abs() < 1e-5);
/// ```
pub fn on_general_path<R>(work: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            GENERAL.set(self.0);
        }
    }
    let _restore = Restore(GENERAL.replace(true));
    work()
}

/// The output of a loss on this path, if the path can take it: `f32`, a batch that is not empty and whose
/// squared norms are finite.
///
/// Embeddings on a GPU are copied to the host, and their gradient back: a batch of embeddings is small, the `n x n`
/// matrix is not made there either, and distances are not rounded as a GPU's products may be (TF32).
pub(crate) fn forward<L: RowLoss>(loss: &L, lists: &Lists<'_>) -> Option<LossOutput> {
    let [n, g] = lists.dims();
    let embeddings = lists.embeddings();
    let [_, d] = embeddings.dims();
    if GENERAL.get() || embeddings.dtype() != DType::F32 || n == 0 || d == 0 || u32::try_from(g).is_err() {
        return None;
    }
    let on_host = embeddings.device() == Device::flex();
    let flex = |x: &Tensor<2>| {
        let x = x.clone().without_autodiff();
        let x = if on_host { x } else { Tensor::from_data(x.into_data(), &Device::flex()) };
        Some(x.try_into_primitive::<Flex>().ok()?.to_contiguous())
    };
    let queries = flex(embeddings)?;
    let memory = match lists.memory() {
        Some(memory) => Some(flex(&memory.embeddings)?),
        None => None,
    };
    let memory = match &memory {
        Some(memory) => memory.as_slice::<f32>()?,
        None => &[],
    };
    let relatives = relatives::Relatives::new(lists.labels(), lists.memory().map(|memory| memory.labels));
    let batch = engine::Batch::new(queries.as_slice::<f32>()?, memory, d, &relatives)?;
    let engine::Outcome { value, seen, gradient } =
        engine::run(loss, &batch, embeddings.is_tracked(), BLOCK_VALUES);
    let positives = relatives.counts().to_vec();
    let collect = |f: fn(&Seen) -> u32| seen.iter().map(f).collect::<Vec<_>>();
    let queries = Queries {
        loss: seen.iter().map(|s| s.loss as f32).collect(),
        negatives: positives.iter().map(|p| g as u32 - 1 - p).collect(),
        positives,
        mined_positives: collect(|s| s.mined_positives),
        mined_negatives: collect(|s| s.mined_negatives),
        terms: if L::DEAD_TERMS { collect(|s| s.terms) } else { Vec::new() },
        dead_terms: if L::DEAD_TERMS { collect(|s| s.dead_terms) } else { Vec::new() },
        ..Queries::default()
    };
    let value = match gradient {
        Some(gradient) if on_host => attach::attach(embeddings.clone(), value, gradient),
        Some(gradient) => {
            let device = embeddings.device();
            let value = Tensor::<1>::from_floats([value as f32], &device);
            let gradient = Tensor::<2>::from_data(TensorData::new(gradient, [n, d]), &device);
            with_gradient(value, embeddings, gradient)
        }
        None => Tensor::from_floats([value as f32], &embeddings.device()),
    };
    Some(LossOutput { value, queries })
}
