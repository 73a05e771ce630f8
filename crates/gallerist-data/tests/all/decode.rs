//! Decoding: every format, every conversion, every way to be broken.

use crate::common::*;
use gallerist_data::{Image, decode};
use image::{DynamicImage, ImageFormat};

fn problem(bytes: &[u8]) -> String {
    let text = decode(bytes, "x").unwrap_err().to_string();
    text.strip_prefix("cannot decode `x`: ").expect("the file is named").to_owned()
}

fn close(a: &Image, b: &[u8], tolerance: u8) {
    assert_eq!(a.pixels().len(), b.len());
    let worst = a.pixels().iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(worst <= tolerance, "a pixel is off by {worst}");
}

#[test]
fn lossless_formats_give_the_same_pixels() {
    let picture = picture(23, 17, 60);
    for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::WebP, ImageFormat::Tiff] {
        let image = decode(&encode(picture.clone(), format), "x").unwrap();
        assert_eq!((image.width(), image.height(), image.channels()), (23, 17, 3));
        assert_eq!(image.pixels(), picture.as_raw().as_slice(), "{format:?}");
    }
}

#[test]
fn a_gif_gives_its_first_frame() {
    let frame = |v: u8| image::Frame::new(image::RgbaImage::from_pixel(5, 4, image::Rgba([v, v, v, 255])));
    let mut bytes = Vec::new();
    image::codecs::gif::GifEncoder::new(&mut bytes).encode_frames([frame(40), frame(200)]).unwrap();
    let image = decode(&bytes, "x").unwrap();
    assert_eq!((image.width(), image.height(), image.channels()), (5, 4, 3));
    close(&image, &[40; 60], 0);
}

#[test]
fn grey_stays_grey_and_sixteen_bits_are_rounded() {
    let grey = image::GrayImage::from_fn(4, 3, |x, y| image::Luma([(x * 20 + y * 70) as u8]));
    let image = decode(&png(grey.clone()), "x").unwrap();
    assert_eq!((image.channels(), image.pixels()), (1, grey.as_raw().as_slice()));
    let values: [u16; 6] = [0, 128, 129, 257 * 77, 65_406, 65_535];
    let deep = image::ImageBuffer::<image::Luma<u16>, _>::from_raw(6, 1, values.to_vec()).unwrap();
    let image = decode(&png(deep), "x").unwrap();
    // v / 257 to the nearest: 128 / 257 = 0.498, 129 / 257 = 0.502, 65,406 / 257 = 254.498.
    assert_eq!(image.pixels(), [0, 0, 1, 77, 254, 255]);
    let deep = image::ImageBuffer::<image::Rgb<u16>, _>::from_raw(2, 1, values.to_vec()).unwrap();
    assert_eq!(decode(&png(deep), "x").unwrap().pixels(), [0, 0, 1, 77, 254, 255]);
}

#[test]
fn transparency_is_composited_on_white() {
    let rgba =
        image::RgbaImage::from_raw(3, 1, vec![10, 20, 30, 255, 10, 20, 30, 0, 100, 0, 255, 51]).unwrap();
    let image = decode(&png(rgba), "x").unwrap();
    // Alpha 51 is a fifth: 100 / 5 + 255 * 4 / 5 = 224, 204, 255.
    assert_eq!(image.pixels(), [10, 20, 30, 255, 255, 255, 224, 204, 255]);
    let grey = image::GrayAlphaImage::from_raw(2, 1, vec![0, 51, 7, 255]).unwrap();
    let image = decode(&png(grey), "x").unwrap();
    assert_eq!((image.channels(), image.pixels()), (1, [204, 7].as_slice()));
    let deep =
        image::ImageBuffer::<image::Rgba<u16>, _>::from_raw(1, 1, vec![0, 65_535, 32_896, 13_107]).unwrap();
    assert_eq!(decode(&png(deep), "x").unwrap().pixels(), [204, 255, 230]);
}

/// A PNG of 2 x 1 pixels of colour type 3: red, and green that is a fifth opaque.
const PALETTE_PNG: &[u8] = include_bytes!("../golden/palette.png");

/// A PNG of 9 x 2 pixels with 1 bit: `101010101`, `000000001`.
const ONE_BIT_PNG: &[u8] = include_bytes!("../golden/one_bit.png");

#[test]
fn palettes_and_single_bits_are_expanded() {
    let image = decode(PALETTE_PNG, "x").unwrap();
    assert_eq!(image.pixels(), [255, 0, 0, 204, 255, 204]);
    let image = decode(ONE_BIT_PNG, "x").unwrap();
    assert_eq!((image.width(), image.height(), image.channels()), (9, 2, 1));
    let bits: Vec<u8> = image.pixels().iter().map(|v| v / 255).collect();
    assert_eq!(bits, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn jpeg_is_close_to_its_source_in_colour_grey_and_progressive() {
    let source = picture(40, 24, 90);
    let encode = |set: &dyn Fn(&mut jpeg_encoder::Encoder<&mut Vec<u8>>)| {
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 95);
        set(&mut encoder);
        encoder.encode(&source, 40, 24, jpeg_encoder::ColorType::Rgb).unwrap();
        bytes
    };
    for bytes in [
        encode(&|_| {}),
        encode(&|e| e.set_progressive(true)),
        encode(&|e| e.set_restart_interval(2)),
        encode(&|e| e.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2)),
        encode(&|e| e.set_optimized_huffman_tables(true)),
    ] {
        close(&decode(&bytes, "x").unwrap(), &source, 12);
    }
    let grey: Vec<u8> = (0..40 * 24).map(|i| (i % 40 * 6) as u8).collect();
    let mut bytes = Vec::new();
    jpeg_encoder::Encoder::new(&mut bytes, 95).encode(&grey, 40, 24, jpeg_encoder::ColorType::Luma).unwrap();
    let image = decode(&bytes, "x").unwrap();
    assert_eq!(image.channels(), 1);
    close(&image, &grey, 12);
}

#[test]
fn cmyk_jpegs_follow_adobes_convention() {
    // Without ink all is white; cyan and black ink of a half each.
    let cases = [([0u8, 0, 0, 0], [255u8, 255, 255]), ([128, 0, 0, 128], [64, 127, 127])];
    for (ink, rgb) in cases {
        for kind in [jpeg_encoder::ColorType::Cmyk, jpeg_encoder::ColorType::CmykAsYcck] {
            let mut bytes = Vec::new();
            jpeg_encoder::Encoder::new(&mut bytes, 95).encode(&ink.repeat(16 * 16), 16, 16, kind).unwrap();
            let image = decode(&bytes, "x").unwrap();
            assert_eq!(image.channels(), 3);
            close(&image, &rgb.repeat(256), 3);
        }
    }
}

#[test]
fn exif_orientation_is_applied() {
    // Four flat quadrants: light and dark above, middle and black below.
    let shade = |x: u16, y: u16| match (x / 16, y / 8) {
        (0, 0) => 240u8,
        (_, 0) => 160,
        (0, _) => 80,
        _ => 0,
    };
    let pixels: Vec<u8> = (0..16).flat_map(|y| (0..32).map(move |x| shade(x, y))).collect();
    // Corners after the transform, clockwise from the top left, by the EXIF
    // standard's table: where row 0 and column 0 of the stored image end up.
    let expected: [[u8; 4]; 8] = [
        [240, 160, 0, 80],
        [160, 240, 80, 0],
        [0, 80, 240, 160],
        [80, 0, 160, 240],
        [240, 80, 0, 160],
        [80, 240, 160, 0],
        [0, 160, 240, 80],
        [160, 0, 80, 240],
    ];
    for (orientation, corners) in (1u8..).zip(expected) {
        let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 95);
        encoder.add_app_segment(1, exif).unwrap();
        encoder.encode(&pixels, 32, 16, jpeg_encoder::ColorType::Luma).unwrap();
        let image = decode(&bytes, "x").unwrap();
        let (w, h) = (image.width(), image.height());
        assert_eq!((w, h), if orientation < 5 { (32, 16) } else { (16, 32) });
        let at = |x: usize, y: usize| image.pixels()[y * w + x];
        let found = [at(2, 2), at(w - 3, 2), at(w - 3, h - 3), at(2, h - 3)];
        for (found, wanted) in found.iter().zip(corners) {
            assert!(found.abs_diff(wanted) < 6, "orientation {orientation}: {found} for {wanted}");
        }
    }
}

#[test]
fn files_that_are_no_images_are_told_so() {
    assert_eq!(problem(b""), "the file is empty");
    let unknown = "not an image of a known format (PNG, JPEG, GIF, BMP, WebP, TIFF)";
    assert_eq!(problem(b"hello, I am called x.png"), unknown);
    assert_eq!(problem(b"\x00"), unknown);
    assert_eq!(problem(b"%PDF-1.7"), unknown);
}

#[test]
fn every_format_by_its_header_alone_is_an_error() {
    for format in [ImageFormat::Png, ImageFormat::Gif, ImageFormat::Bmp, ImageFormat::WebP, ImageFormat::Tiff]
    {
        let bytes = encode(DynamicImage::ImageRgb8(picture(9, 9, 1)).to_rgba8(), format);
        let text = problem(&bytes[..16]);
        assert!(text.contains("truncated") || text.contains("corrupt"), "{format:?}: {text}");
    }
}

#[test]
fn a_cut_file_is_refused_or_has_lost_nothing() {
    let picture = picture(33, 31, 200);
    let mut files: Vec<(String, Vec<u8>)> =
        [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::WebP, ImageFormat::Tiff, ImageFormat::Gif]
            .map(|f| (format!("{f:?}"), encode(picture.clone(), f)))
            .into();
    files.push(("Jpeg".to_owned(), jpeg(33, 31, 90)));
    let mut progressive = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut progressive, 90);
    encoder.set_progressive(true);
    encoder.encode(&picture, 33, 31, jpeg_encoder::ColorType::Rgb).unwrap();
    files.push(("progressive Jpeg".to_owned(), progressive));
    for (name, bytes) in files {
        let whole = decode(&bytes, "x").unwrap();
        let refused = (0..bytes.len())
            .filter(|&length| match decode(&bytes[..length], "x") {
                Err(_) => true,
                Ok(image) => {
                    assert_eq!(image, whole, "{name} cut at {length} of {}", bytes.len());
                    false
                }
            })
            .count();
        // Only an end marker or padding may be missing.
        assert!(refused + 24 >= bytes.len(), "{name}: {refused} of {} cuts refused", bytes.len());
        if name.contains("Jpeg") {
            assert_eq!(refused, bytes.len(), "{name}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_png_is_refused() {
    let bytes = png(picture(20, 20, 3));
    let whole = decode(&bytes, "x").unwrap();
    // Everything from the signature to the last data byte is covered by the
    // signature itself or a CRC-32.
    let end = bytes.windows(4).position(|w| w == b"IEND").unwrap() - 4;
    for at in 8..end {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        if let Ok(image) = decode(&damaged, "x") {
            assert_eq!(image, whole, "byte {at}");
        }
    }
}

#[test]
fn jpegs_with_flipped_bits_are_refused_where_the_format_shows_it() {
    let bytes = jpeg(96, 64, 90);
    let scan = bytes.windows(2).position(|w| w == [0xFF, 0xDA]).unwrap() + 14;
    let mut found = 0;
    let places: Vec<usize> = (scan..bytes.len() - 2).collect();
    for &at in &places {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        found += usize::from(decode(&damaged, "x").is_err());
    }
    // Most flips give another plausible file; a decoder alone sees one in a hundred.
    assert!(found * 6 >= places.len(), "{found} of {} flips refused", places.len());
}

#[test]
fn no_damage_makes_a_decoder_panic() {
    let picture = picture(33, 31, 200);
    let mut progressive = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut progressive, 90);
    encoder.set_progressive(true);
    encoder.set_restart_interval(3);
    encoder.encode(&picture, 33, 31, jpeg_encoder::ColorType::Rgb).unwrap();
    let mut files = vec![progressive, jpeg(33, 31, 90)];
    files.extend(
        [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::WebP, ImageFormat::Tiff, ImageFormat::Gif]
            .map(|f| encode(picture.clone(), f)),
    );
    let mut random = gallerist_data::Random::new(1, "damage", 0, 0);
    for bytes in files {
        for _ in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random.below(4) {
                // Headers are short: half of the damage goes to the first bytes.
                let reach = if random.chance(0.5) { damaged.len() } else { 200 };
                let at = random.below(reach.min(damaged.len()));
                damaged[at] = random.below(256) as u8;
            }
            let _ = decode(&damaged, "x");
        }
    }
}

#[test]
fn a_header_of_monstrous_size_is_refused_before_memory_is_taken() {
    // A PNG header of 30,000 x 30,000 with a right CRC, and no data.
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    png.extend([0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30, 8, 2, 0, 0, 0]);
    png.extend(crc32(&png[12..]).to_be_bytes());
    png.extend(b"\0\0\0\0IDAT");
    png.extend(crc32(b"IDAT").to_be_bytes());
    assert_eq!(problem(&png), "its header says 30000 x 30000 pixels, and a side may have 16384");
    // 16,000 x 16,000 in colour are within the sides and above the bytes.
    png.truncate(16);
    png.extend([0, 0, 0x3e, 0x80, 0, 0, 0x3e, 0x80, 8, 2, 0, 0, 0]);
    png.extend(crc32(&png[12..]).to_be_bytes());
    png.extend(b"\0\0\0\0IDAT");
    png.extend(crc32(b"IDAT").to_be_bytes());
    assert_eq!(problem(&png), "16000 x 16000 pixels decode to 733 MiB, and an image may have 256 MiB");
    // The same for a JPEG: height and width are at byte 5 of its frame header.
    let mut bytes = jpeg(16, 16, 90);
    let frame = bytes.windows(2).position(|w| w == [0xFF, 0xC0]).unwrap();
    bytes[frame + 5..frame + 9].copy_from_slice(&[0x75, 0x30, 0x75, 0x30]);
    assert_eq!(problem(&bytes), "its header says 30000 x 30000 pixels, and a side may have 16384");
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 })
    })
}
