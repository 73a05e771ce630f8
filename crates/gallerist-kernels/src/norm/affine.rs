//! The affine map that a batch normalisation applies to every channel.

// Here and in the other files, the loops over the channels of one position are functions of their own: the compiler assumes
// that slices in arguments are disjoint and vectorises the loop without checks.

use std::sync::Arc;

use gallerist_collective::Shared;
use pulp::Simd;

use super::activation::Function;

/// `gamma * (x - mean) * inverse + beta`, one value per channel of each.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub(crate) mean: Vec<f32>,
    /// `1 / sqrt(variance + epsilon)`
    pub(crate) inverse: Vec<f32>,
    /// `gamma * inverse`
    pub(crate) scale: Vec<f32>,
    pub(crate) beta: Vec<f32>,
    /// The ranks whose batches mean and variance are of; `None`: this process alone, or fixed values.
    pub(crate) ranks: Option<Arc<Shared>>,
}

impl Affine {
    /// With the ranks whose batches mean and variance are of.
    pub(crate) fn over(self, ranks: Option<Arc<Shared>>) -> Self {
        Self { ranks, ..self }
    }

    pub(crate) fn new(gamma: &[f32], beta: &[f32], mean: &[f32], variance: &[f32], epsilon: f64) -> Self {
        let inverse: Vec<f64> =
            variance.iter().map(|variance| 1.0 / (f64::from(*variance) + epsilon).sqrt()).collect();
        Self {
            mean: mean.to_vec(),
            scale: gamma
                .iter()
                .zip(&inverse)
                .map(|(gamma, inverse)| (f64::from(*gamma) * inverse) as f32)
                .collect(),
            inverse: inverse.iter().map(|inverse| *inverse as f32).collect(),
            beta: beta.to_vec(),
            ranks: None,
        }
    }
}

impl Affine {
    #[inline(always)]
    pub(super) fn row<S: Simd, F: Function>(&self, x: &[f32], y: &mut [f32], function: F) {
        let channels = y.len();
        let (x, mean) = (&x[..channels], &self.mean[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        for j in 0..channels {
            y[j] = function.value::<S>((x[j] - mean[j]) * scale[j] + beta[j]);
        }
    }
}
