//! Pooling against its definition and against the engine.

use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};
use burn::tensor::{Device, Tensor, TensorData, module};
use gallerist_kernels::{avg_pool2d, concat_channels, global_average_pool, max_pool2d};
use proptest::prelude::*;

/// Few different values, so that ties are common.
fn coarse(shape: [usize; 4], seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..shape.iter().product())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 60) as f32 - 7.5
        })
        .collect()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// Maximum and gradient of the input for an output gradient of 1, 2, 3, ..., by the definition.
fn definition(x: &[f32], shape: [usize; 4], options: &MaxPoolOptions<2>) -> (Vec<f32>, Vec<f32>) {
    let [images, channels, height, width] = shape;
    let out = [0, 1].map(|axis| {
        let (before, after) = options.padding[axis];
        let (size, stride) = (shape[axis + 2], options.stride[axis]);
        let room = size + before + after - options.kernel_size[axis];
        match options.ceil_mode {
            false => room / stride + 1,
            // Windows that reach out are counted as long as they start inside.
            true => (0..)
                .take_while(|i| *i == 0 || ((i - 1) * stride < room && i * stride < size + before))
                .count(),
        }
    });
    let (mut y, mut dx) = (vec![], vec![0.0; x.len()]);
    for map in 0..images * channels {
        for i in 0..out[0] {
            for j in 0..out[1] {
                let mut best: Option<usize> = None;
                for a in 0..options.kernel_size[0] {
                    for b in 0..options.kernel_size[1] {
                        let row = (i * options.stride[0] + a).wrapping_sub(options.padding[0].0);
                        let column = (j * options.stride[1] + b).wrapping_sub(options.padding[1].0);
                        if row < height && column < width {
                            let index = (map * height + row) * width + column;
                            if best.is_none_or(|best| x[index] > x[best]) {
                                best = Some(index);
                            }
                        }
                    }
                }
                let best = best.expect("the padding is smaller than the window");
                y.push(x[best]);
                dx[best] += y.len() as f32;
            }
        }
    }
    (y, dx)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn maximum_and_gradient_equal_the_definition(
        images in 1usize..4,
        channels in 1usize..40,
        size in (1usize..9, 1usize..9),
        kernel in (1usize..4, 1usize..4),
        stride in (1usize..4, 1usize..4),
        padding in ((0usize..2, 0usize..2), (0usize..2, 0usize..2)),
        ceil in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let padding = [
            (padding.0.0.min(kernel.0 / 2), padding.0.1.min(kernel.0 / 2)),
            (padding.1.0.min(kernel.1 / 2), padding.1.1.min(kernel.1 / 2)),
        ];
        prop_assume!(size.0 + padding[0].0 + padding[0].1 >= kernel.0);
        prop_assume!(size.1 + padding[1].0 + padding[1].1 >= kernel.1);
        let options = MaxPoolOptions::new([kernel.0, kernel.1])
            .with_stride([stride.0, stride.1])
            .with_padding_pairs(padding)
            .with_ceil_mode(ceil);
        let shape = [images, channels, size.0, size.1];
        let values = coarse(shape, seed);
        let device = Device::flex().autodiff();
        let x: Tensor<4> = Tensor::from_data(TensorData::new(values.clone(), shape), &device);
        let x = x.require_grad();
        let y = max_pool2d(x.clone(), options.clone());
        let dy = (1..=y.dims().iter().product()).map(|i: usize| i as f32).collect::<Vec<_>>();
        let dy: Tensor<4> = Tensor::from_data(TensorData::new(dy, y.dims()), &device);
        let gradients = (y.clone() * dy).sum().backward();
        let (wanted_y, wanted_dx) = definition(&values, shape, &options);
        // Sums of few small whole numbers are exact.
        prop_assert_eq!(floats(y), wanted_y);
        prop_assert_eq!(floats(x.grad(&gradients).unwrap()), wanted_dx);
    }

    #[test]
    fn means_over_windows_and_their_gradient_equal_the_definition(
        images in 1usize..3,
        channels in prop_oneof![1usize..20, 60usize..70, 127usize..130],
        size in (1usize..9, 1usize..9),
        kernel in (1usize..4, 1usize..4),
        stride in (1usize..4, 1usize..4),
        padding in (0usize..2, 0usize..2),
        count_include_pad in any::<bool>(),
        ceil in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let padding = [padding.0.min(kernel.0 / 2), padding.1.min(kernel.1 / 2)];
        prop_assume!(size.0 + 2 * padding[0] >= kernel.0 && size.1 + 2 * padding[1] >= kernel.1);
        let options = AvgPoolOptions::new([kernel.0, kernel.1])
            .with_stride([stride.0, stride.1])
            .with_padding(padding)
            .with_count_include_pad(count_include_pad)
            .with_ceil_mode(ceil);
        let shape = [images, channels, size.0, size.1];
        let values = coarse(shape, seed);
        let device = Device::flex().autodiff();
        let x: Tensor<4> = Tensor::from_data(TensorData::new(values.clone(), shape), &device);
        let x = x.require_grad();
        let y = avg_pool2d(x.clone(), options.clone());
        let dims = y.dims();
        let dy = coarse(dims, seed + 1);
        let weights: Tensor<4> = Tensor::from_data(TensorData::new(dy.clone(), dims), &device);
        let gradients = (y.clone() * weights).sum().backward();
        let (mut wanted_y, mut wanted_dx) = (vec![], vec![0.0; values.len()]);
        for map in 0..images * channels {
            for (i, j) in (0..dims[2]).flat_map(|i| (0..dims[3]).map(move |j| (i, j))) {
                let (mut sum, mut seen, mut counted) = (0.0, vec![], 0);
                for (a, b) in (0..kernel.0).flat_map(|a| (0..kernel.1).map(move |b| (a, b))) {
                    let (row, column) = (i * stride.0 + a, j * stride.1 + b);
                    let padded = row < size.0 + 2 * padding[0] && column < size.1 + 2 * padding[1];
                    let (row, column) = (row.wrapping_sub(padding[0]), column.wrapping_sub(padding[1]));
                    let inside = row < size.0 && column < size.1;
                    counted += usize::from(if count_include_pad { padded } else { inside });
                    if inside {
                        let index = (map * size.0 + row) * size.1 + column;
                        sum += f64::from(values[index]);
                        seen.push(index);
                    }
                }
                let dy = f64::from(dy[wanted_y.len()]);
                wanted_y.push(sum / counted.max(1) as f64);
                seen.iter().for_each(|&index| wanted_dx[index] += dy / counted as f64);
            }
        }
        prop_assert_eq!(wanted_y.len(), dims.iter().product::<usize>());
        for (found, wanted) in [(floats(y), wanted_y), (floats(x.grad(&gradients).unwrap()), wanted_dx)] {
            for (found, wanted) in found.into_iter().zip(wanted) {
                prop_assert!((f64::from(found) - wanted).abs() <= 1e-5, "{found} and {wanted}");
            }
        }
    }

    #[test]
    fn joined_channels_and_their_gradients_are_those_of_the_parts(
        images in 1usize..4,
        channels in prop::collection::vec(1usize..40, 1..9),
        size in (1usize..9, 1usize..30),
        constant in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let device = Device::flex().autodiff();
        let parts: Vec<Tensor<4>> = channels
            .iter()
            .zip(seed..)
            .map(|(&channels, seed)| {
                let shape = [images, channels, size.0, size.1];
                Tensor::from_data(TensorData::new(coarse(shape, seed), shape), &device)
            })
            .collect();
        // One of them carries no gradient.
        let learned = |i: usize| !(constant && i == 0 && channels.len() > 1);
        let parts: Vec<Tensor<4>> = (0..).zip(parts).map(|(i, x)| if learned(i) { x.require_grad() } else { x }).collect();
        let y = concat_channels(parts.clone());
        let wanted = Tensor::cat(parts.clone(), 1);
        prop_assert_eq!(y.dims(), wanted.dims());
        prop_assert_eq!(floats(y.clone()), floats(wanted));
        let dy: Tensor<4> = Tensor::from_data(TensorData::new(coarse(y.dims(), seed), y.dims()), &device);
        let gradients = (y * dy.clone()).sum().backward();
        let mut from = 0;
        for (i, (part, width)) in parts.iter().zip(&channels).enumerate() {
            let wanted = dy.clone().narrow(1, from, *width);
            let found = part.grad(&gradients);
            prop_assert_eq!(found.is_some(), learned(i));
            if let Some(found) = found {
                prop_assert_eq!(floats(found), floats(wanted));
            }
            from += width;
        }
    }

    #[test]
    fn mean_and_gradient_equal_the_definition(
        images in 1usize..4,
        channels in 1usize..40,
        size in (1usize..9, 1usize..9),
        seed in 0u64..1000,
    ) {
        let shape = [images, channels, size.0, size.1];
        let values = coarse(shape, seed);
        let area = (size.0 * size.1) as f32;
        let device = Device::flex().autodiff();
        let x: Tensor<4> = Tensor::from_data(TensorData::new(values.clone(), shape), &device);
        let x = x.require_grad();
        let y = global_average_pool(x.clone());
        prop_assert_eq!(y.dims(), [images, channels]);
        let dy = (1..=images * channels).map(|i| i as f32).collect::<Vec<_>>();
        let weights: Tensor<2> =
            Tensor::from_data(TensorData::new(dy.clone(), [images, channels]), &device);
        let gradients = (y.clone() * weights).sum().backward();
        let maps = values.chunks(size.0 * size.1);
        // Sums of few multiples of 1/2 are exact, and so is everything but the division.
        let wanted: Vec<f32> = maps.map(|map| map.iter().sum::<f32>() / area).collect();
        prop_assert_eq!(floats(y), wanted);
        let wanted: Vec<f32> = (0..values.len())
            .map(|index| dy[index / (size.0 * size.1)] / area)
            .collect();
        prop_assert_eq!(floats(x.grad(&gradients).unwrap()), wanted);
    }
}

#[test]
fn what_the_kernel_does_not_cover_goes_to_the_engine() {
    let shape = [2, 3, 7, 7];
    let device = Device::flex();
    let x: Tensor<4> = Tensor::from_data(TensorData::new(coarse(shape, 1), shape), &device);
    let options = MaxPoolOptions::new([2, 2]).with_dilation([2, 2]);
    assert_eq!(floats(max_pool2d(x.clone(), options.clone())), floats(module::max_pool2d(x, options)));
}

#[test]
fn sizes_rounded_up_are_the_engines() {
    let device = Device::flex();
    for (size, kernel, stride, padding) in
        [(7, 2, 2, 0), (14, 3, 2, 0), (8, 3, 2, 1), (5, 3, 1, 1), (3, 2, 3, 1), (4, 1, 3, 0)]
    {
        let shape = [2, 3, size, size + 1];
        let x: Tensor<4> = Tensor::from_data(TensorData::new(coarse(shape, 1), shape), &device);
        let options = MaxPoolOptions::new([kernel; 2])
            .with_stride([stride; 2])
            .with_padding([padding; 2])
            .with_ceil_mode(true);
        let (found, wanted) = (max_pool2d(x.clone(), options.clone()), module::max_pool2d(x, options));
        assert_eq!(found.dims(), wanted.dims());
        assert_eq!(floats(found), floats(wanted));
    }
}

#[test]
fn means_of_sizes_rounded_up_are_the_engines() {
    let device = Device::flex();
    for (size, kernel, stride, padding) in
        [(7, 2, 2, 0), (14, 3, 2, 0), (8, 3, 2, 1), (5, 3, 1, 1), (3, 2, 3, 1), (4, 1, 3, 0)]
    {
        for ceil in [false, true] {
            let shape = [2, 3, size, size + 1];
            let x: Tensor<4> = Tensor::from_data(TensorData::new(coarse(shape, 1), shape), &device);
            let options = AvgPoolOptions::new([kernel; 2])
                .with_stride([stride; 2])
                .with_padding([padding; 2])
                .with_ceil_mode(ceil);
            let (found, wanted) = (avg_pool2d(x.clone(), options.clone()), module::avg_pool2d(x, options));
            assert_eq!(found.dims(), wanted.dims());
            for (found, wanted) in floats(found).into_iter().zip(floats(wanted)) {
                assert!((found - wanted).abs() <= 1e-6, "{found} and {wanted}");
            }
        }
    }
}

#[test]
fn not_a_number_wins_its_windows() {
    let device = Device::flex();
    let mut values = coarse([1, 1, 4, 4], 2);
    values[5] = f32::NAN;
    let x: Tensor<4> = Tensor::from_data(TensorData::new(values, [1, 1, 4, 4]), &device);
    let y = floats(max_pool2d(x, MaxPoolOptions::new([2, 2])));
    assert!(y[0].is_nan());
    assert!(y[1..].iter().all(|value| value.is_finite()));
}
