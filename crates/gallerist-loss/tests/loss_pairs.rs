//! Pair, triplet and list losses: oracles in f64 written from the equations, central differences, and the
//! corner cases.

mod oracle;

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{Labels, LossConfig, LossOutput, LossShape, Progress};
use gallerist_tensor::pairwise::l2_normalize;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

use oracle::{
    Rows, close, closed_gradient, dist, dot, ice_gradient, log_one_plus, mean, plus, slope, specs, unit,
    value,
};

fn config(json: &Value) -> LossConfig {
    let config: LossConfig = serde_json::from_value(json.clone()).unwrap_or_else(|e| panic!("{json}: {e}"));
    config.validate().unwrap();
    config
}

fn tensor(rows: &Rows, dtype: DType) -> Tensor<2> {
    let data = TensorData::new(rows.concat(), [rows.len(), rows[0].len()]);
    Tensor::<2>::from_data(data, (&Device::flex().autodiff(), dtype)).require_grad()
}

fn host(data: TensorData) -> Vec<f64> {
    data.convert::<f64>().try_into_vec().unwrap()
}

struct Run {
    output: LossOutput,
    value: f64,
    gradient: Vec<f64>,
}

fn run_at(json: &Value, rows: &Rows, labels: Labels<'_>, dtype: DType, step: usize) -> Run {
    let x = tensor(rows, dtype);
    let shape = LossShape { classes: 8, dimensions: rows[0].len() };
    let loss = config(json).init(shape, 1, &Device::flex().autodiff());
    let output = loss.forward(x.clone(), labels, Progress { step, steps: 100 });
    let gradient = x.grad(&output.value.backward()).map(|g| host(g.into_data()));
    let value = host(output.value.clone().into_data())[0];
    Run { output, value, gradient: gradient.unwrap_or(vec![0.0; rows.concat().len()]) }
}

fn run(json: &Value, rows: &Rows, labels: &[u32]) -> Run {
    run_at(json, rows, Labels::Classes(labels), DType::F64, 0)
}

/// The value of a loss on a batch alone.
fn oracle(json: &Value, x: &Rows, related: &dyn Fn(usize, usize) -> bool) -> f64 {
    value(json, x.len(), x, related)
}

// -------------------------------------------------------------------------------------------------
// Batches and losses.

/// The two whose draw or pairing depends on the order, and the hot ends of the others.
fn further_specs() -> Vec<Value> {
    vec![
        json!({"name": "margin"}),
        json!({"name": "margin", "boundary": "learnt", "nu": 0.1}),
        json!({"name": "margin", "boundary": "per_class"}),
        json!({"name": "n_pair"}),
        json!({"name": "n_pair", "l2": 0.02, "rounds": true}),
        json!({"name": "srt", "temperature": 1.0 / 30.0}),
        json!({"name": "ice", "scale": 960.0, "gradient": "paper"}),
        json!({"name": "ice", "scale": 960.0, "gradient": "autodiff"}),
        json!({"name": "multi_similarity", "alpha": 30.0, "beta": 300.0}),
        json!({"name": "lifted", "alpha": 30.0}),
        json!({"name": "angular", "angle": 80.0}),
        json!({"name": "nra", "alpha": 30.0}),
        json!({"name": "recall_at_k"}),
        json!({"name": "recall_at_k", "simix": true, "include_query": true}),
        json!({"name": "roadmap"}),
        json!({"name": "potential_field", "proxies": 2}),
        json!({"name": "potential_field", "proxies": 0, "alpha": 6.0, "closest": 0.001}),
        json!({"name": "hyperbolic", "clip": 0.0, "curvature": 1.0}),
        json!({"name": "hyperbolic", "temperature": 0.01, "negatives": "columns", "epsilon": 1e-5}),
    ]
}

fn batches() -> impl Strategy<Value = (Rows, Vec<u32>)> {
    (1usize..11, 2usize..6).prop_flat_map(|(n, d)| {
        let rows = prop::collection::vec(prop::collection::vec(-1.0..1.0f64, d), n);
        let labels = prop::collection::vec(0u32..4, n);
        (rows, labels, any::<bool>())
            .prop_map(|(rows, labels, normalised)| (if normalised { unit(rows) } else { rows }, labels))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, rng_seed: RngSeed::Fixed(2019), failure_persistence: None, ..Default::default() })]

    #[test]
    fn values_are_those_of_the_equations_and_gradients_those_of_central_differences((rows, labels) in batches()) {
        let related = |i: usize, j: usize| labels[i] == labels[j];
        for json in specs() {
            let found = run(&json, &rows, &labels);
            let f = |x: &Rows| oracle(&json, x, &related);
            prop_assert!(close(found.value, f(&rows), 1e-9), "{json}: {} {}", found.value, f(&rows));
            let closed = closed_gradient(&json, rows.len(), &rows, &labels);
            let largest = found.gradient.iter().fold(1.0f64, |a, g| a.max(g.abs()));
            let dim = rows[0].len();
            for (at, &gradient) in found.gradient.iter().enumerate() {
                let wanted = match &closed {
                    Some(closed) => Some(closed[at]),
                    None => slope(&f, &rows, at / dim, at % dim),
                };
                let Some(wanted) = wanted else { continue };
                prop_assert!((gradient - wanted).abs() <= 1e-5 * largest, "{json}: gradient[{at}] {gradient}, {wanted}");
            }
        }
    }

    #[test]
    fn the_order_of_the_batch_does_not_matter((rows, labels) in batches()) {
        let reversed: Rows = rows.iter().rev().cloned().collect();
        let reversed_labels: Vec<u32> = labels.iter().rev().copied().collect();
        let dim = rows[0].len();
        for json in specs() {
            let (a, b) = (run(&json, &rows, &labels), run(&json, &reversed, &reversed_labels));
            prop_assert!(close(a.value, b.value, 1e-12), "{json}: {} {}", a.value, b.value);
            let largest = a.gradient.iter().fold(1.0f64, |a, g| a.max(g.abs()));
            for (a, b) in a.gradient.chunks(dim).zip(b.gradient.chunks(dim).rev()) {
                prop_assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * largest), "{json}");
            }
            let back = |v: &[u32]| v.iter().rev().copied().collect::<Vec<_>>();
            prop_assert_eq!(&a.output.queries.positives, &back(&b.output.queries.positives));
            prop_assert_eq!(&a.output.queries.mined_negatives, &back(&b.output.queries.mined_negatives), "{}", json);
        }
    }

    #[test]
    fn samples_that_share_a_label_are_positives((rows, labels) in batches(), more in prop::collection::vec(0u32..6, 11)) {
        let sets: Vec<Vec<u32>> = labels.iter().zip(&more).map(|(&a, &b)| vec![a, b]).collect();
        let related = |i: usize, j: usize| sets[i].iter().any(|label| sets[j].contains(label));
        for json in specs() {
            let found = run_at(&json, &rows, Labels::Sets(&sets), DType::F64, 0);
            let wanted = oracle(&json, &rows, &related);
            prop_assert!(close(found.value, wanted, 1e-9), "{json}: {} {wanted}", found.value);
            prop_assert!(found.gradient.iter().all(|g| g.is_finite()), "{}", json);
        }
    }

    #[test]
    fn finite_embeddings_of_any_size_give_finite_losses_and_gradients(
        (rows, labels) in batches(),
        exponent in prop_oneof![Just(-6), Just(0), Just(3)],
        copies in prop::collection::vec(0usize..40, 11),
    ) {
        // Some rows are copies of others, some are zero.
        let mut rows: Rows = rows.iter().map(|row| row.iter().map(|v| v * 10f64.powi(exponent)).collect()).collect();
        for (i, &from) in copies.iter().enumerate().take(rows.len()) {
            if from < rows.len() {
                rows[i] = rows[from].clone();
            } else if from < 15 {
                rows[i].fill(0.0);
            }
        }
        for json in specs().into_iter().chain(further_specs()) {
            for dtype in [DType::F32, DType::F64] {
                let found = run_at(&json, &rows, Labels::Classes(&labels), dtype, 3);
                prop_assert!(found.value.is_finite(), "{json}: {}", found.value);
                prop_assert!(found.gradient.iter().all(|g| g.is_finite()), "{json}: {:?}", found.gradient);
                prop_assert!(found.output.queries.loss.iter().all(|v| v.is_finite()), "{}", json);
            }
        }
    }
}

// -------------------------------------------------------------------------------------------------
// Corner cases.

#[test]
fn a_collapsed_batch_costs_what_the_equations_say() {
    let rows = vec![vec![0.6, 0.8]; 8];
    let labels = [0, 0, 1, 1, 2, 2, 3, 3];
    let cases = [
        (json!({"name": "nra"}), 0.0),
        // Every rank is 4: positives are 2 above P + 1, negatives 1 beyond P + 2.
        (json!({"name": "srt"}), 1.0),
        (json!({"name": "ice", "gradient": "autodiff"}), 7f64.ln()),
        (json!({"name": "contrastive"}), 24.0 / 28.0),
        (json!({"name": "triplet_all"}), 0.2),
        (json!({"name": "triplet_semihard"}), 0.2),
        (json!({"name": "triplet_batch_hard"}), 0.2),
        (json!({"name": "triplet_batch_hard", "soft": true}), 2f64.ln()),
        (json!({"name": "triplet_hard_negative"}), 0.2),
        (json!({"name": "triplet_adaptive", "margin": 1.0}), 1.0),
        (json!({"name": "margin", "margin": 0.2, "beta": 1.2}), 1.4),
        (json!({"name": "n_pair"}), 4f64.ln()),
        (json!({"name": "lifted", "alpha": 1.0, "squared": true}), 0.5 * (12f64.ln() + 1.0).powi(2)),
        (json!({"name": "angular", "angle": 45.0}), (1.0 + 6.0 * 4f64.exp()).ln()),
        (json!({"name": "histogram"}), 1.0),
        (json!({"name": "fast_ap"}), 6.0 / 7.0),
        (json!({"name": "circle", "margin": 0.25, "gamma": 256.0}), 224.0 + 6f64.ln()),
        // Every rank is 1 + 6 / 2.
        (
            json!({"name": "recall_at_k", "k": [1, 16]}),
            1.0 - 0.5 / (1.0 + 3f64.exp()) - 0.5 / (1.0 + (-12f64).exp()),
        ),
        // AP is 1 / (1 + 6 / 2), and the negatives exceed their margin by 0.4.
        (json!({"name": "roadmap"}), 0.2 * 0.75 + 0.8 * 0.4),
        (json!({"name": "potential_field", "alpha": 4.0, "delta": 0.2, "proxies": 0}), 6.0 * 5e8 - 625.0),
        (json!({"name": "hyperbolic"}), 7f64.ln()),
        (
            json!({"name": "multi_similarity", "alpha": 2.0, "beta": 50.0}),
            0.5 * (1.0 + (-1f64).exp()).ln() + 0.02 * (25.0 + 6f64.ln()),
        ),
    ];
    for (json, wanted) in cases {
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-6)] {
            let found = run_at(&json, &rows, Labels::Classes(&labels), dtype, 0);
            assert!(close(found.value, wanted, tolerance), "{json}: {} {wanted}", found.value);
            assert!(found.gradient.iter().all(|g| g.is_finite()), "{json}");
            let angles = [
                "ice",
                "n_pair",
                "angular",
                "histogram",
                "circle",
                "multi_similarity",
                "recall_at_k",
                "roadmap",
            ];
            if !angles.contains(&json["name"].as_str().unwrap()) {
                assert!(found.gradient.iter().all(|&g| g == 0.0), "{json}: no pair has a direction");
            }
        }
    }
}

#[test]
fn one_class_only_singletons_and_one_sample_follow_the_equations() {
    let rows = unit(vec![vec![1.0, 0.2], vec![0.3, 1.0], vec![-0.5, 0.4], vec![0.9, -0.4]]);
    for labels in [vec![0, 0, 0, 0], vec![0, 1, 2, 3], vec![5]] {
        let rows = rows[..labels.len()].to_vec();
        for json in specs() {
            let found = run(&json, &rows, &labels);
            let wanted = oracle(&json, &rows, &|i, j| labels[i] == labels[j]);
            assert!(close(found.value, wanted, 1e-9), "{json} on {labels:?}: {} {wanted}", found.value);
            assert!(found.gradient.iter().all(|g| g.is_finite()), "{json} on {labels:?}");
        }
        for json in further_specs().iter().take(5) {
            let found = run(json, &rows, &labels);
            assert!(
                found.value.is_finite() && found.gradient.iter().all(|g| g.is_finite()),
                "{json} on {labels:?}"
            );
        }
    }
}

#[test]
fn zero_rows_get_no_gradient_through_the_normalisation() {
    let rows = vec![vec![0.0, 0.0], vec![1.0, 2.0], vec![0.0, 0.0], vec![2.0, 1.0]];
    for json in specs().into_iter().chain(further_specs()) {
        let x = tensor(&rows, DType::F32);
        let loss = config(&json).init(LossShape { classes: 2, dimensions: 2 }, 1, &Device::flex().autodiff());
        let output =
            loss.forward(l2_normalize(x.clone()), Labels::Classes(&[0, 0, 1, 1]), Progress::default());
        let gradient = host(x.grad(&output.value.backward()).unwrap().into_data());
        assert!(gradient.iter().all(|g| g.is_finite()), "{json}");
        assert!(gradient[0..2].iter().chain(&gradient[4..6]).all(|&g| g == 0.0), "{json}");
    }
}

/// Pseudo-random rows without a generator: fractional parts of multiples of irrational numbers.
fn spread(n: usize, d: usize) -> Rows {
    let entry = |i: usize, k: usize| {
        ((i * d + k + 1) as f64 * 0.618_033_988_749_895).fract()
            + ((i + 1) as f64 * 0.7548 * (k + 1) as f64).fract()
            - 1.0
    };
    (0..n).map(|i| (0..d).map(|k| entry(i, k)).collect()).collect()
}

#[test]
fn cubic_losses_are_right_across_their_blocks_of_rows() {
    // 2^22 / 162^2 = 159 rows a block: two blocks.
    let n = 162;
    let rows = unit(spread(n, 3));
    let labels: Vec<u32> = (0..n as u32).map(|i| i * i % 40).collect();
    let related = |i: usize, j: usize| labels[i] == labels[j];
    for json in [
        json!({"name": "srt", "temperature": 0.2, "soft": true, "hard_weight": 0.01}),
        json!({"name": "triplet_all"}),
        json!({"name": "triplet_semihard"}),
    ] {
        let found = run(&json, &rows, &labels);
        let f = |x: &Rows| oracle(&json, x, &related);
        assert!(close(found.value, f(&rows), 1e-9), "{json}: {} {}", found.value, f(&rows));
        let largest = found.gradient.iter().fold(0.0f64, |a, g| a.max(g.abs()));
        for i in [158, 159] {
            let at = |by: f64| {
                let mut moved = rows.clone();
                moved[i][1] += by;
                f(&moved)
            };
            let wanted = (at(1e-7) - at(-1e-7)) / 2e-7;
            let found = found.gradient[i * 3 + 1];
            assert!((found - wanted).abs() < 1e-5 * largest.max(1e-2), "{json}: row {i} {found} {wanted}");
        }
    }
}

#[test]
fn angular_is_right_across_its_blocks_of_pairs() {
    // 2^22 / 230 = 18,236 pairs a block, of 26,220: two blocks.
    let n = 230;
    let rows = unit(spread(n, 3));
    let labels: Vec<u32> = (0..n as u32).map(|i| i % 2).collect();
    let json = json!({"name": "angular", "angle": 45.0});
    let found = run(&json, &rows, &labels);
    let f = |x: &Rows| oracle(&json, x, &|i, j| labels[i] == labels[j]);
    assert!(close(found.value, f(&rows), 1e-9), "{} {}", found.value, f(&rows));
    for i in [0, 159, 160, 229] {
        let at = |by: f64| {
            let mut moved = rows.clone();
            moved[i][1] += by;
            f(&moved)
        };
        let (found, wanted) = (found.gradient[i * 3 + 1], (at(1e-6) - at(-1e-6)) / 2e-6);
        assert!((found - wanted).abs() < 1e-7, "row {i}: {found} {wanted}");
    }
}

// -------------------------------------------------------------------------------------------------
// Loss by loss.

#[test]
fn nra_counts_dead_terms() {
    // On a line: the positive of 0 is nearest; of 1 and 2 the one term each is dead.
    let rows = vec![vec![0.0], vec![1.0], vec![3.0], vec![7.0]];
    let found = run(&json!({"name": "nra"}), &rows, &[0, 0, 1, 1]);
    let queries = &found.output.queries;
    assert_eq!(queries.terms, [2, 2, 2, 2]);
    // 0: {1 | 3, 7}: live. 1: {1 | 2, 6}: live. 2: {4 | 3, 2}: farthest positive, nearest negative. 3: {4 |
    // 7, 6}: live.
    assert_eq!(queries.dead_terms, [0, 0, 2, 0]);
    assert_eq!(queries.dead_share(), 0.25);
    assert_eq!((queries.mined_positives[2], queries.mined_negatives[2]), (0, 0));
    // A query whose terms are both dead gives no gradient: the rest is the gradient without it.
    let collapsed = run(&json!({"name": "nra"}), &vec![vec![1.0]; 4], &[0, 0, 1, 1]);
    assert_eq!(collapsed.output.queries.dead_share(), 1.0);
}

#[test]
fn srt_f_switches_its_hard_terms_on_at_their_step() {
    let rows = spread(8, 3);
    let labels = [0, 0, 1, 1, 2, 2, 2, 3];
    let json = json!({"name": "srt", "soft": true, "hard_weight": 0.5, "hard_from_step": 10});
    let at = |step: usize| run_at(&json, &rows, Labels::Classes(&labels), DType::F64, step).value;
    let related = |i: usize, j: usize| labels[i] == labels[j];
    let soft = oracle(&json!({"name": "srt", "soft": true}), &rows, &related);
    let hard = oracle(&json!({"name": "srt", "soft": true, "hard_weight": 0.5}), &rows, &related);
    assert!(close(at(9), soft, 1e-12) && close(at(10), hard, 1e-12) && hard > soft);
}

#[test]
fn ice_gradients_of_far_pairs_neither_cancel_nor_underflow() {
    // The positives' probabilities differ from 1 by exp(-128): in f32 1 - p is 0 and exp(-128) is 0 too.
    let rows = vec![vec![1.0, 0.0], vec![1.0, 0.0], vec![-1.0, 0.0], vec![-1.0, 0.0]];
    let labels = [0, 0, 1, 1];
    let wanted = ice_gradient(64.0, "paper", rows.len(), &rows, &labels);
    let found = run_at(
        &json!({"name": "ice", "scale": 64.0, "gradient": "paper"}),
        &rows,
        Labels::Classes(&labels),
        DType::F32,
        0,
    );
    assert!(wanted.iter().any(|&g| g != 0.0));
    for (found, wanted) in found.gradient.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
    }
}

#[test]
fn multi_similarity_keeps_the_pairs_that_violate_their_order() {
    let angle = |degrees: f64| vec![degrees.to_radians().cos(), degrees.to_radians().sin()];
    // From 0 degrees: positives at 10 and 50, negatives at 40 and 100.
    let rows = vec![angle(0.0), angle(10.0), angle(50.0), angle(40.0), angle(-100.0)];
    let found = run(
        &json!({"name": "multi_similarity", "miner": {"name": "multi_similarity", "epsilon": 0.05}}),
        &rows,
        &[0, 0, 0, 1, 1],
    );
    // The negative at 40 is nearer than the positive at 50; the positive at 10 is safe, and so is the
    // negative at 100.
    assert_eq!(found.output.queries.mined_positives[0], 1);
    assert_eq!(found.output.queries.mined_negatives[0], 1);
    let all = run(&json!({"name": "multi_similarity", "miner": {"name": "all"}}), &rows, &[0, 0, 0, 1, 1]);
    assert_eq!(all.output.queries.mined_positives, [2, 2, 2, 1, 1]);
}

#[test]
fn triplet_losses_count_the_pairs_they_use() {
    // On a line: 0 and 1 are of class 0, 1.5 and 9 of class 1.
    let rows = vec![vec![0.0], vec![1.0], vec![1.5], vec![9.0]];
    let labels = [0, 0, 1, 1];
    // 0: d_p 1, d_n 1.5 and 9: safe. 1: 1 | 0.5, 8: one triplet. 2: 7.5 | 1.5, 0.5: both. 3: 7.5 | 9, 8:
    // safe.
    let all = run(&json!({"name": "triplet_all"}), &rows, &labels).output.queries;
    assert_eq!((&all.mined_positives[..], &all.mined_negatives[..]), (&[0, 1, 1, 0][..], &[0, 1, 2, 0][..]));
    let hard = run(&json!({"name": "triplet_batch_hard"}), &rows, &labels).output.queries;
    assert_eq!(
        (&hard.mined_positives[..], &hard.mined_negatives[..]),
        (&[0, 1, 1, 0][..], &[0, 1, 1, 0][..])
    );
    // Semi-hard: 1 has the negative at 8 beyond its positive; 2 has none beyond 7.5 and takes the farthest,
    // 1.5.
    let semi = run(&json!({"name": "triplet_semihard"}), &rows, &labels);
    assert_eq!(semi.output.queries.mined_negatives, [0, 0, 1, 0]);
    assert!(close(semi.value, (7.5f64.powi(2) + 0.2 - 1.5f64.powi(2)) / 4.0, 1e-12));
}

fn n_pair(rows: &Rows, pairs: &[(usize, usize)], l2: f64) -> f64 {
    let costs = pairs.iter().map(|&(i, p)| {
        let f = pairs
            .iter()
            .filter(|&&(j, _)| j != i)
            .map(|&(_, q)| dot(&rows[i], &rows[q]) - dot(&rows[i], &rows[p]));
        log_one_plus(&f.collect::<Vec<_>>())
    });
    let norms: Vec<f64> =
        pairs.iter().flat_map(|&(i, p)| [dot(&rows[i], &rows[i]), dot(&rows[p], &rows[p])]).collect();
    mean(&costs.collect::<Vec<_>>()) + l2 * mean(&norms)
}

#[test]
fn n_pair_takes_the_first_two_of_each_class_or_all_in_rounds() {
    let rows = spread(10, 4);
    let labels = [7, 3, 7, 3, 3, 7, 3, 5, 7, 4];
    let first: &[(usize, usize)] = &[(0, 2), (1, 3)];
    let second: &[(usize, usize)] = &[(5, 8), (4, 6)];
    let both = |x: &Rows| 0.5 * (n_pair(x, first, 0.02) + n_pair(x, second, 0.02));
    let default = run(&json!({"name": "n_pair", "l2": 0.02}), &rows, &labels);
    assert!(close(default.value, n_pair(&rows, first, 0.02), 1e-12));
    assert!(default.output.queries.note.is_some());
    let rounds = run(&json!({"name": "n_pair", "l2": 0.02, "rounds": true}), &rows, &labels);
    assert!(close(rounds.value, both(&rows), 1e-12));
    assert!(rounds.output.queries.note.is_none());
    assert_eq!(rounds.output.queries.mined_positives, [1, 1, 0, 0, 1, 1, 0, 0, 0, 0]);
    for (at, gradient) in rounds.gradient.iter().enumerate() {
        let wanted = slope(&both, &rows, at / 4, at % 4).unwrap();
        assert!((gradient - wanted).abs() < 1e-9, "{at}: {gradient} {wanted}");
    }
    // The order of the classes does not matter, that within a class does.
    let turned: Rows = [2, 0, 3, 1].iter().map(|&i| rows[i].clone()).collect();
    let value = run(&json!({"name": "n_pair", "l2": 0.02}), &turned, &[7, 7, 3, 3]).value;
    assert!(close(value, n_pair(&rows, &[(2, 0), (3, 1)], 0.02), 1e-12));
}

#[test]
fn n_pair_with_sets_pairs_each_sample_once_and_spares_shared_labels() {
    let rows = spread(6, 3);
    // Label 1: samples 0 and 1. Label 2: 1 is taken, so 2 and 3. Label 3: 4 and 5. 1 (positive of the first
    // pair) is related to 2, the second pair's anchor.
    let sets = [vec![1], vec![1, 2], vec![2], vec![2], vec![3], vec![3]];
    let found = run_at(&json!({"name": "n_pair"}), &rows, Labels::Sets(&sets), DType::F64, 0);
    let f = |i: usize, p: usize, others: &[usize]| {
        log_one_plus(
            &others.iter().map(|&q| dot(&rows[i], &rows[q]) - dot(&rows[i], &rows[p])).collect::<Vec<_>>(),
        )
    };
    let wanted = (f(0, 1, &[3, 5]) + f(2, 3, &[5]) + f(4, 5, &[1, 3])) / 3.0;
    assert!(close(found.value, wanted, 1e-12), "{} {wanted}", found.value);
}

#[test]
fn margin_is_its_equation_where_there_is_only_one_negative() {
    let rows =
        unit(vec![vec![1.0, 0.2, 0.0], vec![0.3, 1.0, 0.4], vec![0.8, 0.4, -0.2], vec![0.5, 0.6, 0.1]]);
    let labels = [0, 0, 0, 1];
    let f = |x: &Rows| {
        let (mut sum, mut count) = (0.0, 0.0);
        for a in 0..3 {
            for p in (0..3).filter(|&p| p != a) {
                for cost in [dist(&x[a], &x[p]) - 0.7 + 0.2, 0.7 - dist(&x[a], &x[3]) + 0.2] {
                    sum += plus(cost);
                    count += f64::from(u8::from(cost > 0.0));
                }
            }
        }
        sum / count
    };
    let found = run(&json!({"name": "margin", "margin": 0.2, "beta": 0.7}), &rows, &labels);
    assert!(close(found.value, f(&rows), 1e-12), "{} {}", found.value, f(&rows));
    for (at, gradient) in found.gradient.iter().enumerate() {
        let wanted = slope(&f, &rows, at / 3, at % 3).unwrap();
        assert!((gradient - wanted).abs() < 1e-8, "{at}: {gradient} {wanted}");
    }
}

/// The share of draws that take the first of two negatives, at the given distances from both samples of a
/// class.
fn share_of_the_first(distances: [f64; 2]) -> f64 {
    let rows = vec![vec![0.0; 3], vec![0.0; 3], vec![distances[0], 0.0, 0.0], vec![0.0, distances[1], 0.0]];
    // Only the negatives' hinges are above 0; the value is their mean.
    let cost = distances.map(|d| 3.0 - d);
    let values = (0..800).map(|step| {
        let json = json!({"name": "margin", "margin": 0.2, "beta": 2.8, "miner": {"name": "distance_weighted", "seed": 5}});
        run_at(&json, &rows, Labels::Classes(&[0, 0, 1, 2]), DType::F64, step).value
    });
    let mean = mean(&values.collect::<Vec<_>>());
    (mean - cost[1]) / (cost[0] - cost[1])
}

#[test]
fn margin_draws_negatives_by_the_inverse_density_of_their_distance() {
    // In three dimensions q(d) ~ d: 0.6 is drawn twice as often as 1.2. 1,600 draws: standard deviation 1.2
    // %.
    let share = share_of_the_first([0.6, 1.2]);
    assert!((share - 2.0 / 3.0).abs() < 0.05, "{share}");
    // Below 0.5 the weight stays that of 0.5.
    let share = share_of_the_first([0.1, 1.0]);
    assert!((share - 2.0 / 3.0).abs() < 0.05, "{share}");
    // Beyond 1.4 nothing is drawn, unless all are beyond.
    assert!(close(share_of_the_first([0.6, 1.5]), 1.0, 1e-9));
    let share = share_of_the_first([1.6, 1.9]);
    assert!((share - 0.5).abs() < 0.05, "{share}");
}

#[test]
fn margin_draws_anew_at_every_step_and_the_same_from_one_seed() {
    let rows = unit(spread(12, 5));
    let labels = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
    let at = |seed: u64, step: usize| {
        let json = json!({"name": "margin", "miner": {"name": "distance_weighted", "seed": seed}});
        let found = run_at(&json, &rows, Labels::Classes(&labels), DType::F32, step);
        (found.value, found.gradient)
    };
    assert_eq!(at(1, 4), at(1, 4));
    assert_ne!(at(1, 4).1, at(1, 5).1);
    assert_ne!(at(1, 4).1, at(2, 4).1);
}

#[test]
fn parameters_out_of_range_are_refused_with_their_name() {
    for (json, message) in [
        (json!({"name": "nra", "alpha": 0.5}), "`loss.alpha` must be 1 or more, not 0.5"),
        (json!({"name": "srt", "balance": 1.5}), "`loss.balance` must be from 0 to 1, not 1.5"),
        (json!({"name": "ice", "scale": 0.0}), "`loss.scale` must be above 0, not 0"),
        (
            json!({"name": "margin", "miner": {"name": "distance_weighted", "far_cutoff": 2.0}}),
            "`loss.miner.far_cutoff` must be above near_cutoff and below 2, not 2",
        ),
        (json!({"name": "histogram", "bins": 1}), "`loss.bins` must be from 2 to 1000000, not 1"),
        (
            json!({"name": "angular", "angle": 90.0}),
            "`loss.angle` must be above 0 and at most 89 degrees, not 90",
        ),
    ] {
        let config: LossConfig = serde_json::from_value(json).unwrap();
        assert_eq!(config.validate().unwrap_err().to_string(), message);
    }
    assert!(serde_json::from_value::<LossConfig>(json!({"name": "ice", "scala": 1.0})).is_err());
}
