//! Losses whose lists go on with a memory of earlier batches, against the oracle in f64: its first rows are the
//! batch, the others the memory.

use super::oracle::{self, Rows, close, closed_gradient, dist, mean, plus, slope, unit, value};
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{CrossBatchRows, Labels, LossConfig, LossShape, Progress, Queries};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

/// All losses whose value has an oracle.
fn specs() -> Vec<Value> {
    let mut specs = oracle::specs();
    specs.extend([
        json!({"name": "sup_con"}),
        json!({"name": "sup_con", "form": "nt_xent", "temperature": 0.5}),
        json!({"name": "smooth_ap", "temperature": 0.2}),
        json!({"name": "smooth_ap", "temperature": 0.2, "include_query": true}),
    ]);
    specs
}

/// The ranked list loss, whose gradient is not that of its value, and the one that draws.
fn further_specs() -> Vec<Value> {
    vec![
        json!({"name": "rll"}),
        json!({"name": "rll", "form": "cvpr", "alpha": 1.2, "t_pos": 5.0, "t_neg": 20.0}),
        json!({"name": "rll", "query_weighting": "mass"}),
        json!({"name": "margin"}),
        json!({"name": "margin", "boundary": "per_class"}),
    ]
}

struct Run {
    value: f64,
    gradient: Vec<f64>,
    queries: Queries,
}

fn tensor(rows: &[Vec<f64>], d: usize, device: &Device, dtype: DType) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), d]), (device, dtype))
}

/// The first part of the labels, and the rest.
fn split(labels: Labels<'_>, n: usize) -> (Labels<'_>, Labels<'_>) {
    match labels {
        Labels::Classes(classes) => (Labels::Classes(&classes[..n]), Labels::Classes(&classes[n..])),
        Labels::Sets(sets) => (Labels::Sets(&sets[..n]), Labels::Sets(&sets[n..])),
    }
}

/// The first `n` rows against all.
fn run_at(json: &Value, n: usize, rows: &Rows, labels: Labels<'_>, dtype: DType) -> Run {
    let d = rows[0].len();
    let device = Device::flex().autodiff();
    let config: LossConfig = serde_json::from_value(json.clone()).unwrap_or_else(|e| panic!("{json}: {e}"));
    let loss = config.init(LossShape { classes: 8, dimensions: d }, 1, &device);
    let x = tensor(&rows[..n], d, &device, dtype).require_grad();
    let (labels, of_memory) = split(labels, n);
    let memory =
        CrossBatchRows { embeddings: tensor(&rows[n..], d, &Device::flex(), dtype), labels: of_memory };
    let output = loss.forward_against(x.clone(), labels, Some(memory), Progress { step: 3, steps: 100 });
    let host = |data: TensorData| data.convert::<f64>().try_into_vec::<f64>().unwrap();
    let gradient = x.grad(&output.value.backward()).map_or(vec![0.0; n * d], |g| host(g.into_data()));
    Run { value: host(output.value.into_data())[0], gradient, queries: output.queries }
}

fn run(json: &Value, n: usize, rows: &Rows, labels: &[u32]) -> Run {
    run_at(json, n, rows, Labels::Classes(labels), DType::F64)
}

/// A number of queries, rows and labels of batch and memory.
fn batches() -> impl Strategy<Value = (usize, Rows, Vec<u32>)> {
    (1usize..8, 1usize..8, 2usize..5).prop_flat_map(|(n, m, d)| {
        let rows = prop::collection::vec(prop::collection::vec(-1.0..1.0f64, d), n + m);
        let labels = prop::collection::vec(0u32..4, n + m);
        (Just(n), rows, labels, any::<bool>())
            .prop_map(|(n, rows, labels, normalised)| (n, if normalised { unit(rows) } else { rows }, labels))
    })
}

/// Compares value and gradient with the equations'.
fn check(json: &Value, n: usize, rows: &Rows, labels: &[u32]) {
    let related = |i: usize, j: usize| labels[i] == labels[j];
    let found = run(json, n, rows, labels);
    let f = |x: &Rows| value(json, n, x, &related);
    assert!(close(found.value, f(rows), 1e-9), "{json}: {} {}", found.value, f(rows));
    let closed = closed_gradient(json, n, rows, labels);
    let largest = found.gradient.iter().fold(1.0f64, |a, g| a.max(g.abs()));
    let dim = rows[0].len();
    for (at, &gradient) in found.gradient.iter().enumerate() {
        let wanted = match &closed {
            Some(closed) => Some(closed[at]),
            None => slope(&f, rows, at / dim, at % dim),
        };
        let Some(wanted) = wanted else { continue };
        assert!((gradient - wanted).abs() <= 1e-5 * largest, "{json}: gradient[{at}] {gradient}, {wanted}");
    }
}

/// Value and gradient of the ranked list loss with uniform queries, by loops.
fn rll(json: &Value, n: usize, x: &Rows, labels: &[u32]) -> (f64, Vec<f64>) {
    let number = |key: &str, default: f64| json.get(key).map_or(default, |v| v.as_f64().unwrap());
    let (margin, alpha) = (0.4, number("alpha", 1.2));
    let part = if json.get("form").is_some() { 1.0 } else { 0.5 };
    let dim = x[0].len();
    let (mut value, mut gradient) = (0.0, vec![0.0; n * dim]);
    for i in 0..n {
        for (same, temperature) in [(true, number("t_pos", 0.0)), (false, number("t_neg", 10.0))] {
            let mined: Vec<(usize, f64, f64)> = (0..x.len())
                .filter(|&j| j != i && (labels[j] == labels[i]) == same)
                .map(|j| (j, dist(&x[i], &x[j])))
                .map(|(j, d)| (j, d, if same { d - (alpha - margin) } else { alpha - d }))
                .filter(|&(_, _, hinge)| hinge > 0.0)
                .collect();
            let all: f64 = mined.iter().map(|m| (temperature * m.2).exp()).sum();
            for (j, d, hinge) in mined {
                let weight = part * (temperature * hinge).exp() / all / n as f64;
                value += weight * hinge;
                let sign = if same { 1.0 } else { -1.0 };
                for k in (0..dim).filter(|_| d > 0.0) {
                    gradient[i * dim + k] += sign * weight * (x[i][k] - x[j][k]) / d;
                }
            }
        }
    }
    (value, gradient)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, rng_seed: RngSeed::Fixed(2020), failure_persistence: None, ..Default::default() })]

    #[test]
    fn values_and_gradients_are_those_of_the_equations((n, rows, labels) in batches()) {
        for json in specs() {
            check(&json, n, &rows, &labels);
        }
    }

    #[test]
    fn the_ranked_list_loss_gives_the_queries_their_gradient((n, rows, labels) in batches()) {
        for json in &further_specs()[..2] {
            let found = run(json, n, &rows, &labels);
            let (value, gradient) = rll(json, n, &rows, &labels);
            prop_assert!(close(found.value, value, 1e-9), "{json}: {} {value}", found.value);
            for (found, wanted) in found.gradient.iter().zip(&gradient) {
                prop_assert!((found - wanted).abs() < 1e-9, "{json}: {found} {wanted}");
            }
        }
    }

    #[test]
    fn the_order_of_the_memory_does_not_matter((n, rows, labels) in batches()) {
        let turned = |length: usize| (0..n).chain((n..length).rev());
        let other_rows: Rows = turned(rows.len()).map(|i| rows[i].clone()).collect();
        let other_labels: Vec<u32> = turned(rows.len()).map(|i| labels[i]).collect();
        // What is drawn depends on the order.
        for json in specs().into_iter().chain(further_specs()).filter(|json| json["name"] != "margin") {
            let (a, b) = (run(&json, n, &rows, &labels), run(&json, n, &other_rows, &other_labels));
            prop_assert!(close(a.value, b.value, 1e-12), "{json}: {} {}", a.value, b.value);
            let largest = a.gradient.iter().fold(1.0f64, |a, g| a.max(g.abs()));
            for (a, b) in a.gradient.iter().zip(&b.gradient) {
                prop_assert!((a - b).abs() <= 1e-9 * largest, "{json}: {a} {b}");
            }
            let counts = |q: &Queries| {
                [&q.positives, &q.negatives, &q.mined_positives, &q.mined_negatives, &q.dead_terms].map(Vec::clone)
            };
            prop_assert_eq!(counts(&a.queries), counts(&b.queries), "{}", json);
        }
    }

    #[test]
    fn samples_that_share_a_label_are_positives_across_the_memory(
        (n, rows, labels) in batches(),
        more in prop::collection::vec(0u32..6, 16),
    ) {
        let sets: Vec<Vec<u32>> = labels.iter().zip(&more).map(|(&a, &b)| vec![a, b]).collect();
        let related = |i: usize, j: usize| sets[i].iter().any(|label| sets[j].contains(label));
        for json in specs() {
            let found = run_at(&json, n, &rows, Labels::Sets(&sets), DType::F64);
            let wanted = value(&json, n, &rows, &related);
            prop_assert!(close(found.value, wanted, 1e-9), "{json}: {} {wanted}", found.value);
            let positives = |i: usize| (0..rows.len()).filter(|&j| j != i && related(i, j)).count() as u32;
            prop_assert_eq!(&found.queries.positives, &(0..n).map(positives).collect::<Vec<_>>());
        }
    }

    #[test]
    fn finite_embeddings_of_any_size_give_finite_losses_and_gradients(
        (n, rows, labels) in batches(),
        exponent in prop_oneof![Just(-6), Just(0), Just(3)],
        copies in prop::collection::vec(0usize..40, 16),
    ) {
        // Some rows are copies of others, some are zero, of batch and memory alike.
        let mut rows: Rows = rows.iter().map(|row| row.iter().map(|v| v * 10f64.powi(exponent)).collect()).collect();
        for (i, &from) in copies.iter().enumerate().take(rows.len()) {
            if from < rows.len() {
                rows[i] = rows[from].clone();
            } else if from < 20 {
                rows[i].fill(0.0);
            }
        }
        for json in specs().into_iter().chain(further_specs()) {
            for dtype in [DType::F32, DType::F64] {
                let found = run_at(&json, n, &rows, Labels::Classes(&labels), dtype);
                prop_assert!(found.value.is_finite(), "{json}: {}", found.value);
                prop_assert!(found.gradient.iter().all(|g| g.is_finite()), "{json}: {:?}", found.gradient);
                prop_assert!(found.queries.loss.iter().all(|v| v.is_finite()), "{}", json);
            }
        }
    }
}

/// Pseudo-random rows without a generator: fractional parts of multiples of irrational numbers.
fn spread(n: usize, d: usize) -> Rows {
    let entry = |i: usize| ((i + 1) as f64 * 0.618_033_988_749_895 * (i % 7 + 1) as f64).fract() - 0.5;
    (0..n).map(|i| (0..d).map(|k| entry(i * d + k)).collect()).collect()
}

#[test]
fn an_empty_memory_changes_no_bit() {
    let (n, d) = (9, 4);
    let rows = unit(spread(n, d));
    let labels = Labels::Classes(&[0, 0, 1, 1, 2, 2, 2, 3, 0]);
    for json in specs().into_iter().chain(further_specs()) {
        for dtype in [DType::F32, DType::F64] {
            let config: LossConfig = serde_json::from_value(json.clone()).unwrap();
            let device = Device::flex().autodiff();
            let loss = config.init(LossShape { classes: 4, dimensions: d }, 1, &device);
            let bits = |memory: Option<Option<CrossBatchRows<'_>>>| {
                let x = tensor(&rows, d, &device, dtype).require_grad();
                let progress = Progress { step: 3, steps: 100 };
                let output = match memory {
                    None => loss.forward(x.clone(), labels, progress),
                    Some(memory) => loss.forward_against(x.clone(), labels, memory, progress),
                };
                let gradient = x.grad(&output.value.backward()).unwrap().into_data();
                (output.value.into_data(), gradient, output.queries)
            };
            let plain = bits(None);
            let empty = Tensor::<2>::zeros([0, d], &Device::flex());
            assert_eq!(bits(Some(None)), plain, "{json}");
            assert_eq!(
                bits(Some(Some(CrossBatchRows { embeddings: empty, labels: Labels::Classes(&[]) }))),
                plain,
                "{json}"
            );
        }
    }
}

#[test]
fn a_memory_of_positives_only_and_one_of_negatives_only_follow_the_equations() {
    let rows = unit(spread(10, 3));
    for labels in [
        // The batch: one class, singletons, pairs. The memory: all of one class, or of none of the batch's.
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 7, 7, 7, 7, 7, 7],
        [0, 1, 2, 3, 0, 0, 0, 0, 0, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 4, 5],
        [0, 0, 1, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 7, 7, 7, 7, 7, 7],
    ] {
        for n in [4, 1] {
            for json in specs() {
                check(&json, n, &rows, &labels);
            }
        }
    }
}

#[test]
fn a_memory_gives_positives_and_negatives_to_a_batch_that_has_none() {
    let rows = unit(spread(5, 3));
    let soft = json!({"name": "triplet_batch_hard", "soft": true});
    for json in [soft, json!({"name": "nra"}), json!({"name": "ice"})] {
        let alone = run(&json, 1, &rows[..1].to_vec(), &[0]);
        assert_eq!(alone.value, 0.0, "{json}");
        let found = run(&json, 1, &rows, &[0, 0, 1, 0, 2]);
        assert!(found.value > 0.0 && found.gradient.iter().any(|&g| g != 0.0), "{json}");
        assert_eq!((&found.queries.positives[..], &found.queries.negatives[..]), (&[2][..], &[2][..]));
    }
}

#[test]
fn the_memory_is_constant_even_if_its_tensor_is_tracked() {
    let device = Device::flex().autodiff();
    for json in specs().into_iter().chain(further_specs()) {
        let config: LossConfig = serde_json::from_value(json.clone()).unwrap();
        let loss = config.init(LossShape { classes: 4, dimensions: 3 }, 1, &device);
        let rows = unit(spread(8, 3));
        let x = tensor(&rows[..4], 3, &device, DType::F64).require_grad();
        // Of another type, too.
        let embeddings = tensor(&rows[4..], 3, &device, DType::F32).require_grad();
        let memory =
            CrossBatchRows { embeddings: embeddings.clone(), labels: Labels::Classes(&[0, 1, 2, 0]) };
        let labels = Labels::Classes(&[0, 0, 1, 1]);
        let output = loss.forward_against(x.clone(), labels, Some(memory), Progress::default());
        let gradients = output.value.backward();
        assert!(x.grad(&gradients).is_some() && embeddings.grad(&gradients).is_none(), "{json}");
    }
}

#[test]
fn margin_is_its_equation_where_the_memory_has_the_only_negative() {
    let rows = unit(spread(5, 3));
    let labels = [0, 0, 0, 0, 1];
    let f = |x: &Rows| {
        let mut costs = Vec::new();
        for a in 0..3 {
            for p in (0..4).filter(|&p| p != a) {
                costs.push(plus(dist(&x[a], &x[p]) - 0.7 + 0.2));
                costs.push(plus(0.7 - dist(&x[a], &x[4]) + 0.2));
            }
        }
        costs.retain(|&cost| cost > 0.0);
        mean(&costs)
    };
    let found = run(&json!({"name": "margin", "margin": 0.2, "beta": 0.7}), 3, &rows, &labels);
    assert!(found.value > 0.0 && close(found.value, f(&rows), 1e-12), "{} {}", found.value, f(&rows));
    for (at, gradient) in found.gradient.iter().enumerate() {
        let wanted = slope(&f, &rows, at / 3, at % 3).unwrap();
        assert!((gradient - wanted).abs() < 1e-8, "{at}: {gradient} {wanted}");
    }
}

#[test]
fn losses_that_compare_no_pairs_say_so_and_name_those_that_do() {
    let with: Vec<&str> = LossConfig::with_memory();
    for name in LossConfig::names() {
        let config: LossConfig = serde_json::from_value(json!({"name": name})).unwrap();
        assert_eq!(config.takes_memory(), with.contains(&name), "{name}");
    }
    for json in specs().into_iter().chain(further_specs()) {
        assert!(with.contains(&json["name"].as_str().unwrap()), "{json}");
    }
    assert_eq!(with.len(), 23);
    let softmax: LossConfig = serde_json::from_value(json!({"name": "softmax"})).unwrap();
    let error = softmax.require_memory().unwrap_err();
    assert!(error.to_string().contains("`softmax`"), "{error}");
    let hint = error.hint().unwrap();
    assert!(with.iter().all(|name| hint.contains(name)), "{hint}");
}

#[test]
#[should_panic(expected = "a memory for a loss that compares no pairs")]
fn a_memory_is_not_ignored_by_a_loss_that_has_no_use_for_it() {
    run(&json!({"name": "softmax"}), 2, &unit(spread(3, 2)), &[0, 1, 0]);
}
