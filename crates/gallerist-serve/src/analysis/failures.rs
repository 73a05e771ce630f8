//! Queries by how well they are answered, and the classes that are taken for each other.

use std::collections::HashMap;

use gallerist_retrieval::Matrix;
use gallerist_retrieval::eval::{EvalOptions, Measure, Measured, Relevance, SharedLabels, Side, Task};
use gallerist_retrieval::labels::{are_sets, encode, encode_sets};
use gallerist_retrieval::search::Metric;

use super::{Nearest, Snapshot};
use crate::Result;
use crate::gallery::same_class;

/// How well every row is answered as a query against all the others.
pub(crate) struct Quality {
    /// The average precision of each row; `None` where nothing is relevant to it.
    pub(crate) precision: Vec<Option<f64>>,
    /// The rank of the first relevant item.
    first: Vec<u32>,
    /// Relevant items.
    matches: Vec<u32>,
}

impl Quality {
    pub(crate) fn new(rows: &Matrix, labels: &[String]) -> Result<Self> {
        let options =
            EvalOptions { metric: Metric::Euclidean, measures: vec![Measure::Map, Measure::ReciprocalRank] };
        if are_sets(labels) {
            let (sets, _) = encode_sets(labels, &[]);
            let measured = Task::every_row(Side::sets(rows, &sets)).measure(&options)?;
            let shared = SharedLabels::new(&sets, &sets);
            let mut relevant = Vec::new();
            let matches = (0..labels.len()).map(|row| {
                relevant.clear();
                shared.relevant(row, &mut relevant);
                // The row itself is among them, unless it has no label.
                (relevant.len() as u32).saturating_sub(1)
            });
            return Ok(Self::read(&measured, matches.collect()));
        }
        let encoded = encode(labels);
        let mut counts = vec![0u32; encoded.names.len()];
        encoded.ids.iter().for_each(|&class| counts[class as usize] += 1);
        // What has no label is a class of its own, each.
        let mut next = counts.len() as u32;
        let mut matches = Vec::with_capacity(labels.len());
        let classes: Vec<u32> = encoded
            .ids
            .iter()
            .zip(labels)
            .map(|(&class, label)| {
                if label.is_empty() {
                    next += 1;
                    matches.push(0);
                    return next - 1;
                }
                matches.push(counts[class as usize] - 1);
                class
            })
            .collect();
        let measured = Task::every_row(Side::classes(rows, &classes)).measure(&options)?;
        Ok(Self::read(&measured, matches))
    }

    fn read(measured: &Measured, matches: Vec<u32>) -> Self {
        let queries = &measured.queries;
        let rows = 0..queries.len();
        Self {
            precision: rows.clone().map(|row| queries.has_match(row).then(|| queries.of(row)[0])).collect(),
            first: rows.map(|row| (1.0 / queries.of(row)[1]).round() as u32).collect(),
            matches,
        }
    }
}

/// A query and how it is answered.
pub(crate) struct Failure {
    pub(crate) id: u64,
    pub(crate) precision: f64,
    pub(crate) matches: u32,
    /// The rank of the first relevant item.
    pub(crate) first: u32,
    /// The nearest item, and how far it is.
    pub(crate) nearest: (u64, f32),
}

/// The queries to which something is relevant, the worst first.
pub(crate) struct Failures {
    pub(crate) queries: Vec<Failure>,
    pub(crate) mean: f64,
}

impl Failures {
    pub(super) fn new(snapshot: &Snapshot, nearest: &Nearest) -> Result<Self> {
        let quality = Quality::new(&snapshot.rows, &snapshot.labels)?;
        let ids = &snapshot.ids;
        let mut queries: Vec<Failure> = (0..ids.len())
            .filter_map(|row| {
                let (near, distance) = nearest[row];
                Some(Failure {
                    id: ids[row],
                    precision: quality.precision[row]?,
                    matches: quality.matches[row],
                    first: quality.first[row],
                    nearest: (ids[near], distance),
                })
            })
            .collect();
        let mean = queries.iter().map(|query| query.precision).sum::<f64>() / queries.len().max(1) as f64;
        // Equal ones stay in the order of the gallery.
        queries.sort_by(|a, b| a.precision.total_cmp(&b.precision));
        Ok(Self { queries, mean })
    }
}

/// A class and another that its items are taken for.
pub(crate) struct Confusion {
    pub(crate) class: String,
    pub(crate) taken_for: String,
    /// Items of the class whose nearest item is of the other.
    pub(crate) count: usize,
    /// The same as a share of the class's items.
    pub(crate) share: f64,
    /// The closest of these pairs.
    pub(crate) example: (u64, u64),
}

/// All such pairs of classes, the most frequent first.
pub(crate) struct Confusions(pub(crate) Vec<Confusion>);

impl Confusions {
    pub(super) fn new(snapshot: &Snapshot, nearest: &Nearest) -> Self {
        let labels = &snapshot.labels;
        let mut sizes: HashMap<&str, usize> = HashMap::new();
        // Count, and distance and rows of the closest.
        let mut pairs: HashMap<(&str, &str), (usize, f32, usize, usize)> = HashMap::new();
        for (row, &(near, distance)) in nearest.iter().enumerate() {
            let (a, b) = (labels[row].as_str(), labels[near].as_str());
            *sizes.entry(a).or_default() += 1;
            if a.is_empty() || b.is_empty() || same_class(a, b) {
                continue;
            }
            let pair = pairs.entry((a, b)).or_insert((0, f32::INFINITY, row, near));
            pair.0 += 1;
            if distance < pair.1 {
                *pair = (pair.0, distance, row, near);
            }
        }
        let mut found: Vec<_> = pairs.into_iter().collect();
        found.sort_by(|((a, b), x), ((c, d), y)| {
            let share = |class: &str, count: usize| count as f64 / sizes[class] as f64;
            (y.0.cmp(&x.0)).then(share(c, y.0).total_cmp(&share(a, x.0))).then((a, b).cmp(&(c, d)))
        });
        let confusion =
            |((a, b), (count, _, row, near)): ((&str, &str), (usize, f32, usize, usize))| Confusion {
                class: a.to_owned(),
                taken_for: b.to_owned(),
                count,
                share: count as f64 / sizes[a] as f64,
                example: (snapshot.ids[row], snapshot.ids[near]),
            };
        Self(found.into_iter().map(confusion).collect())
    }
}
