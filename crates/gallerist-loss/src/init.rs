//! First values of the parameters that losses learn.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_util::random::Random;

/// Rows in uniformly random directions, of length about 1: entries normal with variance `1 / columns`.
pub(crate) fn directions(seed: u64, name: &str, shape: [usize; 2], device: &Device) -> Param<Tensor<2>> {
    normal(seed, name, shape, 1.0 / (shape[1].max(1) as f64).sqrt(), device)
}

/// Normal entries with the mean 0.
pub(crate) fn normal(
    seed: u64,
    name: &str,
    shape: [usize; 2],
    deviation: f64,
    device: &Device,
) -> Param<Tensor<2>> {
    let mut random = Random::new(seed, &format!("weights/loss/{name}"), 0, 0);
    parameter(shape, device, || deviation * standard_normal(&mut random))
}

/// Entries uniform in `[-bound, bound)`.
pub(crate) fn uniform<const D: usize>(
    seed: u64,
    name: &str,
    shape: [usize; D],
    bound: f64,
    device: &Device,
) -> Param<Tensor<D>> {
    let mut random = Random::new(seed, &format!("weights/loss/{name}"), 0, 0);
    parameter(shape, device, || bound * (2.0 * random.unit() - 1.0))
}

fn parameter<const D: usize>(
    shape: [usize; D],
    device: &Device,
    mut draw: impl FnMut() -> f64,
) -> Param<Tensor<D>> {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| draw() as f32).collect();
    Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), device))
}

/// A standard normal number (Box and Muller 1958; the second of the pair is not used).
fn standard_normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}
