//! Label sets and graded relevance against a naive version in f64, and against examples worked by
//! hand.

use gallerist_retrieval::eval::{EvalOptions, Measure, Relevance, Side, Task, evaluate, evaluate_graded};
use gallerist_retrieval::labels::{LabelSets, encode_sets};
use gallerist_retrieval::{Matrix, search::Metric};
use proptest::prelude::*;

const NAMES: [&str; 9] =
    ["ndcg", "ndcg@3", "ndcg_exp", "ndcg_exp@5", "recall@1", "recall@4", "map@r", "map", "r_precision"];

fn options(metric: Metric) -> EvalOptions {
    EvalOptions { metric, measures: NAMES.map(|name| name.parse::<Measure>().unwrap()).to_vec() }
}

/// Whole numbers: f32 and f64 agree on every squared distance.
fn whole(rows: usize, cols: usize, range: i64, seed: u64) -> Matrix {
    let mut state = seed;
    let data = (0..rows * cols).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as i64 % range - range / 2) as f32
    });
    Matrix::new(rows, cols, data.collect()).unwrap()
}

/// The mean of each metric, from a list of grades per query that is sorted by distance, then index.
fn naive(
    q: &Matrix,
    g: &Matrix,
    grade: impl Fn(usize, usize) -> u32,
    same: bool,
) -> (Vec<f64>, usize, usize) {
    let mut sums = vec![(0.0, 0usize); NAMES.len()];
    let (mut tied, mut without) = (0, 0);
    for query in 0..q.rows() {
        let distance = |item: usize| -> f64 {
            q.row(query).iter().zip(g.row(item)).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum()
        };
        let mut items: Vec<usize> = (0..g.rows()).filter(|&item| !(same && item == query)).collect();
        items.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)).then(a.cmp(&b)));
        let grades: Vec<u32> = items.iter().map(|&item| grade(query, item)).collect();
        let mut ideal = grades.clone();
        ideal.sort_by(|a, b| b.cmp(a));
        let dcg = |grades: &[u32], gain: &dyn Fn(u32) -> f64, k: usize| -> f64 {
            let at = grades.iter().take(k).enumerate();
            at.map(|(i, &grade)| gain(grade) / ((i + 2) as f64).log2()).sum()
        };
        let linear = |grade: u32| f64::from(grade);
        let exponential = |grade: u32| 2f64.powi(grade as i32) - 1.0;
        let ndcg = |gain: &dyn Fn(u32) -> f64, k: usize| dcg(&grades, gain, k) / dcg(&ideal, gain, k);
        let total = grades.iter().filter(|&&grade| grade > 0).count();
        let hits = |k: usize| grades.iter().take(k).filter(|&&grade| grade > 0).count() as f64;
        let at = |limit: usize| (1..=limit.min(grades.len())).filter(|&i| grades[i - 1] > 0);
        let precision = |i: usize| hits(i) / i as f64;
        let r = total as f64;
        let values = [
            ndcg(&linear, usize::MAX),
            ndcg(&linear, 3),
            ndcg(&exponential, usize::MAX),
            ndcg(&exponential, 5),
            f64::from(hits(1) > 0.0),
            f64::from(hits(4) > 0.0),
            at(total).map(precision).sum::<f64>() / r,
            at(usize::MAX).map(precision).sum::<f64>() / r,
            hits(total) / r,
        ];
        for ((sum, count), (name, value)) in sums.iter_mut().zip(NAMES.iter().zip(values)) {
            if total > 0 || name.starts_with("recall") {
                *sum += value;
                *count += 1;
            }
        }
        without += usize::from(total == 0);
        tied += usize::from(items.iter().any(|&a| {
            grade(query, a) > 0 && items.iter().any(|&b| grade(query, b) == 0 && distance(a) == distance(b))
        }));
    }
    (sums.into_iter().map(|(sum, n)| if n == 0 { 0.0 } else { sum / n as f64 }).collect(), tied, without)
}

fn shared(a: &LabelSets, b: &LabelSets, i: usize, j: usize) -> u32 {
    a.of(i).iter().filter(|label| b.of(j).contains(label)).count() as u32
}

/// Rows on a line: the query "a|b" at 0, then "c" at 1, "a" at 2, "a|b" at 3.
#[test]
fn the_hand_worked_example_has_its_values() {
    let names = ["a|b", "c", "a", "a|b"].map(String::from);
    let query = Matrix::new(1, 1, vec![0.0]).unwrap();
    let gallery = Matrix::new(3, 1, vec![1.0, 2.0, 3.0]).unwrap();
    let (q, g) = encode_sets(&names[..1], &names[1..]);
    let task = Task::split(Side::sets(&query, &q), Side::sets(&gallery, &g));
    let found = task.measure(&options(Metric::Euclidean)).unwrap().evaluation;
    let close = |name: &str, wanted: f64| assert!((found.metrics[name] - wanted).abs() < 1e-15, "{name}");
    // Grades 0, 1, 2 at the ranks 1, 2, 3; ideally 2, 1, 0. log2 of 2, 3, 4.
    let d = 1.0 / 3f64.log2();
    close("ndcg", (d + 2.0 / 2.0) / (2.0 + d));
    close("ndcg_exp", (d + 3.0 / 2.0) / (3.0 + d));
    close("recall@1", 0.0);
    close("recall@4", 1.0);
    close("map", (1.0 / 2.0 + 2.0 / 3.0) / 2.0);
    close("map@r", (1.0 / 2.0) / 2.0);
    close("r_precision", 1.0 / 2.0);
}

#[test]
fn sets_of_one_label_measure_as_classes_do() {
    for rows in [1, 2, 47, 48, 49, 200] {
        let embeddings = whole(rows, 4, 7, rows as u64);
        let classes: Vec<u32> = (0..rows as u32).map(|row| row * row % 11).collect();
        let sets = LabelSets::new(classes.iter().map(|&class| vec![class]));
        let options = options(Metric::Cosine);
        let wanted = evaluate(&embeddings, &classes, &options).unwrap();
        let found = Task::every_row(Side::sets(&embeddings, &sets)).measure(&options).unwrap();
        assert_eq!(found.evaluation, wanted);
        assert_eq!(found.queries.len(), rows);
    }
}

#[test]
fn the_values_of_the_queries_have_the_reported_mean() {
    let embeddings = whole(120, 3, 9, 4);
    let classes: Vec<u32> = (0..120).map(|row| row * 7 % 50).collect();
    let measured =
        Task::every_row(Side::classes(&embeddings, &classes)).measure(&options(Metric::Euclidean)).unwrap();
    let values = &measured.queries;
    for (at, name) in NAMES.iter().enumerate() {
        let counted: Vec<f64> = (0..120)
            .filter(|&query| values.has_match(query) || name.starts_with("recall"))
            .map(|query| values.of(query)[at])
            .collect();
        let mean = counted.iter().sum::<f64>() / counted.len() as f64;
        assert!((measured.evaluation.metrics[*name] - mean).abs() < 1e-12, "{name}");
    }
}

#[test]
fn sets_and_classes_do_not_mix_and_sets_know_no_cameras() {
    let rows = whole(3, 2, 5, 1);
    let sets = LabelSets::new([vec![0], vec![1], vec![0]]);
    let (classes, cameras) = ([0, 1, 0], [0, 0, 1]);
    let options = EvalOptions::default();
    let mixed = Task::split(Side::sets(&rows, &sets), Side::classes(&rows, &classes));
    assert!(mixed.measure(&options).unwrap_err().to_string().ends_with("label sets given"));
    let seen = Side::sets(&rows, &sets).with_cameras(&cameras);
    assert!(Task::split(seen, seen).measure(&options).is_err());
    let short = LabelSets::new([vec![0]]);
    let error = Task::every_row(Side::sets(&rows, &short)).measure(&options).unwrap_err();
    assert_eq!(error.to_string(), "1 labels for 3 embeddings");
}

struct Judged(Vec<Vec<u32>>);

impl Relevance for Judged {
    fn relevant(&self, query: usize, into: &mut Vec<(u32, u32)>) {
        let grades = self.0[query].iter().enumerate().rev();
        into.extend(grades.filter(|(_, grade)| **grade > 0).map(|(item, grade)| (item as u32, *grade)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn sets_and_grades_with_duplicates_and_ties_agree_with_the_naive_version(
        queries in 1usize..60,
        gallery in 1usize..120,
        labels in 1u32..9,
        range in 1i64..6,
        seed in any::<u64>(),
    ) {
        let q = whole(queries, 2, range, seed);
        let g = whole(gallery, 2, range, seed ^ 1);
        let sets = |rows: usize, salt: u32| {
            LabelSets::new((0..rows as u32).map(|row| {
                let bits = (row ^ salt).wrapping_mul(2_654_435_761) >> 9;
                (0..labels).filter(|label| bits >> label & 1 == 1 && bits >> (label + 9) & 1 == 1).collect()
            }))
        };
        let (of_q, of_g) = (sets(queries, seed as u32), sets(gallery, 1));
        let options = options(Metric::Euclidean);
        let judged = Judged((0..queries).map(|i| (0..gallery).map(|j| shared(&of_q, &of_g, i, j)).collect()).collect());
        let cases = [
            (Task::split(Side::sets(&q, &of_q), Side::sets(&g, &of_g)).measure(&options).unwrap(),
             naive(&q, &g, |i, j| shared(&of_q, &of_g, i, j), false)),
            (Task::every_row(Side::sets(&g, &of_g)).measure(&options).unwrap(),
             naive(&g, &g, |i, j| shared(&of_g, &of_g, i, j), true)),
            (evaluate_graded(&q, Some(g.view()), &judged, &options).unwrap(),
             naive(&q, &g, |i, j| judged.0[i][j], false)),
        ];
        for (found, (wanted, tied, without)) in cases {
            for (name, wanted) in NAMES.iter().zip(wanted) {
                let found = found.evaluation.metrics[*name];
                prop_assert!((found - wanted).abs() < 1e-12, "{}: {} and not {}", name, found, wanted);
            }
            prop_assert_eq!(found.evaluation.ties, tied);
            prop_assert_eq!(found.evaluation.queries_without_match, without);
        }
    }
}
