//! The windows of a convolution over feature maps, and their division into tiles.

use super::source::{Source, pitch};
use crate::buffer::with_scratch;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::product::Run;

/// Elements of an input tile; its copy with a border stays in the second-level cache.
pub(super) const TILE_ELEMENTS: usize = 32 * 1024;

/// Fewest positions of a tile that amortise reading the whole weight, even if the tile's copy is larger.
pub(super) const TILE_POSITIONS: usize = 192;

/// A grid of windows over feature maps: the window of position `(i, j)` has the elements
/// `(i * step[0] + offsets[0][a], j * step[1] + offsets[1][b])`, zero outside the map.
pub(super) struct Windows {
    pub(super) source: Maps,
    pub(super) offsets: [Vec<isize>; 2],
    pub(super) step: [usize; 2],
    pub(super) grid: [usize; 2],
}

/// Some whole images, or some rows of the grid of one image.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) first_image: usize,
    pub(super) images: usize,
    pub(super) first_row: usize,
    pub(super) rows: usize,
}

impl Windows {
    /// The windows of the forward pass.
    pub(super) fn forward(sizes: &Geometry) -> Self {
        let offsets = [0, 1].map(|axis| {
            (0..sizes.kernel[axis])
                .map(|tap| (tap * sizes.dilation[axis]).cast_signed() - sizes.padding[axis].cast_signed())
                .collect()
        });
        Self {
            source: sizes.input,
            offsets,
            step: sizes.stride,
            grid: [sizes.output.height, sizes.output.width],
        }
    }

    pub(super) fn lowest(&self, axis: usize) -> isize {
        self.offsets[axis].iter().copied().min().unwrap_or(0)
    }

    /// Rows (`axis` 0) or columns (1) of the source that `count` grid positions in a row cover.
    fn extent(&self, axis: usize, count: usize) -> usize {
        let highest = self.offsets[axis].iter().copied().max().unwrap_or(0);
        (count - 1) * self.step[axis] + (highest - self.lowest(axis)).cast_unsigned() + 1
    }

    /// True if no window leaves its image.
    pub(super) fn inside(&self) -> bool {
        (0..2).all(|axis| {
            let size = [self.source.height, self.source.width][axis];
            let lowest = self.lowest(axis);
            lowest >= 0 && lowest.cast_unsigned() + self.extent(axis, self.grid[axis]) <= size
        })
    }

    /// Whether the maps that are read and those of `outputs` channels that are written have more elements than the weight.
    pub(super) fn exceed_weight(&self, outputs: usize, groups: usize) -> bool {
        let taps = self.offsets[0].len() * self.offsets[1].len();
        let written = self.source.images * self.grid[0] * self.grid[1] * outputs;
        self.source.len() + written > taps * self.source.channels / groups * outputs
    }

    pub(super) fn tiles(&self) -> Vec<Tile> {
        self.tiles_of(self.source.channels, TILE_POSITIONS)
    }

    /// As [`tiles`](Self::tiles), but so many that `threads` end together, if there are so many rows.
    pub(super) fn tiles_for(&self, threads: usize) -> Vec<Tile> {
        let tiles = self.tiles();
        if divides_well(tiles.len(), threads) {
            return tiles;
        }
        let parts = tiles.len().next_multiple_of(threads).div_ceil(self.source.images);
        self.tiles_of_rows(self.grid[0].div_ceil(parts))
    }

    /// Tiles of as many positions as suit maps of `channels`, or of `positions` if these are more.
    pub(super) fn tiles_of(&self, channels: usize, positions: usize) -> Vec<Tile> {
        let row = self.step[0] * self.source.width * channels;
        let most_rows = (TILE_ELEMENTS / row).max(positions / self.grid[1]);
        let rows = most_rows.clamp(1, self.grid[0]);
        if rows < self.grid[0] {
            // Tiles of nearly equal numbers of rows.
            let parts = self.grid[0].div_ceil(rows);
            self.tiles_of_rows(self.grid[0].div_ceil(parts))
        } else {
            self.tiles_of_images(most_rows / self.grid[0])
        }
    }

    /// Tiles of so many images, the last one of fewer.
    pub(super) fn tiles_of_images(&self, images: usize) -> Vec<Tile> {
        let images = images.clamp(1, self.source.images);
        (0..self.source.images)
            .step_by(images)
            .map(|first_image| Tile {
                first_image,
                images: images.min(self.source.images - first_image),
                first_row: 0,
                rows: self.grid[0],
            })
            .collect()
    }

    /// Tiles of so many rows of an image, the last ones of fewer.
    pub(super) fn tiles_of_rows(&self, rows: usize) -> Vec<Tile> {
        (0..self.source.images)
            .flat_map(|first_image| {
                (0..self.grid[0]).step_by(rows).map(move |first_row| Tile {
                    first_image,
                    images: 1,
                    first_row,
                    rows: rows.min(self.grid[0] - first_row),
                })
            })
            .collect()
    }

    /// Calls `work` with the values from the tile's first window element on and the sizes of their rows: the values of
    /// the source itself, or a copy with a border of zeros.
    pub(super) fn with_view<R>(
        &self,
        source: &Source<'_>,
        tile: Tile,
        work: impl FnOnce(View<'_>) -> R,
    ) -> R {
        let Maps { height, width, channels, .. } = self.source;
        if self.inside() {
            let row = tile.first_row * self.step[0] + self.lowest(0).cast_unsigned();
            let column = self.lowest(1).cast_unsigned();
            let first = ((tile.first_image * height + row) * width + column) * channels;
            if let Some(values) = source.values(first) {
                let count = tile.images * tile.rows * self.step[0] * width * channels;
                let next = following(values, count);
                return work(View { values, next, image_rows: height, row_pixels: width, pitch: channels });
            }
        }
        with_scratch(0, self.copy_len(tile), |copy| work(self.copy(source, tile, copy)))
    }

    /// Elements of the copy of a tile with a border of zeros.
    pub(super) fn copy_len(&self, tile: Tile) -> usize {
        let View { image_rows, row_pixels, pitch, .. } = self.view_of_copy(tile, &[]);
        tile.images * image_rows * row_pixels * pitch
    }

    /// Copies the values of the tile's windows, with a border of zeros, to the first elements of `copy`.
    pub(super) fn copy<'a>(&self, source: &Source<'_>, tile: Tile, copy: &'a mut [f32]) -> View<'a> {
        let Maps { height, width, channels, .. } = self.source;
        let View { image_rows, row_pixels, pitch, .. } = self.view_of_copy(tile, &[]);
        let row = row_pixels * pitch;
        // Columns [left, right) of the copy are columns of the source.
        let left = (-self.lowest(1)).clamp(0, row_pixels.cast_signed()).cast_unsigned();
        let right = (width.cast_signed() - self.lowest(1))
            .clamp(left.cast_signed(), row_pixels.cast_signed())
            .cast_unsigned();
        let first_column = (self.lowest(1) + left.cast_signed()).cast_unsigned();
        for image in 0..tile.images {
            for r in 0..image_rows {
                let to = &mut copy[(image * image_rows + r) * row..][..row];
                let y = (tile.first_row * self.step[0] + r).cast_signed() + self.lowest(0);
                if y < 0 || y >= height.cast_signed() {
                    to.fill(0.0);
                    continue;
                }
                to[..left * pitch].fill(0.0);
                to[right * pitch..].fill(0.0);
                if left < right {
                    let from =
                        ((tile.first_image + image) * height + y.cast_unsigned()) * width + first_column;
                    source.copy_with_pitch(
                        from * channels,
                        channels,
                        pitch,
                        &mut to[left * pitch..right * pitch],
                    );
                }
            }
        }
        self.view_of_copy(tile, copy)
    }

    /// The sizes of the copy of a tile, with its values.
    pub(super) fn view_of_copy<'a>(&self, tile: Tile, values: &'a [f32]) -> View<'a> {
        let [image_rows, row_pixels] = [self.extent(0, tile.rows), self.extent(1, self.grid[1])];
        View { values, next: &[], image_rows, row_pixels, pitch: pitch(self.source.channels) }
    }

    /// The offsets of the first elements of the tile's windows in the view.
    pub(super) fn positions(&self, tile: Tile, view: &View<'_>) -> Vec<usize> {
        let mut positions = Vec::with_capacity(tile.images * tile.rows * self.grid[1]);
        for image in 0..tile.images {
            for i in 0..tile.rows {
                let row = (image * view.image_rows + i * self.step[0]) * view.row_pixels;
                for j in 0..self.grid[1] {
                    positions.push((row + j * self.step[1]) * view.pitch);
                }
            }
        }
        positions
    }

    /// The offset of window element `(a, b)`, channel 0, from the window's first element.
    pub(super) fn tap(&self, a: usize, b: usize, view: &View<'_>) -> usize {
        let row = (self.offsets[0][a] - self.lowest(0)).cast_unsigned();
        let column = (self.offsets[1][b] - self.lowest(1)).cast_unsigned();
        (row * view.row_pixels + column) * view.pitch
    }

    /// The offsets of all window elements, channel 0, row by row.
    pub(super) fn taps(&self, view: &View<'_>) -> Vec<usize> {
        let columns = self.offsets[1].len();
        (0..self.offsets[0].len() * columns).map(|tap| self.tap(tap / columns, tap % columns, view)).collect()
    }

    /// The runs of a window's elements in the order (row, column, channel), of the `channels`
    /// channels from `first_channel`.
    pub(super) fn runs(&self, first_channel: usize, channels: usize, view: &View<'_>) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for a in 0..self.offsets[0].len() {
            for b in 0..self.offsets[1].len() {
                let offset = self.tap(a, b, view) + first_channel;
                match runs.last_mut() {
                    Some(last) if last.offset + last.len == offset => last.len += channels,
                    _ => runs.push(Run { offset, len: channels }),
                }
            }
        }
        runs
    }
}

/// Whether `threads` that take one of so many tasks after another are busy for nine tenths of the time.
pub(super) fn divides_well(tasks: usize, threads: usize) -> bool {
    10 * tasks >= 9 * tasks.div_ceil(threads) * threads
}

/// The values of the windows of a tile.
pub(super) struct View<'a> {
    pub(super) values: &'a [f32],
    /// Values that the next tile reads, if they follow these in memory.
    pub(super) next: &'a [f32],
    pub(super) image_rows: usize,
    pub(super) row_pixels: usize,
    /// Elements from a position to the next.
    pub(super) pitch: usize,
}

/// Up to `count` values after the first `count`.
pub(super) fn following(values: &[f32], count: usize) -> &[f32] {
    &values[count.min(values.len())..(2 * count).min(values.len())]
}

/// The part of `tile` that belongs to the images `[first, last)`.
pub(super) fn clip(tile: Tile, first: usize, last: usize) -> Option<Tile> {
    let from = tile.first_image.max(first);
    let to = (tile.first_image + tile.images).min(last);
    (from < to).then(|| Tile { first_image: from, images: to - from, ..tile })
}

/// The grid positions of a tile as runs of terms, one per row of the grid.
pub(super) fn tile_runs(windows: &Windows, tile: Tile, view: &View<'_>) -> Vec<Run> {
    let mut runs = Vec::with_capacity(tile.images * tile.rows);
    for image in 0..tile.images {
        for i in 0..tile.rows {
            let row = image * view.image_rows + i * windows.step[0];
            runs.push(Run { offset: row * view.row_pixels * view.pitch, len: windows.grid[1] });
        }
    }
    runs
}

/// The first element of `maps` at a tile's grid positions, which are contiguous, then their number and the elements of
/// each.
pub(super) fn tile_positions(tile: Tile, maps: Maps) -> (usize, [usize; 2]) {
    let first = (tile.first_image * maps.height + tile.first_row) * maps.width;
    (first * maps.channels, [tile.images * tile.rows * maps.width, maps.channels])
}
