//! All scores of a query, for what needs more of them than the best few.

use gallerist_util::interrupt;
use rayon::prelude::*;

use crate::product::{GROUPS, Kernel, LANES, Panels, ROWS, Tile};
use crate::search::{Metric, Scorer};

/// Bytes of scores that one thread holds, where the gallery allows.
const BYTES: usize = 32 << 20;

/// Which gallery rows a query is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// All.
    All,
    /// The queries are the gallery, and each pair is needed once: the rows after the query. The scores of the
    /// other rows are unspecified.
    Later,
}

/// Hands the scores of each packed query with every packed gallery row, larger is closer, to
/// `work`, and returns what that returns in the order of the queries.
///
/// Memory in addition to the results: for each thread the scores of 8 to 48 queries. `work` may change
/// the scores.
pub(crate) fn score_rows<T: Send>(
    metric: Metric,
    (queries, gallery): (&Panels, &Panels),
    against: Against,
    work: impl Fn(usize, &mut [f32]) -> T + Sync,
) -> Vec<T> {
    let (kernel, scorer) = (Kernel::best(), Scorer::new(metric, queries, gallery));
    let items = gallery.rows();
    // A divisor of GROUPS, so that a task stays within a panel.
    let fits = |groups: &usize| groups * ROWS * items * size_of::<f32>() <= BYTES;
    let groups = [GROUPS, GROUPS / 2, GROUPS / 3].into_iter().find(fits).unwrap_or(1);
    let height = groups * ROWS;
    let tasks = queries.rows().div_ceil(height);
    let results: Vec<Vec<T>> = (0..tasks)
        .into_par_iter()
        .map_init(
            || (vec![0.0f32; height * items], Tile::new()),
            |(scores, tile), task| {
                interrupt::point();
                let rows = task * height..queries.rows().min((task + 1) * height);
                let panel = rows.start / LANES;
                let first_panel = if against == Against::Later { panel } else { 0 };
                for item_panel in first_panel..gallery.panels() {
                    let lanes = LANES.min(items - item_panel * LANES);
                    for start in rows.clone().step_by(ROWS) {
                        let group = start / ROWS % GROUPS;
                        let count = ROWS.min(rows.end - start);
                        kernel.product(
                            count,
                            (queries.panel(panel), group, &queries.bias(panel).as_chunks().0[group]),
                            (gallery.panel(item_panel), gallery.bias(item_panel)),
                            tile,
                        );
                        for row in 0..count {
                            let at = (start + row - rows.start) * items + item_panel * LANES;
                            for (lane, to) in scores[at..at + lanes].iter_mut().enumerate() {
                                let item = item_panel * LANES + lane;
                                *to = scorer.score(tile.0[row][lane], start + row, item);
                            }
                        }
                    }
                }
                let scores = scores.chunks_mut(items.max(1));
                rows.zip(scores).map(|(row, scores)| work(row, scores)).collect()
            },
        )
        .collect();
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;
    use crate::search::pack_rows;

    #[test]
    fn every_score_is_that_of_its_pair() {
        for (queries, items) in [(1, 1), (7, 2), (8, 48), (47, 49), (97, 100)] {
            let values = |rows: usize, salt: usize| {
                let data = (0..rows * 3).map(|i| ((i * 37 + salt) % 11) as f32 - 5.0).collect();
                Matrix::new(rows, 3, data).unwrap()
            };
            let (a, b) = (values(queries, 1), values(items, 4));
            let pack = |m: &Matrix| {
                let order: Vec<usize> = (0..m.rows()).collect();
                pack_rows(m.view(), &order, "rows", Metric::InnerProduct).unwrap()
            };
            let found =
                score_rows(Metric::InnerProduct, (&pack(&a), &pack(&b)), Against::All, |row, scores| {
                    (row, scores.to_vec())
                });
            assert_eq!(found.len(), queries);
            for (at, (row, scores)) in found.iter().enumerate() {
                assert_eq!((at, scores.len()), (*row, items));
                for (item, score) in scores.iter().enumerate() {
                    let wanted: f32 = a.row(at).iter().zip(b.row(item)).map(|(x, y)| x * y).sum();
                    assert_eq!(*score, wanted);
                }
            }
            let pairs =
                score_rows(Metric::InnerProduct, (&pack(&b), &pack(&b)), Against::Later, |row, scores| {
                    scores[row + 1..].to_vec()
                });
            for (row, scores) in pairs.iter().enumerate() {
                for (score, item) in scores.iter().zip(row + 1..) {
                    let wanted: f32 = b.row(row).iter().zip(b.row(item)).map(|(x, y)| x * y).sum();
                    assert_eq!(*score, wanted);
                }
            }
        }
    }
}
