//! Pictures of all formats: noise of small sizes.

use std::io::Cursor;

use gallerist_util::random::Random;
use image::{DynamicImage, ImageFormat};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tiff::encoder::compression::DeflateLevel;
use tiff::encoder::{Compression, TiffEncoder, colortype};

use crate::Seeds;

const SIZES: [(u32, u32); 3] = [(1, 1), (7, 5), (33, 18)];

fn noise(count: usize) -> Vec<u8> {
    let mut random = Random::new(1, "seeds", count as u64, 0);
    (0..count).map(|i| (i as f64 / 5.0 % 200.0 + random.between(0.0, 50.0)) as u8).collect()
}

fn dynamic(channels: usize, wide: bool, width: u32, height: u32) -> DynamicImage {
    let bytes = noise((width * height) as usize * channels);
    let words = || bytes.iter().map(|&byte| u16::from(byte) * 251).collect();
    let full = "the sizes agree";
    match (channels, wide) {
        (1, false) => image::GrayImage::from_raw(width, height, bytes).expect(full).into(),
        (2, false) => image::GrayAlphaImage::from_raw(width, height, bytes).expect(full).into(),
        (3, false) => image::RgbImage::from_raw(width, height, bytes).expect(full).into(),
        (4, false) => image::RgbaImage::from_raw(width, height, bytes).expect(full).into(),
        (1, true) => {
            DynamicImage::ImageLuma16(image::ImageBuffer::from_raw(width, height, words()).expect(full))
        }
        _ => DynamicImage::ImageRgba16(image::ImageBuffer::from_raw(width, height, words()).expect(full)),
    }
}

pub(crate) fn write(seeds: &Seeds) {
    for (width, height) in SIZES {
        for (channels, wide) in [(1, false), (2, false), (3, false), (4, false), (1, true), (4, true)] {
            let picture = dynamic(channels, wide, width, height);
            let name = format!("{width}x{height}x{channels}{}", if wide { "w" } else { "" });
            for (target, format) in [
                ("bmp", ImageFormat::Bmp),
                ("gif", ImageFormat::Gif),
                ("png", ImageFormat::Png),
                ("tiff", ImageFormat::Tiff),
                ("webp", ImageFormat::WebP),
            ] {
                let mut bytes = Cursor::new(Vec::new());
                // Not every format has all colours.
                if picture.write_to(&mut bytes, format).is_ok() {
                    seeds.add(target, &name, &bytes.into_inner());
                }
            }
        }
        jpegs(seeds, width as u16, height as u16);
        tiffs(seeds, width, height);
        seeds.add("webp", &format!("lossy-{width}x{height}"), &lossy_webp(width as u16, height as u16));
    }
    seeds.fixture("png", "crates/gallerist-data/tests/golden/one_bit.png");
    seeds.fixture("png", "crates/gallerist-data/tests/golden/palette.png");
    palette_bmp(seeds);
}

fn jpegs(seeds: &Seeds, width: u16, height: u16) {
    let add = |name: &str, kind: ColorType, channels: usize, set: &dyn Fn(&mut Encoder<&mut Vec<u8>>)| {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 60);
        set(&mut encoder);
        let pixels = noise(usize::from(width) * usize::from(height) * channels);
        encoder.encode(&pixels, width, height, kind).expect("a picture");
        seeds.add("jpeg", &format!("{name}-{width}x{height}"), &bytes);
    };
    add("grey", ColorType::Luma, 1, &|_| {});
    add("rgb", ColorType::Rgb, 3, &|e| e.set_sampling_factor(SamplingFactor::F_1_1));
    add("420", ColorType::Rgb, 3, &|e| e.set_sampling_factor(SamplingFactor::F_2_2));
    add("422", ColorType::Rgb, 3, &|e| e.set_sampling_factor(SamplingFactor::F_2_1));
    add("440", ColorType::Rgb, 3, &|e| e.set_sampling_factor(SamplingFactor::F_1_2));
    add("411", ColorType::Rgb, 3, &|e| e.set_sampling_factor(SamplingFactor::F_4_1));
    add("restart", ColorType::Rgb, 3, &|e| e.set_restart_interval(1));
    add("optimized", ColorType::Luma, 1, &|e| e.set_optimized_huffman_tables(true));
    add("scans", ColorType::Rgb, 3, &|e| e.set_optimized_huffman_tables(true));
    add("progressive", ColorType::Rgb, 3, &|e| e.set_progressive(true));
    add("progressive-grey", ColorType::Luma, 1, &|e| e.set_progressive_scans(8));
    add("cmyk", ColorType::Cmyk, 4, &|_| {});
    add("ycck", ColorType::CmykAsYcck, 4, &|_| {});
    add("exif", ColorType::Luma, 1, &|e| {
        // An orientation of 6: a quarter turn.
        let exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        e.add_app_segment(1, exif.to_vec()).expect("a short segment");
    });
}

fn tiffs(seeds: &Seeds, width: u32, height: u32) {
    let pixels = noise((width * height * 3) as usize);
    let all = [
        ("deflate", Compression::Deflate(DeflateLevel::Fast)),
        ("lzw", Compression::Lzw),
        ("packbits", Compression::Packbits),
    ];
    for (name, compression) in all {
        let mut bytes = Cursor::new(Vec::new());
        let encoder = TiffEncoder::new(&mut bytes).expect("memory");
        let mut encoder = encoder.with_compression(compression);
        encoder.write_image::<colortype::RGB8>(width, height, &pixels).expect("a picture");
        seeds.add("tiff", &format!("{name}-{width}x{height}"), &bytes.into_inner());
    }
}

/// A key frame of VP8 whose partitions are noise: any bytes are codes of a picture.
fn lossy_webp(width: u16, height: u16) -> Vec<u8> {
    let (first, second) = (noise(120), noise(400));
    // Bit 0: no key frame (inverted); bit 4: shown; from bit 5: length of the first partition.
    let tag = 0x10 | (first.len() as u32) << 5;
    let mut frame = tag.to_le_bytes()[..3].to_vec();
    frame.extend([0x9D, 0x01, 0x2A]);
    frame.extend(width.to_le_bytes());
    frame.extend(height.to_le_bytes());
    frame.extend(first);
    frame.extend(second);
    frame.resize(frame.len().next_multiple_of(2), 0);
    let mut file = b"RIFF".to_vec();
    file.extend((frame.len() as u32 + 12).to_le_bytes());
    file.extend(b"WEBPVP8 ");
    file.extend((frame.len() as u32).to_le_bytes());
    file.extend(frame);
    file
}

/// Bitmaps with palettes: 1, 4 and 8 bits, and 8 bits packed by runs.
fn palette_bmp(seeds: &Seeds) {
    for (bits, packed) in [(1_u16, false), (4, false), (8, false), (8, true), (4, true)] {
        let (width, height) = (5_u32, 3_u32);
        let colors = 1_u32 << bits;
        let data = match packed {
            // A run of five, the end of the line, three times; the end of the picture.
            true => [5, 1, 0, 0].repeat(3).into_iter().chain([0, 1]).collect(),
            false => noise(((u32::from(bits) * width).div_ceil(32) * 4 * height) as usize),
        };
        let offset = 54 + 4 * colors;
        let mut file = b"BM".to_vec();
        file.extend((offset + data.len() as u32).to_le_bytes());
        file.extend([0; 4]);
        file.extend(offset.to_le_bytes());
        file.extend(40_u32.to_le_bytes());
        file.extend(width.to_le_bytes());
        file.extend(height.to_le_bytes());
        file.extend(1_u16.to_le_bytes());
        file.extend(bits.to_le_bytes());
        let method: u32 = match (packed, bits) {
            (false, _) => 0,
            (true, 8) => 1,
            (true, _) => 2,
        };
        file.extend(method.to_le_bytes());
        file.extend([0; 20]);
        file.extend(noise(4 * colors as usize));
        file.extend(data);
        seeds.add("bmp", &format!("palette-{bits}{}", if packed { "-runs" } else { "" }), &file);
    }
}
