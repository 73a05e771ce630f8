//! Images turned upright.

use image::metadata::Orientation;

use crate::image::Image;

/// The image as EXIF says it is held.
pub(super) fn upright(image: Image, orientation: Orientation) -> Image {
    // `Image::rotate` turns counter-clockwise, EXIF counts clockwise.
    match orientation {
        Orientation::NoTransforms => image,
        Orientation::Rotate90 => image.rotate(3),
        Orientation::Rotate180 => image.rotate(2),
        Orientation::Rotate270 => image.rotate(1),
        Orientation::FlipHorizontal => image.flip_horizontal(),
        Orientation::FlipVertical => image.rotate(2).flip_horizontal(),
        Orientation::Rotate90FlipH => image.rotate(3).flip_horizontal(),
        Orientation::Rotate270FlipH => image.rotate(1).flip_horizontal(),
    }
}
