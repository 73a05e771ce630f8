//! Potential field (PFML): samples and learnt proxies attract those of their class and repel the others, with forces
//! that become weaker with the distance.
//!
//! Bhatnagar, Ahuja, "Potential Field Based Deep Metric Learning", CVPR 2025 (Eqs. 1-6). Normalised embeddings; the
//! proxies' directions count, not their lengths. `M` proxies for each class. With the Euclidean distance `d` of two
//! points, samples or proxies:
//!
//! ```text
//! attraction(d) = -1/delta^alpha  d < delta,  -1/d^alpha      otherwise      (same class)
//! repulsion(d)  =  1/d^alpha      d < delta,   1/delta^alpha  otherwise      (different classes)
//! U             = sum over all ordered pairs of two points of the potential of one in the field of the other
//! L             = U / n
//! ```
//!
//! Points of a class that are nearer than `delta` do not attract each other, and points of different classes that are
//! farther apart do not repel each other. `U` counts each pair twice, once in the field of each; pairs of two proxies
//! are among them. The paper minimises the sum `U` (`reduction = "sum"`). Its gradient is `n` times that of the mean:
//! the choice matters where the learning rate is not adaptive, or where the loss is one of several. The paper trains
//! the proxies with 100 times the learning rate of the network (`optimizer.loss_factor`).
//!
//! The authors have not released code, and the paper does not name the values of `alpha` and `delta` for each data set:
//! they searched 0 to 6 and 0.1 to 0.3. Presets have 4 and 0.2.
//!
//! Below the distance `closest` the repulsion is continued linearly, with its slope at `closest`, because the equation
//! is unbounded at 0.
//!
//! **Held constant**: nothing; samples and proxies get a gradient from every pair.
//!
//! # Corner cases
//!
//! - Coincident points of different classes cost a finite amount; the direction being undefined there, the gradient of
//!   the pair is 0.
//! - A point without others of its class is repelled only. With one class alone, and `M = 0`, the loss attracts only.
//! - Most of the value is the constant potential of the pairs without a force, `1/delta^alpha` each.
//! - Samples with sets of labels belong to the classes of all their labels.
//! - `M = 0`: samples alone. With a cross-batch memory, the pairs of a point and a row of the memory count once, in
//!   the field of the point's class.
//!
//! The diagnostics are those of the samples; their positives and negatives are samples and proxies, and the loss of a
//! query is its potential in the field of its class.
//!
//! Memory: `O((n + C M) d)` for `C` classes. Time: `O((n + C M)^2 d)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_tensor::pairwise::l2_normalize;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real};
use crate::labels::{Labels, OwnedLabels};
use crate::lists::{CrossBatchRows, Lists};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, RankingLoss};
use crate::spec::{Limit, LossShape, LossSpec, in_range};
use crate::{Result, init};

/// What the total potential energy is divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PotentialReduction {
    /// The number of samples of the batch.
    #[default]
    Mean,
    /// Nothing: the paper's Eq. 6.
    Sum,
}

/// Parameters of [`PotentialField`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, PotentialFieldConfig, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = PotentialFieldConfig { proxies: 2, ..Default::default() }.init(shape, 1, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PotentialFieldConfig {
    /// Exponent of the decay. 0 to 6 in the paper, best from 3 on.
    pub alpha: f64,
    /// Distance within which positives do not attract and beyond which negatives do not repel. 0.1 to 0.3 in the
    /// paper.
    pub delta: f64,
    /// Proxies for each class, `M`: 15 (CUB, Cars); 2 (SOP). 0: samples alone.
    pub proxies: usize,
    /// What the energy is divided by.
    pub reduction: PotentialReduction,
    /// Distance below which the repulsion is continued linearly. Not in the paper; 0.01.
    pub closest: f64,
}

impl Default for PotentialFieldConfig {
    fn default() -> Self {
        PotentialFieldConfig {
            alpha: 1.2,
            delta: 0.3,
            proxies: 15,
            reduction: PotentialReduction::Mean,
            closest: 0.01,
        }
    }
}

impl PotentialFieldConfig {
    /// The loss, its proxies in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> PotentialField {
        let sides = [shape.classes * self.proxies, shape.dimensions];
        let proxies =
            (self.proxies > 0).then(|| init::directions(seed, "potential_field.proxies", sides, device));
        PotentialField { proxies, config: self.clone() }
    }
}

impl Named for PotentialFieldConfig {
    const NAME: &'static str = "potential_field";
}

impl LossSpec for PotentialFieldConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("delta")
    }

    fn limits(&self, _dimensions: usize) -> Vec<Limit> {
        vec![Limit::Count { key: "loss.proxies", found: self.proxies, most: 1 << 10 }]
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, self.alpha > 0.0 && self.alpha <= 6.0, "above 0 and at most 6")?;
        in_range("delta", self.delta, self.delta > 0.0, "above 0")?;
        let fits = self.closest >= 1e-3 && self.closest <= self.delta;
        in_range("closest", self.closest, fits, "from 0.001 to loss.delta")
    }
}

/// Potential field; see [`PotentialFieldConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct PotentialField {
    /// `[classes * M, d]`, those of a class together; only the direction of a row counts. `None` for `M = 0`.
    pub proxies: Option<Param<Tensor<2>>>,
    #[module(skip)]
    config: PotentialFieldConfig,
}

impl RankingLoss for PotentialField {
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
        let n = labels.len();
        let mut points = embeddings;
        let mut owned = OwnedLabels::from(labels);
        if let Some(proxies) = &self.proxies {
            let proxies = l2_normalize(proxies.val().cast(points.dtype()));
            let classes = (proxies.dims()[0] / self.config.proxies) as u32;
            let highest = (0..n).flat_map(|i| labels.of(i)).max();
            assert!(
                highest.is_none_or(|&label| label < classes),
                "a label of {highest:?} and proxies for the classes 0..{classes}"
            );
            points = Tensor::cat(vec![points, proxies], 0);
            let of_proxies = (0..classes).flat_map(|class| std::iter::repeat_n(class, self.config.proxies));
            match &mut owned {
                OwnedLabels::Classes(classes) => classes.extend(of_proxies),
                OwnedLabels::Sets(sets) => sets.extend(of_proxies.map(|class| vec![class])),
            }
        }
        let samples = match self.config.reduction {
            PotentialReduction::Mean => n.max(1) as f64,
            PotentialReduction::Sum => 1.0,
        };
        let lists = Lists::new(points, owned.borrowed(), memory);
        let field = Field { config: &self.config, share: 1.0 / samples };
        let mut output = Listed::new(field).forward_lists(&lists, progress);
        output.queries.truncate(n);
        output
    }
}

/// The potential of one point in the field of its class.
struct Field<'a> {
    config: &'a PotentialFieldConfig,
    share: f64,
}

impl ListLoss for Field<'_> {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, _: &Counts) -> f64 {
        self.share
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let PotentialFieldConfig { alpha, delta, closest, .. } = *self.config;
        // 1/d^alpha and its derivative.
        let decay = |d: f64| {
            let value = d.powf(-alpha);
            (value, -alpha * value / d)
        };
        let (at_delta, _) = decay(delta);
        let (at_closest, slope) = decay(closest);
        let mut seen = ListValue::default();
        for (&d, by) in list.positives.iter().zip(list.by_positives.iter_mut()) {
            let d = d.wide();
            if d < delta {
                seen.loss -= at_delta;
            } else {
                let (value, derivative) = decay(d);
                seen.loss -= value;
                *by = F::of(-derivative);
                seen.mined_positives += 1;
            }
        }
        let mut excess = 0.0;
        let bound = F::of(delta);
        for at in 0..list.negatives.len() {
            if list.negatives[at] < bound {
                let d = list.negatives[at].wide();
                let (value, derivative) =
                    if d < closest { (at_closest + slope * (d - closest), slope) } else { decay(d) };
                excess += value - at_delta;
                list.by_negatives[at] = F::of(derivative);
                seen.mined_negatives += 1;
            }
        }
        seen.loss += list.negative_count as f64 * at_delta + excess;
        seen
    }
}
