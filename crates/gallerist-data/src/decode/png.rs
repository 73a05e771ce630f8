//! The chunks of a PNG that its pixels need.

use std::borrow::Cow;

use super::limits::{DecodeLimits, MAX_METADATA_BYTES};

/// Length, type and checksum of a chunk.
const AROUND: usize = 12;

/// All but the chunks that no pixel depends on: profiles and texts may unpack to a thousand times their size.
///
/// Of the ancillary chunks the transparent colour (`tRNS`) and the orientation (`eXIf`) stay.
pub(super) fn pieces<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<Vec<Cow<'a, [u8]>>, String> {
    check_header(bytes, limits)?;
    // The kind of colours, in the first chunk.
    let has_palette = bytes.get(25) == Some(&3);
    let mut kept = Vec::new();
    // From the signature on.
    let (mut from, mut at) = (0, 8);
    while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        // A chunk that the file's end cuts is left to the decoder, which says so.
        let Some(end) = at.checked_add(length + AROUND).filter(|&end| end <= bytes.len()) else { break };
        let stays = match &head[4..] {
            // In pictures of other kinds it is a mere proposal.
            b"PLTE" if has_palette => {
                check_palette(length)?;
                true
            }
            b"PLTE" => false,
            b"tRNS" => true,
            b"eXIf" => length <= MAX_METADATA_BYTES,
            // An upper-case letter first: critical.
            kind => kind[0].is_ascii_uppercase(),
        };
        if !stays {
            kept.push(Cow::from(&bytes[from..at]));
            from = end;
        }
        at = end;
    }
    kept.push(Cow::from(&bytes[from..]));
    Ok(kept)
}

/// Refuses a palette that ends within a colour: the decoder panics.
fn check_palette(length: usize) -> Result<(), String> {
    match length.is_multiple_of(3) {
        true => Ok(()),
        false => Err(format!("corrupt PNG: its palette has {length} bytes, not 3 for each colour")),
    }
}

/// Refuses the size in the first chunk: the decoder allocates a row before it tells the size.
fn check_header(bytes: &[u8], limits: &DecodeLimits) -> Result<(), String> {
    let Some(header) = bytes.get(12..26).filter(|header| header.starts_with(b"IHDR")) else { return Ok(()) };
    let side = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (width, height) = (side(4), side(8));
    let (depth, color) = (u64::from(header[12]), header[13]);
    let samples = match color {
        2 => 3,
        4 => 2,
        6 => 4,
        _ => 1,
    };
    let decoded = u64::from(width).saturating_mul(height.into()).saturating_mul(samples * depth.div_ceil(8));
    limits.check_size(width as usize, height as usize, decoded)
}
