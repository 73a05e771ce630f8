//! Sums over the ranks.

use crate::collective::part;
use crate::{Collective, Result};

/// Up to this number of values every rank receives all values: one exchange instead of two.
const FEW: usize = 4096;

/// Values that are exchanged at once.
const BUCKET: usize = 1 << 23;

/// Every rank receives one part of the values from all ranks, sums it, and sends the sums to all.
pub(crate) fn all_reduce<C: Collective + ?Sized>(collective: &C, values: &mut [f32]) -> Result<()> {
    let (rank, size) = (collective.rank(), collective.size());
    if size == 1 {
        return Ok(());
    }
    if values.len() <= FEW {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let all = collective.all_gather(bytes, &vec![bytes.len(); size])?;
        add(&numbers(&all), values);
        return Ok(());
    }
    for bucket in values.chunks_mut(BUCKET) {
        let parts: Vec<_> = (0..size).map(|rank| part(bucket.len(), rank, size)).collect();
        let own = parts[rank].clone();
        let sent: Vec<&[u8]> = parts.iter().map(|part| bytemuck::cast_slice(&bucket[part.clone()])).collect();
        let received = collective.all_to_all(&sent, &vec![own.len() * 4; size])?;
        let mut sums = vec![0.0; own.len()];
        add(&numbers(&received), &mut sums);
        let lengths: Vec<usize> = parts.iter().map(|part| part.len() * 4).collect();
        let all = collective.all_gather(bytemuck::cast_slice(&sums), &lengths)?;
        bytemuck::cast_slice_mut(bucket).copy_from_slice(&all);
    }
    Ok(())
}

/// The numbers of bytes that need not be aligned.
fn numbers(bytes: &[u8]) -> Vec<f32> {
    let number = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
    bytes.chunks_exact(4).map(number).collect()
}

/// The sums of the ranks' values, which follow each other in `all`.
fn add(all: &[f32], sums: &mut [f32]) {
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
