//! Angular loss: bound the angle at the negative of every triangle of an anchor, its positive and a negative.
//!
//! Wang, Zhou, Wen, Liu, Lin, "Deep Metric Learning with Angular Loss", ICCV 2017.
//!
//! With `t = tan(angle)^2` and embeddings of length 1, the constants of `d_ap^2 - 4 t |x_n - (x_a +
//! x_p)/2|^2` dropped:
//!
//! ```text
//! f_apn = 4 t (x_a + x_p).x_n - 2 (1 + t) x_a.x_p
//! L     = mean over all (a, p) of log(1 + sum over negatives n of exp(f_apn))
//! ```
//!
//! where `n` runs over the samples that are negatives of both `a` and `p`. With two images a class this is
//! the paper's mean over the batch. The paper's combination with N-pair is a weighted sum of two losses. A
//! query's own loss is the mean over its positives. With a memory, `p` and `n` are from the query's list, but not
//! both from the memory: one side of that triangle would be constant.
//!
//! With a miner (see [`crate::miner`]) the pairs `(a, p)` are the selected ones, and `n` is a selected
//! negative of `a` that is a negative of `p`.
//!
//! **Held constant**: nothing.
//!
//! # Corner cases
//!
//! - The largest exponent (at least 0) is subtracted before `exp`.
//! - A pair without a negative contributes 0; a batch without a positive pair has the value 0.
//!
//! Memory `O(n (n + d))`, time `O(n^2 d + n k)` for `k` positive pairs: triangles are summed block by block, with
//! their derivatives.

use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{Pairs, column, counts, indicator, row_blocks, total, with_gradient};
use gallerist_tensor::pairwise::host;

/// Parameters of [`Angular`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{AngularConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = AngularConfig { angle: 40.0, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AngularConfig {
    /// Bound on the angle, in degrees. 45 in the paper, which tries 36 to 60.
    pub angle: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for AngularConfig {
    fn default() -> Self {
        AngularConfig { angle: 42.0, miner: None }
    }
}

impl AngularConfig {
    /// The loss.
    pub fn init(&self) -> Angular {
        Angular { config: self.clone() }
    }
}

impl Named for AngularConfig {
    const NAME: &'static str = "angular";
}

impl LossSpec for AngularConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        in_range(
            "angle",
            self.angle,
            self.angle > 0.0 && self.angle <= 89.0,
            "above 0 and at most 89 degrees",
        )?;
        miner::validate(self.miner.as_ref())
    }
}

/// Angular loss; see [`AngularConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Angular {
    #[module(skip)]
    config: AngularConfig,
}

impl PairLoss for Angular {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let [n, g] = lists.dims();
        let all = Pairs::new(lists);
        let mined = miner::in_force(self.config.miner.as_ref(), &all, lists, progress);
        let pairs = mined.pairs();
        let similarity = lists.similarities();
        let held = similarity.clone().detach();
        let number = pairs.positives.clone().sum_dim(1);
        let count = total(&pairs.positives).max(1.0);

        let list = Side { similarity: held.clone(), negatives: pairs.negatives.clone() };
        // A miner chooses for the anchor alone.
        let of_partners = Side { similarity: held.clone(), negatives: all.negatives.clone() };
        let batch = |x: &Tensor<2>| x.clone().slice([0..n, 0..n]);
        let mut sums = self.triangles(&list, &of_partners, &batch(&held), &batch(&pairs.positives));
        let mut by_side = sums.by_anchor.clone() + sums.by_partner.clone();
        if g > n {
            let memory = |x: &Tensor<2>| x.clone().slice([0..n, n..g]);
            let anchors = list.map(batch);
            let partners = of_partners.map(|x| memory(x).transpose());
            let more = self.triangles(&anchors, &partners, &memory(&held), &memory(&pairs.positives));
            let side_by_side = |a: Tensor<2>, b: Tensor<2>| Tensor::cat(vec![a, b], 1);
            by_side = by_side + side_by_side(more.by_anchor.clone(), more.by_partner.transpose());
            let none = memory(&held).zeros_like();
            sums.by_anchor = sums.by_anchor + side_by_side(more.by_anchor, none);
            sums.by_pair = side_by_side(sums.by_pair, more.by_pair);
            sums.cost = sums.cost + more.cost;
        }
        let (side_factor, pair_factor) = self.factors();
        let gradient = by_side.mul_scalar(side_factor) - sums.by_pair.clone().mul_scalar(pair_factor);
        let value = with_gradient(
            sums.cost.clone().sum().mul_scalar(1.0 / count),
            &similarity,
            gradient.mul_scalar(1.0 / count),
        );

        let used = |shares: Tensor<2>| counts(&indicator(shares.greater_scalar(0.0), &held));
        let queries = Queries {
            loss: column(&(sums.cost / number.clamp_min(1.0))),
            mined_positives: used(sums.by_pair),
            mined_negatives: used(sums.by_anchor),
            ..all.queries()
        };
        LossOutput { value, queries }.with_problem(mined.problem, lists)
    }
}

/// One side of the pairs: its similarities to the candidates for the third corner, and which of them are its
/// negatives.
struct Side {
    similarity: Tensor<2>,
    negatives: Tensor<2>,
}

impl Side {
    fn map(&self, f: impl Fn(&Tensor<2>) -> Tensor<2>) -> Side {
        Side { similarity: f(&self.similarity), negatives: f(&self.negatives) }
    }
}

/// What triangles add up to. The share `exp(f) / (1 + sum exp(f))` of a triangle is the derivative of its
/// pair's cost with respect to `f`.
struct Sums {
    /// The cost of each anchor's pairs, `[n, 1]`.
    cost: Tensor<2>,
    /// Shares by anchor and partner.
    by_pair: Tensor<2>,
    /// Shares by anchor and third corner.
    by_anchor: Tensor<2>,
    /// Shares by partner and third corner.
    by_partner: Tensor<2>,
}

impl Angular {
    /// The factors of the similarities of either side and the negative, and of the pair, in `f`.
    fn factors(&self) -> (f64, f64) {
        let t = self.config.angle.to_radians().tan().powi(2);
        (4.0 * t, 2.0 * (1.0 + t))
    }

    /// Sums over the pairs of anchor and partner in `positives`, whose similarities are in `own`, and their
    /// common negatives.
    fn triangles(&self, anchors: &Side, partners: &Side, own: &Tensor<2>, positives: &Tensor<2>) -> Sums {
        let (side_factor, pair_factor) = self.factors();
        let [n, p] = positives.dims();
        let [_, corners] = anchors.similarity.dims();
        let entries: Vec<i64> =
            host(positives).iter().zip(0..).filter(|&(&mask, _)| mask > 0.0).map(|(_, at)| at).collect();
        let mut cost = own.clone().sum_dim(1).zeros_like();
        let mut by_pair = own.zeros_like().reshape([n * p]);
        let mut by_anchor = anchors.similarity.zeros_like();
        let mut by_partner = partners.similarity.zeros_like();
        let ints = |values: Vec<i64>| Tensor::<1, Int>::from_data(values.as_slice(), &own.device());
        for rows in row_blocks(entries.len(), corners) {
            let pairs = &entries[rows];
            let of_anchor = ints(pairs.iter().map(|at| at / p as i64).collect());
            let of_partner = ints(pairs.iter().map(|at| at % p as i64).collect());
            let of_pair = ints(pairs.to_vec());
            let row = |x: &Tensor<2>, of: &Tensor<1, Int>| x.clone().select(0, of.clone());
            let similarity = row(&anchors.similarity, &of_anchor) + row(&partners.similarity, &of_partner);
            let common = row(&anchors.negatives, &of_anchor) * row(&partners.negatives, &of_partner);
            let own = own.clone().reshape([n * p]).select(0, of_pair.clone()).reshape([pairs.len(), 1]);
            let exponent = (similarity.mul_scalar(side_factor) - own.mul_scalar(pair_factor))
                .mask_fill(common.equal_scalar(0.0), f32::NEG_INFINITY);
            let largest = exponent.clone().max_dim(1).clamp_min(0.0);
            let terms = (exponent - largest.clone()).exp();
            let sum = terms.clone().sum_dim(1);
            let rest = largest.clone().neg().exp();
            let shares = terms / (sum.clone() + rest.clone());
            let costs = (sum + rest.sub_scalar(1.0)).log1p() + largest;
            let pair_shares = shares.clone().sum_dim(1).reshape([pairs.len()]);
            cost = cost.select_assign(0, of_anchor.clone(), costs, IndexingUpdateOp::Add);
            by_pair = by_pair.select_assign(0, of_pair, pair_shares, IndexingUpdateOp::Add);
            by_anchor = by_anchor.select_assign(0, of_anchor, shares.clone(), IndexingUpdateOp::Add);
            by_partner = by_partner.select_assign(0, of_partner, shares, IndexingUpdateOp::Add);
        }
        Sums { cost, by_pair: by_pair.reshape([n, p]), by_anchor, by_partner }
    }
}
