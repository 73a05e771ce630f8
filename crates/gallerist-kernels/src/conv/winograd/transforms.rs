//! The transforms of tiles, for whole vectors of channels.

use pulp::{Simd, WithSimd};

use super::{IN, LANES, OUT, SIDE};
use crate::norm::Bounds;

/// A linear map of `N` values to `M`. Applied to columns and rows, it maps tiles of `N x N` to tiles of `M x M`.
pub(super) trait Transform<const N: usize, const M: usize>: Copy {
    fn apply<S: Simd>(simd: S, values: [S::f32s; N]) -> [S::f32s; M];
}

/// `B^T`: inputs to elements.
#[derive(Clone, Copy)]
pub(super) struct OfInput;

/// `G`: kernels to elements, by the points 0, 1, -1, 2, -2 and infinity.
#[derive(Clone, Copy)]
pub(super) struct OfKernel;

/// `A^T`: elements to outputs.
#[derive(Clone, Copy)]
pub(super) struct ToOutput;

/// `A`: gradients of outputs to elements.
#[derive(Clone, Copy)]
pub(super) struct OfOutputGradient;

/// `G^T`: elements to gradients of kernels.
#[derive(Clone, Copy)]
pub(super) struct ToKernelGradient;

impl Transform<IN, IN> for OfInput {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, d: [S::f32s; IN]) -> [S::f32s; IN] {
        let even = times(simd, -4.0, d[2], d[4]);
        let odd = times(simd, -4.0, d[1], d[3]);
        let difference = simd.sub_f32s(d[4], d[2]);
        let double = simd.mul_f32s(simd.splat_f32s(2.0), simd.sub_f32s(d[3], d[1]));
        [
            times(simd, 4.0, d[0], times(simd, -5.0, d[2], d[4])),
            simd.add_f32s(even, odd),
            simd.sub_f32s(even, odd),
            simd.add_f32s(difference, double),
            simd.sub_f32s(difference, double),
            times(simd, 4.0, d[1], times(simd, -5.0, d[3], d[5])),
        ]
    }
}

impl Transform<SIDE, IN> for OfKernel {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, g: [S::f32s; SIDE]) -> [S::f32s; IN] {
        let scaled = |value: f32, x: S::f32s| simd.mul_f32s(simd.splat_f32s(value), x);
        let ends = scaled(-1.0 / 6.0, simd.add_f32s(g[0], g[2]));
        let middle = scaled(1.0 / 6.0, g[1]);
        let far = scaled(1.0 / 24.0, times(simd, 4.0, g[2], g[0]));
        let half = scaled(1.0 / 12.0, g[1]);
        [
            scaled(0.25, g[0]),
            simd.sub_f32s(ends, middle),
            simd.add_f32s(ends, middle),
            simd.add_f32s(far, half),
            simd.sub_f32s(far, half),
            g[2],
        ]
    }
}

impl Transform<IN, OUT> for ToOutput {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, m: [S::f32s; IN]) -> [S::f32s; OUT] {
        let (p, q) = (simd.add_f32s(m[1], m[2]), simd.sub_f32s(m[1], m[2]));
        let (r, s) = (simd.add_f32s(m[3], m[4]), simd.sub_f32s(m[3], m[4]));
        [
            simd.add_f32s(m[0], simd.add_f32s(p, r)),
            times(simd, 2.0, s, q),
            times(simd, 4.0, r, p),
            simd.add_f32s(m[5], times(simd, 8.0, s, q)),
        ]
    }
}

impl Transform<OUT, IN> for OfOutputGradient {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, y: [S::f32s; OUT]) -> [S::f32s; IN] {
        let (even, odd) = (simd.add_f32s(y[0], y[2]), simd.add_f32s(y[1], y[3]));
        let far_even = times(simd, 4.0, y[2], y[0]);
        let far_odd = simd.mul_f32s(simd.splat_f32s(2.0), times(simd, 4.0, y[3], y[1]));
        [
            y[0],
            simd.add_f32s(even, odd),
            simd.sub_f32s(even, odd),
            simd.add_f32s(far_even, far_odd),
            simd.sub_f32s(far_even, far_odd),
            y[3],
        ]
    }
}

impl Transform<IN, SIDE> for ToKernelGradient {
    #[inline(always)]
    fn apply<S: Simd>(simd: S, u: [S::f32s; IN]) -> [S::f32s; SIDE] {
        let scaled = |value: f32, x: S::f32s| simd.mul_f32s(simd.splat_f32s(value), x);
        let (near, near_odd) = (simd.add_f32s(u[1], u[2]), simd.sub_f32s(u[2], u[1]));
        let (far, far_odd) = (simd.add_f32s(u[3], u[4]), simd.sub_f32s(u[3], u[4]));
        let near = scaled(-1.0 / 6.0, near);
        [
            simd.add_f32s(times(simd, 0.25, u[0], near), scaled(1.0 / 24.0, far)),
            times(simd, 1.0 / 6.0, near_odd, scaled(1.0 / 12.0, far_odd)),
            simd.add_f32s(times(simd, 1.0 / 6.0, far, near), u[5]),
        ]
    }
}

/// `value * x + plus`.
#[inline(always)]
fn times<S: Simd>(simd: S, value: f32, x: S::f32s, plus: S::f32s) -> S::f32s {
    simd.mul_add_e_f32s(simd.splat_f32s(value), x, plus)
}

/// Transforms the channels of a tile: [`Apply::new`] checks the sizes and is the only way to make one.
pub(super) struct Apply<'a, 'b, T, const N: usize, const M: usize> {
    from: &'a [[&'b [f32]; N]; N],
    to: &'a mut [[&'b mut [f32]; M]; M],
    channels: usize,
    transform: T,
}

impl<'a, 'b, T: Transform<N, M>, const N: usize, const M: usize> Apply<'a, 'b, T, N, M> {
    pub(super) fn new(
        transform: T,
        from: &'a [[&'b [f32]; N]; N],
        to: &'a mut [[&'b mut [f32]; M]; M],
        channels: usize,
    ) -> Self {
        assert!(channels.is_multiple_of(LANES));
        assert!(from.as_flattened().iter().all(|values| values.len() >= channels));
        assert!(to.as_flattened().iter().all(|values| values.len() >= channels));
        Self { from, to, channels, transform }
    }
}

impl<T: Transform<N, M>, const N: usize, const M: usize> WithSimd for Apply<'_, '_, T, N, M> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { from, to, channels, transform } = self;
        for channel in (0..channels).step_by(S::F32_LANES) {
            // SAFETY: a vector of channels of values that have `channels` elements, a multiple of the lanes.
            let half = unsafe { columns::<S, T, N, M>(simd, transform, from, channel) };
            for i in 0..M {
                let values = T::apply(simd, half[i]);
                for j in 0..M {
                    // SAFETY: as above.
                    unsafe { store::<S>(to[i][j].as_mut_ptr().add(channel), values[j]) };
                }
            }
        }
    }
}

/// What is done with the outputs of a tile.
pub(super) struct Ends<'a, 'b> {
    pub(super) bias: Option<&'a [f32]>,
    /// Maps that are added; without elements where there is no target.
    pub(super) added: Option<&'a [[&'b [f32]; OUT]; OUT]>,
    pub(super) bounds: Bounds,
    /// Add to the targets instead of overwriting them.
    pub(super) accumulate: bool,
}

/// The outputs of the channels of a tile: [`Output::new`] checks the sizes and is the only way to make one.
pub(super) struct Output<'a, 'b> {
    products: &'a [[&'b [f32]; IN]; IN],
    targets: &'a mut [[&'b mut [f32]; OUT]; OUT],
    channels: usize,
    ends: Ends<'a, 'b>,
}

impl<'a, 'b> Output<'a, 'b> {
    /// Targets without elements are left out.
    pub(super) fn new(
        products: &'a [[&'b [f32]; IN]; IN],
        targets: &'a mut [[&'b mut [f32]; OUT]; OUT],
        channels: usize,
        ends: Ends<'a, 'b>,
    ) -> Self {
        assert!(channels.is_multiple_of(LANES) && ends.bias.is_none_or(|bias| channels <= bias.len()));
        assert!(products.as_flattened().iter().all(|values| values.len() >= channels));
        assert!(targets.as_flattened().iter().all(|values| values.is_empty() || values.len() >= channels));
        if let Some(added) = ends.added {
            let mut pairs = added.as_flattened().iter().zip(targets.as_flattened());
            assert!(pairs.all(|(added, target)| target.is_empty() || added.len() >= channels));
        }
        Self { products, targets, channels, ends }
    }
}

impl WithSimd for Output<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { products, targets, channels, ends: Ends { bias, added, bounds, accumulate } } = self;
        for channel in (0..channels).step_by(S::F32_LANES) {
            // SAFETY: a vector of channels of products that have `channels` elements, a multiple of the lanes.
            let half = unsafe { columns::<S, _, IN, OUT>(simd, ToOutput, products, channel) };
            let bias = match bias {
                // SAFETY: the bias has `channels` elements, too.
                Some(bias) => unsafe { load::<S>(bias.as_ptr().add(channel)) },
                None => simd.splat_f32s(0.0),
            };
            for i in 0..OUT {
                let y = ToOutput::apply(simd, half[i]);
                for j in 0..OUT {
                    let target = &mut targets[i][j];
                    if target.is_empty() {
                        continue;
                    }
                    let mut value = simd.add_f32s(y[j], bias);
                    if let Some(added) = added {
                        // SAFETY: what is added to a target has `channels` elements.
                        let added = unsafe { load::<S>(added[i][j].as_ptr().add(channel)) };
                        value = simd.add_f32s(value, added);
                    }
                    if accumulate {
                        // SAFETY: a target with elements has `channels`.
                        let earlier = unsafe { load::<S>(target.as_ptr().add(channel)) };
                        value = simd.add_f32s(earlier, value);
                    }
                    // SAFETY: as above.
                    unsafe { store::<S>(target.as_mut_ptr().add(channel), bounds.vector(simd, value)) };
                }
            }
        }
    }
}

/// The transform of the columns of a tile.
///
/// # Safety
///
/// All values have a vector from `channel` on.
#[inline(always)]
unsafe fn columns<S: Simd, T: Transform<N, M>, const N: usize, const M: usize>(
    simd: S,
    _transform: T,
    from: &[[&[f32]; N]; N],
    channel: usize,
) -> [[S::f32s; N]; M] {
    let mut half = [[simd.splat_f32s(0.0); N]; M];
    for j in 0..N {
        let mut column = [simd.splat_f32s(0.0); N];
        for i in 0..N {
            // SAFETY: the caller's promise.
            column[i] = unsafe { load::<S>(from[i][j].as_ptr().add(channel)) };
        }
        let column = T::apply(simd, column);
        for i in 0..M {
            half[i][j] = column[i];
        }
    }
    half
}

/// # Safety
///
/// One vector from `address` is valid for reads.
#[inline(always)]
unsafe fn load<S: Simd>(address: *const f32) -> S::f32s {
    // SAFETY: vectors of `f32` are plain data of `F32_LANES` elements; alignment is not assumed.
    unsafe { address.cast::<S::f32s>().read_unaligned() }
}

/// # Safety
///
/// One vector from `address` is valid for writes.
#[inline(always)]
unsafe fn store<S: Simd>(address: *mut f32, values: S::f32s) {
    // SAFETY: as `load`.
    unsafe { address.cast::<S::f32s>().write_unaligned(values) }
}
