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
//! **Held constant**: nothing. With a miner (see [`crate::miner`]) `P_i`, `N_i` and "all" are the selected pairs.
//!
//! # Corner cases
//!
//! - A query without a positive has the loss 0 and is left out of the mean; no positive in the whole
//!   batch: loss 0.
//! - A query without a negative: `nt_xent` has the loss 0, `sup_con` evens out its positives.
//! - The largest exponent is subtracted before `exp`. Coincident rows are nothing special.
//!
//! Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// The terms of the denominator.
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
    /// The terms of the denominator.
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
        Listed::new(self.clone())
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
pub type SupCon = Listed<SupConConfig>;

impl ListLoss for SupConConfig {
    const MEASURE: Measure = Measure::Similarity;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / match self.form {
            SupConForm::SupCon => counts.with_positives.max(1) as f64,
            SupConForm::NtXent => counts.positive_pairs.max(1) as f64,
        }
    }

    fn miner(&self) -> Option<&MinerConfig> {
        self.miner.as_ref()
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let number = list.positives.len() as f64;
        let nt_xent = self.form == SupConForm::NtXent;
        if list.positives.is_empty() || nt_xent && list.negative_count == 0 {
            return ListValue { weight: if nt_xent { number } else { 1.0 }, ..ListValue::default() };
        }
        let inverse = F::of(1.0 / self.temperature);
        let largest_n = lanes::largest(list.negatives, |v| v);
        let largest = match self.form {
            SupConForm::SupCon => lanes::larger(lanes::largest(list.positives, |v| v), largest_n),
            SupConForm::NtXent => largest_n,
        };
        let raw = |v: F| if v > F::NEG_INFINITY { ((v - largest) * inverse).exp() } else { F::ZERO };
        let both = |v: F| (raw(v), raw(v));
        let mut total = lanes::map_sum(list.negatives, list.by_negatives, both).wide();
        if !nt_xent {
            total += lanes::map_sum(list.positives, list.by_positives, both).wide();
        }
        // What the logarithm of the sum is above a logit.
        let log_sum = largest.wide() / self.temperature + total.ln();
        let gap = |v: F| log_sum - v.wide() / self.temperature;
        let (loss, push) = match self.form {
            SupConForm::SupCon => {
                let loss = list.positives.iter().map(|&v| gap(v)).sum::<f64>() / number;
                for by in list.by_positives.iter_mut() {
                    *by = F::of((by.wide() / total - 1.0 / number) / self.temperature);
                }
                (loss, 1.0)
            }
            SupConForm::NtXent => {
                let (mut loss, mut pull) = (0.0, 0.0);
                for (&v, by) in list.positives.iter().zip(list.by_positives.iter_mut()) {
                    let share = 1.0 / (1.0 + (-gap(v)).exp());
                    loss += lanes::softplus(gap(v));
                    pull += share;
                    *by = F::of(-share / self.temperature);
                }
                (loss / number, pull)
            }
        };
        lanes::scale(list.by_negatives, F::of(push / total / self.temperature));
        ListValue {
            loss,
            weight: if nt_xent { number } else { 1.0 },
            mined_positives: lanes::count(list.by_positives, |by| by != F::ZERO),
            mined_negatives: lanes::count(list.by_negatives, |by| by != F::ZERO),
            ..ListValue::default()
        }
    }
}
