//! How close two rows are, quickly.
//!
//! Building and walking the graph use these values; the scores in a list are computed as in exact search.
//! Sums run over partial sums that depend on the instruction set: two machines may build graphs
//! that differ, two runs on one machine do not.

use gallerist_util::memory::{Cache, prefetch};

use crate::instructions::{Level, WideFloats};
use crate::matrix::squared_length;
use crate::search::Metric;

/// Rows under a metric. Larger is closer.
#[derive(Clone, Copy)]
pub(super) struct Space<'a> {
    pub(super) metric: Metric,
    pub(super) dimensions: usize,
    pub(super) rows: &'a [f32],
    /// One over the length of each row, for the cosine: of a row of zeros 0.
    pub(super) inverse: &'a [f32],
    pub(super) kernel: Kernel,
}

/// One over the length of a row; 0 for a row of zeros.
pub(super) fn inverse_length(row: &[f32]) -> f32 {
    let squared = squared_length(row);
    // The inverse of the shortest lengths does not fit into f32.
    if squared == 0.0 { 0.0 } else { (1.0 / squared.sqrt()).min(f64::from(f32::MAX)) as f32 }
}

impl<'a> Space<'a> {
    pub(super) fn row(&self, slot: u32) -> &'a [f32] {
        let start = slot as usize * self.dimensions;
        &self.rows[start..start + self.dimensions]
    }

    /// How close `slot` is to a row whose length has the inverse `inverse`.
    #[inline]
    #[expect(clippy::manual_clamp)]
    pub(super) fn closeness(&self, row: &[f32], inverse: f32, slot: u32) -> f32 {
        let closeness = match self.metric {
            Metric::InnerProduct => self.kernel.dot(row, self.row(slot)),
            Metric::Cosine => self.kernel.dot(row, self.row(slot)) * inverse * self.inverse[slot as usize],
            Metric::Euclidean => -self.kernel.squared_distance(row, self.row(slot)),
        };
        // Rows near the end of the range of f32 overflow; `clamp` would leave a NaN.
        closeness.max(f32::MIN).min(f32::MAX)
    }

    /// One over the length of a row of the index.
    pub(super) fn inverse_of(&self, slot: u32) -> f32 {
        if self.metric == Metric::Cosine { self.inverse[slot as usize] } else { 1.0 }
    }

    /// Prefetches a row.
    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        prefetch(self.row(slot), Cache::First);
        if self.metric == Metric::Cosine {
            prefetch(std::slice::from_ref(&self.inverse[slot as usize]), Cache::First);
        }
    }
}

/// The widest vectors of this CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kernel(Level<WideFloats>);

impl Kernel {
    pub(super) fn best() -> Self {
        Self(Level::best())
    }

    #[cfg(test)]
    fn all() -> Vec<Self> {
        Level::all().into_iter().map(Self).collect()
    }

    #[inline]
    fn dot(self, a: &[f32], b: &[f32]) -> f32 {
        match self.0 {
            Level::Portable => sum(a, b, |a, b, sum| sum + a * b),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2_dot(a, b) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe { avx512_dot(a, b) },
        }
    }

    #[inline]
    fn squared_distance(self, a: &[f32], b: &[f32]) -> f32 {
        match self.0 {
            Level::Portable => sum(a, b, |a, b, sum| sum + (a - b) * (a - b)),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2_squared(a, b) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe { avx512_squared(a, b) },
        }
    }
}

/// The number of partial sums, which are independent of each other.
const LANES: usize = 64;

#[inline(always)]
fn sum(a: &[f32], b: &[f32], add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] = add(a[lane], b[lane], sums[lane]);
        }
    }
    let ((a, a_rest), (b, b_rest)) = (a_rest.as_chunks::<16>(), b_rest.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..16 {
            sums[lane] = add(a[lane], b[lane], sums[lane]);
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] = add(a, b, sums[lane]);
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    sums[0]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |a, b, sum| a.mul_add(b, sum))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_squared(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |a, b, sum| (a - b).mul_add(a - b, sum))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,fma")]
fn avx512_dot(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |a, b, sum| a.mul_add(b, sum))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,fma")]
fn avx512_squared(a: &[f32], b: &[f32]) -> f32 {
    sum(a, b, |a, b, sum| (a - b).mul_add(a - b, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_gives_the_sums_of_f64_at_every_length() {
        let value = |i: usize| ((i * 7919) % 1009) as f32 / 500.0 - 1.0;
        let few = [0, 1, 15, 16, 17, 63, 64, 65, 81, 129];
        let lengths = if cfg!(miri) { few.to_vec() } else { (0..=70).chain([127, 128, 129, 515]).collect() };
        for length in lengths {
            let a: Vec<f32> = (0..length).map(value).collect();
            let b: Vec<f32> = (0..length).map(|i| value(i + 5000)).collect();
            let pairs = || a.iter().zip(&b).map(|(&a, &b)| (f64::from(a), f64::from(b)));
            let dot: f64 = pairs().map(|(a, b)| a * b).sum();
            let squared: f64 = pairs().map(|(a, b)| (a - b) * (a - b)).sum();
            let size: f64 = pairs().map(|(a, b)| a * a + b * b).sum();
            for kernel in Kernel::all() {
                let close = |found: f32, wanted: f64| (f64::from(found) - wanted).abs() <= 1e-6 * size;
                assert!(close(kernel.dot(&a, &b), dot), "{kernel:?}, {length}");
                assert!(close(kernel.squared_distance(&a, &b), squared), "{kernel:?}, {length}");
            }
        }
    }

    #[test]
    fn what_overflows_is_far_away_and_no_nan() {
        let rows = [f32::MAX, f32::MAX, f32::MAX, -f32::MAX];
        for metric in [Metric::InnerProduct, Metric::Cosine, Metric::Euclidean] {
            let inverse = [inverse_length(&rows[..2]), inverse_length(&rows[2..])];
            let space =
                Space { metric, dimensions: 2, rows: &rows, inverse: &inverse, kernel: Kernel::best() };
            for slot in 0..2 {
                space.prefetch(slot);
                assert!(space.closeness(space.row(1), inverse[1], slot).is_finite());
            }
        }
    }
}
