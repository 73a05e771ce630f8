//! Scores of pairs that were chosen elsewhere.

use super::metric::Metric;
use super::scorer::Scorer;
use crate::MatrixView;
use crate::product::{Kernel, LANES, Panels, Tile};

/// The scores of `query` with the rows of `gallery` named, in that order: the same, to the last
/// bit, as in the lists of [`search`](super::search()).
///
/// Both sides must have passed [`Metric::check`].
pub(crate) fn pair_scores(query: &[f32], gallery: MatrixView, rows: &[u32], metric: Metric) -> Vec<f32> {
    let pack = |rows: &[&[f32]]| {
        let read = |i: usize, to: &mut [f32]| {
            to.copy_from_slice(rows[i]);
            metric.prepare(to);
        };
        Panels::gather(query.len(), rows.len(), read, |row| metric.bias(row))
    };
    let items: Vec<&[f32]> = rows.iter().map(|&row| gallery.row(row as usize)).collect();
    let (query, items) = (pack(&[query]), pack(&items));
    let scorer = Scorer::new(metric, &query, &items);
    let (kernel, mut tile) = (Kernel::best(), Tile::new());
    let mut scores = Vec::with_capacity(rows.len());
    for panel in 0..items.panels() {
        let bias = &query.bias(0).as_chunks().0[0];
        kernel.product(1, (query.panel(0), 0, bias), (items.panel(panel), items.bias(panel)), &mut tile);
        for lane in 0..LANES.min(items.rows() - panel * LANES) {
            let score = scorer.score(tile.0[0][lane], 0, panel * LANES + lane);
            scores.push(metric.present(score));
        }
    }
    scores
}
