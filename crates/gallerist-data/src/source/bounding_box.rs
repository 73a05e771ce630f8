//! Bounding boxes.

use crate::image::Image;
use crate::size::Size;

/// A part of an image, in pixels from its upper left corner; edges may be between pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundingBox {
    /// Left edge.
    pub left: f32,
    /// Upper edge.
    pub top: f32,
    /// Distance of the vertical edges.
    pub width: f32,
    /// Distance of the horizontal edges.
    pub height: f32,
}

impl BoundingBox {
    /// From the first and the last pixel in each direction, counted from `first` (0, or 1 as in MATLAB).
    pub(super) fn inclusive([x1, y1, x2, y2]: [f32; 4], first: f32) -> BoundingBox {
        BoundingBox { left: x1 - first, top: y1 - first, width: x2 - x1 + 1.0, height: y2 - y1 + 1.0 }
    }

    /// The pixels that it touches, cut at the image's edges.
    pub(super) fn crop(&self, image: &Image) -> Result<Image, String> {
        // A float becomes the nearest integer in range; NaN becomes 0.
        let clip = |v: f32, side: usize| (v.max(0.0) as usize).min(side);
        let (left, right) =
            (clip(self.left.floor(), image.width()), clip((self.left + self.width).ceil(), image.width()));
        let (top, bottom) =
            (clip(self.top.floor(), image.height()), clip((self.top + self.height).ceil(), image.height()));
        if left >= right || top >= bottom {
            return Err(format!(
                "its bounding box, {} x {} pixels at ({}, {}), holds nothing of its {} pixels",
                self.height,
                self.width,
                self.left,
                self.top,
                image.size()
            ));
        }
        Ok(image.crop(left, top, Size { height: bottom - top, width: right - left }))
    }
}
