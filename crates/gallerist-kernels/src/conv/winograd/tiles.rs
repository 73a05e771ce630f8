//! The transform of the tiles of a block.

use gallerist_util::simd::run;

use super::transforms::{Apply, Transform};
use super::{Block, Elements, IN, OUT, Rows};
use crate::conv::source::Source;
use crate::conv::windows::Windows;

/// Writes the transformed tiles of a block, `N x N` values of the source each, the first of which is tile `first` of `to`.
///
/// # Safety
///
/// Nothing else accesses the rows of these tiles during the call.
pub(super) unsafe fn transform<const N: usize>(
    transform: impl Transform<N, IN>,
    source: &Source<'_>,
    windows: &Windows,
    block: &Block,
    to: Elements<'_>,
    first: usize,
) {
    let channels = windows.source.channels;
    let zeros = vec![0.0; channels];
    Rows::read(source, windows, block, N - OUT, |rows| {
        for tile in 0..block.tiles() {
            let [image, i, j] = block.place(tile);
            let at = [i.cast_signed() + windows.lowest(0), j.cast_signed() + windows.lowest(1)];
            let from = rows.tile::<N>(image, at, &zeros);
            // SAFETY: the caller's promise.
            let mut to = unsafe { to.of(first + tile, channels) };
            run(Apply::new(transform, &from, &mut to, channels));
        }
    });
}
