//! Evaluation of a gallery that is stored in shards, by sums of counts.
//!
//! The metrics of a query follow from the ranks of its relevant items, and a rank is a count. So a gallery of any
//! size is evaluated shard by shard, in two rounds:
//!
//! 1. [`Plan::relevant_in_shard`] gives the keys of the relevant items of each query in one shard. All shards' keys of
//!    a query, the best first, make its [`QueryCounts`].
//! 2. [`Plan::count_in_shard`] counts the irrelevant items of one shard between these keys. The sums over the shards
//!    give the ranks.
//!
//! A [`ShardedEvaluation`] turns the sums into the report of [`Plan::run`], equal to the last bit: the scores come
//! from the same kernels, and values are added in the order of the queries. Labels are compared as texts, so that no
//! numbering of the labels of the whole gallery is needed.

use super::counts::Counts;
use super::plan::{EvaluationReport, Further, Named, Plan, Rules};
use super::ranks::{Classed, PerQuery, Problem, count_irrelevant, relevant_keys};
use super::report::Evaluation;
use super::row_labels::RowLabels;
use super::task::{measured, setting};
use super::{one_label, unmatched};
use crate::search::RankKey;
use crate::shard_rows::ShardRows;
use crate::{Error, Result, labels};

/// Rows of a set that is stored in shards, with what they show.
#[derive(Clone, Copy, Debug)]
pub struct LabelledShard<'a> {
    /// The embeddings and the number of the first one.
    pub rows: ShardRows<'a>,
    /// The label of each row, and its camera where it is known.
    pub named: Named<'a>,
}

/// Irrelevant items between two relevant items of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceCount {
    /// The place of a relevant item among the relevant items of the query, from 0.
    pub place: u32,
    /// The irrelevant items that come before it, and after the relevant item at the place before it.
    pub between: u32,
    /// At the first relevant item of each score: the irrelevant items of exactly that score.
    pub tied: u32,
    /// Those of them that come before it.
    pub tied_ahead: u32,
}

/// For one query, the keys of its relevant items and the irrelevant items counted so far.
#[derive(Debug)]
pub struct QueryCounts(Counts);

impl QueryCounts {
    /// The relevant items of the whole gallery, in any order; nothing counted yet.
    pub fn new(mut relevant: Vec<RankKey>) -> Self {
        relevant.sort_unstable_by(|a, b| b.cmp(a));
        Self(Counts::new(relevant.into_iter().map(RankKey::to_bits).collect()))
    }

    /// The keys of the relevant items, the best first.
    pub fn relevant(&self) -> impl ExactSizeIterator<Item = RankKey> {
        self.0.relevant.iter().map(|&key| RankKey(key))
    }

    /// The counts that are not zero.
    pub fn places(&self) -> impl Iterator<Item = PlaceCount> {
        self.0.places().map(|(place, [between, tied, tied_ahead])| PlaceCount {
            place: place as u32,
            between,
            tied,
            tied_ahead,
        })
    }

    /// Adds the count of other items.
    ///
    /// # Panics
    /// When the query has no relevant item at that place.
    pub fn add(&mut self, count: PlaceCount) {
        let PlaceCount { place, between, tied, tied_ahead } = count;
        self.0.add_place(place as usize, [between, tied, tied_ahead]);
    }
}

/// What is known of all shards together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// The number of queries.
    pub queries: usize,
    /// Gallery items without junk.
    pub gallery: usize,
    /// Gallery items that the protocol skips for every query.
    pub junk: usize,
    /// Embeddings that are all zero, of queries and gallery.
    pub zero_rows: usize,
    /// Queries are the gallery.
    pub one_set: bool,
    /// Queries and gallery have cameras.
    pub cameras: bool,
    /// The label of all rows, if they have one label.
    pub only_label: Option<String>,
}

impl Plan {
    /// The keys of the gallery items of one shard that are relevant to each query. `one_set`: queries are the gallery.
    ///
    /// # Errors
    /// [`Error::Count`] when there is not one label, or camera, per row, [`Error::Protocol`] for label sets,
    /// [`Error::Dimensions`], [`Error::NonFinite`], [`Error::TooLong`]. [`fits`](Self::fits) checks queries and gallery
    /// as a whole.
    pub fn relevant_in_shard(
        &self,
        queries: LabelledShard,
        gallery: LabelledShard,
        one_set: bool,
    ) -> Result<Vec<Vec<RankKey>>> {
        let rules = self.shard_rules(queries, gallery)?;
        let keys = relevant_keys(&problem(&rules, queries, gallery, one_set), self.options.metric)?;
        Ok(keys.into_iter().map(|keys| keys.into_iter().map(RankKey).collect()).collect())
    }

    /// Adds the irrelevant gallery items of one shard to the counts of each query.
    ///
    /// # Errors
    /// As [`relevant_in_shard`](Self::relevant_in_shard), and [`Error::Count`] when there are not as many counts as
    /// queries.
    pub fn count_in_shard(
        &self,
        queries: LabelledShard,
        gallery: LabelledShard,
        one_set: bool,
        counts: &mut [QueryCounts],
    ) -> Result<()> {
        let wanted = queries.rows.embeddings.rows();
        if counts.len() != wanted {
            return Err(Error::Count { what: "counts", rows: "queries", wanted, found: counts.len() });
        }
        let rules = self.shard_rules(queries, gallery)?;
        let mut inner: Vec<Counts> = counts.iter_mut().map(|counts| std::mem::take(&mut counts.0)).collect();
        let problem = problem(&rules, queries, gallery, one_set);
        let counted = count_irrelevant(&problem, self.options.metric, &mut inner);
        counts.iter_mut().zip(inner).for_each(|(counts, inner)| counts.0 = inner);
        counted
    }

    fn shard_rules(&self, queries: LabelledShard, gallery: LabelledShard) -> Result<Rules> {
        for (rows, side) in [("queries", queries), ("gallery rows", gallery)] {
            let wanted = side.rows.embeddings.rows();
            let cameras = side.named.cameras.map_or(wanted, <[String]>::len);
            for (what, found) in [("labels", side.named.labels.len()), ("cameras", cameras)] {
                if found != wanted {
                    return Err(Error::Count { what, rows, wanted, found });
                }
            }
            if labels::are_sets(side.named.labels) {
                return Err(Error::Protocol {
                    what: "an evaluation over shards".to_owned(),
                    problem: "needs one class per row, and some rows have several labels (`a|b`)".to_owned(),
                    hint: Some("join the shards and run `gallerist evaluate`".to_owned()),
                });
            }
        }
        let (queries_cols, gallery_cols) = (queries.rows.embeddings.cols(), gallery.rows.embeddings.cols());
        if queries_cols != gallery_cols {
            return Err(Error::Dimensions { queries: queries_cols, gallery: gallery_cols });
        }
        Ok(self.encode(queries.named, Some(gallery.named)))
    }
}

fn problem<'a>(
    rules: &'a Rules,
    queries: LabelledShard<'a>,
    gallery: LabelledShard<'a>,
    one_set: bool,
) -> Problem<'a> {
    let judge = rules.judge();
    let (RowLabels::Classes(query_labels), RowLabels::Classes(gallery_labels)) =
        (judge.queries.labels, judge.gallery.labels)
    else {
        unreachable!("`shard_rules` refuses label sets")
    };
    // One side alone with cameras decides nothing.
    let cameras = judge.queries.cameras.zip(judge.gallery.cameras);
    Problem {
        queries: Classed {
            embeddings: queries.rows.embeddings,
            labels: query_labels,
            cameras: cameras.map(|(queries, _)| queries),
        },
        gallery: Classed {
            embeddings: gallery.rows.embeddings,
            labels: gallery_labels,
            cameras: cameras.map(|(_, gallery)| gallery),
        },
        same: one_set,
        symmetric: false,
        junk: judge.junk,
        first: (queries.rows.first, gallery.rows.first),
    }
}

/// Joins the counts of all queries to one report.
///
/// ```
/// use gallerist_retrieval::eval::{LabelledShard, Labelled, Named, Plan, QueryCounts, ShardedEvaluation, Totals};
/// use gallerist_retrieval::{Matrix, ShardRows};
///
/// let rows = [vec![1.0, 0.0, 0.9, 0.1], vec![0.0, 1.0, 0.8, 0.6]].map(|data| Matrix::new(2, 2, data).unwrap());
/// let labels = [["wren", "wren"], ["heron", "heron"]].map(|labels| labels.map(String::from));
/// let shard = |at: usize| {
///     let named = Named { labels: &labels[at], cameras: None };
///     Ok::<_, gallerist_retrieval::Error>(LabelledShard { rows: ShardRows::new(&rows[at], 2 * at)?, named })
/// };
/// let plan = Plan::default();
/// let totals = Totals {
///     queries: 4, gallery: 4, junk: 0, zero_rows: 0, one_set: true, cameras: false, only_label: None,
/// };
/// let mut evaluation = ShardedEvaluation::new(&plan, totals)?;
/// for queries in 0..2 {
///     let mut keys = vec![Vec::new(); 2];
///     for gallery in 0..2 {
///         let found = plan.relevant_in_shard(shard(queries)?, shard(gallery)?, true)?;
///         keys.iter_mut().zip(found).for_each(|(keys, found)| keys.extend(found));
///     }
///     let mut counts: Vec<QueryCounts> = keys.into_iter().map(QueryCounts::new).collect();
///     for gallery in 0..2 {
///         plan.count_in_shard(shard(queries)?, shard(gallery)?, true, &mut counts)?;
///     }
///     counts.iter().for_each(|counts| evaluation.push(counts));
/// }
/// let (report, _) = evaluation.finish(&[])?;
///
/// let all = Matrix::new(4, 2, rows.iter().flat_map(Matrix::as_slice).copied().collect())?;
/// let whole = Labelled { embeddings: all, labels: labels.concat(), cameras: None };
/// assert_eq!(report, plan.run(&whole, None)?);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
pub struct ShardedEvaluation<'a> {
    plan: &'a Plan,
    totals: Totals,
    per_query: PerQuery,
    pushed: usize,
}

impl<'a> ShardedEvaluation<'a> {
    /// No query measured yet. Memory: 8 bytes for each query and measure.
    ///
    /// # Errors
    /// [`Error::Option`] for a measure at 0, and [`Error::Empty`] without queries or gallery items.
    pub fn new(plan: &'a Plan, totals: Totals) -> Result<Self> {
        plan.options.measures.iter().try_for_each(|measure| measure.check())?;
        for (what, rows) in [("queries", totals.queries), ("gallery", totals.gallery + totals.junk)] {
            if rows == 0 {
                return Err(Error::Empty { what });
            }
        }
        let per_query = PerQuery::new(totals.queries, plan.options.measures.len(), totals.gallery);
        Ok(Self { plan, totals, per_query, pushed: 0 })
    }

    /// Measures the next query, in the order of the queries.
    ///
    /// # Panics
    /// When there are more queries than the totals say.
    pub fn push(&mut self, counts: &QueryCounts) {
        let options = &self.plan.options;
        let measure = |ranks: &super::RelevantRanks, out: &mut [f64]| options.fill(ranks, out);
        self.per_query.take(self.pushed, &counts.0, options.measures.len(), measure);
        self.pushed += 1;
    }

    /// The queries measured so far to which nothing is relevant.
    pub fn unmatched(&self) -> impl Iterator<Item = usize> {
        let queries = self.per_query.queries[..self.pushed].iter().enumerate();
        queries.filter(|(_, query)| !query.has_match).map(|(row, _)| row)
    }

    /// The report, and the values of each query. `labels` has the label of each [unmatched](Self::unmatched) query,
    /// in their order.
    ///
    /// # Errors
    /// [`Error::NonFiniteMetric`](crate::Error::NonFiniteMetric).
    ///
    /// # Panics
    /// When not all queries were measured, or there is not one label per unmatched query.
    pub fn finish(self, labels: &[String]) -> Result<(EvaluationReport, super::QueryValues)> {
        let Self { plan, totals, per_query, pushed } = self;
        assert!(pushed == totals.queries, "{pushed} of {} queries are measured", totals.queries);
        let cameras = totals.cameras && plan.uses_cameras();
        let protocol = setting(totals.one_set, cameras).to_owned();
        let measured = measured(protocol, per_query, &plan.options, totals.zero_rows)?;
        let evaluation = Evaluation { junk: totals.junk, ..plan.named(measured.evaluation) };
        let mut report = EvaluationReport { evaluation, further: Further::default() };

        let mut texts = labels.iter();
        let label = |query: usize| match measured.queries.has_match(query) {
            true => String::new(),
            false => texts.next().expect("a label for each unmatched query").clone(),
        };
        let query_labels: Vec<String> = (0..measured.queries.len()).map(label).collect();
        let unmatched = unmatched::note(&measured.queries, &query_labels);
        let only = totals.only_label.as_slice();
        let one_label = one_label::note(only, (!totals.one_set).then_some(only));
        plan.add_notes(&mut report.evaluation, unmatched, one_label);
        Ok((report, measured.queries))
    }
}
