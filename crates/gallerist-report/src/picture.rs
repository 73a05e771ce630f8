//! Pictures on a page. Each is stored once, however often it is shown.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};

use crate::ReportError;

/// Pictures with at most this side are shown without interpolation, which would blur a drawing of 28 x 28 pixels.
const PIXELATED_SIDE: u32 = 48;

/// An encoded picture, cheap to clone.
///
/// A page contains the bytes in base64, which is a third longer. Scale photographs to about 160 pixels a side first.
///
/// ```
/// use gallerist_report::Picture;
///
/// let ramp: Vec<u8> = (0..28 * 28).map(|i| (i % 256) as u8).collect();
/// let picture = Picture::from_pixels(28, 28, 1, &ramp)?;
/// assert_eq!(Picture::from_encoded(picture.bytes().to_vec())?, picture);
/// # Ok::<(), gallerist_report::ReportError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    bytes: Arc<[u8]>,
    media_type: &'static str,
    /// The longer side in pixels, where it is known without decoding.
    side: Option<u32>,
}

impl Picture {
    /// A picture from the bytes of a PNG, JPEG, GIF, WebP or BMP file.
    ///
    /// The first bytes determine the format; the rest is not decoded.
    ///
    /// # Errors
    /// [`ReportError::PictureFormat`] for any other format. SVG is refused because it can load other files.
    pub fn from_encoded(bytes: impl Into<Arc<[u8]>>) -> Result<Self, ReportError> {
        let bytes = bytes.into();
        let media_type = match &*bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => "image/bmp",
            _ => return Err(ReportError::PictureFormat { bytes: bytes.len() }),
        };
        let side = (media_type == "image/png").then(|| png_side(&bytes)).flatten();
        Ok(Self { bytes, media_type, side })
    }

    /// A picture from pixels: `height` rows of `width` pixels of `channels`
    /// values, 1 (grey) or 3 (RGB), top row first. It is stored as PNG.
    ///
    /// # Errors
    /// [`ReportError::PixelCount`] if `pixels` does not have
    /// `width * height * channels` bytes, or if one of the three is impossible.
    pub fn from_pixels(width: u32, height: u32, channels: u8, pixels: &[u8]) -> Result<Self, ReportError> {
        let wanted = u128::from(width) * u128::from(height) * u128::from(channels);
        let color = match channels {
            1 => png::ColorType::Grayscale,
            _ => png::ColorType::Rgb,
        };
        if !matches!(channels, 1 | 3) || wanted == 0 || wanted != pixels.len() as u128 {
            return Err(ReportError::PixelCount { width, height, channels, found: pixels.len() });
        }
        let encode = || -> Result<Vec<u8>, png::EncodingError> {
            let mut bytes = Vec::new();
            let mut encoder = png::Encoder::new(Cursor::new(&mut bytes), width, height);
            encoder.set_color(color);
            encoder.set_depth(png::BitDepth::Eight);
            encoder.set_compression(png::Compression::Balanced);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(pixels)?;
            writer.finish()?;
            Ok(bytes)
        };
        let bytes = encode().map_err(|source| ReportError::Encode { width, height, source })?;
        Ok(Self { bytes: bytes.into(), media_type: "image/png", side: Some(width.max(height)) })
    }

    /// The encoded bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The picture as a `data:` URL.
    pub(crate) fn data_uri(&self) -> String {
        format!("data:{};base64,{}", self.media_type, STANDARD.encode(&self.bytes))
    }

    /// Whether the picture is so small that it is shown with hard pixel edges.
    pub(crate) fn is_pixelated(&self) -> bool {
        self.side.is_some_and(|side| side <= PIXELATED_SIDE)
    }

    /// The media type, such as `image/png`.
    pub fn media_type(&self) -> &'static str {
        self.media_type
    }
}

/// The longer side of a PNG: its first chunk starts with width and height.
fn png_side(bytes: &[u8]) -> Option<u32> {
    let side = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    (bytes.get(12..16)? == b"IHDR").then_some(side(16)?.max(side(20)?))
}

/// The pictures of one page. The same bytes are stored once.
#[derive(Default)]
pub(crate) struct PictureSheet {
    numbers: HashMap<Arc<[u8]>, usize>,
    pictures: Vec<Picture>,
}

impl PictureSheet {
    /// A place where `picture` is shown, square, the whole picture visible.
    pub(crate) fn show(&mut self, picture: Option<&Picture>, description: &str) -> Markup {
        let Some(picture) = picture else {
            return html! {
                span.picture.missing role="img" aria-label=(description) { "no picture" }
            };
        };
        let number = *self.numbers.entry(Arc::clone(&picture.bytes)).or_insert_with(|| {
            self.pictures.push(picture.clone());
            self.pictures.len() - 1
        });
        let pixelated = picture.is_pixelated();
        html! {
            svg.picture.pixelated[pixelated] viewBox="0 0 100 100" role="img" aria-label=(description) {
                use href={ "#p" (number) } {}
            }
        }
    }

    /// The stored pictures, to be put once anywhere on the page.
    pub(crate) fn definitions(&self) -> Markup {
        html! {
            @if !self.pictures.is_empty() {
                svg.hidden aria-hidden="true" {
                    defs {
                        @for (number, picture) in self.pictures.iter().enumerate() {
                            image id={ "p" (number) } width="100" height="100"
                                href=(picture.data_uri()) {}
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_survive_the_encoding() {
        for (width, height, channels) in [(1, 1, 1), (3, 2, 1), (2, 5, 3)] {
            let pixels: Vec<u8> =
                (0..width * height * u32::from(channels)).map(|i| (i * 37 % 251) as u8).collect();
            let picture = Picture::from_pixels(width, height, channels, &pixels).unwrap();
            let mut reader = png::Decoder::new(Cursor::new(picture.bytes())).read_info().unwrap();
            let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
            reader.next_frame(&mut decoded).unwrap();
            assert_eq!(decoded, pixels);
            assert_eq!(reader.info().size(), (width, height));
        }
    }

    #[test]
    fn pixel_buffers_of_a_wrong_size_are_refused() {
        for (width, height, channels, bytes) in [
            (2, 2, 1, 3),
            (2, 2, 3, 13),
            (0, 2, 1, 0),
            (2, 2, 4, 16),
            (2, 2, 0, 0),
            (u32::MAX, u32::MAX, 3, 4),
        ] {
            let error = Picture::from_pixels(width, height, channels, &vec![0; bytes]).unwrap_err();
            assert!(matches!(error, ReportError::PixelCount { found, .. } if found == bytes));
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn formats_are_told_by_their_first_bytes() {
        let cases: [(&[u8], &str); 5] = [
            (b"\x89PNG\r\n\x1a\n", "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
            (b"BM\x46\0\0\0\0\0\0\0", "image/bmp"),
        ];
        for (bytes, media_type) in cases {
            assert_eq!(Picture::from_encoded(bytes).unwrap().media_type, media_type);
        }
        for bytes in [&b""[..], b"<svg onload=alert(1)>", b"BMW is no bitmap", b"II*\0"] {
            let error = Picture::from_encoded(bytes).unwrap_err();
            assert!(matches!(error, ReportError::PictureFormat { .. }));
        }
    }

    #[test]
    fn the_side_of_a_png_is_read_from_its_header() {
        let picture = Picture::from_pixels(7, 130, 1, &[0; 910]).unwrap();
        let read = Picture::from_encoded(picture.bytes().to_vec()).unwrap();
        assert_eq!(read.side, Some(130));
        let cut = Picture::from_encoded(&picture.bytes()[..18]).unwrap();
        assert_eq!(cut.side, None);
    }

    #[test]
    fn a_picture_shown_three_times_is_stored_once() {
        let mut sheet = PictureSheet::default();
        let picture = Picture::from_pixels(2, 2, 1, &[0, 255, 255, 0]).unwrap();
        let other = Picture::from_pixels(2, 2, 1, &[255, 0, 0, 255]).unwrap();
        for picture in [&picture, &other, &picture, &picture] {
            sheet.show(Some(picture), "");
        }
        let stored = sheet.definitions().into_string();
        assert_eq!(stored.matches("data:image/png").count(), 2);
    }
}
