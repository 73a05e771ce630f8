//! Re-ranking by k-reciprocal neighbours.

use std::fmt;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::sparse::Sparse;
use super::{check, check_metric, dot};
use crate::eval::Rescore;
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, RankedLists, SearchOptions, pack_rows, rank_key, self_search};
use crate::{Error, Matrix, MatrixView, Result};

/// Re-ranking by k-reciprocal neighbours (Zhong, Zheng, Cao, Li: Re-ranking Person
/// Re-identification with k-reciprocal Encoding, CVPR 2017).
///
/// Queries and gallery together are the images i, j. N(i, k) is i itself and its k nearest others.
/// - `R(i, k)`, equation 4: the j in N(i, k) with i in N(j, k).
/// - `R*(i)`, equation 5: R(i, k1), and for each j in it R(j, k1 / 2) if more than 2/3 of that set is
///   in R(i, k1). (k1 / 2 is rounded to the even number, as NumPy does in the published code.)
/// - `V(i, j) = exp(-d(i, j)) / sum over R*(i)` for j in R*(i), else 0, equation 7, with d the squared
///   distance over the largest squared distance of i, as in the published code.
/// - Local expansion, equation 11: V(i) becomes the mean of V over the first k2 of N(i, k1).
/// - `jaccard(i, j) = 1 - m / (2 - m)`, m the sum of the minima of V(i) and V(j), equation 10.
/// - The distance is `(1 - lambda) jaccard + lambda d`, equation 12, from 0 to 1.
///
/// Where the published code leaves it to an unstable sort, an image is its own first neighbour and
/// equal distances go to the lower index. For queries that are the gallery each image is there once.
///
/// Memory: the vectors V without their zeros, tens to hundreds of values of 8 bytes per image,
/// and all distances of 8 to 48 queries per thread. Time: that of three exact searches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KReciprocal {
    /// Neighbours that must be mutual; 20 in the paper.
    pub k1: usize,
    /// Neighbours, the image itself among them, whose vectors are averaged; 6 in the paper, 1 for none.
    pub k2: usize,
    /// The share of the original distance, from 0 to 1; 0.3 in the paper.
    pub lambda: f64,
}

impl Default for KReciprocal {
    fn default() -> Self {
        Self { k1: 20, k2: 6, lambda: 0.3 }
    }
}

impl fmt::Display for KReciprocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k-reciprocal neighbours (k1 {}, k2 {}, lambda {})", self.k1, self.k2, self.lambda)
    }
}

/// What [`KReciprocal`] knows of queries and gallery: ready to rank.
pub struct Reranker {
    lambda: f64,
    metric: Metric,
    /// V of each query.
    queries: Sparse,
    /// V of the gallery by column: for each image the gallery items that have it as neighbour.
    carriers: Sparse,
    /// The largest squared distance of each query.
    farthest: Vec<f64>,
}

impl KReciprocal {
    /// Finds the neighbours of all images: of `queries` and `gallery`, or of the gallery alone where
    /// its rows are the queries.
    ///
    /// # Errors
    /// [`Error::Option`] for k1 or k2 of 0, for k2 beyond k1 + 1, for a lambda outside 0 to 1 and for
    /// the inner product; and as [`search`](crate::search::search()).
    pub fn prepare(
        &self,
        queries: Option<MatrixView>,
        gallery: MatrixView,
        metric: Metric,
    ) -> Result<Reranker> {
        self.check()?;
        check_metric(metric)?;
        check(queries, gallery)?;
        let joined = queries.map(|queries| {
            let data = [queries.as_slice(), gallery.as_slice()].concat();
            Matrix::new(queries.rows() + gallery.rows(), gallery.cols(), data).expect("two matrices")
        });
        let all = joined.as_ref().map_or(gallery, Matrix::view);
        let first = queries.map_or(0, |queries| queries.rows());
        let count = queries.map_or(gallery.rows(), |queries| queries.rows());

        let listed = self.k1.min(all.rows());
        let lists = self_search(all, &SearchOptions { metric, ..SearchOptions::new(listed) })?;
        let neighbours = Neighbours(&lists);
        let farthest = farthest(all, metric)?;
        let rows = match metric {
            Metric::Cosine => all.to_matrix().l2_normalized().0,
            _ => all.to_matrix(),
        };
        let squared = |a: usize, b: usize| squared_distance(metric, rows.row(a), rows.row(b));
        let images = 0..all.rows();
        let near: Vec<Vec<u32>> =
            images.clone().into_par_iter().map(|i| neighbours.reciprocal(i, self.k1)).collect();
        let half = (self.k1 as f64 / 2.0).round_ties_even() as usize;
        let nearer: Vec<Vec<u32>> =
            images.clone().into_par_iter().map(|i| neighbours.reciprocal(i, half)).collect();
        let vectors: Vec<Vec<(u32, f32)>> = images
            .clone()
            .into_par_iter()
            .map(|i| {
                let weight = |&j: &u32| (-relative(squared(i, j as usize), farthest[i])).exp();
                let wide = widened(&near[i], &nearer);
                let weights: Vec<f64> = wide.iter().map(weight).collect();
                let sum: f64 = weights.iter().sum();
                wide.into_iter().zip(weights).map(|(j, weight)| (j, (weight / sum) as f32)).collect()
            })
            .collect();
        drop((near, nearer, rows));
        let vectors = Sparse::new(match self.k2 {
            1 => vectors,
            k2 => images.into_par_iter().map(|i| mean(&vectors, neighbours.of(i, k2 - 1))).collect(),
        });
        let carriers = vectors.transposed(first, all.rows());
        let queries = Sparse::new((0..count).map(|i| vectors.row(i).collect()));
        Ok(Reranker { lambda: self.lambda, metric, queries, carriers, farthest: farthest[..count].to_vec() })
    }

    fn check(&self) -> Result<()> {
        let refuse = |option, wanted, found: &dyn fmt::Display| {
            Err(Error::Option { option, wanted, found: found.to_string() })
        };
        if self.k1 == 0 {
            return refuse("k1", "at least 1", &self.k1);
        }
        if self.k2 == 0 || self.k2 - 1 > self.k1 {
            return refuse("k2", "from 1 to k1 + 1", &self.k2);
        }
        if !(0.0..=1.0).contains(&self.lambda) {
            return refuse("lambda", "from 0 to 1", &self.lambda);
        }
        Ok(())
    }
}

impl Reranker {
    /// The `k` best of `gallery` for each of `queries`, by the new distance: the matrices, and their
    /// order, as they were [prepared](KReciprocal::prepare).
    ///
    /// For queries that are the gallery give it twice; each row is then left out of its own list.
    ///
    /// # Errors
    /// [`Error::Option`] for `k` = 0, [`Error::Count`] for matrices of another number of rows.
    pub fn search<'a>(
        &self,
        queries: impl Into<MatrixView<'a>>,
        gallery: impl Into<MatrixView<'a>>,
        k: usize,
    ) -> Result<RankedLists> {
        let (queries, gallery) = (queries.into(), gallery.into());
        check(Some(queries), gallery)?;
        if k == 0 {
            return Err(Error::Option { option: "k", wanted: "at least 1", found: "0".to_owned() });
        }
        let images = self.carriers.rows();
        let same = images == self.queries.rows();
        let items = if same { images } else { images - self.queries.rows() };
        for (what, wanted, found) in
            [("queries", self.queries.rows(), queries.rows()), ("gallery rows", items, gallery.rows())]
        {
            if wanted != found {
                return Err(Error::Count { what, rows: "rows that were prepared", wanted, found });
            }
        }
        let pack = |matrix: MatrixView, what| {
            pack_rows(matrix, &(0..matrix.rows()).collect::<Vec<_>>(), what, self.metric)
        };
        let (packed_queries, packed_gallery) = (pack(queries, "queries")?, pack(gallery, "gallery")?);
        let rows = (&packed_queries, &packed_gallery);
        let lists = score_rows(self.metric, rows, Against::All, |query, scores| {
            self.rescore(query, scores);
            let mut keys: Vec<u64> =
                (0..).zip(&*scores).map(|(item, &score)| rank_key(score, item)).collect();
            if same {
                keys.swap_remove(query);
            }
            if k < keys.len() {
                keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
                keys.truncate(k);
            }
            keys.sort_unstable_by(|a, b| b.cmp(a));
            keys
        });
        Ok(RankedLists::from_keys(k, lists, |score| 0.0 - score))
    }
}

impl Rescore for Reranker {
    fn rescore(&self, query: usize, scores: &mut [f32]) {
        let mut shared = vec![0.0f64; scores.len()];
        for (image, value) in self.queries.row(query) {
            for (item, other) in self.carriers.row(image as usize) {
                shared[item as usize] += f64::from(value.min(other));
            }
        }
        for (score, shared) in scores.iter_mut().zip(shared) {
            let distance = relative(squared_of_score(self.metric, *score), self.farthest[query]);
            let jaccard = 1.0 - shared / (2.0 - shared);
            *score = -(jaccard * (1.0 - self.lambda) + distance * self.lambda) as f32;
        }
    }
}

/// The ranked lists of all images, each image itself left out.
struct Neighbours<'a>(&'a RankedLists);

impl Neighbours<'_> {
    /// N(i, k): the image itself, then its k nearest others.
    fn of(&self, image: usize, k: usize) -> impl Iterator<Item = u32> {
        let others = self.0.indices(image);
        std::iter::once(image as u32).chain(others[..k.min(others.len())].iter().copied())
    }

    /// R(i, k), rising.
    fn reciprocal(&self, image: usize, k: usize) -> Vec<u32> {
        let mutual = |&other: &u32| self.of(other as usize, k).any(|back| back as usize == image);
        let mut found: Vec<u32> = self.of(image, k).filter(mutual).collect();
        found.sort_unstable();
        found
    }
}

/// R*(i) from R(i, k1) and all R(j, k1 / 2), rising.
fn widened(near: &[u32], nearer: &[Vec<u32>]) -> Vec<u32> {
    let mut wide = near.to_vec();
    for &j in near {
        let others = &nearer[j as usize];
        let common = others.iter().filter(|&other| near.binary_search(other).is_ok()).count();
        if 3 * common > 2 * others.len() {
            wide.extend(others);
        }
    }
    wide.sort_unstable();
    wide.dedup();
    wide
}

/// The mean of some vectors.
fn mean(vectors: &[Vec<(u32, f32)>], of: impl Iterator<Item = u32>) -> Vec<(u32, f32)> {
    let (mut entries, mut count) = (Vec::new(), 0usize);
    for image in of {
        entries.extend_from_slice(&vectors[image as usize]);
        count += 1;
    }
    // Stable: equal columns stay in the order of the neighbours, so the sum is always the same.
    entries.sort_by_key(|&(column, _)| column);
    let same = entries.chunk_by(|a, b| a.0 == b.0);
    same.map(|same| {
        let sum: f64 = same.iter().map(|&(_, value)| f64::from(value)).sum();
        (same[0].0, (sum / count as f64) as f32)
    })
    .collect()
}

/// The largest squared distance of each row to any.
fn farthest(all: MatrixView, metric: Metric) -> Result<Vec<f64>> {
    let packed = pack_rows(all, &(0..all.rows()).collect::<Vec<_>>(), "embeddings", metric)?;
    Ok(score_rows(metric, (&packed, &packed), Against::All, |_, scores| {
        squared_of_score(metric, scores.iter().copied().fold(f32::INFINITY, f32::min))
    }))
}

/// `|a - b|^2`; for the cosine that of the normalised rows, `2 - 2 cos`.
fn squared_of_score(metric: Metric, score: f32) -> f64 {
    match metric {
        Metric::Cosine => (2.0 - 2.0 * f64::from(score)).max(0.0),
        _ => f64::from(score) * f64::from(score),
    }
}

/// The same from the rows, which are normalised for the cosine.
fn squared_distance(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    match metric {
        Metric::Cosine => (2.0 - 2.0 * dot(a, b)).max(0.0),
        _ => crate::matrix::squared_distance(a, b),
    }
}

/// A squared distance as share of the largest; 0 where all are 0.
fn relative(squared: f64, largest: f64) -> f64 {
    if largest > 0.0 { squared / largest } else { 0.0 }
}
