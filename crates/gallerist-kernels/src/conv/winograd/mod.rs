//! 3 x 3 convolutions of stride 1 and their gradients with a quarter of the multiplications: F(4 x 4, 3 x 3) of Lavin and
//! Gray (2016), after Winograd.
//!
//! A tile of 6 x 6 inputs `d` gives 4 x 4 outputs `y = A^T [(G g G^T) (B^T d B)] A`, where the product in brackets is one for
//! each of the 36 elements: 36 multiplications instead of 144. Over all channels, each element is a matrix product of tiles
//! by input channels with input by output channels ([`correlate`]). The input gradient is a convolution of the same kind.
//!
//! The weight gradient is the derivative of this form: `G^T [(B^T d B) (A dy A^T)] G`, where each element is a matrix product
//! of input channels by tiles with tiles by output channels ([`weight_gradient`]).
//!
//! The rounding errors are larger than those of the definition, by a factor that the tests bound.

mod correlate;
mod tiles;
mod transforms;
mod weight;
mod weight_gradient;

#[cfg(test)]
mod tests;

pub(super) use correlate::correlate;
pub(super) use weight::Transformed;
pub(super) use weight_gradient::weight_gradient;

use std::ops::Range;

use super::source::{Source, pitch};
use super::windows::{Tile, Windows};
use crate::buffer::with_scratch;
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::product::{Choice, panel_width};

/// Side of a tile of the output.
const OUT: usize = 4;

/// Side of a tile of the input.
const IN: usize = OUT + 2;

/// Elements of a tile of the input: matrix products.
const ELEMENTS: usize = IN * IN;

/// Side of the kernel.
const SIDE: usize = 3;

/// Channels are whole vectors of any instruction set.
const LANES: usize = 16;

/// Most tiles of a block, unless a row of tiles has more.
const TILES: usize = 32;

/// Fewest tiles of an image for which the products pay for reading the larger weights.
const FEWEST: usize = 12;

/// Fewest tiles of a batch, and channels on one side, for which it pays to transform the weight, too.
const FEWEST_OF_BATCH: usize = 24;
const FEWEST_CHANNELS: usize = 32;

/// Whether a convolution and its gradients can be computed this way.
pub(super) fn fits(sizes: &Geometry) -> bool {
    let smallest = |maps: Maps| maps.height.min(maps.width);
    sizes.kernel == [SIDE; 2]
        && sizes.stride == [1, 1]
        && sizes.dilation == [1, 1]
        && sizes.groups == 1
        && sizes.input.channels.is_multiple_of(LANES)
        && sizes.output.channels.is_multiple_of(LANES)
        // Without vectors, panels are narrower.
        && panel_width().is_multiple_of(LANES)
        && smallest(sizes.input).min(smallest(sizes.output)) >= OUT
}

/// Whether this way is faster than the definition for a convolution that [`fits`] and whose weight was transformed before.
///
/// The number of images does not count: the embedding of an image must not depend on the others in its batch.
pub(super) fn pays_if_prepared(sizes: &Geometry) -> bool {
    tiles_of_image(sizes) >= FEWEST
}

/// Whether this way is permitted, and faster than the definition for a convolution of a training step, with its gradients.
pub(super) fn pays(sizes: &Geometry) -> bool {
    let Maps { images, height, width, channels } = sizes.output;
    Choice::current().winograd
        && fits(sizes)
        && channels.max(sizes.input.channels) >= FEWEST_CHANNELS
        && tiles_of_image(sizes) * images >= FEWEST_OF_BATCH
        // Most of a tile is inside the map.
        && tiles_of_image(sizes) * OUT * OUT <= 2 * height * width
}

fn tiles_of_image(sizes: &Geometry) -> usize {
    Grid::new([sizes.output.height, sizes.output.width]).of_image()
}

/// The tiles of an image.
#[derive(Clone, Copy)]
struct Grid {
    rows: usize,
    columns: usize,
}

impl Grid {
    fn new(positions: [usize; 2]) -> Self {
        let [rows, columns] = positions.map(|side| side.div_ceil(OUT));
        Self { rows, columns }
    }

    fn of_image(self) -> usize {
        self.rows * self.columns
    }
}

/// Some whole images, or some rows of tiles of one image: contiguous positions of the output.
#[derive(Clone, Copy)]
struct Block {
    positions: Tile,
    grid: Grid,
}

impl Block {
    /// All blocks of a result. They do not depend on the number of threads.
    fn all(windows: &Windows) -> Vec<Self> {
        let grid = Grid::new(windows.grid);
        let positions = if grid.of_image() > TILES {
            let parts = grid.rows.div_ceil((TILES / grid.columns).max(1));
            windows.tiles_of_rows(grid.rows.div_ceil(parts) * OUT)
        } else {
            windows.tiles_of_images(TILES / grid.of_image())
        };
        Self::of(windows, positions)
    }

    /// As [`all`](Self::all), or smaller ones, so that there are at least `count` if the images have so many rows of tiles.
    fn at_least(count: usize, windows: &Windows) -> Vec<Self> {
        let blocks = Self::all(windows);
        if blocks.len() >= count {
            return blocks;
        }
        let parts = count.div_ceil(windows.source.images);
        Self::of(windows, windows.tiles_of_rows(Grid::new(windows.grid).rows.div_ceil(parts) * OUT))
    }

    fn of(windows: &Windows, positions: Vec<Tile>) -> Vec<Self> {
        let of = |positions: Tile| Self { positions, grid: Grid::new([positions.rows, windows.grid[1]]) };
        positions.into_iter().map(of).collect()
    }

    fn tiles(&self) -> usize {
        self.positions.images * self.grid.of_image()
    }

    /// The image and the first row and column of a tile. Image and row are those of the maps.
    fn place(&self, tile: usize) -> [usize; 3] {
        let (image, rest) = (tile / self.grid.of_image(), tile % self.grid.of_image());
        let (row, column) = (rest / self.grid.columns, rest % self.grid.columns);
        [self.positions.first_image + image, self.positions.first_row + row * OUT, column * OUT]
    }
}

/// Where the elements of tiles are written: element `e` of tile `t` is row `e * tiles + t`.
#[derive(Clone, Copy)]
struct Elements<'a> {
    values: Disjoint<'a>,
    tiles: usize,
    /// Elements from a row to the next.
    row: usize,
}

/// Elements of a row of some channels. Rows a multiple of half a kilobyte apart would fall into few sets of the cache.
fn row_of(channels: usize) -> usize {
    channels + LANES
}

impl<'a> Elements<'a> {
    fn new(values: &'a mut [f32], tiles: usize, channels: usize) -> Self {
        let row = row_of(channels);
        assert!(values.len() >= ELEMENTS * tiles * row);
        Self { values: Disjoint::new(values), tiles, row }
    }

    /// # Safety
    ///
    /// Nothing else accesses the rows of this tile while the result is in use.
    unsafe fn of(&self, tile: usize, channels: usize) -> [[&'a mut [f32]; IN]; IN] {
        assert!(tile < self.tiles && channels <= self.row);
        std::array::from_fn(|i| {
            // SAFETY: rows do not overlap; the caller's promise.
            std::array::from_fn(|j| unsafe {
                self.values.slice(((i * IN + j) * self.tiles + tile) * self.row, channels)
            })
        })
    }
}

/// Rows of some images of feature maps.
struct Rows<'a> {
    values: &'a [f32],
    first_image: usize,
    rows: Range<usize>,
    width: usize,
    channels: usize,
    /// Elements from a position to the next.
    pitch: usize,
}

impl<'a> Rows<'a> {
    /// Calls `work` with the rows of a source that the tiles of a block read, each of which has `beyond` more rows than the
    /// block has there: the values of the source itself, or a copy in scratch memory 0.
    fn read<R>(
        source: &Source<'_>,
        windows: &Windows,
        block: &Block,
        beyond: usize,
        work: impl FnOnce(&Rows<'_>) -> R,
    ) -> R {
        let maps = windows.source;
        let Tile { first_image, images, first_row, .. } = block.positions;
        let first = first_row.cast_signed() + windows.lowest(0);
        let end = first + (block.grid.rows * OUT + beyond).cast_signed();
        let inside = |row: isize| row.clamp(0, maps.height.cast_signed()).cast_unsigned();
        let rows = inside(first)..inside(end);
        let (width, channels) = (maps.width, maps.channels);
        let start = |image: usize| (image * maps.height + rows.start) * width * channels;
        if images == 1 || rows.len() == maps.height {
            // Contiguous.
            if let Some(values) = source.values(start(first_image)) {
                return work(&Rows { values, first_image, rows, width, channels, pitch: channels });
            }
        }
        let pitch = pitch(channels);
        let of_image = rows.len() * width * pitch;
        with_scratch(0, images * of_image, |copy| {
            if of_image > 0 {
                for (image, copy) in copy.chunks_exact_mut(of_image).enumerate() {
                    source.copy_with_pitch(start(first_image + image), channels, pitch, copy);
                }
            }
            work(&Rows { values: copy, first_image, rows: rows.clone(), width, channels, pitch })
        })
    }

    /// The channels of the `N x N` positions from a row and a column on; `zeros` outside the maps.
    fn tile<'b, const N: usize>(
        &'b self,
        image: usize,
        [row, column]: [isize; 2],
        zeros: &'b [f32],
    ) -> [[&'b [f32]; N]; N] {
        let image = (image - self.first_image) * self.rows.len();
        std::array::from_fn(|i| {
            let row = usize::try_from(row + i.cast_signed()).ok().filter(|row| self.rows.contains(row));
            std::array::from_fn(|j| {
                let column = usize::try_from(column + j.cast_signed()).ok();
                match row.zip(column.filter(|&column| column < self.width)) {
                    Some((row, column)) => {
                        let position = (image + row - self.rows.start) * self.width + column;
                        &self.values[position * self.pitch..][..self.channels]
                    }
                    None => &zeros[..self.channels],
                }
            })
        })
    }
}
