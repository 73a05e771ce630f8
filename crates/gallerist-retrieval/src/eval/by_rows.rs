//! Ranks from all scores of a query: for graded relevance, and for scores that are changed before
//! they are ranked.

use std::ops::Range;

use super::ranks::{Counts, PerQuery, Query};
use super::{Relevance, RelevantRanks};
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, pack_rows, rank_key, score_of};
use crate::{MatrixView, Result};

/// Replaces the scores of a query with the whole gallery; larger is closer.
pub(crate) trait Rescore: Sync {
    fn rescore(&self, query: usize, scores: &mut [f32]);
}

/// Queries, a gallery, what is relevant and what is skipped.
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
    let mut per_query = PerQuery { queries: Vec::new(), values: Vec::new(), gallery: problem.items };
    for start in (0..problem.queries.rows()).step_by(QUERIES) {
        let rows = start..problem.queries.rows().min(start + QUERIES);
        let queries = pack_rows(problem.queries, &order(rows), "queries", metric)?;
        let found = score_rows(metric, (&queries, &items), Against::All, |row, scores| {
            let query = start + row;
            if let Some(rescore) = problem.rescore {
                rescore.rescore(query, scores);
            }
            let (counts, grades) = count(problem, query, scores);
            let mut ranks = Vec::new();
            counts.ranks(&mut ranks);
            let mut values = vec![0.0; width];
            measure(&RelevantRanks::graded(&ranks, &grades), &mut values);
            (Query { has_match: !ranks.is_empty(), tied: counts.tied }, values)
        });
        for (query, values) in found {
            per_query.queries.push(query);
            per_query.values.extend(values);
        }
    }
    Ok(per_query)
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
