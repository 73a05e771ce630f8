//! Batch normalisation and what is fused to it against their definition in `f64`. Gradients are
//! compared with central differences of the definition.

use burn::tensor::activation::relu;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor, TensorData, module};
use gallerist_kernels::{Activation, batch_norm, batch_norm_fixed, batch_norm_relu_max_pool2};
use proptest::prelude::*;

const EPSILON: f64 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Relu,
    Relu6,
    Pool,
    Fixed,
    FixedRelu,
    FixedRelu6,
    Silu,
    HardSwish,
    FixedSilu,
    FixedHardSwish,
}

const KINDS: [Kind; 11] = [
    Kind::Plain,
    Kind::Relu,
    Kind::Relu6,
    Kind::Pool,
    Kind::Fixed,
    Kind::FixedRelu,
    Kind::FixedRelu6,
    Kind::Silu,
    Kind::HardSwish,
    Kind::FixedSilu,
    Kind::FixedHardSwish,
];

impl Kind {
    fn is_fixed(self) -> bool {
        matches!(
            self,
            Kind::Fixed | Kind::FixedRelu | Kind::FixedRelu6 | Kind::FixedSilu | Kind::FixedHardSwish
        )
    }

    fn activation(self) -> Activation {
        match self {
            Kind::Plain | Kind::Fixed => Activation::None,
            Kind::Relu | Kind::FixedRelu | Kind::Pool => Activation::Relu,
            Kind::Relu6 | Kind::FixedRelu6 => Activation::Relu6,
            Kind::Silu | Kind::FixedSilu => Activation::Silu,
            Kind::HardSwish | Kind::FixedHardSwish => Activation::HardSwish,
        }
    }
}

/// Statistics for the kinds that take them.
fn statistics(channels: usize) -> (Vec<f32>, Vec<f32>) {
    let mean = (0..channels).map(|c| 0.25 - 0.5 * (c % 3) as f32).collect();
    let variance = (0..channels).map(|c| 0.5 + 0.25 * (c % 4) as f32).collect();
    (mean, variance)
}

/// The definition. `shape` is batch, channels, height, width.
fn definition(
    kind: Kind,
    shape: [usize; 4],
    x: &[f64],
    gamma: &[f64],
    beta: &[f64],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let [images, channels, height, width] = shape;
    let area = height * width;
    let at = |n: usize, c: usize, p: usize| (n * channels + c) * area + p;
    let (mut means, mut variances) = (vec![], vec![]);
    let mut y = vec![0.0; x.len()];
    for c in 0..channels {
        let count = (images * area) as f64;
        let of_channel = || (0..images).flat_map(move |n| (0..area).map(move |p| at(n, c, p)));
        let (mean, variance) = if kind.is_fixed() {
            let (means, variances) = statistics(channels);
            (f64::from(means[c]), f64::from(variances[c]))
        } else {
            let mean = of_channel().map(|i| x[i]).sum::<f64>() / count;
            (mean, of_channel().map(|i| (x[i] - mean).powi(2)).sum::<f64>() / count)
        };
        for i in of_channel() {
            y[i] = gamma[c] * (x[i] - mean) / (variance + EPSILON).sqrt() + beta[c];
            y[i] = match kind.activation() {
                Activation::None => y[i],
                Activation::Relu => y[i].max(0.0),
                Activation::Relu6 => y[i].clamp(0.0, 6.0),
                Activation::Silu => y[i] / (1.0 + (-y[i]).exp()),
                Activation::HardSwish => y[i] * (y[i] / 6.0 + 0.5).clamp(0.0, 1.0),
            };
        }
        means.push(mean);
        variances.push(variance);
    }
    if kind == Kind::Pool {
        let mut pooled = vec![];
        for map in y.chunks(area) {
            for i in 0..height / 2 {
                for j in 0..width / 2 {
                    let window = [0, 1].map(|a| [0, 1].map(|b| (2 * i + a) * width + 2 * j + b));
                    pooled.push(window.iter().flatten().map(|p| map[*p]).fold(0.0, f64::max));
                }
            }
        }
        y = pooled;
    }
    (y, means, variances)
}

/// Result, mean and variance of the kernels on `x`.
fn kernel(
    kind: Kind,
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
) -> (Tensor<4>, Option<(Tensor<1>, Tensor<1>)>) {
    let result = match kind {
        Kind::Pool => batch_norm_relu_max_pool2(x, gamma, beta, EPSILON),
        _ if !kind.is_fixed() => batch_norm(x, gamma, beta, EPSILON, kind.activation()),
        _ => {
            let device = x.device();
            let (mean, variance) = statistics(x.dims()[1]);
            let mean = Tensor::from_floats(mean.as_slice(), &device);
            let variance = Tensor::from_floats(variance.as_slice(), &device);
            let y = batch_norm_fixed(x, gamma, beta, mean, variance, EPSILON, kind.activation());
            return (y, None);
        }
    };
    (result.output, Some((result.mean, result.variance)))
}

fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

struct Run {
    y: Vec<f32>,
    moments: Option<(Vec<f32>, Vec<f32>)>,
    gradients: [Vec<f32>; 3],
}

fn run(kind: Kind, shape: [usize; 4], x: &[f32], gamma: &[f32], beta: &[f32], seed: u64) -> (Run, Vec<f32>) {
    let device = Device::flex().autodiff();
    let x: Tensor<4> = Tensor::from_data(TensorData::new(x.to_vec(), shape), &device);
    let x = x.require_grad();
    let gamma = Tensor::<1>::from_floats(gamma, &device).require_grad();
    let beta = Tensor::<1>::from_floats(beta, &device).require_grad();
    let (y, moments) = kernel(kind, x.clone(), gamma.clone(), beta.clone());
    let dy = values(y.dims().iter().product(), seed);
    let weights: Tensor<4> = Tensor::from_data(TensorData::new(dy.clone(), y.dims()), &device);
    let gradients = (y.clone() * weights).sum().backward();
    let run = Run {
        y: floats(y),
        moments: moments.map(|(mean, variance)| (floats(mean), floats(variance))),
        gradients: [
            floats(x.grad(&gradients).unwrap()),
            floats(gamma.grad(&gradients).unwrap()),
            floats(beta.grad(&gradients).unwrap()),
        ],
    };
    (run, dy)
}

fn assert_close(name: &str, found: &[f32], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((f64::from(*found) - wanted).abs() <= tolerance, "{name}[{index}] is {found}, not {wanted}");
    }
}

fn check(kind: Kind, shape: [usize; 4], seed: u64) {
    let channels = shape[1];
    let mut x = values(shape.iter().product(), seed);
    // Distances of at least 1/512 within a window and from ReLU's kink would not follow from chance
    // alone; a permutation of a grid keeps them apart.
    let count = x.len() as f32;
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|a, b| x[*a].total_cmp(&x[*b]));
    for (rank, index) in order.into_iter().enumerate() {
        x[index] = 4.0 * (rank as f32 + 0.5) / count - 2.0;
    }
    // Large enough for some values above 6.
    let gamma: Vec<f32> = values(channels, seed + 1).iter().map(|v| 4.0 * v + 0.25 * v.signum()).collect();
    let beta: Vec<f32> = values(channels, seed + 2);
    let (found, dy) = run(kind, shape, &x, &gamma, &beta, seed + 3);

    let (x, gamma, beta) = (wide(&x), wide(&gamma), wide(&beta));
    let (y, mean, variance) = definition(kind, shape, &x, &gamma, &beta);
    // Values are below 10 and go through about 10 roundings besides the statistics', which are
    // better than that.
    assert_close("y", &found.y, &y, 1e-5);
    if let Some((found_mean, found_variance)) = &found.moments {
        assert_close("mean", found_mean, &mean, 1e-6);
        assert_close("variance", found_variance, &variance, 1e-6);
    }

    let loss = |x: &[f64], gamma: &[f64], beta: &[f64]| -> f64 {
        let (y, ..) = definition(kind, shape, x, gamma, beta);
        y.iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum()
    };
    // Central differences err by about h^2 and 1e-16 / h; a step over a kink by more, which is why
    // entries whose one-sided differences disagree are left out: there is no derivative nearby.
    let h = 1e-6;
    let middle = loss(&x, &gamma, &beta);
    let inputs = [x, gamma, beta];
    for (which, name) in ["dx", "dgamma", "dbeta"].iter().enumerate() {
        let mut smooth = 0;
        for index in 0..inputs[which].len() {
            let at = |step: f64| {
                let mut inputs = inputs.clone();
                inputs[which][index] += step;
                loss(&inputs[0], &inputs[1], &inputs[2])
            };
            let (below, above) = (at(-h), at(h));
            let kink = ((above - middle) - (middle - below)).abs() / h > 1e-3;
            if kink {
                continue;
            }
            smooth += 1;
            let wanted = (above - below) / (2.0 * h);
            let found = f64::from(found.gradients[which][index]);
            // Sums of up to a thousand f32 terms of size 1, relative to their own size.
            let tolerance = 2e-5 * (1.0 + wanted.abs()) + 1e-6;
            assert!(
                (found - wanted).abs() <= tolerance,
                "{kind:?} {shape:?}: {name}[{index}] is {found}, not {wanted}"
            );
        }
        assert!(smooth * 10 >= inputs[which].len() * 9, "{name}: too few smooth entries");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn result_and_gradients_equal_the_definition(
        kind in prop::sample::select(KINDS.to_vec()),
        images in 1usize..4,
        channels in 1usize..20,
        height in 2usize..6,
        width in 2usize..6,
        seed in 0u64..1000,
    ) {
        check(kind, [images, channels, height, width], seed);
    }
}

#[test]
fn many_positions_equal_the_definition() {
    // Blocks have 64 positions, tasks 2048: the sums must not depend on where these end.
    for (images, size) in [(1, [8, 8]), (5, [13, 1]), (11, [14, 14]), (9, [16, 16])] {
        let shape = [images, 3, size[0], size[1]];
        let x = values(shape.iter().product(), 20);
        let (gamma, beta) = ([1.5, -0.5, 0.1], [0.0, 0.5, -2.0]);
        let (found, _) = run(Kind::Plain, shape, &x, &gamma, &beta, 21);
        let (y, mean, variance) = definition(Kind::Plain, shape, &wide(&x), &wide(&gamma), &wide(&beta));
        let (found_mean, found_variance) = found.moments.unwrap();
        assert_close("y", &found.y, &y, 1e-5);
        assert_close("mean", &found_mean, &mean, 1e-7);
        assert_close("variance", &found_variance, &variance, 1e-7);
    }
}

#[test]
fn variance_far_from_zero_keeps_its_digits() {
    // Mean 1000, variance about 1/3: the textbook difference of squares would lose all digits.
    let shape = [4, 2, 30, 30];
    let x: Vec<f32> = values(shape.iter().product(), 22).iter().map(|v| v + 1000.0).collect();
    let (found, _) = run(Kind::Plain, shape, &x, &[1.0, 1.0], &[0.0, 0.0], 23);
    let (_, mean, variance) = definition(Kind::Plain, shape, &wide(&x), &[1.0; 2], &[0.0; 2]);
    let (found_mean, found_variance) = found.moments.unwrap();
    // One rounding of 1000 is 3e-5, one of the variance 1.5e-8.
    assert_close("mean", &found_mean, &mean, 3.1e-5);
    assert_close("variance", &found_variance, &variance, 1e-7);
}

#[test]
fn agrees_with_the_engine() {
    let device = Device::flex().autodiff();
    let shape = [6, 5, 7, 9];
    let x: Tensor<4> = Tensor::from_data(TensorData::new(values(1890, 24), shape), &device);
    let gamma = Tensor::<1>::from_floats(values(5, 25).as_slice(), &device);
    let beta = Tensor::<1>::from_floats(values(5, 26).as_slice(), &device);
    let gradient = |ours: bool| {
        let x = x.clone().require_grad();
        let y = if ours {
            batch_norm_relu_max_pool2(x.clone(), gamma.clone(), beta.clone(), EPSILON).output
        } else {
            let result = module::batch_norm_train(x.clone(), gamma.clone(), beta.clone(), EPSILON);
            module::max_pool2d(relu(result.output), MaxPoolOptions::new([2, 2]))
        };
        let gradients = y.clone().powi_scalar(2).sum().backward();
        (floats(y), floats(x.grad(&gradients).unwrap()))
    };
    let (ours, theirs) = (gradient(true), gradient(false));
    assert_close("y", &ours.0, &wide(&theirs.0), 1e-5);
    assert_close("dx", &ours.1, &wide(&theirs.1), 1e-5);
}

#[test]
fn the_first_of_equal_values_takes_the_gradient() {
    let device = Device::flex().autodiff();
    // Channel 0 is the window [1 1 / 0 0], channel 1 is [0 1 / 1 1] (in the order of the rows).
    let x = Tensor::<4>::from_floats([[[[1.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]]], &device);
    let winner = |x: Tensor<4>| {
        let x = x.require_grad();
        let ones = Tensor::ones([2], &device);
        let zeros = Tensor::zeros([2], &device);
        let y = batch_norm_fixed(
            x.clone(),
            ones,
            zeros.clone(),
            zeros,
            Tensor::ones([2], &device),
            0.0,
            Activation::Relu,
        );
        let y = module::max_pool2d(y, MaxPoolOptions::new([2, 2]));
        floats(x.grad(&y.sum().backward()).unwrap())
    };
    let by_engine = winner(x.clone());
    assert_eq!(by_engine, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    let x = x.require_grad();
    let result = batch_norm_relu_max_pool2(
        x.clone(),
        Tensor::ones([2], &device),
        Tensor::zeros([2], &device),
        EPSILON,
    );
    let dx = floats(x.grad(&result.output.sum().backward()).unwrap());
    // Through the statistics every position has a gradient; the largest is the winner's.
    for (dx, by_engine) in dx.chunks(4).zip(by_engine.chunks(4)) {
        let largest = (0..4).max_by(|a, b| dx[*a].total_cmp(&dx[*b])).unwrap();
        assert_eq!(by_engine[largest], 1.0, "{dx:?} {by_engine:?}");
    }
}

#[test]
fn not_a_number_stays_visible() {
    let device = Device::flex();
    for kind in KINDS {
        let mut x = values(2 * 3 * 16, 27);
        x[5] = f32::NAN;
        let x: Tensor<4> = Tensor::from_data(TensorData::new(x, [2, 3, 4, 4]), &device);
        let (y, _) = kernel(kind, x, Tensor::ones([3], &device), Tensor::zeros([3], &device));
        let y = floats(y);
        assert!(y.iter().any(|value| value.is_nan()), "{kind:?}");
        let other_channel = y.len() / 6..y.len() / 3;
        assert!(y[other_channel].iter().all(|value| value.is_finite()), "{kind:?}");
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for kind in KINDS {
        let shape = [23, 10, 15, 14];
        let x = values(shape.iter().product(), 28);
        let (gamma, beta) = (values(10, 29), values(10, 30));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (run, _) = pool.install(|| run(kind, shape, &x, &gamma, &beta, 31));
            let [dx, dgamma, dbeta] = run.gradients;
            [run.y, dx, dgamma, dbeta]
                .map(|values| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
        };
        let one = with(1);
        for threads in [2, 3, 7] {
            assert_eq!(with(threads), one, "{kind:?}, {threads} threads");
        }
    }
}
