//! The chunks of a WebP that its first frame needs.

use std::borrow::Cow;

use super::limits::{MAX_METADATA_BYTES, Watch};
use super::vp8l;

/// Flags of the extended header.
const PROFILE: u8 = 0x20;
const EXIF: u8 = 0x08;
const XMP: u8 = 0x04;

/// The image chunks of the first frame, its transparency and the orientation (EXIF). Profiles, texts and all
/// further frames are left out.
pub(super) fn pieces<'a>(bytes: &'a [u8], watch: &Watch) -> Result<Vec<Cow<'a, [u8]>>, String> {
    let chunks = Chunks { bytes, at: 12 };
    let Some((kind, first)) = chunks.clone().next() else { return Ok(vec![Cow::from(bytes)]) };
    if kind != b"VP8X" || first.len() < 18 {
        // A simple file has one chunk, from which the decoder takes the size.
        check_chunk(kind, first, None, watch)?;
        return Ok(vec![Cow::from(&bytes[..12]), Cow::from(first)]);
    }
    let side = |i: usize| 1 + u32::from_le_bytes([first[i], first[i + 1], first[i + 2], 0]) as usize;
    let canvas = (side(12), side(15));
    let mut header = first.to_vec();
    header[8] &= !(PROFILE | EXIF | XMP);
    let mut kept = Vec::new();
    let mut seen: Vec<[u8; 4]> = Vec::new();
    for (kind, chunk) in chunks.skip(1) {
        let stays = match kind {
            // A buffer for all of it is allocated, even if the file ends before.
            b"EXIF" => chunk.len() <= MAX_METADATA_BYTES && is_whole(chunk),
            b"ALPH" | b"VP8 " | b"VP8L" | b"ANIM" | b"ANMF" => true,
            _ => false,
        };
        if !stays || seen.contains(kind) {
            continue;
        }
        seen.push(*kind);
        match kind {
            b"EXIF" => header[8] |= EXIF,
            b"ANMF" => {
                // Position, size and duration of the frame come first.
                let side = |i: usize| match chunk.get(i..i + 3) {
                    Some(side) => 1 + u32::from_le_bytes([side[0], side[1], side[2], 0]) as usize,
                    None => 1,
                };
                let frame = (side(14).min(canvas.0), side(17).min(canvas.1));
                for (kind, part) in (Chunks { bytes: chunk, at: 24 }).take(2) {
                    check_chunk(kind, part, Some(frame), watch)?;
                }
            }
            _ => check_chunk(kind, chunk, Some(canvas), watch)?,
        }
        kept.push(Cow::from(chunk));
    }
    let length = 4 + header.len() + kept.iter().map(|chunk| chunk.len()).sum::<usize>();
    let mut pieces = vec![Cow::from([*b"RIFF", (length as u32).to_le_bytes(), *b"WEBP"].concat())];
    pieces.push(header.into());
    pieces.append(&mut kept);
    Ok(pieces)
}

/// Whether the file holds as much of the chunk as its header says.
fn is_whole(chunk: &[u8]) -> bool {
    let length = chunk.get(4..8).and_then(|length| length.first_chunk()).map(|b| u32::from_le_bytes(*b));
    length.is_some_and(|length| length as usize + 8 <= chunk.len())
}

/// Refuses a chunk that would cost more than the image explains. `canvas`: the size of the frame, where something
/// before the chunk tells it.
fn check_chunk(
    kind: &[u8; 4],
    chunk: &[u8],
    canvas: Option<(usize, usize)>,
    watch: &Watch,
) -> Result<(), String> {
    match (kind, canvas) {
        (b"VP8 ", Some(canvas)) => check_frame(chunk, canvas, watch),
        (b"VP8L", _) => vp8l::check(chunk.get(8..).unwrap_or_default(), None, watch),
        // The lowest bits of the first byte say whether it is packed, and how.
        (b"ALPH", Some(_)) if chunk.get(8).is_some_and(|how| how & 3 == 1) => {
            vp8l::check(&chunk[9..], canvas, watch)
        }
        _ => Ok(()),
    }
}

/// Refuses a lossy frame larger than its canvas: the decoder compares them after it has decoded the frame.
fn check_frame(chunk: &[u8], canvas: (usize, usize), watch: &Watch) -> Result<(), String> {
    let Some(&[w0, w1, h0, h1]) = chunk.get(14..18) else { return Ok(()) };
    let side = |low, high| usize::from(u16::from_le_bytes([low, high]) & 0x3FFF);
    let (width, height) = (side(w0, w1), side(h0, h1));
    watch.limits.check_size(width, height, 3 * (width * height) as u64)?;
    if width > canvas.0 || height > canvas.1 {
        return Err(format!(
            "corrupt WebP: a frame of {width} x {height} pixels on a canvas of {} x {}",
            canvas.0, canvas.1
        ));
    }
    Ok(())
}

/// Chunks with their headers; the last may be cut by the end of the file.
#[derive(Clone)]
struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = (&'a [u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        let (kind, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*after.first_chunk()?) as usize;
        // Chunks begin at even positions.
        let chunk = &rest[..(8 + length + length % 2).min(rest.len())];
        self.at += chunk.len();
        Some((kind, chunk))
    }
}
