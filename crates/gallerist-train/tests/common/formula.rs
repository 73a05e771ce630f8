//! Weights and inputs by the formula of `bench/networks/formula.py`.

use burn::tensor::{Device, Tensor, TensorData};

/// `count` numbers in `[0, 1)`: SplitMix64 started at FNV-1a of the name.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn unit(name: &str, count: usize) -> Vec<f64> {
    let start = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (1..=count as u64)
        .map(|i| {
            let mut z = start.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(i));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 40) as f64 / (1u64 << 24) as f64
        })
        .collect()
}

/// A parameter: its kind is read off the name's end and the number of its sides.
pub(crate) fn tensor(name: &str, shape: &[usize]) -> TensorData {
    let scale: fn(&str, &[usize], f64) -> f64 = match shape.len() {
        4 => |_, shape, u| (2.0 * u - 1.0) * (6.0 / shape[1..].iter().product::<usize>() as f64).sqrt(),
        2 => |_, shape, u| (2.0 * u - 1.0) * (6.0 / shape.iter().sum::<usize>() as f64).sqrt(),
        _ => |name, _, u| match name.rsplit('.').next() {
            Some("p") => 3.0 + (2.0 * u - 1.0),
            Some("weight" | "running_var") => 0.5 + u,
            _ => 0.2 * (2.0 * u - 1.0),
        },
    };
    let values = unit(name, shape.iter().product()).into_iter().map(|u| scale(name, shape, u) as f32);
    TensorData::new(values.collect::<Vec<_>>(), shape.to_vec())
}

/// Numbers in `[-1, 1)` by the formula.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn symmetric<const D: usize>(name: &str, shape: [usize; D], device: &Device) -> Tensor<D> {
    let values = unit(name, shape.iter().product()).into_iter().map(|u| (2.0 * u - 1.0) as f32);
    Tensor::from_data(TensorData::new(values.collect::<Vec<f32>>(), shape), device)
}
