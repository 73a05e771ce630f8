//! JPEG, strictly.
//!
//! [`gallerist_jpeg::walk`] finds the damage of a file, and decodes files of the common kind (sequential, one
//! scan, grey or chroma at the size or half the size of the picture), to
//! the same bits as zune-jpeg gives. zune-jpeg reads the headers, and decodes progressive files
//! and those of other samplings and colours.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use gallerist_jpeg::{Interrupt, Picture, Planes, Segments};
use image::metadata::Orientation;
use zune_core::bytestream::{ZByteReaderTrait, ZCursor};
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::limits::{DecodeLimits, Watch};
use super::orientation::upright;
use super::pieces::Pieces;
use crate::image::Image;

/// Most profiles and texts of a JPEG within another file. (Those of a JPEG file are left out.)
const MAX_TEXTS: usize = 1000;

impl Interrupt for Watch {
    fn at_segment(&self) -> bool {
        self.count_call().is_err()
    }

    fn at_row(&self) -> bool {
        self.check().is_err()
    }
}

/// `least`: the sides from which on the picture may come reduced, see `decode_reduced`.
pub(super) fn decode(bytes: &[u8], least: Option<usize>, watch: &Rc<Watch>) -> Result<Image, String> {
    let limits = &watch.limits;
    // The result is grey or RGB, whatever the file has.
    let planes = gallerist_jpeg::walk(bytes, least, &**watch, |width, height, components| {
        limits.check_size(width, height, (width * height * components.min(3)) as u64)
    })?;
    // zune-jpeg collects profiles and texts, some of them in time that grows with the square of their number.
    let needed = gallerist_jpeg::needed(bytes, planes.is_some());
    match limits.deadline {
        None => with_zune(ZCursor::new(&needed), planes.as_ref(), limits),
        Some(_) => with_zune(Pieces::new(vec![Cow::from(&needed)], watch.clone()), planes.as_ref(), limits),
    }
}

/// Checks a JPEG within another file, which another decoder decodes, and returns its pixels: `most` at most.
pub(super) fn check_part(bytes: &[u8], most: u64, watch: &Watch) -> Result<u64, String> {
    let area = Cell::new(0);
    gallerist_jpeg::walk(bytes, None, watch, |width, height, _| {
        area.set((width * height) as u64);
        match area.get() <= most {
            true => Ok(()),
            false => Err(format!("a part of {width} x {height} pixels, more than the image has")),
        }
    })?;
    // Each is kept, and some are sorted at each one.
    match Segments::new(bytes).filter(|segment| matches!(segment.marker, 0xE0..=0xEF)).count() {
        ..=MAX_TEXTS => Ok(area.get()),
        many => Err(format!("a part with {many} profiles and texts")),
    }
}

/// The picture of `planes`, or else as zune-jpeg decodes it; the colours and the orientation are zune-jpeg's.
fn with_zune(
    file: impl ZByteReaderTrait,
    planes: Option<&Planes>,
    limits: &DecodeLimits,
) -> Result<Image, String> {
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into());
    let mut decoder = JpegDecoder::new_with_options(file, options);
    decoder.decode_headers().map_err(|e| problem(&e))?;
    let (width, height) = decoder.dimensions().ok_or("the header has no size")?;
    let gray = decoder.input_colorspace() == Some(ColorSpace::Luma);
    let channels = if gray { 1 } else { 3 };
    limits.check_size(width, height, (width * height * channels) as u64)?;
    let in_colors = matches!(decoder.input_colorspace(), Some(ColorSpace::Luma | ColorSpace::YCbCr));
    let decoded = match planes.filter(|planes| in_colors && planes.components() == channels) {
        Some(planes) => {
            let Picture { width, height, channels, pixels, beyond: [right, bottom] } =
                planes.picture(width, height);
            Image::new(width, height, channels, pixels).with_beyond(right, bottom)
        }
        None => {
            let out = if gray { ColorSpace::Luma } else { ColorSpace::RGB };
            decoder.set_options(decoder.options().jpeg_set_out_colorspace(out));
            let pixels = decoder.decode().map_err(|e| problem(&e))?;
            if pixels.len() != width * height * channels {
                return Err("the JPEG stream has an unsupported number of components".to_owned());
            }
            Image::new(width, height, channels, pixels)
        }
    };
    let orientation = decoder
        .exif()
        .and_then(|exif| Orientation::from_exif_chunk(exif))
        .unwrap_or(Orientation::NoTransforms);
    Ok(upright(decoded, orientation))
}

fn problem(error: &zune_jpeg::errors::DecodeErrors) -> String {
    let text = error.to_string();
    format!("corrupt or truncated JPEG: {}", text.trim_matches('"').trim_end())
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use super::*;
    use gallerist_util::random::Random;

    fn decode(bytes: &[u8], least: Option<usize>) -> Result<Image, String> {
        super::decode(bytes, least, &Rc::new(Watch::new(DecodeLimits::default())))
    }

    /// What zune-jpeg makes of a file on its own.
    fn peer(bytes: &[u8]) -> Vec<u8> {
        let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
        decoder.decode_headers().unwrap();
        let gray = decoder.input_colorspace() == Some(ColorSpace::Luma);
        let out = if gray { ColorSpace::Luma } else { ColorSpace::RGB };
        decoder.set_options(decoder.options().jpeg_set_out_colorspace(out));
        decoder.decode().unwrap()
    }

    /// Noise on a slope: all coefficients, and samples beyond black and white.
    fn file(
        width: u16,
        height: u16,
        gray: bool,
        random: &mut Random,
        set: impl Fn(&mut Encoder<&mut Vec<u8>>),
    ) -> Vec<u8> {
        let channels = if gray { 1 } else { 3 };
        let noise = random.between(0.0, 200.0);
        let pixels: Vec<u8> = (0..usize::from(width) * usize::from(height) * channels)
            .map(|i| (i as f64 / 7.0 % 256.0 + random.between(-noise, noise)) as u8)
            .collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 1 + random.below(100) as u8);
        set(&mut encoder);
        let kind = if gray { ColorType::Luma } else { ColorType::Rgb };
        encoder.encode(&pixels, width, height, kind).unwrap();
        bytes
    }

    const SAMPLINGS: [SamplingFactor; 4] =
        [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2];

    #[test]
    fn every_pixel_is_as_zune_jpeg_decodes_it() {
        let mut random = Random::new(1, "files", 0, 0);
        for case in 0..400 {
            let (width, height) = (1 + random.below(70) as u16, 1 + random.below(70) as u16);
            let gray = case % 5 == 4;
            // Tables of its own this encoder writes into files of several scans, but for grey, and wrong
            // ones with restart markers.
            let optimized = gray && random.chance(0.5);
            let restart = if optimized { 0 } else { random.below(4) as u16 };
            let bytes = file(width, height, gray, &mut random, |encoder| {
                encoder.set_sampling_factor(SAMPLINGS[case % 5 % 4]);
                encoder.set_optimized_huffman_tables(optimized);
                if restart > 0 {
                    encoder.set_restart_interval(restart);
                }
            });
            let planes =
                gallerist_jpeg::walk(&bytes, None, &gallerist_jpeg::Never, |_, _, _| Ok(())).unwrap();
            assert!(planes.is_some(), "case {case} is of a common kind");
            let image = decode(&bytes, None).unwrap();
            assert_eq!((image.width(), image.height()), (width.into(), height.into()));
            assert!(image.pixels() == peer(&bytes), "case {case}, {width} x {height}");
        }
    }

    #[test]
    fn a_picture_is_reduced_as_far_as_its_sides_stay_long_enough() {
        let mut random = Random::new(1, "files", 1, 0);
        let bytes = file(131, 67, false, &mut random, |e| e.set_sampling_factor(SamplingFactor::F_2_2));
        let size = |least: usize| {
            let image = decode(&bytes, Some(least)).unwrap();
            (image.width(), image.height())
        };
        assert_eq!(size(1), (17, 9));
        assert_eq!(size(9), (17, 9));
        assert_eq!(size(10), (33, 17));
        assert_eq!(size(18), (66, 34));
        assert_eq!(size(34), (66, 34));
        assert_eq!(size(35), (131, 67));
        // Progressive files are not reduced.
        let bytes = file(131, 67, false, &mut random, |e| e.set_progressive(true));
        let image = decode(&bytes, Some(1)).unwrap();
        assert_eq!((image.width(), image.height()), (131, 67));
    }

    #[test]
    fn a_reduced_picture_is_refused_for_the_same_damage() {
        let mut random = Random::new(1, "files", 2, 0);
        let bytes = file(64, 48, false, &mut random, |_| {});
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at], Some(1)).is_err(), "cut at {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_eq!(decode(&damaged, Some(1)).is_err(), decode(&damaged, None).is_err(), "byte {at}");
        }
    }
}
