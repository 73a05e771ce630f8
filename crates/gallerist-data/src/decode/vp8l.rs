//! Checks the code tables of a lossless WebP before it is decoded.
//!
//! An image may have 65,536 groups of five tables. Eight bytes of a file can describe a table that takes 70 KB in the
//! decoder's memory, so a file of 2 MB could take 5 GB. The number of groups is stored in a small image before the
//! tables; this module decodes that image (WebP Lossless Bitstream Specification, sections 4 to 6).

use super::limits::Watch;

/// Bytes that the tables of every image may take, in addition to twice its decoded size.
const ALWAYS: u64 = 16 << 20;

/// Symbols of each alphabet of a group: green with lengths (and the colour cache), red, blue, alpha, distances.
const ALPHABETS: [usize; 5] = [256 + 24, 256, 256, 256, 40];

/// The order in which the lengths of the code length codes are stored.
const LENGTH_ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// The first 120 distance codes: how many rows and columns they go back, in two hexadecimal digits: rows, then 8 minus
/// columns.
const NEAR: [u8; 120] = [
    0x18, 0x07, 0x17, 0x19, 0x28, 0x06, 0x27, 0x29, 0x16, 0x1a, 0x26, 0x2a, 0x38, 0x05, 0x37, 0x39, 0x15,
    0x1b, 0x36, 0x3a, 0x25, 0x2b, 0x48, 0x04, 0x47, 0x49, 0x14, 0x1c, 0x35, 0x3b, 0x46, 0x4a, 0x24, 0x2c,
    0x58, 0x45, 0x4b, 0x34, 0x3c, 0x03, 0x57, 0x59, 0x13, 0x1d, 0x56, 0x5a, 0x23, 0x2d, 0x44, 0x4c, 0x55,
    0x5b, 0x33, 0x3d, 0x68, 0x02, 0x67, 0x69, 0x12, 0x1e, 0x66, 0x6a, 0x22, 0x2e, 0x54, 0x5c, 0x43, 0x4d,
    0x65, 0x6b, 0x32, 0x3e, 0x78, 0x01, 0x77, 0x79, 0x53, 0x5d, 0x11, 0x1f, 0x64, 0x6c, 0x42, 0x4e, 0x76,
    0x7a, 0x21, 0x2f, 0x75, 0x7b, 0x31, 0x3f, 0x63, 0x6d, 0x52, 0x5e, 0x00, 0x74, 0x7c, 0x41, 0x4f, 0x10,
    0x20, 0x62, 0x6e, 0x30, 0x73, 0x7d, 0x51, 0x5f, 0x40, 0x72, 0x7e, 0x61, 0x6f, 0x50, 0x71, 0x7f, 0x60,
    0x70,
];

/// Returns an error if the tables of an image would take much more memory than its pixels.
///
/// `data` is the stream. With `size` (the stream of an alpha channel) it begins after the image's size, else with it.
pub(super) fn check(data: &[u8], size: Option<(usize, usize)>, watch: &Watch) -> Result<(), String> {
    let mut reader = Reader { data, at: 0, watch, bytes: 0, permitted: u64::MAX };
    // The decoder reports all other errors.
    let whole = reader.tables(size).is_some();
    if !whole && reader.bytes > reader.permitted {
        return Err(format!(
            "corrupt WebP: its tables of codes take more than {} MiB",
            reader.permitted >> 20
        ));
    }
    Ok(())
}

/// A prefix code.
enum Code {
    /// One symbol, which takes no bits.
    One(usize),
    /// The number of codes of each length; the symbols, ordered by length and then by number.
    Many([usize; 16], Vec<u16>),
}

/// Reads bits, the lowest of a byte first. Its methods return `None` at the end of the data, after an error, and if the
/// tables would take too much memory.
struct Reader<'a> {
    data: &'a [u8],
    /// The position, in bits.
    at: usize,
    watch: &'a Watch,
    /// Memory that the decoder would have allocated for the tables so far.
    bytes: u64,
    /// The most memory that the tables may take.
    permitted: u64,
}

impl Reader<'_> {
    fn bits(&mut self, count: usize) -> Option<usize> {
        let mut value = 0;
        for bit in 0..count {
            let byte = *self.data.get(self.at / 8)?;
            value |= usize::from(byte >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Some(value)
    }

    /// Reads the transforms and then the tables of the image.
    fn tables(&mut self, size: Option<(usize, usize)>) -> Option<()> {
        let (width, height) = match size {
            Some(size) => size,
            None => {
                self.bits(8)?;
                let size = (1 + self.bits(14)?, 1 + self.bits(14)?);
                self.bits(4)?;
                size
            }
        };
        // The decoder reports a size that is out of bounds.
        self.watch.limits.check_size(width, height, 3 * (width * height) as u64).ok()?;
        self.permitted = 8 * (width * height) as u64 + ALWAYS;
        let mut across = width;
        let mut seen = 0;
        while self.bits(1)? == 1 {
            let kind = self.bits(2)?;
            // Each transform occurs at most once.
            if seen >> kind & 1 == 1 {
                return None;
            }
            seen |= 1 << kind;
            match kind {
                0 | 1 => {
                    let side = 1 << (self.bits(3)? + 2);
                    self.image(across.div_ceil(side), height.div_ceil(side))?;
                }
                3 => {
                    let colors = self.bits(8)? + 1;
                    self.image(colors, 1)?;
                    across = across.div_ceil(match colors {
                        0..=2 => 8,
                        3..=4 => 4,
                        5..=16 => 2,
                        _ => 1,
                    });
                }
                _ => {}
            }
        }
        let cache = self.cache()?;
        let mut groups = 1;
        if self.bits(1)? == 1 {
            let side = 1 << (self.bits(3)? + 2);
            let image = self.image(across.div_ceil(side), height.div_ceil(side))?;
            groups = 1 + image.iter().map(|pixel| pixel >> 8 & 0xFFFF).max()?;
        }
        for _ in 0..groups {
            self.group(cache)?;
        }
        Some(())
    }

    /// The number of bits of an index into the colour cache; 0: there is no cache.
    fn cache(&mut self) -> Option<usize> {
        match self.bits(1)? {
            0 => Some(0),
            _ => self.bits(4).filter(|bits| (1..=11).contains(bits)),
        }
    }

    fn group(&mut self, cache: usize) -> Option<[Code; 5]> {
        self.watch.count_bytes(0).and_then(|()| self.watch.count_call()).ok()?;
        let mut codes = [const { Code::One(0) }; 5];
        for (number, code) in codes.iter_mut().enumerate() {
            let more = if number == 0 && cache > 0 { 1 << cache } else { 0 };
            *code = self.code(ALPHABETS[number] + more)?;
        }
        Some(codes)
    }

    /// An image within the image. A pixel is alpha, red, green, blue, from the highest byte.
    fn image(&mut self, width: usize, height: usize) -> Option<Vec<u32>> {
        let cache_bits = self.cache()?;
        let [green, red, blue, alpha, distances] = self.group(cache_bits)?;
        let mut cache = vec![0_u32; 1 << cache_bits];
        let keep = |cache: &mut [u32], pixel: u32| {
            let place = u64::from(0x1e35_a7bd_u32.wrapping_mul(pixel)) >> (32 - cache_bits);
            cache[place as usize] = pixel;
        };
        let total = width * height;
        let mut pixels = Vec::with_capacity(total);
        while pixels.len() < total {
            self.watch.count_call().ok()?;
            match self.symbol(&green)? {
                value @ ..256 => {
                    let [red, blue, alpha] = [self.symbol(&red)?, self.symbol(&blue)?, self.symbol(&alpha)?];
                    let pixel = (alpha << 24 | red << 16 | value << 8 | blue) as u32;
                    keep(&mut cache, pixel);
                    pixels.push(pixel);
                }
                value @ ..280 => {
                    let length = self.extended(value - 256)?;
                    let code = self.symbol(&distances)?;
                    let code = self.extended(code)?;
                    let back = match NEAR.get(code - 1) {
                        None => code - NEAR.len(),
                        Some(&near) => {
                            let (rows, columns) = (usize::from(near >> 4), 8 - isize::from(near as i8 & 15));
                            ((rows * width) as isize + columns).max(1) as usize
                        }
                    };
                    if back > pixels.len() || length > total - pixels.len() {
                        return None;
                    }
                    for _ in 0..length {
                        let pixel = pixels[pixels.len() - back];
                        // As the decoder does it. With distance 1, the pixel is in the cache already.
                        if back > 1 {
                            keep(&mut cache, pixel);
                        }
                        pixels.push(pixel);
                    }
                }
                value => {
                    pixels.push(*cache.get(value - 280).filter(|_| cache_bits > 0)?);
                }
            }
        }
        Some(pixels)
    }

    /// A length or distance from its prefix.
    fn extended(&mut self, prefix: usize) -> Option<usize> {
        if prefix < 4 {
            return Some(prefix + 1);
        }
        let more = (prefix - 2) >> 1;
        Some(((2 + (prefix & 1)) << more) + self.bits(more)? + 1)
    }

    fn code(&mut self, alphabet: usize) -> Option<Code> {
        let lengths = match self.bits(1)? {
            1 => {
                let two = self.bits(1)? == 1;
                let long = self.bits(1)? == 1;
                let inside = |symbol: &usize| *symbol < alphabet;
                let first = self.bits(if long { 8 } else { 1 }).filter(inside)?;
                if !two {
                    return self.counted(Code::One(first));
                }
                let mut counts = [0; 16];
                counts[1] = 2;
                let second = self.bits(8).filter(inside)?;
                return self.counted(Code::Many(counts, vec![first as u16, second as u16]));
            }
            _ => {
                let mut lengths = [0; 19];
                let stored = 4 + self.bits(4)?;
                for &place in &LENGTH_ORDER[..stored] {
                    lengths[place] = self.bits(3)? as u8;
                }
                let code = Code::new(&lengths);
                self.lengths(&code, alphabet)?
            }
        };
        self.counted(Code::new(&lengths))
    }

    fn counted(&mut self, code: Code) -> Option<Code> {
        self.bytes += code.bytes();
        (self.bytes <= self.permitted).then_some(code)
    }

    fn lengths(&mut self, code: &Code, alphabet: usize) -> Option<Vec<u8>> {
        let mut left = alphabet;
        if self.bits(1)? == 1 {
            let bits = 2 + 2 * self.bits(3)?;
            left = 2 + self.bits(bits)?;
        }
        let mut lengths = Vec::with_capacity(alphabet);
        let mut last = 8;
        while lengths.len() < alphabet && left > 0 {
            left -= 1;
            let (count, length) = match self.symbol(code)? {
                16 => (3 + self.bits(2)?, last),
                17 => (3 + self.bits(3)?, 0),
                18 => (11 + self.bits(7)?, 0),
                length => {
                    last = if length > 0 { length as u8 } else { last };
                    (1, length as u8)
                }
            };
            if count > alphabet - lengths.len() {
                return None;
            }
            lengths.resize(lengths.len() + count, length);
        }
        Some(lengths)
    }

    fn symbol(&mut self, code: &Code) -> Option<usize> {
        let (counts, symbols) = match code {
            Code::One(symbol) => return Some(*symbol),
            Code::Many(counts, symbols) => (counts, symbols),
        };
        // The codes of a length are consecutive numbers. Their highest bit comes first.
        let (mut value, mut first, mut index) = (0, 0, 0);
        for &count in &counts[1..] {
            value |= self.bits(1)?;
            if value < first + count {
                return symbols.get(index + value - first).map(|&symbol| symbol.into());
            }
            index += count;
            first = (first + count) << 1;
            value <<= 1;
        }
        None
    }
}

impl Code {
    fn new(lengths: &[u8]) -> Code {
        let mut counts = [0; 16];
        lengths.iter().for_each(|&length| counts[usize::from(length)] += 1);
        counts[0] = 0;
        let with =
            |length: u8| lengths.iter().enumerate().filter(move |(_, l)| **l == length).map(|(s, _)| s);
        match counts.iter().sum::<usize>() {
            1 => Code::One(lengths.iter().position(|&length| length > 0).unwrap_or(0)),
            _ => Code::Many(counts, (1..16).flat_map(with).map(|symbol| symbol as u16).collect()),
        }
    }

    /// Bytes that the decoder allocates for it: a table of up to 10 bits, two nodes for each longer code, and an entry in
    /// a vector whose capacity may be twice its length.
    fn bytes(&self) -> u64 {
        match self {
            Code::One(_) => 128,
            Code::Many(counts, _) => {
                let most = (1..16).rev().find(|&length| counts[length] > 0).unwrap_or(0).min(10);
                let long: usize = counts[11..].iter().sum();
                128 + (4 << most) + 32 * long as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::DecodeLimits;
    use super::*;

    fn watch() -> Watch {
        Watch::new(DecodeLimits::default())
    }

    #[test]
    fn near_distances_are_those_of_the_specification() {
        let pairs: Vec<(i8, i8)> = NEAR.iter().map(|n| (8 - (n & 15) as i8, (n >> 4) as i8)).collect();
        assert_eq!(pairs[..6], [(0, 1), (1, 0), (1, 1), (-1, 1), (0, 2), (2, 0)]);
        assert_eq!(pairs[117..], [(-7, 7), (8, 6), (8, 7)]);
        let different: std::collections::HashSet<_> = pairs.iter().collect();
        assert_eq!(different.len(), 120);
    }

    #[test]
    fn the_tables_of_real_files_are_read_to_their_end() {
        // Smooth and noisy parts, few colours and many: several groups, caches and transforms.
        let mut random = gallerist_util::random::Random::new(1, "webp", 0, 0);
        for (side, colors) in [(1_u32, 3), (40, 2), (97, 256), (300, 17), (300, 256)] {
            let picture = image::RgbImage::from_fn(side, side, |x, y| {
                let noise = if x > y { random.below(colors) as u8 } else { 0 };
                image::Rgb([noise.wrapping_add(x as u8), (x / 7 * y / 9) as u8, noise])
            });
            let mut bytes = std::io::Cursor::new(Vec::new());
            picture.write_to(&mut bytes, image::ImageFormat::WebP).unwrap();
            let bytes = bytes.into_inner();
            let watch = watch();
            let mut reader =
                Reader { data: &bytes[20..], at: 0, watch: &watch, bytes: 0, permitted: u64::MAX };
            assert!(reader.tables(None).is_some(), "{side} x {side}");
            assert!(reader.bytes > 0 && reader.at <= 8 * bytes.len());
        }
    }

    /// Bits, the lowest of a byte first.
    #[derive(Default)]
    struct Writer(Vec<u8>, usize);

    impl Writer {
        fn put(&mut self, value: usize, count: usize) {
            for bit in 0..count {
                if self.1.is_multiple_of(8) {
                    self.0.push(0);
                }
                *self.0.last_mut().unwrap() |= ((value >> bit & 1) as u8) << (self.1 % 8);
                self.1 += 1;
            }
        }

        /// A code of one symbol below 256.
        fn one(&mut self, symbol: usize) {
            self.put(0b101, 3);
            self.put(symbol, 8);
        }

        /// A code in which the first `symbols` symbols have this length.
        fn all_of(&mut self, length: usize, symbols: usize) {
            self.put(0, 1);
            self.put(15, 4);
            for place in LENGTH_ORDER {
                self.put(usize::from(place == length), 3);
            }
            // The number of lengths. Each length takes no bits.
            self.put(1, 1);
            self.put(5, 3);
            self.put(symbols - 2, 12);
        }
    }

    #[test]
    fn a_code_has_no_symbols_beyond_its_alphabet() {
        let code = |symbols: &[usize], alphabet| {
            let mut file = Writer::default();
            match *symbols {
                [one] => file.one(one),
                [first, second] => {
                    file.put(0b111, 3);
                    file.put(first, 8);
                    file.put(second, 8);
                }
                _ => unreachable!(),
            }
            let watch = watch();
            let mut reader = Reader { data: &file.0, at: 0, watch: &watch, bytes: 0, permitted: u64::MAX };
            reader.code(alphabet).is_some()
        };
        assert!(code(&[39], 40) && code(&[39, 0], 40) && code(&[255, 255], 256));
        assert!(!code(&[40], 40) && !code(&[40, 0], 40) && !code(&[0, 255], 40));
    }

    #[test]
    fn a_file_whose_tables_take_gigabytes_is_refused() {
        let mut file = Writer::default();
        file.put(0x2F, 8);
        // One pixel, no transforms, a cache of 11 bits.
        file.put(0, 28 + 4 + 1);
        file.put(1, 1);
        file.put(11, 4);
        // An image of one pixel that gives the number of groups: 65,536.
        file.put(1, 1);
        file.put(0, 3);
        file.put(0, 1);
        file.one(255);
        file.one(255);
        (0..3).for_each(|_| file.one(0));
        for _ in 0..65_536 {
            file.all_of(11, 2048);
            (0..4).for_each(|_| file.one(0));
        }
        assert!(file.0.len() < 2 << 20, "{} bytes", file.0.len());
        let problem = check(&file.0, None, &watch()).unwrap_err();
        assert_eq!(problem, "corrupt WebP: its tables of codes take more than 16 MiB");
    }
}
