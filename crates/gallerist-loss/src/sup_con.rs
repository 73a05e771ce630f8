//! Supervised contrastive loss and NT-Xent: softmax over the batch, each positive against the rest.
//!
//! Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020 (Eq. 2, `L_out`), and Chen et al., "A Simple
//! Framework for Contrastive Learning of Visual Representations", ICML 2020 (Eq. 1). Normalised embeddings. With
//! `s_ij = x_i.x_j / temperature`:
//!
//! ```text
//! sup_con:  L_i  = -1/|P_i| sum over p in P_i of log( e^s_ip / sum over all j != i of e^s_ij )
//!           L    = mean of L_i over the queries that have a positive
//! nt_xent:  L_ip = -log( e^s_ip / (e^s_ip + sum over j in N_i of e^s_ij) )
//!           L    = mean of L_ip over all queries and their positives
//! ```
//!
//! With one positive a query, as in SimCLR, the two are the same. With more, `nt_xent` leaves a query's
//! other positives out of the denominator, as pytorch-metric-learning's `NTXentLoss` does. The paper
//! prints sums over the batch; the authors' released losses take the mean, and so is it done here.
//!
//! **Held constant**: nothing. With a miner (see [`crate::miner`]) `P_i`, `N_i` and "all" are the pairs in force.
//!
//! # Corner cases
//!
//! - A query without a positive has the loss 0 and is left out of the mean; no positive in the whole
//!   batch: loss 0.
//! - A query without a negative: `nt_xent` has the loss 0, `sup_con` evens out its positives.
//! - The largest exponent is subtracted before `exp`. Coincident rows are nothing special.
//!
//! Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::{Device, activation};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::classify::count_nonzero;
use super::pairs::{Pairs, column, log_sum_exp, row_softmax, softplus, total};
use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// What stands in the denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupConForm {
    /// All other samples; mean over a query's positives, then over the queries.
    #[default]
    SupCon,
    /// The positive and the negatives; mean over all positive pairs.
    NtXent,
}

/// Parameters of [`SupCon`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, SupConConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = SupConConfig::nt_xent().init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SupConConfig {
    /// Temperature of the similarities. 0.1 in the supervised contrastive paper, 0.5 and 0.1 in SimCLR's.
    pub temperature: f64,
    /// What stands in the denominator.
    pub form: SupConForm,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for SupConConfig {
    fn default() -> Self {
        SupConConfig { temperature: 0.1, form: SupConForm::SupCon, miner: None }
    }
}

impl SupConConfig {
    /// NT-Xent at temperature 0.1.
    pub fn nt_xent() -> Self {
        SupConConfig { form: SupConForm::NtXent, ..SupConConfig::default() }
    }

    /// The loss.
    pub fn init(&self) -> SupCon {
        SupCon { config: self.clone() }
    }
}

impl Named for SupConConfig {
    const NAME: &'static str = "sup_con";
}

impl LossSpec for SupConConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Supervised contrastive loss; see [`SupConConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct SupCon {
    #[module(skip)]
    config: SupConConfig,
}

impl PairLoss for SupCon {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let pairs = Pairs::new(lists);
        let queries = pairs.queries();
        let mined = miner::in_force(self.config.miner.as_ref(), &pairs, lists, progress);
        let Pairs { positives, negatives } = mined.pairs();
        let logits = lists.similarities().mul_scalar(1.0 / self.config.temperature);
        let counts = positives.clone().sum_dim(1).clamp_min(1.0);
        // `derivative`: of a query's loss by its row of logits, up to a factor above 0.
        let (value, per_query, derivative) = match self.config.form {
            SupConForm::SupCon => {
                let others = positives.clone() + negatives.clone();
                let gaps = (log_sum_exp(&logits, &others) - logits.clone()) * positives.clone();
                let per_query = gaps.sum_dim(1) / counts.clone();
                let with_positive = positives.clone().max_dim(1);
                let value = per_query.clone().sum().mul_scalar(1.0 / total(&with_positive).max(1.0));
                let derivative =
                    (row_softmax(&logits.detach(), &others) - positives.clone() / counts) * with_positive;
                (value, per_query, derivative)
            }
            SupConForm::NtXent => {
                let gaps = log_sum_exp(&logits, &negatives) - logits.clone();
                let counted = positives.clone() * negatives.clone().max_dim(1);
                let pull = activation::sigmoid(gaps.clone().detach()) * counted.clone();
                let terms = (softplus(gaps) * counted).sum_dim(1);
                let value = terms.clone().sum().mul_scalar(1.0 / total(&positives).max(1.0));
                let push = row_softmax(&logits.detach(), &negatives) * pull.clone().sum_dim(1);
                (value, terms / counts, push - pull)
            }
        };
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: count_nonzero(&(derivative.clone() * positives)),
            mined_negatives: count_nonzero(&(derivative * negatives)),
            ..queries
        };
        LossOutput { value, queries }
    }
}
