//! The other layers of bytes, and the ways into and out of bytes.

use std::ops::Range;

use gallerist_util::vectorized;

use super::layout::Layout;
use super::scale::{Scale, rounded};
use crate::disjoint::Disjoint;

/// A row of the maps of a result.
///
/// # Safety
///
/// Nothing else accesses this row while it is in use.
unsafe fn row_of<'a>(out: Disjoint<'a, u8>, y: &Layout, row: usize) -> &'a mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { out.slice(y.at(row, 0), y.width * y.pitch) }
}

/// Rows of an image `[channels, height, width]` as bytes.
///
/// # Safety
///
/// Nothing else accesses these rows of the result during the call.
pub(crate) unsafe fn quantize(
    image: &[f32],
    scale: Scale,
    y: &Layout,
    rows: Range<usize>,
    out: Disjoint<'_, u8>,
) {
    let area = y.height * y.width;
    for row in rows {
        // SAFETY: the caller's promise.
        let to = unsafe { row_of(out, y, row) };
        to.fill(scale.zero);
        for channel in 0..y.channels {
            let from = &image[channel * area + row * y.width..][..y.width];
            positions(from, scale.step, f32::from(scale.zero), &mut to[channel..], y.pitch);
        }
    }
}

vectorized! {
    fn positions<'a>(x: &'a [f32], step: f32, zero: f32, y: &'a mut [u8], pitch: usize) -> () {
        for (y, x) in y.chunks_mut(pitch).zip(x) {
            y[0] = rounded(x / step + zero);
        }
    }
}

/// The values of some rows of maps, `[rows, width, channels]`. `x` starts with the first of them.
pub(crate) fn dequantize(x: &[u8], of_x: &Layout, scale: Scale, y: &mut [f32]) {
    for (row, y) in y.chunks_exact_mut(of_x.width * of_x.channels).enumerate() {
        for (column, y) in y.chunks_exact_mut(of_x.channels).enumerate() {
            let first = row * of_x.row() + column * of_x.pitch;
            values(&x[first..first + of_x.channels], scale.step, f32::from(scale.zero), y);
        }
    }
}

vectorized! {
    fn values<'a>(x: &'a [u8], step: f32, zero: f32, y: &'a mut [f32]) -> () {
        for (y, x) in y.iter_mut().zip(x) {
            *y = (f32::from(*x) - zero) * step;
        }
    }
}

vectorized! {
    /// `sum of bytes * factor + term`, rounded.
    fn scaled<'a>(sums: &'a [i32], factor: f32, term: f32, y: &'a mut [u8]) -> () {
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = rounded((*sum as f32).mul_add(factor, term));
        }
    }
}

/// Rows of the sum of two results.
///
/// # Safety
///
/// Nothing else accesses these rows of the result during the call.
pub(crate) unsafe fn add(
    x: [(&[u8], &Layout, Scale); 2],
    y: (&Layout, Scale),
    rows: Range<usize>,
    out: Disjoint<'_, u8>,
) {
    let (layout, scale) = y;
    let factors = x.map(|(_, _, of_x)| of_x.step / scale.step);
    let zero =
        f32::from(scale.zero) - f32::from(x[0].2.zero) * factors[0] - f32::from(x[1].2.zero) * factors[1];
    for row in rows {
        // SAFETY: the caller's promise.
        let to = unsafe { row_of(out, layout, row) };
        let [a, b] = [0, 1].map(|i| &x[i].0[x[i].1.at(row, 0)..][..to.len()]);
        sum(a, b, factors[0], factors[1], zero, to);
    }
}

vectorized! {
    fn sum<'a>(a: &'a [u8], b: &'a [u8], of_a: f32, of_b: f32, zero: f32, y: &'a mut [u8]) -> () {
        for (y, (a, b)) in y.iter_mut().zip(a.iter().zip(b)) {
            *y = rounded(f32::from(*a).mul_add(of_a, f32::from(*b).mul_add(of_b, zero)));
        }
    }
}

/// Writes rows of maps to the channels of a result from `first` on.
///
/// # Safety
///
/// Nothing else accesses these rows of the result during the call.
pub(crate) unsafe fn concat(
    x: (&[u8], &Layout, Scale),
    y: (&Layout, Scale),
    first: usize,
    rows: Range<usize>,
    out: Disjoint<'_, u8>,
) {
    let ((values, of_x, from), (layout, scale)) = (x, y);
    let factor = from.step / scale.step;
    let term = f32::from(scale.zero) - f32::from(from.zero) * factor;
    for row in rows {
        // SAFETY: the caller's promise.
        let to = unsafe { row_of(out, layout, row) };
        for (column, to) in to.chunks_exact_mut(layout.pitch).enumerate() {
            let x = &values[of_x.at(row, column)..][..of_x.channels];
            let to = &mut to[first..first + of_x.channels];
            match from == scale {
                true => to.copy_from_slice(x),
                false => converted(x, factor, term, to),
            }
        }
    }
}

vectorized! {
    fn converted<'a>(x: &'a [u8], factor: f32, term: f32, y: &'a mut [u8]) -> () {
        for (y, x) in y.iter_mut().zip(x) {
            *y = rounded(f32::from(*x).mul_add(factor, term));
        }
    }
}

/// The windows of a pooling layer: [`axes`](crate::pool::Windows::axes).
pub(crate) struct Windows(pub(crate) [Vec<(Range<usize>, f32)>; 2]);

impl Windows {
    /// Rows of the largest bytes of the windows.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these rows of the result during the call.
    pub(crate) unsafe fn max(
        &self,
        x: (&[u8], &Layout),
        y: &Layout,
        rows: Range<usize>,
        out: Disjoint<'_, u8>,
    ) {
        let (values, of_x) = x;
        for row in rows {
            // SAFETY: the caller's promise.
            let to = unsafe { row_of(out, y, row) };
            to.fill(0);
            for ((columns, _), to) in self.0[1].iter().zip(to.chunks_exact_mut(y.pitch)) {
                for i in self.0[0][row].0.clone() {
                    largest(&values[of_x.at(i, columns.start)..][..columns.len() * y.pitch], to);
                }
            }
        }
    }

    /// Rows of the means of the windows.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these rows of the result during the call.
    pub(crate) unsafe fn mean(
        &self,
        x: (&[u8], &Layout, Scale),
        y: (&Layout, Scale),
        rows: Range<usize>,
        out: Disjoint<'_, u8>,
    ) {
        let ((values, of_x, from), (layout, scale)) = (x, y);
        let mut sums = vec![0; layout.pitch];
        for row in rows {
            // SAFETY: the caller's promise.
            let to = unsafe { row_of(out, layout, row) };
            let (inside, of_row) = &self.0[0][row];
            for ((columns, of_column), to) in self.0[1].iter().zip(to.chunks_exact_mut(layout.pitch)) {
                sums.fill(0);
                for i in inside.clone() {
                    let x = &values[of_x.at(i, columns.start)..][..columns.len() * layout.pitch];
                    total(x, &mut sums);
                }
                let factor = from.step / scale.step * of_row * of_column;
                let zeros = usize::from(from.zero) * inside.len() * columns.len();
                let term = f32::from(scale.zero) - zeros as f32 * factor;
                scaled(&sums, factor, term, to);
            }
        }
    }
}

vectorized! {
    fn largest<'a>(x: &'a [u8], y: &'a mut [u8]) -> () {
        for x in x.chunks_exact(y.len()) {
            for (y, x) in y.iter_mut().zip(x) {
                *y = (*y).max(*x);
            }
        }
    }
}

vectorized! {
    fn total<'a>(x: &'a [u8], sums: &'a mut [i32]) -> () {
        for x in x.chunks_exact(sums.len()) {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum += i32::from(*x);
            }
        }
    }
}
