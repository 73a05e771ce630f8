//! The ranked lists that the metrics are computed from.

use super::options::EvalOptions;
use super::relevance::{Relevance, SharedLabels};
use super::task::Task;
use crate::search::{Metric, SearchOptions, search};
use crate::{Error, Result};

/// The ranked list of one query as the metrics use it, without the items that have no rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The row of the query.
    pub query: usize,
    /// Gallery items that are relevant to it, listed or not.
    pub relevant: usize,
    /// The first items in their order, the closest first.
    pub items: Vec<RankedItem>,
}

/// One place of a ranked list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedItem {
    /// The row in the gallery (of the queries themselves, where there is one set).
    pub item: usize,
    /// The similarity, or the Euclidean distance, to the query.
    pub score: f32,
    /// 0: not relevant. Else the grade: 1 for classes, the number of shared labels for label sets.
    pub grade: u32,
}

impl RankedItem {
    /// Whether the item is relevant to the query.
    pub fn is_right(&self) -> bool {
        self.grade > 0
    }
}

impl Task<'_> {
    /// The first `k` items of the ranked lists of the queries `of`, in the order of `of`.
    ///
    /// The lists are those that [`measure`](Self::measure) counts in: the same scores to the last bit, the
    /// same order (score, then the lower index), and without what takes up no rank. Place 1 of a list is
    /// rank 1 of the metrics.
    ///
    /// ```
    /// use gallerist_retrieval::{Matrix, eval::{Side, Task}, search::Metric};
    ///
    /// // Identity 7 from cameras 0 and 1; item 0 is from the query's own camera, item 2 is junk (class 9).
    /// let query = Matrix::new(1, 1, vec![0.0])?;
    /// let gallery = Matrix::new(4, 1, vec![0.1, 0.4, 0.2, 0.3])?;
    /// let task = Task::split(
    ///     Side::classes(&query, &[7]).with_cameras(&[0]),
    ///     Side::classes(&gallery, &[7, 7, 9, 3]).with_cameras(&[0, 1, 1, 1]),
    /// );
    /// let lists = task.without(Some(9)).ranked(Metric::Euclidean, &[0], 10)?;
    /// let found: Vec<_> = lists[0].items.iter().map(|hit| (hit.item, hit.is_right())).collect();
    /// assert_eq!(found, [(3, false), (1, true)]);
    /// assert_eq!(lists[0].relevant, 1);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`measure`](Self::measure); [`Error::Option`] for `k` = 0 and for a query that is none.
    pub fn ranked(&self, metric: Metric, of: &[usize], k: usize) -> Result<Vec<Ranked>> {
        self.check(&EvalOptions { metric, measures: Vec::new() })?;
        let (queries, gallery) = self.sides();
        if let Some(row) = of.iter().find(|&&row| row >= queries.embeddings.rows()) {
            return Err(Error::Option {
                option: "a query",
                wanted: "one of the rows of the queries, counted from 0",
                found: format!("{row}, and there are {}", queries.embeddings.rows()),
            });
        }
        let judge = self.judge();
        let counts = |place: usize, item: usize| !judge.skips(of[place], item);
        let options = SearchOptions { metric, filter: Some(&counts), ..SearchOptions::new(k) };
        let lists = search(&queries.embeddings.select(of), gallery.embeddings, &options)?;
        let query_sets = queries.labels.to_sets();
        let relevance = SharedLabels::new(&query_sets, &gallery.labels.to_sets());
        let mut relevant = Vec::new();
        let ranked = of.iter().zip(lists.iter()).map(|(&query, (indices, scores))| {
            relevant.clear();
            relevance.relevant(query, &mut relevant);
            relevant.retain(|&(item, _)| !judge.skips(query, item as usize));
            relevant.sort_unstable();
            let grade = |item: u32| {
                let found = relevant.binary_search_by_key(&item, |&(item, _)| item);
                found.map_or(0, |at| relevant[at].1)
            };
            let items = indices.iter().zip(scores);
            let items =
                items.map(|(&item, &score)| RankedItem { item: item as usize, score, grade: grade(item) });
            Ranked { query, relevant: relevant.len(), items: items.collect() }
        });
        Ok(ranked.collect())
    }
}
