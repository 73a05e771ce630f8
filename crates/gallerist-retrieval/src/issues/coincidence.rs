//! Classes that should be one: two classes whose images are mixed.
//!
//! In the pooled images of two classes, the statistic counts how often one of the k nearest neighbours of an image has
//! the same label (Schilling, JASA 1986; Henze, Annals of Statistics 1988). If the labels are exchangeable, which is the
//! case when two classes are one, its expectation and variance given the neighbours follow from the numbers of images
//! and the graph of the neighbours alone: the probabilities that two, three or four different images have given labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::neighbours::Neighbour;
use super::options::IssueOptions;
use crate::search::{Metric, RankedLists, SearchOptions, self_search};
use crate::{Matrix, Result};

/// An image, by its row, and its neighbours.
type Example = (usize, Vec<Neighbour>);

/// Two classes whose images are mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SameClass {
    /// The two labels.
    pub labels: [u32; 2],
    /// Their numbers of images.
    pub images: [usize; 2],
    /// Neighbours of the other class, divided by their expected number if the labels are exchangeable: 0 for two
    /// separate classes, 1 for classes that cannot be told apart.
    pub mixing: f64,
    /// The neighbours that were counted.
    pub coincidence: Coincidence,
    /// Of each class the image with most neighbours of the other, and its neighbours in the two classes.
    pub examples: [(usize, Vec<Neighbour>); 2],
}

/// The number of nearest neighbours that have the label of their image, compared with exchangeable labels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coincidence {
    /// Neighbours of all images.
    pub neighbours: usize,
    /// Neighbours with the label of their image.
    pub same: usize,
    /// The expectation of `same`.
    pub expected: f64,
    /// The standard deviation of `same`.
    pub deviation: f64,
}

impl Coincidence {
    /// Standard deviations above the expectation: below 2, the two classes may be one; 0 without deviation.
    pub fn score(&self) -> f64 {
        if self.deviation == 0.0 { 0.0 } else { (self.same as f64 - self.expected) / self.deviation }
    }

    /// See [`SameClass::mixing`]; 0 if no neighbour can be of the other class.
    pub fn mixing(&self) -> f64 {
        let others = self.neighbours as f64 - self.expected;
        if others <= 0.0 { 0.0 } else { (self.neighbours - self.same) as f64 / others }
    }
}

/// Images that each of two classes has at least; fewer say nothing.
const LEAST_IMAGES: usize = 4;

/// Pairs are examined if at least this share of the neighbours in the lists of both classes is of the other class.
/// Exchangeable labels give about half.
const LEAST_SHARE: f64 = 0.1;

/// The coincidences of a graph of neighbours with the labels `is_first`.
///
/// # Panics
/// When a neighbour is no row of the graph or there is not one label per row.
///
/// ```
/// use gallerist_retrieval::issues::coincidence;
///
/// // Four images in two pairs of mutual neighbours, one pair per class.
/// let found = coincidence(&[vec![1], vec![0], vec![3], vec![2]], &[true, true, false, false]);
/// assert_eq!(found.same, 4);
/// assert!((found.expected - 4.0 / 3.0).abs() < 1e-12);
/// ```
pub fn coincidence(neighbours: &[Vec<usize>], is_first: &[bool]) -> Coincidence {
    assert_eq!(neighbours.len(), is_first.len(), "a label for each row");
    let edges: Vec<(usize, usize)> = neighbours
        .iter()
        .enumerate()
        .flat_map(|(row, of)| of.iter().map(move |&other| (row, other)))
        .collect();
    let mut degrees = vec![0usize; neighbours.len()];
    for &(a, b) in &edges {
        degrees[a] += 1;
        degrees[b] += 1;
    }
    let mutual = edges.iter().filter(|&&(a, b)| neighbours[b].contains(&a)).count() as f64;
    let first = is_first.iter().filter(|&&first| first).count() as f64;
    let second = neighbours.len() as f64 - first;
    // n (n - 1) ... with `count` factors.
    let falling = |n: f64, count: i32| (0..count).map(|i| n - f64::from(i)).product::<f64>().max(0.0);
    let probability = |count: i32, mixed: f64| {
        let all = falling(first + second, count);
        if all == 0.0 { 0.0 } else { (falling(first, count) + falling(second, count) + mixed) / all }
    };
    let two = probability(2, 0.0);
    let three = probability(3, 0.0);
    let four = probability(4, 2.0 * falling(first, 2) * falling(second, 2));
    // Ordered pairs of edges: with themselves, with their reverse, with one common row, with none.
    let count = edges.len() as f64;
    let sharing = degrees.iter().map(|&d| (d * d.saturating_sub(1)) as f64).sum::<f64>() - 2.0 * mutual;
    let apart = count * count - count - mutual - sharing;
    let expected = count * two;
    let second_moment = (count + mutual) * two + sharing * three + apart * four;
    Coincidence {
        neighbours: edges.len(),
        same: edges.iter().filter(|&&(a, b)| is_first[a] == is_first[b]).count(),
        expected,
        deviation: (second_moment - expected * expected).max(0.0).sqrt(),
    }
}

/// The pairs of classes with at least the mixing of the options.
pub(super) fn find(
    matrix: &Matrix,
    labels: &[u32],
    lists: &RankedLists,
    options: &IssueOptions,
) -> Result<Vec<SameClass>> {
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    labels.iter().enumerate().for_each(|(row, &label)| classes.entry(label).or_default().push(row));
    let mut same: BTreeMap<u32, usize> = BTreeMap::new();
    let mut crossing: BTreeMap<[u32; 2], usize> = BTreeMap::new();
    for (row, (neighbours, _)) in lists.iter().enumerate() {
        for &other in neighbours {
            let (a, b) = (labels[row], labels[other as usize]);
            if a == b {
                *same.entry(a).or_default() += 1;
            } else {
                *crossing.entry([a.min(b), a.max(b)]).or_default() += 1;
            }
        }
    }
    let same_of = |label: &u32| same.get(label).copied().unwrap_or(0);
    let mut found = Vec::new();
    for (pair, count) in crossing {
        let of: [&Vec<usize>; 2] = [&classes[&pair[0]], &classes[&pair[1]]];
        let inside = same_of(&pair[0]) + same_of(&pair[1]);
        if of.iter().any(|rows| rows.len() < LEAST_IMAGES)
            || (count as f64) < LEAST_SHARE * (count + inside) as f64
        {
            continue;
        }
        let (coincidence, examples) = of_classes(matrix, of, options.per_class)?;
        let mixing = coincidence.mixing();
        if mixing >= options.mixing {
            found.push(SameClass {
                labels: pair,
                images: [of[0].len(), of[1].len()],
                mixing,
                coincidence,
                examples,
            });
        }
    }
    found.sort_by(|a, b| b.mixing.total_cmp(&a.mixing).then(a.labels.cmp(&b.labels)));
    Ok(found)
}

/// The coincidences of two classes and an example of each, each image with `k` neighbours or fewer than its class has
/// images.
fn of_classes(matrix: &Matrix, classes: [&Vec<usize>; 2], k: usize) -> Result<(Coincidence, [Example; 2])> {
    let rows: Vec<usize> = classes.into_iter().flatten().copied().collect();
    let k = k.min(classes[0].len() - 1).min(classes[1].len() - 1);
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(k) };
    let lists = self_search(&matrix.select(&rows), &options)?;
    let neighbours: Vec<Vec<usize>> =
        lists.iter().map(|(indices, _)| indices.iter().map(|&index| index as usize).collect()).collect();
    let is_first: Vec<bool> = (0..rows.len()).map(|row| row < classes[0].len()).collect();
    let crossing =
        |row: usize| neighbours[row].iter().filter(|&&other| is_first[other] != is_first[row]).count();
    let example = |of: std::ops::Range<usize>| {
        let row = of.rev().max_by_key(|&row| crossing(row)).expect("a class has images");
        let found = neighbours[row].iter().zip(lists.scores(row));
        let found = found.map(|(&other, &score)| Neighbour { row: rows[other], distance: score.into() });
        (rows[row], found.collect())
    };
    let examples = [example(0..classes[0].len()), example(classes[0].len()..rows.len())];
    Ok((coincidence(&neighbours, &is_first), examples))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expectation and deviation over all labellings with the same numbers of images.
    fn enumerated(neighbours: &[Vec<usize>], first: u32) -> (f64, f64) {
        let rows = neighbours.len();
        let counts: Vec<f64> = (0u32..1 << rows)
            .filter(|labels| labels.count_ones() == first)
            .map(|labels| {
                let is = |row: usize| labels >> row & 1;
                let edges = neighbours.iter().enumerate().flat_map(|(a, of)| of.iter().map(move |&b| (a, b)));
                edges.filter(|&(a, b)| is(a) == is(b)).count() as f64
            })
            .collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn the_moments_are_those_of_all_labellings() {
        let graphs: [Vec<Vec<usize>>; 4] = [
            vec![vec![1], vec![0], vec![1], vec![2], vec![3]],
            vec![vec![1, 2], vec![0, 2], vec![3, 1], vec![4, 5], vec![3, 5], vec![0, 4], vec![0, 1]],
            vec![vec![1, 2, 3], vec![0, 2, 3], vec![0, 1, 3], vec![0, 1, 2]],
            vec![vec![7], vec![7], vec![7], vec![7], vec![7], vec![7], vec![7], vec![0]],
        ];
        for graph in &graphs {
            for first in 1..graph.len() as u32 {
                let is_first: Vec<bool> = (0..graph.len()).map(|row| (row as u32) < first).collect();
                let found = coincidence(graph, &is_first);
                let (mean, deviation) = enumerated(graph, first);
                assert!((found.expected - mean).abs() < 1e-9, "{first} of {graph:?}: {found:?}, {mean}");
                assert!(
                    (found.deviation - deviation).abs() < 1e-6,
                    "{first} of {graph:?}: {found:?}, {deviation}"
                );
            }
        }
    }

    #[test]
    fn one_class_and_no_neighbours_have_no_score() {
        let empty = coincidence(&[], &[]);
        assert_eq!((empty.score(), empty.mixing()), (0.0, 0.0));
        let one = coincidence(&[vec![1], vec![0]], &[true, true]);
        assert_eq!((one.score(), one.mixing()), (0.0, 0.0));
    }
}
