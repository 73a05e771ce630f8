//! What every loss is to a trainer: a value for a batch, connected to the embeddings, and diagnostics per query.

use burn::module::Module;
use burn::tensor::Tensor;
use gallerist_tensor::dynamic::AnyModule;

use crate::engine::RowLoss;
use crate::labels::Labels;
use crate::lists::{CrossBatchRows, Lists};

/// How far training has come; losses with a schedule read it.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
}

impl Default for Progress {
    /// The first of one step.
    fn default() -> Self {
        Progress { step: 0, steps: 1 }
    }
}

/// Diagnostics of a loss, one entry per query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queries {
    /// The loss of each query, before the mean over the batch.
    pub loss: Vec<f32>,
    /// Number of positives of each query, in batch and memory.
    pub positives: Vec<u32>,
    /// Number of negatives of each query.
    pub negatives: Vec<u32>,
    /// Positives that contribute to the gradient (non-trivial, "mined").
    pub mined_positives: Vec<u32>,
    /// Negatives that contribute to the gradient.
    pub mined_negatives: Vec<u32>,
    /// Terms of each query's loss, where the loss can have dead ones; else empty.
    pub terms: Vec<u32>,
    /// Terms that cost something and have no gradient ("dead"); empty where the loss has none.
    pub dead_terms: Vec<u32>,
    /// A remark about the batch that the user should get once.
    pub note: Option<&'static str>,
}

impl Queries {
    /// Queries with these numbers of positives among `candidates` samples each; no losses and nothing mined.
    pub(crate) fn counted(positives: Vec<u32>, candidates: usize) -> Self {
        Queries {
            loss: vec![0.0; positives.len()],
            negatives: positives.iter().map(|count| candidates as u32 - count).collect(),
            mined_positives: vec![0; positives.len()],
            mined_negatives: vec![0; positives.len()],
            positives,
            ..Queries::default()
        }
    }

    /// Keeps the first `n` queries.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.loss.truncate(n);
        for counts in [
            &mut self.positives,
            &mut self.negatives,
            &mut self.mined_positives,
            &mut self.mined_negatives,
            &mut self.terms,
            &mut self.dead_terms,
        ] {
            counts.truncate(n);
        }
    }

    /// Share of all positive pairs that are non-trivial; 0 where there is none.
    pub fn positive_share(&self) -> f32 {
        share(&self.mined_positives, &self.positives)
    }

    /// Share of all negative pairs that are non-trivial; 0 where there is none.
    pub fn negative_share(&self) -> f32 {
        share(&self.mined_negatives, &self.negatives)
    }

    /// Share of all terms that are dead; 0 where the loss has no such terms.
    pub fn dead_share(&self) -> f32 {
        share(&self.dead_terms, &self.terms)
    }
}

fn share(part: &[u32], all: &[u32]) -> f32 {
    let sum = |v: &[u32]| v.iter().map(|&x| x as u64).sum::<u64>() as f32;
    if sum(all) == 0.0 { 0.0 } else { sum(part) / sum(all) }
}

/// What a loss returns.
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// The value, shape `[1]`, connected to the embeddings.
    pub value: Tensor<1>,
    /// Diagnostics per query.
    pub queries: Queries,
}

/// A loss over the ranked lists of a batch.
///
/// Three kinds of losses implement it: functions of one query's list ([`ListLoss`](crate::ListLoss)),
/// tensor code over all lists ([`PairLoss`]), and everything else directly. Losses with learned parameters implement it
/// directly; those over proxies call a list loss ([`Listed::forward_among`](crate::Listed::forward_among)).
pub trait RankingLoss {
    /// The loss of a batch, connected to `embeddings`.
    ///
    /// # Shapes
    ///
    /// `embeddings` `[n, d]`, normalised where the loss's paper does so (see
    /// [`LossSpec::normalized`](crate::LossSpec::normalized)); `labels` of `n` samples.
    ///
    /// # Panics
    ///
    /// If `embeddings` and `labels` disagree about `n`.
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput;

    /// The loss of a batch whose ranked lists also contain a memory of earlier batches ([`CrossBatchRows`]). Without a
    /// memory, or with an empty one, it is [`RankingLoss::forward`] to the last bit.
    ///
    /// # Panics
    ///
    /// As [`RankingLoss::forward`]; if the memory's dimensions are not the embeddings'; if there is a memory
    /// and the loss takes none ([`LossSpec::takes_memory`](crate::LossSpec::takes_memory)).
    fn forward_against(
        &self,
        embeddings: Tensor<2>,
        labels: Labels<'_>,
        memory: Option<CrossBatchRows<'_>>,
        progress: Progress,
    ) -> LossOutput {
        assert!(memory.is_none(), "a memory for a loss that compares no pairs");
        self.forward(embeddings, labels, progress)
    }

    /// The loss on rows in memory, without tensors: of every [`ListLoss`](crate::ListLoss), else nothing.
    fn on_rows(&self) -> Option<&dyn RowLoss> {
        None
    }

    /// The loss in a box, as a trainer takes it.
    fn boxed(self) -> AnyLoss
    where
        Self: Module + Sync + Sized + 'static,
    {
        AnyModule::new(self, |loss| loss)
    }
}

/// Any loss. A module, because some losses learn parameters of their own.
pub type AnyLoss = AnyModule<dyn RankingLoss>;

/// A loss that compares samples with each other, written as tensor code over the lists of all queries; it takes a
/// [`CrossBatchRows`]. Every such loss is a [`RankingLoss`].
///
/// # Example: a loss of one's own
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gallerist_loss::{Labels, Lists, LossOutput, PairLoss, Progress, Queries, RankingLoss};
///
/// /// The mean distance to everything in the lists.
/// struct Nearness;
///
/// impl PairLoss for Nearness {
///     fn forward_lists(&self, lists: &Lists<'_>, _: Progress) -> LossOutput {
///         LossOutput { value: lists.distances().mean(), queries: Queries::default() }
///     }
/// }
///
/// let x = Tensor::<2>::from_floats([[0.0, 0.0], [3.0, 4.0]], &Device::flex());
/// let output = Nearness.forward(x, Labels::Classes(&[0, 1]), Progress::default());
/// assert_eq!(output.value.into_scalar::<f32>(), 2.5);
/// ```
pub trait PairLoss {
    /// The loss of the lists, connected to [`Lists::embeddings`].
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput;

    /// The loss on rows in memory; see [`RankingLoss::on_rows`].
    fn on_rows(&self) -> Option<&dyn RowLoss> {
        None
    }
}

impl<L: PairLoss> RankingLoss for L {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        self.forward_against(embeddings, labels, None, progress)
    }

    fn forward_against(
        &self,
        embeddings: Tensor<2>,
        labels: Labels<'_>,
        memory: Option<CrossBatchRows<'_>>,
        progress: Progress,
    ) -> LossOutput {
        self.forward_lists(&Lists::new(embeddings, labels, memory), progress)
    }

    fn on_rows(&self) -> Option<&dyn RowLoss> {
        PairLoss::on_rows(self)
    }
}
