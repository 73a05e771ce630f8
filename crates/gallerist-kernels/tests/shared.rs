//! Maps that several operations read: their gradient is the sum of what each finds.

use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Distribution, Tensor};
use gallerist_kernels::{Activation, ConvNorm, Shortcut, Statistics, conv_norm_chain, conv2d, max_pool2d};

const CHANNELS: usize = 6;

/// An operation on the maps, by its number, to a loss.
fn loss(which: usize, x: &Tensor<4>) -> Tensor<1> {
    let device = x.device();
    let layer = |channels: usize, kernel: usize, stride: usize, groups: usize| {
        let shape = [channels, CHANNELS / groups, kernel, kernel];
        let count: usize = shape.iter().product();
        let weight: Vec<f32> = (0..count).map(|i| ((i * 7 + which) % 13) as f32 / 6.0 - 1.0).collect();
        ConvNorm {
            weight: Tensor::<1>::from_floats(&weight[..], &device).reshape(shape).require_grad(),
            options: ConvOptions::new([stride; 2], [kernel / 2; 2], [1, 1], groups),
            gamma: Tensor::ones([channels], &device),
            beta: Tensor::zeros([channels], &device),
            statistics: Statistics::Batch,
            epsilon: 1e-3,
            activation: Activation::Relu,
        }
    };
    let chain =
        |layer: ConvNorm, shortcut: Shortcut| conv_norm_chain(x.clone(), vec![layer], shortcut).output;
    let y = match which {
        0 => chain(layer(4, 1, 1, 1), Shortcut::None),
        1 => chain(layer(9, 3, 2, 1), Shortcut::None),
        2 => chain(layer(CHANNELS, 3, 1, CHANNELS), Shortcut::None),
        3 => chain(layer(CHANNELS, 3, 1, 1), Shortcut::Input),
        4 => max_pool2d(x.clone(), MaxPoolOptions::new([3, 3]).with_stride([1, 1]).with_padding([1, 1])),
        5 => conv2d(x.clone(), layer(3, 3, 1, 1).weight, None, layer(3, 3, 1, 1).options),
        6 => x.clone().exp(),
        _ => chain(layer(CHANNELS, 1, 1, 1), Shortcut::Maps(x.clone())),
    };
    y.square().mean()
}

/// The gradient of the maps' origin for the sum of some losses.
fn gradient(of: &[usize], origin: &Tensor<4>, leaf: bool) -> Tensor<4> {
    let origin = origin.clone().detach().require_grad();
    let x = if leaf { origin.clone() } else { origin.clone().mul_scalar(0.5) };
    let sum = of.iter().map(|which| loss(*which, &x)).reduce(|a, b| a + b).unwrap();
    origin.grad(&sum.backward()).unwrap()
}

#[test]
fn the_gradient_is_the_sum_of_what_each_operation_finds() {
    let device = Device::flex().autodiff();
    let origin = Tensor::<4>::random([3, CHANNELS, 9, 8], Distribution::Uniform(-1.0, 1.0), &device);
    for of in [
        vec![0, 1],
        vec![0, 4, 1],
        vec![4, 0, 1, 3],
        vec![2, 0],
        vec![0, 2],
        vec![5, 1, 0, 5],
        vec![0, 6, 1],
        vec![6, 7, 0, 3],
        vec![0, 0, 0, 7, 7],
        vec![3, 3, 2, 4, 1, 5, 6, 7, 0],
    ] {
        for leaf in [false, true] {
            let alone = of.iter().map(|which| gradient(&[*which], &origin, leaf));
            let wanted = alone.reduce(|a, b| a + b).unwrap();
            let found = gradient(&of, &origin, leaf);
            let off = (found - wanted.clone()).abs().max().into_scalar::<f32>();
            let size = wanted.abs().max().into_scalar::<f32>();
            assert!(off <= 1e-5 * size, "{of:?}, {leaf}: off by {off} of {size}");
        }
    }
}

/// The engine hands the same gradient to both summands; a chain changes its own where it lies.
#[test]
fn a_gradient_that_others_have_is_not_changed() {
    let device = Device::flex().autodiff();
    let random = |range| Tensor::<4>::random([2, CHANNELS, 5, 4], range, &device).require_grad();
    let [x, summand, factor] = [-1.0, -3.0, -2.0].map(|low| random(Distribution::Uniform(low, 1.0)));
    let layer = ConvNorm {
        weight: Tensor::ones([CHANNELS, CHANNELS, 1, 1], &device),
        options: ConvOptions::new([1; 2], [0; 2], [1, 1], 1),
        gamma: Tensor::ones([CHANNELS], &device),
        beta: Tensor::zeros([CHANNELS], &device),
        statistics: Statistics::Batch,
        epsilon: 1e-3,
        activation: Activation::Relu,
    };
    let y = conv_norm_chain(x, vec![layer], Shortcut::Maps(factor.clone())).output;
    let gradients = ((y + summand.clone()) * factor.clone().detach()).sum().backward();
    let of_summand = summand.grad(&gradients).unwrap();
    let off = (of_summand - factor.clone().inner()).abs().max().into_scalar::<f32>();
    assert_eq!(off, 0.0);
    assert!(factor.grad(&gradients).unwrap().abs().sum().into_scalar::<f32>() > 0.0);
}
