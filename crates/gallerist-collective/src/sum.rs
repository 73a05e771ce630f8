//! Sums over the ranks.

/// Up to this number of values every rank receives all values: one exchange instead of two.
pub(crate) const FEW: usize = 4096;

/// Values that are exchanged at once.
pub(crate) const BUCKET: usize = 1 << 20;

/// The sums of the ranks' values, which follow each other in `all`.
pub(crate) fn add(all: &[f32], sums: &mut [f32]) {
    const LANES: usize = 64;
    let length = sums.len();
    for (block, sums) in sums.chunks_mut(LANES).enumerate() {
        let mut wide = [0f64; LANES];
        for of_rank in all.chunks_exact(length) {
            let values = &of_rank[block * LANES..][..sums.len()];
            wide.iter_mut().zip(values).for_each(|(wide, value)| *wide += f64::from(*value));
        }
        sums.iter_mut().zip(wide).for_each(|(sum, wide)| *sum = wide as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_rounded_once() {
        // In f32, 1 would be lost next to 2^24 three times.
        let all = [16_777_216.0f32, 1.0, 1.0, 1.0];
        let mut sum = [0.0];
        add(&all, &mut sum);
        assert_eq!(sum, [16_777_220.0]);
    }

    #[test]
    fn sums_of_any_number_of_values_are_those_of_single_values() {
        for length in [1, 2, 63, 64, 65, 200] {
            let all: Vec<f32> = (0..3 * length).map(|i| ((i * 37) % 101) as f32 * 0.1).collect();
            let mut sums = vec![0.0; length];
            add(&all, &mut sums);
            for i in 0..length {
                let wide: f64 = (0..3).map(|rank| f64::from(all[rank * length + i])).sum();
                assert_eq!(sums[i], wide as f32, "value {i} of {length}");
            }
        }
    }
}
