//! The forward pass.

use rayon::prelude::*;

use super::activation::{Activation, Bounds};
use super::affine::Affine;
use super::blocks::TASK;
use crate::buffer::Buffer;
use crate::profile;
use gallerist_util::vectorized;

/// `y = activation(affine(x) + other)`, or without `other` if there is none.
pub(crate) fn apply(x: &[f32], affine: &Affine, other: Option<&[f32]>, activation: Activation) -> Buffer {
    let _measured = profile::scope("batch norm");
    let channels = affine.mean.len();
    let mut y = Buffer::new(x.len());
    let rows = TASK * channels;
    y.par_chunks_mut(rows).zip(x.par_chunks(rows)).enumerate().for_each(|(task, (y, x))| match other {
        Some(other) => add_rows_to(x, affine, &other[task * rows..], activation, y),
        None => apply_rows(x, affine, activation, y),
    });
    y
}

vectorized! {
    /// `y = activation(affine(x))`.
    pub(crate) fn apply_rows<'a>(x: &'a [f32], affine: &'a Affine, activation: Activation, y: &'a mut [f32]) -> () {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            affine.row(x, y, |value| bounds.value(value));
        }
    }
}

vectorized! {
    /// `y = activation(affine(x) + other)`; `other` may be longer than `x`.
    fn add_rows_to<'a>(
        x: &'a [f32],
        affine: &'a Affine,
        other: &'a [f32],
        activation: Activation,
        y: &'a mut [f32],
    ) -> () {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        let rows = x.chunks_exact(channels).zip(other.chunks_exact(channels));
        for ((x, other), y) in rows.zip(y.chunks_exact_mut(channels)) {
            affine.row(x, y, |value| value);
            add_bounded(other, bounds, y);
        }
    }
}

#[inline(always)]
fn add_bounded(x: &[f32], bounds: Bounds, y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = bounds.value(*y + x);
    }
}
