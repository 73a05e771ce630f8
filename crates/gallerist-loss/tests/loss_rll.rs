//! Ranked list loss: an oracle in f64 written from the equations, and the corner cases.

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_loss::{
    Labels, LossOutput, LossSpec, Progress, QueryWeighting, RankingLoss, RllConfig, RllForm, RllGradient,
};
use gallerist_tensor::pairwise::l2_normalize;
use proptest::prelude::*;

fn run(config: &RllConfig, rows: &[Vec<f64>], labels: &[u32], progress: Progress) -> (LossOutput, Vec<f64>) {
    let (n, d) = (rows.len(), rows[0].len());
    let values: Vec<f32> = rows.iter().flatten().map(|&v| v as f32).collect();
    let x =
        Tensor::<2>::from_data(TensorData::new(values, [n, d]), &Device::flex().autodiff()).require_grad();
    let output = config.init().forward(x.clone(), Labels::Classes(labels), progress);
    let gradient =
        x.grad(&output.value.backward()).map(|g| g.into_data().convert::<f64>().try_into_vec().unwrap());
    (output, gradient.unwrap_or(vec![0.0; n * d]))
}

fn value(output: &LossOutput) -> f64 {
    output.value.clone().into_scalar::<f32>() as f64
}

/// Value and gradient by loops over queries, straight from the equations.
fn oracle(config: &RllConfig, t_neg: f64, rows: &[Vec<f64>], labels: &[u32]) -> (f64, Vec<f64>) {
    let (n, d) = (rows.len(), rows[0].len());
    let alpha = config.alpha.unwrap_or(1.0 + config.margin / 2.0);
    let (part_p, part_n) = match config.form {
        RllForm::Journal => (1.0 - config.lambda.unwrap_or(0.5), config.lambda.unwrap_or(0.5)),
        RllForm::Cvpr => (1.0, config.lambda.unwrap_or(1.0)),
    };
    let mut losses = vec![0.0; n];
    let mut masses = vec![0.0; n];
    let mut directions = vec![vec![0.0; d]; n];
    for i in 0..n {
        for (same, temperature, part) in [(true, config.t_pos, part_p), (false, t_neg, part_n)] {
            let mut members = Vec::new();
            for j in 0..n {
                if i == j || (labels[i] == labels[j]) != same {
                    continue;
                }
                let dist = rows[i].iter().zip(&rows[j]).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
                let hinge = if same { dist - (alpha - config.margin) } else { alpha - dist };
                if hinge > 0.0 {
                    members.push((j, dist, hinge, (temperature * hinge).exp()));
                }
            }
            let total: f64 = members.iter().map(|m| m.3).sum();
            masses[i] += total;
            let mean = members.iter().map(|m| m.3 * m.2).sum::<f64>() / total;
            for (j, dist, hinge, weight) in members {
                losses[i] += part * weight * hinge / total;
                let sign = if same { 1.0 } else { -1.0 };
                let by_weights = match config.gradient {
                    RllGradient::Autodiff => temperature * (hinge - mean),
                    _ => 0.0,
                };
                let slope = part * weight / total * sign * (1.0 + by_weights);
                for k in (0..d).filter(|_| dist > 0.0) {
                    let by = slope * (rows[i][k] - rows[j][k]) / dist;
                    directions[i][k] += by;
                    if config.gradient != RllGradient::Query {
                        directions[j][k] -= by;
                    }
                }
            }
        }
    }
    let all: f64 = masses.iter().sum();
    let weight = |i: usize| match config.query_weighting {
        QueryWeighting::Uniform => 1.0 / n as f64,
        QueryWeighting::Mass if all == 0.0 => 0.0,
        QueryWeighting::Mass => masses[i] / all,
    };
    let value = (0..n).map(|i| weight(i) * losses[i]).sum();
    let gradient =
        (0..n).flat_map(|i| directions[i].iter().map(move |g| weight(i) * g).collect::<Vec<_>>()).collect();
    (value, gradient)
}

fn unit(rows: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    rows.into_iter()
        .map(|row| {
            let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-9);
            // Rounded to f32, so that the oracle sees what the loss sees.
            row.iter().map(|v| (v / norm) as f32 as f64).collect()
        })
        .collect()
}

fn batches() -> impl Strategy<Value = (Vec<Vec<f64>>, Vec<u32>)> {
    (1usize..14, 1usize..9).prop_flat_map(|(n, d)| {
        let rows = prop::collection::vec(prop::collection::vec(-1.0..1.0f64, d), n);
        (rows.prop_map(unit), prop::collection::vec(0u32..4, n))
    })
}

fn configs() -> impl Strategy<Value = RllConfig> {
    let form = prop_oneof![Just(RllForm::Journal), Just(RllForm::Cvpr)];
    let weighting = prop_oneof![Just(QueryWeighting::Uniform), Just(QueryWeighting::Mass)];
    let gradient =
        prop_oneof![Just(RllGradient::Query), Just(RllGradient::Both), Just(RllGradient::Autodiff)];
    (0.8..1.6f64, 0.0..0.8f64, -5.0..30.0f64, -5.0..30.0f64, form, weighting, gradient).prop_map(
        |(alpha, margin, t_pos, t_neg, form, query_weighting, gradient)| RllConfig {
            alpha: Some(alpha),
            margin,
            t_pos,
            t_neg,
            form,
            query_weighting,
            // Queries weighted by mass have one gradient.
            gradient: if query_weighting == QueryWeighting::Mass { RllGradient::Query } else { gradient },
            ..RllConfig::simpler()
        },
    )
}

/// Whether a pair lies so near a hinge that f32 and f64 may disagree about mining it.
fn near_a_hinge(config: &RllConfig, rows: &[Vec<f64>]) -> bool {
    let alpha = config.alpha();
    rows.iter().enumerate().any(|(i, a)| {
        rows[..i].iter().any(|b| {
            let dist = a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
            (dist - alpha).abs() < 1e-4 || (dist - alpha + config.margin).abs() < 1e-4
        })
    })
}

#[test]
fn the_true_derivative_is_that_of_central_differences() {
    let row = |i: usize| (0..5).map(|k| ((i * 5 + k) as f64 * 1.7).sin()).collect::<Vec<_>>();
    let rows = unit((0..9).map(row).collect());
    let labels = [0, 0, 0, 1, 1, 1, 2, 2, 2];
    let config = RllConfig { t_pos: 3.0, gradient: RllGradient::Autodiff, ..RllConfig::simpler() };
    let (_, gradient) = run(&config, &rows, &labels, Progress::default());
    for i in 0..rows.len() {
        for k in 0..rows[0].len() {
            let at = |step: f64| {
                let mut moved = rows.clone();
                moved[i][k] += step;
                oracle(&config, config.t_neg, &moved, &labels).0
            };
            let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
            let found = gradient[i * rows[0].len() + k];
            assert!((found - slope).abs() < 1e-4, "row {i}, column {k}: {found} instead of {slope}");
        }
    }
}

#[test]
fn queries_weighted_by_mass_have_the_papers_gradient_only() {
    let config = RllConfig {
        query_weighting: QueryWeighting::Mass,
        gradient: RllGradient::Both,
        ..RllConfig::simpler()
    };
    let error = config.validate().unwrap_err().to_string();
    assert!(error.contains("query_weighting") && error.contains("gradient"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn value_and_gradient_are_those_of_the_equations((rows, labels) in batches(), config in configs()) {
        prop_assume!(!near_a_hinge(&config, &rows));
        let (output, gradient) = run(&config, &rows, &labels, Progress::default());
        let (wanted, wanted_gradient) = oracle(&config, config.t_neg, &rows, &labels);
        prop_assert!((value(&output) - wanted).abs() < 1e-4 * wanted.abs().max(1e-2), "{} {wanted}", value(&output));
        let largest = wanted_gradient.iter().fold(1e-3f64, |a, g| a.max(g.abs()));
        for (found, wanted) in gradient.iter().zip(&wanted_gradient) {
            prop_assert!((found - wanted).abs() < 1e-3 * largest, "{found} {wanted}");
        }
    }

    #[test]
    fn the_order_of_the_batch_does_not_matter((rows, labels) in batches(), config in configs()) {
        prop_assume!(!near_a_hinge(&config, &rows));
        let (output, gradient) = run(&config, &rows, &labels, Progress::default());
        let reversed: Vec<_> = rows.iter().rev().cloned().collect();
        let reversed_labels: Vec<_> = labels.iter().rev().copied().collect();
        let (other, other_gradient) = run(&config, &reversed, &reversed_labels, Progress::default());
        prop_assert!((value(&output) - value(&other)).abs() < 1e-5);
        let d = rows[0].len();
        for (a, b) in gradient.chunks(d).zip(other_gradient.chunks(d).rev()) {
            for (a, b) in a.iter().zip(b) {
                // The gradient of a pair at distance d is right to about 1e-7 / d.
                prop_assert!((a - b).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn finite_embeddings_of_any_size_give_finite_losses_and_gradients(
        (rows, labels) in batches(), config in configs(), exponent in -6..=3i32
    ) {
        let scale = 10f64.powi(exponent);
        let rows: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(|v| v * scale).collect()).collect();
        let (output, gradient) = run(&config, &rows, &labels, Progress::default());
        prop_assert!(value(&output).is_finite());
        prop_assert!(gradient.iter().all(|g| g.is_finite()));
    }
}

#[test]
fn coincident_rows_of_two_classes_are_the_worst_negatives_and_have_no_direction() {
    let rows = unit(vec![vec![1.0, 0.0], vec![1.0, 0.0], vec![-1.0, 0.1], vec![-1.0, -0.1]]);
    let config = RllConfig::simpler();
    let (output, gradient) = run(&config, &rows, &[0, 1, 0, 1], Progress::default());
    assert_eq!(output.queries.mined_negatives, [1, 1, 1, 1]);
    // Positives at distance ~2 pull by (d - 0.8) / 2, the coincident negative costs alpha / 2 in full.
    let (wanted, wanted_gradient) = oracle(&config, 10.0, &rows, &[0, 1, 0, 1]);
    assert!((value(&output) - wanted).abs() < 1e-6);
    assert!(gradient.iter().zip(&wanted_gradient).all(|(a, b)| a.is_finite() && (a - b).abs() < 1e-6));
}

#[test]
fn a_collapsed_batch_costs_lambda_alpha_and_has_no_gradient() {
    for n in [2, 33, 64] {
        let rows = vec![vec![0.6, 0.8]; n];
        let labels: Vec<u32> = (0..n as u32).map(|i| i / 2 + 7 * (i % 2)).collect();
        let config = RllConfig::simpler();
        let (output, gradient) = run(&config, &rows, &labels, Progress::default());
        assert!((value(&output) - 0.5 * config.alpha()).abs() < 1e-6, "{n}: {}", value(&output));
        assert!(gradient.iter().all(|&g| g == 0.0));
    }
}

#[test]
fn one_class_only_and_singletons_are_finite() {
    let rows = unit(vec![vec![1.0, 0.2], vec![0.3, 1.0], vec![-0.5, 0.4]]);
    for labels in [[0, 0, 0], [0, 1, 2]] {
        let (output, gradient) = run(&RllConfig::simpler(), &rows, &labels, Progress::default());
        let (wanted, _) = oracle(&RllConfig::simpler(), 10.0, &rows, &labels);
        assert!((value(&output) - wanted).abs() < 1e-6);
        assert!(gradient.iter().all(|g| g.is_finite()));
    }
    let (output, _) = run(&RllConfig::simpler(), &rows[..1], &[0], Progress::default());
    assert_eq!(value(&output), 0.0);
}

#[test]
fn zero_rows_are_finite_and_get_no_gradient_through_the_normalisation() {
    let device = Device::flex().autodiff();
    let x =
        Tensor::<2>::from_floats([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [2.0, 1.0]], &device).require_grad();
    let output = RllConfig::simpler().init().forward(
        l2_normalize(x.clone()),
        Labels::Classes(&[0, 0, 1, 1]),
        Progress::default(),
    );
    assert!(value(&output).is_finite());
    let gradient: Vec<f32> = x.grad(&output.value.backward()).unwrap().into_data().try_into_vec().unwrap();
    assert!(gradient.iter().all(|g| g.is_finite()));
    assert_eq!((&gradient[0..2], &gradient[4..6]), (&[0.0, 0.0][..], &[0.0, 0.0][..]));
}

#[test]
fn norms_from_tiny_to_huge_normalise_to_one() {
    for scale in [1e-18f32, 1e-6, 1.0, 1e3, 1e18] {
        let x = Tensor::<2>::from_floats([[3.0 * scale, 4.0 * scale]], &Device::flex());
        let unit: Vec<f32> = l2_normalize(x).into_data().try_into_vec().unwrap();
        assert!((unit[0] - 0.6).abs() < 1e-6 && (unit[1] - 0.8).abs() < 1e-6, "{scale}: {unit:?}");
    }
}

#[test]
fn dynamic_weighting_goes_linearly_from_one_temperature_to_the_other() {
    let rows = unit(vec![vec![1.0, 0.0], vec![0.9, 0.5], vec![0.2, 1.0], vec![0.4, 0.9]]);
    let labels = [0, 0, 1, 1];
    let config = RllConfig { t_neg: 20.0, t_neg_end: Some(5.0), ..RllConfig::simpler() };
    for (step, temperature) in [(0, 20.0), (50, 12.5), (100, 5.0)] {
        let (output, _) = run(&config, &rows, &labels, Progress { step, steps: 100 });
        let (wanted, _) = oracle(&config, temperature, &rows, &labels);
        assert!((value(&output) - wanted).abs() < 1e-6, "step {step}");
    }
}

#[test]
fn samples_that_share_a_label_are_positives() {
    let rows = unit(vec![vec![1.0, 0.0], vec![0.0, 1.0], vec![-1.0, 0.0]]);
    let values: Vec<f32> = rows.iter().flatten().map(|&v| v as f32).collect();
    let x = Tensor::<2>::from_data(TensorData::new(values, [3, 2]), &Device::flex());
    let sets = [vec![1, 2], vec![2, 3], vec![4]];
    let with_sets = RllConfig::simpler().init().forward(x.clone(), Labels::Sets(&sets), Progress::default());
    let with_classes =
        RllConfig::simpler().init().forward(x, Labels::Classes(&[0, 0, 1]), Progress::default());
    assert_eq!(value(&with_sets), value(&with_classes));
    assert_eq!(with_sets.queries, with_classes.queries);
}

#[test]
fn the_derivative_of_a_near_pair_is_right() {
    // Distance 1e-3: the product form alone would have an error of about 10 %.
    let device = Device::flex().autodiff();
    let x = Tensor::<2>::from_floats([[0.6, 0.8], [0.6008, 0.7994]], &device).require_grad();
    let distance = gallerist_tensor::pairwise::distances(&x, &x.clone().detach());
    let values: Vec<f32> = distance.clone().into_data().try_into_vec().unwrap();
    assert!((values[1] - 1e-3).abs() < 1e-6, "{values:?}");
    let pick = Tensor::<2>::from_floats([[0.0, 1.0], [0.0, 0.0]], &device);
    let gradient: Vec<f32> =
        x.grad(&(distance * pick).sum().backward()).unwrap().into_data().try_into_vec().unwrap();
    assert!((gradient[0] + 0.8).abs() < 1e-3 && (gradient[1] - 0.6).abs() < 1e-3, "{gradient:?}");
}
