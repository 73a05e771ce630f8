//! What is computed at a time.

use super::ending::Ends;
use super::lines::Line;
use crate::disjoint::Disjoint;
use crate::product::Run;

/// A position of the result: the first byte of its window, its first element in the result, and its first byte in the maps that
/// are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) add: u32,
}

/// Where the result is written.
#[derive(Clone, Copy)]
pub(crate) enum Out<'a> {
    /// Whole vectors of a position are written.
    Bytes(Disjoint<'a, u8>),
    Floats(Disjoint<'a>),
}

/// Maps that are added.
pub(crate) type Added<'a> = &'a [u8];

/// A panel: its first column, its vectors, and its weights.
pub(super) struct Panel<'a> {
    pub(super) first: usize,
    pub(super) vectors: usize,
    pub(super) weights: &'a [Line],
    pub(super) ends: Ends<'a>,
}

/// A panel of columns at some positions.
pub(super) struct PanelTask<'a> {
    pub(super) x: &'a [u8],
    pub(super) runs: &'a [Run],
    pub(super) panel: Panel<'a>,
    pub(super) positions: &'a [Position],
    pub(super) add: Option<Added<'a>>,
    /// Of all panels.
    pub(super) columns: usize,
}

/// A row of the result.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    /// The first byte of the first window.
    pub(crate) from: usize,
    /// The first byte of the result.
    pub(crate) to: usize,
    /// Positions.
    pub(crate) count: usize,
}

/// Bytes from one to the next.
#[derive(Clone, Copy)]
pub(crate) struct Steps {
    /// Row of the input.
    pub(crate) row: usize,
    /// Position of the input and of the result, which have the same channels.
    pub(crate) pitch: usize,
    /// Columns of the input from one window to the next.
    pub(crate) stride: usize,
}

/// A block of channels in a row.
pub(super) struct RowTask<'a> {
    /// From the first byte on that is read.
    pub(super) x: &'a [u8],
    pub(super) kernel: [usize; 2],
    pub(super) row: Row,
    pub(super) steps: Steps,
    /// Bytes of the block.
    pub(super) bytes: usize,
    pub(super) weights: &'a [Line],
    pub(super) ends: Ends<'a>,
}
