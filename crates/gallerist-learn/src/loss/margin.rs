//! Margin loss with distance-weighted sampling: positives inside, negatives outside a boundary, negatives
//! drawn so that all distances are met equally often.
//!
//! Wu, Manmatha, Smola, Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017 (sections 4.1
//! and 4.2).
//!
//! For every anchor `a` and each of its positives `p` one negative `n` is drawn with a probability
//! proportional to `1 / q(max(d_an, near_cutoff))`, where `q` is the density of the distance between random
//! points of the unit sphere in `D` dimensions, `q(d) ~ d^(D-2) (1 - d^2 / 4)^((D-3)/2)`. Negatives beyond
//! `far_cutoff` are not drawn; where all are beyond it, each is drawn equally often.
//!
//! ```text
//! L = 1/M (sum over the triplets of [d_ap - beta + margin]_+ + [beta - d_an + margin]_+  + nu beta)
//! ```
//!
//! with `M` the number of hinges above 0, as in the authors' released code. The boundary `beta` is fixed,
//! learnt, or learnt per class (that of the anchor's class counts). **Held constant**: the draw. A query's
//! own loss is the mean over its triplets.
//!
//! The draw of an anchor is a function of (`seed`, the step, the anchor's row), so that a run repeats bit for
//! bit.
//!
//! # Corner cases
//!
//! - Hinges have slope 0 at the kink. Coincident rows cost what the equation says and have no direction.
//! - Anchors without a positive or without a negative take no part. A batch without a hinge above 0 has the
//!   value 0.
//! - The densities are compared as logarithms: in 512 dimensions they span hundreds of orders of magnitude.
//! - `boundary = "per_class"` needs one class per sample.
//!
//! Memory and time: `O(n^2)` and `O(n^2 (d + k))` for `k` positives a sample.

use burn::module::{Module, Param};
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData};
use gallerist_data::Random;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, total};
use super::{Labels, LossOutput, LossShape, Progress, Queries, RankingLoss, in_range};
use crate::Result;
use crate::pairwise::{distances, host};

/// Whether the boundary of [`Margin`] is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarginBoundary {
    /// It stays `beta`.
    #[default]
    Fixed,
    /// One boundary is learnt; it starts at `beta`.
    Learnt,
    /// One boundary per class is learnt; all start at `beta`.
    PerClass,
}

/// Parameters of [`Margin`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MarginConfig {
    /// Distance on either side of the boundary. 0.2 in the paper.
    pub margin: f64,
    /// Boundary between positives and negatives, or where it starts. 1.2 in the paper.
    pub beta: f64,
    /// Whether the boundary is learnt.
    pub boundary: MarginBoundary,
    /// Weight of the sum of boundaries, which keeps learnt ones small. 0 in the paper.
    pub nu: f64,
    /// Distance below which negatives are not drawn more often still. 0.5 in the paper.
    pub near_cutoff: f64,
    /// Distance beyond which negatives are not drawn. 1.4 in the paper.
    pub far_cutoff: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for MarginConfig {
    fn default() -> Self {
        MarginConfig {
            margin: 0.2,
            beta: 1.2,
            boundary: MarginBoundary::Fixed,
            nu: 0.0,
            near_cutoff: 0.5,
            far_cutoff: 1.4,
            seed: 0,
        }
    }
}

impl MarginConfig {
    /// The loss, with its boundaries (if they are learnt) for `shape` on `device`.
    pub fn init(&self, shape: LossShape, device: &Device) -> Margin {
        let boundaries = match self.boundary {
            MarginBoundary::Fixed => None,
            MarginBoundary::Learnt => Some(1),
            MarginBoundary::PerClass => Some(shape.classes),
        };
        let beta = boundaries.map(|count| Param::from_tensor(Tensor::full([count], self.beta, device)));
        Margin { beta, config: self.clone() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        in_range("beta", self.beta, true, "a finite number")?;
        in_range("nu", self.nu, self.nu >= 0.0, "0 or more")?;
        in_range("near_cutoff", self.near_cutoff, self.near_cutoff > 0.0, "above 0")?;
        let far = self.far_cutoff;
        in_range("far_cutoff", far, far > self.near_cutoff && far < 2.0, "above near_cutoff and below 2")
    }
}

/// Margin loss; see [`MarginConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Margin {
    /// The learnt boundaries, one or one per class.
    beta: Option<Param<Tensor<1>>>,
    #[module(skip)]
    config: MarginConfig,
}

impl RankingLoss for Margin {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let config = &self.config;
        let [_, dimensions] = embeddings.dims();
        let pairs = Pairs::new(labels, &embeddings);
        let distance = distances(&embeddings, &embeddings);
        let drawn = self.draw(&distance, labels, dimensions, progress);
        let beta = self.boundaries(&embeddings, labels);

        // Entry (a, p) of every matrix stands for the triplet (a, p, drawn[a, p]).
        let taken = pairs.positives.clone() * pairs.both();
        let cost_p = hinge((distance.clone() - beta.clone()).add_scalar(config.margin)) * taken.clone();
        let cost_n = hinge((beta.clone() - distance.gather(1, drawn.clone())).add_scalar(config.margin))
            * taken.clone();
        let active = |cost: &Tensor<2>| indicator(cost.clone().greater_scalar(0.0), cost);
        let (active_p, active_n) = (active(&cost_p), active(&cost_n));
        let number = total(&active_p) + total(&active_n);
        let per_query = (cost_p + cost_n).sum_dim(1);
        let price = (beta * taken.clone()).sum().mul_scalar(config.nu);
        let value =
            (per_query.clone().sum() + price).mul_scalar(if number > 0.0 { 1.0 / number } else { 0.0 });

        let used_n = active_n.zeros_like().scatter(1, drawn, active_n, IndexingUpdateOp::Add);
        let queries = Queries {
            loss: column(&(per_query / taken.sum_dim(1).clamp_min(1.0))),
            mined_positives: counts(&active_p),
            mined_negatives: counts(&active(&used_n)),
            ..pairs.queries()
        };
        LossOutput { value, queries }
    }
}

impl Margin {
    /// The boundary of each anchor, `[n, 1]`.
    fn boundaries(&self, embeddings: &Tensor<2>, labels: Labels<'_>) -> Tensor<2> {
        let n = labels.len();
        let (device, dtype) = (embeddings.device(), embeddings.dtype());
        match (&self.beta, self.config.boundary) {
            (Some(beta), MarginBoundary::PerClass) => {
                let Labels::Classes(classes) = labels else {
                    panic!("a boundary per class needs one class per sample")
                };
                let [count] = beta.dims();
                if let Some(class) = classes.iter().find(|&&class| class as usize >= count) {
                    panic!("class {class}, but boundaries for {count} classes");
                }
                let classes: Vec<i64> = classes.iter().map(|&class| i64::from(class)).collect();
                let classes = Tensor::<1, Int>::from_data(classes.as_slice(), &device);
                beta.val().select(0, classes).reshape([n, 1]).cast(dtype)
            }
            (Some(beta), _) => beta.val().reshape([1, 1]).cast(dtype).expand([n, 1]),
            (None, _) => Tensor::full([n, 1], self.config.beta, (&device, dtype)),
        }
    }

    /// `[n, n]`: at a positive pair the negative drawn for it; 0 elsewhere.
    fn draw(
        &self,
        distance: &Tensor<2>,
        labels: Labels<'_>,
        dimensions: usize,
        progress: Progress,
    ) -> Tensor<2, Int> {
        let n = labels.len();
        let distances = host(distance);
        let mut drawn = vec![0i64; n * n];
        for a in 0..n {
            let negatives: Vec<usize> = (0..n).filter(|&j| j != a && !labels.related(a, j)).collect();
            if negatives.is_empty() {
                continue;
            }
            let row = &distances[a * n..][..n];
            let cumulative = self.cumulative_weights(negatives.iter().map(|&j| row[j]), dimensions);
            let all = cumulative[negatives.len() - 1];
            let mut random = Random::new(self.config.seed, "loss/margin", progress.step as u64, a as u64);
            for p in (0..n).filter(|&j| j != a && labels.related(a, j)) {
                let at = random.unit() * all;
                let choice = cumulative.partition_point(|&sum| sum <= at).min(negatives.len() - 1);
                drawn[a * n + p] = negatives[choice] as i64;
            }
        }
        Tensor::from_data(TensorData::new(drawn, [n, n]), &distance.device())
    }

    /// Running sums of the weights `1 / q(d)`, scaled so that the largest weight is 1.
    fn cumulative_weights(&self, distances: impl Iterator<Item = f64>, dimensions: usize) -> Vec<f64> {
        let d = dimensions as f64;
        let exponents: Vec<f64> = distances
            .map(|distance| {
                if distance > self.config.far_cutoff {
                    return f64::NEG_INFINITY;
                }
                let distance = distance.max(self.config.near_cutoff);
                -((d - 2.0) * distance.ln() + 0.5 * (d - 3.0) * (1.0 - 0.25 * distance * distance).ln())
            })
            .collect();
        let largest = exponents.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let weight = |e: f64| if largest == f64::NEG_INFINITY { 1.0 } else { (e - largest).exp() };
        let sums = exponents.iter().scan(0.0, |sum, &e| {
            *sum += weight(e);
            Some(*sum)
        });
        sums.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value and derivative with respect to the boundaries, on 12 points of 3 classes.
    fn run(config: MarginConfig) -> (f64, Vec<f64>) {
        let rows: Vec<f64> = (0..48).map(|i| f64::from(i * i % 29) / 29.0 - 0.5).collect();
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::from_data(TensorData::new(rows, [12, 4]), (&device, burn::tensor::DType::F64));
        let labels: Vec<u32> = (0..12).map(|i| i % 3).collect();
        let loss = config.init(LossShape { classes: 5, dimensions: 4 }, &device);
        let output = loss.forward(x, Labels::Classes(&labels), Progress::default());
        let gradients =
            loss.beta.as_ref().map(|beta| host(&beta.val().grad(&output.value.backward()).unwrap()));
        (host(&output.value)[0], gradients.unwrap_or_default())
    }

    #[test]
    fn learnt_boundaries_get_the_derivative_of_the_value() {
        let config = MarginConfig { beta: 0.625, nu: 0.05, ..MarginConfig::default() };
        let at = |by: f64| run(MarginConfig { beta: 0.625 + by, ..config.clone() }).0;
        let wanted = (at(1e-5) - at(-1e-5)) / 2e-5;
        let (value, learnt) = run(MarginConfig { boundary: MarginBoundary::Learnt, ..config.clone() });
        assert!((value - at(0.0)).abs() < 1e-12);
        assert!(wanted.abs() > 1e-2 && (learnt[0] - wanted).abs() < 1e-6, "{learnt:?} {wanted}");
        // Classes that are not in the batch get none; together the others get what the one boundary gets.
        let (value, by_class) = run(MarginConfig { boundary: MarginBoundary::PerClass, ..config.clone() });
        assert!((value - at(0.0)).abs() < 1e-12);
        assert!(by_class[..3].iter().all(|&g| g != 0.0) && by_class[3..] == [0.0, 0.0], "{by_class:?}");
        assert!((by_class.iter().sum::<f64>() - wanted).abs() < 1e-6);
    }
}
