//! FastAP: average precision of each query's ranking, made smooth by soft histograms of distances.
//!
//! Cakir, He, Xia, Kulis, Sclaroff, "Deep Metric Learning to Rank", CVPR 2019.
//!
//! For a query, squared Euclidean distances of embeddings of length 1 are in `[0, 4]`. With the nodes `t_0 =
//! 0, ..., t_bins = 4` and the step `D = 4 / bins`:
//!
//! ```text
//! h_b    = sum over the gallery of [1 - |d^2 - t_b| / D]_+      (h+: the positives only)
//! H_b    = h_0 + ... + h_b
//! FastAP = 1 / P sum over b of h+_b H+_b / H_b
//! L      = mean over the queries with a positive of 1 - FastAP
//! ```
//!
//! **Held constant**: nothing.
//!
//! # Corner cases
//!
//! - A distance exactly at a node has slope 0 there, as a tent's top has.
//! - Where `H_b = 0` the term is 0. Distances beyond the last node, as of rows that are not of length 1,
//!   belong to no node: they count as not retrieved.
//! - A query without a positive contributes 0 and is not counted in the mean; one without a negative has
//!   FastAP 1 up to the ties that the histogram makes.
//! - In a collapsed batch all distances are at the first node: the gradient is 0.
//!
//! Memory and time: `O(n d + bins)` and `O(n^2 d + n bins)`.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`FastAp`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{FastApConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = FastApConfig { bins: 20 }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FastApConfig {
    /// Number of intervals of the histograms; they have one node more. 10.
    pub bins: usize,
}

impl Default for FastApConfig {
    fn default() -> Self {
        FastApConfig { bins: 10 }
    }
}

impl FastApConfig {
    /// The loss.
    pub fn init(&self) -> FastAp {
        Listed::new(self.clone())
    }
}

impl Named for FastApConfig {
    const NAME: &'static str = "fast_ap";
}

impl LossSpec for FastApConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        in_range("bins", self.bins as f64, (1..=10_000).contains(&self.bins), "from 1 to 10000")
    }
}

/// FastAP; see [`FastApConfig`] for its parameters.
pub type FastAp = Listed<FastApConfig>;

impl ListLoss for FastApConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.with_positives.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if list.positives.is_empty() {
            return ListValue::default();
        }
        let (steps, bins) = (F::of(self.bins as f64 / 4.0), F::of(self.bins as f64 + 1.0));
        // The node below a squared distance, and how far it is on the way to the next; `None` beyond the last tent.
        let place = |distance: F| {
            let squared = distance * distance * steps;
            (squared < bins).then(|| {
                let node = squared.wide() as usize;
                (node, squared.wide() - node as f64)
            })
        };
        // One place more than nodes: what is beyond the last node is not retrieved.
        let histogram = |values: &[F]| {
            let mut histogram = vec![0.0; self.bins + 2];
            for (node, part) in values.iter().filter_map(|&distance| place(distance)) {
                histogram[node] += 1.0 - part;
                histogram[node + 1] += part;
            }
            histogram
        };
        let positives = histogram(list.positives);
        let mut all = histogram(list.negatives);
        all.iter_mut().zip(&positives).for_each(|(all, positives)| *all += positives);
        let Smoothed { precision, by_positives, by_negatives } = smoothed(&positives[..=self.bins], &all);

        let number = list.positives.len() as f64;
        // The derivative by a distance between two nodes, from those by the nodes: `d^2 / D` has the derivative `2 d / D`.
        let slope = |distance: F, by: &[f64]| match place(distance) {
            Some((node, part)) if part > 0.0 => {
                F::of((by[node + 1] - by[node]) * -2.0 / number) * distance * steps
            }
            _ => F::ZERO,
        };
        for (by, &distance) in list.by_positives.iter_mut().zip(list.positives) {
            *by = slope(distance, &by_positives);
        }
        for (by, &distance) in list.by_negatives.iter_mut().zip(list.negatives) {
            *by = slope(distance, &by_negatives);
        }
        ListValue {
            loss: 1.0 - precision / number,
            mined_positives: if list.has_both() { list.positives.len() as u32 } else { 0 },
            mined_negatives: list.negative_count as u32,
            ..ListValue::default()
        }
    }
}

/// The sum over the nodes of `h+ H+ / H`, and its derivatives by the values at the nodes: of a positive, which is in `h+`
/// and in `h`, and of a negative.
struct Smoothed {
    precision: f64,
    by_positives: Vec<f64>,
    by_negatives: Vec<f64>,
}

/// Of the histograms of the positives, up to the last node, and of the whole list, with one place more.
fn smoothed(positives: &[f64], all: &[f64]) -> Smoothed {
    let (mut precision, mut by_positives, mut by_negatives) =
        (0.0, vec![0.0; all.len()], vec![0.0; all.len()]);
    let (mut ahead, mut ahead_p) = (0.0, 0.0);
    let cumulated: Vec<_> = positives
        .iter()
        .zip(all)
        .map(|(here_p, here)| {
            ahead += here;
            ahead_p += here_p;
            let inverse = if ahead > 0.0 { 1.0 / ahead } else { 0.0 };
            (ahead_p, inverse)
        })
        .collect();
    // A histogram's value counts at its own node and at every later one.
    let (mut later_p, mut later) = (0.0, 0.0);
    for (node, (&here_p, &(ahead_p, inverse))) in positives.iter().zip(&cumulated).enumerate().rev() {
        precision += here_p * ahead_p * inverse;
        later_p += here_p * inverse;
        later -= here_p * ahead_p * inverse * inverse;
        by_positives[node] = ahead_p * inverse + later_p + later;
        by_negatives[node] = later;
    }
    Smoothed { precision, by_positives, by_negatives }
}
