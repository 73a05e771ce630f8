//! Search in a gallery of bf16 or int8, by its products first and by exact scores in the end.

use std::ops::Range;
use std::sync::Arc;

use gallerist_util::interrupt;
use rayon::prelude::*;

use super::candidates::{Bounds, Candidates, Exact};
use super::lists::RankedLists;
use super::metric::Metric;
use super::options::SearchOptions;
use super::prepare::{check_count, check_query, pack};
use super::scorer::Scorer;
use crate::compact::{Values, encode_rows};
use crate::matrix::squared_length;
use crate::product::dots::{BLOCK, Codes, Dots, Keys, Products, QUERIES};
use crate::product::{Kernel, LANES, Panels, ROWS, Tile, ones};
use crate::{Code, CompactMatrix, Error, MatrixView, Result};

/// A gallery in bf16 or int8, with or without the f32 rows it was made from.
///
/// Products of the compact rows find the candidates; all that the error of those products leaves
/// in doubt is scored in f32. So the lists are exact, ties included:
///
/// - [`rescored`](Self::rescored) also uses the f32 rows, which may be on disk, and returns the lists
///   of a [`search`](super::search()) among them, to the last bit;
/// - [`new`](Self::new) has the compact rows only, and gives the lists of a search among their
///   [decoded](CompactMatrix::decode) values, to the last bit. What that costs in recall is in
///   `docs/benchmarks/retrieval.md`.
///
/// Neither depends on the processor or on the number of threads.
///
/// ```
/// use gallerist_retrieval::search::{CompactGallery, Metric, SearchOptions};
/// use gallerist_retrieval::{Code, CompactMatrix, Matrix};
///
/// let rows = Matrix::new(3, 2, vec![1.0, 0.0, 0.6, 0.8, 0.0, 1.0])?;
/// let query = Matrix::new(1, 2, vec![0.1, 0.9])?;
/// let exact = CompactGallery::rescored(&rows, Code::Bf16, Metric::Cosine)?;
/// assert_eq!(exact.search(&query, &SearchOptions::new(2))?.indices(0), [2, 1]);
///
/// let int8 = CompactMatrix::encode(&rows, Code::Int8)?;
/// let compact = CompactGallery::new(int8, Metric::Cosine)?;
/// assert_eq!(compact.search(&query, &SearchOptions::new(2))?.indices(0), [2, 1]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # How far the products are off
/// With a the query, b the row, a' and b' their compact forms, d the dimension and |.| the
/// Euclidean length, `|ab - a'b'| <= |a - a'| |b| + |a'| |b - b'|` (Cauchy and Schwarz). The
/// lengths of the differences are measured, for rows as the largest of each 64. The roundings of
/// both products, of the biases and of this bound are covered by `(d + 64) 2^-23` times
/// `(|a| + |a - a'|) (|b| + |b - b'|)` and the biases.
pub struct CompactGallery<'a> {
    metric: Metric,
    compact: CompactMatrix<'a>,
    /// The rows that are scored; without them the compact ones, decoded.
    rows: Option<MatrixView<'a>>,
    blocks: Arc<[Block]>,
}

/// What a [`CompactGallery`] measures when it is made, which reads all rows. With it, a gallery that borrows the same
/// compact rows is made again without reading them. Clones share it.
#[derive(Clone)]
pub struct Measures {
    metric: Metric,
    shape: (usize, usize),
    blocks: Arc<[Block]>,
}

/// What the rows of a block have in addition to their values.
struct Block {
    /// What turns a row's product into that of the row that is scored.
    factors: [f32; BLOCK],
    biases: [f32; BLOCK],
    /// At least the length of each row that is scored.
    longest: f32,
    /// At least the distance of each from `factor` times its compact form.
    residual: f32,
    /// At least each factor.
    largest_factor: f32,
}

impl<'a> CompactGallery<'a> {
    /// A gallery that keeps only the compact rows. All of them are read once, to check them
    /// and to measure their lengths.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::NonFinite`], [`Error::TooLong`], [`Error::TooManyRows`].
    pub fn new(compact: CompactMatrix<'a>, metric: Metric) -> Result<Self> {
        Self::build(compact, None, metric)
    }

    /// A compact copy of `rows` that finds the candidates, which are then scored among `rows`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Option`] for int8 rows of more than 131,072 values.
    pub fn rescored(rows: impl Into<MatrixView<'a>>, code: Code, metric: Metric) -> Result<Self> {
        let rows = rows.into();
        metric.check(rows, 0..rows.rows(), "gallery")?;
        let compact = encode_rows(rows.rows(), rows.cols(), code, |i, row| {
            row.copy_from_slice(rows.row(i));
            metric.prepare(row);
        })?;
        Self::build(compact, Some(rows), metric)
    }

    fn build(compact: CompactMatrix<'a>, rows: Option<MatrixView<'a>>, metric: Metric) -> Result<Self> {
        check_count(compact.rows(), "gallery")?;
        if compact.rows() == 0 {
            return Err(Error::Empty { what: "the gallery" });
        }
        let mut gallery = Self { metric, compact, rows, blocks: Arc::default() };
        let blocks = (0..gallery.rows().div_ceil(BLOCK)).into_par_iter();
        let blocks: Vec<Result<Block>> = blocks.map(|block| gallery.measure(block)).collect();
        gallery.blocks = blocks.into_iter().collect::<Result<_>>()?;
        Ok(gallery)
    }

    /// What was measured, for [`with_measures`](Self::with_measures).
    pub fn measures(&self) -> Measures {
        Measures { metric: self.metric, shape: (self.rows(), self.cols()), blocks: Arc::clone(&self.blocks) }
    }

    /// As [`new`](Self::new) for the rows that were measured, without reading them. The rows must be unchanged: otherwise
    /// the lists are not those of a search.
    ///
    /// # Errors
    /// [`Error::Option`] for rows of another shape, and for another metric.
    pub fn with_measures(compact: CompactMatrix<'a>, measures: Measures, metric: Metric) -> Result<Self> {
        let shape = (compact.rows(), compact.cols());
        if (measures.shape, measures.metric) != (shape, metric) {
            let (rows, cols) = measures.shape;
            return Err(Error::Option {
                option: "measures",
                wanted: "those of the same rows and metric",
                found: format!("{rows} x {cols} for {}", measures.metric.name()),
            });
        }
        Ok(Self { metric, compact, rows: None, blocks: measures.blocks })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.compact.rows()
    }

    /// The dimension of the embeddings.
    pub fn cols(&self) -> usize {
        self.compact.cols()
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// How the rows are stored.
    pub fn code(&self) -> Code {
        self.compact.code()
    }

    /// Ranks the gallery for each of `queries`.
    ///
    /// # Errors
    /// As [`search`](super::search()), and [`Error::Option`] when `options` name another metric than
    /// the gallery was made for.
    pub fn search<'q>(
        &self,
        queries: impl Into<MatrixView<'q>>,
        options: &SearchOptions,
    ) -> Result<RankedLists> {
        self.search_with(Dots::best(), queries.into(), options)
    }

    fn search_with(&self, dots: Dots, queries: MatrixView, options: &SearchOptions) -> Result<RankedLists> {
        check_query(queries, self.cols(), options.k)?;
        self.metric.check_same(options.metric)?;
        let panels = pack(queries, "queries", self.metric)?;
        let queries = Queries::new(panels, self.code())?;
        let scan = Scan { dots, kernel: Kernel::best(), gallery: self, queries: &queries, options };

        // Few queries are spread over the threads by cutting the gallery, as in `split`.
        let groups = queries.panels.rows().div_ceil(QUERIES_PER_TASK);
        let tasks = 4 * rayon::current_num_threads();
        let parts = if groups >= tasks { 1 } else { tasks.div_ceil(groups.max(1)) };
        let cut = |part: usize| self.blocks.len() * part / parts;
        let keys: Vec<Vec<Vec<u64>>> = (0..groups * parts)
            .into_par_iter()
            .map(|task| {
                interrupt::point();
                let (group, part) = (task / parts, task % parts);
                let first = group * QUERIES_PER_TASK;
                let queries = first..(first + QUERIES_PER_TASK).min(queries.panels.rows());
                scan.run(queries, cut(part)..cut(part + 1))
            })
            .collect();

        let k = options.k.min(self.rows());
        let mut keys = keys.into_iter();
        let mut lists = Vec::with_capacity(queries.panels.rows());
        for _ in 0..groups {
            let mut group = keys.next().expect("every group has a part");
            for part in keys.by_ref().take(parts - 1) {
                group.iter_mut().zip(part).for_each(|(list, part)| list.extend(part));
            }
            for mut list in group {
                if parts > 1 {
                    list.sort_unstable_by(|a, b| b.cmp(a));
                    list.truncate(k);
                }
                lists.push(list);
            }
        }
        Ok(RankedLists::from_keys(options.k, lists, |score| self.metric.present(score)))
    }

    /// Fills `to` with the row that is scored.
    fn read(&self, row: usize, to: &mut [f32]) {
        match self.rows {
            Some(rows) => to.copy_from_slice(rows.row(row)),
            None => self.compact.decode_row(row, to),
        }
        self.metric.prepare(to);
    }

    fn measure(&self, block: usize) -> Result<Block> {
        let mut row = vec![0.0; self.cols()];
        let mut decoded = vec![0.0; self.cols()];
        let mut measured = Block {
            factors: [0.0; BLOCK],
            biases: [f32::NEG_INFINITY; BLOCK],
            longest: 0.0,
            residual: 0.0,
            largest_factor: 0.0,
        };
        let first = block * BLOCK;
        for (i, at) in (first..self.rows().min(first + BLOCK)).enumerate() {
            self.compact.decode_row(at, &mut decoded);
            if self.rows.is_none() {
                self.metric.check_row(&decoded, at, "gallery")?;
            }
            self.read(at, &mut row);
            let scale = self.compact.scale(at);
            let shrink = match (self.metric, self.rows) {
                (Metric::Cosine, None) => squared_length(&decoded).sqrt().recip(),
                _ => 1.0,
            };
            let length = squared_length(&row).sqrt();
            let mut factor = (f64::from(scale) * shrink) as f32;
            let exact_decode = shrink == 1.0 && self.rows.is_none() && self.code() == Code::Bf16;
            let mut residual = match exact_decode {
                true => 0.0,
                false => self.compact.distance(at, factor, &row),
            };
            // Rows so short or so long that their products leave the range of f32 are always scored.
            let bf16_length = if self.code() == Code::Bf16 { length / shrink } else { 1.0 };
            if !(f64::from(factor) < 1e18 && bf16_length < 1e18) {
                (factor, residual) = (0.0, length);
            }
            measured.factors[i] = factor;
            measured.biases[i] = self.metric.bias(&row);
            measured.longest = measured.longest.max(round_up(length));
            measured.residual = measured.residual.max(round_up(residual));
            measured.largest_factor = measured.largest_factor.max(factor);
        }
        Ok(measured)
    }
}

/// An f32 that is no smaller than `value`, some roundings of f64 before it included.
fn round_up(value: f64) -> f32 {
    ((value * (1.0 + 1e-9)) as f32).next_up()
}

/// Queries that one task ranks.
const QUERIES_PER_TASK: usize = 64;

/// The queries in f32 and in the gallery's code.
struct Queries {
    panels: Panels,
    codes: CompactMatrix<'static>,
    errors: Vec<QueryError>,
}

/// The parts of the bound on a query's products that do not depend on the row.
#[derive(Clone, Copy)]
struct QueryError {
    /// The distance of the query from its compact form.
    residual: f32,
    /// The length of the query and that distance.
    length: f32,
    /// What every product is multiplied by.
    scale: f32,
}

impl Queries {
    fn new(panels: Panels, code: Code) -> Result<Self> {
        let (rows, cols) = (panels.rows(), panels.depth());
        let read =
            |i: usize, to: &mut [f32]| to.iter_mut().zip(panels.row(i)).for_each(|(to, from)| *to = from);
        let codes = encode_rows(rows, cols, code, read)?;
        let mut row = vec![0.0; cols];
        let errors = (0..rows)
            .map(|i| {
                read(i, &mut row);
                let scale = codes.scale(i);
                let residual = codes.distance(i, scale, &row);
                let length = squared_length(&row).sqrt() + residual;
                QueryError { residual: round_up(residual), length: round_up(length), scale }
            })
            .collect();
        Ok(Self { panels, codes, errors })
    }
}

impl QueryError {
    /// The largest difference between a key from products and a score, for all rows of the block.
    fn bound(&self, block: &Block, depth: usize, metric: Metric) -> f32 {
        let depth = depth as f32;
        let rounding = (depth + 64.0) * f32::EPSILON;
        let row = block.longest + block.residual;
        let biases = match metric {
            Metric::InnerProduct | Metric::Cosine => 0.0,
            Metric::Euclidean => self.length * self.length + row * row,
        };
        // What `vdpbf16ps` takes for zero, and what becomes subnormal.
        let products = self.scale * block.largest_factor * (1.0 + self.length);
        let tiny = depth.max(1.0) * 1e-35 * (1.0 + products + row + self.length);
        let bound = self.residual * block.longest
            + self.length * block.residual
            + rounding * (self.length * row + biases)
            + tiny;
        // The roundings of this sum.
        bound * 1.00001
    }
}

/// One search in a compact gallery.
struct Scan<'s> {
    dots: Dots,
    kernel: Kernel,
    gallery: &'s CompactGallery<'s>,
    queries: &'s Queries,
    options: &'s SearchOptions<'s>,
}

impl Scan<'_> {
    /// The rank keys of the best k of each of `queries` among the rows of `blocks`.
    fn run(&self, queries: Range<usize>, blocks: Range<usize>) -> Vec<Vec<u64>> {
        let k = self.options.k.min(self.gallery.rows());
        let mut lists: Vec<Candidates> = queries.clone().map(|_| Candidates::new(k)).collect();
        let mut products = [[0.0; BLOCK]; QUERIES];
        for block in blocks {
            for group in queries.clone().step_by(QUERIES) {
                let group = group..(group + QUERIES).min(queries.end);
                self.multiply(group.clone(), block, &mut products);
                for (query, products) in group.zip(&mut products) {
                    self.offer(query, block, products, &mut lists[query - queries.start]);
                }
            }
        }
        lists
            .into_iter()
            .zip(queries)
            .map(|(list, query)| list.finish(|items| self.score(query, items)))
            .collect()
    }

    fn rows_of(&self, block: usize) -> Range<usize> {
        block * BLOCK..self.gallery.rows().min((block + 1) * BLOCK)
    }

    fn multiply(&self, queries: Range<usize>, block: usize, out: &mut [Products; QUERIES]) {
        let depth = self.gallery.cols();
        let span = |rows: Range<usize>| rows.start * depth..rows.end * depth;
        let rows = span(self.rows_of(block));
        match (self.queries.codes.values(), self.gallery.compact.values()) {
            (Values::Bf16(codes), Values::Bf16(values)) => {
                let mut each = [&codes[..0]; QUERIES];
                let count = queries.len();
                for (query, each) in queries.zip(&mut each) {
                    *each = &codes[span(query..query + 1)];
                }
                let codes = Codes::Bf16 { queries: &each[..count], rows: &values[rows] };
                self.dots.products(&codes, depth, out);
            }
            (Values::Int8 { values: codes, .. }, Values::Int8 { values, .. }) => {
                let mut each = [&codes[..0]; QUERIES];
                let count = queries.len();
                for (query, each) in queries.zip(&mut each) {
                    *each = &codes[span(query..query + 1)];
                }
                let codes = Codes::Int8 { queries: &each[..count], rows: &values[rows] };
                self.dots.products(&codes, depth, out);
            }
            _ => unreachable!("the queries are in the gallery's code"),
        }
    }

    /// Offers the rows of `block` that may be among the best of `query`.
    fn offer(&self, query: usize, block: usize, products: &mut Products, list: &mut Candidates) {
        let gallery = self.gallery;
        let (first, measured) = (block * BLOCK, &gallery.blocks[block]);
        let error = self.queries.errors[query];
        let bound = error.bound(measured, gallery.cols(), gallery.metric);
        let keys = Keys {
            scale: error.scale,
            bias: self.queries.panels.row_bias(query),
            factors: &measured.factors,
            biases: &measured.biases,
        };
        let mut reached = self.dots.reach(products, &keys, list.floor() - bound);
        // The last block is filled up with rows that are none.
        reached &= u64::MAX >> (BLOCK - self.rows_of(block).len());
        for row in ones(reached) {
            let item = first + row;
            let bounds = Bounds { low: products[row] - bound, high: products[row] + bound };
            if bounds.high >= list.floor() && self.options.admits(query, item) {
                list.push(item as u32, bounds, |items| self.score(query, items));
            }
        }
    }

    /// The exact scores of `query` with `items`: what [`search`](super::search()) computes.
    fn score(&self, query: usize, items: &[u32]) -> Vec<Exact> {
        let gallery = self.gallery;
        let rows = Panels::gather(
            gallery.cols(),
            items.len(),
            |i, row| gallery.read(items[i] as usize, row),
            |row| gallery.metric.bias(row),
        );
        let queries = &self.queries.panels;
        let scorer = Scorer::new(gallery.metric, queries, &rows);
        let (panel, group, row) = (query / LANES, query % LANES / ROWS, query % ROWS);
        let bias = &queries.bias(panel).as_chunks().0[group];
        let mut tile = Tile::new();
        let mut scores = Vec::with_capacity(items.len());
        for at in 0..rows.panels() {
            let left = (queries.panel(panel), group, bias);
            self.kernel.product(row + 1, left, (rows.panel(at), rows.bias(at)), &mut tile);
            for lane in 0..LANES.min(items.len() - at * LANES) {
                let score = scorer.score(tile.0[row][lane], query, at * LANES + lane);
                scores.push(Exact { score, bounds: bounds_of(gallery.metric, score) });
            }
        }
        scores
    }
}

/// The keys that have this score.
fn bounds_of(metric: Metric, score: f32) -> Bounds {
    match metric {
        Metric::InnerProduct | Metric::Cosine => Bounds { low: score, high: score },
        Metric::Euclidean => {
            let half_square = 0.5 * score * score;
            let error = half_square * 8.0 * f32::EPSILON + f32::MIN_POSITIVE;
            Bounds { low: -half_square - error, high: -half_square + error }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;
    use crate::search::search;
    use proptest::prelude::*;

    const METRICS: [Metric; 3] = [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean];

    /// Rows with many ties, with rows far from and next to each other, and of lengths from the
    /// shortest to the longest that can be scored.
    fn rows(rows: usize, cols: usize, seed: u64, scale: f32) -> Matrix {
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut data: Vec<f32> = Vec::with_capacity(rows * cols);
        for row in 0..rows {
            match next(5) {
                // A copy of an earlier row, or one next to it.
                0 | 1 if row > 0 => {
                    let from = next(row as u64) as usize * cols;
                    data.extend_from_within(from..from + cols);
                    if next(2) == 0 {
                        let at = data.len() - 1 - next(cols as u64) as usize;
                        data[at] = data[at].next_up();
                    }
                }
                2 => data.extend((0..cols).map(|_| next(5) as f32 - 2.0)),
                _ => data.extend((0..cols).map(|_| (next(20_001) as f32 / 10_000.0 - 1.0) * scale)),
            }
        }
        Matrix::new(rows, cols, data).unwrap()
    }

    fn assert_exact(queries: &Matrix, gallery: &Matrix, options: &SearchOptions) {
        for code in [Code::Bf16, Code::Int8] {
            let with_rows = CompactGallery::rescored(gallery, code, options.metric).unwrap();
            let wanted = search(queries, gallery, options).unwrap();
            let compact = CompactMatrix::encode(gallery, code).unwrap();
            let decoded = compact.decode();
            let alone = CompactGallery::new(compact, options.metric).unwrap();
            let wanted_alone = search(queries, &decoded, options).unwrap();
            for dots in Dots::all() {
                let found = with_rows.search_with(dots, queries.view(), options).unwrap();
                assert_eq!(found, wanted, "{code}, {dots:?}, {options:?}");
                let found = alone.search_with(dots, queries.view(), options).unwrap();
                assert_eq!(found, wanted_alone, "{code} alone, {dots:?}, {options:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn lists_are_those_of_a_search_in_f32_to_the_last_bit(
            queries in 1usize..12,
            count in 1usize..400,
            cols in 1usize..70,
            k in 1usize..60,
            seed in any::<u64>(),
            scale in prop::sample::select(vec![1.0f32, 1e-3, 1e-20, 1e-38, 1e10, 1e17]),
            metric in prop::sample::select(METRICS.to_vec()),
        ) {
            let (q, g) = (rows(queries, cols, seed, scale), rows(count, cols, seed ^ 1, scale));
            assert_exact(&q, &g, &SearchOptions { metric, ..SearchOptions::new(k) });
        }
    }

    #[test]
    fn sizes_about_the_blocks_and_filters_change_nothing() {
        let admits = |query: usize, item: usize| !(query + item).is_multiple_of(3);
        for (count, cols) in [(1, 1), (BLOCK - 1, 32), (BLOCK, 33), (BLOCK + 1, 64), (700, 0), (1500, 31)] {
            let gallery = rows(count, cols.max(1), 3, 1.0);
            let gallery = Matrix::new(count, cols, gallery.as_slice()[..count * cols].to_vec()).unwrap();
            for metric in METRICS {
                for queries in [1, QUERIES_PER_TASK + 1] {
                    let queries = gallery.select(&(0..queries.min(count)).collect::<Vec<_>>());
                    let options = SearchOptions { metric, exclude_self: true, ..SearchOptions::new(7) };
                    assert_exact(&queries, &gallery, &options);
                    assert_exact(&queries, &gallery, &SearchOptions { filter: Some(&admits), ..options });
                }
            }
        }
    }

    #[test]
    fn a_gallery_of_one_row_repeated_is_ranked_by_index() {
        let gallery = rows(1, 24, 5, 1.0).select(&vec![0; 3000]);
        let queries = gallery.select(&[0, 1]);
        for metric in METRICS {
            assert_exact(&queries, &gallery, &SearchOptions { metric, ..SearchOptions::new(50) });
        }
    }
}
