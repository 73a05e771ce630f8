//! Decoding of one file of any format.

use std::borrow::Cow;
use std::rc::Rc;

use gallerist_util::panics::caught;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

use super::limits::{DecodeLimits, Stop, Watch};
use super::orientation::upright;
use super::pieces::Pieces;
use super::{gif, jpeg, png, tiff, webp};
use crate::error::Error;
use crate::image::Image;

/// Bytes that a decoder may read in addition to the pixels: headers, palettes, padding of tiles.
const MAX_OTHER_BYTES: u64 = 4 << 20;

/// How the problem of an [`Error::Decode`] begins where a decoder panicked. No such file is known.
pub const DECODER_GAVE_UP: &str = "the decoder gave up";

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
/// [`MAX_SIDE`](crate::MAX_SIDE) or [`MAX_DECODED_BYTES`](crate::MAX_DECODED_BYTES). PNG data are covered by checksums.
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
    decode_with(bytes, name, &DecodeLimits::default())
}

/// The same within other limits, for files from strangers: a smaller image, and a deadline.
///
/// # Errors
///
/// As [`decode()`], and [`Error::DecodeDeadline`] once the deadline has passed.
///
/// ```
/// use std::time::Duration;
/// use gallerist_data::{decode_with, DecodeLimits, Error};
///
/// let limits = DecodeLimits::default().within(Duration::ZERO);
/// let error = decode_with(b"GIF89a...", "upload", &limits).unwrap_err();
/// assert!(matches!(error, Error::DecodeDeadline { .. }));
/// ```
pub fn decode_with(bytes: &[u8], name: &str, limits: &DecodeLimits) -> Result<Image, Error> {
    decode_limited(bytes, None, name, limits)
}

/// As [`decode()`], but a JPEG that is much larger than needed may be decoded at a half, a quarter or an eighth of its
/// size, which is less work.
///
/// It is the smallest of these sizes with both sides of at least `least` pixels; all sides are rounded up.
/// This applies to sequential files of grey or YCbCr with one scan only.
pub(crate) fn decode_reduced(bytes: &[u8], least: Option<usize>, name: &str) -> Result<Image, Error> {
    decode_limited(bytes, least, name, &DecodeLimits::default())
}

fn decode_limited(
    bytes: &[u8],
    least: Option<usize>,
    name: &str,
    limits: &DecodeLimits,
) -> Result<Image, Error> {
    let watch = Rc::new(Watch::new(*limits));
    // The decoders are other libraries: one that panics makes a broken image of the file, and ends nothing else.
    let decoded = caught(|| decode_watched(bytes, least, &watch))
        .unwrap_or_else(|panic| Err(format!("{DECODER_GAVE_UP}: {panic}")));
    decoded.map_err(|problem| match watch.stopped() {
        Some(Stop::Deadline) => Error::DecodeDeadline { path: name.to_owned() },
        Some(Stop::Bytes) | None => Error::Decode { path: name.to_owned(), problem },
    })
}

/// An error if decoding must stop. [`decode_limited`] makes the message of [`Stop::Deadline`].
fn go_on(watch: &Watch) -> Result<(), String> {
    watch.check().map_err(|_| String::new())
}

fn decode_watched(bytes: &[u8], least: Option<usize>, watch: &Rc<Watch>) -> Result<Image, String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    go_on(watch)?;
    let image = match image::guess_format(bytes) {
        Ok(ImageFormat::Jpeg) => jpeg::decode(bytes, least, watch),
        Ok(
            format @ (ImageFormat::Png
            | ImageFormat::Gif
            | ImageFormat::Bmp
            | ImageFormat::WebP
            | ImageFormat::Tiff),
        ) => decode_other(bytes, format, watch),
        _ => Err("not an image of a known format (PNG, JPEG, GIF, BMP, WebP, TIFF)".to_owned()),
    }?;
    // Not every decoder passes on an error of its reader.
    match watch.stopped() {
        None => Ok(image),
        Some(_) => Err("it was stopped at a limit".to_owned()),
    }
}

fn decode_other(bytes: &[u8], format: ImageFormat, watch: &Rc<Watch>) -> Result<Image, String> {
    let limits = &watch.limits;
    let (name, pieces) = match format {
        ImageFormat::Png => ("PNG", png::pieces(bytes, limits)?),
        ImageFormat::Gif => ("GIF", gif::pieces(bytes, limits)?),
        ImageFormat::WebP => ("WebP", webp::pieces(bytes, watch)?),
        ImageFormat::Bmp => ("BMP", vec![Cow::from(bytes)]),
        _ => {
            tiff::check(bytes, watch)?;
            ("TIFF", vec![Cow::from(bytes)])
        }
    };
    let problem = |error: ImageError| match error {
        _ if watch.stopped() == Some(Stop::Bytes) => {
            format!("corrupt {name}: its data are much longer than its pixels need")
        }
        ImageError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            format!("truncated {name}")
        }
        ImageError::Limits(_) => {
            format!("the {name} needs more memory than an image of its size may")
        }
        ImageError::Unsupported(e) => format!("{name} of an unsupported kind: {e}"),
        e => format!("corrupt or truncated {name}: {e}"),
    };
    // The decoder's own buffers come on top of the pixels.
    let memory = |decoded: u64| {
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(2 * decoded + 4 * MAX_OTHER_BYTES);
        limits
    };
    watch.permit(MAX_OTHER_BYTES);
    let mut reader = ImageReader::with_format(Pieces::new(pieces, watch.clone()), format);
    reader.limits(memory(limits.max_decoded_bytes));
    let mut decoder = reader.into_decoder().map_err(problem)?;
    let (width, height) = decoder.dimensions();
    let decoded = decoder.total_bytes();
    limits.check_size(width as usize, height as usize, decoded)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    go_on(watch)?;
    decoder.set_limits(memory(decoded)).map_err(problem)?;
    watch.permit(2 * decoded + MAX_OTHER_BYTES);
    let decoded = DynamicImage::from_decoder(decoder).map_err(problem)?;
    go_on(watch)?;
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

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Decodes with a clock that is past the deadline at check number `checks`; also how often it was looked at.
    fn stopped_at(bytes: &[u8], checks: u64) -> (Result<Image, String>, Option<Stop>, u64) {
        let far = std::time::Duration::from_secs(3600);
        let watch = Rc::new(Watch::new(DecodeLimits::default().within(far)));
        watch.checks_left.set(checks);
        let result = decode_watched(bytes, None, &watch);
        (result, watch.stopped(), checks - watch.checks_left.get())
    }

    #[test]
    fn the_deadline_is_checked_throughout_and_ends_the_decoding_at_every_check() {
        // Noise, so that no format packs it to nothing.
        let mut random = gallerist_util::random::Random::new(1, "noise", 0, 0);
        let noise: Vec<u8> = (0..256 * 256 * 3).map(|_| random.below(256) as u8).collect();
        let picture = DynamicImage::from(image::RgbImage::from_raw(256, 256, noise.clone()).unwrap());
        let encoded = |format: ImageFormat| {
            let mut bytes = Cursor::new(Vec::new());
            picture.write_to(&mut bytes, format).unwrap();
            bytes.into_inner()
        };
        let jpeg = |progressive: bool| {
            let mut bytes = Vec::new();
            let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 90);
            encoder.set_progressive(progressive);
            encoder.encode(&noise, 256, 256, jpeg_encoder::ColorType::Rgb).unwrap();
            bytes
        };
        // Rows of units in scans; in all others about 4 KiB of the file.
        for (name, bytes, least) in [
            ("sequential JPEG", jpeg(false), 16),
            ("progressive JPEG", jpeg(true), 100),
            ("PNG", encoded(ImageFormat::Png), 30),
            ("GIF", encoded(ImageFormat::Gif), 8),
            ("BMP", encoded(ImageFormat::Bmp), 30),
            ("WebP", encoded(ImageFormat::WebP), 30),
            ("TIFF", encoded(ImageFormat::Tiff), 30),
        ] {
            let (image, stopped, checks) = stopped_at(&bytes, 1 << 40);
            assert!(image.is_ok() && stopped.is_none(), "{name}");
            assert!(checks >= least, "{name} of {} bytes: {checks} checks", bytes.len());
            for at in 0..checks {
                let (image, stopped, _) = stopped_at(&bytes, at);
                assert!(image.is_err(), "{name}, check {at} of {checks}");
                assert_eq!(stopped, Some(Stop::Deadline), "{name}, check {at} of {checks}");
            }
        }
    }
}
