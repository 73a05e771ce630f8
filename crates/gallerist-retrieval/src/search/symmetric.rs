//! A gallery against itself: each tile of scores serves its rows and its columns.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gallerist_util::interrupt;
use rayon::prelude::*;

use super::best::Best;
use super::forecast::Forecast;
use super::lists::RankedLists;
use super::options::SearchOptions;
use super::prepare::panels_per_block;
use super::scorer::Scorer;
use super::split::scan;
use crate::product::{Kernel, LANES, Panels, ROWS, Tile, ones};

pub(super) fn search(gallery: &Panels, options: &SearchOptions) -> RankedLists {
    let forecast = Forecast::new(gallery, options.k.min(gallery.rows()), options);
    search_from(gallery, options, forecast)
}

/// Searches from the floors of a forecast, if there is one.
fn search_from(gallery: &Panels, options: &SearchOptions, forecast: Option<Forecast>) -> RankedLists {
    let kernel = Kernel::best();
    let options = SearchOptions { exclude_self: true, ..*options };
    let scorer = Scorer::new(options.metric, gallery, gallery);
    let k = options.k.min(gallery.rows());

    // Enough blocks for every thread to find a pair that no other thread works on.
    let most = gallery.panels().div_ceil(4 * rayon::current_num_threads());
    let size = (BLOCKS * panels_per_block(gallery.depth())).min(most).max(1);
    let blocks = gallery.panels().div_ceil(size);
    let panels = |block: usize| block * size..((block + 1) * size).min(gallery.panels());
    let empty = |block: usize| {
        let panels = panels(block);
        Best::new((panels.end * LANES).min(gallery.rows()) - panels.start * LANES, k)
    };
    let bests: Vec<Mutex<Best>> = (0..blocks)
        .into_par_iter()
        .map(|block| {
            let panels = panels(block);
            let mut best = empty(block);
            if let Some(forecast) = &forecast {
                forecast.raise(kernel, gallery, panels.clone(), &mut best);
            }
            scan(kernel, &scorer, panels.clone(), (0, panels), &options, &mut best);
            Mutex::new(best)
        })
        .collect();
    // A `Best` does not depend on the order of insertion, and a panic ends the search.
    let lock =
        |block: usize| -> MutexGuard<Best> { bests[block].lock().unwrap_or_else(PoisonError::into_inner) };
    // Within a round no block occurs twice, so no thread waits for another.
    for round in rounds(blocks) {
        round.into_par_iter().with_max_len(1).for_each(|(a, b)| {
            interrupt::point();
            let (mut best_a, mut best_b) = (lock(a), lock(b));
            scan_pair(kernel, &scorer, (panels(a), &mut best_a), (panels(b), &mut best_b), &options);
        });
    }
    let mut bests: Vec<Best> =
        bests.into_iter().map(|best| best.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    bests.par_iter_mut().enumerate().for_each(|(block, best)| {
        // A floor was too high: without one.
        if forecast.is_some() && (0..best.rows()).any(|row| best.is_short(row)) {
            *best = empty(block);
            scan(kernel, &scorer, panels(block), (0, 0..gallery.panels()), &options, best);
        }
        best.sort();
    });
    RankedLists::new(options.k, bests, |score| options.metric.present(score))
}

/// All pairs of different blocks, in rounds in which no block occurs twice: a round-robin
/// tournament by the circle method.
pub(crate) fn rounds(blocks: usize) -> impl Iterator<Item = Vec<(usize, usize)>> {
    // With an odd number, the last player does not exist, and its opponent has no match.
    let players = blocks.next_multiple_of(2).max(2);
    let circle = players - 1;
    (0..circle).map(move |round| {
        let meets = |i: usize| match i {
            0 => (round, circle),
            _ => ((round + i) % circle, (round + circle - i) % circle),
        };
        (0..players / 2).map(meets).filter(|&(a, b)| a < blocks && b < blocks).collect()
    })
}

/// Parts of a block that stay in a core's cache by turns: larger blocks meet less often, and each time they do,
/// all of one is read from memory.
const BLOCKS: usize = 4;

/// Offers every pair of a row of `a` and a row of `b` to the lists of both.
fn scan_pair(
    kernel: Kernel,
    scorer: &Scorer,
    (panels_a, best_a): (Range<usize>, &mut Best),
    (panels_b, best_b): (Range<usize>, &mut Best),
    options: &SearchOptions,
) {
    let gallery = scorer.gallery;
    let (first_a, first_b) = (panels_a.start * LANES, panels_b.start * LANES);
    let rows_in = |panel: usize| LANES.min(gallery.rows() - panel * LANES);
    let floors = |panels: &Range<usize>, best: &Best| -> Vec<[f32; LANES]> {
        let of_panel = |panel: usize| {
            let mut floors = [f32::INFINITY; LANES];
            for lane in 0..rows_in(panel) {
                let row = panel * LANES + lane;
                floors[lane] = scorer.key_floor(row, best.floor(row - panels.start * LANES));
            }
            floors
        };
        panels.clone().map(of_panel).collect()
    };
    let (mut floors_a, mut floors_b) = (floors(&panels_a, best_a), floors(&panels_b, best_b));
    let mut tiles = Tile::for_panel();
    // Some panels of `a` stay in the cache while those of `b` pass by.
    let stay = panels_per_block(gallery.depth());
    let panels_a = panels_a.clone().step_by(stay).map(|start| start..panels_a.end.min(start + stay));
    for (panels_a, floors_a) in panels_a.zip(floors_a.chunks_mut(stay)) {
        for (panel_b, panel_a) in panels_b.clone().flat_map(|b| panels_a.clone().map(move |a| (b, a))) {
            let rows_a = rows_in(panel_a);
            let floors_a = &mut floors_a[panel_a - panels_a.start];
            let floors_b = &mut floors_b[panel_b - panels_b.start];
            kernel.products(
                rows_a,
                (gallery.panel(panel_a), gallery.bias(panel_a)),
                (gallery.panel(panel_b), gallery.bias(panel_b)),
                &mut tiles,
            );
            let groups = floors_a[..].as_chunks_mut::<ROWS>().0;
            let used = tiles.iter().zip(groups).take(rows_a.div_ceil(ROWS));
            for (group, (tile, floors_a)) in used.enumerate() {
                let first = panel_a * LANES + group * ROWS;
                let rows = ROWS.min(rows_a - group * ROWS);
                let for_a = kernel.at_least_rows(tile, floors_a);
                let for_b = kernel.at_least_lanes(tile, floors_b);
                for row in 0..rows {
                    let a = first + row;
                    for lane in ones(for_a[row]) {
                        let b = panel_b * LANES + lane;
                        let score = scorer.score(tile.0[row][lane], a, b);
                        if options.offer(best_a, a - first_a, a, b, score) {
                            floors_a[row] = scorer.key_floor(a, best_a.floor(a - first_a));
                        }
                    }
                    for lane in ones(for_b[row]) {
                        let b = panel_b * LANES + lane;
                        let score = scorer.score(tile.0[row][lane], b, a);
                        if options.offer(best_b, b - first_b, b, a, score) {
                            floors_b[lane] = scorer.key_floor(b, best_b.floor(b - first_b));
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{generator, unit};
    use crate::search::Metric;
    use crate::{Matrix, search};

    #[test]
    fn lists_are_the_same_whatever_is_forecast() {
        let (rows, k) = (4_500, 256);
        let mut random = generator(3, 0);
        // In steps, so that scores are equal.
        let values = (0..rows * 3).map(|_| (unit(&mut random) * 40.0).floor() as f32).collect();
        let matrix = Matrix::new(rows, 3, values).unwrap();
        for metric in [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean] {
            let options = SearchOptions { metric, ..SearchOptions::new(k) };
            let gallery = search::pack(matrix.view(), "gallery", metric).unwrap();
            let without = search_from(&gallery, &options, None);
            let forecast = || Forecast::new(&gallery, k, &options).expect("a forecast pays here");
            let mut too_high = forecast();
            too_high.place = 1;
            for forecast in [forecast(), too_high] {
                let lists = search_from(&gallery, &options, Some(forecast));
                for row in 0..rows {
                    assert_eq!(lists.indices(row), without.indices(row), "{metric:?}, row {row}");
                    assert_eq!(lists.scores(row), without.scores(row), "{metric:?}, row {row}");
                }
            }
        }
    }

    #[test]
    fn every_pair_meets_once_and_no_block_twice_in_a_round() {
        for blocks in [0, 1, 2, 3, 4, 7, 12, 33] {
            let mut met = vec![false; blocks * blocks];
            for round in rounds(blocks) {
                let mut busy = vec![false; blocks];
                for (a, b) in round {
                    assert!(a != b && !busy[a] && !busy[b], "{a} meets {b} of {blocks}");
                    (busy[a], busy[b]) = (true, true);
                    let pair = a.min(b) * blocks + a.max(b);
                    assert!(!std::mem::replace(&mut met[pair], true));
                }
            }
            let meetings = met.iter().filter(|&&met| met).count();
            assert_eq!(meetings, blocks * blocks.saturating_sub(1) / 2);
        }
    }
}
