//! The [`portable`] kernels compiled for processors with AVX2 and FMA.

use super::portable;
use super::tile::{Bits, LANES, Panel, ROWS, Tile};

#[target_feature(enable = "avx2,fma")]
pub(super) fn product(
    rows: usize,
    biases: Option<(&[f32; ROWS], &[f32; LANES])>,
    a: (&Panel, usize),
    b: &Panel,
    out: &mut Tile,
) {
    portable::product(rows, biases, a, b, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn at_least_rows(tile: &Tile, floors: &[f32; ROWS]) -> Bits {
    portable::at_least_rows(tile, floors)
}

#[target_feature(enable = "avx2")]
pub(super) fn at_least_lanes(tile: &Tile, floors: &[f32; LANES]) -> Bits {
    portable::at_least_lanes(tile, floors)
}

#[target_feature(enable = "avx2")]
pub(super) fn count_row(keys: &[f32; LANES], floors: &[f32], counts: &mut [u32]) {
    portable::count_row(keys, floors, counts);
}

#[target_feature(enable = "avx2")]
pub(super) fn count_lanes(tile: &[[f32; LANES]], floors: &[[f32; LANES]], counts: &mut [[u32; LANES]]) {
    portable::count_lanes(tile, floors, counts);
}
