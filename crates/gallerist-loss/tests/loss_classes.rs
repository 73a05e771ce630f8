//! The losses with learnt proxies, weights and centres against oracles in f64 written from the equations:
//! values, and gradients of embeddings and parameters by central differences of the oracle.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use gallerist_loss::{
    AnyLoss, ArcFaceConfig, CosFaceConfig, HistConfig, Labels, LossConfig, LossShape, NormSoftmaxConfig,
    Progress, ProxyAnchorConfig, ProxyNcaConfig, Queries, SoftTripleConfig, SoftmaxConfig,
};
use gallerist_tensor::params;
use proptest::prelude::*;

type Rows = Vec<Vec<f64>>;

struct Found {
    value: f64,
    gradient: Vec<f64>,
    parameters: BTreeMap<String, Vec<f64>>,
    queries: Queries,
}

fn device() -> Device {
    Device::flex().autodiff()
}

/// The gradient of each parameter by name.
fn parameter_gradients(loss: &AnyLoss, gradients: &Gradients) -> BTreeMap<String, Vec<f64>> {
    struct Collect<'a> {
        gradients: &'a Gradients,
        path: Vec<String>,
        found: BTreeMap<String, Vec<f64>>,
    }
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.path.push(name.to_string());
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let gradient = param.val().grad(self.gradients).expect("every parameter is in the graph");
            let values = gradient.into_data().convert::<f64>().try_into_vec().unwrap();
            self.found.insert(self.path.last().unwrap().clone(), values);
        }
    }
    let mut visitor = Collect { gradients, path: Vec::new(), found: BTreeMap::new() };
    loss.visit(&mut visitor);
    visitor.found
}

fn run(loss: &AnyLoss, rows: &Rows, labels: Labels<'_>, dtype: DType) -> Found {
    let (n, d) = (rows.len(), rows[0].len());
    let values: Vec<f64> = rows.iter().flatten().copied().collect();
    let x = Tensor::<2>::from_data(TensorData::new(values, [n, d]), (&device(), dtype)).require_grad();
    let output = loss.forward(x.clone(), labels, Progress::default());
    let gradients = output.value.backward();
    let gradient = x.grad(&gradients).expect("the value is connected to the embeddings");
    Found {
        value: output.value.into_data().convert::<f64>().try_into_vec::<f64>().unwrap()[0],
        gradient: gradient.into_data().convert::<f64>().try_into_vec().unwrap(),
        parameters: parameter_gradients(loss, &gradients),
        queries: output.queries,
    }
}

/// The parameters of a loss by name, in f64.
fn weights(loss: &AnyLoss) -> BTreeMap<String, Vec<f64>> {
    let tensors = params::collect(loss).into_iter();
    tensors.map(|(name, data)| (name, data.convert::<f64>().try_into_vec().unwrap())).collect()
}

/// The loss with other values in its parameter `name`.
fn with_weights(loss: AnyLoss, name: &str, values: &[f64], shape: [usize; 2]) -> AnyLoss {
    let mut tensors = params::collect(&loss);
    let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
    tensors.insert(name.into(), TensorData::new(values, shape));
    let (loss, mismatch) = params::load(loss, tensors);
    assert!(mismatch.is_empty(), "{mismatch}");
    loss
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn unit(a: &[f64]) -> Vec<f64> {
    let length = dot(a, a).sqrt();
    a.iter().map(|x| if length > 0.0 { x / length } else { 0.0 }).collect()
}

/// Mean over the samples of the mean over their classes of `term(sample, class, other classes)`.
fn mean_over_classes(
    sets: &[Vec<usize>],
    classes: usize,
    term: impl Fn(usize, usize, &[usize]) -> f64,
) -> f64 {
    let per_sample = |(i, set): (usize, &Vec<usize>)| {
        let others: Vec<usize> = (0..classes).filter(|c| !set.contains(c)).collect();
        if others.is_empty() || set.is_empty() {
            return 0.0;
        }
        set.iter().map(|&y| term(i, y, &others)).sum::<f64>() / set.len() as f64
    };
    sets.iter().enumerate().map(per_sample).sum::<f64>() / sets.len() as f64
}

fn cross_entropy(own: f64, others: impl Iterator<Item = f64>) -> f64 {
    -(own.exp() / (own.exp() + others.map(f64::exp).sum::<f64>())).ln()
}

/// The value straight from the equations.
fn oracle(
    config: &LossConfig,
    rows: &Rows,
    sets: &[Vec<usize>],
    weights: &BTreeMap<String, Vec<f64>>,
) -> f64 {
    let d = rows[0].len();
    let matrix = |name: &str| weights[name].chunks(d).map(unit).collect::<Rows>();
    if let Some(c) = config.downcast_ref::<ProxyNcaConfig>() {
        let proxies = matrix("proxies");
        let affinity = |i: usize, z: usize| {
            let squared: f64 = rows[i].iter().zip(&proxies[z]).map(|(a, b)| (a - b) * (a - b)).sum();
            (-c.scale * squared).exp()
        };
        mean_over_classes(sets, proxies.len(), |i, y, others| {
            -(affinity(i, y) / others.iter().map(|&z| affinity(i, z)).sum::<f64>()).ln()
        })
    } else if config.downcast_ref::<SoftmaxConfig>().is_some() {
        let plain: Rows = weights["weight"].chunks(d).map(<[f64]>::to_vec).collect();
        let logit = |i: usize, z: usize| dot(&rows[i], &plain[z]) + weights.get("bias").map_or(0.0, |b| b[z]);
        let term = |i, y, others: &[usize]| cross_entropy(logit(i, y), others.iter().map(|&z| logit(i, z)));
        mean_over_classes(sets, plain.len(), term)
    } else if let Some(c) = config.downcast_ref::<NormSoftmaxConfig>() {
        let weight = matrix("weight");
        let logit = |i: usize, z: usize| dot(&rows[i], &weight[z]) / c.temperature;
        let term = |i, y, others: &[usize]| cross_entropy(logit(i, y), others.iter().map(|&z| logit(i, z)));
        mean_over_classes(sets, weight.len(), term)
    } else if let Some(c) = config.downcast_ref::<CosFaceConfig>() {
        let weight = matrix("weight");
        let cosine = |i: usize, z: usize| dot(&rows[i], &weight[z]);
        mean_over_classes(sets, weight.len(), |i, y, others| {
            cross_entropy(c.scale * (cosine(i, y) - c.margin), others.iter().map(|&z| c.scale * cosine(i, z)))
        })
    } else if let Some(c) = config.downcast_ref::<ArcFaceConfig>() {
        let weight = matrix("weight");
        let cosine = |i: usize, z: usize| dot(&unit(&rows[i]), &weight[z]).clamp(-1.0, 1.0);
        mean_over_classes(sets, weight.len(), |i, y, others| {
            let theta = cosine(i, y).acos();
            let turned = if theta + c.margin <= std::f64::consts::PI {
                (theta + c.margin).cos()
            } else {
                theta.cos() - c.margin * c.margin.sin()
            };
            cross_entropy(c.scale * turned, others.iter().map(|&z| c.scale * cosine(i, z)))
        })
    } else if let Some(c) = config.downcast_ref::<SoftTripleConfig>() {
        let (centers, k) = (matrix("centers"), c.centers);
        let similarity = |i: usize, class: usize| {
            let s: Vec<f64> = (0..k).map(|t| dot(&rows[i], &centers[class * k + t])).collect();
            let total: f64 = s.iter().map(|s| (s / c.gamma).exp()).sum();
            s.iter().map(|s| (s / c.gamma).exp() / total * s).sum::<f64>()
        };
        let classes = centers.len() / k;
        let fit = mean_over_classes(sets, classes, |i, y, others| {
            let own = c.lambda * (similarity(i, y) - c.margin);
            cross_entropy(own, others.iter().map(|&z| c.lambda * similarity(i, z)))
        });
        let mut spread = 0.0;
        for class in 0..classes {
            for t in 0..k {
                for s in t + 1..k {
                    let pair = centers[class * k + t].iter().zip(&centers[class * k + s]);
                    spread += pair.map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
                }
            }
        }
        fit + if k > 1 { c.tau * spread / (classes * k * (k - 1)) as f64 } else { 0.0 }
    } else if let Some(c) = config.downcast_ref::<ProxyAnchorConfig>() {
        let proxies = matrix("proxies");
        let (mut pull, mut with_sample, mut push) = (0.0, 0, 0.0);
        for (z, proxy) in proxies.iter().enumerate() {
            let (mut near, mut far, mut any) = (0.0, 0.0, false);
            for (row, set) in rows.iter().zip(sets) {
                if set.contains(&z) {
                    any = true;
                    near += (-c.alpha * (dot(row, proxy) - c.delta)).exp();
                } else {
                    far += (c.alpha * (dot(row, proxy) + c.delta)).exp();
                }
            }
            with_sample += any as usize;
            pull += (1.0 + near).ln();
            push += (1.0 + far).ln();
        }
        pull / with_sample.max(1) as f64 + push / proxies.len() as f64
    } else if let Some(c) = config.downcast_ref::<HistConfig>() {
        hist(c, rows, sets, weights)
    } else {
        panic!("no oracle for {}", config.name())
    }
}

fn hist(c: &HistConfig, rows: &Rows, sets: &[Vec<usize>], weights: &BTreeMap<String, Vec<f64>>) -> f64 {
    let (n, d, h) = (rows.len(), rows[0].len(), c.hidden);
    let means: Rows = weights["means"].chunks(d).map(unit).collect();
    let classes = means.len();
    let distance = |i: usize, z: usize| {
        let row = unit(&rows[i]);
        let variance = |k: usize| weights["log_vars"][z * d + k].clamp(0.0, 6.0).exp();
        (0..d).map(|k| (row[k] - means[z][k]).powi(2) / variance(k)).sum::<f64>()
    };
    let distribution = mean_over_classes(sets, classes, |i, y, others| {
        cross_entropy(-c.tau * distance(i, y), others.iter().map(|&z| -c.tau * distance(i, z)))
    });
    let present: Vec<usize> = (0..classes).filter(|z| sets.iter().any(|set| set.contains(z))).collect();
    if present.is_empty() {
        return distribution;
    }
    let edge =
        |i: usize, z: usize| if sets[i].contains(&z) { 1.0 } else { (-c.alpha * distance(i, z)).exp() };
    let node = |i: usize| present.iter().map(|&z| edge(i, z)).sum::<f64>().sqrt();
    let size = |z: usize| (0..n).map(|i| edge(i, z)).sum::<f64>();
    let g: Rows = (0..n)
        .map(|i| {
            let of = |j: usize| present.iter().map(|&z| edge(i, z) * edge(j, z) / size(z)).sum::<f64>();
            (0..n).map(|j| of(j) / node(i) / node(j)).collect()
        })
        .collect();
    let spread = |values: &Rows| -> Rows {
        let of = |i: usize, k: usize| (0..n).map(|j| g[i][j] * values[j][k]).sum::<f64>();
        (0..n).map(|i| (0..values[0].len()).map(|k| of(i, k)).collect()).collect()
    };
    let linear = |values: &Rows, weight: &str, bias: &str| -> Rows {
        let inputs = values[0].len();
        let of = |row: &[f64]| {
            let each = weights[weight].chunks(inputs).zip(&weights[bias]);
            each.map(|(w, b)| dot(row, w) + b).collect()
        };
        values.iter().map(|row| of(row)).collect()
    };
    let mut hidden = spread(&linear(rows, "theta1", "theta1_bias"));
    for k in 0..h {
        let column: Vec<f64> = hidden.iter().map(|row| row[k]).collect();
        let mean = column.iter().sum::<f64>() / n as f64;
        let variance = column.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        for row in &mut hidden {
            let normed = (row[k] - mean) / (variance + 1e-5).sqrt();
            let value = normed * weights["norm_weight"][k] + weights["norm_bias"][k];
            row[k] = if value < 0.0 { 0.1 * value } else { value };
        }
    }
    let logits = spread(&linear(&hidden, "theta2", "theta2_bias"));
    let classified = mean_over_classes(sets, classes, |i, y, others| {
        cross_entropy(logits[i][y], others.iter().map(|&z| logits[i][z]))
    });
    distribution + c.lambda * classified
}

fn configs() -> Vec<LossConfig> {
    vec![
        LossConfig::from(ProxyNcaConfig::default()),
        LossConfig::from(ProxyNcaConfig { scale: 9.0 }),
        LossConfig::from(SoftmaxConfig::default()),
        LossConfig::from(SoftmaxConfig { bias: false }),
        LossConfig::from(NormSoftmaxConfig::default()),
        LossConfig::from(NormSoftmaxConfig { temperature: 0.5 }),
        LossConfig::from(CosFaceConfig::default()),
        LossConfig::from(CosFaceConfig { scale: 8.0, margin: 0.1 }),
        LossConfig::from(ArcFaceConfig::default()),
        LossConfig::from(ArcFaceConfig { scale: 8.0, margin: 1.2 }),
        LossConfig::from(SoftTripleConfig { centers: 3, ..SoftTripleConfig::default() }),
        LossConfig::from(SoftTripleConfig { centers: 1, ..SoftTripleConfig::default() }),
        LossConfig::from(SoftTripleConfig { centers: 2, gamma: 1.0, lambda: 3.0, margin: 0.3, tau: 5.0 }),
        LossConfig::from(ProxyAnchorConfig::default()),
        LossConfig::from(ProxyAnchorConfig { alpha: 4.0, delta: 0.3 }),
        LossConfig::from(HistConfig { tau: 8.0, hidden: 5, ..HistConfig::default() }),
        LossConfig::from(HistConfig { tau: 2.0, alpha: 0.3, lambda: 0.4, hidden: 3 }),
    ]
}

fn normal_rows(n: usize, d: usize, seed: u64) -> Rows {
    let mut random = gallerist_data::Random::new(seed, "test/rows", 0, 0);
    (0..n).map(|_| unit(&(0..d).map(|_| random.between(-1.0, 1.0)).collect::<Vec<_>>())).collect()
}

/// Derivative of `f` by each of `values`.
fn central(values: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    (0..values.len())
        .map(|i| {
            let mut moved = values.to_vec();
            moved[i] = values[i] + step;
            let above = f(&moved);
            moved[i] = values[i] - step;
            (above - f(&moved)) / (2.0 * step)
        })
        .collect()
}

fn assert_near(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let largest = wanted.iter().fold(1e-3f64, |a, w| a.max(w.abs()));
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() <= tolerance * largest, "{what}[{i}]: {found}, wanted {wanted}");
    }
}

fn check(
    config: &LossConfig,
    rows: &Rows,
    sets: &[Vec<usize>],
    labels: Labels<'_>,
    seed: u64,
    classes: usize,
) {
    let what = format!("{config:?}, seed {seed}");
    let shape = LossShape { classes, dimensions: rows[0].len() };
    let loss = config.init(shape, seed, &device());
    let weights = weights(&loss);
    let found = run(&loss, rows, labels, DType::F64);
    let wanted = oracle(config, rows, sets, &weights);
    assert!((found.value - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{what}: {} {wanted}", found.value);

    let flat: Vec<f64> = rows.iter().flatten().copied().collect();
    let by_rows = |flat: &[f64]| flat.chunks(rows[0].len()).map(<[f64]>::to_vec).collect::<Rows>();
    let gradient = central(&flat, |flat| oracle(config, &by_rows(flat), sets, &weights));
    // The step of 1e-5 with scales up to 64 leaves an error of the order (64 * 1e-5)^2.
    assert_near(&found.gradient, &gradient, 1e-5, &what);
    assert_eq!(found.parameters.len(), weights.len(), "{what}");
    for (name, values) in &weights {
        let gradient = central(values, |moved| {
            let mut weights = weights.clone();
            weights.insert(name.clone(), moved.to_vec());
            oracle(config, rows, sets, &weights)
        });
        assert_near(&found.parameters[name], &gradient, 1e-5, &format!("{what}: {name}"));
    }

    let mean = found.queries.loss.iter().map(|&l| l as f64).sum::<f64>() / rows.len() as f64;
    // SoftTriple's regulariser belongs to no query.
    if !config.downcast_ref::<SoftTripleConfig>().is_some_and(|c| c.tau > 0.0 && c.centers > 1) {
        assert!(
            (mean - found.value).abs() <= 1e-5 * found.value.abs().max(1.0),
            "{what}: mean over queries {mean}"
        );
    }
    for (i, set) in sets.iter().enumerate() {
        assert_eq!(found.queries.positives[i] as usize, set.len(), "{what}");
        assert_eq!(found.queries.negatives[i] as usize, classes - set.len(), "{what}");
        assert!(found.queries.mined_positives[i] <= found.queries.positives[i], "{what}");
        assert!(found.queries.mined_negatives[i] <= found.queries.negatives[i], "{what}");
    }
}

#[test]
fn values_and_gradients_are_those_of_the_equations() {
    for config in configs() {
        for seed in 0..3 {
            let rows = normal_rows(7, 4, seed);
            let labels: Vec<u32> = (0..7).map(|i| (i * (seed as u32 + 2) + seed as u32) % 5).collect();
            let sets: Vec<Vec<usize>> = labels.iter().map(|&label| vec![label as usize]).collect();
            check(&config, &rows, &sets, Labels::Classes(&labels), seed, 6);
        }
    }
}

#[test]
fn sets_of_labels_are_the_mean_over_the_labels_of_a_sample() {
    let sets = [vec![0u32, 2], vec![1], vec![3, 1, 0], vec![], vec![2], vec![0, 1, 2, 3]];
    let wanted: Vec<Vec<usize>> = sets.iter().map(|s| s.iter().map(|&l| l as usize).collect()).collect();
    for config in configs() {
        check(&config, &normal_rows(6, 3, 9), &wanted, Labels::Sets(&sets), 9, 4);
    }
}

#[test]
fn a_batch_of_one_sample_follows_the_equations() {
    for config in configs().into_iter().filter(|config| config.name() != "hist") {
        check(&config, &normal_rows(1, 3, 8), &[vec![2]], Labels::Classes(&[2]), 8, 4);
    }
}

#[test]
fn a_batch_of_one_class_among_several_follows_the_equations() {
    let sets = vec![vec![1]; 4];
    // HIST's batch norm then gives 0, the kink of its rectifier.
    for config in configs().into_iter().filter(|config| config.name() != "hist") {
        check(&config, &normal_rows(4, 3, 6), &sets, Labels::Classes(&[1; 4]), 6, 3);
    }
}

#[test]
fn embeddings_that_are_not_normalised_follow_the_equations_too() {
    let labels = [0u32, 1, 2, 0];
    let sets: Vec<Vec<usize>> = labels.iter().map(|&label| vec![label as usize]).collect();
    for config in configs() {
        let rows: Rows =
            normal_rows(4, 3, 5).iter().map(|row| row.iter().map(|v| 2.5 * v).collect()).collect();
        check(&config, &rows, &sets, Labels::Classes(&labels), 5, 3);
    }
}

#[test]
fn one_class_alone_costs_nothing_where_the_loss_compares_classes() {
    for config in configs() {
        let loss = config.init(LossShape { classes: 1, dimensions: 3 }, 1, &device());
        let found = run(&loss, &normal_rows(4, 3, 1), Labels::Classes(&[0; 4]), DType::F32);
        let compares = config.downcast_ref::<ProxyAnchorConfig>().is_none()
            && config.downcast_ref::<SoftTripleConfig>().is_none_or(|c| c.centers <= 1);
        if compares {
            assert_eq!(found.value, 0.0, "{config:?}");
        }
        if config.downcast_ref::<ProxyAnchorConfig>().is_none() {
            assert!(found.gradient.iter().all(|&g| g == 0.0), "{config:?}");
            assert_eq!(found.queries.mined_positives, [0; 4], "{config:?}");
        }
        assert!(found.value.is_finite());
    }
}

/// The name, shape and values of the parameter that stands in the embeddings' space.
fn directions(loss: &AnyLoss, d: usize) -> (String, Vec<f64>, [usize; 2]) {
    let (name, values) = weights(loss).into_iter().find(|(name, _)| name != "bias").unwrap();
    let shape = [values.len() / d, d];
    (name, values, shape)
}

#[test]
fn an_embedding_on_its_proxy_on_a_wrong_one_or_opposite_is_finite_and_right() {
    for config in configs() {
        let shape = LossShape { classes: 3, dimensions: 2 };
        let loss = config.init(shape, 1, &device());
        let (name, values, [rows_there, d]) = directions(&loss, 2);
        let axes: Vec<f64> = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]
            .iter()
            .flat_map(|axis| axis.iter().copied().cycle().take(values.len() / 3))
            .collect();
        let loss = with_weights(loss, &name, &axes, [rows_there, d]);
        let rows = vec![vec![1.0, 0.0], vec![0.0, 1.0], vec![1.0, 0.0], vec![0.0, -1.0], vec![1.0, 0.0]];
        let labels = [0u32, 0, 1, 1, 2];
        let sets: Vec<Vec<usize>> = labels.iter().map(|&label| vec![label as usize]).collect();
        let wanted = oracle(&config, &rows, &sets, &weights(&loss));
        for (dtype, tolerance) in [(DType::F64, 1e-9), (DType::F32, 1e-5)] {
            let found = run(&loss, &rows, Labels::Classes(&labels), dtype);
            assert!(
                (found.value - wanted).abs() <= tolerance * wanted.abs().max(1.0),
                "{config:?}: {}",
                found.value
            );
            assert!(found.gradient.iter().all(|g| g.is_finite()), "{config:?}: {:?}", found.gradient);
            assert!(found.parameters.values().flatten().all(|g| g.is_finite()), "{config:?}");
        }
    }
}

#[test]
fn the_angle_near_zero_keeps_its_digits() {
    // At an angle of 1e-4 the cosine is 1 - 5e-9, which f32 cannot tell from 1.
    let config = ArcFaceConfig { scale: 4.0, margin: 0.5 };
    let loss = LossConfig::from(config).init(LossShape { classes: 2, dimensions: 2 }, 1, &device());
    let loss = with_weights(loss, "weight", &[1.0, 0.0, 0.0, 1.0], [2, 2]);
    let rows = vec![vec![1.0, 1e-4]];
    let exact = run(&loss, &rows, Labels::Classes(&[0]), DType::F64);
    let found = run(&loss, &rows, Labels::Classes(&[0]), DType::F32);
    let slope = exact.gradient[1];
    assert!(slope.abs() > 0.1, "the margin's pull is large: {slope}");
    assert!((found.gradient[1] - slope).abs() < 2e-3 * slope.abs(), "{} {slope}", found.gradient[1]);
    assert!((found.value - exact.value).abs() < 1e-6);
}

#[test]
fn beyond_pi_the_cosine_goes_on_falling() {
    let loss = LossConfig::from(ArcFaceConfig { scale: 2.0, margin: 0.5 });
    let loss = loss.init(LossShape { classes: 2, dimensions: 2 }, 1, &device());
    let loss = with_weights(loss, "weight", &[1.0, 0.0, 0.0, 1.0], [2, 2]);
    let value = |theta: f64| {
        run(&loss, &vec![vec![theta.cos(), -theta.sin()]], Labels::Classes(&[0]), DType::F64).value
    };
    // The other class stands at 90 degrees plus the angle: both terms rise or fall together only in part, so the own
    // logit is read from the loss.
    let logit = |theta: f64| {
        let other = 2.0 * -theta.sin();
        other - (value(theta).exp() - 1.0).ln()
    };
    let boundary = std::f64::consts::PI - 0.5;
    let angles = [boundary - 0.2, boundary - 1e-6, boundary + 1e-6, boundary + 0.2, std::f64::consts::PI];
    let logits: Vec<f64> = angles.iter().map(|&theta| logit(theta)).collect();
    assert!(logits.windows(2).all(|pair| pair[1] < pair[0]), "{logits:?}");
}

#[test]
fn merged_centers_have_no_spread_and_near_ones_the_right_one() {
    let config = LossConfig::from(SoftTripleConfig { centers: 2, tau: 1.0, ..SoftTripleConfig::default() });
    let quiet = LossConfig::from(SoftTripleConfig { centers: 2, tau: 0.0, ..SoftTripleConfig::default() });
    let shape = LossShape { classes: 2, dimensions: 2 };
    let rows = normal_rows(3, 2, 4);
    let spread = |gap: f64| {
        let values = [1.0, 0.0, 1.0, gap, 0.0, 1.0, 0.0, 1.0];
        let of = |config: &LossConfig| {
            let loss = with_weights(config.init(shape, 1, &device()), "centers", &values, [4, 2]);
            run(&loss, &rows, Labels::Classes(&[0, 1, 1]), DType::F32)
        };
        let (with, without) = (of(&config), of(&quiet));
        let pull = with.parameters["centers"][3] - without.parameters["centers"][3];
        (with.value - without.value, pull)
    };
    assert_eq!(spread(0.0), (0.0, 0.0));
    // One pair at distance 1e-3 out of C K (K - 1) = 4; the gradient is one over that, whatever the distance.
    let (value, pull) = spread(1e-3);
    assert!((value - 1e-3 / 4.0).abs() < 1e-6, "{value}");
    assert!((pull - 0.25).abs() < 1e-3, "{pull}");
}

#[test]
fn softmax_with_its_own_class_in_the_denominator_is_proxy_nca_of_the_libraries() {
    // NormSoftmax at temperature 1 / (2 scale) is Proxy-NCA with the positive in the denominator.
    let shape = LossShape { classes: 4, dimensions: 3 };
    let nca = LossConfig::from(ProxyNcaConfig { scale: 3.0 }).init(shape, 2, &device());
    let softmax = LossConfig::from(NormSoftmaxConfig { temperature: 1.0 / 6.0 }).init(shape, 2, &device());
    let softmax = with_weights(softmax, "weight", &weights(&nca)["proxies"], [4, 3]);
    let rows = normal_rows(5, 3, 2);
    let labels = [0, 1, 2, 3, 1];
    let without = run(&nca, &rows, Labels::Classes(&labels), DType::F64).queries.loss;
    let with = run(&softmax, &rows, Labels::Classes(&labels), DType::F64).queries.loss;
    for (without, with) in without.iter().zip(with) {
        assert!((without.exp().ln_1p() - with).abs() < 1e-5, "{without} {with}");
    }
}

#[test]
fn parameters_are_a_function_of_the_seed() {
    for config in configs() {
        let shape = LossShape { classes: 50, dimensions: 16 };
        let of = |seed: u64| weights(&config.init(shape, seed, &device()));
        assert_eq!(of(3), of(3), "{config:?}");
        assert_ne!(of(3), of(4), "{config:?}");
        let (_, values, [rows, d]) = directions(&config.init(shape, 3, &device()), 16);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let length = (values.iter().map(|v| v * v).sum::<f64>() / rows as f64).sqrt();
        assert!(mean.abs() < 0.05, "{config:?}: mean {mean}");
        let wanted = if config.downcast_ref::<SoftmaxConfig>().is_some() {
            (1.0f64 / 3.0).sqrt()
        } else if config.downcast_ref::<HistConfig>().is_some() {
            // Variance 2 / classes.
            (2.0f64 / 50.0 * 16.0).sqrt()
        } else {
            1.0
        };
        assert!((length / wanted - 1.0).abs() < 0.06, "{config:?}: length {length}");
        assert_eq!(rows * d, values.len());
    }
}

#[test]
#[should_panic(expected = "the label 3 of sample 1 has no proxy: there are 3 of them, for the labels 0..3")]
fn a_label_without_a_proxy_is_named() {
    let loss = LossConfig::from(ProxyNcaConfig::default()).init(
        LossShape { classes: 3, dimensions: 2 },
        1,
        &device(),
    );
    run(&loss, &normal_rows(2, 2, 1), Labels::Classes(&[0, 3]), DType::F32);
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let refused = [
        LossConfig::from(ProxyNcaConfig { scale: 0.0 }),
        LossConfig::from(NormSoftmaxConfig { temperature: -1.0 }),
        LossConfig::from(CosFaceConfig { scale: f64::NAN, margin: 0.1 }),
        LossConfig::from(ArcFaceConfig { scale: 8.0, margin: 2.0 }),
        LossConfig::from(SoftTripleConfig { centers: 0, ..SoftTripleConfig::default() }),
        LossConfig::from(ProxyAnchorConfig { alpha: 4.0, delta: -0.1 }),
        LossConfig::from(HistConfig { hidden: 0, ..HistConfig::default() }),
    ];
    let keys = ["scale", "temperature", "scale", "margin", "centers", "delta", "hidden"];
    for (config, key) in refused.iter().zip(keys) {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`loss.{key}` must be ")), "{error}");
    }
    assert!(configs().iter().all(|config| config.validate().is_ok()));
}

fn batches() -> impl Strategy<Value = (Rows, Vec<u32>)> {
    (1usize..12, 1usize..7).prop_flat_map(|(n, d)| {
        let rows = prop::collection::vec(prop::collection::vec(-1.0..1.0f64, d), n);
        (rows, prop::collection::vec(0u32..5, n))
    })
}

fn any_config() -> impl Strategy<Value = LossConfig> {
    let sharp = vec![
        LossConfig::from(NormSoftmaxConfig { temperature: 1.0 / 256.0 }),
        LossConfig::from(ProxyNcaConfig { scale: 30.0 }),
        LossConfig::from(ProxyAnchorConfig { alpha: 256.0, delta: 0.1 }),
    ];
    prop::sample::select([configs(), sharp].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn finite_embeddings_of_any_size_give_finite_losses_and_gradients(
        (mut rows, labels) in batches(), config in any_config(), exponent in -6..=3i32, zero in any::<bool>()
    ) {
        let scale = 10f64.powi(exponent);
        rows.iter_mut().flatten().for_each(|v| *v *= scale);
        if zero {
            rows[0].fill(0.0);
        }
        let loss = config.init(LossShape { classes: 5, dimensions: rows[0].len() }, 1, &device());
        let found = run(&loss, &rows, Labels::Classes(&labels), DType::F32);
        prop_assert!(found.value.is_finite());
        prop_assert!(found.gradient.iter().all(|g| g.is_finite()));
        prop_assert!(found.parameters.values().flatten().all(|g| g.is_finite()));
        prop_assert!(found.queries.loss.iter().all(|l| l.is_finite()));
    }

    #[test]
    fn the_order_of_the_batch_does_not_matter((rows, labels) in batches(), config in any_config()) {
        let rows: Rows = rows.iter().map(|row| unit(row)).collect();
        let loss = config.init(LossShape { classes: 5, dimensions: rows[0].len() }, 1, &device());
        let found = run(&loss, &rows, Labels::Classes(&labels), DType::F64);
        let reversed: Rows = rows.iter().rev().cloned().collect();
        let reversed_labels: Vec<u32> = labels.iter().rev().copied().collect();
        let other = run(&loss, &reversed, Labels::Classes(&reversed_labels), DType::F64);
        prop_assert!((found.value - other.value).abs() <= 1e-9 * found.value.abs().max(1.0));
        let d = rows[0].len();
        for (a, b) in found.gradient.chunks(d).zip(other.gradient.chunks(d).rev()) {
            for (a, b) in a.iter().zip(b) {
                prop_assert!((a - b).abs() <= 1e-8 * a.abs().max(1.0));
            }
        }
    }
}
