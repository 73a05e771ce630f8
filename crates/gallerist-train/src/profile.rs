//! The profile of a training run.

use std::path::Path;

use gallerist_kernels::profile::Timing;
use gallerist_retrieval::file::write_atomically;
use serde::Serialize;

use crate::Result;

/// The time that a network's kernels took of some training steps.
///
/// Measured by the CPU kernels ([`gallerist_kernels`]); it does not contain the work of other devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Steps measured.
    pub steps: usize,
    /// Wall time of these steps in seconds, including waiting for images, loss and optimiser.
    pub seconds: f64,
    /// Seconds of waiting for the loader.
    pub waited: f64,
    /// Seconds of these inside the network's kernels.
    pub in_kernels: f64,
    /// Every operation and size, the longest first.
    pub operations: Vec<Operation>,
}

/// An operation of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Operation {
    /// Its name.
    pub operation: &'static str,
    /// Sizes of a convolution; empty for others.
    pub sizes: String,
    /// How often it ran.
    pub calls: u64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// GFLOP/s, for operations that are limited by arithmetic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gigaflops: Option<f64>,
}

impl Profile {
    /// Of what the kernels measured while `steps` took `seconds`, `waited` of them for images.
    pub fn new(timings: Vec<Timing>, steps: usize, seconds: f64, waited: f64) -> Self {
        let in_kernels = timings.iter().map(|timing| timing.seconds).sum();
        let operation = |Timing { operation, sizes, calls, seconds, multiply_adds, .. }: Timing| {
            let gigaflops = (multiply_adds > 0).then(|| 2e-9 * multiply_adds as f64 / seconds);
            Operation { operation, sizes, calls, seconds, gigaflops }
        };
        let operations = timings.into_iter().map(operation).collect();
        Profile { steps, seconds, waited, in_kernels, operations }
    }

    /// The seconds of every operation, all sizes together, the longest first.
    pub fn by_operation(&self) -> Vec<(&'static str, f64)> {
        let mut sums: Vec<(&'static str, f64)> = Vec::new();
        for Operation { operation, seconds, .. } in &self.operations {
            match sums.iter_mut().find(|(name, _)| name == operation) {
                Some((_, sum)) => *sum += seconds,
                None => sums.push((operation, *seconds)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("numbers and names");
        Ok(write_atomically(path, |file| std::io::Write::write_all(file, &text))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_an_operation_are_added_up() {
        let timing = |operation, sizes: &str, seconds, multiply_adds| Timing {
            operation,
            sizes: sizes.into(),
            calls: 2,
            seconds,
            fastest: seconds / 2.0,
            multiply_adds,
        };
        let timings = vec![
            timing("pooling", "", 1.5, 0),
            timing("convolution", "a", 1.0, 3_000_000_000),
            timing("convolution", "b", 1.0, 1_000_000_000),
        ];
        let profile = Profile::new(timings, 10, 4.0, 0.1);
        assert_eq!(profile.in_kernels, 3.5);
        assert_eq!(profile.by_operation(), [("convolution", 2.0), ("pooling", 1.5)]);
        assert_eq!(profile.operations[1].gigaflops, Some(6.0));
        assert_eq!(profile.operations[0].gigaflops, None);
    }
}
