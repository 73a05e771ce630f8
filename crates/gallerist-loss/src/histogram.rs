//! Histogram loss: the probability that a random negative pair is more similar than a random positive pair.
//!
//! Ustinova, Lempitsky, "Learning Deep Embeddings with Histogram Loss", NIPS 2016.
//!
//! Two histograms over `bins` nodes `t_r` from -1 to 1 with the step `D = 2 / (bins - 1)`; a pair of
//! similarity `s = x_i.x_j` between two nodes is shared between them linearly:
//!
//! ```text
//! h_r = mean over the pairs of [1 - |s - t_r| / D]_+    (h+: the positive pairs, h-: the negative pairs)
//! L   = sum over r of h-_r sum over q <= r of h+_q
//! ```
//!
//! Pairs are unordered; a pair with a row of the memory counts half as much as one inside the batch, which is in
//! two lists. **Held constant**: nothing; the derivative is `-h-_r / D` over the number of positive
//! pairs at a positive pair between the nodes `r` and `r + 1`, and `h+_{r+1} / D` over the number of negative
//! pairs at a negative one.
//!
//! A query's own loss: its negatives' share of the value, times `n`; the mean over the queries is the value.
//!
//! # Corner cases
//!
//! - At a node the derivative is that of the interval above it (below it at the last node).
//! - Similarities outside -1 to 1, as of rows that are not of length 1, count at the nearest node and get no
//!   gradient; within 1e-5 of it (rounding) they get that of the outermost interval.
//! - A batch without a positive or without a negative pair has the value 0.
//!
//! Memory and time: `O(n (n + d))` and `O(n^2 d)`. The histograms are summed in f64.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::with_gradient;
use gallerist_tensor::pairwise::host;

/// How far outside -1 to 1 a similarity counts as rounding.
const ROUNDING: f64 = 1e-5;

/// Parameters of [`Histogram`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{HistogramConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = HistogramConfig { bins: 101 }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistogramConfig {
    /// Number of nodes of the histograms. 151; the paper finds that little depends on it.
    pub bins: usize,
}

impl Default for HistogramConfig {
    fn default() -> Self {
        HistogramConfig { bins: 151 }
    }
}

impl HistogramConfig {
    /// The loss.
    pub fn init(&self) -> Histogram {
        Histogram { config: self.clone() }
    }
}

impl Named for HistogramConfig {
    const NAME: &'static str = "histogram";
}

impl LossSpec for HistogramConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        in_range("bins", self.bins as f64, (2..=1_000_000).contains(&self.bins), "from 2 to 1000000")
    }
}

/// Histogram loss; see [`HistogramConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Histogram {
    #[module(skip)]
    config: HistogramConfig,
}

/// The interval of a similarity, the share of its upper node, and whether moving it changes the shares.
struct Place {
    lower: usize,
    upper_share: f64,
    moves: bool,
}

impl Histogram {
    fn place(&self, similarity: f64) -> Place {
        let intervals = self.config.bins - 1;
        let at = (similarity.clamp(-1.0, 1.0) + 1.0) * 0.5 * intervals as f64;
        let lower = (at as usize).min(intervals - 1);
        Place { lower, upper_share: (at - lower as f64).min(1.0), moves: similarity.abs() <= 1.0 + ROUNDING }
    }
}

impl PairLoss for Histogram {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let [n, g] = lists.dims();
        let bins = self.config.bins;
        let similarity = lists.similarities();
        let values = host(&similarity);

        // Each pair once: with an earlier sample, or with a row of the memory, which is in one list only.
        let partners = |i: usize| (0..i).chain(n..g);
        let weight = |j: usize| if j < n { 1.0 } else { 0.5 };
        let mut histograms = [vec![0.0; bins], vec![0.0; bins]];
        let mut pairs = [0f64; 2];
        let mut queries = Queries {
            loss: vec![0.0; n],
            positives: vec![0; n],
            negatives: vec![0; n],
            mined_positives: vec![0; n],
            mined_negatives: vec![0; n],
            ..Queries::default()
        };
        let mut relations = vec![false; g];
        for i in 0..n {
            lists.relate(i, &mut relations);
            for j in partners(i) {
                let related = relations[j];
                let place = self.place(values[i * g + j]);
                let side = usize::from(!related);
                histograms[side][place.lower] += weight(j) * (1.0 - place.upper_share);
                histograms[side][place.lower + 1] += weight(j) * place.upper_share;
                pairs[side] += weight(j);
                let count = if related { &mut queries.positives } else { &mut queries.negatives };
                count[i] += 1;
                if j < n {
                    count[j] += 1;
                }
            }
        }
        let some = pairs[0] > 0.0 && pairs[1] > 0.0;
        for (histogram, pairs) in histograms.iter_mut().zip(pairs) {
            histogram.iter_mut().for_each(|h| *h /= if some { pairs } else { 1.0 });
        }
        let [positive, negative] = histograms;
        let below: Vec<f64> = positive
            .iter()
            .scan(0.0, |sum, h| {
                *sum += h;
                Some(*sum)
            })
            .collect();
        let value: f64 =
            if some { negative.iter().zip(&below).map(|(h, below)| h * below).sum() } else { 0.0 };

        let mut gradient = vec![0.0; n * g];
        let mut loss = vec![0.0f64; n];
        let inverse_step = 0.5 * (bins - 1) as f64;
        for i in 0..n {
            lists.relate(i, &mut relations);
            for j in partners(i).filter(|_| some) {
                let place = self.place(values[i * g + j]);
                let related = relations[j];
                let slope = if related { -negative[place.lower] } else { positive[place.lower + 1] };
                if slope != 0.0 && place.moves {
                    // Only entry (i, j) has the derivative of the unordered pair.
                    gradient[i * g + j] = weight(j) * slope * inverse_step / pairs[usize::from(!related)];
                    let mined =
                        if related { &mut queries.mined_positives } else { &mut queries.mined_negatives };
                    mined[i] += 1;
                    if j < n {
                        mined[j] += 1;
                    }
                }
                if !related {
                    let cost = (1.0 - place.upper_share) * below[place.lower]
                        + place.upper_share * below[place.lower + 1];
                    let share = 0.5 * n as f64 * cost / pairs[1];
                    loss[i] += share;
                    if j < n {
                        loss[j] += share;
                    }
                }
            }
        }
        queries.loss = loss.iter().map(|&v| v as f32).collect();
        let (device, dtype) = (similarity.device(), similarity.dtype());
        let value = Tensor::<1>::from_data(TensorData::new(vec![value], [1]), (&device, dtype));
        let gradient = Tensor::<2>::from_data(TensorData::new(gradient, [n, g]), (&device, dtype));
        LossOutput { value: with_gradient(value, &similarity, gradient), queries }
    }
}
