//! Small pictures of points in one picture.

use gallerist_data::Image;
use gallerist_report::{Picture, Sprite};
use rayon::prelude::*;

use super::source::{Point, Source};

/// The grey value around a picture that does not fill its tile.
const GROUND: u8 = 0xf1;

/// The pictures of some points in one sprite of square tiles of `side` pixels; `None` if none can be read.
pub(crate) fn sprite(source: &Source, points: &[Point], side: usize) -> Option<Sprite> {
    let (of_queries, of_items) = (source.queries.pictures(), source.items().pictures());
    let read = |point: &Point| if point.gallery { &of_items } else { &of_queries }.read(point.row, side);
    let tiles: Vec<Option<Image>> = points.par_iter().map(read).collect();
    let channels = tiles.iter().flatten().map(Image::channels).max()?;
    let columns = (1..).find(|columns| columns * columns >= points.len())?;
    let width = columns * side;
    let mut pixels = vec![GROUND; width * points.len().div_ceil(columns) * side * channels];
    for (place, tile) in tiles.into_iter().enumerate() {
        let Some(tile) = tile.map(|tile| tile.to_channels(channels)) else { continue };
        let left = place % columns * side + (side - tile.width()) / 2;
        let top = place / columns * side + (side - tile.height()) / 2;
        for (y, line) in tile.pixels().chunks(tile.width() * channels).enumerate() {
            let at = ((top + y) * width + left) * channels;
            pixels[at..at + line.len()].copy_from_slice(line);
        }
    }
    let height = points.len().div_ceil(columns) * side;
    let picture = Picture::from_pixels(width as u32, height as u32, channels as u8, &pixels).ok()?;
    Some(Sprite { picture, tile: side as u32, columns: columns as u32 })
}
