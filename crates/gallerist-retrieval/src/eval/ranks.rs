//! The ranks of the relevant items, computed by counting the items before them.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use gallerist_util::interrupt;
use rayon::prelude::*;

use super::counts::Counts;
use super::relevant_ranks::RelevantRanks;
use super::ties::Extremes;
use crate::product::{GROUPS, Kernel, LANES, Panels, ROWS, Tile, ones};
use crate::search::{Metric, Scorer, pack_rows, panels_per_block, rank_key, rounds, score_of};
use crate::{MatrixView, Result};

/// Embeddings with what decides their relevance.
#[derive(Clone, Copy)]
pub(super) struct Classed<'a> {
    pub(super) embeddings: MatrixView<'a>,
    pub(super) labels: &'a [u32],
    pub(super) cameras: Option<&'a [u32]>,
}

/// Queries, a gallery and what is relevant to what: gallery items with the query's label, except
/// those that are skipped.
pub(super) struct Problem<'a> {
    pub(super) queries: Classed<'a>,
    pub(super) gallery: Classed<'a>,
    /// Queries and gallery show the same images: row i is skipped for query i.
    pub(super) same: bool,
    /// They are the same rows, too.
    pub(super) symmetric: bool,
    /// Gallery items of this label are skipped for every query.
    pub(super) junk: Option<u32>,
    /// The number of the first query, and of the first item, in sets of which these are a part.
    pub(super) first: (usize, usize),
}

impl Problem<'_> {
    /// Whether a gallery item with the query's label takes up no rank for it.
    pub(super) fn skips(&self, query: usize, item: usize) -> bool {
        let same_camera = || match (self.queries.cameras, self.gallery.cameras) {
            (Some(queries), Some(gallery)) => queries[query] == gallery[item],
            _ => false,
        };
        self.same && self.first.0 + query == self.first.1 + item || same_camera()
    }

    /// The number of a gallery item in the whole gallery.
    fn number(&self, item: usize) -> u32 {
        (self.first.1 + item) as u32
    }

    /// The queries by label: rows of one label are adjacent, so that the rows that need other treatment are a range.
    fn query_order(&self) -> Vec<usize> {
        by_label(self.queries.labels)
    }

    /// The gallery items by label, without junk.
    fn item_order(&self) -> Vec<usize> {
        let mut order = by_label(self.gallery.labels);
        order.retain(|&item| Some(self.gallery.labels[item]) != self.junk);
        order
    }
}

fn by_label(labels: &[u32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&row| labels[row]);
    order
}

/// What is known about each query, in the order of the queries.
pub(super) struct PerQuery {
    pub(super) queries: Vec<Query>,
    /// `width` values per query.
    pub(super) values: Vec<f64>,
    /// The queries whose values depend on the order of items exactly as close.
    pub(super) extremes: Vec<Extremes>,
    /// Gallery items that are not junk.
    pub(super) gallery: usize,
}

impl PerQuery {
    /// Nothing measured yet of `queries` queries, `width` values each, against `gallery` items.
    pub(super) fn new(queries: usize, width: usize, gallery: usize) -> Self {
        Self {
            queries: vec![Query { has_match: false, tied: false }; queries],
            values: vec![0.0; queries * width],
            extremes: Vec::new(),
            gallery,
        }
    }

    /// Lets `measure` turn the counts of query `row` into its `width` values.
    pub(super) fn take(
        &mut self,
        row: usize,
        counts: &Counts,
        width: usize,
        measure: impl Fn(&RelevantRanks, &mut [f64]),
    ) {
        self.queries[row] = Query { has_match: !counts.relevant.is_empty(), tied: counts.tied() };
        let values = &mut self.values[row * width..][..width];
        measure(&RelevantRanks::new(&counts.ranks()), values);
        if counts.tied() {
            let (best, worst) = counts.extreme_ranks();
            let extreme = (RelevantRanks::new(&best), RelevantRanks::new(&worst));
            self.extremes.extend(Extremes::of(row, values, extreme, &measure));
        }
    }
}

#[derive(Clone)]
pub(super) struct Query {
    pub(super) has_match: bool,
    /// An irrelevant item has exactly the score of a relevant one.
    pub(super) tied: bool,
}

/// Finds the ranks of each query's relevant items and lets `measure` turn them into `width`
/// values.
pub(super) fn measure_queries(
    problem: &Problem,
    metric: Metric,
    width: usize,
    measure: impl Fn(&RelevantRanks, &mut [f64]) + Sync,
) -> Result<PerQuery> {
    let (query_order, item_order) = (problem.query_order(), problem.item_order());
    let items = pack_rows(problem.gallery.embeddings, &item_order, "gallery", metric)?;

    let mut per_query = PerQuery::new(query_order.len(), width, item_order.len());
    let mut take = |order: &[usize], counts: &[Counts]| {
        // An undecided query is counted again, and taken then.
        for (&row, counts) in order.iter().zip(counts).filter(|(_, counts)| !counts.undecided) {
            per_query.take(row, counts, width, &measure);
        }
    };
    let undecided = if problem.symmetric && query_order == item_order {
        let counting = Counting::new(problem, metric, (&items, &query_order), (&items, &item_order));
        if counting.largest_class() <= LARGEST_CLASS_TO_COUNT {
            let counts = counting.count_symmetric();
            take(&query_order, &counts);
            let undecided = query_order.iter().zip(&counts).filter(|(_, counts)| counts.undecided);
            undecided.map(|(&row, _)| row).collect()
        } else {
            query_order.clone()
        }
    } else {
        query_order.clone()
    };
    // The relevant items of all queries at once may be more than memory holds.
    for rows in undecided.chunks(1 << 14) {
        let queries = pack_rows(problem.queries.embeddings, rows, "queries", metric)?;
        let counting = Counting::new(problem, metric, (&queries, rows), (&items, &item_order));
        let counts: Vec<Vec<Counts>> =
            counting.blocks().into_par_iter().map(|rows| counting.count(rows)).collect();
        take(rows, &counts.into_iter().flatten().collect::<Vec<_>>());
    }
    Ok(per_query)
}

/// Panels of queries that one task ranks.
const QUERY_PANELS: usize = 5;

/// Up to this class size every score is compared with the score of every relevant item, 16 at a
/// time; beyond it a search for the place of each score among them is faster.
const LARGEST_CLASS_TO_COUNT: usize = 32;

/// The rank keys of the relevant items of each query, the best first, in the order of the queries.
pub(super) fn relevant_keys(problem: &Problem, metric: Metric) -> Result<Vec<Vec<u64>>> {
    let query_order = problem.query_order();
    let wanted = |label: u32| {
        let at = query_order.partition_point(|&query| problem.queries.labels[query] < label);
        query_order.get(at).is_some_and(|&query| problem.queries.labels[query] == label)
    };
    let mut item_order = problem.item_order();
    item_order.retain(|&item| wanted(problem.gallery.labels[item]));
    let queries = pack_rows(problem.queries.embeddings, &query_order, "queries", metric)?;
    let items = pack_rows(problem.gallery.embeddings, &item_order, "gallery", metric)?;
    let counting = Counting::new(problem, metric, (&queries, &query_order), (&items, &item_order));
    let found: Vec<Vec<Counts>> =
        counting.blocks().into_par_iter().map(|rows| counting.relevant(rows)).collect();
    let mut keys = vec![Vec::new(); query_order.len()];
    for (&query, counts) in query_order.iter().zip(found.into_iter().flatten()) {
        keys[query] = counts.relevant;
    }
    Ok(keys)
}

/// Adds the irrelevant items of the gallery to `counts`, one for each query.
pub(super) fn count_irrelevant(problem: &Problem, metric: Metric, counts: &mut [Counts]) -> Result<()> {
    let (query_order, item_order) = (problem.query_order(), problem.item_order());
    let queries = pack_rows(problem.queries.embeddings, &query_order, "queries", metric)?;
    let items = pack_rows(problem.gallery.embeddings, &item_order, "gallery", metric)?;
    let counting = Counting::new(problem, metric, (&queries, &query_order), (&items, &item_order));
    let mut ordered: Vec<Counts> =
        query_order.iter().map(|&query| std::mem::take(&mut counts[query])).collect();
    let blocks = ordered.par_chunks_mut(QUERY_PANELS * LANES).enumerate();
    blocks.for_each(|(block, counts)| counting.count_in(block * QUERY_PANELS, counts));
    for (&query, found) in query_order.iter().zip(ordered) {
        counts[query] = found;
    }
    Ok(())
}

struct Counting<'a> {
    kernel: Kernel,
    scorer: Scorer<'a>,
    problem: &'a Problem<'a>,
    /// The query in each packed row.
    query_order: &'a [usize],
    /// The gallery item in each packed row, by label.
    item_order: &'a [usize],
}

impl<'a> Counting<'a> {
    /// Packed queries and packed gallery, each with the contents of its rows.
    fn new(
        problem: &'a Problem<'a>,
        metric: Metric,
        (queries, query_order): (&'a Panels, &'a [usize]),
        (items, item_order): (&'a Panels, &'a [usize]),
    ) -> Self {
        let scorer = Scorer::new(metric, queries, items);
        Self { kernel: Kernel::best(), scorer, problem, query_order, item_order }
    }

    fn query_label(&self, row: usize) -> u32 {
        self.problem.queries.labels[self.query_order[row]]
    }

    /// The packed gallery rows of a label.
    fn class(&self, label: u32) -> Range<usize> {
        let label_of = |item: &usize| self.problem.gallery.labels[*item];
        let start = self.item_order.partition_point(|item| label_of(item) < label);
        let length = self.item_order[start..].partition_point(|item| label_of(item) == label);
        start..start + length
    }

    fn largest_class(&self) -> usize {
        let labels = self.problem.gallery.labels;
        let same = |a: &usize, b: &usize| labels[*a] == labels[*b];
        self.item_order.chunk_by(same).map(<[usize]>::len).max().unwrap_or(0)
    }

    fn tile(&self, rows: usize, (panel, group): (usize, usize), item_panel: usize, tile: &mut Tile) {
        let (queries, gallery) = (self.scorer.queries, self.scorer.gallery);
        let bias = &queries.bias(panel).as_chunks().0[group];
        self.kernel.product(
            rows,
            (queries.panel(panel), group, bias),
            (gallery.panel(item_panel), gallery.bias(item_panel)),
            tile,
        );
    }

    /// The keys of the first `rows` rows of a panel of queries with a panel of items.
    fn tiles(&self, rows: usize, panel: usize, item_panel: usize, tiles: &mut [Tile; GROUPS]) {
        let (queries, gallery) = (self.scorer.queries, self.scorer.gallery);
        self.kernel.products(
            rows,
            (queries.panel(panel), queries.bias(panel)),
            (gallery.panel(item_panel), gallery.bias(item_panel)),
            tiles,
        );
    }

    /// Hands out the keys of each packed query in `rows` with each packed item of its class. They
    /// come from the same kernel as all other keys, and so have the same bits.
    fn class_keys(&self, rows: Range<usize>, mut take: impl FnMut(usize, usize, f32)) {
        let mut tile = Tile::new();
        let mut row = rows.start;
        while row < rows.end {
            let label = self.query_label(row);
            let limit = rows.end.min((row / ROWS + 1) * ROWS);
            let end = (row..limit).find(|&other| self.query_label(other) != label).unwrap_or(limit);
            let class = self.class(label);
            for item_panel in class.start / LANES..class.end.div_ceil(LANES) {
                let place = (row / LANES, row / ROWS % GROUPS);
                self.tile((end - 1) % ROWS + 1, place, item_panel, &mut tile);
                for row in row..end {
                    for lane in 0..LANES {
                        let item = item_panel * LANES + lane;
                        if class.contains(&item) {
                            take(row, item, tile.0[row % ROWS][lane]);
                        }
                    }
                }
            }
            row = end;
        }
    }

    /// The relevant items of the packed queries `rows`, the best first.
    fn relevant(&self, rows: Range<usize>) -> Vec<Counts> {
        let mut counts: Vec<Counts> = rows.clone().map(|_| Counts::default()).collect();
        self.class_keys(rows.clone(), |row, item, key| {
            let index = self.item_order[item];
            if !self.problem.skips(self.query_order[row], index) {
                let score = self.scorer.score(key, row, item);
                counts[row - rows.start].relevant.push(rank_key(score, self.problem.number(index)));
            }
        });
        for counts in &mut counts {
            counts.relevant.sort_unstable_by(|a, b| b.cmp(a));
            counts.between = vec![0; counts.relevant.len()];
        }
        counts
    }

    /// The packed queries of [`QUERY_PANELS`] panels each.
    fn blocks(&self) -> Vec<Range<usize>> {
        let rows = self.scorer.queries.rows();
        let size = QUERY_PANELS * LANES;
        (0..rows).step_by(size).map(|start| start..rows.min(start + size)).collect()
    }

    /// Counts for the packed queries `rows`, which start a panel: every irrelevant item finds its place among the
    /// relevant ones.
    fn count(&self, rows: Range<usize>) -> Vec<Counts> {
        let mut counts = self.relevant(rows.clone());
        self.count_in(rows.start / LANES, &mut counts);
        counts
    }

    /// Adds the irrelevant items to the counts of the packed queries from `first_panel` on.
    fn count_in(&self, first_panel: usize, counts: &mut [Counts]) {
        let gallery = self.scorer.gallery;
        let first = first_panel * LANES;
        let floors: Vec<f32> = (first..)
            .zip(&*counts)
            .map(|(row, counts)| match counts.relevant.last() {
                Some(&last) => self.scorer.key_floor(row, score_of(last)),
                None => f32::INFINITY,
            })
            .collect();
        let block = panels_per_block(gallery.depth());
        let mut tiles = Tile::for_panel();
        for start in (0..gallery.panels()).step_by(block) {
            interrupt::point();
            for (panel, floors) in floors.chunks(LANES).enumerate() {
                for item_panel in start..(start + block).min(gallery.panels()) {
                    self.tiles(floors.len(), first_panel + panel, item_panel, &mut tiles);
                    for ((group, floors), tile) in floors.chunks(ROWS).enumerate().zip(&tiles) {
                        let reached = self.kernel.at_least_rows(tile, &filled(floors));
                        for row in 0..floors.len() {
                            let slot = panel * LANES + group * ROWS + row;
                            let label = self.query_label(first + slot);
                            for lane in ones(reached[row]) {
                                let item = item_panel * LANES + lane;
                                let index = self.item_order[item];
                                if self.problem.gallery.labels[index] != label {
                                    let score = self.scorer.score(tile.0[row][lane], first + slot, item);
                                    counts[slot].add(score, self.problem.number(index));
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Counts for all rows as queries against all rows, each tile for its rows and its columns.
    ///
    /// For each relevant item two floors are counted: keys that may come before it, and keys that
    /// certainly do. Where the two counts differ the query is left undecided.
    fn count_symmetric(&self) -> Vec<Counts> {
        let gallery = self.scorer.gallery;
        let most = gallery.panels().div_ceil(4 * rayon::current_num_threads());
        let size = panels_per_block(gallery.depth()).min(most).max(1);
        let blocks = gallery.panels().div_ceil(size);
        let tallies: Vec<Mutex<Tally>> = (0..blocks)
            .into_par_iter()
            .map(|block| {
                let panels = block * size..((block + 1) * size).min(gallery.panels());
                let rows = panels.start * LANES..gallery.rows().min(panels.end * LANES);
                let mut tally = Tally::new(panels, self.relevant(rows.clone()), |slot, score| {
                    let row = rows.start + slot;
                    [self.scorer.key_floor(row, score), self.scorer.key_ceiling(row, score)]
                });
                self.tally_within(&mut tally);
                Mutex::new(tally)
            })
            .collect();
        let lock = |block: usize| tallies[block].lock().unwrap_or_else(PoisonError::into_inner);
        for round in rounds(blocks) {
            round.into_par_iter().with_max_len(1).for_each(|(a, b)| {
                interrupt::point();
                self.tally_pair(&mut lock(a), &mut lock(b));
            });
        }
        tallies
            .into_par_iter()
            .flat_map_iter(|tally| {
                let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
                tally.join();
                self.settle(tally)
            })
            .collect()
    }

    /// Counts the pairs within a block, each from both its sides.
    fn tally_within(&self, tally: &mut Tally) {
        let mut tiles = Tile::for_panel();
        for (panel, first) in (0..tally.rows()).step_by(LANES).enumerate() {
            let rows = LANES.min(tally.rows() - first);
            for item_panel in tally.panels.clone() {
                self.tiles(rows, tally.panels.start + panel, item_panel, &mut tiles);
                for (row, keys) in tiles.iter().flat_map(|tile| &tile.0).take(rows).enumerate() {
                    tally.count_row(self.kernel, first + row, keys);
                }
            }
        }
    }

    /// Counts the pairs of a row of `a` and a row of `b` for both.
    fn tally_pair(&self, a: &mut Tally, b: &mut Tally) {
        let mut tiles = Tile::for_panel();
        for (panel_a, first) in (0..a.rows()).step_by(LANES).enumerate() {
            let rows = LANES.min(a.rows() - first);
            for panel in 0..b.panels.len() {
                self.tiles(rows, a.panels.start + panel_a, b.panels.start + panel, &mut tiles);
                for (slot, tile) in (first..first + rows).step_by(ROWS).zip(&tiles) {
                    let rows = ROWS.min(first + rows - slot);
                    let reached = self.kernel.at_least_rows(tile, &filled(&a.lowest[slot..slot + rows]));
                    for row in 0..rows {
                        if reached[row] != 0 {
                            a.count_row(self.kernel, slot + row, &tile.0[row]);
                        }
                    }
                    let reached = self.kernel.at_least_lanes(tile, &b.lane_lowest[panel]);
                    if reached[..rows].iter().any(|&bits| bits != 0) {
                        let levels = b.levels[panel]..b.levels[panel + 1];
                        let floors = &b.lane_floors[levels.clone()];
                        self.kernel.count_lanes(tile, rows, floors, &mut b.lane_counts[levels]);
                    }
                }
            }
        }
    }

    /// Takes the query's own class out of the counts, and compares what may come before each
    /// relevant item with what does.
    fn settle(&self, mut tally: Tally) -> Vec<Counts> {
        let first = tally.panels.start * LANES;
        self.class_keys(first..first + tally.rows(), |row, _, key| {
            let floors = tally.starts[row - first]..tally.starts[row - first + 1];
            for at in floors {
                tally.counts[at] -= u32::from(key >= tally.floors[at]);
            }
        });
        for (slot, counts) in tally.relevant.iter_mut().enumerate() {
            let found = &tally.counts[tally.starts[slot]..tally.starts[slot + 1]];
            let mut before = 0;
            for (pair, between) in found.as_chunks::<2>().0.iter().zip(&mut counts.between) {
                let [may, does] = *pair;
                counts.undecided |= may != does;
                *between = does.saturating_sub(before);
                before = before.max(does);
            }
        }
        tally.relevant
    }
}

/// The floors of a group, with floors that no key reaches after them.
fn filled(floors: &[f32]) -> [f32; ROWS] {
    let mut all = [f32::INFINITY; ROWS];
    all[..floors.len()].copy_from_slice(floors);
    all
}

/// The counts of one block of queries: two per relevant item.
struct Tally {
    panels: Range<usize>,
    relevant: Vec<Counts>,
    /// Row i has `starts[i]..starts[i + 1]` of `floors` and `counts`.
    starts: Vec<usize>,
    floors: Vec<f32>,
    counts: Vec<u32>,
    lowest: Vec<f32>,
    /// The same floors with the rows of a panel side by side: panel p has
    /// `levels[p]..levels[p + 1]`, filled up with infinity.
    levels: Vec<usize>,
    lane_floors: Vec<[f32; LANES]>,
    lane_counts: Vec<[u32; LANES]>,
    lane_lowest: Vec<[f32; LANES]>,
}

impl Tally {
    fn new(panels: Range<usize>, relevant: Vec<Counts>, floors_of: impl Fn(usize, f32) -> [f32; 2]) -> Self {
        let mut tally = Self {
            starts: vec![0],
            floors: Vec::new(),
            counts: Vec::new(),
            lowest: Vec::new(),
            levels: vec![0],
            lane_floors: Vec::new(),
            lane_counts: Vec::new(),
            lane_lowest: vec![[f32::INFINITY; LANES]; panels.len()],
            panels,
            relevant,
        };
        for (slot, counts) in tally.relevant.iter().enumerate() {
            let scores = counts.relevant.iter().map(|&key| score_of(key));
            tally.floors.extend(scores.flat_map(|score| floors_of(slot, score)));
            let floors = &tally.floors[tally.starts[slot]..];
            let lowest = floors.iter().copied().fold(f32::INFINITY, f32::min);
            tally.lowest.push(lowest);
            tally.lane_lowest[slot / LANES][slot % LANES] = lowest;
            tally.starts.push(tally.floors.len());
        }
        tally.counts = vec![0; tally.floors.len()];
        for bounds in tally.starts[..tally.starts.len() - 1].chunks(LANES).enumerate() {
            let (panel, starts) = bounds;
            let rows = panel * LANES..panel * LANES + starts.len();
            let length = |row: usize| tally.starts[row + 1] - tally.starts[row];
            let first = tally.lane_floors.len();
            let deepest = rows.clone().map(length).max().unwrap_or(0);
            tally.lane_floors.resize(first + deepest, [f32::INFINITY; LANES]);
            for row in rows {
                for level in 0..length(row) {
                    tally.lane_floors[first + level][row % LANES] = tally.floors[tally.starts[row] + level];
                }
            }
            tally.levels.push(tally.lane_floors.len());
        }
        tally.lane_counts = vec![[0; LANES]; tally.lane_floors.len()];
        tally
    }

    fn rows(&self) -> usize {
        self.relevant.len()
    }

    fn count_row(&mut self, kernel: Kernel, slot: usize, keys: &[f32; LANES]) {
        let own = self.starts[slot]..self.starts[slot + 1];
        kernel.count_row(keys, &self.floors[own.clone()], &mut self.counts[own]);
    }

    /// Adds the counts by lanes to the counts by rows.
    fn join(&mut self) {
        for row in 0..self.rows() {
            let first = self.levels[row / LANES];
            for (level, at) in (self.starts[row]..self.starts[row + 1]).enumerate() {
                self.counts[at] += self.lane_counts[first + level][row % LANES];
            }
        }
    }
}
