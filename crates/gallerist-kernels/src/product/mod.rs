//! The matrix product of all kernels.
//!
//! [`Product`] reads its left operand in place: each row starts at an address of its own, so that a convolution needs no
//! copy of its windows. Operands are `f32` ([`float`]), or rounded to bf16 with sums in `f32` ([`rounded`]).

mod choice;
mod float;
mod operands;
mod rounded;
mod runs;
mod sizes;
mod tiles;
mod unit;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(test)]
mod tests;

pub(crate) use choice::Choice;
pub use choice::{Products, with_products};
pub(crate) use operands::{Finish, Product, Right};
pub(crate) use runs::{Run, chunks};
pub(crate) use sizes::{BLOCK_ROWS, FEWEST_COPIED_PANELS, MAX_PANEL, panel_width};
pub(crate) use tiles::Tiles;
pub(crate) use unit::Precision;
pub use unit::bf16_unit;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use unit::has_matrix_unit_for_bytes;
#[cfg(test)]
pub(crate) use unit::{Unit, units};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use x86::{configure as configure_tiles, release as release_tiles};

use crate::disjoint::Disjoint;
use crate::gate::swish_at;
use crate::norm::Activation;

/// Computes a product.
///
/// # Safety
///
/// Nothing else accesses the elements of the result's rows during the call.
///
/// # Panics
///
/// If an operand or the result does not have all elements that `product` names.
pub(crate) unsafe fn multiply(product: Product<'_>) {
    if product.rows_a.is_empty() || product.columns == 0 {
        return;
    }
    let Product { c, rows_c, columns, finish, .. } = product;
    let activation = finish.map_or(Activation::None, |finish| finish.activation);
    let gate = match (product.precision, product.right) {
        // SAFETY: the caller's promise.
        (Precision::Bf16(unit), _) => unsafe {
            rounded::multiply(&product, unit);
            product.finish_rows();
            activation.gate()
        },
        // SAFETY: the caller's promise.
        (Precision::F32, Right::Rows { values, stride, panel_stride }) => unsafe {
            float::multiply(product, values, stride, panel_stride);
            activation.gate_after_registers()
        },
        (Precision::F32, Right::Tiles(_)) => unreachable!("tiles hold operands rounded to bf16"),
    };
    if let Some(gate) = gate {
        // The values are still in the cache. SAFETY: the caller's promise.
        unsafe { swish_at(c, rows_c, columns, gate) };
    }
}

/// The left operand of [`multiply_rows`]: `rows_a`, `step` and `chunks` of [`Product`].
pub(crate) struct Left<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: &'a [usize],
    pub(crate) step: usize,
    pub(crate) chunks: &'a [(usize, Vec<Run>)],
}

/// A product of `f32` into values that nothing else accesses. The right operand has rows of `stride` elements, of which
/// each holds whole vectors; the result has rows of `columns` elements that start at `rows_c`.
///
/// # Panics
///
/// As [`multiply`].
pub(crate) fn multiply_rows(
    left: &Left<'_>,
    (values, stride): (&[f32], usize),
    c: &mut [f32],
    rows_c: &[usize],
    columns: usize,
) {
    let product = Product {
        a: left.values,
        rows_a: left.rows,
        step: left.step,
        chunks: left.chunks,
        right: Right::Rows { values, stride, panel_stride: panel_width() },
        precision: Precision::F32,
        c: Disjoint::new(c),
        rows_c,
        columns,
        accumulate: false,
        prefetch: &[],
        finish: None,
    };
    // SAFETY: `c` is borrowed mutably for the whole call, and the product uses this thread alone.
    unsafe { multiply(product) };
}
