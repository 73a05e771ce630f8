//! Queries, gallery and rules: the entry point of every evaluation.

use super::by_rows::{Rescore, RowProblem, measure_rows};
use super::metrics::Metrics;
use super::options::EvalOptions;
use super::query_values::QueryValues;
use super::ranks::{self, Classed, PerQuery, Problem};
use super::relevance::{Relevance, SharedLabels};
use super::report::Evaluation;
use super::row_labels::RowLabels;
use super::ties;
use super::verdict::Verdict;
use super::verdict::{Judge, Judged};
use crate::labels::LabelSets;
use crate::rerank::{KReciprocal, QueryExpansion};
use crate::{Error, Matrix, MatrixView, Result};

/// Embeddings with what decides their relevance.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// One embedding per row.
    pub embeddings: MatrixView<'a>,
    /// What each row shows.
    pub labels: RowLabels<'a>,
    /// The camera of each row, where the protocol knows cameras.
    pub cameras: Option<&'a [u32]>,
}

impl<'a> Side<'a> {
    /// Embeddings with one class per row.
    pub fn classes(embeddings: impl Into<MatrixView<'a>>, classes: &'a [u32]) -> Self {
        Self { embeddings: embeddings.into(), labels: RowLabels::Classes(classes), cameras: None }
    }

    /// Embeddings with a set of labels per row.
    pub fn sets(embeddings: impl Into<MatrixView<'a>>, sets: &'a LabelSets) -> Self {
        Self { embeddings: embeddings.into(), labels: RowLabels::Sets(sets), cameras: None }
    }

    /// The same with the camera of each row.
    pub fn with_cameras(self, cameras: &'a [u32]) -> Self {
        Self { cameras: Some(cameras), ..self }
    }
}

/// Queries, their gallery, and the items that are left out.
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::{EvalOptions, Side, Task}, labels};
///
/// let names = ["bird|heron", "bird|wren", "bird|heron", "fish"].map(String::from);
/// let rows = Matrix::new(4, 2, vec![1.0, 0.0, 0.7, 0.7, 0.9, 0.1, 0.0, 1.0])?;
/// let (sets, _) = labels::encode_sets(&names, &[]);
/// let options = EvalOptions { measures: vec!["ndcg".parse()?], ..EvalOptions::default() };
/// let measured = Task::every_row(Side::sets(&rows, &sets)).measure(&options)?;
/// assert_eq!(measured.evaluation.queries_without_match, 1);
/// assert_eq!(measured.queries.of(0), [1.0]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    queries: Side<'a>,
    gallery: Option<Side<'a>>,
    junk: Option<u32>,
}

/// What is compared with what, in a sentence.
pub(super) fn setting(one_set: bool, cameras: bool) -> &'static str {
    match (one_set, cameras) {
        (true, false) => "every image against the rest",
        (true, true) => "every image against the other cameras' images",
        (false, false) => "queries against a gallery",
        (false, true) => "queries against the other cameras' images",
    }
}

/// An evaluation, with the values it is the mean of.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The means.
    pub evaluation: Evaluation,
    /// What was measured of each query.
    pub queries: QueryValues,
}

impl<'a> Task<'a> {
    /// Every row is a query against all the others.
    pub fn every_row(rows: Side<'a>) -> Self {
        Self { queries: rows, gallery: None, junk: None }
    }

    /// Queries against a gallery of other images.
    ///
    /// Where both sides have cameras, gallery items with the query's class from the query's own
    /// camera are skipped: they are neither right nor wrong and take up no rank.
    pub fn split(queries: Side<'a>, gallery: Side<'a>) -> Self {
        Self { queries, gallery: Some(gallery), junk: None }
    }

    /// The same without the gallery items of class `junk`, which are skipped for every query.
    pub fn without(self, junk: Option<u32>) -> Self {
        Self { junk, ..self }
    }

    /// The same without regard to cameras.
    pub fn without_cameras(self) -> Self {
        let without = |side: Side<'a>| Side { cameras: None, ..side };
        Self { queries: without(self.queries), gallery: self.gallery.map(without), ..self }
    }

    pub(crate) fn sides(&self) -> (Side<'a>, Side<'a>) {
        (self.queries, self.gallery.unwrap_or(self.queries))
    }

    /// Whether queries are the gallery.
    pub(crate) fn is_one_set(&self) -> bool {
        self.gallery.is_none()
    }

    fn name(&self) -> &'static str {
        setting(self.is_one_set(), self.cameras().is_some())
    }

    pub(crate) fn cameras(&self) -> Option<(&'a [u32], &'a [u32])> {
        let (queries, gallery) = self.sides();
        queries.cameras.zip(gallery.cameras)
    }

    /// What gallery item `item` is to query `query`, as the metrics count it.
    ///
    /// # Panics
    /// When there is no such query or item.
    pub fn verdict(&self, query: usize, item: usize) -> Verdict {
        self.judge().verdict(query, item)
    }

    /// The rules without the embeddings.
    pub(super) fn judge(&self) -> Judge<'a> {
        let (queries, gallery) = self.sides();
        let cameras = self.cameras();
        Judge {
            queries: Judged { labels: queries.labels, cameras: cameras.map(|(queries, _)| queries) },
            gallery: Judged { labels: gallery.labels, cameras: cameras.map(|(_, gallery)| gallery) },
            same: self.is_one_set(),
            junk: self.junk,
        }
    }

    /// Measures by the distances of the embeddings.
    ///
    /// With one class per row, time is that of `queries * gallery * dimension` multiply-adds (half
    /// for [`every_row`](Self::every_row) where no class has more than 32 rows) and memory that of
    /// a packed copy of the embeddings. With label sets each thread also holds all scores of 8 to
    /// 48 queries.
    ///
    /// # Errors
    /// [`Error::Count`] when there is not one label, or camera, per row; [`Error::Empty`],
    /// [`Error::Dimensions`], [`Error::NonFinite`], [`Error::TooLong`], and [`Error::Option`] for a
    /// measure at 0 and for label sets where cameras or junk need classes.
    pub fn measure(&self, options: &EvalOptions) -> Result<Measured> {
        self.check(options)?;
        let (queries, gallery) = self.sides();
        let per_query = match self.classed(self.is_one_set())? {
            Some(problem) => {
                ranks::measure_queries(&problem, options.metric, options.measures.len(), |ranks, out| {
                    options.fill(ranks, out)
                })?
            }
            None => self.by_rows(queries.embeddings, gallery.embeddings, None, options)?,
        };
        self.report(self.name().to_owned(), per_query, options)
    }

    /// Measures after k-reciprocal re-ranking of the whole gallery.
    ///
    /// # Errors
    /// As [`measure`](Self::measure) and [`KReciprocal::prepare`].
    pub fn measure_reranked(&self, options: &EvalOptions, rerank: &KReciprocal) -> Result<Measured> {
        self.check(options)?;
        let kept = self.without_junk();
        let task = kept.as_ref().map_or(*self, |kept| kept.task(self));
        let (queries, gallery) = task.sides();
        let of_queries = task.gallery.map(|_| queries.embeddings);
        let reranker = rerank.prepare(of_queries, gallery.embeddings, options.metric)?;
        let per_query = task.by_rows(queries.embeddings, gallery.embeddings, Some(&reranker), options)?;
        self.report(format!("{}, re-ranked by {rerank}", self.name()), per_query, options)
    }

    /// Measures with queries that were moved towards their nearest neighbours.
    ///
    /// # Errors
    /// As [`measure`](Self::measure) and [`QueryExpansion::expand`].
    pub fn measure_expanded(&self, options: &EvalOptions, expansion: &QueryExpansion) -> Result<Measured> {
        self.check(options)?;
        let kept = self.without_junk();
        let task = kept.as_ref().map_or(*self, |kept| kept.task(self));
        let (queries, gallery) = task.sides();
        let of_queries = task.gallery.map(|_| queries.embeddings);
        let expanded = expansion.expand(of_queries, gallery.embeddings, options.metric)?;
        let per_query = match task.classed(false)? {
            Some(mut problem) => {
                problem.queries.embeddings = expanded.view();
                ranks::measure_queries(&problem, options.metric, options.measures.len(), |ranks, out| {
                    options.fill(ranks, out)
                })?
            }
            None => task.by_rows(expanded.view(), gallery.embeddings, None, options)?,
        };
        self.report(format!("{}, queries expanded by {expansion}", self.name()), per_query, options)
    }

    /// The gallery without junk, where there is some to leave out.
    fn without_junk(&self) -> Option<Kept> {
        let (Some(junk), Some(gallery)) = (self.junk, self.gallery) else { return None };
        let RowLabels::Classes(classes) = gallery.labels else { return None };
        let kept: Vec<usize> = (0..classes.len()).filter(|&item| classes[item] != junk).collect();
        let pick = |of: &[u32]| kept.iter().map(|&item| of[item]).collect::<Vec<_>>();
        Some(Kept {
            embeddings: gallery.embeddings.select(&kept),
            classes: pick(classes),
            cameras: gallery.cameras.map(pick),
        })
    }

    /// The problem as classes, where the labels are classes.
    pub(super) fn classed(&self, symmetric: bool) -> Result<Option<Problem<'a>>> {
        let (queries, gallery) = self.sides();
        let (RowLabels::Classes(query_labels), RowLabels::Classes(gallery_labels)) =
            (queries.labels, gallery.labels)
        else {
            return Ok(None);
        };
        let cameras = self.cameras();
        Ok(Some(Problem {
            queries: Classed {
                embeddings: queries.embeddings,
                labels: query_labels,
                cameras: cameras.map(|(queries, _)| queries),
            },
            gallery: Classed {
                embeddings: gallery.embeddings,
                labels: gallery_labels,
                cameras: cameras.map(|(_, gallery)| gallery),
            },
            same: self.is_one_set(),
            symmetric,
            junk: self.junk,
            first: (0, 0),
        }))
    }

    fn by_rows(
        &self,
        queries: MatrixView,
        gallery: MatrixView,
        rescore: Option<&dyn Rescore>,
        options: &EvalOptions,
    ) -> Result<PerQuery> {
        let (of_queries, of_gallery) = self.sides();
        let query_sets = of_queries.labels.to_sets();
        let relevance = SharedLabels::new(&query_sets, &of_gallery.labels.to_sets());
        let judge = self.judge();
        let skips = |query: usize, item: usize| judge.skips(query, item);
        let problem = RowProblem {
            queries,
            gallery,
            relevance: &relevance,
            skips: &skips,
            items: (0..gallery.rows()).filter(|&item| !judge.is_junk(item)).count(),
            rescore,
        };
        measure_rows(&problem, options.metric, options.measures.len(), |ranks, out| options.fill(ranks, out))
    }

    pub(crate) fn check(&self, options: &EvalOptions) -> Result<()> {
        for measure in &options.measures {
            measure.check()?;
        }
        let (queries, gallery) = self.sides();
        for (rows, side) in [("queries", queries), ("gallery rows", gallery)] {
            let matrix = side.embeddings;
            if matrix.rows() == 0 {
                return Err(Error::Empty { what: rows.trim_end_matches(" rows") });
            }
            let rows = if self.is_one_set() { "embeddings" } else { rows };
            let count = |what, found: usize| match found == matrix.rows() {
                true => Ok(()),
                false => Err(Error::Count { what, rows, wanted: matrix.rows(), found }),
            };
            count("labels", side.labels.len())?;
            count("cameras", side.cameras.map_or(matrix.rows(), <[u32]>::len))?;
        }
        let (queries_cols, gallery_cols) = (queries.embeddings.cols(), gallery.embeddings.cols());
        if queries_cols != gallery_cols {
            return Err(Error::Dimensions { queries: queries_cols, gallery: gallery_cols });
        }
        let sets = |side: Side| matches!(side.labels, RowLabels::Sets(_));
        if sets(queries) != sets(gallery)
            || sets(queries) && (self.junk.is_some() || self.cameras().is_some())
        {
            return Err(Error::Option {
                option: "labels",
                wanted: "one class per row on both sides where there are cameras or junk, and else \
                         of one kind on both sides",
                found: "label sets".to_owned(),
            });
        }
        Ok(())
    }

    fn report(&self, protocol: String, per_query: PerQuery, options: &EvalOptions) -> Result<Measured> {
        let (queries, gallery) = self.sides();
        let zero_rows = |matrix: MatrixView| {
            let zero = |row: &usize| matrix.row(*row).iter().all(|&value| value == 0.0);
            (0..matrix.rows()).filter(zero).count()
        };
        let others = if self.is_one_set() { 0 } else { zero_rows(queries.embeddings) };
        measured(protocol, per_query, options, zero_rows(gallery.embeddings) + others)
    }
}

/// A gallery without some of its rows.
struct Kept {
    embeddings: Matrix,
    classes: Vec<u32>,
    cameras: Option<Vec<u32>>,
}

impl Kept {
    fn task<'a>(&'a self, of: &Task<'a>) -> Task<'a> {
        let gallery = Side {
            embeddings: self.embeddings.view(),
            labels: RowLabels::Classes(&self.classes),
            cameras: self.cameras.as_deref(),
        };
        Task { gallery: Some(gallery), junk: None, ..*of }
    }
}

/// Measures by a relevance of your own: every row of `queries` against `gallery`, or, without one,
/// against the other queries.
///
/// # Errors
/// As [`Task::measure`].
///
/// # Panics
/// When `relevance` names an item twice or one that is not in the gallery, or a grade of 0.
pub fn evaluate_graded<'a>(
    queries: impl Into<MatrixView<'a>>,
    gallery: Option<MatrixView<'a>>,
    relevance: &dyn Relevance,
    options: &EvalOptions,
) -> Result<Measured> {
    let queries = queries.into();
    // The labels are not looked at: relevance says all.
    let none = |matrix: MatrixView| LabelSets::new((0..matrix.rows()).map(|_| Vec::new()));
    let (of_queries, of_gallery) = (none(queries), none(gallery.unwrap_or(queries)));
    let task = match gallery {
        None => Task::every_row(Side::sets(queries, &of_queries)),
        Some(gallery) => Task::split(Side::sets(queries, &of_queries), Side::sets(gallery, &of_gallery)),
    };
    task.check(options)?;
    let same = gallery.is_none();
    let gallery = gallery.unwrap_or(queries);
    let problem = RowProblem {
        queries,
        gallery,
        relevance,
        skips: &|query, item| same && query == item,
        items: gallery.rows(),
        rescore: None,
    };
    let fill = |ranks: &super::RelevantRanks, out: &mut [f64]| options.fill(ranks, out);
    let per_query = measure_rows(&problem, options.metric, options.measures.len(), fill)?;
    task.report(format!("{} by given grades", task.name()), per_query, options)
}

/// The evaluation of the values of the queries.
///
/// # Errors
/// [`Error::NonFiniteMetric`] for a metric of one's own that is NaN or infinite, which JSON cannot hold.
pub(super) fn measured(
    protocol: String,
    per_query: PerQuery,
    options: &EvalOptions,
    zero_rows: usize,
) -> Result<Measured> {
    let values = QueryValues {
        measures: options.measures.clone(),
        values: per_query.values,
        has_match: per_query.queries.iter().map(|query| query.has_match).collect(),
    };
    values.check_finite()?;
    per_query.extremes.iter().try_for_each(|one| one.check_finite(&options.measures))?;
    let mut metrics = Metrics::default();
    for (at, measure) in options.measures.iter().enumerate() {
        // No query counts: the metric is undefined, and reported as 0 with the count.
        metrics.push(measure.to_string(), values.mean(at));
    }
    let queries = values.len();
    let tied = per_query.queries.iter().filter(|query| query.tied).count();
    let tie_bounds = ties::bounds(&values, &per_query.extremes);
    let notes = ties::note(&tie_bounds, tied, queries).into_iter().collect();
    let evaluation = Evaluation {
        protocol,
        metric: options.metric,
        metrics,
        queries,
        gallery: per_query.gallery,
        junk: 0,
        queries_without_match: values.has_match.iter().filter(|&&has_match| !has_match).count(),
        ties: tied,
        tie_bounds,
        zero_rows,
        notes,
    };
    Ok(Measured { evaluation, queries: values })
}
