//! Search against a naive version in f64 that shares no code with it.

use gallerist_retrieval::search::{Gallery, Metric, RankedLists, SearchOptions, search, self_search};
use gallerist_retrieval::{Error, Matrix};
use proptest::prelude::*;

const METRICS: [Metric; 3] = [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean];

/// Similarity, or minus the distance.
fn score(metric: Metric, a: &[f32], b: &[f32]) -> f64 {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    match metric {
        Metric::InnerProduct => dot(a, b),
        Metric::Cosine => {
            let lengths = (dot(a, a) * dot(b, b)).sqrt();
            if lengths == 0.0 { 0.0 } else { dot(a, b) / lengths }
        }
        Metric::Euclidean => {
            let squares = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
            -squares.sum::<f64>().sqrt()
        }
    }
}

fn naive(
    queries: &Matrix,
    gallery: &Matrix,
    k: usize,
    metric: Metric,
    admits: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<(usize, f64)>> {
    (0..queries.rows())
        .map(|query| {
            let mut list: Vec<_> = (0..gallery.rows())
                .filter(|&item| admits(query, item))
                .map(|item| (item, score(metric, queries.row(query), gallery.row(item)) + 0.0))
                .collect();
            list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            list.truncate(k);
            list
        })
        .collect()
}

fn normal(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let data = (0..rows * cols).map(|_| uniform() + uniform() + uniform()).collect();
    Matrix::new(rows, cols, data).unwrap()
}

/// Values that f32 multiplies and adds without error, so that ties are ties in both versions.
fn whole(rows: usize, cols: usize, seed: u64) -> Matrix {
    let data = normal(rows, cols, seed).into_vec().iter().map(|v| (v * 4.0).round()).collect();
    Matrix::new(rows, cols, data).unwrap()
}

/// Lists equal the naive ones, except that two items may change places when their scores differ
/// by less than `tolerance`.
fn assert_matches(lists: &RankedLists, wanted: &[Vec<(usize, f64)>], metric: Metric, tolerance: f64) {
    assert_eq!(lists.len(), wanted.len());
    for (query, wanted) in wanted.iter().enumerate() {
        let sign = if metric == Metric::Euclidean { -1.0 } else { 1.0 };
        let scores: Vec<f64> = lists.scores(query).iter().map(|&s| sign * f64::from(s)).collect();
        assert_eq!(scores.len(), wanted.len(), "query {query}");
        for (at, (&index, score)) in lists.indices(query).iter().zip(&scores).enumerate() {
            assert!((score - wanted[at].1).abs() <= tolerance, "query {query}, place {at}");
            if let Some(next) = scores.get(at + 1) {
                let tie = score == next && index < lists.indices(query)[at + 1];
                assert!(score > next || tie, "query {query}, places {at} and {}", at + 1);
            }
            if tolerance == 0.0 {
                assert_eq!(index as usize, wanted[at].0, "query {query}, place {at}");
            }
        }
    }
}

#[test]
fn lists_of_whole_numbers_equal_the_naive_ones_at_every_edge_size() {
    for (queries, gallery, cols) in
        [(1, 1, 1), (1, 2, 3), (2, 33, 7), (47, 48, 4), (48, 47, 4), (49, 96, 5), (241, 97, 3)]
    {
        let (q, g) = (whole(queries, cols, 1), whole(gallery, cols, 2));
        for metric in [Metric::InnerProduct, Metric::Euclidean] {
            for k in [1, 2, 33, gallery, gallery + 1] {
                let options = SearchOptions { metric, ..SearchOptions::new(k) };
                let lists = search(&q, &g, &options).unwrap();
                let wanted = naive(&q, &g, k, metric, |_, _| true);
                // A distance is rounded to f32 once; the order of whole squares survives it.
                let tolerance = if metric == Metric::Euclidean { 1e-6 } else { 0.0 };
                assert_matches(&lists, &wanted, metric, tolerance);
                for (query, wanted) in wanted.iter().enumerate() {
                    let wanted: Vec<_> = wanted.iter().map(|&(item, _)| item as u32).collect();
                    assert_eq!(lists.indices(query), wanted);
                }
            }
        }
    }
}

#[test]
fn lists_of_real_numbers_differ_from_the_naive_ones_by_rounding_only() {
    let (queries, gallery) = (normal(101, 129, 3), normal(700, 129, 4));
    for metric in METRICS {
        let options = SearchOptions { metric, ..SearchOptions::new(50) };
        let lists = search(&queries, &gallery, &options).unwrap();
        let wanted = naive(&queries, &gallery, 50, metric, |_, _| true);
        // Rows have squared lengths of about 32; 131 roundings of 2^-24, of which most cancel.
        assert_matches(&lists, &wanted, metric, 3e-5);
    }
}

/// The bound that [`search`] promises, for scores of rows of these lengths.
fn rounding(metric: Metric, cols: usize, longest: f64) -> f64 {
    let unit = 2f64.powi(-24);
    match metric {
        Metric::InnerProduct => (cols + 2) as f64 * unit * longest * longest,
        Metric::Cosine => (cols + 4) as f64 * unit,
        // Half the squared distance is off by (cols + 4) units of |a|^2 + |b|^2, and a distance
        // computed so is at least a quarter of the root of that sum.
        Metric::Euclidean => 4.0 * (cols + 6) as f64 * unit * (2.0 * longest * longest).sqrt(),
    }
}

#[test]
fn a_list_differs_from_that_of_f64_only_where_scores_differ_by_less_than_the_rounding() {
    for (rows, cols, spread) in [(500, 3, 1.0), (400, 64, 1.0), (300, 512, 0.01)] {
        // Around one point: with a small spread most of a product is common to all pairs.
        let around = normal(rows, cols, 21).into_vec();
        let data = around.iter().map(|value| 0.3 + spread * value).collect();
        let gallery = Matrix::new(rows, cols, data).unwrap();
        let length = |row: &[f32]| row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let longest = (0..rows).map(|row| length(gallery.row(row))).fold(0.0, f64::max);
        for metric in METRICS {
            let bound = rounding(metric, cols, longest);
            let options = SearchOptions { metric, ..SearchOptions::new(50) };
            let lists = self_search(&gallery, &options).unwrap();
            let wanted = naive(&gallery, &gallery, 50, metric, |a, b| a != b);
            for (query, wanted) in wanted.iter().enumerate() {
                for ((&item, &found), &(there, best)) in
                    lists.indices(query).iter().zip(lists.scores(query)).zip(wanted)
                {
                    let exact = score(metric, gallery.row(query), gallery.row(item as usize));
                    let sign = if metric == Metric::Euclidean { -1.0 } else { 1.0 };
                    assert!((sign * f64::from(found) - exact).abs() <= bound, "{metric:?}, {cols}");
                    let apart = (exact - best).abs();
                    assert!(item as usize == there || apart <= 2.0 * bound, "{metric:?}, {cols}: {apart}");
                }
            }
        }
    }
}

#[test]
fn a_row_is_left_out_of_its_own_list_but_its_duplicates_are_not() {
    let mut data = whole(120, 6, 5).into_vec();
    data.extend_from_within(..60 * 6);
    let gallery = Matrix::new(180, 6, data).unwrap();
    for metric in METRICS {
        let options = SearchOptions { metric, ..SearchOptions::new(20) };
        let lists = self_search(&gallery, &options).unwrap();
        let wanted = naive(&gallery, &gallery, 20, metric, |a, b| a != b);
        let tolerance = if metric == Metric::InnerProduct { 0.0 } else { 1e-6 };
        assert_matches(&lists, &wanted, metric, tolerance);
        if metric == Metric::Euclidean {
            for row in 0..60 {
                assert!(lists.scores(row)[0] == 0.0 && lists.scores(row + 120)[0] == 0.0);
            }
        }
    }
}

#[test]
fn equal_rows_have_equal_scores_wherever_they_stand() {
    // 400 rows of 7 different vectors, at depths around the width of a register.
    for cols in [1, 15, 16, 17, 100] {
        let seven = normal(7, cols, 6);
        let picks: Vec<usize> = (0..400).map(|i| i * i % 7).collect();
        let gallery = seven.select(&picks);
        for metric in METRICS {
            let options = SearchOptions { metric, ..SearchOptions::new(400) };
            let lists = self_search(&gallery, &options).unwrap();
            for (row, (indices, scores)) in lists.iter().enumerate() {
                for (&index, &score) in indices.iter().zip(scores) {
                    let mirrored = lists.indices(index as usize).iter().position(|&i| i as usize == row);
                    assert_eq!(lists.scores(index as usize)[mirrored.unwrap()], score);
                    let same = indices.iter().position(|&i| picks[i as usize] == picks[index as usize]);
                    assert_eq!(scores[same.unwrap()], score);
                }
            }
        }
    }
}

#[test]
fn a_filter_leaves_exactly_the_admitted_items() {
    let (queries, gallery) = (whole(60, 5, 7), whole(300, 5, 8));
    let admits = |query: usize, item: usize| (query + item).is_multiple_of(17);
    let options =
        SearchOptions { metric: Metric::InnerProduct, filter: Some(&admits), ..SearchOptions::new(30) };
    let lists = search(&queries, &gallery, &options).unwrap();
    assert_matches(&lists, &naive(&queries, &gallery, 30, options.metric, admits), options.metric, 0.0);
    let none = SearchOptions { filter: Some(&|_, _| false), ..options };
    assert!(search(&queries, &gallery, &none).unwrap().iter().all(|(indices, _)| indices.is_empty()));
}

#[test]
fn lists_have_the_same_bits_for_any_number_of_threads() {
    let gallery = normal(1000, 40, 9);
    let queries = normal(3, 40, 10);
    for metric in METRICS {
        let options = SearchOptions { metric, ..SearchOptions::new(25) };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                (self_search(&gallery, &options).unwrap(), search(&queries, &gallery, &options).unwrap())
            })
        };
        let one = run(1);
        for threads in [2, 3, 8] {
            assert_eq!(run(threads), one);
        }
    }
}

#[test]
fn a_packed_gallery_gives_the_lists_of_a_search_for_any_number_of_queries() {
    let (rows, queries) = (normal(700, 33, 11), normal(300, 33, 12));
    for metric in METRICS {
        let options = SearchOptions { metric, ..SearchOptions::new(10) };
        let gallery = Gallery::new(&rows, metric).unwrap();
        let all = gallery.search(&queries, &options).unwrap();
        assert_eq!(all, search(&queries, &rows, &options).unwrap());
        for (first, count) in [(0, 1), (1, 2), (3, 4), (7, 16), (23, 49)] {
            let some = queries.select(&(first..first + count).collect::<Vec<_>>());
            let found = gallery.search(&some, &options).unwrap();
            for query in 0..count {
                assert_eq!(found.indices(query), all.indices(first + query));
                assert_eq!(found.scores(query), all.scores(first + query));
            }
        }
    }
    let gallery = Gallery::new(&rows, Metric::Euclidean).unwrap();
    assert!(gallery.search(&queries, &SearchOptions::new(1)).is_err(), "another metric");
}

#[test]
fn small_distances_keep_their_digits() {
    // Two points 2^-12 apart at length 1000: |a|^2 + |b|^2 - 2ab is all rounding.
    let gallery = Matrix::new(3, 2, vec![1000.0, 0.0, 1000.0, 2f32.powi(-12), 0.0, 0.0]).unwrap();
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(2) };
    let lists = self_search(&gallery, &options).unwrap();
    assert_eq!(lists.scores(0), [2f32.powi(-12), 1000.0]);
    // Squares that underflow f32.
    let tiny = Matrix::new(3, 1, vec![0.0, 3e-30, 5e-30]).unwrap();
    let lists = self_search(&tiny, &options).unwrap();
    assert_eq!(lists.indices(1), [2, 0]);
    assert!((lists.scores(1)[0] - 2e-30).abs() < 1e-36);
}

#[test]
fn rows_of_zeros_have_the_cosine_zero() {
    let gallery = Matrix::new(3, 2, vec![0.0, 0.0, -1.0, 0.0, 0.0, 0.0]).unwrap();
    let lists = self_search(&gallery, &SearchOptions::new(3)).unwrap();
    assert_eq!(lists.indices(1), [0, 2]);
    assert_eq!(lists.scores(1), [0.0, 0.0]);
}

#[test]
fn what_cannot_be_searched_is_refused_by_name() {
    let two = Matrix::new(1, 2, vec![1.0, 2.0]).unwrap();
    let three = Matrix::new(1, 3, vec![1.0, f32::INFINITY, 2.0]).unwrap();
    let none = Matrix::new(0, 2, vec![]).unwrap();
    let huge = Matrix::new(1, 2, vec![1e19, 0.0]).unwrap();
    let options = SearchOptions::new(1);
    let message = |result: Result<RankedLists, Error>| result.unwrap_err().to_string();
    assert_eq!(message(search(&two, &three, &options)), "queries have 2 dimensions, the gallery has 3");
    assert_eq!(
        message(self_search(&three, &options)),
        "gallery: row 0, column 1 is inf; every value must be finite"
    );
    assert_eq!(message(search(&two, &none, &options)), "the gallery has no rows");
    assert_eq!(search(&none, &two, &options).unwrap().len(), 0);
    assert_eq!(message(search(&two, &two, &SearchOptions::new(0))), "k must be at least 1, 0 given");
    let inner = SearchOptions { metric: Metric::InnerProduct, ..options };
    assert_eq!(
        message(self_search(&huge, &inner)),
        "gallery: the squared length of row 0 is 1.0e38; at most 1e37 can be scored in f32"
    );
    assert!(search(&huge, &huge, &options).is_ok(), "the cosine of long rows is defined");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_small_gallery_with_ties_is_ranked_as_the_naive_version_ranks_it(
        rows in 1usize..130,
        cols in 1usize..6,
        k in 1usize..140,
        seed in any::<u64>(),
    ) {
        let gallery = whole(rows, cols, seed);
        let options = SearchOptions { metric: Metric::InnerProduct, ..SearchOptions::new(k) };
        let lists = self_search(&gallery, &options).unwrap();
        assert_matches(&lists, &naive(&gallery, &gallery, k, options.metric, |a, b| a != b), options.metric, 0.0);
    }
}
