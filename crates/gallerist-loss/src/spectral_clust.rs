//! Spectral Clust: make the column space of the batch's embeddings that of its class indicators, so that spectral
//! clustering finds the classes.
//!
//! Law et al., "Deep Spectral Clustering Learning", ICML 2017. With `F` the embeddings `[n, d]`, `F^+` its
//! pseudo-inverse, `Y` the class indicators `[n, K]`:
//!
//! ```text
//! C = Y (Y^T Y)^-1 Y^T                       the ideal projection
//! P = F F^+                                  the projection on the embeddings' column space
//! L = |C - P|_F^2 / 2 = (K + rank F) / 2 - tr(C P)
//! G = -(I - P) C (F^+)^T                     the gradient (`paper`)
//! ```
//!
//! `G` is what the authors' released code follows. It is half of the derivative of `L`, which has two equal
//! terms; `gradient = "autodiff"` is that derivative, `2 G`. The two differ by the learning rate only.
//!
//! **Held constant**: nothing; the gradient is the closed form, computed on the host in f64.
//!
//! The embeddings are taken as they are; the released code does not normalise them. The loss of a query is
//! `n / 2` times the squared length of its row of `C - P`, so that the mean over the queries is the value.
//!
//! # Corner cases
//!
//! - With at least as many dimensions as samples the column space is everything: the loss is `(n - K) / 2` and
//!   the gradient 0. The batch must be larger than the embedding; [`Queries::note`] says so.
//! - Rank-deficient `F` (coincident, collapsed or zero rows included): directions in which it is shorter than
//!   `max(n, d)` units in the last place of its type are taken for 0, as NumPy's `matrix_rank` does.
//! - Label sets: samples with the same set form a class.
//!
//! Memory and time: `O(n (d + K))` and `O(n d (d + K))`, on one thread.

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::struct_clust::partition;
use crate::engine::lanes;
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec};
use crate::toolbox::with_gradient;
use gallerist_tensor::pairwise::host;

/// What `backward()` gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpectralGradient {
    /// The closed form of the authors' released code, `-(I - P) C (F^+)^T`.
    #[default]
    Paper,
    /// The derivative of the value, twice that.
    Autodiff,
}

/// Parameters of [`SpectralClust`].
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, SpectralClustConfig};
///
/// // More samples than dimensions: else there is nothing to learn.
/// let embeddings = Tensor::<2>::random([6, 3], Distribution::Default, &Device::flex().autodiff()).require_grad();
/// let output = SpectralClustConfig::default().init().forward(
///     embeddings.clone(),
///     Labels::Classes(&[0, 0, 1, 1, 2, 2]),
///     Progress::default(),
/// );
/// assert_eq!(embeddings.grad(&output.value.backward()).unwrap().dims(), [6, 3]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpectralClustConfig {
    /// What `backward()` gives. The authors' closed form.
    pub gradient: SpectralGradient,
}

impl SpectralClustConfig {
    /// The loss.
    pub fn init(&self) -> SpectralClust {
        SpectralClust { config: self.clone() }
    }
}

impl Named for SpectralClustConfig {
    const NAME: &'static str = "spectral_clust";
}

impl LossSpec for SpectralClustConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn normalized(&self) -> bool {
        false
    }
}

/// Spectral Clust; see [`SpectralClustConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct SpectralClust {
    #[module(skip)]
    config: SpectralClustConfig,
}

/// A matrix by columns, in f64.
#[derive(Clone)]
struct Columns {
    rows: usize,
    values: Vec<f64>,
}

impl Columns {
    fn zeros(rows: usize, columns: usize) -> Self {
        Columns { rows, values: vec![0.0; rows * columns] }
    }

    fn column(&self, j: usize) -> &[f64] {
        &self.values[j * self.rows..][..self.rows]
    }

    fn column_mut(&mut self, j: usize) -> &mut [f64] {
        &mut self.values[j * self.rows..][..self.rows]
    }
}

#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    lanes::weighted_sum(a, b, |value| value)
}

/// `A P = Q R` by Householder reflections with column pivoting, cut off at the numerical rank.
struct PivotedQr {
    rank: usize,
    /// The reflections `I - v v^T`, one column each, zero above the diagonal; `[rows, rank]`.
    reflections: Columns,
    /// `[rank, columns]`, upper trapezoidal.
    r: Columns,
    /// The column of `A` at each column of `R`.
    pivots: Vec<usize>,
}

impl PivotedQr {
    /// `tolerance`: columns whose rest is shorter than this part of the longest column are taken for 0.
    fn new(mut a: Columns, columns: usize, tolerance: f64) -> Self {
        let rows = a.rows;
        let mut pivots: Vec<usize> = (0..columns).collect();
        let mut reflections = Columns::zeros(rows, rows.min(columns));
        let mut r = Columns::zeros(rows.min(columns), columns);
        let mut longest = 0.0;
        let mut rank = 0;
        while rank < rows.min(columns) {
            let k = rank;
            // The lengths are computed anew: updated ones lose their digits when they get small.
            let lengths: Vec<f64> = (k..columns).map(|j| dot(&a.column(j)[k..], &a.column(j)[k..])).collect();
            let pivot = k
                + (1..lengths.len()).fold(0, |best, at| if lengths[at] > lengths[best] { at } else { best });
            let length = lengths[pivot - k].sqrt();
            if k == 0 {
                longest = length;
            }
            if length <= tolerance * longest {
                break;
            }
            if pivot != k {
                pivots.swap(k, pivot);
                let (left, right) = a.values.split_at_mut(pivot * rows);
                left[k * rows..][..rows].swap_with_slice(&mut right[..rows]);
                for i in 0..k {
                    r.values.swap(k * r.rows + i, pivot * r.rows + i);
                }
            }
            // v takes the column's rest to -sign * length * e_k, and |v|^2 = 2.
            let v = reflections.column_mut(k);
            v[k..].copy_from_slice(&a.column(k)[k..]);
            let head = v[k] + length.copysign(v[k]);
            let diagonal = -length.copysign(v[k]);
            v[k] = head;
            let scale = (2.0 / dot(&v[k..], &v[k..])).sqrt();
            v[k..].iter_mut().for_each(|x| *x *= scale);
            let v = &reflections.column(k)[k..];
            r.column_mut(k)[k] = diagonal;
            for j in k + 1..columns {
                let column = &mut a.column_mut(j)[k..];
                let product = dot(v, column);
                lanes::add_scaled(column, -product, v);
                r.column_mut(j)[k] = column[0];
            }
            rank += 1;
        }
        PivotedQr { rank, reflections, r, pivots }
    }

    /// `Q x` of a vector with `rank` entries, padded with zeros to `rows`.
    fn apply(&self, x: &mut [f64]) {
        self.apply_first(self.rank, x);
    }

    /// [`apply`](Self::apply) of a vector whose entries from `count` on are 0: later reflections leave it unchanged.
    fn apply_first(&self, count: usize, x: &mut [f64]) {
        for k in (0..count).rev() {
            let v = &self.reflections.column(k)[k..];
            let product = dot(v, &x[k..]);
            lanes::add_scaled(&mut x[k..], -product, v);
        }
    }

    /// `Q^T x` in the first `rank` entries.
    fn apply_transposed(&self, x: &mut [f64]) {
        for k in 0..self.rank {
            let v = &self.reflections.column(k)[k..];
            let product = dot(v, &x[k..]);
            lanes::add_scaled(&mut x[k..], -product, v);
        }
    }
}

/// Pseudo-inverse and column space of a matrix by a complete orthogonal decomposition:
/// `F P = Q R`, `R^T P' = Q' T`, hence `F^+ = P Q' T^-T P'^T Q^T` in the rank found.
struct Decomposition {
    outer: PivotedQr,
    inner: PivotedQr,
    columns: usize,
}

impl Decomposition {
    fn new(f: Columns, columns: usize, tolerance: f64) -> Self {
        let outer = PivotedQr::new(f, columns, tolerance);
        let mut transposed = Columns::zeros(columns, outer.rank);
        for j in 0..columns {
            for i in 0..outer.rank {
                transposed.column_mut(i)[j] = outer.r.column(j)[i];
            }
        }
        // R has full row rank by construction; nothing may be cut off again.
        let inner = PivotedQr::new(transposed, outer.rank, 0.0);
        Decomposition { outer, inner, columns }
    }

    fn rank(&self) -> usize {
        self.inner.rank
    }

    /// `F^+ y` for `y` given as `Q^T y`, its first `rank` entries.
    fn solve(&self, projected: &[f64]) -> Vec<f64> {
        let (rank, t) = (self.rank(), &self.inner.r);
        // R^T P' = Q' T means P'^T R = T^T Q'^T, so R z = b is T^T (Q'^T z) = P'^T b.
        let mut w = vec![0.0; self.columns];
        for i in 0..rank {
            let column = t.column(i);
            w[i] = (projected[self.inner.pivots[i]] - dot(&column[..i], &w[..i])) / column[i];
        }
        self.inner.apply(&mut w);
        let mut solution = vec![0.0; self.columns];
        self.outer.pivots.iter().zip(w).for_each(|(&column, value)| solution[column] = value);
        solution
    }
}

/// What the host computes: value, each sample's share in it, and the closed-form gradient `[n, d]`.
struct Spectrum {
    rank: usize,
    value: f64,
    shares: Vec<f64>,
    gradient: Vec<f64>,
}

fn spectrum(
    values: &[f64],
    [n, d]: [usize; 2],
    classes: &[usize],
    class_count: usize,
    tolerance: f64,
) -> Spectrum {
    let mut f = Columns::zeros(n, d);
    for i in 0..n {
        for j in 0..d {
            f.values[j * n + i] = values[i * d + j];
        }
    }
    let decomposition = Decomposition::new(f, d, tolerance);
    let rank = decomposition.rank();
    let mut sizes = vec![0.0; class_count];
    classes.iter().for_each(|&class| sizes[class] += 1.0);

    // Per class: its unit indicator u, Q^T u, F^+ u, and what of u is outside the column space.
    let mut gradient = vec![0.0; n * d];
    let mut own = vec![0.0; n];
    let mut overlap = 0.0;
    for class in 0..class_count {
        let height = 1.0 / f64::sqrt(sizes[class]);
        let indicator: Vec<f64> = classes.iter().map(|&c| if c == class { height } else { 0.0 }).collect();
        let mut projected = indicator.clone();
        decomposition.outer.apply_transposed(&mut projected);
        projected[rank..].fill(0.0);
        overlap += dot(&projected, &projected);
        let inverse = decomposition.solve(&projected);
        let mut inside = projected;
        decomposition.outer.apply(&mut inside);
        for i in 0..n {
            if classes[i] == class {
                own[i] = height * inside[i];
            }
            lanes::add_scaled(&mut gradient[i * d..][..d], inside[i] - indicator[i], &inverse);
        }
    }
    // |row i of C - P|^2 = C_ii + P_ii - 2 (C P)_ii, for both are projections.
    let mut lengths = vec![0.0; n];
    for k in 0..rank {
        let mut q = vec![0.0; n];
        q[k] = 1.0;
        decomposition.outer.apply_first(k + 1, &mut q);
        lengths.iter_mut().zip(q).for_each(|(length, q)| *length += q * q);
    }
    let row = |i: usize| (1.0 / sizes[classes[i]] + lengths[i] - 2.0 * own[i]).max(0.0);
    let shares = (0..n).map(|i| 0.5 * n as f64 * row(i)).collect();
    let value = (0.5 * (class_count + rank) as f64 - overlap).max(0.0);
    Spectrum { rank, value, shares, gradient }
}

impl RankingLoss for SpectralClust {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let [n, d] = embeddings.dims();
        let (classes, class_count) = partition(labels);
        let last_place = match embeddings.dtype() {
            DType::F64 => f64::EPSILON,
            _ => f32::EPSILON as f64,
        };
        let tolerance = n.max(d) as f64 * last_place;
        let Spectrum { rank, value, shares, mut gradient } =
            spectrum(&host(&embeddings), [n, d], &classes, class_count, tolerance);
        if self.config.gradient == SpectralGradient::Autodiff {
            gradient.iter_mut().for_each(|g| *g *= 2.0);
        }
        // A row counts as moved where its gradient is more than the rounding of the decomposition.
        let size = |row: &[f64]| dot(row, row).sqrt();
        let inverse_scale =
            host(&embeddings).chunks(d.max(1)).map(size).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let moved: Vec<bool> =
            gradient.chunks(d.max(1)).map(|row| size(row) * inverse_scale > 1e-10).collect();
        let options = (embeddings.device(), embeddings.dtype());
        let gradient = Tensor::<2>::from_data(TensorData::new(gradient, [n, d]), (&options.0, options.1));
        let value = Tensor::<1>::from_data([value].as_slice(), (&options.0, options.1));
        let value = with_gradient(value, &embeddings, gradient);
        let mut sizes = vec![0; class_count];
        classes.iter().for_each(|&class| sizes[class] += 1);
        let positives: Vec<u32> = classes.iter().map(|&class| sizes[class] - 1).collect();
        let negatives: Vec<u32> = positives.iter().map(|&count| n as u32 - 1 - count).collect();
        let mined = |counts: &[u32]| {
            counts.iter().zip(&moved).map(|(&c, &moved)| if moved { c } else { 0 }).collect()
        };
        let queries = Queries {
            loss: shares.iter().map(|&share| share as f32).collect(),
            mined_positives: mined(&positives),
            mined_negatives: mined(&negatives),
            positives,
            negatives,
            note: (rank == n && n > 1).then_some(
                "spectral_clust has nothing to learn here: a batch needs more images than the embedding has dimensions",
            ),
            ..Queries::default()
        };
        LossOutput { value, queries }
    }
}
