//! Texts whose lengths are stored as differences (DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY).
//!
//! The library makes a list of as many lengths as the page says at its start, and a text may begin with the whole text
//! before it: a page of a few bytes can be any number of texts of any length.

use parquet::basic::Encoding;
use parquet::column::page::Page;

use super::thrift::{Compact, Unread};

/// The bytes that the beginnings of the texts of a page repeat; `None` for a damaged page.
pub(super) fn repeated(page: &Page, (repetition, definition): (i16, i16)) -> Option<usize> {
    let (values, most, encoding) = match page {
        Page::DataPage { buf, num_values, encoding, .. } => {
            let mut rest = Compact(buf);
            for _ in [repetition, definition].iter().filter(|&&highest| highest > 0) {
                let length = u32::from_le_bytes(*rest.take(4).ok()?.first_chunk()?);
                rest.take(length as usize).ok()?;
            }
            (rest, num_values, encoding)
        }
        Page::DataPageV2 { buf, num_values, encoding, rep_levels_byte_len, def_levels_byte_len, .. } => {
            let levels = rep_levels_byte_len.checked_add(*def_levels_byte_len)?;
            (Compact(buf.get(levels as usize..)?), num_values, encoding)
        }
        Page::DictionaryPage { .. } => return Some(0),
    };
    let (mut values, most) = (values, *most as usize);
    match encoding {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => lengths(&mut values, most).map(|_| 0).ok(),
        Encoding::DELTA_BYTE_ARRAY => {
            let beginnings = lengths(&mut values, most).ok()?;
            lengths(&mut values, most).ok()?;
            Some(beginnings)
        }
        _ => Some(0),
    }
}

/// Reads a list of lengths (DELTA_BINARY_PACKED), of which there may be `most`. Returns their sum.
fn lengths(bytes: &mut Compact, most: usize) -> Result<usize, Unread> {
    let size = |value: u64| usize::try_from(value).map_err(|_| Unread::Damaged);
    let [block, parts, count] = [bytes.varint()?, bytes.varint()?, bytes.varint()?];
    let (block, parts, count) = (size(block)?, size(parts)?, size(count)?);
    let first = bytes.zigzag()?;
    let values = block.checked_div(parts).unwrap_or(0);
    if count > most || block == 0 || values * parts != block || !values.is_multiple_of(32) {
        return Err(Unread::Damaged);
    }
    if count == 0 {
        return Ok(0);
    }
    let mut sum = Sum { length: 0, total: 0 };
    sum.add(first)?;
    let mut left = count - 1;
    while left > 0 {
        let least = bytes.zigzag()?;
        for &width in bytes.take(parts)? {
            if left == 0 {
                break;
            }
            let width = usize::from(width);
            if width > 32 {
                return Err(Unread::Damaged);
            }
            let packed = bytes.take(values.checked_mul(width).ok_or(Unread::Damaged)? / 8)?;
            let here = left.min(values);
            for i in 0..here {
                sum.add(least.wrapping_add(unpacked(packed, i * width, width)))?;
            }
            left -= here;
        }
    }
    Ok(sum.total)
}

struct Sum {
    /// The last length.
    length: i32,
    total: usize,
}

impl Sum {
    /// Adds the length that differs from the last by this.
    fn add(&mut self, difference: i64) -> Result<(), Unread> {
        self.length = self.length.wrapping_add(difference as i32);
        let length = usize::try_from(self.length).map_err(|_| Unread::Damaged)?;
        self.total = self.total.saturating_add(length);
        Ok(())
    }
}

/// The number of `width` bits at bit `at`.
fn unpacked(packed: &[u8], at: usize, width: usize) -> i64 {
    if width == 0 {
        return 0;
    }
    let bytes = &packed[at / 8..];
    let mut eight = [0; 8];
    let length = bytes.len().min(8);
    eight[..length].copy_from_slice(&bytes[..length]);
    let number = u64::from_le_bytes(eight) >> (at % 8);
    (number & ((1 << width) - 1)) as i64
}
