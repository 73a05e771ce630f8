//! The kernels in plain Rust. Compiled once more for AVX2, where the compiler turns the inner
//! loops into registers.

use super::block::{BLOCK, Keys, Products, QUERIES};
use crate::compact::from_bf16;

#[inline(always)]
pub(super) fn bf16(queries: &[&[u16]], rows: &[u16], depth: usize, out: &mut [Products; QUERIES]) {
    for (query, out) in queries.iter().zip(out) {
        for (row, out) in rows.chunks_exact(depth).zip(out) {
            *out = bf16_product(query, row);
        }
    }
}

#[inline(always)]
fn bf16_product(a: &[u16], b: &[u16]) -> f32 {
    const WIDTH: usize = 16;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<WIDTH>(), b.as_chunks::<WIDTH>());
    let mut sums = [0.0f32; WIDTH];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..WIDTH {
            sums[lane] += from_bf16(a[lane]) * from_bf16(b[lane]);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(&a, &b)| from_bf16(a) * from_bf16(b));
    sums.iter().sum::<f32>() + rest.sum::<f32>()
}

#[inline(always)]
pub(super) fn int8(queries: &[&[i8]], rows: &[i8], depth: usize, out: &mut [Products; QUERIES]) {
    for (query, out) in queries.iter().zip(out) {
        for (row, out) in rows.chunks_exact(depth).zip(out) {
            let products = query.iter().zip(row).map(|(&a, &b)| i32::from(a) * i32::from(b));
            *out = products.fold(0, i32::wrapping_add) as f32;
        }
    }
}

#[inline(always)]
pub(super) fn reach(products: &mut Products, keys: &Keys, floor: f32) -> u64 {
    for row in 0..BLOCK {
        products[row] = products[row] * (keys.scale * keys.factors[row]) + (keys.bias + keys.biases[row]);
    }
    let reached = |(row, &key): (usize, &f32)| u64::from(key >= floor) << row;
    products.iter().enumerate().map(reached).sum()
}
