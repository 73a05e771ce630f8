//! The picture that a walk has decoded.

use crate::color;
use crate::plane::Plane;

/// The components of a picture: grey, or light and two of chroma.
pub struct Planes(Vec<Plane>);

/// Grey or RGB pixels.
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 (grey) or 3 (RGB).
    pub channels: usize,
    /// `height x width x channels` bytes.
    pub pixels: Vec<u8>,
    /// How much of the last column and of the last row is beyond the picture, in eighths of a pixel. Not 0 only where
    /// the picture is reduced to sides that are no whole number of pixels.
    pub beyond: [usize; 2],
}

impl Planes {
    pub(crate) fn new(planes: Vec<Plane>) -> Option<Planes> {
        matches!(planes.len(), 1 | 3).then_some(Planes(planes))
    }

    /// 1 (grey) or 3.
    pub fn components(&self) -> usize {
        self.0.len()
    }

    /// The picture of a file whose header says `width` x `height`. Three components are converted from YCbCr to RGB,
    /// to the same bits as zune-jpeg converts them.
    pub fn picture(&self, width: usize, height: usize) -> Picture {
        let side = self.0[0].side;
        // In eighths of a pixel.
        let (width, height) = (width * side, height * side);
        let (columns, rows) = (width.div_ceil(8), height.div_ceil(8));
        let pixels = match &self.0[..] {
            [light, blue, red] => color::rgb([light, blue, red], columns, rows),
            [light, ..] => color::gray(light, columns, rows),
            [] => unreachable!("a picture has a component"),
        };
        let beyond = [8 * columns - width, 8 * rows - height];
        Picture { width: columns, height: rows, channels: self.0.len(), pixels, beyond }
    }
}
