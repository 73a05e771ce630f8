//! What a hostile file may cost: memory is counted on the thread that decodes, never time.

use std::cell::Cell;
use std::io::Write;
use std::time::{Duration, Instant};

use gallerist_data::{DecodeLimits, Error, Image, decode, decode_with};
use gallerist_testkit::allocator::Counting;

thread_local! {
    // The bytes that each thread holds, and the most it has held.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

#[global_allocator]
static COUNTING: Counting = Counting(count);

const MIB: u64 = 1 << 20;

/// Decodes within the stated memory: the file twice, the decoded image six times, and 32 MiB.
fn within_bounds(bytes: &[u8], decoded: u64) -> Result<Image, String> {
    let before = HELD.get();
    PEAK.set(before);
    let result = decode(bytes, "x").map_err(|error| error.to_string());
    let peak = (PEAK.get() - before) as u64;
    let most = 2 * bytes.len() as u64 + 6 * decoded + 32 * MIB;
    assert!(peak <= most, "{peak} bytes for a file of {} bytes that decodes to {decoded}", bytes.len());
    result.map_err(|text| text.strip_prefix("cannot decode `x`: ").expect("the file is named").to_owned())
}

fn deflated(bytes: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    bytes.for_each(|part| packed.write_all(&part).unwrap());
    packed.finish().unwrap()
}

/// `count` MiB of zeros, packed to a thousandth.
fn bomb(count: usize) -> Vec<u8> {
    deflated((0..count).map(|_| vec![0; 1 << 20]))
}

fn png_chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut chunk = (body.len() as u32).to_be_bytes().to_vec();
    chunk.extend(kind);
    chunk.extend(body);
    chunk.extend(crc32fast::hash(&chunk[4..]).to_be_bytes());
    chunk
}

/// A grey PNG with further chunks before its pixels.
fn png(width: u32, height: u32, interlaced: bool, further: &[Vec<u8>], pixels: &[u8]) -> Vec<u8> {
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 0, 0, 0, u8::from(interlaced)]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    file.extend(png_chunk(b"IHDR", &header));
    file.extend(further.concat());
    file.extend(png_chunk(b"IDAT", pixels));
    file.extend(png_chunk(b"IEND", &[]));
    file
}

fn one_pixel() -> Vec<u8> {
    deflated([vec![0, 77]].into_iter())
}

#[test]
fn profiles_and_texts_of_a_png_are_not_unpacked() {
    let packed = bomb(256);
    let chunk = |kind: &[u8; 4], head: &[u8]| png_chunk(kind, &[head, &packed].concat());
    let chunks = [
        chunk(b"iCCP", b"name\0\0"),
        chunk(b"zTXt", b"Raw profile type iptc\0\0"),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\x01\0\0\0"),
        // Ancillary chunks that nobody knows, and an orientation that cannot be one.
        png_chunk(b"teSt", &vec![0; 8 << 20]),
        png_chunk(b"eXIf", &vec![0; 8 << 20]),
    ];
    for chunk in &chunks {
        let file = png(1, 1, false, std::slice::from_ref(chunk), &one_pixel());
        assert_eq!(within_bounds(&file, 1).unwrap().pixels(), [77]);
    }
    assert_eq!(within_bounds(&png(1, 1, true, &chunks, &one_pixel()), 1).unwrap().pixels(), [77]);
}

#[test]
fn a_palette_that_ends_within_a_colour_is_refused_and_one_that_no_pixel_needs_is_left_out() {
    for length in [1, 2, 4, 41, 767] {
        let palette = png_chunk(b"PLTE", &vec![9; length]);
        let mut file = png(1, 1, false, std::slice::from_ref(&palette), &one_pixel());
        assert_eq!(within_bounds(&file, 1).unwrap().pixels(), [77], "grey");
        // The kind of colours, and the checksum of its chunk.
        file[25] = 3;
        let header = png_chunk(b"IHDR", &file[16..29]);
        file[8..8 + header.len()].copy_from_slice(&header);
        let problem = within_bounds(&file, 3).unwrap_err();
        assert_eq!(problem, format!("corrupt PNG: its palette has {length} bytes, not 3 for each colour"));
    }
}

#[test]
fn a_png_of_one_pixel_and_megabytes_of_data_is_refused() {
    let mut data = one_pixel();
    data.resize(5 << 20, 0);
    let problem = within_bounds(&png(1, 1, false, &[], &data), 1).unwrap_err();
    assert_eq!(problem, "corrupt PNG: its data are much longer than its pixels need");
}

#[test]
fn a_large_png_is_refused_from_its_header_and_an_interlaced_one_stays_within_its_memory() {
    for (width, height) in [(u32::MAX >> 1, 1), (1, u32::MAX >> 1), (16_385, 1), (16_384, 16_385)] {
        let problem = within_bounds(&png(width, height, false, &[], &one_pixel()), 0).unwrap_err();
        assert!(problem.contains("and a side may have 16384"), "{problem}");
    }
    let passes = [(8, 8), (8, 8), (4, 8), (4, 4), (2, 4), (2, 2), (1, 2)];
    let first = [(0, 0), (4, 0), (0, 4), (2, 0), (0, 2), (1, 0), (0, 1)];
    let data = deflated(passes.iter().zip(first).flat_map(|(&(across, down), (x, y))| {
        let (columns, rows) = ((2000_usize - x).div_ceil(across), (2000_usize - y).div_ceil(down));
        (0..rows).map(move |_| vec![0; columns + 1])
    }));
    let image = within_bounds(&png(2000, 2000, true, &[], &data), 4_000_000).unwrap();
    assert!(image.pixels().iter().all(|&v| v == 0));
}

/// A segment of a JPEG.
fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xFF, marker];
    bytes.extend((body.len() as u16 + 2).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A grey progressive JPEG of 1024 x 1024: a first scan of grey blocks and `scans` scans that say in two bytes that
/// all blocks have no further coefficient.
fn empty_scans(scans: usize) -> Vec<u8> {
    let mut file = vec![0xFF, 0xD8];
    file.extend(segment(0xDB, &[&[0_u8][..], &[1; 64]].concat()));
    file.extend(segment(0xC2, &[8, 4, 0, 4, 0, 1, 1, 0x11, 0]));
    let table = |kind: u8, symbol: u8| {
        let mut body = vec![kind, 1];
        body.extend([0; 15]);
        body.push(symbol);
        segment(0xC4, &body)
    };
    file.extend(table(0x00, 0));
    // The end of 2^14 blocks and as many as 14 further bits say.
    file.extend(table(0x10, 0xE0));
    file.extend(segment(0xDA, &[1, 1, 0, 0, 0, 0]));
    file.extend([0; 128 * 128 / 8]);
    for _ in 0..scans {
        file.extend(segment(0xDA, &[1, 1, 0, 1, 63, 0]));
        file.extend([0, 1]);
    }
    file.extend([0xFF, 0xD9]);
    file
}

#[test]
fn a_jpeg_of_many_empty_scans_is_refused_before_the_first_is_decoded() {
    let decoded = 1 << 20;
    let image = within_bounds(&empty_scans(99), decoded).unwrap();
    assert_eq!((image.width(), image.height()), (1024, 1024));
    for scans in [100, 3000, 100_000] {
        let problem = within_bounds(&empty_scans(scans), decoded).unwrap_err();
        let visits = scans + 1;
        let expected =
            format!("its {visits} scans visit every block {visits} times, and 100 times are permitted");
        assert_eq!(problem, expected);
    }
}

/// Where the codes of a file of one scan end.
fn baseline() -> Vec<u8> {
    let pixels: Vec<u8> = (0..64 * 64).map(|i| (i * 7 % 251) as u8).collect();
    let mut bytes = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
    encoder.encode(&pixels, 64, 64, jpeg_encoder::ColorType::Luma).unwrap();
    bytes
}

#[test]
fn a_sequential_jpeg_codes_a_component_once_and_has_few_tables() {
    let file = baseline();
    let scan = file.windows(2).position(|w| w == [0xFF, 0xDA]).unwrap();
    let end = file.len() - 2;
    let twice = [&file[..end], &file[scan..end], &file[end..]].concat();
    assert_eq!(within_bounds(&twice, 4096).unwrap_err(), "corrupt JPEG: a component is coded twice");
    let tables = file.windows(2).position(|w| w == [0xFF, 0xC4]).unwrap();
    let length = 2 + usize::from(u16::from_be_bytes([file[tables + 2], file[tables + 3]]));
    let many = [&file[..tables], &file[tables..tables + length].repeat(1001), &file[tables..]].concat();
    assert_eq!(within_bounds(&many, 4096).unwrap_err(), "corrupt JPEG: more than 1,000 tables");
}

#[test]
fn profiles_and_texts_of_a_jpeg_are_left_out() {
    let file = baseline();
    let text = [&b"http://ns.adobe.com/xmp/extension/\0"[..], &[b'A'; 32], &[255; 4], &[0; 4], b"x"].concat();
    let profile = [&b"ICC_PROFILE\0\x01\x02"[..], &[0; 60_000]].concat();
    let further = [segment(0xE1, &text).repeat(20_000), segment(0xE2, &profile).repeat(100)].concat();
    let long = [&file[..2], &further, &file[2..]].concat();
    assert_eq!(within_bounds(&long, 4096).unwrap(), decode(&file, "x").unwrap());
}

fn gif(screen: u16, frame: u16, before: &[u8], after: &[u8]) -> Vec<u8> {
    let side = |n: u16| n.to_le_bytes();
    let mut file = b"GIF89a".to_vec();
    file.extend([side(screen), side(screen)].concat());
    file.extend([0x80, 0, 0, 0, 0, 0, 9, 9, 9]);
    file.extend(before);
    file.push(0x2C);
    file.extend([side(0), side(0), side(frame), side(frame)].concat());
    // Codes of 3 bits, the lowest first: clear, colour 1, end.
    file.extend([0, 2, 2, 0b01_001_100, 0b1, 0]);
    file.extend(after);
    file.push(0x3B);
    file
}

#[test]
fn a_gif_costs_its_first_frame_and_its_screen_only() {
    let plain = decode(&gif(1, 1, &[], &[]), "x").unwrap();
    assert_eq!(plain.pixels(), [9, 9, 9]);
    let comment = [&[0x21_u8, 0xFE][..], &[&[255_u8][..], &[0; 255]].concat().repeat(40_000), &[0]].concat();
    let profile = [&b"\x21\xFF\x0BICCRGBG1012"[..], &comment[2..]].concat();
    let further = gif(1, 1, &[], &[])[19..].repeat(100_000);
    for (before, after) in [(&comment[..], &[][..]), (&profile, &[]), (&[], &comment), (&[], &further)] {
        assert_eq!(within_bounds(&gif(1, 1, before, after), 4).unwrap(), plain);
    }
    for (screen, frame) in [(u16::MAX, 1), (1, u16::MAX), (16_384, 1), (1, 8000), (1, 4000)] {
        within_bounds(&gif(screen, frame, &[], &[]), 0).unwrap_err();
    }
}

fn chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut chunk = kind.to_vec();
    chunk.extend((body.len() as u32).to_le_bytes());
    chunk.extend(body);
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

fn riff(chunks: &[Vec<u8>]) -> Vec<u8> {
    let body = chunks.concat();
    [&b"RIFF"[..], &(body.len() as u32 + 4).to_le_bytes(), b"WEBP", &body].concat()
}

fn extended(flags: u8, side: u32) -> Vec<u8> {
    let [a, b, c, _] = (side - 1).to_le_bytes();
    chunk(b"VP8X", &[flags, 0, 0, 0, a, b, c, a, b, c])
}

#[test]
fn a_webp_costs_its_first_frame_only() {
    let mut simple = std::io::Cursor::new(Vec::new());
    image::RgbImage::from_pixel(3, 3, image::Rgb([5, 6, 7]))
        .write_to(&mut simple, image::ImageFormat::WebP)
        .unwrap();
    let simple = simple.into_inner();
    let plain = decode(&simple, "x").unwrap();
    let pixels = simple[12..].to_vec();
    let profile = chunk(b"ICCP", &vec![0; 16 << 20]);
    // All flags but animation; the EXIF is longer than the file, as its header says.
    let mut cut = chunk(b"EXIF", &[0; 64]);
    cut[4..8].copy_from_slice(&0xFFFF_FFF0_u32.to_le_bytes());
    let unknown = chunk(b"teSt", &[0; 8]).repeat(100_000);
    let file = riff(&[extended(0x2C, 3), profile, pixels, unknown, chunk(b"XMP ", &[0; 99]), cut]);
    assert_eq!(within_bounds(&file, 27).unwrap(), plain);

    // A lossy frame of the largest size on a canvas of one pixel.
    let lossy = [&[0x10, 0, 0, 0x9D, 0x01, 0x2A, 0xFF, 0x3F, 0xFF, 0x3F][..], &[0; 4000]].concat();
    let problem = within_bounds(&riff(&[extended(0, 1), chunk(b"VP8 ", &lossy)]), 0).unwrap_err();
    assert!(problem.contains("16383 x 16383 pixels"), "{problem}");
    let frame = chunk(b"ANMF", &[&[0; 16][..], &chunk(b"VP8 ", &lossy)].concat());
    let file = riff(&[extended(0x02, 1), chunk(b"ANIM", &[0; 6]), frame]);
    let problem = within_bounds(&file, 0).unwrap_err();
    assert!(problem.contains("16383 x 16383 pixels"), "{problem}");
}

/// A little-endian TIFF: one directory of (tag, type, count, value).
fn tiff(entries: &[(u16, u16, u32, u32)], data: &[u8]) -> Vec<u8> {
    let mut file = b"II*\0".to_vec();
    file.extend((8 + data.len() as u32).to_le_bytes());
    file.extend(data);
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        file.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    file.extend([0; 4]);
    file
}

fn grey_tiff(side: u32, strips: u32, more: &[(u16, u16, u32, u32)], data: &[u8]) -> Vec<u8> {
    let mut entries = vec![
        (256, 4, 1, side),
        (257, 4, 1, side),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (273, 4, strips, 8),
        (277, 3, 1, 1),
        (278, 4, 1, side.div_ceil(strips)),
        (279, 4, strips, data.len() as u32),
    ];
    entries.retain(|entry| more.iter().all(|other| other.0 != entry.0));
    entries.extend(more);
    entries.sort();
    tiff(&entries, data)
}

#[test]
fn the_directory_of_a_tiff_is_no_longer_than_its_image_explains() {
    assert_eq!(within_bounds(&grey_tiff(2, 1, &[], &[1, 2, 3, 4]), 4).unwrap().pixels(), [1, 2, 3, 4]);
    let data = vec![0; 8 << 20];
    let problem = within_bounds(&grey_tiff(2, 2_000_000, &[], &data), 0).unwrap_err();
    assert_eq!(problem, "corrupt TIFF: 2000000 values of tag 273 in an image of 2 x 2 pixels");
    let many: Vec<_> = (0..5000).map(|i| (40_000 + i, 3, 1, 0)).collect();
    let problem = within_bounds(&grey_tiff(2, 1, &many, &[1, 2, 3, 4]), 0).unwrap_err();
    assert_eq!(problem, "corrupt TIFF: a directory of 5009 entries");
    // Tags of one value, too: all their values are read.
    for tag in [255, 266, 274, 284, 317, 330] {
        let long = grey_tiff(2, 1, &[(tag, 3, 2_000_000, 0)], &[1, 2, 3, 4]);
        let wanted = format!("corrupt TIFF: 2000000 values of tag {tag} in an image of 2 x 2 pixels");
        assert_eq!(within_bounds(&long, 0).unwrap_err(), wanted);
    }
    let problem = within_bounds(&grey_tiff(100_000, 1, &[], &[0; 4]), 0).unwrap_err();
    assert!(problem.contains("a side may have 16384"), "{problem}");
    // A tile of 16,384 x 8,192 for a picture of 2 x 2.
    let tile = [(322, 4, 1, 16_384), (323, 4, 1, 8192), (324, 4, 1, 8), (325, 4, 1, 4)];
    within_bounds(&grey_tiff(2, 1, &tile, &[0; 4]), 4).unwrap_err();
}

#[test]
fn a_tiff_of_jpeg_strips_is_checked_as_jpeg_files_are() {
    let jpeg = |side: usize| {
        let pixels: Vec<u8> = (0..side * side).map(|i| (i * 7 % 251) as u8).collect();
        let mut bytes = Vec::new();
        let encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
        encoder.encode(&pixels, side as u16, side as u16, jpeg_encoder::ColorType::Luma).unwrap();
        bytes
    };
    let tiff = |side: u32, data: &[u8]| grey_tiff(side, 1, &[(259, 3, 1, 7)], data);
    let strip = jpeg(64);
    let image = within_bounds(&tiff(64, &strip), 4096).unwrap();
    assert_eq!(image.pixels(), decode(&strip, "x").unwrap().pixels());
    // A picture of one pixel in a strip of 4,000,000, and one of a thousand scans.
    let problem = within_bounds(&tiff(1, &jpeg(2000)), 1).unwrap_err();
    assert_eq!(problem, "corrupt TIFF: a part of 2000 x 2000 pixels, more than the image has");
    let problem = within_bounds(&tiff(1024, &empty_scans(1000)), 1 << 20).unwrap_err();
    assert!(problem.starts_with("corrupt TIFF: its 1001 scans visit every block"), "{problem}");
    let text = segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0").repeat(2000);
    let problem = within_bounds(&tiff(64, &[&strip[..2], &text, &strip[2..]].concat()), 4096).unwrap_err();
    assert_eq!(problem, "corrupt TIFF: a part with 2001 profiles and texts");
    let problem = within_bounds(&grey_tiff(2, 1, &[(259, 3, 1, 1), (259, 3, 1, 7)], &[0; 4]), 4).unwrap_err();
    assert_eq!(problem, "corrupt TIFF: tag 259 is there twice");
}

#[test]
fn the_header_of_a_bmp_is_checked_before_memory_is_taken() {
    let bmp = |width: i32, height: i32, bits: u16, colors: u32| {
        let mut file = b"BM".to_vec();
        file.extend([[0; 4], [0; 4], [54, 0, 0, 0], [40, 0, 0, 0]].concat());
        file.extend([width.to_le_bytes(), height.to_le_bytes()].concat());
        file.extend([1_u16.to_le_bytes(), bits.to_le_bytes()].concat());
        file.extend([[0; 4], [0; 4], [0; 4], [0; 4], colors.to_le_bytes(), [0; 4]].concat());
        file.extend([0; 64]);
        file
    };
    within_bounds(&bmp(2, 2, 24, 0), 12).unwrap();
    for (width, height) in [(i32::MAX, 1), (1, i32::MAX), (1, i32::MIN + 1), (-1, 1), (16_000, 16_000)] {
        within_bounds(&bmp(width, height, 24, 0), 0).unwrap_err();
    }
    within_bounds(&bmp(2, 2, 8, u32::MAX), 12).unwrap_err();
}

#[test]
fn limits_and_a_deadline_are_kept_by_every_format() {
    let picture = image::RgbImage::from_fn(300, 300, |x, y| image::Rgb([x as u8, y as u8, (x * y) as u8]));
    let mut files = vec![empty_scans(3), baseline()];
    use image::ImageFormat::{Bmp, Gif, Png, Tiff, WebP};
    for format in [Bmp, Gif, Png, Tiff, WebP] {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::DynamicImage::from(picture.clone()).write_to(&mut bytes, format).unwrap();
        files.push(bytes.into_inner());
    }
    for file in &files {
        let now = DecodeLimits { deadline: Some(Instant::now()), ..DecodeLimits::default() };
        let error = decode_with(file, "x", &now).unwrap_err();
        assert!(matches!(error, Error::DecodeDeadline { .. }), "{error}");
        assert_eq!(error.to_string(), "decoding `x` took longer than it may");
        let later = DecodeLimits::default().within(Duration::from_secs(3600));
        assert_eq!(decode_with(file, "x", &later).unwrap(), decode(file, "x").unwrap());
        let small = DecodeLimits { max_side: 63, ..DecodeLimits::default() };
        let problem = decode_with(file, "x", &small).unwrap_err().to_string();
        assert!(problem.ends_with("a side may have 63"), "{problem}");
        let small = DecodeLimits { max_decoded_bytes: 4000, ..DecodeLimits::default() };
        let problem = decode_with(file, "x", &small).unwrap_err().to_string();
        assert!(problem.contains("pixels decode to"), "{problem}");
    }
}
