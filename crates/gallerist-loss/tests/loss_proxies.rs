//! The losses over learnt proxies as list losses: f32 against f64, many proxies, threads, tracked and untracked sides.
//! Their equations are checked in `loss_classes`.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Distribution, Gradients, Tensor, TensorData};
use gallerist_loss::engine::Listed;
use gallerist_loss::miner::{MinerConfig, SemiHardConfig};
use gallerist_loss::{
    AnyLoss, ContrastiveConfig, IceConfig, IceGradient, Labels, ListLoss, LossConfig, LossOutput, LossShape,
    NormSoftmaxConfig, Progress, Queries, SupConConfig, TripletAllConfig,
};
use serde_json::{Value, json};

/// Every loss over proxies that is a list loss.
fn configs() -> Vec<LossConfig> {
    [
        json!({"name": "proxy_nca", "scale": 3.0}),
        json!({"name": "norm_softmax", "temperature": 0.2}),
        json!({"name": "softmax"}),
        json!({"name": "softmax", "bias": false}),
        json!({"name": "cos_face", "scale": 8.0}),
        json!({"name": "arc_face", "scale": 8.0}),
        json!({"name": "soft_triple", "centers": 3, "lambda": 4.0}),
        json!({"name": "proxy_anchor", "alpha": 8.0}),
    ]
    .map(|config: Value| serde_json::from_value(config).expect("a loss of this crate"))
    .into()
}

fn device() -> Device {
    Device::flex().autodiff()
}

/// Rows of length 1, around the axes.
fn rows(n: usize, d: usize) -> Vec<f64> {
    let mut state = 3u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 40) as u32) / f64::from(1u32 << 23) - 1.0
    };
    let mut rows: Vec<f64> = (0..n * d).map(|_| uniform()).collect();
    for (i, row) in rows.chunks_mut(d).enumerate() {
        row[i % d] += 1.0;
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        row.iter_mut().for_each(|v| *v /= length);
    }
    rows
}

fn tensor(rows: &[f64], d: usize, dtype: DType) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.to_vec(), [rows.len() / d, d]), (&device(), dtype))
}

fn values<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().convert::<f64>().try_into_vec().unwrap()
}

fn value(output: &LossOutput) -> f64 {
    values(output.value.clone())[0]
}

/// The gradients of all parameters, one after the other; `None` where a parameter has none.
fn parameter_gradients(loss: &AnyLoss, gradients: &Gradients) -> Vec<Option<Vec<f64>>> {
    struct Collect<'a>(&'a Gradients, Vec<Option<Vec<f64>>>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(param.val().grad(self.0).map(values));
        }
    }
    let mut visitor = Collect(gradients, Vec::new());
    loss.visit(&mut visitor);
    visitor.1
}

struct Found {
    value: f64,
    /// Of the embeddings, then of the parameters.
    gradients: Vec<Option<Vec<f64>>>,
    queries: Queries,
}

fn run(loss: &AnyLoss, x: &Tensor<2>, labels: Labels<'_>) -> Found {
    let output = loss.forward(x.clone(), labels, Progress::default());
    let gradients = output.value.backward();
    let of_x = x.is_tracked().then(|| x.grad(&gradients).map(values)).flatten();
    let all = [vec![of_x], parameter_gradients(loss, &gradients)].concat();
    Found { value: value(&output), gradients: all, queries: output.queries }
}

fn assert_near(found: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let largest = wanted.iter().fold(1e-9f64, |a, w| a.max(w.abs()));
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() <= tolerance * largest, "{what}[{at}]: {found}, wanted {wanted}");
    }
}

/// Values, counts and gradients in f32 are those in f64.
fn compare_precisions(config: &LossConfig, n: usize, d: usize, classes: usize, tolerance: f64) {
    let what = format!("{config:?}: {n} x {d}, {classes} classes");
    let loss = config.init(LossShape { classes, dimensions: d }, 1, &device());
    let labels: Vec<u32> = (0..n).map(|i| (i * 37 % classes) as u32).collect();
    let of = |dtype| {
        let x = tensor(&rows(n, d), d, dtype).require_grad();
        run(&loss, &x, Labels::Classes(&labels))
    };
    let (wide, found) = (of(DType::F64), of(DType::F32));
    assert!((found.value - wide.value).abs() <= tolerance * wide.value.abs().max(1.0), "{what}");
    for (found, wide) in found.gradients.iter().zip(&wide.gradients) {
        assert_near(found.as_ref().unwrap(), wide.as_ref().unwrap(), 10.0 * tolerance, &what);
    }
    assert_eq!(found.queries.positives, wide.queries.positives, "{what}");
    assert_eq!(found.queries.negatives, wide.queries.negatives, "{what}");
    let wide: Vec<f64> = wide.queries.loss.iter().map(|&loss| loss.into()).collect();
    let found: Vec<f64> = found.queries.loss.iter().map(|&loss| loss.into()).collect();
    assert_near(&found, &wide, 10.0 * tolerance, &what);
}

#[test]
fn f32_and_f64_agree_at_sizes_around_the_lanes() {
    for config in configs() {
        for (n, classes) in [(1, 2), (1, 40), (5, 16), (33, 17), (16, 33), (130, 15)] {
            compare_precisions(&config, n, 7, classes, 1e-5);
        }
    }
}

#[test]
fn more_proxies_than_fit_into_a_block_give_the_same() {
    // A block is 32 MiB: in f32 the lists of 13 of 16 samples, and of 524,288 of 600,000 proxies.
    for config in configs().into_iter().filter(|config| config.name() != "soft_triple") {
        compare_precisions(&config, 16, 3, 600_000, 1e-4);
    }
}

#[test]
fn all_classes_of_a_block_are_in_the_denominator() {
    let (n, d, classes) = (16, 3, 600_000);
    let loss = LossConfig::from(NormSoftmaxConfig { temperature: 0.5 });
    let loss = loss.init(LossShape { classes, dimensions: d }, 1, &device());
    let labels: Vec<u32> = (0..n as u32).map(|i| i * 30_011).collect();
    let x = rows(n, d);
    let found = run(&loss, &tensor(&x, d, DType::F64).require_grad(), Labels::Classes(&labels));
    let weights: Vec<f64> = gallerist_tensor::params::collect(&loss)["weight"]
        .clone()
        .convert::<f64>()
        .try_into_vec()
        .expect("converted to f64");
    let mut wanted = 0.0;
    for (row, &label) in x.chunks(d).zip(&labels) {
        let logit = |weight: &[f64]| {
            let length = weight.iter().map(|v| v * v).sum::<f64>().sqrt();
            row.iter().zip(weight).map(|(a, b)| a * b).sum::<f64>() / length / 0.5
        };
        let sum: f64 = weights.chunks(d).map(|weight| logit(weight).exp()).sum();
        wanted += (sum.ln() - logit(&weights[label as usize * d..][..d])) / n as f64;
    }
    assert!((found.value - wanted).abs() < 1e-9, "{} {wanted}", found.value);
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (n, d, classes) = (150, 33, 700);
    let labels: Vec<u32> = (0..n as u32).map(|i| i * 7 % 300).collect();
    let sets: Vec<Vec<u32>> =
        (0..n as u32).map(|i| (0..i % 4).map(|k| (i * 7 + 90 * k) % 700).collect()).collect();
    for config in configs() {
        let loss = config.init(LossShape { classes, dimensions: d }, 1, &device());
        for labels in [Labels::Classes(&labels), Labels::Sets(&sets)] {
            let bits = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let x = tensor(&rows(n, d), d, DType::F32).require_grad();
                let output = pool.install(|| loss.forward(x.clone(), labels, Progress::default()));
                let gradients = output.value.backward();
                let all = [vec![x.grad(&gradients).map(values)], parameter_gradients(&loss, &gradients)];
                let bits = |v: &f64| v.to_bits();
                let gradients: Vec<u64> = all.concat().iter().flatten().flatten().map(bits).collect();
                (value(&output).to_bits(), gradients, output.queries)
            };
            let one = bits(1);
            assert!(bits(2) == one && bits(3) == one, "{config:?}");
        }
    }
}

#[test]
fn each_side_learns_without_the_other() {
    let (n, d, classes) = (6, 5, 9);
    let labels = [0u32, 1, 1, 8, 3, 0];
    let labels = Labels::Classes(&labels);
    for config in configs() {
        let loss = config.init(LossShape { classes, dimensions: d }, 1, &device());
        let x = tensor(&rows(n, d), d, DType::F32);
        let both = run(&loss, &x.clone().require_grad(), labels);

        // Embeddings that are not tracked, with autodiff and without.
        for x in [x.clone(), x.clone().without_autodiff()] {
            let proxies = run(&loss, &x, labels);
            assert_eq!(proxies.value, both.value, "{config:?}");
            assert_eq!(proxies.gradients[0], None);
            assert_eq!(proxies.gradients[1..], both.gradients[1..], "{config:?}");
            assert_eq!(proxies.queries, both.queries, "{config:?}");
        }

        let frozen = loss.clone().no_grad();
        let samples = run(&frozen, &x.clone().require_grad(), labels);
        assert_eq!(samples.value, both.value, "{config:?}");
        assert_eq!(samples.gradients[0], both.gradients[0], "{config:?}");
        assert!(samples.gradients[1..].iter().all(Option::is_none), "{config:?}");

        let output = frozen.forward(x.clone(), labels, Progress::default());
        assert!(!output.value.is_tracked(), "{config:?}");
        assert_eq!((value(&output), output.queries), (both.value, both.queries), "{config:?}");
    }
}

#[test]
fn a_label_that_a_set_names_twice_counts_once() {
    let once = [vec![1u32, 2], vec![0], vec![]];
    let twice = [vec![2u32, 1, 2, 1], vec![0, 0], vec![]];
    for config in configs() {
        let loss = config.init(LossShape { classes: 4, dimensions: 3 }, 1, &device());
        let x = tensor(&rows(3, 3), 3, DType::F32).require_grad();
        let (once, twice) = (run(&loss, &x, Labels::Sets(&once)), run(&loss, &x, Labels::Sets(&twice)));
        assert_eq!(once.value, twice.value, "{config:?}");
        assert_eq!(once.queries, twice.queries, "{config:?}");
        assert_eq!(once.queries.positives, [2, 1, 0], "{config:?}");
        assert_eq!(once.queries.negatives, [2, 3, 4], "{config:?}");
    }
}

#[test]
fn rows_that_are_not_finite_give_nan_and_long_ones_do_not() {
    for config in configs() {
        let loss = config.init(LossShape { classes: 3, dimensions: 4 }, 1, &device());
        let labels = Labels::Classes(&[0, 1, 2, 0]);
        let with = |value: f64| {
            let mut rows = rows(4, 4);
            rows[5] = value;
            run(&loss, &tensor(&rows, 4, DType::F32).require_grad(), labels)
        };
        let found = with(f64::NAN);
        assert!(found.value.is_nan(), "{config:?}");
        assert!(found.gradients.iter().flatten().all(|g| g.iter().any(|g| g.is_nan())), "{config:?}");
        // The squared norm overflows f32.
        let found = with(1e25);
        assert!(found.value.is_finite(), "{config:?}");
        assert!(found.gradients.iter().flatten().flatten().all(|g| g.is_finite()), "{config:?}");
    }
}

#[test]
fn proxies_of_zeros_get_no_gradient() {
    for config in configs().into_iter().filter(|config| config.name() != "softmax") {
        let loss = config.init(LossShape { classes: 3, dimensions: 4 }, 1, &device());
        let mut tensors = gallerist_tensor::params::collect(&loss);
        let (name, shape) =
            tensors.iter().map(|(name, data)| (name.clone(), data.shape().clone())).next().unwrap();
        let zeros = vec![0f32; shape.iter().product()];
        tensors.insert(name, TensorData::new(zeros, shape));
        let (loss, _) = gallerist_tensor::params::load(loss, tensors);
        let found =
            run(&loss, &tensor(&rows(4, 4), 4, DType::F32).require_grad(), Labels::Classes(&[0, 1, 2, 0]));
        assert!(found.value.is_finite(), "{config:?}");
        assert!(found.gradients.iter().flatten().flatten().all(|&g| g == 0.0), "{config:?}");
    }
}

/// Both gradients of a list loss over other rows against central differences of its value.
fn check_both_sides(loss: impl ListLoss + Clone, what: &str) {
    let (n, g, d) = (5, 7, 4);
    let all = rows(n + g, d);
    let (labels, gallery_labels) =
        ([vec![0u32], vec![1], vec![1, 2], vec![], vec![2]], [0u32, 1, 2, 0, 1, 2, 3]);
    let forward = |all: &[f64]| {
        let (x, gallery) = all.split_at(n * d);
        let (x, gallery) =
            (tensor(x, d, DType::F64).require_grad(), tensor(gallery, d, DType::F64).require_grad());
        let gallery_labels = Labels::Classes(&gallery_labels);
        let loss = Listed::new(loss.clone());
        let output =
            loss.forward_among(&x, Labels::Sets(&labels), &gallery, gallery_labels, Progress::default());
        (x, gallery, output)
    };
    let (x, gallery, output) = forward(&all);
    assert_eq!(output.queries.positives, [2, 2, 4, 0, 2], "{what}");
    assert_eq!(output.queries.negatives, [5, 5, 3, 7, 5], "{what}");
    let gradients = output.value.backward();
    let found = [values(x.grad(&gradients).unwrap()), values(gallery.grad(&gradients).unwrap())].concat();
    let wanted: Vec<f64> = (0..all.len())
        .map(|at| {
            let moved = |step: f64| {
                let mut moved = all.clone();
                moved[at] += step;
                value(&forward(&moved).2)
            };
            (moved(1e-6) - moved(-1e-6)) / 2e-6
        })
        .collect();
    assert!(wanted[..n * d].iter().any(|w| w.abs() > 1e-3) && wanted[n * d..].iter().any(|w| w.abs() > 1e-3));
    assert_near(&found, &wanted, 1e-6, what);
}

#[test]
fn any_list_loss_has_the_gradients_of_both_sides_over_other_rows() {
    let semi_hard = MinerConfig::from(SemiHardConfig::default());
    check_both_sides(ContrastiveConfig { margin: 1.2, miner: None }, "contrastive");
    check_both_sides(ContrastiveConfig { margin: 1.2, miner: Some(semi_hard) }, "contrastive, semi-hard");
    check_both_sides(TripletAllConfig { margin: 0.3, miner: None }, "triplet_all");
    check_both_sides(SupConConfig::default(), "sup_con");
    check_both_sides(IceConfig { scale: 4.0, gradient: IceGradient::Autodiff }, "ice");
    check_both_sides(NormSoftmaxConfig { temperature: 0.3 }, "norm_softmax");
}

#[test]
fn a_side_that_the_loss_holds_constant_gets_no_gradient() {
    let random = |rows| Tensor::<2>::random([rows, 4], Distribution::Default, &device()).require_grad();
    let (x, gallery) = (random(3), random(5));
    let loss = Listed::new(IceConfig { scale: 4.0, gradient: IceGradient::Paper });
    let labels = Labels::Classes(&[0, 1, 0]);
    let gallery_labels = Labels::Classes(&[0, 1, 2, 0, 1]);
    let output = loss.forward_among(&x, labels, &gallery, gallery_labels, Progress::default());
    let gradients = output.value.backward();
    assert!(values(x.grad(&gradients).unwrap()).iter().all(|&g| g == 0.0));
    assert!(values(gallery.grad(&gradients).unwrap()).iter().any(|&g| g != 0.0));
}
