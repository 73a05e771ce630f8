//! Queries against a gallery of other rows.

use std::borrow::Cow;
use std::ops::Range;

use gallerist_util::interrupt;
use rayon::prelude::*;

use super::best::Best;
use super::lists::RankedLists;
use super::options::SearchOptions;
use super::prepare::panels_per_block;
use super::scorer::Scorer;
use crate::Result;
use crate::product::{Kernel, LANES, Panels, ROWS, Tile, ones};

/// Panels of queries that one task ranks.
const QUERY_PANELS: usize = 5;

/// Ranks the chunks of a gallery, each given with the index of its first row; `rows` rows in all.
pub(super) fn search<'a>(
    queries: &Panels,
    rows: usize,
    chunks: impl Iterator<Item = Result<(usize, Cow<'a, Panels>)>>,
    options: &SearchOptions,
) -> Result<RankedLists> {
    let kernel = Kernel::best();
    let k = options.k.min(rows);

    // Few queries are spread over the threads by cutting the gallery. The best k of the best k
    // of each part are the best k, so the cut does not show in the lists.
    let blocks = queries.panels().div_ceil(QUERY_PANELS);
    let tasks = 4 * rayon::current_num_threads();
    let parts = if blocks >= tasks { 1 } else { tasks.div_ceil(blocks.max(1)) };
    let panels = |block: usize| block * QUERY_PANELS..queries.panels().min((block + 1) * QUERY_PANELS);
    let mut bests: Vec<Best> = (0..blocks * parts)
        .map(|task| {
            let panels = panels(task / parts);
            Best::new(queries.rows().min(panels.end * LANES) - panels.start * LANES, k)
        })
        .collect();
    for chunk in chunks {
        let (offset, gallery) = chunk?;
        let scorer = Scorer::new(options.metric, queries, &gallery);
        bests.par_iter_mut().enumerate().for_each(|(task, best)| {
            let cut = |part| gallery.panels() * part / parts;
            let part = cut(task % parts)..cut(task % parts + 1);
            scan(kernel, &scorer, panels(task / parts), (offset, part), options, best);
        });
    }
    bests.par_chunks_mut(parts).for_each(|parts| {
        let (best, others) = parts.split_first_mut().expect("every block has a part");
        others.iter().for_each(|part| best.merge(part));
        best.sort();
    });
    Ok(RankedLists::new(options.k, bests.into_iter().step_by(parts).collect(), |score| {
        options.metric.present(score)
    }))
}

/// Offers every pair of the panels' rows that may be among the best to `best`; row 0 of the
/// packed gallery has the index `offset`.
pub(super) fn scan(
    kernel: Kernel,
    scorer: &Scorer,
    query_panels: Range<usize>,
    (offset, gallery_panels): (usize, Range<usize>),
    options: &SearchOptions,
    best: &mut Best,
) {
    let (queries, gallery) = (scorer.queries, scorer.gallery);
    let block = panels_per_block(gallery.depth());
    let first_query = query_panels.start * LANES;
    let mut tiles = Tile::for_panel();
    for start in gallery_panels.clone().step_by(block) {
        interrupt::point();
        let gallery_block = start..(start + block).min(gallery_panels.end);
        for query_panel in query_panels.clone() {
            let rows = LANES.min(queries.rows() - query_panel * LANES);
            let mut floors = [f32::INFINITY; LANES];
            for row in 0..rows {
                let query = query_panel * LANES + row;
                floors[row] = scorer.key_floor(query, best.floor(query - first_query));
            }
            for gallery_panel in gallery_block.clone() {
                kernel.products(
                    rows,
                    (queries.panel(query_panel), queries.bias(query_panel)),
                    (gallery.panel(gallery_panel), gallery.bias(gallery_panel)),
                    &mut tiles,
                );
                let groups = floors[..].as_chunks_mut::<ROWS>().0;
                for (group, (tile, floors)) in tiles.iter().zip(groups).take(rows.div_ceil(ROWS)).enumerate()
                {
                    let first = query_panel * LANES + group * ROWS;
                    let reached = kernel.at_least_rows(tile, floors);
                    for row in 0..ROWS.min(rows - group * ROWS) {
                        let (query, slot) = (first + row, first + row - first_query);
                        for lane in ones(reached[row]) {
                            let item = gallery_panel * LANES + lane;
                            let score = scorer.score(tile.0[row][lane], query, item);
                            if options.offer(best, slot, query, offset + item, score) {
                                floors[row] = scorer.key_floor(query, best.floor(slot));
                            }
                        }
                    }
                }
            }
        }
    }
}

impl SearchOptions<'_> {
    /// Offers gallery row `item` to the list of `query`; true when the list's floor has risen.
    #[inline]
    pub(super) fn offer(&self, best: &mut Best, slot: usize, query: usize, item: usize, score: f32) -> bool {
        best.admits(slot, score, item as u32)
            && self.admits(query, item)
            && best.push(slot, score, item as u32)
    }

    /// Whether the pair may be ranked.
    #[inline]
    pub(super) fn admits(&self, query: usize, item: usize) -> bool {
        !(self.exclude_self && item == query) && self.filter.is_none_or(|filter| filter(query, item))
    }
}
