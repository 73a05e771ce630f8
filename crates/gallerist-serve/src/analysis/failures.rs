//! The queries with the lowest average precision, and the classes that are confused.

use std::collections::HashMap;

use gallerist_retrieval::eval::{
    AveragePrecision, EvalOptions, Measure, Measured, Plan, ReciprocalRank, Relevance, SharedLabels, Side,
    Task, check_rows,
};
use gallerist_retrieval::labels::{are_sets, encode_both, encode_sets};
use gallerist_retrieval::search::{Metric, SearchOptions, search};

use serde::Deserialize;
use utoipa::ToSchema;

use super::snapshot::Snapshot;
use crate::Result;
use crate::gallery::same_class;
use crate::protocol::Rules;

/// Queries and the gallery that they are compared with.
#[derive(Clone, Copy)]
pub(crate) struct Trial<'a> {
    pub(crate) queries: &'a Snapshot,
    /// `None`: every query is compared with all others.
    pub(crate) gallery: Option<&'a Snapshot>,
    pub(crate) rules: &'a Rules,
}

/// For each query the nearest item that counts, and its distance.
pub(crate) type Nearest = Vec<Option<(usize, f32)>>;

impl<'a> Trial<'a> {
    pub(crate) fn gallery(&self) -> &'a Snapshot {
        self.gallery.unwrap_or(self.queries)
    }

    pub(crate) fn nearest(&self) -> Result<Nearest> {
        let (queries, gallery) = (self.queries, self.gallery());
        let junk: Vec<bool> = match self.rules.junk {
            Some(junk) => gallery.labels.iter().map(|label| label == junk).collect(),
            None => vec![false; gallery.labels.len()],
        };
        let (of_queries, of_gallery) = encode_both(&queries.labels, &gallery.labels);
        let (seen_by, cameras) = encode_both(&queries.cameras, &gallery.cameras);
        let across = self.gallery.is_some() && self.rules.uses_cameras();
        let counts = |query: usize, item: usize| {
            let alike =
                of_queries.ids[query] == of_gallery.ids[item] && seen_by.ids[query] == cameras.ids[item];
            !(junk[item] || across && alike)
        };
        let options = SearchOptions {
            metric: Metric::Euclidean,
            exclude_self: self.gallery.is_none(),
            filter: if across || self.rules.junk.is_some() { Some(&counts) } else { None },
            ..SearchOptions::new(1)
        };
        let lists = search(queries.rows.as_ref(), gallery.rows.as_ref(), &options)?;
        let first =
            |(rows, distances): (&[u32], &[f32])| Some((*rows.first()? as usize, *distances.first()?));
        Ok(lists.iter().map(first).collect())
    }
}

/// The quality of the answer to each query.
pub(crate) struct Quality {
    /// The average precision of each query; `None` without a relevant item.
    pub(crate) precision: Vec<Option<f64>>,
    /// The rank of the first relevant item.
    first: Vec<u32>,
    /// The number of relevant items.
    matches: Vec<u32>,
    /// Name and mean of each measure of the protocol, or of the standard ones without a protocol.
    pub(crate) metrics: Vec<(String, f64)>,
}

impl Quality {
    pub(crate) fn new(trial: Trial) -> Result<Self> {
        let (queries, gallery) = (trial.queries, trial.gallery());
        // What `gallerist evaluate` refuses.
        if trial.gallery.is_some() {
            check_rows(queries.rows.view(), queries.metric, "queries")?;
        }
        check_rows(gallery.rows.view(), gallery.metric, "gallery")?;
        let shown =
            trial.rules.protocol.map_or_else(EvalOptions::default, |protocol| Plan::of(protocol).options);
        // The list of failures needs these two.
        let precision = Measure::of_all(&AveragePrecision);
        let mut measures = vec![precision, Measure::of_all(&ReciprocalRank)];
        measures.extend(shown.measures.iter().filter(|measure| **measure != precision));
        // The rows have length 1: their inner product is the cosine, bit-identical to `gallerist evaluate`.
        let metric = match gallery.metric {
            Metric::Cosine => Metric::InnerProduct,
            other => other,
        };
        let options = EvalOptions { metric, measures };
        if are_sets(&queries.labels) || are_sets(&gallery.labels) {
            Self::of_sets(trial, &options)
        } else {
            Self::of_classes(trial, &options)
        }
    }

    /// The quality where images have several labels.
    fn of_sets(trial: Trial, options: &EvalOptions) -> Result<Self> {
        let (queries, gallery) = (trial.queries, trial.gallery());
        let (of_queries, of_gallery) = encode_sets(&queries.labels, &gallery.labels);
        let side = Side::sets(queries.rows.as_ref(), &of_queries);
        let task = match trial.gallery {
            None => Task::every_row(side),
            Some(gallery) => Task::split(side, Side::sets(gallery.rows.as_ref(), &of_gallery)),
        };
        let in_gallery = if trial.gallery.is_none() { &of_queries } else { &of_gallery };
        let relevance = SharedLabels::new(&of_queries, in_gallery);
        let mut relevant = Vec::new();
        let matches = (0..queries.ids.len()).map(|row| {
            relevant.clear();
            relevance.relevant(row, &mut relevant);
            // The query itself counts as relevant, unless it has no label.
            (relevant.len() as u32).saturating_sub(trial.gallery.is_none().into())
        });
        Ok(Self::read(&task.measure(options)?, matches.collect(), queries))
    }

    /// The quality where each image has one class.
    fn of_classes(trial: Trial, options: &EvalOptions) -> Result<Self> {
        let (queries, gallery) = (trial.queries, trial.gallery());
        let (of_queries, of_gallery) = encode_both(&queries.labels, &gallery.labels);
        let junk = trial.rules.junk.and_then(|label| of_queries.names.iter().position(|name| name == label));
        let junk = junk.map(|class| class as u32);
        // Each image without a label is a class of its own.
        let mut next = of_queries.names.len() as u32;
        let mut classes = |ids: Vec<u32>, labels: &[String]| -> Vec<u32> {
            let class = |(class, label): (u32, &String)| {
                next += u32::from(label.is_empty());
                if label.is_empty() { next - 1 } else { class }
            };
            ids.into_iter().zip(labels).map(class).collect()
        };
        let query_classes = classes(of_queries.ids, &queries.labels);
        let gallery_classes = classes(of_gallery.ids, &gallery.labels);
        let (of_queries, of_gallery) = encode_both(&queries.cameras, &gallery.cameras);
        let (query_cameras, gallery_cameras) = (of_queries.ids, of_gallery.ids);
        let side = Side::classes(queries.rows.as_ref(), &query_classes);
        let task = match trial.gallery {
            None => Task::every_row(side),
            Some(gallery) => {
                let other = Side::classes(gallery.rows.as_ref(), &gallery_classes);
                match trial.rules.uses_cameras() {
                    false => Task::split(side, other),
                    true => {
                        Task::split(side.with_cameras(&query_cameras), other.with_cameras(&gallery_cameras))
                    }
                }
            }
        };
        let measured = task.without(junk).measure(options)?;

        let mut sizes: HashMap<u32, u32> = HashMap::new();
        let mut seen: HashMap<(u32, u32), u32> = HashMap::new();
        // Without a gallery the queries are the gallery, and each is in its own class.
        let itself = u32::from(trial.gallery.is_none());
        let counted = if itself == 1 { &query_classes } else { &gallery_classes };
        counted.iter().for_each(|&class| *sizes.entry(class).or_default() += 1);
        if trial.gallery.is_some() && trial.rules.uses_cameras() {
            let pairs = gallery_classes.iter().zip(&gallery_cameras);
            pairs.for_each(|(&class, &camera)| *seen.entry((class, camera)).or_default() += 1);
        }
        let matches = query_classes.iter().zip(&query_cameras).map(|(class, &camera)| {
            let all = sizes.get(class).copied().unwrap_or(0);
            all - itself.min(all) - seen.get(&(*class, camera)).copied().unwrap_or(0)
        });
        Ok(Self::read(&measured, matches.collect(), queries))
    }

    fn read(measured: &Measured, matches: Vec<u32>, of: &Snapshot) -> Self {
        let queries = &measured.queries;
        let rows = 0..queries.len();
        // A query without a label would count as a miss.
        let all_labelled = of.labels.iter().all(|label| !label.is_empty());
        let metrics = measured.evaluation.metrics.iter().filter(|&(name, _)| all_labelled && name != "mrr");
        Self {
            precision: rows.clone().map(|row| queries.has_match(row).then(|| queries.of(row)[0])).collect(),
            first: rows.map(|row| (1.0 / queries.of(row)[1]).round() as u32).collect(),
            matches,
            metrics: metrics.map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

/// A query and the quality of its answer.
pub(crate) struct Failure {
    pub(crate) id: u64,
    pub(crate) precision: f64,
    pub(crate) matches: u32,
    /// The rank of the first relevant item.
    pub(crate) first: u32,
    /// The nearest item that counts, and its distance.
    pub(crate) nearest: (u64, f32),
}

/// The queries with a relevant item, the worst first.
pub(crate) struct Failures {
    pub(crate) queries: Vec<Failure>,
    /// The places of the queries in `queries` in the order of their file, and those whose nearest item is wrong before the
    /// others.
    by_file: Vec<u32>,
    wrong_first: Vec<u32>,
    pub(crate) mean: f64,
    /// Name and mean of each measure of the protocol.
    pub(crate) metrics: Vec<(String, f64)>,
}

impl Failures {
    pub(super) fn new(trial: Trial, nearest: &Nearest) -> Result<Self> {
        let quality = Quality::new(trial)?;
        let ids = &trial.queries.ids;
        let mut queries: Vec<Failure> = (0..ids.len())
            .filter_map(|row| {
                let (near, distance) = nearest[row]?;
                Some(Failure {
                    id: ids[row],
                    precision: quality.precision[row]?,
                    matches: quality.matches[row],
                    first: quality.first[row],
                    nearest: (trial.gallery().ids[near], distance),
                })
            })
            .collect();
        let mean = queries.iter().map(|query| query.precision).sum::<f64>() / queries.len().max(1) as f64;
        let in_file: Vec<u64> = queries.iter().map(|query| query.id).collect();
        // The sort is stable: ties keep the order of the gallery.
        queries.sort_by(|a, b| a.precision.total_cmp(&b.precision));
        let places = queries.iter().zip(0u32..).map(|(query, place)| (query.id, place));
        let places: HashMap<u64, u32> = places.collect();
        let by_file: Vec<u32> = in_file.iter().map(|id| places[id]).collect();
        let (wrong, right): (Vec<u32>, Vec<u32>) =
            by_file.iter().partition(|place| queries[**place as usize].first > 1);
        let wrong_first = [wrong, right].concat();
        Ok(Self { queries, by_file, wrong_first, mean, metrics: quality.metrics })
    }

    /// The query at a place of an order.
    pub(crate) fn at(&self, order: QueryOrder, place: usize) -> Option<&Failure> {
        let last = self.queries.len().checked_sub(1)?;
        let place = match order {
            QueryOrder::WorstFirst => place,
            QueryOrder::BestFirst => last.checked_sub(place)?,
            QueryOrder::File => *self.by_file.get(place)? as usize,
            QueryOrder::WrongFirst => *self.wrong_first.get(place)? as usize,
        };
        self.queries.get(place)
    }
}

/// The order of a list of queries.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub(crate) enum QueryOrder {
    /// By average precision.
    #[default]
    #[serde(rename = "ap")]
    WorstFirst,
    #[serde(rename = "-ap")]
    BestFirst,
    /// Those whose nearest item is wrong before the others, else in the order of their file.
    #[serde(rename = "wrong")]
    WrongFirst,
    #[serde(rename = "file")]
    File,
}

/// A class and another class that its queries are confused with.
pub(crate) struct Confusion {
    pub(crate) class: String,
    pub(crate) taken_for: String,
    /// The number of queries of the class whose nearest item has the other class.
    pub(crate) count: usize,
    /// The same as a share of the queries of the class.
    pub(crate) share: f64,
    /// The closest of these pairs.
    pub(crate) example: (u64, u64),
}

/// All confused pairs of classes, the most frequent first.
pub(crate) struct Confusions(pub(crate) Vec<Confusion>);

impl Confusions {
    pub(super) fn new(trial: Trial, nearest: &Nearest) -> Self {
        let (queries, gallery) = (trial.queries, trial.gallery());
        let mut sizes: HashMap<&str, usize> = HashMap::new();
        // Count, and distance and rows of the closest.
        let mut pairs: HashMap<(&str, &str), (usize, f32, usize, usize)> = HashMap::new();
        for (row, nearest) in nearest.iter().enumerate() {
            let a = queries.labels[row].as_str();
            *sizes.entry(a).or_default() += 1;
            let Some((near, distance)) = *nearest else { continue };
            let b = gallery.labels[near].as_str();
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
                example: (queries.ids[row], gallery.ids[near]),
            };
        Self(found.into_iter().map(confusion).collect())
    }
}
