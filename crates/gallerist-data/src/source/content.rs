//! What a source gives for one image.

use crate::image::Image;

/// What a source gives for one image.
pub enum ImageContent {
    /// The bytes of an image file (PNG, JPEG, GIF, BMP, WebP, TIFF), which the library decodes: within its limits,
    /// upright, and large JPEGs at a reduced size where that is enough.
    Encoded(Vec<u8>),
    /// The image itself, upright.
    Decoded(Image),
}

impl ImageContent {
    /// The bytes of the file, or the pixels.
    pub fn bytes(&self) -> &[u8] {
        match self {
            ImageContent::Encoded(bytes) => bytes,
            ImageContent::Decoded(image) => image.pixels(),
        }
    }

    /// The bytes of the file, or the pixels, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            ImageContent::Encoded(bytes) => bytes,
            ImageContent::Decoded(image) => image.into_pixels(),
        }
    }
}
