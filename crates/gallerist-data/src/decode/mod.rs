//! From the bytes of a file to an [`Image`], or a plain reason why not.
//!
//! The format is told by the content, never by the name. Sizes are taken from
//! the header and checked before memory is taken for the pixels. A JPEG is
//! decoded strictly ([`jpeg`]): a cut or visibly damaged file is an error and
//! not a picture with a grey bottom.

mod jpeg;

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use crate::error::Error;
use crate::image::Image;

/// Longest permitted side of an image, in pixels.
pub const MAX_SIDE: usize = 16_384;

/// Largest permitted decoded image, in bytes.
pub const MAX_DECODED_BYTES: u64 = 256 << 20;

/// Largest permitted image file, in bytes; the limit for an archive's entries too.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// Decodes a PNG, JPEG, GIF (first frame), BMP, WebP or TIFF file.
///
/// The result is upright (EXIF orientation applied), has 8 bits a channel, is
/// grey where the file is grey and RGB otherwise. Transparency is composited on
/// white. 16-bit values are rounded to 8 bits; CMYK and YCCK are converted by
/// Adobe's convention (inverted inks), without a colour profile.
///
/// # Errors
///
/// [`Error::Decode`], with `name` as the file's name, for an empty file, one
/// that is no image, a truncated or corrupt one, and one larger than
/// [`MAX_SIDE`] or [`MAX_DECODED_BYTES`]. PNG data are covered by checksums.
/// JPEG has none: every truncation is found, but of single flipped bits only
/// those after which the codes no longer come out even or give a coefficient
/// that no picture has.
///
/// ```
/// let error = gallerist_data::decode(b"hello", "notes.png").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "cannot decode `notes.png`: not an image of a known format (PNG, JPEG, GIF, BMP, WebP, TIFF)"
/// );
/// ```
pub fn decode(bytes: &[u8], name: &str) -> Result<Image, Error> {
    decode_reduced(bytes, None, name)
}

/// The same; a JPEG much larger than needed may come at a half, a quarter or an eighth of its size, which
/// is what its blocks give with less work.
///
/// The smallest of these is taken whose sides are both `least` pixels or more; all sides are rounded up.
/// It is so for sequential files of grey or YCbCr with one scan, and not for any other.
pub(crate) fn decode_reduced(bytes: &[u8], least: Option<usize>, name: &str) -> Result<Image, Error> {
    decode_bytes(bytes, least).map_err(|problem| Error::Decode { path: name.to_owned(), problem })
}

fn decode_bytes(bytes: &[u8], least: Option<usize>) -> Result<Image, String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    match image::guess_format(bytes) {
        Ok(ImageFormat::Jpeg) => jpeg::decode(bytes, least),
        Ok(
            format @ (ImageFormat::Png
            | ImageFormat::Gif
            | ImageFormat::Bmp
            | ImageFormat::WebP
            | ImageFormat::Tiff),
        ) => decode_other(bytes, format),
        _ => Err("not an image of a known format (PNG, JPEG, GIF, BMP, WebP, TIFF)".to_owned()),
    }
}

/// Refuses a size from a header before anything is allocated for it.
fn check_size(width: usize, height: usize, decoded_bytes: u64) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err(format!("its header says {width} x {height} pixels"));
    }
    if width > MAX_SIDE || height > MAX_SIDE {
        return Err(format!("its header says {width} x {height} pixels, and a side may have {MAX_SIDE}"));
    }
    if decoded_bytes > MAX_DECODED_BYTES {
        return Err(format!(
            "{width} x {height} pixels decode to {} MiB, and an image may have {} MiB",
            decoded_bytes.div_ceil(1 << 20),
            MAX_DECODED_BYTES >> 20
        ));
    }
    Ok(())
}

fn decode_other(bytes: &[u8], format: ImageFormat) -> Result<Image, String> {
    let name = match format {
        ImageFormat::Png => "PNG",
        ImageFormat::Gif => "GIF",
        ImageFormat::Bmp => "BMP",
        ImageFormat::WebP => "WebP",
        _ => "TIFF",
    };
    let problem = |error: ImageError| match error {
        ImageError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            format!("truncated {name}")
        }
        ImageError::Limits(_) => format!("the {name} needs more memory than {} MiB", MAX_DECODED_BYTES >> 20),
        ImageError::Unsupported(e) => format!("{name} of an unsupported kind: {e}"),
        e => format!("corrupt or truncated {name}: {e}"),
    };
    let mut limits = Limits::default();
    // The decoder's own buffers come on top of the pixels.
    limits.max_alloc = Some(2 * MAX_DECODED_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(problem)?;
    let (width, height) = decoder.dimensions();
    check_size(width as usize, height as usize, decoder.total_bytes())?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let decoded = DynamicImage::from_decoder(decoder).map_err(problem)?;
    Ok(upright(to_eight_bit(decoded), orientation))
}

/// Grey or RGB with 8 bits, transparency composited on white.
fn to_eight_bit(decoded: DynamicImage) -> Image {
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    let image = |channels, pixels| Image::new(width, height, channels, pixels);
    match decoded {
        DynamicImage::ImageLuma8(d) => image(1, d.into_raw()),
        DynamicImage::ImageRgb8(d) => image(3, d.into_raw()),
        DynamicImage::ImageLumaA8(d) => image(1, on_white::<2, _>(&d, |v: u8| u32::from(v) * 257)),
        DynamicImage::ImageRgba8(d) => image(3, on_white::<4, _>(&d, |v: u8| u32::from(v) * 257)),
        DynamicImage::ImageLumaA16(d) => image(1, on_white::<2, _>(&d, |v: u16| u32::from(v))),
        DynamicImage::ImageRgba16(d) => image(3, on_white::<4, _>(&d, |v: u16| u32::from(v))),
        DynamicImage::ImageLuma16(d) => image(1, d.iter().map(|&v| narrow(v.into())).collect()),
        DynamicImage::ImageRgb16(d) => image(3, d.iter().map(|&v| narrow(v.into())).collect()),
        // Floating-point TIFF: values from 0 to 1.
        other => image(3, other.into_rgb8().into_raw()),
    }
}

/// 16 bits to 8, rounded: v / 257.
fn narrow(v: u32) -> u8 {
    ((v + 128) / 257) as u8
}

/// Composites `N - 1` colour channels and an alpha channel on white. `widen`
/// takes a sample to 16 bits.
fn on_white<const N: usize, T: Copy>(samples: &[T], widen: impl Fn(T) -> u32) -> Vec<u8> {
    const WHITE: u32 = 65_535;
    let mut pixels = Vec::with_capacity(samples.len() / N * (N - 1));
    for pixel in samples.as_chunks::<N>().0 {
        let alpha = widen(pixel[N - 1]);
        pixels.extend(pixel[..N - 1].iter().map(|&v| {
            // At most 65,535^2 + 32,767, which is below 2^32.
            let mixed = (widen(v) * alpha + WHITE * (WHITE - alpha) + WHITE / 2) / WHITE;
            narrow(mixed)
        }));
    }
    pixels
}

fn upright(image: Image, orientation: Orientation) -> Image {
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
