//! One buffer that several threads fill, so that no parts are copied afterwards.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

use gallerist_util::memory::prefer_large_pages;

/// A part of a buffer of floats, for one thread to fill while others fill theirs.
pub(crate) struct Piece {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

struct Buffer(Box<[UnsafeCell<f32>]>);

// SAFETY: the values are only accessed through `Piece::values`, and the pieces of a buffer do not overlap.
unsafe impl Sync for Buffer {}

/// A buffer of zeros in pieces of these lengths, one after the other.
pub(crate) fn cut(lengths: impl Iterator<Item = usize> + Clone) -> Vec<Piece> {
    // Zeroed by the system: no page has been written yet.
    let mut zeros = vec![0.0f32; lengths.clone().sum()];
    prefer_large_pages(&mut zeros);
    let zeros = zeros.into_boxed_slice();
    // SAFETY: `UnsafeCell<f32>` has the layout of `f32`, and the box is the only owner.
    let buffer = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<f32>]) };
    let buffer = Arc::new(Buffer(buffer));
    let mut end = 0;
    let piece = |length| {
        let start = end;
        end += length;
        Piece { buffer: buffer.clone(), range: start..end }
    };
    lengths.map(piece).collect()
}

/// The whole buffer, from all its pieces.
///
/// # Panics
///
/// If a piece is missing.
pub(crate) fn join(pieces: Vec<Piece>) -> Vec<f32> {
    let Some(buffer) = pieces.first().map(|piece| piece.buffer.clone()) else { return Vec::new() };
    drop(pieces);
    let buffer = Arc::into_inner(buffer).expect("all pieces are given back");
    // SAFETY: `UnsafeCell<f32>` has the layout of `f32`, and `into_inner` has shown that the box has no other owner.
    unsafe { Box::from_raw(Box::into_raw(buffer.0) as *mut [f32]) }.into_vec()
}

impl Piece {
    pub(crate) fn values(&mut self) -> &mut [f32] {
        let cells = &self.buffer.0[self.range.clone()];
        // SAFETY: the ranges of a buffer's pieces are disjoint, a piece cannot be cloned, and it is borrowed mutably for
        // as long as the values are. `join` takes the pieces, so no values are borrowed then.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(cells.as_ptr()), cells.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_their_pieces_of_one_buffer() {
        let mut pieces = cut([3, 0, 5, 1].into_iter());
        std::thread::scope(|scope| {
            for (number, piece) in pieces.iter_mut().enumerate() {
                scope.spawn(move || {
                    assert!(piece.values().iter().all(|&v| v == 0.0));
                    piece.values().fill(number as f32);
                });
            }
        });
        assert_eq!(join(pieces), [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0]);
        assert!(join(cut(std::iter::empty())).is_empty());
    }

    #[test]
    #[should_panic(expected = "all pieces are given back")]
    fn a_buffer_with_a_piece_missing_is_not_joined() {
        let mut pieces = cut([1, 1].into_iter());
        let _missing = pieces.pop();
        join(pieces);
    }
}
