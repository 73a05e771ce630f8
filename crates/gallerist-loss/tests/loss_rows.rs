//! The list losses in f32 against the same in f64, which the equations and the golden values check elsewhere: the same
//! values, counts and gradients.

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{CrossBatchRows, Labels, LossConfig, LossOutput, LossShape, Progress};
use serde_json::{Value, json};

/// Every list loss, with parameters that reach each of its branches.
fn configs() -> Vec<LossConfig> {
    [
        json!({"name": "rll"}),
        json!({"name": "rll", "form": "cvpr", "alpha": 1.2, "t_pos": 30.0, "t_neg": -4.0}),
        json!({"name": "rll", "query_weighting": "mass", "t_pos": -5.0, "t_neg": 30.0, "lambda": 0.3}),
        json!({"name": "nra"}),
        json!({"name": "nra", "alpha": 1.5}),
        json!({"name": "srt"}),
        json!({"name": "srt", "temperature": 0.1, "margin": 1.0, "balance": 0.3}),
        json!({"name": "srt", "soft": true, "hard_weight": 0.5}),
        json!({"name": "srt", "temperature": 0.2, "hard_weight": 0.5, "hardest": "as_printed"}),
        json!({"name": "ice", "scale": 16.0, "gradient": "paper"}),
        json!({"name": "ice", "scale": 64.0, "gradient": "paper"}),
        json!({"name": "ice", "scale": 16.0, "gradient": "autodiff"}),
        json!({"name": "contrastive"}),
        json!({"name": "triplet_all"}),
        json!({"name": "triplet_semihard"}),
        json!({"name": "triplet_batch_hard"}),
        json!({"name": "triplet_batch_hard", "soft": true}),
        json!({"name": "triplet_hard_negative"}),
        json!({"name": "triplet_adaptive"}),
        json!({"name": "multi_similarity"}),
        json!({"name": "multi_similarity", "miner": {"name": "all"}}),
        json!({"name": "circle"}),
        json!({"name": "circle", "gamma": 256.0}),
        json!({"name": "sup_con", "temperature": 0.5}),
        json!({"name": "sup_con", "temperature": 0.5, "form": "nt_xent"}),
        json!({"name": "fast_ap", "bins": 5}),
        json!({"name": "smooth_ap", "temperature": 0.2}),
        json!({"name": "smooth_ap", "temperature": 0.2, "include_query": true}),
        json!({"name": "contrastive", "miner": {"name": "semi_hard", "margin": 0.3}}),
        json!({"name": "contrastive", "miner": {"name": "distance_weighted"}}),
        json!({"name": "triplet_all", "miner": {"name": "hard"}}),
        json!({"name": "multi_similarity", "miner": {"name": "multi_similarity"}}),
        json!({"name": "circle", "miner": {"name": "multi_similarity"}}),
        json!({"name": "sup_con", "temperature": 0.5, "miner": {"name": "hard"}}),
        json!({"name": "recall_at_k", "temperature": 0.2, "rank_temperature": 10.0}),
        json!({"name": "recall_at_k", "temperature": 0.3, "rank_temperature": 5.0, "k": [1, 3], "include_query": true}),
        json!({"name": "roadmap", "temperature": 0.2, "delta": 0.3}),
        json!({"name": "roadmap", "temperature": 0.2, "calibration": "violating"}),
        json!({"name": "potential_field", "proxies": 0, "delta": 0.9, "closest": 0.1}),
    ]
    .map(|config: Value| serde_json::from_value(config).expect("a loss of this crate"))
    .into()
}

/// Uniform in -1..1, from a linear congruence.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

fn rows(n: usize, d: usize, seed: u64, unit: bool) -> Vec<f32> {
    let mut uniform = Uniform(seed);
    let mut rows: Vec<f32> = (0..n * d).map(|_| uniform.next()).collect();
    for row in rows.chunks_mut(d).filter(|_| unit) {
        let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
        row.iter_mut().for_each(|v| *v /= norm);
    }
    rows
}

struct Result {
    value: f64,
    gradient: Vec<f64>,
    output: LossOutput,
}

/// The last `m` rows are the memory.
fn run_typed(config: &LossConfig, rows: &[f32], labels: Labels<'_>, m: usize, dtype: DType) -> Result {
    let (n, d) = (labels.len() - m, rows.len() / labels.len());
    let device = Device::flex().autodiff();
    let loss = config.init(LossShape { classes: n, dimensions: d }, 0, &device);
    let (labels, of_memory) = match labels {
        Labels::Classes(classes) => (Labels::Classes(&classes[..n]), Labels::Classes(&classes[n..])),
        Labels::Sets(sets) => (Labels::Sets(&sets[..n]), Labels::Sets(&sets[n..])),
    };
    let (rows, behind) = rows.split_at(n * d);
    let x = Tensor::<2>::from_data(TensorData::new(rows.to_vec(), [n, d]), (&device, dtype)).require_grad();
    let behind = Tensor::from_data(TensorData::new(behind.to_vec(), [m, d]), (&Device::flex(), dtype));
    let memory = CrossBatchRows { embeddings: behind, labels: of_memory };
    let output = loss.forward_against(x.clone(), labels, Some(memory), Progress { step: 1, steps: 2 });
    let host = |data: TensorData| data.convert::<f64>().try_into_vec::<f64>().unwrap();
    let gradient = x.grad(&output.value.backward()).map_or(vec![0.0; n * d], |g| host(g.into_data()));
    Result { value: host(output.value.clone().into_data())[0], gradient, output }
}

fn run(config: &LossConfig, rows: &[f32], labels: Labels<'_>) -> Result {
    run_typed(config, rows, labels, 0, DType::F32)
}

/// How the results of two precisions are compared.
#[derive(Clone, Copy, PartialEq)]
enum Ties {
    /// No two pairs are equally far: gradients and counts agree.
    None,
    /// Among ties each precision may give the gradient to another pair.
    Some,
}

fn compare(config: &LossConfig, rows: &[f32], labels: Labels<'_>, ties: Ties, what: &str) {
    compare_with_memory(config, rows, labels, 0, ties, what);
}

/// The last `m` rows are the memory.
fn compare_with_memory(
    config: &LossConfig,
    rows: &[f32],
    labels: Labels<'_>,
    m: usize,
    ties: Ties,
    what: &str,
) {
    let run = |dtype| run_typed(config, rows, labels, m, dtype);
    let (found, wide) = (run(DType::F32), run(DType::F64));
    let what = format!("{config:?}, {what}");
    let close = |a: f64, b: f64, scale: f64| (a - b).abs() <= 1e-4 * scale;
    let (a, b) = (found.value, wide.value);
    assert!(close(a, b, b.abs().max(1e-5)), "{what}: value {a}, f64 {b}");
    let (a, b) = (&found.output.queries, &wide.output.queries);
    assert_eq!((&a.positives, &a.negatives), (&b.positives, &b.negatives), "{what}");
    assert_eq!(a.loss.len(), b.loss.len(), "{what}");
    let largest = b.loss.iter().fold(1e-5, |l: f64, v| l.max(f64::from(v.abs())));
    for (i, (a, b)) in a.loss.iter().zip(&b.loss).enumerate() {
        assert!(close(f64::from(*a), f64::from(*b), largest), "{what}: query {i} {a}, f64 {b}");
    }
    assert!(found.gradient.iter().all(|g| g.is_finite()), "{what}");
    if ties == Ties::None {
        assert_eq!(a.mined_positives, b.mined_positives, "{what}");
        assert_eq!(a.mined_negatives, b.mined_negatives, "{what}");
        assert_eq!((&a.terms, &a.dead_terms), (&b.terms, &b.dead_terms), "{what}");
        let largest = wide.gradient.iter().fold(1e-9, |l: f64, g| l.max(g.abs()));
        for (i, (a, b)) in found.gradient.iter().zip(&wide.gradient).enumerate() {
            assert!(close(*a, *b, 3.0 * largest), "{what}: gradient[{i}] {a}, f64 {b} of {largest}");
        }
    }
}

#[test]
fn f32_agrees_with_f64_on_random_batches_of_every_size() {
    // Around the lanes, the tasks' rows and the blocks of the products.
    for (n, d) in
        [(1, 3), (2, 5), (7, 4), (9, 16), (15, 17), (16, 1), (17, 33), (33, 8), (64, 6), (65, 40), (129, 12)]
    {
        for (classes, unit) in [(2, true), (n as u32 / 4 + 1, true), (5, false)] {
            let labels: Vec<u32> = (0..n as u32).map(|i| i * 31 % classes).collect();
            let rows = rows(n, d, n as u64, unit && d > 1);
            // With one dimension many pairs are equally far.
            let ties = if d == 1 { Ties::Some } else { Ties::None };
            for config in configs() {
                compare(
                    &config,
                    &rows,
                    Labels::Classes(&labels),
                    ties,
                    &format!("{n} x {d}, {classes} classes"),
                );
            }
        }
    }
}

#[test]
fn f32_agrees_with_f64_on_sets_of_labels() {
    let n = 40;
    let sets: Vec<Vec<u32>> = (0..n as u32).map(|i| vec![i % 5, 5 + i % 7]).collect();
    for config in configs() {
        compare(&config, &rows(n, 8, 3, true), Labels::Sets(&sets), Ties::None, "sets");
    }
}

#[test]
fn f32_agrees_with_f64_with_a_memory_behind_the_batch() {
    // Around the lanes, with fewer and more rows than the batch.
    for (n, m, d) in [(1, 1, 3), (1, 40, 4), (7, 9, 5), (16, 16, 17), (33, 130, 8), (65, 15, 40)] {
        for (classes, unit) in [(2, true), ((n + m) as u32 / 4 + 1, true), (5, false)] {
            let labels: Vec<u32> = (0..(n + m) as u32).map(|i| i * 31 % classes).collect();
            let sets: Vec<Vec<u32>> = labels.iter().map(|&label| vec![label, label % 2 + classes]).collect();
            let rows = rows(n + m, d, n as u64, unit);
            for config in configs() {
                let what = format!("{n} and {m} x {d}, {classes} classes");
                compare_with_memory(&config, &rows, Labels::Classes(&labels), m, Ties::None, &what);
                compare_with_memory(&config, &rows, Labels::Sets(&sets), m, Ties::None, &what);
            }
        }
    }
}

#[test]
fn f32_agrees_with_f64_in_the_corners_of_a_memory() {
    let (n, m, d) = (9, 9, 6);
    let good = rows(n + m, d, 5, true);
    // Each sample of the batch has its copy in the memory, or all are one, or the memory is zero.
    let copies = good[..n * d].repeat(2);
    let collapsed = good[..d].repeat(n + m);
    let mut zeros = good.clone();
    zeros[n * d..].fill(0.0);
    let pairs: Vec<u32> = (0..18).map(|i| i % 9).collect();
    let apart: Vec<u32> = (0..18).collect();
    for config in configs() {
        for (rows, what) in
            [(&good, "good"), (&copies, "copies"), (&collapsed, "collapsed"), (&zeros, "zeros")]
        {
            for labels in [&pairs, &apart, &vec![3; 18]] {
                let ties = if what == "good" { Ties::None } else { Ties::Some };
                compare_with_memory(&config, rows, Labels::Classes(labels), m, ties, what);
            }
        }
    }
}

#[test]
fn f32_agrees_with_f64_in_the_corners() {
    let n = 18;
    let good = rows(n, 6, 5, true);
    let pairs: Vec<u32> = (0..n as u32).map(|i| i / 2).collect();
    let (one, singletons) = (vec![4; n], (0..n as u32).collect::<Vec<_>>());
    let mut coincident = good.clone();
    coincident.copy_within(0..12, 24);
    let mut zeros = good.clone();
    zeros[..18].fill(0.0);
    let collapsed = good[..6].repeat(n);
    let scaled = |factor: f32| good.iter().map(|v| v * factor).collect::<Vec<_>>();
    let mut near = good.clone();
    for k in 0..6 {
        near[6 + k] = near[k] * (1.0 + 1e-2 * k as f32);
    }
    for config in configs() {
        let check = |rows: &[f32], labels: &[u32], ties: Ties, what: &str| {
            compare(&config, rows, Labels::Classes(labels), ties, what);
        };
        check(&good, &one, Ties::None, "one class");
        check(&good, &singletons, Ties::None, "singletons");
        check(&near, &pairs, Ties::None, "a near pair");
        check(&coincident, &pairs, Ties::Some, "coincident rows");
        check(&coincident, &singletons, Ties::Some, "coincident negatives");
        check(&zeros, &pairs, Ties::Some, "rows of zeros");
        check(&collapsed, &pairs, Ties::Some, "a collapsed batch");
        check(&scaled(1e-6), &pairs, Ties::Some, "norm 1e-6");
        check(&scaled(1e3), &pairs, Ties::Some, "norm 1e3");
    }
}

#[test]
fn the_gradient_is_scaled_and_added_by_what_follows() {
    let labels: Vec<u32> = (0..12).map(|i| i / 3).collect();
    let values = rows(12, 5, 9, true);
    let config: LossConfig = serde_json::from_value(json!({"name": "rll"})).unwrap();
    let alone = run(&config, &values, Labels::Classes(&labels));
    let device = Device::flex().autodiff();
    let x = Tensor::<2>::from_data(TensorData::new(values, [12, 5]), &device).require_grad();
    let loss = config.init(LossShape { classes: 4, dimensions: 5 }, 0, &device);
    let output = loss.forward(x.clone(), Labels::Classes(&labels), Progress::default());
    let total = output.value.mul_scalar(-3.0) + x.clone().sum();
    let gradient: Vec<f32> = x.grad(&total.backward()).unwrap().into_data().try_into_vec().unwrap();
    for (found, alone) in gradient.iter().zip(&alone.gradient) {
        assert!((f64::from(*found) - (1.0 - 3.0 * alone)).abs() < 1e-6);
    }
}

#[test]
fn views_and_tensors_without_gradient_give_the_same_value() {
    let labels: Vec<u32> = (0..12).map(|i| i / 3).collect();
    let values = rows(12, 5, 9, true);
    for config in configs() {
        let wanted = run(&config, &values, Labels::Classes(&labels)).value;
        let device = Device::flex();
        let loss = config.init(LossShape { classes: 4, dimensions: 5 }, 0, &device);
        let x = Tensor::<2>::from_data(TensorData::new(values.clone(), [12, 5]), &device);
        let transposed_twice = x.clone().transpose() + 0.0;
        for x in [x, transposed_twice.transpose()] {
            let output = loss.forward(x, Labels::Classes(&labels), Progress { step: 1, steps: 2 });
            assert!(!output.value.is_tracked());
            assert_eq!(f64::from(output.value.into_scalar::<f32>()), wanted);
        }
    }
}

#[test]
fn gradients_of_f32_are_those_of_f64() {
    let (n, d) = (40, 24);
    let labels: Vec<u32> = (0..n as u32).map(|i| i / 4).collect();
    let rows = rows(n, d, 11, true);
    for (config, m) in configs().into_iter().flat_map(|config| [(config.clone(), 0), (config, 30)]) {
        let run = |dtype| run_typed(&config, &rows, Labels::Classes(&labels), m, dtype);
        let (wanted, found) = (run(DType::F64), run(DType::F32));
        assert!((found.value - wanted.value).abs() <= 1e-5 * wanted.value.abs(), "{config:?}");
        let largest = wanted.gradient.iter().fold(0.0, |l: f64, g| l.max(g.abs()));
        for (found, wanted) in found.gradient.iter().zip(&wanted.gradient) {
            assert!((found - wanted).abs() <= 3e-5 * largest, "{config:?}: {found} {wanted} of {largest}");
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    // Several blocks of rows, so that several threads have work.
    let (n, d) = (700, 24);
    let rows = rows(n, d, 5, true);
    let classes: Vec<u32> = (0..n as u32).map(|i| i % 130).collect();
    let with = |threads: usize, config: &LossConfig, m: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run_typed(config, &rows, Labels::Classes(&classes), m, DType::F32))
    };
    for (config, m) in configs().into_iter().flat_map(|config| [(config.clone(), 0), (config, 400)]) {
        let one = with(1, &config, m);
        for threads in [2, 5] {
            let other = with(threads, &config, m);
            assert_eq!(one.value.to_bits(), other.value.to_bits(), "{config:?}: {threads} threads");
            assert_eq!(one.gradient, other.gradient, "{config:?}: {threads} threads");
        }
    }
}

#[test]
fn rows_whose_norms_overflow_f32_are_computed_in_f64() {
    // Squared norms of about 5e39; distances and the losses' values fit.
    let rows: Vec<f32> = rows(24, 16, 5, false).iter().map(|value| value * 3e19).collect();
    let labels: Vec<u32> = (0..24).map(|i| i / 4).collect();
    for config in [
        json!({"name": "triplet_batch_hard"}),
        json!({"name": "triplet_hard_negative"}),
        json!({"name": "nra"}),
        json!({"name": "contrastive"}),
    ] {
        let name = config["name"].clone();
        let config: LossConfig = serde_json::from_value(config).unwrap();
        let [single, double] = [DType::F32, DType::F64]
            .map(|dtype| run_typed(&config, &rows, Labels::Classes(&labels), 0, dtype));
        if name == "contrastive" {
            // The mean squared distance itself is above the largest f32.
            assert!(double.value > f64::from(f32::MAX), "{name}: {}", double.value);
            assert!(!single.value.is_finite(), "{name}");
        } else {
            assert!((single.value - double.value).abs() <= 1e-6 * double.value.abs(), "{name}");
        }
        let largest = double.gradient.iter().fold(0f64, |a, g| a.max(g.abs()));
        assert!(largest.is_finite() && largest > 0.0, "{name}");
        for (single, double) in single.gradient.iter().zip(&double.gradient) {
            assert!((single - double).abs() <= 1e-6 * largest, "{name}: {single} {double}");
        }
    }
}
