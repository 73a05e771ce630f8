//! A map on a page. The reader can zoom it, and sees the picture and class of the point under the pointer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use crate::Picture;
use crate::figure::{self, MapFigure};

/// Thumbnails of all points in one picture: square tiles, row after row.
#[derive(Clone, Debug)]
pub struct Sprite {
    /// The tiles.
    pub picture: Picture,
    /// The side of a tile in pixels.
    pub tile: u32,
    /// Tiles in a row.
    pub columns: u32,
}

/// A map of a page with the pictures of its points.
#[derive(Clone, Debug, Default)]
pub struct Atlas {
    /// The map.
    pub map: MapFigure,
    /// The pictures, one for each point in their order.
    pub sprite: Option<Sprite>,
}

/// The map as a static drawing, with the data from which the script makes an interactive one.
pub(crate) fn atlas(atlas: &Atlas) -> Markup {
    let map = &atlas.map;
    let still = figure::map(map, &mut |_| None);
    html! {
        figure.atlas data-places=(places(map)) data-classes=(classes(map))
            data-names=(serde_json::to_string(&map.names).expect("texts"))
            data-tile=[atlas.sprite.as_ref().map(|sprite| sprite.tile)]
            data-columns=[atlas.sprite.as_ref().map(|sprite| sprite.columns)]
        {
            (figure::image(&still))
            div.sky hidden {
                canvas tabindex="0" role="img"
                    aria-label={ (map.title) ". Plus and minus zoom, the arrow keys move, 0 shows all." } {}
                div.found hidden { canvas width="0" height="0" {} p {} }
                div.zoom {
                    button type="button" data-zoom="1.6" aria-label="Zoom in" { "+" }
                    button type="button" data-zoom="0.625" aria-label="Zoom out" { "−" }
                    button type="button" data-zoom="0" aria-label="Show all" { "all" }
                }
            }
            @if let Some(sprite) = &atlas.sprite {
                img.sprite hidden alt="" src=(sprite.picture.data_uri());
            }
            figcaption {
                p.note {
                    (map.title) ": " (map.note)
                    span.live hidden { " Drag to move, use the buttons or Ctrl and the wheel to zoom." }
                }
            }
        }
    }
}

/// x and y of each point as u16 of the larger extent, y upwards.
fn places(map: &MapFigure) -> String {
    let range = |axis: usize| {
        let values = || map.points.iter().map(|point| point[axis]);
        (values().fold(f32::INFINITY, f32::min), values().fold(f32::NEG_INFINITY, f32::max))
    };
    let (x, y) = (range(0), range(1));
    let extent = (x.1 - x.0).max(y.1 - y.0);
    let bytes: Vec<u8> = (map.points.iter())
        .flat_map(|point| {
            [point[0] - x.0, point[1] - y.0].map(|from_low| {
                let share = if extent > 0.0 { from_low / extent } else { 0.5 };
                ((share * f32::from(u16::MAX)).round() as u16).to_le_bytes()
            })
        })
        .flatten()
        .collect();
    STANDARD.encode(bytes)
}

/// The class of each point as u32.
fn classes(map: &MapFigure) -> String {
    let bytes: Vec<u8> = map.classes.iter().flat_map(|class| class.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_the_proportions_of_the_map() {
        let map = MapFigure { points: vec![[-1.0, 0.0], [3.0, 0.0], [1.0, 2.0]], ..MapFigure::default() };
        let bytes = STANDARD.decode(places(&map)).unwrap();
        let values: Vec<u16> = bytes.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        assert_eq!(values, [0, 0, 65535, 0, 32768, 32768]);
        let one = MapFigure { points: vec![[7.0, 7.0]], ..MapFigure::default() };
        assert_eq!(STANDARD.decode(places(&one)).unwrap(), [0x00, 0x80, 0x00, 0x80]);
    }
}
