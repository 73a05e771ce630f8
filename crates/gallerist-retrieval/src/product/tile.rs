//! Panels of rows and tiles of keys: what the kernels read and write.

/// Rows in a panel: the width of a tile.
pub(crate) const LANES: usize = 48;
/// Rows of the other side in a tile: its height.
pub(crate) const ROWS: usize = 8;
/// Groups of [`ROWS`] in a panel.
pub(crate) const GROUPS: usize = LANES / ROWS;

/// Values of each row that are multiplied before the next group's turn: 12 KiB of a panel.
pub(super) const PART: usize = 64;

/// Values `k` of the rows of one panel, for each `k`.
pub(crate) type Panel = [[f32; LANES]];

/// The keys of [`ROWS`] rows with the [`LANES`] rows of a panel.
#[repr(align(64))]
#[derive(Clone)]
pub(crate) struct Tile(pub(crate) [[f32; LANES]; ROWS]);

impl Tile {
    pub(crate) fn new() -> Self {
        Self([[0.0; LANES]; ROWS])
    }

    /// A tile for each group of a panel.
    pub(crate) fn for_panel() -> [Self; GROUPS] {
        std::array::from_fn(|_| Self::new())
    }
}

/// For each row of a tile, a bit per lane.
pub(crate) type Bits = [u64; ROWS];
