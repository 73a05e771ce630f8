//! Vectors of weights and of sums.

/// Columns of a vector: sums of 32 bits.
pub(super) const LANES: usize = 16;

/// Vectors of a panel of columns, or of a block of channels.
pub(super) const VECTORS: usize = 4;

/// Terms of a sum whose bytes are multiplied together.
pub(super) const GROUP: usize = 4;

/// Channels of a block of a depthwise convolution.
pub(super) const BLOCK: usize = VECTORS * LANES;

/// Most rows and columns of the window of a depthwise convolution.
pub(crate) const MOST_TAPS: usize = 8;

/// 64 bytes, aligned to a cache line: [`GROUP`] weights for each column of a vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [i8; LANES * GROUP]);

/// The columns of the lanes of `vectors` vectors from column `first` on, one after the other, or as they are in [`VECTORS`] vectors
/// that are packed to bytes within each quarter: then each quarter holds columns one after the other.
pub(super) fn columns(first: usize, vectors: usize, interleave: bool) -> impl Iterator<Item = usize> {
    let column = move |i: usize| match interleave && vectors == VECTORS {
        true => {
            let (vector, lane) = (i / LANES, i % LANES);
            first + LANES * (lane / 4) + 4 * vector + lane % 4
        }
        false => first + i,
    };
    (0..vectors * LANES).map(column)
}
