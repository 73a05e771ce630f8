//! Checks the directory of a TIFF before it is decoded.

use std::collections::BTreeMap;

use super::jpeg;
use super::limits::Watch;

/// Most entries of the first directory; the standard knows fewer than a hundred tags.
const MAX_ENTRIES: u64 = 4096;

/// Values of one tag that the decoder reads whole, whatever the size of the image.
const ALWAYS: u64 = 1 << 16;

/// Tags with values that the decoder keeps: bits, places and lengths of strips and tiles, colours, formats, tables of
/// JPEG; and tags of one value, all values of which it reads for the first one. All others, texts and profiles among them,
/// stay in the file.
const KEPT: [u64; 25] = [
    255, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 330, 338,
    339, 347, 530, 532,
];

/// The most pixels of JPEG strips and tiles that are not pixels of the image: their padding.
const PADDING: u64 = 1 << 20;

/// Returns an error for a first directory that would take much more memory than its image: the decoder keeps 24 bytes
/// for each value, and a file of 20 MiB holds ten million. Also for strips of JPEG that are larger than the image: their
/// decoder takes its sizes from the strips.
pub(super) fn check(bytes: &[u8], watch: &Watch) -> Result<(), String> {
    // The decoder reports errors in the rest of the file.
    let Some(directory) = Directory::read(bytes) else { return Ok(()) };
    directory?.check(watch).unwrap_or(Ok(()))
}

struct Directory<'a> {
    bytes: &'a [u8],
    little: bool,
    big: bool,
    /// By tag: type, number of values, and where they are.
    entries: BTreeMap<u64, (u64, u64, u64)>,
}

impl<'a> Directory<'a> {
    fn read(bytes: &'a [u8]) -> Option<Result<Self, String>> {
        let little = bytes.first()? == &b'I';
        let mut directory = Directory { bytes, little, big: false, entries: BTreeMap::new() };
        // BigTIFF has longer numbers.
        directory.big = directory.number(2, 2)? == 43;
        let (start, entries, first, size, offset) = if directory.big {
            let start = directory.number(8, 8)?;
            (start, directory.number(start, 8)?, 8, 20, 8)
        } else {
            let start = directory.number(4, 4)?;
            (start, directory.number(start, 2)?, 2, 12, 4)
        };
        if entries > MAX_ENTRIES {
            return Some(Err(format!("corrupt TIFF: a directory of {entries} entries")));
        }
        for i in 0..entries {
            let at = start.checked_add(first + i * size)?;
            let [tag, kind] = [directory.number(at, 2)?, directory.number(at + 2, 2)?];
            let count = directory.number(at + 4, offset)?;
            let length = count.checked_mul(length_of(kind))?;
            let here = at + 4 + offset;
            let values = if length <= offset { here } else { directory.number(here, offset)? };
            if directory.entries.insert(tag, (kind, count, values)).is_some() {
                return Some(Err(format!("corrupt TIFF: tag {tag} is there twice")));
            }
        }
        Some(Ok(directory))
    }

    fn number(&self, at: u64, length: u64) -> Option<u64> {
        let value = slice(self.bytes, at, length)?;
        let join = |high: u64, byte: &u8| high << 8 | u64::from(*byte);
        Some(if self.little { value.iter().rev().fold(0, join) } else { value.iter().fold(0, join) })
    }

    /// The values of a tag; none where it is absent.
    fn values(&self, tag: u64) -> Option<Vec<u64>> {
        let Some(&(kind, count, at)) = self.entries.get(&tag) else { return Some(Vec::new()) };
        let length = length_of(kind);
        (0..count).map(|i| self.number(at.checked_add(i * length)?, length)).collect()
    }

    fn value(&self, tag: u64) -> u64 {
        let first =
            |&(kind, count, at): &(u64, u64, u64)| self.number(at, length_of(kind)).filter(|_| count > 0);
        self.entries.get(&tag).and_then(first).unwrap_or(0)
    }

    fn check(&self, watch: &Watch) -> Option<Result<(), String>> {
        let (width, height) = (self.value(256), self.value(257));
        let checked = watch.limits.check_size(width as usize, height as usize, width.saturating_mul(height));
        if checked.is_err() {
            return Some(checked);
        }
        // Strips have a row at least, of one component; tiles have 16 x 16 pixels.
        let most = ALWAYS.max(8 * height + width * height / 16);
        for (tag, (_, count, _)) in &self.entries {
            if *count > most && KEPT.contains(tag) {
                return Some(Err(format!(
                    "corrupt TIFF: {count} values of tag {tag} in an image of {width} x {height} pixels"
                )));
            }
        }
        match self.value(259) {
            7 => self.check_jpegs(width * height, watch),
            _ => Some(Ok(())),
        }
    }

    /// Checks the strips or tiles of JPEG as files of JPEG are, and adds up their pixels.
    fn check_jpegs(&self, pixels: u64, watch: &Watch) -> Option<Result<(), String>> {
        let tables: Vec<u8> = self.values(347)?.into_iter().map(|byte| byte as u8).collect();
        let places = self.values(273)?.into_iter().zip(self.values(279)?);
        let places = places.chain(self.values(324)?.into_iter().zip(self.values(325)?));
        let mut left = 2 * pixels + PADDING;
        for (at, length) in places {
            // The decoder reads a part that the end of the file truncates up to there.
            let end = at.saturating_add(length).min(self.bytes.len() as u64);
            let part = slice(self.bytes, at, end.saturating_sub(at)).unwrap_or_default();
            // As the decoder puts them together: one start marker, one end marker.
            let joined = match tables.len() {
                0 | 1 => part.to_vec(),
                n => [&tables[..n - 2], part.get(2..).unwrap_or_default()].concat(),
            };
            let most = left.min(pixels + PADDING);
            match jpeg::check_part(&joined, most, watch) {
                Ok(area) => left -= area,
                Err(problem) => return Some(Err(format!("corrupt TIFF: {problem}"))),
            }
        }
        Some(Ok(()))
    }
}

fn slice(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
}

/// Bytes of a value of this type.
fn length_of(kind: u64) -> u64 {
    match kind {
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16 | 17 | 18 => 8,
        _ => 1,
    }
}
