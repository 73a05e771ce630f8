//! Pictures of all formats but JPEG. The oracle for accepted files of 8 bits is the decoder of the crate `image` on the
//! whole file, since Gallerist gives it only those parts that it needs.

use std::io::Cursor;

use gallerist_data::{DecodeLimits, Image, decode_with};
use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader};

use crate::cost::{Limit, measured};
use crate::goals::reached;
use crate::repair;

/// The largest decoded picture here. Larger ones take the same path, and much longer.
const MOST: u64 = 4 << 20;

/// The limits of the program, with smaller pictures.
pub(super) fn limits() -> DecodeLimits {
    DecodeLimits { max_decoded_bytes: MOST, ..DecodeLimits::default() }
}

pub(super) fn bmp(bytes: &[u8]) {
    run(bytes, ImageFormat::Bmp);
}

pub(super) fn gif(bytes: &[u8]) {
    run(bytes, ImageFormat::Gif);
}

pub(super) fn png(bytes: &[u8]) {
    run(&repair::png(bytes), ImageFormat::Png);
}

pub(super) fn tiff(bytes: &[u8]) {
    run(bytes, ImageFormat::Tiff);
}

pub(super) fn webp(bytes: &[u8]) {
    run(bytes, ImageFormat::WebP);
}

fn run(bytes: &[u8], format: ImageFormat) {
    if image::guess_format(bytes).ok() != Some(format) {
        return;
    }
    let (decoded, spent) = measured(|| decode_with(bytes, "input", &limits()));
    // A file that is refused may have declared as much as is permitted.
    let declared = match &decoded {
        Ok(picture) => 8 * picture.size().area() as u64,
        Err(_) => MOST,
    };
    spent.check(Limit::PICTURE, bytes.len(), declared);
    super::given_up::assert_not_given_up(&decoded);
    if let Ok(picture) = decoded {
        reached("decoded");
        assert!(picture.width() > 0 && picture.height() > 0);
        compare(bytes, format, &picture);
    }
}

/// Compares with the decoder of `image` on the whole file.
fn compare(bytes: &[u8], format: ImageFormat, picture: &Image) {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(image::Limits::default());
    // Profiles and texts, which Gallerist leaves out, may be damaged.
    let Ok(mut decoder) = reader.into_decoder() else { return };
    let upright = decoder.orientation().is_ok_and(|orientation| orientation == Orientation::NoTransforms);
    let color = decoder.color_type();
    if !upright || !matches!(color, ColorType::L8 | ColorType::Rgb8 | ColorType::Rgba8) {
        return;
    }
    let Ok(mut whole) = DynamicImage::from_decoder(decoder) else { return };
    if let DynamicImage::ImageRgba8(pixels) = &whole {
        if pixels.pixels().any(|pixel| pixel[3] < 255) {
            return;
        }
        whole = whole.into_rgb8().into();
    }
    let size = (picture.width(), picture.height());
    assert_eq!(size, (whole.width() as usize, whole.height() as usize), "size");
    assert_eq!(picture.channels(), usize::from(whole.color().channel_count()), "channels");
    assert!(picture.pixels() == whole.as_bytes(), "the pixels are not those of the whole file");
    reached("compared");
}
