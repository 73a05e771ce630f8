//! Where the values of maps of bytes are.

use std::ops::Range;

use crate::maps::Maps;

/// The memory of the maps of one image, with a border around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
    /// Bytes from a position to the next: the channels, then bytes without meaning.
    pub(crate) pitch: usize,
    /// Rows and columns of the border before the maps.
    pub(crate) before: [usize; 2],
    /// And after them.
    pub(crate) after: [usize; 2],
}

impl Layout {
    /// Without a border. Images of up to 4 channels have 4 bytes at a position, other maps a multiple of 16.
    pub(crate) fn new(maps: Maps, is_image: bool) -> Self {
        let Maps { height, width, channels, .. } = maps;
        let pitch = if is_image && channels <= 4 { 4 } else { channels.next_multiple_of(16) };
        Self { height, width, channels, pitch, before: [0; 2], after: [0; 2] }
    }

    /// Bytes from a row to the next.
    pub(crate) fn row(&self) -> usize {
        (self.before[1] + self.width + self.after[1]) * self.pitch
    }

    /// Bytes of all.
    pub(crate) fn len(&self) -> usize {
        (self.before[0] + self.height + self.after[0]) * self.row()
    }

    /// The first byte of a position, which may be in the border: rows and columns are counted from the first one there.
    pub(crate) fn at_border(&self, row: usize, column: usize) -> usize {
        row * self.row() + column * self.pitch
    }

    /// The first byte of a position of the maps.
    pub(crate) fn at(&self, row: usize, column: usize) -> usize {
        self.at_border(self.before[0] + row, self.before[1] + column)
    }

    /// The parts of the border: before the first row, and after each row up to the next one.
    pub(crate) fn border(&self) -> impl Iterator<Item = Range<usize>> {
        let Layout { height, width, pitch, .. } = *self;
        let (first, row, len) = (self.at(0, 0), self.row(), self.len());
        let after = move |i: usize| {
            let end = first + i * row + width * pitch;
            end..if i + 1 < height { first + (i + 1) * row } else { len }
        };
        std::iter::once(0..first).chain((0..height).map(after)).filter(|part| !part.is_empty())
    }
}
