//! Exact search for groups of rows: several pictures of one product are one result.

use super::best::rank_key;
use super::check;
use super::lists::RankedLists;
use super::options::SearchOptions;
use super::prepare::pack;
use crate::score_rows::{Against, score_rows};
use crate::{Error, MatrixView, Result};

gallerist_util::named_values! {
    /// How the rows of a group make its score.
    #[derive(Default)]
    pub enum GroupScore {
        /// That of its best row.
        #[default]
        Best = "best", "the score of the best row";
        /// The mean over its rows.
        Mean = "mean", "the mean over all rows of the group";
    }
}

/// Ranks groups of gallery rows for each of `queries`: `groups` has the number of each row's group. The lists have one
/// entry per group: the index of its best row, and the score of the group.
///
/// The result is exact: every row of the gallery is scored, with the scores of [`search()`](super::search()), and the
/// `k` best groups are those of all groups. Groups of equal scores are ordered by the index of their best row. A group
/// consists of the rows that `options` admit for the query. The mean is computed in f64, in the order of the rows.
///
/// Memory: the packed gallery, and for each thread the scores of 8 to 48 queries.
///
/// ```
/// use gallerist_retrieval::{Matrix, search::{GroupScore, Metric, SearchOptions, search_groups}};
///
/// let gallery = Matrix::new(4, 1, vec![1.0, 9.0, 3.0, 4.0])?;
/// let (queries, groups) = (Matrix::new(1, 1, vec![0.0])?, [0, 0, 1, 1]);
/// let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(2) };
/// let best = search_groups(&queries, &gallery, &groups, GroupScore::Best, &options)?;
/// assert_eq!((best.indices(0), best.scores(0)), (&[0, 2][..], &[1.0, 3.0][..]));
/// let mean = search_groups(&queries, &gallery, &groups, GroupScore::Mean, &options)?;
/// assert_eq!((mean.indices(0), mean.scores(0)), (&[2, 0][..], &[3.5, 5.0][..]));
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`search`](super::search()), [`Error::Count`] when `groups` is not one per row, and [`Error::Option`] for a group
/// that is not below the number of rows.
pub fn search_groups<'a>(
    queries: impl Into<MatrixView<'a>>,
    gallery: impl Into<MatrixView<'a>>,
    groups: &[u32],
    by: GroupScore,
    options: &SearchOptions,
) -> Result<RankedLists> {
    let (queries, gallery) = (queries.into(), gallery.into());
    check(queries, gallery, options)?;
    let rows = gallery.rows();
    if groups.len() != rows {
        return Err(Error::Count { what: "groups", rows: "gallery rows", wanted: rows, found: groups.len() });
    }
    let count = groups.iter().max().map_or(0, |&last| last as usize + 1);
    if count > rows {
        let found = (count - 1).to_string();
        return Err(Error::Option { option: "a group", wanted: "below the number of rows", found });
    }
    let packed = (pack(queries, "queries", options.metric)?, pack(gallery, "gallery", options.metric)?);
    let lists = score_rows(options.metric, (&packed.0, &packed.1), Against::All, |query, scores| {
        let mut all = vec![Group::default(); count];
        for (row, &score) in scores.iter().enumerate().filter(|(row, _)| options.admits(query, *row)) {
            all[groups[row] as usize].add(score, row as u32);
        }
        let mut keys: Vec<u64> =
            all.iter().filter(|group| group.rows > 0).map(|group| group.key(by)).collect();
        if options.k < keys.len() {
            keys.select_nth_unstable_by(options.k, |a, b| b.cmp(a));
            keys.truncate(options.k);
        }
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys
    });
    Ok(RankedLists::from_keys(options.k, lists, |score| options.metric.present(score)))
}

#[derive(Clone, Copy, Default)]
struct Group {
    rows: usize,
    best: (f32, u32),
    sum: f64,
}

impl Group {
    fn add(&mut self, score: f32, row: u32) {
        if self.rows == 0 || score > self.best.0 {
            self.best = (score, row);
        }
        self.rows += 1;
        self.sum += f64::from(score);
    }

    fn key(&self, by: GroupScore) -> u64 {
        let score = match by {
            GroupScore::Best => self.best.0,
            GroupScore::Mean => (self.sum / self.rows as f64) as f32,
        };
        rank_key(score, self.best.1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Metric, search};
    use super::*;
    use crate::Matrix;

    const METRICS: [Metric; 3] = [Metric::Euclidean, Metric::Cosine, Metric::InnerProduct];

    /// The groups from the complete ranked list of all rows.
    fn naive(
        (queries, gallery): (&Matrix, &Matrix),
        groups: &[u32],
        by: GroupScore,
        options: &SearchOptions,
    ) -> Vec<Vec<(u32, f32)>> {
        let whole = search(queries, gallery, &SearchOptions { k: gallery.rows(), ..*options }).unwrap();
        let sign = if options.metric == Metric::Euclidean { 1.0 } else { -1.0 };
        let of_query = |(rows, scores): (&[u32], &[f32])| {
            let mut list: Vec<(u32, f32)> = Vec::new();
            for group in 0..gallery.rows() as u32 {
                let mut members: Vec<(u32, f32)> = (rows.iter().zip(scores))
                    .filter(|(row, _)| groups[**row as usize] == group)
                    .map(|(&row, &score)| (row, score))
                    .collect();
                let Some(&(row, best)) = members.first() else { continue };
                members.sort_by_key(|&(row, _)| row);
                let sum: f64 = members.iter().map(|&(_, score)| f64::from(score)).sum();
                let mean = (sum / members.len() as f64) as f32;
                list.push((row, if by == GroupScore::Best { best } else { mean }));
            }
            list.sort_by(|a, b| (sign * a.1).total_cmp(&(sign * b.1)).then(a.0.cmp(&b.0)));
            list.truncate(options.k);
            list
        };
        whole.iter().map(of_query).collect()
    }

    proptest! {
        #[test]
        fn the_best_groups_are_those_of_the_complete_lists(
            // Few values, so that there are ties.
            rows in prop::collection::vec((-3..4i8, -3..4i8, 0..7u32), 7..60),
            (k, metric, filtered) in (1..9usize, 0..3usize, any::<bool>()),
        ) {
            let values = rows.iter().flat_map(|row| [f32::from(row.0), f32::from(row.1) + 0.5]).collect();
            let gallery = Matrix::new(rows.len(), 2, values).unwrap();
            let groups: Vec<u32> = rows.iter().map(|row| row.2).collect();
            let queries = Matrix::new(3, 2, vec![1.0, 0.25, -2.0, 1.0, 0.5, -0.5]).unwrap();
            let odd = |query: usize, row: usize| !(query + row).is_multiple_of(3);
            let options = SearchOptions { metric: METRICS[metric], ..SearchOptions::new(k) };
            let options = if filtered { SearchOptions { filter: Some(&odd), ..options } } else { options };
            for by in [GroupScore::Best, GroupScore::Mean] {
                let found = search_groups(&queries, &gallery, &groups, by, &options).unwrap();
                let found: Vec<Vec<(u32, f32)>> = found
                    .iter()
                    .map(|(rows, scores)| rows.iter().copied().zip(scores.iter().copied()).collect())
                    .collect();
                prop_assert_eq!(found, naive((&queries, &gallery), &groups, by, &options), "{:?}", by);
            }
        }
    }

    #[test]
    fn rows_that_are_groups_of_their_own_are_found_as_without_groups() {
        let values = (0..500).map(|i| ((i * 37) % 101) as f32 / 7.0).collect();
        let gallery = Matrix::new(100, 5, values).unwrap();
        let groups: Vec<u32> = (0..100).collect();
        for metric in METRICS {
            let options = SearchOptions { metric, ..SearchOptions::new(10) };
            let wanted = search(&gallery, &gallery, &options).unwrap();
            for by in [GroupScore::Best, GroupScore::Mean] {
                assert_eq!(search_groups(&gallery, &gallery, &groups, by, &options).unwrap(), wanted);
            }
        }
    }

    #[test]
    fn groups_that_do_not_fit_are_refused() {
        let rows = Matrix::new(2, 1, vec![1.0, 2.0]).unwrap();
        let refused = |groups: &[u32]| {
            search_groups(&rows, &rows, groups, GroupScore::Best, &SearchOptions::new(1))
                .unwrap_err()
                .to_string()
        };
        assert_eq!(refused(&[0]), "1 groups for 2 gallery rows");
        assert_eq!(refused(&[0, 2]), "a group must be below the number of rows, 2 given");
    }
}
