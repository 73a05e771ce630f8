//! t-SNE (van der Maaten and Hinton, JMLR 2008; Barnes-Hut: van der Maaten, JMLR 2014).
//!
//! The exact search finds the neighbours; the crate `barnes-hut-tree` computes the repulsion. The map starts from the
//! principal components, scaled to a standard deviation of 1e-4, and learning rates follow Belkina et al. (Nature
//! Communications 2019), as in openTSNE. Every sum over points is taken in a fixed order, so the result does not depend
//! on the number of threads.

use barnes_hut_tree::{BarnesHutTree, Dim, Morton};
use gallerist_retrieval::Matrix;
use gallerist_retrieval::search::{Metric, SearchOptions, self_search};
use rayon::prelude::*;

use crate::error::MapError;
use crate::map::EmbeddingMap;
use crate::pca;

/// The smallest number of rows: a perplexity of 1 needs three neighbours.
const LEAST_ROWS: usize = 4;

/// The Barnes-Hut angle, 0.5: a cell that appears smaller counts as one point. The tree measures cells by half their
/// width.
const THETA: f32 = 0.5 / 2.0;

/// The attraction is multiplied by this factor in the first [`EXAGGERATED_STEPS`].
const EXAGGERATION: f32 = 12.0;
const EXAGGERATED_STEPS: usize = 250;

const MOMENTUM: f32 = 0.8;
const LEAST_LEARNING_RATE: f32 = 200.0;

/// The largest move of a point in one step. The final map is about a hundred units wide.
const LONGEST_MOVE: f32 = 5.0;

/// Options of t-SNE.
#[derive(Clone, Debug, PartialEq)]
pub struct Tsne {
    /// The effective number of neighbours, at least 1. A value above a third of the other rows is reduced to that, with
    /// a note.
    pub perplexity: f32,
    /// Steps of gradient descent. The first 250 exaggerate the attraction, so that clusters form.
    pub steps: usize,
}

impl Default for Tsne {
    fn default() -> Self {
        Self { perplexity: 30.0, steps: 750 }
    }
}

pub(crate) fn layout(
    rows: &Matrix,
    options: &Tsne,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<EmbeddingMap, MapError> {
    let n = rows.rows();
    if n < LEAST_ROWS {
        return Err(MapError::TooFew { wanted: LEAST_ROWS, found: n });
    }
    if !(options.perplexity >= 1.0 && options.perplexity.is_finite()) {
        let found = options.perplexity.to_string();
        return Err(MapError::Option { option: "perplexity", wanted: "a number of at least 1", found });
    }
    if options.steps == 0 {
        return Err(MapError::Option { option: "steps", wanted: "at least 1", found: "0".to_owned() });
    }
    let mut notes = Vec::new();
    let perplexity = options.perplexity.min(((n - 1) / 3) as f32);
    if perplexity < options.perplexity {
        let asked = options.perplexity;
        notes.push(format!("perplexity {perplexity} instead of {asked}: {n} rows have no more neighbours"));
    }

    progress(0, options.steps);
    let affinities = Affinities::new(rows, perplexity)?;
    let mut points = start(rows);
    descend(&affinities, &mut points, options.steps, progress);
    if points.as_chunks::<2>().0.windows(2).all(|pair| pair[0] == pair[1]) {
        notes.push(format!("all {n} rows are equal: all points are in one place"));
    }
    Ok(EmbeddingMap {
        points: points.as_chunks().0.to_vec(),
        method: format!("t-SNE, perplexity {perplexity}"),
        notes,
    })
}

/// The start of the descent: the principal components, the first with a standard deviation of 1e-4. `[x0, y0, x1, ..]`.
fn start(rows: &Matrix) -> Vec<f32> {
    let points = pca::principal(rows, &mut |_, _| ()).points;
    let square = points.iter().map(|p| f64::from(p[0]).powi(2)).sum::<f64>() / points.len() as f64;
    let scale = if square > 0.0 { (1e-4 / square.sqrt()) as f32 } else { 0.0 };
    points.as_flattened().iter().map(|value| value * scale).collect()
}

/// The symmetric affinities of neighbours, which sum to 1, as a sparse matrix: the entries of row `i` are at
/// `starts[i]..starts[i + 1]`.
struct Affinities {
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Affinities {
    fn new(rows: &Matrix, perplexity: f32) -> Result<Self, MapError> {
        let n = rows.rows();
        let k = ((3.0 * perplexity) as usize).min(n - 1);
        let search = SearchOptions { metric: Metric::Euclidean, exclude_self: true, ..SearchOptions::new(k) };
        let lists = self_search(rows, &search)?;
        let conditional: Vec<Vec<f32>> =
            (0..n).into_par_iter().map(|i| conditional(lists.scores(i), perplexity)).collect();

        // (p(j|i) + p(i|j)) / 2n: each pair is added to both rows, then equal columns are merged.
        let mut counts = vec![0; n + 1];
        for i in 0..n {
            counts[i + 1] += k;
            lists.indices(i).iter().for_each(|&j| counts[j as usize + 1] += 1);
        }
        for i in 0..n {
            counts[i + 1] += counts[i];
        }
        let mut pairs = vec![(0, 0.0); counts[n]];
        let mut free = counts.clone();
        let mut put = |row: usize, column: u32, value: f32| {
            pairs[free[row]] = (column, value);
            free[row] += 1;
        };
        for i in 0..n {
            for (&j, &value) in lists.indices(i).iter().zip(&conditional[i]) {
                put(i, j, value);
                put(j as usize, i as u32, value);
            }
        }
        let half = 0.5 / n as f32;
        let merged: Vec<Vec<(u32, f32)>> = (0..n)
            .into_par_iter()
            .map(|i| {
                let mut row = pairs[counts[i]..counts[i + 1]].to_vec();
                row.sort_by_key(|&(column, _)| column);
                row.dedup_by(|second, first| {
                    let same = second.0 == first.0;
                    if same {
                        first.1 += second.1;
                    }
                    same
                });
                row
            })
            .collect();
        let mut starts = vec![0];
        starts.extend(merged.iter().scan(0, |end, row| {
            *end += row.len();
            Some(*end)
        }));
        let (columns, values) =
            merged.into_iter().flatten().map(|(column, value)| (column, value * half)).unzip();
        Ok(Self { starts, columns, values })
    }

    fn row(&self, i: usize) -> impl Iterator<Item = (usize, f32)> {
        let range = self.starts[i]..self.starts[i + 1];
        self.columns[range.clone()].iter().map(|&j| j as usize).zip(self.values[range].iter().copied())
    }
}

/// exp(-beta d^2), normalised, with the beta at which the entropy is ln(`perplexity`). `distances` ascend.
fn conditional(distances: &[f32], perplexity: f32) -> Vec<f32> {
    // Relative to the nearest neighbour, so that the largest value is exp(0) = 1.
    let nearest = f64::from(distances[0]).powi(2);
    let squares: Vec<f64> = distances.iter().map(|&d| f64::from(d).powi(2) - nearest).collect();
    let wanted = f64::from(perplexity).ln();
    let mean = squares.iter().sum::<f64>() / squares.len() as f64;
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut beta = if mean > 0.0 { mean.recip() } else { 1.0 };
    let mut weights = Vec::new();
    for _ in 0..100 {
        weights = squares.iter().map(|square| (-beta * square).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        let energy: f64 = weights.iter().zip(&squares).map(|(weight, square)| weight * square).sum();
        let entropy = sum.ln() + beta * energy;
        if (entropy - wanted).abs() < 1e-5 {
            break;
        }
        // Neighbours at equal distances have the same entropy for every beta: stop at the limits of f64.
        *(if entropy > wanted { &mut low } else { &mut high }) = beta;
        beta = if high.is_finite() { (low + high) / 2.0 } else { beta * 2.0 };
        if !beta.is_normal() || beta > 1e300 {
            break;
        }
    }
    weights.into_iter().map(|weight| weight as f32).collect()
}

/// Gradient descent with momentum and a gain per coordinate. `y` is `[x0, y0, x1, y1, ..]`.
fn descend(affinities: &Affinities, y: &mut [f32], steps: usize, progress: &mut dyn FnMut(usize, usize)) {
    let n = y.len() / 2;
    let mut tree: BarnesHutTree<f32, <Dim<2> as Morton<2>>::Word, 2> = BarnesHutTree::empty();
    let mut forces = vec![Forces::default(); n];
    let mut moves = vec![[0.0f32; 2]; n];
    let mut gains = vec![[1.0f32; 2]; n];
    for step in 0..steps {
        let exaggeration = if step < EXAGGERATED_STEPS { EXAGGERATION } else { 1.0 };
        let learning_rate = (n as f32 / exaggeration).max(LEAST_LEARNING_RATE);
        if step == EXAGGERATED_STEPS {
            moves.fill([0.0; 2]);
        }
        tree.rebuild_uniform(y);
        let at: &[f32] = y;
        forces.par_iter_mut().enumerate().with_min_len(64).for_each_init(
            <Dim<2> as Morton<2>>::empty_stack,
            |stack, (i, forces)| {
                *forces = Forces { attraction: attraction(affinities, at, i), ..Forces::default() };
                let Forces { repulsion, weight, .. } = forces;
                tree.compute_non_edge_forces(i, THETA * THETA, at, repulsion, weight, stack.as_mut());
            },
        );
        let all: f64 = forces.iter().map(|forces| f64::from(forces.weight)).sum();
        // Without two points in different places there is no repulsion, and no sum to divide it by.
        let share = if all > 0.0 { ((1.0 / all) as f32).min(f32::MAX) } else { 0.0 };

        let mut mean = [0.0f64; 2];
        for i in 0..n {
            for axis in 0..2 {
                let gradient = exaggeration * forces[i].attraction[axis] - forces[i].repulsion[axis] * share;
                let (gain, went) = (&mut gains[i][axis], &mut moves[i][axis]);
                let onward = gradient.is_sign_positive() != went.is_sign_positive();
                *gain = if onward { *gain + 0.2 } else { (*gain * 0.8).max(0.01) };
                *went = MOMENTUM * *went - learning_rate * *gain * gradient;
            }
            let length = moves[i][0].hypot(moves[i][1]);
            if length > LONGEST_MOVE {
                moves[i] = moves[i].map(|value| value * (LONGEST_MOVE / length));
            }
            for axis in 0..2 {
                y[2 * i + axis] += moves[i][axis];
                mean[axis] += f64::from(y[2 * i + axis]);
            }
        }
        let mean = mean.map(|sum| (sum / n as f64) as f32);
        y.as_chunks_mut::<2>().0.iter_mut().for_each(|[x, y]| {
            *x -= mean[0];
            *y -= mean[1];
        });
        progress(step + 1, steps);
    }
}

/// The forces on a point.
#[derive(Clone, Copy, Default)]
struct Forces {
    /// From its neighbours.
    attraction: [f32; 2],
    /// From all points, times the sum of all weights.
    repulsion: [f32; 2],
    /// The sum of 1 / (1 + d^2) over the other points.
    weight: f32,
}

fn attraction(affinities: &Affinities, y: &[f32], i: usize) -> [f32; 2] {
    let (x0, y0) = (y[2 * i], y[2 * i + 1]);
    let mut sum = [0.0; 2];
    for (j, affinity) in affinities.row(i) {
        let (dx, dy) = (x0 - y[2 * j], y0 - y[2 * j + 1]);
        let pull = affinity / (1.0 + dx * dx + dy * dy);
        sum[0] += pull * dx;
        sum[1] += pull * dy;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `groups` of `size` rows in 5 columns, jittered by a small generator of its own.
    pub(super) fn groups(groups: usize, size: usize) -> Matrix {
        let mut state = 1u32;
        let mut jitter = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let mut rows = Vec::new();
        for i in 0..groups * size {
            let group = i / size;
            rows.extend((0..5).map(|c| jitter() + 8.0 * ((group >> c) & 1) as f32));
        }
        Matrix::new(groups * size, 5, rows).unwrap()
    }

    #[test]
    fn affinities_have_the_entropy_of_the_perplexity() {
        let distances: Vec<f32> = (1..=90).map(|i| 0.3 + 0.01 * i as f32).collect();
        for perplexity in [1.5, 5.0, 30.0] {
            let weights = conditional(&distances, perplexity);
            let entropy: f64 = weights.iter().map(|&w| -f64::from(w) * f64::from(w).max(1e-300).ln()).sum();
            assert!((entropy - f64::from(perplexity).ln()).abs() < 1e-3, "{perplexity}: {entropy}");
        }
    }

    #[test]
    fn equal_distances_have_equal_affinities() {
        for distance in [0.0, 0.7] {
            let weights = conditional(&[distance; 6], 2.0);
            assert!(weights.iter().all(|w| (w - 1.0 / 6.0).abs() < 1e-6), "{weights:?}");
        }
    }

    #[test]
    fn affinities_are_symmetric_and_sum_to_one() {
        let affinities = Affinities::new(&groups(4, 20), 8.0).unwrap();
        let mut all = vec![vec![0.0; 80]; 80];
        for (i, row) in all.iter_mut().enumerate() {
            affinities.row(i).for_each(|(j, value)| row[j] += value);
        }
        assert!((all.iter().flatten().sum::<f32>() - 1.0).abs() < 1e-5);
        for i in 0..80 {
            assert_eq!(all[i][i], 0.0);
            assert!((0..80).all(|j| all[i][j] == all[j][i]));
        }
    }

    #[test]
    fn equal_rows_have_finite_points_in_one_place_and_a_note() {
        for rows in [4, 40] {
            let rows = Matrix::new(rows, 3, [0.6, 0.0, 0.8].repeat(rows)).unwrap();
            let map = layout(&rows, &Tsne { steps: 300, ..Tsne::default() }, &mut |_, _| ()).unwrap();
            assert!(map.points.iter().all(|point| *point == map.points[0]), "{:?}", map.points);
            assert!(map.points[0].iter().all(|value| value.is_finite()), "{:?}", map.points[0]);
            assert!(
                map.notes.iter().any(|note| note.ends_with("all points are in one place")),
                "{:?}",
                map.notes
            );
        }
        // Two places, each with equal rows.
        let rows = Matrix::new(40, 2, [[1.0, 0.0], [0.0, 1.0]].as_flattened().repeat(20)).unwrap();
        let map = layout(&rows, &Tsne { steps: 300, ..Tsne::default() }, &mut |_, _| ()).unwrap();
        assert!(map.points.as_flattened().iter().all(|value| value.is_finite()));
        assert_ne!(map.points[0], map.points[1]);
    }

    #[test]
    fn every_rows_nearest_point_is_of_its_group() {
        let rows = groups(6, 25);
        let map = layout(&rows, &Tsne { perplexity: 8.0, ..Tsne::default() }, &mut |_, _| ()).unwrap();
        for (i, a) in map.points.iter().enumerate() {
            let apart = |j: &usize| {
                let b = map.points[*j];
                f64::from(a[0] - b[0]).hypot(f64::from(a[1] - b[1]))
            };
            let nearest = (0..150).filter(|&j| j != i).min_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap();
            assert_eq!(nearest / 25, i / 25, "row {i}");
        }
    }

    #[test]
    fn descent_lowers_the_divergence() {
        let affinities = Affinities::new(&groups(5, 30), 10.0).unwrap();
        // KL(P | Q) in f64, from its definition.
        let divergence = |y: &[f32]| {
            let weight = |i: usize, j: usize| {
                let d = [0, 1].map(|axis| f64::from(y[2 * i + axis]) - f64::from(y[2 * j + axis]));
                1.0 / (1.0 + d[0] * d[0] + d[1] * d[1])
            };
            let pairs = || (0..150).flat_map(|i| (0..150).map(move |j| (i, j))).filter(|(i, j)| i != j);
            let all: f64 = pairs().map(|(i, j)| weight(i, j)).sum();
            (0..150)
                .flat_map(|i| affinities.row(i).map(move |(j, p)| (i, j, f64::from(p))))
                .filter(|&(_, _, p)| p > 0.0)
                .map(|(i, j, p)| p * (p * all / weight(i, j)).ln())
                .sum::<f64>()
        };
        let mut y = start(&groups(5, 30));
        let before = divergence(&y);
        descend(&affinities, &mut y, 750, &mut |_, _| ());
        let after = divergence(&y);
        assert!(after < 0.5 * before, "{before} {after}");
    }
}
