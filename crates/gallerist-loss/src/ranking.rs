//! What every loss is to a trainer: a value for a batch, connected to the embeddings, and diagnostics per query.

use burn::module::Module;
use burn::tensor::Tensor;
use gallerist_tensor::dynamic::AnyModule;

use crate::labels::Labels;
use crate::lists::{CrossBatchRows, Lists};
use crate::rows::RowLoss;

pub use crate::diagnostics::{Progress, Queries};

/// What a loss returns.
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// The value, shape `[1]`, connected to the embeddings.
    pub value: Tensor<1>,
    /// Diagnostics per query.
    pub queries: Queries,
}

impl LossOutput {
    /// The output of a loss of `lists` whose miner has a [problem](Queries::problem).
    pub(crate) fn with_problem(self, problem: Option<String>, lists: &Lists<'_>) -> Self {
        match problem {
            None => self,
            Some(_) => LossOutput {
                value: lists.embeddings().clone().sum().mul_scalar(f32::NAN),
                queries: Queries { problem, ..self.queries },
            },
        }
    }
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
    /// The loss of the lists of one query or more, connected to [`Lists::embeddings`]. A batch of no rows has the value 0.
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
        let lists = Lists::new(embeddings, labels, memory);
        if labels.is_empty() {
            // Reductions of the engine take no tensor without values.
            let value = lists.embeddings().clone().sum().mul_scalar(0.0);
            return LossOutput { value, queries: Queries::default() };
        }
        self.forward_lists(&lists, progress)
    }

    fn on_rows(&self) -> Option<&dyn RowLoss> {
        PairLoss::on_rows(self)
    }
}
