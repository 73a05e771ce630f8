//! Chains of convolutions with batch norm against their definition in `f64`. Gradients are compared with
//! central differences of the definition.

use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor, TensorData, module};
use gallerist_kernels::{Activation, ConvNorm, Shortcut, Statistics, conv_norm_chain};

const EPSILON: f64 = 1e-2;

/// A layer: sizes, and what follows.
#[derive(Clone, Copy, Debug)]
struct Layer {
    channels: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
    activation: Activation,
    batch: bool,
}

impl Layer {
    fn pointwise(channels: usize, activation: Activation) -> Self {
        Layer { channels, kernel: 1, stride: 1, groups: 1, activation, batch: true }
    }

    fn depthwise(channels: usize, stride: usize, activation: Activation) -> Self {
        Layer { channels, kernel: 3, stride, groups: channels, activation, batch: true }
    }

    fn dense(channels: usize, stride: usize, activation: Activation) -> Self {
        Layer { channels, kernel: 3, stride, groups: 1, activation, batch: true }
    }

    fn fixed(self) -> Self {
        Layer { batch: false, ..self }
    }

    fn weight(&self, inputs: usize) -> [usize; 4] {
        [self.channels, inputs / self.groups, self.kernel, self.kernel]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Added {
    Nothing,
    Input,
    Maps,
}

/// All tensors of a case, in the order x, maps to add, then weight, gamma, beta, mean and variance of every
/// layer.
type Tensors = Vec<Vec<f64>>;

const PER_LAYER: usize = 5;

fn definition(shape: [usize; 4], layers: &[Layer], added: Added, tensors: &Tensors) -> Vec<f64> {
    let [images, mut channels, mut height, mut width] = shape;
    let mut x = tensors[0].clone();
    for (k, layer) in layers.iter().enumerate() {
        let [weight, gamma, beta, mean, variance] = &tensors[2 + PER_LAYER * k..][..PER_LAYER] else {
            unreachable!()
        };
        let padding = layer.kernel / 2;
        let size = |size: usize| (size + 2 * padding - layer.kernel) / layer.stride + 1;
        let (rows, columns) = (size(height), size(width));
        let (inside, outside) = (channels / layer.groups, layer.channels / layer.groups);
        let mut y = vec![0.0; images * layer.channels * rows * columns];
        for (at, y) in y.iter_mut().enumerate() {
            let (j, i) = (at % columns, at / columns % rows);
            let (o, n) = (at / (columns * rows) % layer.channels, at / (columns * rows * layer.channels));
            for c in 0..inside {
                for a in 0..layer.kernel {
                    for b in 0..layer.kernel {
                        let (row, column) = (i * layer.stride + a, j * layer.stride + b);
                        if row < padding
                            || column < padding
                            || row >= height + padding
                            || column >= width + padding
                        {
                            continue;
                        }
                        let from = o / outside * inside + c;
                        let at = ((n * channels + from) * height + row - padding) * width + column - padding;
                        let of_weight = ((o * inside + c) * layer.kernel + a) * layer.kernel + b;
                        *y += x[at] * weight[of_weight];
                    }
                }
            }
        }
        (channels, height, width) = (layer.channels, rows, columns);
        let area = rows * columns;
        for c in 0..channels {
            let of_channel =
                || (0..images).flat_map(move |n| (0..area).map(move |p| (n * channels + c) * area + p));
            let count = (images * area) as f64;
            let (mean, variance) = if layer.batch {
                let mean = of_channel().map(|i| y[i]).sum::<f64>() / count;
                (mean, of_channel().map(|i| (y[i] - mean).powi(2)).sum::<f64>() / count)
            } else {
                (mean[c], variance[c])
            };
            for i in of_channel() {
                y[i] = gamma[c] * (y[i] - mean) / (variance + EPSILON).sqrt() + beta[c];
                if k + 1 == layers.len() && added != Added::Nothing {
                    y[i] += if added == Added::Input { tensors[0][i] } else { tensors[1][i] };
                }
                y[i] = match layer.activation {
                    Activation::None => y[i],
                    Activation::Relu => y[i].max(0.0),
                    Activation::Relu6 => y[i].clamp(0.0, 6.0),
                    Activation::Silu => y[i] / (1.0 + (-y[i]).exp()),
                    Activation::HardSwish => y[i] * (y[i] / 6.0 + 0.5).clamp(0.0, 1.0),
                };
            }
        }
        x = y;
    }
    x
}

/// Values in [-1, 1) that look random.
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

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// Checks the result and the gradients of all tensors of which `tracked` says so.
fn check(shape: [usize; 4], layers: &[Layer], added: Added, tracked: impl Fn(usize) -> bool) {
    let device = Device::flex().autodiff();
    let mut tensors: Vec<Vec<f32>> = vec![values(shape.iter().product(), 1)];
    let mut inputs = shape[1];
    let mut size = [shape[2], shape[3]];
    let mut of_layers = Vec::new();
    for (k, layer) in layers.iter().enumerate() {
        let weight = layer.weight(inputs);
        let seed = 10 * (k as u64 + 1);
        of_layers.push(values(weight.iter().product(), seed));
        of_layers.push(values(layer.channels, seed + 1).iter().map(|v| 2.0 * v + 0.5 * v.signum()).collect());
        of_layers.push(values(layer.channels, seed + 2));
        of_layers.push(values(layer.channels, seed + 3));
        of_layers.push(values(layer.channels, seed + 4).iter().map(|v| 1.5 + v).collect());
        inputs = layer.channels;
        size = size.map(|size| (size + 2 * (layer.kernel / 2) - layer.kernel) / layer.stride + 1);
    }
    let result = [shape[0], inputs, size[0], size[1]];
    tensors.push(values(result.iter().product(), 2));
    tensors.append(&mut of_layers);

    let maps = |values: &[f32], shape: [usize; 4], which: usize| -> Tensor<4> {
        let tensor = Tensor::from_data(TensorData::new(values.to_vec(), shape), &device);
        if tracked(which) { tensor.require_grad() } else { tensor }
    };
    let vector = |which: usize| -> Tensor<1> {
        let tensor = Tensor::from_floats(tensors[which].as_slice(), &device);
        if tracked(which) { tensor.require_grad() } else { tensor }
    };
    let x = maps(&tensors[0], shape, 0);
    let other = maps(&tensors[1], result, 1);
    let mut chain = Vec::new();
    let mut inputs = shape[1];
    for (k, layer) in layers.iter().enumerate() {
        let first = 2 + PER_LAYER * k;
        let padding = layer.kernel / 2;
        chain.push(ConvNorm {
            weight: maps(&tensors[first], layer.weight(inputs), first),
            options: ConvOptions::new([layer.stride; 2], [padding; 2], [1, 1], layer.groups),
            gamma: vector(first + 1),
            beta: vector(first + 2),
            statistics: match layer.batch {
                true => Statistics::Batch,
                false => Statistics::Given {
                    mean: Tensor::from_floats(tensors[first + 3].as_slice(), &device),
                    variance: Tensor::from_floats(tensors[first + 4].as_slice(), &device),
                },
            },
            epsilon: EPSILON,
            activation: layer.activation,
        });
        inputs = layer.channels;
    }
    let shortcut = match added {
        Added::Nothing => Shortcut::None,
        Added::Input => Shortcut::Input,
        Added::Maps => Shortcut::Maps(other.clone()),
    };
    let out = conv_norm_chain(x.clone(), chain.clone(), shortcut);
    for (layer, moments) in layers.iter().zip(&out.moments) {
        assert_eq!(layer.batch, moments.is_some());
    }
    assert_eq!(out.output.dims(), result);

    let wide: Tensors = tensors.iter().map(|of| of.iter().map(|v| f64::from(*v)).collect()).collect();
    let wanted = definition(shape, layers, added, &wide);
    for (i, (found, wanted)) in floats(out.output.clone()).iter().zip(&wanted).enumerate() {
        // Values are below 30; statistics of few values magnify roundings.
        assert!((f64::from(*found) - wanted).abs() < 1e-4, "y[{i}] is {found}, not {wanted}: {layers:?}");
    }

    let dy = values(wanted.len(), 3);
    let weights = Tensor::<4>::from_data(TensorData::new(dy.clone(), result), &device);
    let gradients = (out.output * weights).sum().backward();
    let mut found: Vec<(usize, Option<Vec<f32>>)> = vec![(0, x.grad(&gradients).map(floats))];
    if added == Added::Maps {
        found.push((1, other.grad(&gradients).map(floats)));
    }
    for (k, layer) in chain.iter().enumerate() {
        let first = 2 + PER_LAYER * k;
        found.push((first, layer.weight.grad(&gradients).map(floats)));
        found.push((first + 1, layer.gamma.grad(&gradients).map(floats)));
        found.push((first + 2, layer.beta.grad(&gradients).map(floats)));
    }
    let loss = |tensors: &Tensors| -> f64 {
        definition(shape, layers, added, tensors).iter().zip(&dy).map(|(y, dy)| y * f64::from(*dy)).sum()
    };
    let middle = loss(&wide);
    let h = 1e-6;
    for (which, found) in found {
        assert_eq!(found.is_some(), tracked(which), "gradient of tensor {which}: {layers:?}");
        let Some(found) = found else { continue };
        assert_eq!(found.len(), wide[which].len());
        let (mut smooth, mut largest) = (0, 1f64);
        for index in 0..found.len() {
            let at = |step: f64| {
                let mut moved = wide.clone();
                moved[which][index] += step;
                loss(&moved)
            };
            let (below, above) = (at(-h), at(h));
            // A step over a kink of an activation: there is no derivative nearby.
            if ((above - middle) - (middle - below)).abs() / h > 1e-3 {
                continue;
            }
            smooth += 1;
            let wanted = (above - below) / (2.0 * h);
            largest = largest.max(wanted.abs());
            let error = (f64::from(found[index]) - wanted).abs();
            assert!(
                error < 2e-4 * largest,
                "gradient {index} of tensor {which} is {}, not {wanted}: {layers:?}, {added:?}",
                found[index]
            );
        }
        assert!(
            smooth * 2 > found.len(),
            "{smooth} of {} entries of tensor {which} were compared",
            found.len()
        );
    }
}

use Activation::{HardSwish, None as Linear, Relu, Relu6, Silu};

#[test]
fn an_inverted_residual_block_equals_the_definition() {
    let block = [Layer::pointwise(17, Relu), Layer::depthwise(17, 1, Relu), Layer::pointwise(3, Linear)];
    check([2, 3, 4, 5], &block, Added::Input, |_| true);
    check([2, 3, 4, 5], &block.map(Layer::fixed), Added::Input, |_| true);
}

#[test]
fn a_strided_block_with_a_bounded_activation_equals_the_definition() {
    let block = [Layer::pointwise(9, Relu6), Layer::depthwise(9, 2, Relu6), Layer::pointwise(4, Linear)];
    check([2, 3, 5, 4], &block, Added::Nothing, |_| true);
    check([2, 3, 5, 4], &block.map(Layer::fixed), Added::Nothing, |_| true);
}

#[test]
fn gated_activations_equal_the_definition() {
    for gated in [Silu, HardSwish] {
        let block = [Layer::pointwise(9, gated), Layer::depthwise(9, 2, gated), Layer::pointwise(4, gated)];
        check([2, 3, 5, 4], &block, Added::Nothing, |_| true);
        check([2, 3, 5, 4], &block.map(Layer::fixed), Added::Nothing, |_| true);
        check([2, 3, 5, 4], &block[..1], Added::Nothing, |_| true);
        check([2, 3, 5, 4], &block, Added::Nothing, |which| which == 0);
        check([2, 3, 5, 4], &block, Added::Maps, |_| true);
        let block = [Layer::dense(4, 1, gated), Layer::dense(3, 1, gated)];
        check([2, 3, 3, 4], &block, Added::Input, |_| true);
        check([2, 3, 3, 4], &block.map(Layer::fixed), Added::Input, |_| true);
    }
}

#[test]
fn a_residual_block_equals_the_definition() {
    let block = [Layer::dense(4, 2, Relu), Layer::dense(4, 1, Relu)];
    check([2, 3, 5, 4], &block, Added::Maps, |_| true);
    check([2, 3, 5, 4], &block.map(Layer::fixed), Added::Maps, |_| true);
    let block = [Layer::dense(3, 1, Relu), Layer::dense(3, 1, Relu6)];
    check([2, 3, 3, 4], &block, Added::Input, |_| true);
}

#[test]
fn one_layer_equals_the_definition() {
    check([3, 2, 4, 4], &[Layer::dense(5, 2, Relu)], Added::Nothing, |_| true);
    check([3, 2, 4, 4], &[Layer::pointwise(5, Linear)], Added::Maps, |_| true);
    for layer in [Layer::dense(5, 1, Relu6), Layer::depthwise(2, 1, Relu), Layer::pointwise(3, Relu)] {
        check([2, 2, 4, 3], &[layer], Added::Nothing, |_| true);
        check([2, 2, 4, 3], &[layer.fixed()], Added::Nothing, |_| true);
    }
}

#[test]
fn a_chain_longer_than_one_operation_equals_the_definition() {
    let layers = [
        Layer::dense(3, 1, Relu),
        Layer::pointwise(5, Relu),
        Layer::depthwise(5, 1, Relu).fixed(),
        Layer::pointwise(2, Relu6),
        Layer::pointwise(4, Relu),
        Layer::pointwise(2, Linear),
    ];
    check([2, 2, 3, 4], &layers, Added::Input, |_| true);
}

#[test]
fn only_what_is_tracked_has_a_gradient() {
    let block = [Layer::pointwise(6, Relu), Layer::depthwise(6, 1, Relu), Layer::pointwise(3, Linear)];
    let weights = |which: usize| which >= 2 && (which - 2).is_multiple_of(PER_LAYER);
    for block in [block, block.map(Layer::fixed)] {
        check([2, 3, 3, 4], &block, Added::Input, |which| which == 0);
        check([2, 3, 3, 4], &block, Added::Nothing, |which| which == 2 + 2 * PER_LAYER);
        check([2, 3, 3, 4], &block, Added::Input, weights);
        check([2, 3, 3, 4], &block, Added::Input, |which| weights(which) || which == 0);
        check([2, 3, 3, 4], &block, Added::Maps, |which| weights(which) || which == 1);
        check([2, 3, 3, 4], &block, Added::Nothing, |which| which == 2 + PER_LAYER + 1);
    }
}

/// Result and gradients of an inverted residual block large enough for several tiles and parts, by the chain or
/// by the engine: x, then weight, gamma and beta of each layer.
fn large_block(
    by_chain: bool,
    shape: [usize; 4],
    stride: usize,
    batch: bool,
    affine: bool,
    activation: Activation,
) -> Vec<Vec<f32>> {
    let device = Device::flex().autodiff();
    let tensor = |shape: [usize; 4], seed| -> Tensor<4> {
        let values = TensorData::new(values(shape.iter().product(), seed), shape);
        Tensor::<4>::from_data(values, &device).require_grad()
    };
    let norm = |channels: usize, seed| -> Tensor<1> {
        Tensor::<1>::from_floats(values(channels, seed).as_slice(), &device).set_require_grad(affine)
    };
    let x = tensor(shape, 1);
    // More than one part of the last maps, too.
    let outside = if stride == 1 { 8 } else { 192 };
    let sizes = [([48, 8, 1, 1], 1, 1), ([48, 1, 3, 3], 48, stride), ([outside, 48, 1, 1], 1, 1)];
    let layer = |k: usize| {
        let (shape, groups, stride) = sizes[k];
        let seed = 10 * k as u64;
        let statistics = match batch {
            true => Statistics::Batch,
            false => Statistics::Given {
                mean: Tensor::from_floats(values(shape[0], seed + 4).as_slice(), &device),
                variance: Tensor::ones([shape[0]], &device),
            },
        };
        ConvNorm {
            weight: tensor(shape, seed + 1),
            options: ConvOptions::new([stride; 2], [shape[2] / 2; 2], [1, 1], groups),
            gamma: norm(shape[0], seed + 2),
            beta: norm(shape[0], seed + 3),
            statistics,
            epsilon: 1e-5,
            activation: if k < 2 || stride == 2 { activation } else { Linear },
        }
    };
    let layers: Vec<ConvNorm> = (0..3).map(layer).collect();
    let y = if by_chain {
        let shortcut = if stride == 1 { Shortcut::Input } else { Shortcut::None };
        conv_norm_chain(x.clone(), layers.clone(), shortcut).output
    } else {
        let mut y = x.clone();
        for layer in layers.clone() {
            let ConvNorm { weight, options, gamma, beta, statistics, epsilon, activation } = layer;
            y = module::conv2d(y, weight, None, options);
            y = match statistics {
                Statistics::Batch => module::batch_norm_train(y, gamma, beta, epsilon).output,
                Statistics::Given { mean, variance } => {
                    module::batch_norm(y, gamma, beta, mean, variance, epsilon)
                }
            };
            y = activation.apply(y);
        }
        if stride == 1 { y + x.clone() } else { y }
    };
    let dy = TensorData::new(values(y.dims().iter().product(), 5), y.dims());
    let gradients = (y.clone() * Tensor::<4>::from_data(dy, &device)).sum().backward();
    let mut all = vec![floats(y), floats(x.grad(&gradients).unwrap())];
    for layer in &layers {
        all.push(floats(layer.weight.grad(&gradients).unwrap()));
        if affine {
            all.push(floats(layer.gamma.grad(&gradients).unwrap()));
            all.push(floats(layer.beta.grad(&gradients).unwrap()));
        }
    }
    all
}

#[test]
fn several_tiles_and_parts_give_what_the_engine_gives() {
    // A value within rounding of ReLU's kink may fall on either side, which changes the gradients near it.
    for (activation, tolerance) in [(Linear, 1e-3), (Relu, 5e-2), (Silu, 1e-3)] {
        // Tiles of several images, and of some rows of one.
        for (shape, stride) in
            [([9, 8, 20, 21], 1), ([9, 8, 20, 21], 2), ([2, 8, 41, 40], 1), ([2, 8, 41, 40], 2)]
        {
            for (batch, affine) in [(true, true), (false, true), (false, false)] {
                let run = |by_chain| large_block(by_chain, shape, stride, batch, affine, activation);
                for (which, (ours, theirs)) in run(true).iter().zip(&run(false)).enumerate() {
                    let largest = theirs.iter().fold(1f32, |most, v| most.max(v.abs()));
                    for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                        assert!(
                            (ours - theirs).abs() < tolerance * largest,
                            "tensor {which}[{i}] is {ours}, not {theirs}: {activation:?}, stride {stride}, \
                             {batch}, {affine}, largest {largest}"
                        );
                    }
                }
            }
        }
    }
}
