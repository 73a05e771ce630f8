//! Layers of bytes against their definition, and the CPU's instructions against the portable code.

use super::unit::{Unit, fastest};
use super::*;
use crate::disjoint::Disjoint;
use crate::maps::Maps;

/// Numbers between 0 and 1 without a pattern.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count).map(|_| next()).collect()
}

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    numbers(count, seed).into_iter().map(|x| (x * 256.0) as u8).collect()
}

fn signed(count: usize, seed: u64) -> Vec<f32> {
    numbers(count, seed).into_iter().map(|x| 2.0 * x - 1.0).collect()
}

fn layout([height, width, channels]: [usize; 3], border: usize) -> Layout {
    let maps = Maps { images: 1, height, width, channels };
    Layout { before: [border; 2], after: [border; 2], ..Layout::new(maps, false) }
}

/// A convolution of bytes by the definition, at a position of the border's rows and columns, in f64.
fn by_definition(
    x: &[u8],
    of_x: &Layout,
    at: [usize; 2],
    weight: &[f32],
    [channels, kernel]: [usize; 2],
    first_channel: usize,
    scale: Scale,
) -> f64 {
    let largest = weight.iter().fold(0f32, |largest, weight| largest.max(weight.abs()));
    let step = largest / 127.0;
    let mut sum = 0;
    for (channel, a, b) in
        (0..channels).flat_map(|c| (0..kernel).flat_map(move |a| (0..kernel).map(move |b| (c, a, b))))
    {
        let byte = x[of_x.at_border(at[0] + a, at[1] + b) + first_channel + channel];
        let weight = (weight[(channel * kernel + a) * kernel + b] / step).round_ties_even() as i32;
        sum += (i32::from(byte) - i32::from(scale.zero)) * weight;
    }
    f64::from(sum) * f64::from(step) * f64::from(scale.step)
}

fn units() -> impl Iterator<Item = Unit> {
    [Unit::Portable, Unit::Vectors, Unit::Matrix].into_iter().filter(|&unit| unit <= fastest())
}

#[test]
fn a_convolution_has_the_values_of_its_definition_with_all_instructions() {
    let x = Scale { step: 0.02, zero: 117 };
    let y = Scale { step: 0.05, zero: 31 };
    let of_add = Scale { step: 0.03, zero: 9 };
    // Channels in and out, size of the window, stride: all numbers of vectors, whole blocks of rows and others.
    let shapes = [
        (3, 5, 3, 2),
        (16, 16, 1, 1),
        (24, 144, 1, 1),
        (40, 33, 3, 1),
        (17, 64, 1, 2),
        (12, 48, 2, 1),
        (8, 100, 5, 1),
    ];
    let (side, shapes) =
        if cfg!(miri) { (4, &[(3, 5, 3, 2), (17, 33, 1, 1)][..]) } else { (13, &shapes[..]) };
    for &(inputs, outputs, kernel, stride) in shapes {
        let of_x = layout([side, side, inputs], kernel / 2);
        let values = bytes(of_x.len(), 3);
        let count = (side + 2 * (kernel / 2) - kernel) / stride + 1;
        let of_y = layout([count, count, outputs], 1);
        let per_column = inputs * kernel * kernel;
        let (weight, bias) = (signed(outputs * per_column, 4), signed(outputs, 5));
        let added = bytes(of_y.len(), 6);
        let positions = |floats: bool| -> Vec<Position> {
            (0..count * count)
                .map(|i| (i / count, i % count))
                .map(|(row, column)| Position {
                    from: of_x.at_border(row * stride, column * stride) as u32,
                    to: if floats { (row * count + column) * outputs } else { of_y.at(row, column) } as u32,
                    add: of_y.at(row, column) as u32,
                })
                .collect()
        };
        let bounds = [0.0, 6.0];
        for with_add in [false, true] {
            let add = with_add.then_some(&added[..]);
            let scales = Scales { x, add: with_add.then_some(of_add), y: None, bounds };
            let wanted = |row: usize, column: usize, o: usize| {
                let at = [row * stride, column * stride];
                let weight = &weight[o * per_column..][..per_column];
                let sum =
                    by_definition(&values, &of_x, at, weight, [inputs, kernel], 0, x) + f64::from(bias[o]);
                let byte = i32::from(added[of_y.at(row, column) + o]) - i32::from(of_add.zero);
                let added = f64::from(byte) * f64::from(of_add.step);
                (sum + if with_add { added } else { 0.0 }).clamp(0.0, 6.0)
            };
            let taps = || Taps::new(&of_x, [kernel; 2]);
            let nothing = vec![0.0; per_column];
            let in_f32 = Dense::new(&weight, &nothing, &bias, taps(), scales);
            let in_bytes = Dense::new(&weight, &nothing, &bias, taps(), Scales { y: Some(y), ..scales });
            let mut results = Vec::new();
            for unit in units() {
                let mut floats = vec![f32::NAN; count * count * outputs];
                let mut bytes = vec![0xaa; of_y.len()];
                // SAFETY: nothing else accesses the results; the CPU has the instructions.
                unsafe {
                    let out = Out::Floats(Disjoint::new(&mut floats));
                    in_f32.compute_by(unit, &values, &positions(true), add, out);
                    let out = Out::Bytes(Disjoint::new(&mut bytes));
                    in_bytes.compute_by(unit, &values, &positions(false), add, out);
                }
                for (row, column, o) in (0..count)
                    .flat_map(|row| (0..count).map(move |column| (row, column)))
                    .flat_map(|(row, column)| (0..outputs).map(move |o| (row, column, o)))
                {
                    let wanted = wanted(row, column, o);
                    let found = f64::from(floats[(row * count + column) * outputs + o]);
                    assert!((found - wanted).abs() < 1e-4, "{inputs} to {outputs}: {found}, wanted {wanted}");
                    let position = wanted / f64::from(y.step) + f64::from(y.zero);
                    let found = f64::from(bytes[of_y.at(row, column) + o]);
                    assert!(
                        (found - position.clamp(0.0, 255.0)).abs() < 0.501,
                        "{inputs} to {outputs}: byte {found}, wanted {position}"
                    );
                }
                // The border is as it was.
                assert!(of_y.border().all(|part| bytes[part].iter().all(|&byte| byte == 0xaa)));
                results.push((floats, bytes));
            }
            assert!(results.iter().all(|result| *result == results[0]), "instructions with other results");
        }
    }
}

#[test]
fn a_depthwise_convolution_has_the_values_of_its_definition_with_all_instructions() {
    let x = Scale { step: 0.02, zero: 77 };
    let y = Scale { step: 0.04, zero: 100 };
    let shapes = [(16, 3, 1), (24, 3, 2), (96, 5, 1), (65, 5, 2), (130, 7, 1), (32, 4, 3)];
    let (side, shapes) = if cfg!(miri) { (4, &[(16, 3, 1), (17, 2, 3)][..]) } else { (9, &shapes[..]) };
    for &(channels, kernel, stride) in shapes {
        let of_x = layout([side, side, channels], kernel / 2);
        let values = bytes(of_x.len(), 1);
        let count = (side + 2 * (kernel / 2) - kernel) / stride + 1;
        let of_y = layout([count, count, channels], 0);
        let (weight, bias) = (signed(channels * kernel * kernel, 2), signed(channels, 3));
        let scales = Scales { x, add: None, y: Some(y), bounds: [-3.0, f32::INFINITY] };
        let conv = Depthwise::new(&weight, &vec![0.0; weight.len()], &bias, [kernel; 2], scales);
        let steps = Steps { row: of_x.row(), pitch: of_x.pitch, stride };
        let mut results = Vec::new();
        for unit in units() {
            let mut bytes = vec![0; of_y.len()];
            for row in 0..count {
                let of_row = Row { from: of_x.at_border(row * stride, 0), to: of_y.at(row, 0), count };
                // SAFETY: nothing else accesses the result; the CPU has the instructions.
                unsafe { conv.compute_by(unit, &values, of_row, steps, Disjoint::new(&mut bytes)) };
            }
            for (row, column) in (0..count).flat_map(|row| (0..count).map(move |column| (row, column))) {
                for channel in 0..channels {
                    let weight = &weight[channel * kernel * kernel..][..kernel * kernel];
                    let at = [row * stride, column * stride];
                    let sum = by_definition(&values, &of_x, at, weight, [1, kernel], channel, x);
                    let value = (sum + f64::from(bias[channel])).max(-3.0);
                    let position = (value / f64::from(y.step) + f64::from(y.zero)).clamp(0.0, 255.0);
                    let found = f64::from(bytes[of_y.at(row, column) + channel]);
                    assert!(
                        (found - position).abs() < 0.501,
                        "{channels} channels, {kernel} x {kernel}: {found}, wanted {position}"
                    );
                }
            }
            results.push(bytes);
        }
        assert!(results.iter().all(|result| *result == results[0]), "instructions with other results");
    }
}

#[test]
fn a_scale_has_0_and_covers_its_range() {
    for range in [[-1.0, 3.0], [0.0, 6.0], [2.0, 5.0], [-4.0, -1.0], [0.0, 0.0], [-1e-40, 0.0]] {
        let scale = Scale::of(range);
        assert_eq!(scale.position(0.0), f32::from(scale.zero));
        let ends = range.map(|end| scale.position(end));
        assert!(ends.iter().all(|end| (-0.51..=255.51).contains(end)), "{range:?}: {ends:?}");
    }
}

#[test]
fn what_rounding_adds_on_average_is_taken_off_the_bias() {
    let of_x = layout([1, 1, 16], 0);
    let x = Scale { step: 1.0, zero: 0 };
    let mut weight = vec![0.49; 16];
    weight[0] = 127.0;
    let values: Vec<u8> = (0..16).map(|i| if i == 0 { 0 } else { 100 }).collect();
    let expected: Vec<f32> = values.iter().map(|&value| f32::from(value)).collect();
    let conv = Dense::new(
        &weight,
        &expected,
        &[1.0],
        Taps::new(&of_x, [1, 1]),
        Scales { x, add: None, y: None, bounds: [f32::NEG_INFINITY, f32::INFINITY] },
    );
    let mut result = [0.0];
    let positions = [Position { from: 0, to: 0, add: 0 }];
    // SAFETY: nothing else accesses the result.
    unsafe { conv.compute(&values, &positions, None, Out::Floats(Disjoint::new(&mut result))) };
    assert!((result[0] - (15.0 * 49.0 + 1.0)).abs() < 1e-2, "{}", result[0]);
}
