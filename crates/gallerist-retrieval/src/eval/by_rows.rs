//! Ranks from all scores of a query: for graded relevance, and for scores that are changed before
//! they are ranked.

use std::ops::Range;

use super::counts::Counts;
use super::ranks::{PerQuery, Query};
use super::relevance::Relevance;
use super::relevant_ranks::RelevantRanks;
use super::ties::Extremes;
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, pack_rows, rank_key, score_of};
use crate::{MatrixView, Result};

/// Replaces the scores of a query with the whole gallery; larger is closer.
pub(crate) trait Rescore: Sync {
    fn rescore(&self, query: usize, scores: &mut [f32]);
}

/// Queries and a gallery, with the relevant and the skipped items.
pub(super) struct RowProblem<'a> {
    pub(super) queries: MatrixView<'a>,
    pub(super) gallery: MatrixView<'a>,
    pub(super) relevance: &'a dyn Relevance,
    /// Items that take up no rank for a query.
    pub(super) skips: &'a (dyn Fn(usize, usize) -> bool + Sync),
    /// Gallery items that are not skipped for every query.
    pub(super) items: usize,
    pub(super) rescore: Option<&'a dyn Rescore>,
}

/// Queries packed at a time.
const QUERIES: usize = 1 << 14;

/// As [`measure_queries`](super::ranks::measure_queries).
pub(super) fn measure_rows(
    problem: &RowProblem,
    metric: Metric,
    width: usize,
    measure: impl Fn(&RelevantRanks, &mut [f64]) + Sync,
) -> Result<PerQuery> {
    let order = |rows: Range<usize>| rows.collect::<Vec<_>>();
    let items = pack_rows(problem.gallery, &order(0..problem.gallery.rows()), "gallery", metric)?;
    let mut per_query =
        PerQuery { queries: Vec::new(), values: Vec::new(), extremes: Vec::new(), gallery: problem.items };
    for start in (0..problem.queries.rows()).step_by(QUERIES) {
        let rows = start..problem.queries.rows().min(start + QUERIES);
        let queries = pack_rows(problem.queries, &order(rows), "queries", metric)?;
        let found = score_rows(metric, (&queries, &items), Against::All, |row, scores| {
            let query = start + row;
            if let Some(rescore) = problem.rescore {
                rescore.rescore(query, scores);
            }
            let (counts, grades) = count(problem, query, scores);
            let ranks = counts.ranks();
            let mut values = vec![0.0; width];
            measure(&RelevantRanks::graded(&ranks, &grades), &mut values);
            let extremes = extremes(query, &counts, &grades, &values, &measure);
            (Query { has_match: !ranks.is_empty(), tied: counts.tied() }, values, extremes)
        });
        for (query, values, extremes) in found {
            per_query.queries.push(query);
            per_query.values.extend(values);
            per_query.extremes.extend(extremes);
        }
    }
    Ok(per_query)
}

/// The values of a query at the extreme orders of its ties, where they differ from `values`. Relevant items of
/// one score tie among themselves, too, where their grades differ.
fn extremes(
    query: usize,
    counts: &Counts,
    grades: &[u32],
    values: &[f64],
    measure: impl Fn(&RelevantRanks, &mut [f64]),
) -> Option<Extremes> {
    let differ =
        |group: Range<usize>| grades[group.clone()].iter().any(|&grade| grade != grades[group.start]);
    if !counts.tied() && !counts.groups().any(differ) {
        return None;
    }
    let (best, worst) = counts.extreme_ranks();
    let (mut falling, mut rising) = (grades.to_vec(), grades.to_vec());
    for group in counts.groups() {
        falling[group.clone()].sort_unstable_by(|a, b| b.cmp(a));
        rising[group].sort_unstable();
    }
    let (best, worst) = (RelevantRanks::graded(&best, &falling), RelevantRanks::graded(&worst, &rising));
    Extremes::of(query, values, (best, worst), measure)
}

/// Counts the items before each relevant one, and gives the grades in that order.
fn count(problem: &RowProblem, query: usize, scores: &[f32]) -> (Counts, Vec<u32>) {
    let mut relevant = Vec::new();
    problem.relevance.relevant(query, &mut relevant);
    relevant.retain(|&(item, _)| !(problem.skips)(query, item as usize));
    relevant.sort_unstable();
    let mut ranked: Vec<(u64, u32)> =
        relevant.iter().map(|&(item, grade)| (rank_key(scores[item as usize], item), grade)).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let mut counts = Counts::new(ranked.iter().map(|&(key, _)| key).collect());
    if let Some(&(last, _)) = ranked.last() {
        let floor = score_of(last);
        let mut next = relevant.iter().map(|&(item, _)| item as usize).peekable();
        for (item, &score) in scores.iter().enumerate() {
            if next.next_if_eq(&item).is_none() && score >= floor && !(problem.skips)(query, item) {
                counts.add(score, item as u32);
            }
        }
        assert!(next.next().is_none(), "a relevant item of query {query} is none of the gallery");
    }
    (counts, ranked.into_iter().map(|(_, grade)| grade).collect())
}
