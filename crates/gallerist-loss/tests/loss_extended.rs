//! Losses that extend the batch (virtual samples, proxies) or its space (the Poincaré ball): what the oracles of the
//! pairs do not cover.

#[expect(dead_code, reason = "other tests use the rest")]
mod oracle;

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{
    HyperbolicConfig, Labels, LossConfig, LossOutput, LossShape, PotentialFieldConfig, Progress, RankingLoss,
    RecallAtKConfig,
};
use serde_json::{Value, json};

use oracle::{Rows, close, dist, dot, unit, value};

fn device() -> Device {
    Device::flex().autodiff()
}

fn tensor(rows: &Rows) -> Tensor<2> {
    let data = TensorData::new(rows.concat(), [rows.len(), rows[0].len()]);
    Tensor::<2>::from_data(data, (&device(), DType::F64)).require_grad()
}

fn host(data: TensorData) -> Vec<f64> {
    data.convert::<f64>().try_into_vec().unwrap()
}

/// Value and gradient.
fn differentiate(rows: &Rows, forward: impl Fn(Tensor<2>) -> LossOutput) -> (f64, Vec<f64>, LossOutput) {
    let x = tensor(rows);
    let output = forward(x.clone());
    let gradient = x.grad(&output.value.backward()).expect("the value is connected to the embeddings");
    (host(output.value.clone().into_data())[0], host(gradient.into_data()), output)
}

fn run(json: &Value, rows: &Rows, labels: &[u32], step: usize) -> (f64, Vec<f64>, LossOutput) {
    let config: LossConfig = serde_json::from_value(json.clone()).unwrap();
    config.validate().unwrap();
    let loss = config.init(LossShape { classes: 4, dimensions: rows[0].len() }, 1, &device());
    differentiate(rows, |x| loss.forward(x, Labels::Classes(labels), Progress { step, steps: 10 }))
}

/// Rows in general position.
fn spread(n: usize, d: usize) -> Rows {
    let entry = |i: usize| f64::sin(1.0 + 2.7 * i as f64 + 0.37 * (i * i) as f64);
    (0..n).map(|i| (0..d).map(|k| entry(i * d + k)).collect()).collect()
}

fn central(rows: &Rows, f: impl Fn(&Rows) -> f64) -> Vec<f64> {
    let (step, d) = (1e-5, rows[0].len());
    let moved = |at: usize, by: f64| {
        let mut moved = rows.clone();
        moved[at / d][at % d] += by;
        f(&moved)
    };
    (0..rows.len() * d).map(|at| (moved(at, step) - moved(at, -step)) / (2.0 * step)).collect()
}

fn assert_near(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let largest = wanted.iter().fold(1e-3f64, |a, w| a.max(w.abs()));
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() <= tolerance * largest, "{what}[{i}]: {found}, wanted {wanted}");
    }
}

// -------------------------------------------------------------------------------------------------
// Recall@k with similarity mixup.

/// The batch with a virtual sample between each two of a class.
fn mixed(rows: &Rows, labels: &[u32], share: f64) -> (Rows, Vec<u32>) {
    let (mut all, mut all_labels) = (rows.clone(), labels.to_vec());
    for i in 0..rows.len() {
        for j in (i + 1..rows.len()).filter(|&j| labels[i] == labels[j]) {
            all.push(rows[i].iter().zip(&rows[j]).map(|(a, b)| share * a + (1.0 - share) * b).collect());
            all_labels.push(labels[i]);
        }
    }
    (all, all_labels)
}

#[test]
fn similarity_mixup_is_the_loss_of_the_batch_with_its_virtual_samples() {
    let rows = unit(spread(9, 4));
    let labels = [0, 0, 0, 0, 1, 1, 2, 2, 3];
    for include_query in [false, true] {
        let json = json!({
            "name": "recall_at_k", "temperature": 0.2, "k": [1, 2, 4], "include_query": include_query,
            "simix": true, "mix": 0.3
        });
        let oracle = |rows: &Rows| {
            let (all, labels) = mixed(rows, &labels, 0.3);
            value(&json, all.len(), &all, &|i, j| labels[i] == labels[j])
        };
        let (found, gradient, output) = run(&json, &rows, &labels, 0);
        assert!(close(found, oracle(&rows), 1e-12), "{found} {}", oracle(&rows));
        assert_near(&gradient, &central(&rows, oracle), 1e-7, "gradient");
        // Three samples and six virtual ones; the last sample is alone in its class.
        assert_eq!(output.queries.positives, [9, 9, 9, 9, 2, 2, 2, 2, 0]);
        assert_eq!(output.queries.loss.len(), 9);
    }
}

#[test]
fn the_coefficients_of_mixup_depend_on_the_step_and_the_seed() {
    let rows = unit(spread(6, 3));
    let labels = [0, 0, 0, 1, 1, 1];
    let json = json!({"name": "recall_at_k", "temperature": 0.2, "simix": true});
    let at = |step: usize| run(&json, &rows, &labels, step).0;
    assert_eq!(at(3).to_bits(), at(3).to_bits());
    assert_ne!(at(3), at(4));
    let of_seed = |seed: u64| {
        let loss = RecallAtKConfig { temperature: 0.2, simix: true, ..Default::default() }.init(seed);
        differentiate(&rows, |x| loss.forward(x, Labels::Classes(&labels), Progress::default())).0
    };
    assert_ne!(of_seed(1), of_seed(2));
}

#[test]
fn recall_is_exact_where_the_sigmoids_are_steps() {
    // The list of the first row: positive, negative, positive: recall 1 at 1 and, of at most 2, 1 at 2.
    let rows = vec![vec![1.0, 0.0], vec![0.98, 0.199], vec![0.8, 0.6], vec![0.6, -0.8]];
    let json = json!({"name": "recall_at_k", "temperature": 1e-4, "rank_temperature": 1e-3, "k": [1, 2]});
    let (_, _, output) = run(&json, &rows, &[0, 0, 1, 0], 0);
    // At rank k the sigmoid is one half.
    let of = |at_1: f64, at_2: f64| 1.0 - (at_1 + at_2) / 2.0;
    assert!((f64::from(output.queries.loss[0]) - of(0.5, 0.5)).abs() < 1e-6, "{:?}", output.queries.loss);
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let refused = [
        (json!({"name": "recall_at_k", "k": []}), "`loss.k` is empty"),
        (json!({"name": "recall_at_k", "k": [1, 0]}), "`loss.k` must be "),
        (json!({"name": "recall_at_k", "temperature": 0.0}), "`loss.temperature` must be "),
        (json!({"name": "recall_at_k", "rank_temperature": -1.0}), "`loss.rank_temperature` must be "),
        (json!({"name": "recall_at_k", "mix": 1.5}), "`loss.mix` must be "),
        (json!({"name": "roadmap", "lambda": 1.5}), "`loss.lambda` must be "),
        (json!({"name": "roadmap", "temperature": 0.0}), "`loss.temperature` must be "),
        (json!({"name": "roadmap", "rho": -1.0}), "`loss.rho` must be "),
        (json!({"name": "potential_field", "alpha": 0.0}), "`loss.alpha` must be "),
        (json!({"name": "potential_field", "closest": 0.4}), "`loss.closest` must be "),
        (json!({"name": "hyperbolic", "curvature": 0.0}), "`loss.curvature` must be "),
        (json!({"name": "hyperbolic", "clip": -1.0}), "`loss.clip` must be "),
    ];
    for (json, start) in refused {
        let config: LossConfig = serde_json::from_value(json.clone()).unwrap();
        let error = config.validate().unwrap_err().to_string();
        assert!(error.starts_with(start), "{json}: {error}");
    }
}

// -------------------------------------------------------------------------------------------------
// Potential field.

/// `U` over samples and proxies, each pair twice.
fn energy(config: &PotentialFieldConfig, points: &Rows, labels: &[u32]) -> f64 {
    let mut sum = 0.0;
    for i in 0..points.len() {
        for j in (0..points.len()).filter(|&j| j != i) {
            let d = dist(&points[i], &points[j]);
            let decay = |d: f64| d.powf(-config.alpha);
            sum += match labels[i] == labels[j] {
                true => -decay(d.max(config.delta)),
                false => decay(d.min(config.delta)),
            };
        }
    }
    sum
}

#[test]
fn samples_and_proxies_get_the_gradient_of_the_energy() {
    let rows = unit(spread(6, 3));
    let labels = [0, 0, 1, 2, 2, 2];
    let config = PotentialFieldConfig { alpha: 2.5, delta: 0.7, proxies: 2, ..Default::default() };
    let loss = config.init(LossShape { classes: 3, dimensions: 3 }, 5, &device());
    let proxies: Rows =
        host(loss.proxies.as_ref().unwrap().val().into_data()).chunks(3).map(<[f64]>::to_vec).collect();
    let all_labels = [&labels[..], &[0, 0, 1, 1, 2, 2]].concat();
    let oracle = |rows: &Rows, proxies: &Rows| {
        let points = [rows.clone(), unit(proxies.clone())].concat();
        energy(&config, &points, &all_labels) / rows.len() as f64
    };
    let x = tensor(&rows);
    let output = loss.forward(x.clone(), Labels::Classes(&labels), Progress::default());
    let found = host(output.value.clone().into_data())[0];
    assert!(close(found, oracle(&rows, &proxies), 1e-9), "{found} {}", oracle(&rows, &proxies));
    let gradients = output.value.backward();
    let gradient = host(x.grad(&gradients).unwrap().into_data());
    assert_near(&gradient, &central(&rows, |rows| oracle(rows, &proxies)), 1e-6, "samples");
    let of_proxies = loss.proxies.as_ref().unwrap().val().grad(&gradients).unwrap();
    let wanted = central(&proxies, |proxies| oracle(&rows, proxies));
    // The parameters are f32.
    assert_near(&host(of_proxies.into_data()), &wanted, 1e-5, "proxies");
    assert!(wanted.iter().any(|v| v.abs() > 1e-3));
    assert_eq!(output.queries.positives, [3, 3, 2, 4, 4, 4]);
    assert_eq!(output.queries.negatives, [8, 8, 9, 7, 7, 7]);
}

#[test]
fn near_positives_and_far_negatives_exert_no_force() {
    let rows = vec![vec![1.0, 0.0], vec![0.995, 0.0998], vec![-1.0, 0.0], vec![-0.995, 0.0998]];
    let json = json!({"name": "potential_field", "alpha": 4.0, "delta": 0.2, "proxies": 0});
    let (found, gradient, output) = run(&json, &rows, &[0, 0, 1, 1], 0);
    assert!(gradient.iter().all(|&g| g == 0.0), "{gradient:?}");
    assert!(close(found, -625.0 + 2.0 * 625.0, 1e-12), "{found}");
    assert_eq!((output.queries.mined_positives[0], output.queries.mined_negatives[0]), (0, 0));
    // Other labels: near negatives and far positives.
    let (_, gradient, output) = run(&json, &rows, &[0, 1, 0, 1], 0);
    assert_eq!((output.queries.mined_positives[0], output.queries.mined_negatives[0]), (1, 1));
    // The force of a negative at 0.1 is far stronger than that of a positive at 2.
    assert!(gradient[1] > 0.0 && gradient[3] < 0.0, "{gradient:?}");
}

#[test]
fn a_sum_is_the_mean_times_the_samples() {
    let rows = unit(spread(6, 3));
    let labels = [0, 0, 1, 2, 2, 2];
    let of = |reduction: &str| {
        let json = json!({"name": "potential_field", "reduction": reduction, "proxies": 3});
        let (value, gradient, _) = run(&json, &rows, &labels, 0);
        (value, gradient)
    };
    let ((mean, by_mean), (sum, by_sum)) = (of("mean"), of("sum"));
    assert!(close(sum, 6.0 * mean, 1e-12), "{sum} {mean}");
    assert_near(&by_sum, &by_mean.iter().map(|g| 6.0 * g).collect::<Vec<_>>(), 1e-12, "gradient");
}

#[test]
#[should_panic(expected = "proxies for the classes 0..4")]
fn a_label_without_proxies_is_named() {
    run(&json!({"name": "potential_field"}), &unit(spread(2, 3)), &[0, 4], 0);
}

// -------------------------------------------------------------------------------------------------
// Hyperbolic embeddings.

/// `2/sqrt(c) artanh(sqrt(c) |(-a) + b|)`, the Möbius addition coordinate by coordinate.
fn hyperbolic_distance(c: f64, a: &[f64], b: &[f64]) -> f64 {
    let (ab, aa, bb) = (dot(a, b), dot(a, a), dot(b, b));
    let denominator = 1.0 - 2.0 * c * ab + c * c * aa * bb;
    let sum: Vec<f64> = (a.iter().zip(b))
        .map(|(a, b)| ((1.0 - c * aa) * b - (1.0 - 2.0 * c * ab + c * bb) * a) / denominator)
        .collect();
    2.0 / c.sqrt() * (c.sqrt() * dot(&sum, &sum).sqrt()).atanh()
}

fn exponential(c: f64, clip: f64, row: &[f64]) -> Vec<f64> {
    let length = dot(row, row).sqrt();
    let radius = (c.sqrt() * length.min(clip)).tanh() / c.sqrt();
    row.iter().map(|v| v * radius / length).collect()
}

#[test]
fn columns_are_those_of_a_batch_of_pairs_of_columns() {
    // Three classes of three: for each ordered pair of columns a cross-entropy over these two columns.
    let (c, clip, temperature) = (0.4, 1.3, 0.6);
    let rows = spread(9, 3);
    let labels = [0, 0, 0, 1, 1, 1, 2, 2, 2];
    let json = json!({
        "name": "hyperbolic", "curvature": c, "clip": clip, "temperature": temperature, "negatives": "columns"
    });
    let oracle = |rows: &Rows| {
        let points: Rows = rows.iter().map(|row| exponential(c, clip, row)).collect();
        let logit = |i: usize, j: usize| -hyperbolic_distance(c, &points[i], &points[j]) / temperature;
        let mut sum = 0.0;
        for (s, t) in (0..3).flat_map(|s| (0..3).map(move |t| (s, t))).filter(|(s, t)| s != t) {
            for class in 0..3 {
                let a = 3 * class + s;
                let others: f64 = (0..3)
                    .flat_map(|k| [3 * k + s, 3 * k + t])
                    .filter(|&j| j != a)
                    .map(|j| logit(a, j).exp())
                    .sum();
                sum += others.ln() - logit(a, 3 * class + t);
            }
        }
        sum / 18.0
    };
    let (found, gradient, _) = run(&json, &rows, &labels, 0);
    assert!(close(found, oracle(&rows), 1e-12), "{found} {}", oracle(&rows));
    assert_near(&gradient, &central(&rows, oracle), 1e-7, "gradient");
}

#[test]
fn with_two_samples_of_each_class_columns_are_all_negatives() {
    let rows = spread(8, 3);
    let labels = [0, 1, 0, 2, 2, 1, 3, 3];
    let of = |negatives: &str| run(&json!({"name": "hyperbolic", "negatives": negatives}), &rows, &labels, 0);
    let ((all, by_all, _), (columns, by_columns, _)) = (of("all"), of("columns"));
    assert!(close(all, columns, 1e-12), "{all} {columns}");
    assert_near(&by_columns, &by_all, 1e-12, "gradient");
}

#[test]
fn rows_of_the_clipping_radius_are_ranked_by_their_angles() {
    // What the evaluation relies on: all points on one sphere.
    let (c, clip) = (0.1, 2.3);
    let rows: Rows = unit(spread(20, 4)).iter().map(|row| row.iter().map(|v| v * 3.0).collect()).collect();
    let points: Rows = rows.iter().map(|row| exponential(c, clip, row)).collect();
    let by = |key: &dyn Fn(usize) -> f64| {
        let mut order: Vec<usize> = (1..20).collect();
        order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
        order
    };
    let by_distance = by(&|j| hyperbolic_distance(c, &points[0], &points[j]));
    assert_eq!(by_distance, by(&|j| -dot(&rows[0], &rows[j])));
    let labels = Labels::Classes(&[0; 20]);
    let note = |scale: f64| {
        let rows = rows.iter().map(|row| row.iter().map(|v| v * scale).collect()).collect();
        let loss = HyperbolicConfig::default().init();
        differentiate(&rows, |x| loss.forward(x, labels, Progress::default())).2.queries.note
    };
    assert_eq!(note(1.0), None);
    assert!(note(0.5).unwrap().contains("not clipped"));
}

#[test]
fn points_at_the_edge_of_the_ball_are_finite() {
    let rows = vec![vec![1e6, 0.0], vec![-1e6, 0.0], vec![0.0, 1e6], vec![1e-6, 0.0]];
    let json = json!({"name": "hyperbolic", "clip": 0.0, "curvature": 2.0});
    let (found, gradient, _) = run(&json, &rows, &[0, 1, 1, 0], 0);
    assert!(found.is_finite() && gradient.iter().all(|g| g.is_finite()), "{found} {gradient:?}");
}
