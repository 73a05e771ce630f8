//! The kernels in plain Rust, for processors without kernels of their own. Compiled once more for
//! AVX2, where the compiler turns the inner loops into registers.

use super::tile::{Bits, LANES, Panel, ROWS, Tile};

#[inline(always)]
pub(super) fn product(
    rows: usize,
    biases: Option<(&[f32; ROWS], &[f32; LANES])>,
    (a, group): (&Panel, usize),
    b: &Panel,
    out: &mut Tile,
) {
    // Four rows of sixteen lanes at a time stay in registers where there are 32 of 128 bits.
    const WIDTH: usize = 16;
    const HEIGHT: usize = 4;
    for first in (0..rows).step_by(HEIGHT) {
        for strip in 0..LANES / WIDTH {
            let lanes = strip * WIDTH..(strip + 1) * WIDTH;
            let mut sums = [[0.0f32; WIDTH]; HEIGHT];
            for (row, sums) in sums.iter_mut().enumerate() {
                match biases {
                    Some((bias_a, bias_b)) => {
                        for (sum, bias) in sums.iter_mut().zip(&bias_b[lanes.clone()]) {
                            *sum = bias_a[first + row] + bias;
                        }
                    }
                    None => sums.copy_from_slice(&out.0[first + row][lanes.clone()]),
                }
            }
            for (a, b) in a.iter().zip(b) {
                let a = &a[group * ROWS + first..][..HEIGHT];
                let b = &b[lanes.clone()];
                for (sums, a) in sums.iter_mut().zip(a) {
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = a.mul_add(*b, *sum);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                out.0[first + row][lanes.clone()].copy_from_slice(sums);
            }
        }
    }
}

#[inline(always)]
pub(super) fn at_least_rows(tile: &Tile, floors: &[f32; ROWS]) -> Bits {
    std::array::from_fn(|row| bits(&tile.0[row], |_| floors[row]))
}

#[inline(always)]
pub(super) fn at_least_lanes(tile: &Tile, floors: &[f32; LANES]) -> Bits {
    std::array::from_fn(|row| bits(&tile.0[row], |lane| floors[lane]))
}

#[inline(always)]
fn bits(keys: &[f32; LANES], floor: impl Fn(usize) -> f32) -> u64 {
    let reached = |(lane, &key): (usize, &f32)| u64::from(key >= floor(lane)) << lane;
    keys.iter().enumerate().map(reached).sum()
}

#[inline(always)]
pub(super) fn count_row(keys: &[f32; LANES], floors: &[f32], counts: &mut [u32]) {
    for (floor, count) in floors.iter().zip(counts) {
        *count += keys.iter().map(|key| u32::from(key >= floor)).sum::<u32>();
    }
}

#[inline(always)]
pub(super) fn count_lanes(tile: &[[f32; LANES]], floors: &[[f32; LANES]], counts: &mut [[u32; LANES]]) {
    for (floors, counts) in floors.iter().zip(counts) {
        for keys in tile {
            for lane in 0..LANES {
                counts[lane] += u32::from(keys[lane] >= floors[lane]);
            }
        }
    }
}
