//! N-pair-mc: each class's pair against the positives of all other classes' pairs.
//!
//! Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NIPS 2016.
//!
//! The first two samples of each class, in the order of the batch, are its pair `(x_i, x_i+)`:
//!
//! ```text
//! L = mean over the pairs of log(1 + sum over j != i of exp(x_i.x_j+ - x_i.x_i+))
//!   + l2 times the mean squared norm of the paired embeddings
//! ```
//!
//! With more than two images a class, the default still uses the first two and says so in [`Queries::note`];
//! `rounds = true` pairs them 1-2, 3-4, … and takes the mean over the rounds. A class takes part in as many
//! rounds as it has pairs. **Held constant**: nothing.
//!
//! With label sets each label, in the order in which labels appear, pairs its samples that no earlier label
//! has paired; a pair's positive that shares a label with an anchor is not its negative.
//!
//! The loss depends on the order of the batch within a class, by which the pairs are formed, and not on that
//! of the classes.
//!
//! # Corner cases
//!
//! - The largest exponent (at least 0) is subtracted before `exp`.
//! - Samples without a partner are not used. A batch without a pair has the value 0; one pair alone costs
//!   only its norms.
//!
//! The loss takes no cross-batch memory: its pairs are formed inside a batch.
//!
//! The embeddings are not normalised. Memory and time: `O(c^2 + n d)` and `O(c^2 d)` in the number `c` of classes,
//! for each round.

use std::collections::HashMap;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::Relatives;
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{column, log_one_plus_sum_exp};

/// Parameters of [`NPair`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, NPairConfig, Progress, RankingLoss};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = NPairConfig { l2: 0.02, ..Default::default() }.init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NPairConfig {
    /// Weight of the mean squared norm of the paired embeddings. 0: none; 0.02 is usual.
    pub l2: f64,
    /// Whether all images of a class are paired, 1-2, 3-4, …, and not only the first two.
    pub rounds: bool,
}

impl Default for NPairConfig {
    fn default() -> Self {
        NPairConfig { l2: 0.0, rounds: false }
    }
}

impl NPairConfig {
    /// The mean distance between rows at which training begins well
    /// ([`LossSpec::initial_distance`](crate::LossSpec::initial_distance)).
    pub const INITIAL_DISTANCE: f64 = 5.0;

    /// The loss.
    pub fn init(&self) -> NPair {
        NPair { config: self.clone() }
    }
}

impl Named for NPairConfig {
    const NAME: &'static str = "n_pair";
}

impl LossSpec for NPairConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn initial_distance(&self) -> Option<f64> {
        Some(NPairConfig::INITIAL_DISTANCE)
    }

    fn validate(&self) -> Result<()> {
        in_range("l2", self.l2, self.l2 >= 0.0, "0 or more")
    }
}

/// N-pair-mc; see [`NPairConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct NPair {
    #[module(skip)]
    config: NPairConfig,
}

impl RankingLoss for NPair {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let groups = groups(labels);
        let unused = !self.config.rounds && groups.iter().any(|group| group.len() > 2);
        let rounds = rounds(&groups, labels.len(), self.config.rounds);
        let positives = Relatives::new(labels, None).counts().to_vec();
        let mut queries = Queries::counted(positives, labels.len().saturating_sub(1));
        if unused {
            queries.note =
                Some("n_pair uses the first two images of each class; `rounds = true` pairs all of them");
        }
        // Connected to the embeddings even where there is no pair.
        let mut value = embeddings.clone().mul_scalar(0.0).sum();
        for pairs in &rounds {
            let (cost, negatives) = round(&embeddings, labels, pairs);
            for ((&(anchor, _), loss), negatives) in pairs.iter().zip(column(&cost)).zip(negatives) {
                queries.loss[anchor] = loss;
                queries.mined_positives[anchor] = u32::from(negatives > 0);
                queries.mined_negatives[anchor] = negatives;
            }
            value =
                value + (cost.mean() + self.norms(&embeddings, pairs)).mul_scalar(1.0 / rounds.len() as f64);
        }
        LossOutput { value, queries }
    }
}

impl NPair {
    /// The regularisation of one round.
    fn norms(&self, embeddings: &Tensor<2>, pairs: &[(usize, usize)]) -> Tensor<1> {
        let paired = rows(embeddings, pairs.iter().flat_map(|&(i, j)| [i, j]));
        paired.square().sum_dim(1).mean().mul_scalar(self.config.l2)
    }
}

/// The cost of each pair of a round, `[c, 1]`, and its number of negatives.
fn round(embeddings: &Tensor<2>, labels: Labels<'_>, pairs: &[(usize, usize)]) -> (Tensor<2>, Vec<u32>) {
    let c = pairs.len();
    let anchors = rows(embeddings, pairs.iter().map(|pair| pair.0));
    let positives = rows(embeddings, pairs.iter().map(|pair| pair.1));
    let own = (anchors.clone() * positives.clone()).sum_dim(1);
    let lead = anchors.matmul(positives.transpose()) - own;
    let mut mask = vec![0f32; c * c];
    let mut counts = vec![0; c];
    let mut related = vec![false; labels.len()];
    for i in 0..c {
        labels.relate(labels.of(pairs[i].0), &mut related);
        for j in (0..c).filter(|&j| j != i && !related[pairs[j].1]) {
            mask[i * c + j] = 1.0;
            counts[i] += 1;
        }
    }
    let mask = Tensor::from_data(TensorData::new(mask, [c, c]), (&embeddings.device(), embeddings.dtype()));
    (log_one_plus_sum_exp(&lead, &mask), counts)
}

fn rows(embeddings: &Tensor<2>, indices: impl Iterator<Item = usize>) -> Tensor<2> {
    let indices: Vec<i64> = indices.map(|i| i as i64).collect();
    embeddings.clone().select(0, Tensor::<1, Int>::from_data(indices.as_slice(), &embeddings.device()))
}

/// The samples of each label, labels in the order in which they appear.
fn groups(labels: Labels<'_>) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut at = HashMap::new();
    for i in 0..labels.len() {
        for label in labels.of(i) {
            let group = *at.entry(label).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            if groups[group].last() != Some(&i) {
                groups[group].push(i);
            }
        }
    }
    groups
}

/// The pairs of each round; every sample is in at most one pair.
fn rounds(groups: &[Vec<usize>], n: usize, all: bool) -> Vec<Vec<(usize, usize)>> {
    let mut rounds: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut paired = vec![false; n];
    for group in groups {
        let free: Vec<usize> = group.iter().copied().filter(|&i| !paired[i]).collect();
        for (round, pair) in free.chunks_exact(2).take(if all { n } else { 1 }).enumerate() {
            if rounds.len() == round {
                rounds.push(Vec::new());
            }
            rounds[round].push((pair[0], pair[1]));
            paired[pair[0]] = true;
            paired[pair[1]] = true;
        }
    }
    rounds
}
