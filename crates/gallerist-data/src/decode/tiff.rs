//! A look at the directory of a TIFF before it is decoded.

use super::limits::DecodeLimits;

/// Most entries of the first directory; the standard knows fewer than a hundred tags.
const MAX_ENTRIES: u64 = 4096;

/// Values of one tag that the decoder reads whole, whatever the size of the image.
const ALWAYS: u64 = 1 << 16;

/// Tags whose values the decoder keeps: bits, places and lengths of strips and tiles, colours, formats, tables of
/// JPEG. All others, texts and profiles among them, stay in the file.
const KEPT: [u64; 11] = [258, 273, 279, 320, 324, 325, 338, 339, 347, 530, 532];

/// Refuses a first directory that would cost much more than the image it describes: the decoder keeps 24 bytes
/// for each value, and a file of 20 MiB holds ten million.
pub(super) fn check(bytes: &[u8], limits: &DecodeLimits) -> Result<(), String> {
    // What cannot be read here is left to the decoder, which says what is wrong.
    check_directory(bytes, limits).unwrap_or(Ok(()))
}

fn check_directory(bytes: &[u8], limits: &DecodeLimits) -> Option<Result<(), String>> {
    let little = bytes.first()? == &b'I';
    let number = |at: u64, length: u64| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let value = bytes.get(at..at.checked_add(length as usize)?)?;
        let join = |high: u64, byte: &u8| high << 8 | u64::from(*byte);
        Some(if little { value.iter().rev().fold(0, join) } else { value.iter().fold(0, join) })
    };
    // BigTIFF has longer numbers.
    let big = number(2, 2)? == 43;
    let (start, entries, first, size) = if big {
        let start = number(8, 8)?;
        (start, number(start, 8)?, 8, 20)
    } else {
        let start = number(4, 4)?;
        (start, number(start, 2)?, 2, 12)
    };
    if entries > MAX_ENTRIES {
        return Some(Err(format!("corrupt TIFF: a directory of {entries} entries")));
    }
    let at = |i: u64| start.checked_add(first + i * size);
    let (mut width, mut height) = (0, 0);
    for i in 0..entries {
        let at = at(i)?;
        // A number of 16 or of 32 bits.
        let length = if number(at + 2, 2)? == 3 { 2 } else { 4 };
        let value = number(at + if big { 12 } else { 8 }, length)?;
        match number(at, 2)? {
            256 => width = value,
            257 => height = value,
            _ => {}
        }
    }
    if let Err(problem) = limits.check_size(width as usize, height as usize, width.saturating_mul(height)) {
        return Some(Err(problem));
    }
    // Strips have a row at least, of one component; tiles have 16 x 16 pixels.
    let most = ALWAYS.max(8 * height + width * height / 16);
    for i in 0..entries {
        let at = at(i)?;
        let (tag, count) = (number(at, 2)?, number(at + 4, if big { 8 } else { 4 })?);
        if count > most && KEPT.contains(&tag) {
            return Some(Err(format!(
                "corrupt TIFF: {count} values of tag {tag} in an image of {width} x {height} pixels"
            )));
        }
    }
    Some(Ok(()))
}
