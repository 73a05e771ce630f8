use burn::tensor::ops::ConvOptions;

use super::*;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::product::{Choice, Precision, Unit, units};

fn small(i: usize) -> f32 {
    (i * 7 % 11) as f32 - 5.0
}

/// Small whole numbers: every sum is exact, so that no tolerance hides a wrong term. Sizes are
/// small enough for Miri, which checks the addresses.
#[test]
fn small_convolutions_equal_the_definition() {
    equal_the_definition(&[
        (2, 4, 5, 1, [2, 3], [3, 3], [1, 1], [1, 1]),
        (1, 5, 4, 1, [1, 2], [3, 2], [2, 3], [0, 2]),
        (2, 3, 3, 2, [2, 1], [1, 1], [1, 1], [0, 0]),
        (1, 4, 4, 3, [1, 1], [3, 3], [2, 1], [1, 1]),
        (2, 3, 4, 3, [1, 1], [3, 3], [1, 1], [1, 1]),
        (2, 3, 3, 1, [2, 5], [1, 1], [1, 1], [0, 0]),
        (2, 3, 3, 1, [3, 1], [1, 1], [1, 1], [0, 0]),
        (1, 2, 2, 1, [1, 1], [1, 1], [3, 3], [0, 0]),
    ]);
}

/// Several threads write parts of one result: for ThreadSanitizer, which runs this test.
#[test]
#[cfg_attr(miri, ignore = "slow")]
fn convolutions_of_several_tiles_equal_the_definition() {
    equal_the_definition(&[
        (5, 23, 25, 1, [3, 20], [3, 3], [1, 1], [1, 1]),
        (5, 23, 25, 2, [5, 4], [3, 3], [2, 2], [1, 1]),
        (5, 23, 25, 1, [17, 18], [1, 1], [1, 1], [0, 0]),
        (3, 7, 7, 1, [361, 368], [1, 1], [1, 1], [0, 0]),
        (3, 7, 7, 1, [384, 345], [1, 1], [1, 1], [0, 0]),
        (5, 23, 25, 20, [1, 1], [3, 3], [1, 1], [1, 1]),
    ]);
}

#[test]
fn panels_are_divided_among_the_threads() {
    use super::correlate::panels_of_split;
    // One tile and two threads: 15 panels as 4 + 4 + 4 + 3, 9 as single ones, 18 as six times 3.
    for (count, wanted) in [(15, 4), (9, 1), (18, 3), (16, 4), (6, 1), (3, 1), (1, 1), (0, 1)] {
        assert_eq!(panels_of_split(count, 1, 2), wanted, "{count} panels");
    }
    assert_eq!(panels_of_split(8, 100, 2), 8, "enough tiles");
    assert_eq!(panels_of_split(8, 3, 2), 4);
    assert_eq!(panels_of_split(8, 1, 16), 1);
}

/// Images, height, width, groups, channels in and out of a group, kernel, stride, padding.
type Case = (usize, usize, usize, usize, [usize; 2], [usize; 2], [usize; 2], [usize; 2]);

fn equal_the_definition(cases: &[Case]) {
    for &(images, height, width, groups, [channels_in, channels_out], kernel, stride, padding) in cases {
        let input = Maps { images, height, width, channels: groups * channels_in };
        let weight_shape = [groups * channels_out, channels_in, kernel[0], kernel[1]];
        let options = ConvOptions::new(stride, padding, [1, 1], groups);
        let sizes = Geometry::new(input, weight_shape, &options).unwrap();
        let output = sizes.output;
        let x: Vec<f32> = (0..input.len()).map(small).collect();
        let weight: Vec<f32> = (0..weight_shape.iter().product()).map(|i| small(i + 3)).collect();
        let dy: Vec<f32> = (0..output.len()).map(|i| small(i + 5)).collect();
        let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
        let mut dw = vec![0.0; weight.len()];
        for iy in 0..dy.len() {
            let (pixel, o) = (iy / output.channels, iy % output.channels);
            let (n, position) =
                (pixel / (output.height * output.width), pixel % (output.height * output.width));
            let (i, j) = (position / output.width, position % output.width);
            for tap in 0..kernel[0] * kernel[1] {
                let (a, b) = (tap / kernel[1], tap % kernel[1]);
                let row = (i * stride[0] + a).wrapping_sub(padding[0]);
                let column = (j * stride[1] + b).wrapping_sub(padding[1]);
                if row >= height || column >= width {
                    continue;
                }
                for c in 0..channels_in {
                    let channel = o / channels_out * channels_in + c;
                    let ix = ((n * height + row) * width + column) * input.channels + channel;
                    let iw = (o * channels_in + c) * kernel[0] * kernel[1] + tap;
                    y[iy] += x[ix] * weight[iw];
                    dx[ix] += dy[iy] * weight[iw];
                    dw[iw] += dy[iy] * x[ix];
                }
            }
        }
        let bias: Vec<f32> = (0..output.channels).map(|o| small(o + 2)).collect();
        let with_bias: Vec<f32> = y.iter().enumerate().map(|(i, y)| y + bias[i % bias.len()]).collect();
        let (of_x, of_dy) = (Source::Values(&x), Source::Values(&dy));
        let check = || {
            assert_eq!(forward::<()>(&of_x, &weight, None, &sizes, None).0[..], y, "{sizes:?}");
            let of_bias = forward::<()>(&of_x, &weight, Some(&bias), &sizes, None).0;
            assert_eq!(of_bias[..], with_bias, "{sizes:?}");
            let of_input = input_gradient::<()>(&weight, &of_dy, &sizes, None, None).0.unwrap();
            assert_eq!(of_input[..], dx, "{sizes:?}");
            assert_eq!(weight_gradient(&of_x, &of_dy, &sizes)[..], dw, "{sizes:?}");
            let both = both_gradients::<()>(&of_x, &weight, &of_dy, &sizes, None, None);
            assert_eq!(both.input.unwrap()[..], dx, "{sizes:?}");
            assert_eq!(both.weight[..], dw, "{sizes:?}");
            if sizes.is_depthwise() {
                return;
            }
            // Added to what is there, twice.
            let mut sum: Vec<f32> = (0..dx.len()).map(|i| small(i + 1)).collect();
            let wanted: Vec<f32> = sum.iter().zip(&dx).map(|(sum, dx)| sum + 2.0 * dx).collect();
            let none = input_gradient::<()>(&weight, &of_dy, &sizes, Some(&mut sum), None).0;
            assert!(none.is_none());
            both_gradients::<()>(&of_x, &weight, &of_dy, &sizes, Some(&mut sum), None);
            assert_eq!(sum, wanted, "{sizes:?}");
        };
        check();
        // Miri takes minutes for all of them.
        let units = [Unit::PORTABLE].into_iter().chain(units());
        for unit in units.filter(|_| !cfg!(miri) || kernel == [1, 1]) {
            Choice { precision: Precision::Bf16(unit), winograd: false }.scope(check);
        }
    }
}

#[test]
fn images_are_copied_with_the_channels_innermost_from_any_position_on() {
    for channels in [1, 2, 3, 4, 19] {
        let (images, area) = (3, 7);
        let x: Vec<f32> = (0..images * channels * area).map(|i| i as f32).collect();
        let innermost: Vec<f32> = (0..images * area * channels)
            .map(|i| (i / channels, i % channels))
            .map(|(position, channel)| x[(position / area * channels + channel) * area + position % area])
            .collect();
        let source = Source::Images { x: &x, channels, area };
        for first in 0..images * area {
            for count in 0..=images * area - first {
                let mut to = vec![f32::NAN; count * channels];
                source.copy_with_pitch(first * channels, channels, channels, &mut to);
                assert_eq!(to, innermost[first * channels..][..count * channels]);
                let mut to = vec![f32::NAN; count * (channels + 2)];
                source.copy_with_pitch(first * channels, channels, channels + 2, &mut to);
                let rows = to.chunks(channels + 2).map(|row| &row[..channels]);
                assert!(rows.eq(innermost[first * channels..].chunks(channels).take(count)));
            }
        }
    }
}
