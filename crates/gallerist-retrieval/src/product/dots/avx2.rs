//! The [`portable`] kernels compiled for processors with AVX2 and FMA.

use super::block::{Keys, Products, QUERIES};
use super::portable;

#[target_feature(enable = "avx2,fma")]
pub(super) fn bf16(queries: &[&[u16]], rows: &[u16], depth: usize, out: &mut [Products; QUERIES]) {
    portable::bf16(queries, rows, depth, out);
}

#[target_feature(enable = "avx2,fma")]
pub(super) fn int8(queries: &[&[i8]], rows: &[i8], depth: usize, out: &mut [Products; QUERIES]) {
    portable::int8(queries, rows, depth, out);
}

#[target_feature(enable = "avx2")]
pub(super) fn reach(products: &mut Products, keys: &Keys, floor: f32) -> u64 {
    portable::reach(products, keys, floor)
}
