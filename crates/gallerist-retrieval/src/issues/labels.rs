//! Likely wrong labels: images that are closer to another class than to their own.
//!
//! The distance of an image to a class is the mean distance to the m nearest images of the class. Near-duplicates of the
//! image are left out: a copy of an image with a wrong label has the same wrong label and would confirm it. m is
//! [`per_class`](super::options::IssueOptions::per_class), but at most half of the other images of the image's own class
//! (rounded up), so that the few images of a small class need not all be close. All classes are compared at the same m. Of
//! a class with fewer than m images, all of them count. A class of one image is left out, unless m is 1.
//!
//! [`noise`](super::noise) turns the distances into the probability that a label is wrong.

use serde::{Deserialize, Serialize};

use super::duplicates::Pair;
use super::neighbours::{Neighbour, distance, neighbours};
use super::noise::{ClassDistances, Noise};
use super::options::IssueOptions;
use crate::product::Panels;
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, SearchOptions, search};
use crate::{Matrix, Result};

/// A row whose label is likely wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrongLabel {
    /// The row.
    pub row: usize,
    /// The probability that its label is wrong.
    pub probability: f64,
    /// Its label.
    pub label: u32,
    /// The nearest other class.
    pub suggested: u32,
    /// The distance to the images of its label.
    pub own_distance: f64,
    /// The distance to the images of the suggested class.
    pub suggested_distance: f64,
    /// The nearest images of its label.
    pub own: Vec<Neighbour>,
    /// The nearest images of the suggested class.
    pub against: Vec<Neighbour>,
}

/// Most other classes whose distances are kept for an image. Farther classes have next to no share of the probability.
const CLASSES: usize = 255;

/// The rows in the order of their classes.
pub(super) struct Classes {
    order: Vec<usize>,
    /// Class c has `starts[c]..starts[c + 1]` of the order.
    starts: Vec<usize>,
    /// The label of each class.
    ids: Vec<u32>,
    /// The class of each place of the order.
    of_place: Vec<u32>,
}

impl Classes {
    /// Without labels, all rows are one class.
    pub(super) fn new(labels: Option<&[u32]>, rows: usize) -> Self {
        let label = |row: usize| labels.map_or(0, |labels| labels[row]);
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by_key(|&row| label(row));
        let (mut starts, mut ids, mut of_place) = (Vec::new(), Vec::new(), Vec::new());
        for (place, &row) in order.iter().enumerate() {
            if ids.last() != Some(&label(row)) {
                starts.push(place);
                ids.push(label(row));
            }
            of_place.push(ids.len() as u32 - 1);
        }
        starts.push(rows);
        Self { order, starts, ids, of_place }
    }

    pub(super) fn order(&self) -> &[usize] {
        &self.order
    }

    fn len(&self) -> usize {
        self.ids.len()
    }
}

/// The result of comparing a row with all others.
pub(super) struct Compared {
    /// `None` if the class has no other image that is not a near-duplicate.
    distances: Option<ClassDistances>,
    /// The near-duplicates at later places of the order, as rows.
    pub(super) duplicates: Vec<Pair>,
}

/// Compares each place of the order with all others.
pub(super) fn compare(packed: &Panels, classes: &Classes, radius: f32, per_class: usize) -> Vec<Compared> {
    score_rows(Metric::Euclidean, (packed, packed), Against::All, |place, scores| {
        let distance = |other: usize| Metric::Euclidean.present(scores[other]);
        let row = |place: usize| classes.order[place] as u32;
        let duplicates = (place + 1..scores.len())
            .filter(|&other| distance(other) <= radius)
            .map(|other| (row(place), row(other), distance(other)))
            .collect();
        let own = classes.of_place[place] as usize;
        let members = |class: usize| {
            (classes.starts[class]..classes.starts[class + 1])
                .filter(|&other| other != place)
                .map(distance)
                .filter(|&distance| distance > radius)
        };
        let depth = per_class.min(members(own).count().div_ceil(2));
        let distances = (depth > 0).then(|| {
            let own_distance = mean_of_nearest(members(own), depth).expect("the class has that many").0;
            let least = depth.min(2);
            let mut others: Vec<(u32, f32)> = (0..classes.len())
                .filter(|&class| class != own)
                .filter_map(|class| {
                    let (mean, count) = mean_of_nearest(members(class), depth)?;
                    (count >= least).then_some((class as u32, mean))
                })
                .collect();
            others.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            others.truncate(CLASSES);
            ClassDistances { own: own_distance, others }
        });
        Compared { distances, duplicates }
    })
}

/// The mean of the smallest `depth` values (or of all, if there are fewer), and their number; `None` without values.
fn mean_of_nearest(values: impl Iterator<Item = f32>, depth: usize) -> Option<(f32, usize)> {
    let mut nearest: Vec<f32> = Vec::with_capacity(depth);
    for value in values {
        if nearest.len() == depth {
            if nearest.last().is_some_and(|&worst| value >= worst) {
                continue;
            }
            nearest.pop();
        }
        nearest.insert(nearest.partition_point(|&other| other <= value), value);
    }
    let sum: f64 = nearest.iter().map(|&value| f64::from(value)).sum();
    (!nearest.is_empty()).then(|| ((sum / nearest.len() as f64) as f32, nearest.len()))
}

/// What the labels of a set look like.
pub(super) struct Judged {
    /// The likely wrong ones, by falling probability.
    pub wrong: Vec<WrongLabel>,
    /// The estimated share of random labels.
    pub noise_rate: f64,
    /// Rows whose label cannot be judged.
    pub not_judged: usize,
}

/// Fits the noise of the labels and finds the likely wrong ones.
pub(super) fn judge(
    matrix: &Matrix,
    labels: &[u32],
    classes: &Classes,
    compared: &[Compared],
    radius: f32,
    options: &IssueOptions,
) -> Result<Judged> {
    let judged: Vec<(usize, &ClassDistances)> = compared
        .iter()
        .enumerate()
        .filter_map(|(place, row)| Some((classes.order[place], row.distances.as_ref()?)))
        .collect();
    let distances: Vec<&ClassDistances> = judged.iter().map(|&(_, distances)| distances).collect();
    let noise = Noise::fit(&distances, classes.len());
    let not_judged = matrix.rows() - judged.len();
    let mut ranked: Vec<(f64, WrongLabel)> = judged
        .into_iter()
        .filter_map(|(row, distances)| {
            let &(class, suggested_distance) = distances.others.first()?;
            let log_share = distances.log_share(noise.temperature);
            let probability = noise.probability(log_share, classes.len());
            let wrong = WrongLabel {
                row,
                probability,
                label: labels[row],
                suggested: classes.ids[class as usize],
                own_distance: f64::from(distances.own),
                suggested_distance: f64::from(suggested_distance),
                own: Vec::new(),
                against: Vec::new(),
            };
            (probability >= options.probability).then_some((log_share, wrong))
        })
        .collect();
    // By the share and not by the probability, which rounds to 1 for several rows.
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.row.cmp(&b.1.row)));
    let mut wrong: Vec<WrongLabel> = ranked.into_iter().map(|(_, wrong)| wrong).collect();
    add_neighbours(matrix, labels, radius, options.per_class, &mut wrong)?;
    Ok(Judged { wrong, noise_rate: noise.rate, not_judged })
}

/// Adds to each row the nearest images of its label and of the suggested class, without near-duplicates.
fn add_neighbours(
    matrix: &Matrix,
    labels: &[u32],
    radius: f32,
    count: usize,
    wrong: &mut [WrongLabel],
) -> Result<()> {
    let rows: Vec<usize> = wrong.iter().map(|wrong| wrong.row).collect();
    let queries = matrix.select(&rows);
    let near = |query: usize, row: usize| distance(queries.row(query), matrix.row(row)) as f32 <= radius;
    let nearest = |class: &(dyn Fn(usize) -> u32 + Sync)| -> Result<Vec<Vec<Neighbour>>> {
        let filter =
            |query: usize, row: usize| labels[row] == class(query) && row != rows[query] && !near(query, row);
        let search_options =
            SearchOptions { metric: Metric::Euclidean, filter: Some(&filter), ..SearchOptions::new(count) };
        let lists = search(&queries, matrix, &search_options)?;
        Ok(lists.iter().map(neighbours).collect())
    };
    let own = nearest(&|query| wrong[query].label)?;
    let against = nearest(&|query| wrong[query].suggested)?;
    for ((wrong, own), against) in wrong.iter_mut().zip(own).zip(against) {
        (wrong.own, wrong.against) = (own, against);
    }
    Ok(())
}
