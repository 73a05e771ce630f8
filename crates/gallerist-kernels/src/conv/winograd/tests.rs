use burn::tensor::ops::ConvOptions;

use super::*;
use crate::conv::{Place, Prepared, both_gradients, forward, input_gradient};
use crate::norm::Activation;
use crate::product::{Precision, Products, with_products};

/// Whether Winograd's algorithm is used at all: without vectors, as under Miri, panels are too narrow.
fn is_used() -> bool {
    panel_width().is_multiple_of(LANES)
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn geometry(images: usize, [height, width]: [usize; 2], channels: [usize; 2], padding: usize) -> Geometry {
    let [inputs, outputs] = channels;
    let options = ConvOptions::new([1, 1], [padding; 2], [1, 1], 1);
    let input = Maps { images, height, width, channels: inputs };
    Geometry::new(input, [outputs, inputs, 3, 3], &options).unwrap()
}

/// The convolution, its input gradient and its weight gradient in f64 from the definition.
fn definition(x: &[f32], weight: &[f32], dy: &[f32], sizes: &Geometry) -> [Vec<f64>; 3] {
    let (input, output) = (sizes.input, sizes.output);
    let [mut y, mut dx, mut dw] = [dy.len(), x.len(), weight.len()].map(|len| vec![0f64; len]);
    for position in 0..output.pixels() {
        let (image, rest) =
            (position / (output.height * output.width), position % (output.height * output.width));
        let (i, j) = (rest / output.width, rest % output.width);
        for tap in 0..9 {
            let row = (i + tap / 3).wrapping_sub(sizes.padding[0]);
            let column = (j + tap % 3).wrapping_sub(sizes.padding[1]);
            if row >= input.height || column >= input.width {
                continue;
            }
            let first = ((image * input.height + row) * input.width + column) * input.channels;
            for o in 0..output.channels {
                let at = position * output.channels + o;
                for c in 0..input.channels {
                    let w = (o * input.channels + c) * 9 + tap;
                    let (value, weight) = (f64::from(x[first + c]), f64::from(weight[w]));
                    y[at] += value * weight;
                    dx[first + c] += f64::from(dy[at]) * weight;
                    dw[w] += f64::from(dy[at]) * value;
                }
            }
        }
    }
    [y, dx, dw]
}

/// The largest error relative to the root mean square.
fn error(found: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let squares: f64 = wanted.iter().map(|value| value * value).sum();
    let errors = found.iter().zip(wanted).map(|(found, wanted)| (f64::from(*found) - wanted).abs());
    errors.fold(0.0, f64::max) / (squares / wanted.len() as f64).sqrt()
}

#[test]
fn results_are_those_of_the_definition_up_to_the_bound_of_the_error() {
    if !is_used() {
        return;
    }
    let cases = [
        (96, [4, 4], [16, 32], 1),
        (30, [7, 7], [64, 80], 1),
        (16, [9, 14], [32, 64], 0),
        (17, [6, 11], [48, 16], 2),
        (12, [9, 8], [16, 32], 3),
        (3, [28, 28], [96, 64], 1),
        (1, [57, 60], [32, 16], 1),
    ];
    for (images, sides, channels, padding) in cases {
        let sizes = geometry(images, sides, channels, padding);
        let (x, dy) = (numbers(sizes.input.len(), 1), numbers(sizes.output.len(), 3));
        let weight = numbers(channels[0] * channels[1] * 9, 2);
        let [y, dx, dw] = definition(&x, &weight, &dy, &sizes);
        let (of_x, of_dy) = (Source::Values(&x), Source::Values(&dy));
        let what = format!("{images} x {sides:?}, {channels:?}, padding {padding}");
        with_products(Products::F32, || {
            assert!(pays(&sizes), "{what}");
            let of_forward = error(&forward::<()>(&of_x, &weight, None, &sizes, None).0, &y);
            assert!(of_forward < 5e-5, "{what}: {of_forward}");
            let both = both_gradients::<()>(&of_x, &weight, &of_dy, &sizes, None, None);
            let of_input = error(&both.input.unwrap(), &dx);
            assert!(of_input < 5e-5, "{what}: {of_input}");
            let of_weight = error(&both.weight, &dw);
            assert!(of_weight < 1e-4, "{what}: {of_weight}");
            // Added to what is there.
            let mut sum = numbers(dx.len(), 5);
            let wanted: Vec<f64> = sum.iter().zip(&dx).map(|(sum, dx)| f64::from(*sum) + dx).collect();
            input_gradient::<()>(&weight, &of_dy, &sizes, Some(&mut sum), None);
            assert!(error(&sum, &wanted) < 5e-5, "{what}");
        });
    }
}

#[test]
fn parts_of_a_result_are_all_its_positions_in_order() {
    if !is_used() {
        return;
    }
    for (images, sides) in [(9, [14, 13]), (2, [57, 40]), (1, [9, 200])] {
        let sizes = geometry(images, sides, [16, 32], 1);
        let (x, weight) = (numbers(sizes.input.len(), 1), numbers(16 * 32 * 9, 2));
        let copy = |first: usize, values: &mut [f32]| {
            let copy = values.to_vec();
            values.iter_mut().for_each(|value| *value += 1.0);
            (first, copy)
        };
        let after: crate::conv::After<'_, (usize, Vec<f32>)> = &copy;
        let (y, parts) = with_products(Products::F32, || {
            let source = Source::Values(&x);
            forward(&source, &weight, None, &sizes, Some(after))
        });
        assert!(parts.len() > 1);
        let mut next = 0;
        for (first, values) in parts {
            assert_eq!(first, next);
            next += values.len();
            assert!(values.iter().zip(&y[first..]).all(|(before, after)| before + 1.0 == *after));
        }
        assert_eq!(next, y.len());
    }
}

#[test]
fn values_computed_for_a_tile_are_those_in_memory() {
    if !is_used() {
        return;
    }
    use crate::norm::Affine;
    let sizes = geometry(12, [11, 13], [32, 48], 1);
    let (x, weight) = (numbers(sizes.input.len(), 1), numbers(32 * 48 * 9, 2));
    let dy = numbers(sizes.output.len(), 3);
    let [gamma, beta, mean] = [5, 6, 7].map(|seed| numbers(32, seed));
    let affine = Affine::new(&gamma, &beta, &mean, &[0.5; 32], 1e-5);
    let activated = crate::norm::apply(&x, &affine, None, Activation::Relu);
    let computed = Source::Activated { x: &x, affine: &affine, activation: Activation::Relu };
    let (stored, of_dy) = (Source::Values(&activated), Source::Values(&dy));
    with_products(Products::F32, || {
        let [one, other] = [computed, stored].map(|source| {
            let y = forward::<()>(&source, &weight, None, &sizes, None).0;
            (y, both_gradients::<()>(&source, &weight, &of_dy, &sizes, None, None).weight)
        });
        assert_eq!(one.0[..], other.0[..]);
        assert_eq!(one.1[..], other.1[..]);
    });
}

#[test]
fn a_prepared_convolution_ends_with_bias_shortcut_and_activation() {
    if !is_used() {
        return;
    }
    for (images, sides, [inputs, outputs], padding) in
        [(1, [28, 28], [512, 64], 1), (3, [14, 15], [64, 80], 1), (1, [13, 18], [128, 144], 2)]
    {
        let sizes = geometry(images, sides, [inputs, outputs], padding);
        assert!(pays_if_prepared(&sizes));
        let (x, weight) = (numbers(sizes.input.len(), 1), numbers(outputs * inputs * 9, 2));
        let (bias, add) = (numbers(outputs, 3), numbers(sizes.output.len(), 4));
        let (pitch, channel) = (outputs + 5, 2);
        let mut values = vec![7.0; sizes.output.pixels() * pitch];
        let place = Place { values: &mut values, pitch, channel };
        let prepared = Prepared::new(&weight, &bias, &sizes, Activation::Relu, Products::F32);
        prepared.run(&Source::Values(&x), &sizes, Some(&add), place);
        let [sums, ..] = definition(&x, &weight, &vec![0.0; sizes.output.len()], &sizes);
        let (mut most, mut squares) = (0f64, 0f64);
        for (position, y) in values.chunks(pitch).enumerate() {
            assert!(y[..channel].iter().chain(&y[channel + outputs..]).all(|&value| value == 7.0));
            for c in 0..outputs {
                let at = position * outputs + c;
                let wanted = (sums[at] + f64::from(bias[c]) + f64::from(add[at])).max(0.0);
                most = most.max((f64::from(y[channel + c]) - wanted).abs());
                squares += sums[at] * sums[at];
            }
        }
        let error = most / (squares / sums.len() as f64).sqrt();
        assert!(error < 5e-5, "{images} x {sides:?}, {inputs} to {outputs}: {error}");
    }
}

#[test]
fn other_convolutions_are_left_to_the_definition() {
    let input = Maps { images: 64, height: 8, width: 8, channels: 16 };
    let geometry = |weight: [usize; 4], stride: usize, input: Maps| {
        let options = ConvOptions::new([stride; 2], [weight[2] / 2; 2], [1, 1], 1);
        Geometry::new(input, weight, &options).unwrap()
    };
    let fits = |weight: [usize; 4], stride: usize, input: Maps| fits(&geometry(weight, stride, input));
    assert_eq!(fits([16, 16, 3, 3], 1, input), is_used());
    assert!(!fits([16, 16, 3, 3], 2, input), "a stride");
    assert!(!fits([16, 16, 5, 5], 1, input), "another window");
    assert!(!fits([24, 16, 3, 3], 1, input), "channels that are no whole vectors");
    assert!(!fits([16, 16, 3, 3], 1, Maps { height: 3, ..input }), "maps smaller than a tile");
    let sizes = geometry([32, 16, 3, 3], 1, input);
    assert!(!pays(&sizes), "not unless it is chosen");
    with_products(Products::F32, || {
        assert_eq!(pays(&sizes), is_used());
        assert!(!pays(&geometry([16, 16, 3, 3], 1, input)), "few channels");
        assert!(!pays(&geometry([32, 16, 3, 3], 1, Maps { images: 5, ..input })), "few tiles");
        assert!(!pays(&geometry([32, 16, 3, 3], 1, Maps { height: 5, width: 5, ..input })), "empty tiles");
    });
    let bf16 = Choice { precision: Precision::Bf16(crate::product::Unit::PORTABLE), winograd: false };
    bf16.scope(|| assert!(!pays(&sizes)));
}
