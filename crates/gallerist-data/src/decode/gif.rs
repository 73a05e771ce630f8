//! The parts of a GIF that its first frame needs.

use std::borrow::Cow;

use super::limits::DecodeLimits;

/// The screen, the first frame and the block that says what is transparent in it. Comments, profiles and all
/// further frames are left out.
pub(super) fn pieces<'a>(bytes: &'a [u8], limits: &DecodeLimits) -> Result<Vec<Cow<'a, [u8]>>, String> {
    let whole = || vec![Cow::from(bytes)];
    let Some(screen) = bytes.get(..13) else { return Ok(whole()) };
    let mut at = 13 + palette(screen[10]);
    let mut kept = vec![Cow::from(&bytes[..at.min(bytes.len())])];
    loop {
        match bytes.get(at) {
            // An extension: the last graphic control block before the frame counts.
            Some(0x21) => {
                let end = after_blocks(bytes, at + 2);
                if bytes.get(at + 1) == Some(&0xF9) {
                    kept.truncate(1);
                    kept.push(Cow::from(&bytes[at..end]));
                }
                at = end;
            }
            Some(0x2C) => {
                let Some(frame) = bytes.get(at..at + 10) else { break };
                let side = |i: usize| usize::from(u16::from_le_bytes([frame[i], frame[i + 1]]));
                let (width, height) = (side(5), side(7));
                // The frame has a buffer of its own, whatever the size of the screen.
                limits.check_size(width, height, 4 * (width * height) as u64)?;
                let end = after_blocks(bytes, at + 10 + palette(frame[9]) + 1);
                kept.push(Cow::from(&bytes[at..end]));
                // Without it the decoder takes the file for cut.
                kept.extend((end < bytes.len()).then(|| Cow::from(&[0x3B_u8][..])));
                return Ok(kept);
            }
            _ => break,
        }
    }
    // Not as it should be: the decoder says what is wrong.
    kept.push(Cow::from(&bytes[at.min(bytes.len())..]));
    Ok(kept)
}

/// Bytes of the palette that a byte of flags announces.
fn palette(flags: u8) -> usize {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

/// The position after the sub-blocks that begin at `at`, their end mark included.
fn after_blocks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&length) = bytes.get(at) {
        at += usize::from(length) + 1;
        if length == 0 {
            break;
        }
    }
    at.min(bytes.len())
}
