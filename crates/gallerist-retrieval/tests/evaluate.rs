//! Metrics against a naive version that sorts, in f64, and against examples worked by hand.

use gallerist_retrieval::Matrix;
use gallerist_retrieval::eval::{
    EvalOptions, Evaluation, Measure, RankMetric, RelevantRanks, Side, Sightings, Task, evaluate,
    evaluate_across_cameras, evaluate_split,
};
use gallerist_retrieval::search::Metric;
use proptest::prelude::*;

const NAMES: [&str; 12] = [
    "recall@1",
    "recall@2",
    "recall@10",
    "precision@1",
    "precision@5",
    "map@r",
    "r_precision",
    "map",
    "map_trapezoid",
    "mrr",
    "ndcg",
    "cmc@2",
];

fn options(metric: Metric) -> EvalOptions {
    EvalOptions { metric, measures: NAMES.map(|name| name.parse::<Measure>().unwrap()).to_vec() }
}

/// (sum, queries counted) of each metric, and the queries tied, from lists of relevance flags.
struct Naive {
    values: Vec<f64>,
    tied: usize,
    without: usize,
}

fn naive(score: impl Fn(usize, usize) -> f64, queries: &[u32], gallery: &[u32], same: bool) -> Naive {
    naive_skipping(score, queries, gallery, |query, item| same && query == item)
}

fn naive_skipping(
    score: impl Fn(usize, usize) -> f64,
    queries: &[u32],
    gallery: &[u32],
    skips: impl Fn(usize, usize) -> bool,
) -> Naive {
    let mut sums = vec![(0.0, 0usize); NAMES.len()];
    let (mut tied, mut without) = (0, 0);
    for (query, label) in queries.iter().enumerate() {
        let mut items: Vec<(f64, usize)> = (0..gallery.len())
            .filter(|&item| !skips(query, item))
            // + 0.0: the two zeros are one score.
            .map(|item| (score(query, item) + 0.0, item))
            .collect();
        items.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let relevant: Vec<bool> = items.iter().map(|&(_, item)| gallery[item] == *label).collect();
        let total = relevant.iter().filter(|&&hit| hit).count();
        tied +=
            usize::from(items.iter().any(|a| {
                gallery[a.1] == *label && items.iter().any(|b| b.0 == a.0 && gallery[b.1] != *label)
            }));
        without += usize::from(total == 0);
        let hits = |k: usize| relevant.iter().take(k).filter(|&&hit| hit).count() as f64;
        let precision = |k: usize| hits(k) / k as f64;
        let any = |k: usize| if hits(k) > 0.0 { 1.0 } else { 0.0 };
        let at = || (1..=relevant.len()).filter(|&i| relevant[i - 1]);
        let r = total as f64;
        let before = |i: usize| if i == 1 { 1.0 } else { precision(i - 1) };
        let gain = |i: usize| 1.0 / ((i + 1) as f64).log2();
        let values = [
            (any(1), true),
            (any(2), true),
            (any(10), true),
            (precision(1), true),
            (precision(5), true),
            (at().filter(|&i| i <= total).map(precision).sum::<f64>() / r, false),
            (hits(total) / r, false),
            (at().map(precision).sum::<f64>() / r, false),
            (at().map(|i| (before(i) + precision(i)) / 2.0 / r).sum::<f64>(), false),
            (at().next().map_or(0.0, |i| 1.0 / i as f64), true),
            (at().map(gain).sum::<f64>() / (1..=total).map(gain).sum::<f64>(), false),
            (any(2), false),
        ];
        for ((sum, count), (value, always)) in sums.iter_mut().zip(values) {
            if always || total > 0 {
                *sum += value;
                *count += 1;
            }
        }
    }
    let mean = |(sum, count): (f64, usize)| if count == 0 { 0.0 } else { sum / count as f64 };
    Naive { values: sums.into_iter().map(mean).collect(), tied, without }
}

fn assert_matches(found: &Evaluation, wanted: &Naive) {
    for (name, wanted) in NAMES.iter().zip(&wanted.values) {
        let found = found.metrics[*name];
        assert!((found - wanted).abs() < 1e-12, "{name}: {found} and not {wanted}");
    }
    assert_eq!(found.ties, wanted.tied);
    assert_eq!(found.queries_without_match, wanted.without);
    let told = found.tie_bounds.iter().any(|(_, bounds)| bounds.matter());
    assert_eq!(found.notes.is_empty(), !told);
    assert!(wanted.tied > 0 || found.tie_bounds.is_empty());
}

/// Whole numbers: f32 and f64 agree on every inner product and squared distance.
fn whole(rows: usize, cols: usize, range: i64, seed: u64) -> Matrix {
    let mut state = seed;
    let data = (0..rows * cols).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as i64 % range - range / 2) as f32
    });
    Matrix::new(rows, cols, data.collect()).unwrap()
}

fn scores<'a>(metric: Metric, queries: &'a Matrix, gallery: &'a Matrix) -> impl Fn(usize, usize) -> f64 + 'a {
    move |query, item| {
        let pairs = queries.row(query).iter().zip(gallery.row(item));
        let pairs = pairs.map(|(&a, &b)| (f64::from(a), f64::from(b)));
        match metric {
            Metric::InnerProduct => pairs.map(|(a, b)| a * b).sum(),
            // Distances that f32 cannot tell apart are ties.
            _ => f64::from(-(pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() as f32)),
        }
    }
}

/// Four rows on a line, classes a a b b:
///   0: a at 0.0, 1: a at 1.0, 2: b at 1.5, 3: b at 4.0.
/// Lists: 0 -> 1 2 3 (hit 1), 1 -> 2 0 3 (hit 2), 2 -> 1 0 3 (hit 3: distances .5 1.5 2.5),
/// 3 -> 2 1 0 (hit 1).
#[test]
fn the_hand_worked_line_has_its_values() {
    let line = Matrix::new(4, 1, vec![0.0, 1.0, 1.5, 4.0]).unwrap();
    let found = evaluate(&line, &[0, 0, 1, 1], &options(Metric::Euclidean)).unwrap();
    let close = |name: &str, wanted: f64| {
        let found = found.metrics[name];
        assert!((found - wanted).abs() < 1e-12, "{name}: {found} and not {wanted}");
    };
    close("recall@1", 2.0 / 4.0);
    close("recall@2", 3.0 / 4.0);
    close("recall@10", 1.0);
    close("precision@1", 2.0 / 4.0);
    close("precision@5", 1.0 / 5.0);
    // R = 1 for every query.
    close("map@r", 2.0 / 4.0);
    close("r_precision", 2.0 / 4.0);
    close("map", (1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0) / 4.0);
    close("mrr", (1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0) / 4.0);
    // One step: the mean of the precisions before and at the hit.
    close("map_trapezoid", (1.0 + 1.0 / 4.0 + 1.0 / 6.0 + 1.0) / 4.0);
    close("ndcg", (1.0 + 1.0 / 3f64.log2() + 1.0 / 2.0 + 1.0) / 4.0);
    close("cmc@2", 3.0 / 4.0);
    assert_eq!((found.queries, found.gallery, found.ties, found.queries_without_match), (4, 4, 0, 0));
}

#[test]
fn a_class_of_one_is_a_miss_in_recall_and_left_out_of_map_at_r() {
    let line = Matrix::new(3, 1, vec![0.0, 1.0, 9.0]).unwrap();
    let found = evaluate(&line, &[0, 0, 1], &options(Metric::Euclidean)).unwrap();
    assert_eq!(found.metrics["recall@1"], 2.0 / 3.0);
    assert_eq!(found.metrics["map@r"], 1.0);
    assert_eq!(found.queries_without_match, 1);
}

#[test]
fn a_collapsed_embedding_scores_as_the_order_of_the_files_and_ties_everywhere() {
    // 20 classes of 10, one after the other, all at one point: the first place of every list is
    // row 0 (row 1 for row 0), so that only the first class hits.
    let labels: Vec<u32> = (0..200).map(|row| row / 10).collect();
    let point = Matrix::new(200, 3, [0.3, -0.2, 0.9].repeat(200)).unwrap();
    for metric in [Metric::Cosine, Metric::Euclidean, Metric::InnerProduct] {
        let found = evaluate(&point, &labels, &options(metric)).unwrap();
        assert_eq!(found.metrics["recall@1"], 1.0 / 20.0);
        assert_eq!(found.ties, 200);
        assert!(found.notes[0].contains("200 of 200 queries"), "{}", found.notes[0]);
        assert_eq!((found.tie_bounds["map@r"].low, found.tie_bounds["map@r"].high), (0.0, 1.0));
    }
    let zeros = Matrix::new(200, 3, vec![0.0; 600]).unwrap();
    let found = evaluate(&zeros, &labels, &options(Metric::Cosine)).unwrap();
    assert_eq!((found.zero_rows, found.ties), (200, 200));
    assert_eq!(found.metrics["recall@1"], 1.0 / 20.0);
}

#[test]
fn edge_sizes_agree_with_the_naive_version() {
    for rows in [1, 2, 33, 47, 48, 49, 239, 240, 241] {
        let embeddings = whole(rows, 5, 7, rows as u64);
        let labels: Vec<u32> = (0..rows as u32).map(|row| row * row % 7).collect();
        for metric in [Metric::InnerProduct, Metric::Euclidean] {
            let found = evaluate(&embeddings, &labels, &options(metric)).unwrap();
            let wanted = naive(scores(metric, &embeddings, &embeddings), &labels, &labels, true);
            assert_matches(&found, &wanted);
        }
    }
}

#[test]
fn one_class_and_all_classes_of_one_are_measured() {
    let embeddings = whole(60, 3, 5, 1);
    let same = evaluate(&embeddings, &[4; 60], &options(Metric::Cosine)).unwrap();
    assert!(
        ["recall@1", "map@r", "map", "ndcg"].iter().all(|name| (same.metrics[*name] - 1.0).abs() < 1e-12)
    );
    let labels: Vec<u32> = (0..60).collect();
    let apart = evaluate(&embeddings, &labels, &options(Metric::Cosine)).unwrap();
    assert_eq!(apart.queries_without_match, 60);
    assert!(apart.metrics.iter().all(|(_, value)| value == 0.0));
}

#[test]
fn a_report_is_the_same_for_any_number_of_threads_and_survives_json() {
    let embeddings = whole(500, 8, 9, 3);
    let labels: Vec<u32> = (0..500).map(|row| row % 31).collect();
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| evaluate(&embeddings, &labels, &options(Metric::Cosine)).unwrap())
    };
    let one = run(1);
    assert_eq!(run(2), one);
    assert_eq!(run(5), one);
    let json = serde_json::to_string(&one).unwrap();
    assert!(json.contains("\"metrics\":{\"recall@1\":"), "{json}");
    assert_eq!(serde_json::from_str::<Evaluation>(&json).unwrap(), one);
}

#[test]
fn labels_of_other_embeddings_are_refused() {
    let embeddings = whole(3, 2, 5, 1);
    let error = evaluate(&embeddings, &[0, 1], &EvalOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "2 labels for 3 embeddings");
    let none = Matrix::new(0, 2, vec![]).unwrap();
    assert!(evaluate(&none, &[], &EvalOptions::default()).is_err());
    let bad = Matrix::new(1, 2, vec![0.0, f32::NAN]).unwrap();
    assert!(evaluate(&bad, &[0], &EvalOptions::default()).is_err());
    assert!(evaluate(&embeddings, &[0, 1, 1], &EvalOptions::recall_at(&[0])).is_err());
}

/// One query of identity 1, camera 1, at 0. The gallery by distance:
///   0.1 identity 1, camera 1: junk, takes up no rank
///   0.2 identity -1: junk
///   0.3 identity 0000 (a distractor): rank 1
///   0.4 identity 1, camera 2: rank 2, good
///   0.5 identity 2, camera 1: rank 3
///   0.6 identity 1, camera 3: rank 4, good
#[test]
fn junk_takes_up_no_rank_and_distractors_do() {
    let (junk, distractor) = (9, 0);
    let query = Matrix::new(1, 1, vec![0.0]).unwrap();
    let gallery = Matrix::new(6, 1, vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).unwrap();
    let found = evaluate_across_cameras(
        Sightings { embeddings: &query, identities: &[1], cameras: &[1] },
        Sightings {
            embeddings: &gallery,
            identities: &[1, junk, distractor, 1, 2, 1],
            cameras: &[1, 2, 3, 2, 1, 3],
        },
        Some(junk),
        &options(Metric::Euclidean),
    )
    .unwrap();
    assert_eq!(found.gallery, 5);
    assert_eq!(found.metrics["mrr"], 1.0 / 2.0);
    assert_eq!(found.metrics["cmc@2"], 1.0);
    assert_eq!(found.metrics["map"], (1.0 / 2.0 + 2.0 / 4.0) / 2.0);
    // Recall steps of 1/2: at rank 2 between 0/1 and 1/2, at rank 4 between 1/3 and 2/4.
    let trapezoid = ((0.0 + 1.0 / 2.0) / 2.0 + (1.0 / 3.0 + 2.0 / 4.0) / 2.0) / 2.0;
    assert!((found.metrics["map_trapezoid"] - trapezoid).abs() < 1e-15);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn queries_with_duplicates_and_ties_agree_with_the_naive_version(
        queries in 1usize..70,
        gallery in 1usize..150,
        cols in 1usize..4,
        classes in 1u32..12,
        range in 1i64..6,
        seed in any::<u64>(),
    ) {
        let q = whole(queries, cols, range, seed);
        let g = whole(gallery, cols, range, seed ^ 1);
        let label = |salt: u32| move |row: usize| (row as u32).wrapping_mul(2_654_435_761).wrapping_add(salt) % classes;
        let query_labels: Vec<u32> = (0..queries).map(label(seed as u32)).collect();
        let gallery_labels: Vec<u32> = (0..gallery).map(label(1)).collect();
        for metric in [Metric::InnerProduct, Metric::Euclidean] {
            let found = evaluate_split(&q, &query_labels, &g, &gallery_labels, &options(metric)).unwrap();
            let wanted = naive(scores(metric, &q, &g), &query_labels, &gallery_labels, false);
            assert_matches(&found, &wanted);
            let found = evaluate(&g, &gallery_labels, &options(metric)).unwrap();
            let wanted = naive(scores(metric, &g, &g), &gallery_labels, &gallery_labels, true);
            assert_matches(&found, &wanted);

            // Identity 0 is junk; three cameras.
            let camera = |row: usize| (row * 7 % 3) as u32;
            let query_cameras: Vec<u32> = (0..queries).map(camera).collect();
            let gallery_cameras: Vec<u32> = (0..gallery).map(camera).collect();
            let found = evaluate_across_cameras(
                Sightings { embeddings: &q, identities: &query_labels, cameras: &query_cameras },
                Sightings { embeddings: &g, identities: &gallery_labels, cameras: &gallery_cameras },
                Some(0),
                &options(metric),
            )
            .unwrap();
            let skips = |query: usize, item: usize| {
                gallery_labels[item] == 0
                    || gallery_labels[item] == query_labels[query] && camera(query) == camera(item)
            };
            let wanted = naive_skipping(scores(metric, &q, &g), &query_labels, &gallery_labels, skips);
            assert_matches(&found, &wanted);

            let side = Side::classes(&g, &gallery_labels).with_cameras(&gallery_cameras);
            let found = Task::every_row(side).measure(&options(metric)).unwrap().evaluation;
            let skips = |query: usize, item: usize| {
                query == item || gallery_labels[item] == gallery_labels[query] && camera(query) == camera(item)
            };
            let wanted = naive_skipping(scores(metric, &g, &g), &gallery_labels, &gallery_labels, skips);
            assert_matches(&found, &wanted);
        }
    }
}

#[test]
fn a_metric_that_is_not_finite_is_refused_by_its_name() {
    /// Infinite where the first relevant item comes first, and NaN where nothing is relevant.
    struct Odd;
    impl RankMetric for Odd {
        fn name(&self) -> &'static str {
            "odd"
        }

        fn value(&self, ranks: &RelevantRanks, _: Option<usize>) -> f64 {
            ranks.first().map_or(f64::NAN, |first| 1.0 / (f64::from(first) - 1.0))
        }
    }
    Measure::register(&Odd).unwrap();
    let options = EvalOptions { metric: Metric::Euclidean, measures: vec!["odd".parse().unwrap()] };
    let of = |positions: &[f32], classes: &[u32]| {
        let rows = Matrix::new(positions.len(), 1, positions.to_vec()).unwrap();
        evaluate(&rows, classes, &options)
    };
    // The last query has no relevant item, and does not count.
    assert_eq!(of(&[0.0, 1.0, 1.5, 5.0], &[0, 1, 0, 2]).unwrap().metrics["odd"], 1.0);
    let error = of(&[0.0, 5.0, 1.5, 2.0], &[0, 1, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "the metric `odd` is inf for query 0; every value must be finite");
    // One of the orders of two items at the same distance.
    let error = of(&[0.0, 1.0, 1.0], &[0, 1, 0]).unwrap_err();
    assert!(error.to_string().starts_with("the metric `odd` is inf for query"), "{error}");
}
