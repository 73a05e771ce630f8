//! The forward pass.

use rayon::prelude::*;

use super::activation::{Activation, Function, by_activation};
use super::affine::Affine;
use super::blocks::TASK;
use crate::buffer::Buffer;
use crate::profile;
use pulp::Simd;

/// `y = activation(affine(x) + other)`, or without `other` if there is none.
pub(crate) fn apply(x: &[f32], affine: &Affine, other: Option<&[f32]>, activation: Activation) -> Buffer {
    let _measured = profile::scope("batch norm");
    let channels = affine.mean.len();
    let mut y = Buffer::new(x.len());
    let rows = TASK * channels;
    y.par_chunks_mut(rows).zip(x.par_chunks(rows)).enumerate().for_each(|(task, (y, x))| match other {
        Some(other) => add_rows_to(x, affine, &other[task * rows..], y, activation),
        None => apply_rows(x, affine, y, activation),
    });
    y
}

by_activation! {
    /// `y = activation(affine(x))`.
    pub(crate) fn apply_rows<'a, S>(x: &'a [f32], affine: &'a Affine, y: &'a mut [f32],; function) -> () {
        let channels = affine.mean.len();
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            affine.row::<S, _>(x, y, function);
        }
    }
}

by_activation! {
    /// `y = activation(affine(x) + other)`; `other` may be longer than `x`.
    fn add_rows_to<'a, S>(
        x: &'a [f32],
        affine: &'a Affine,
        other: &'a [f32],
        y: &'a mut [f32],
        ; function
    ) -> () {
        let channels = affine.mean.len();
        let rows = x.chunks_exact(channels).zip(other.chunks_exact(channels));
        for ((x, other), y) in rows.zip(y.chunks_exact_mut(channels)) {
            affine.row::<S, _>(x, y, Activation::None.bounds());
            add_and_apply::<S, _>(other, function, y);
        }
    }
}

#[inline(always)]
fn add_and_apply<S: Simd, F: Function>(x: &[f32], function: F, y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = function.value::<S>(*y + x);
    }
}
