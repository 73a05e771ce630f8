//! How often the scans of a progressive file visit its blocks.

use crate::segments::Segments;

/// Most visits of a block by the scans of a progressive file, on average. Encoders make about 10; all the
/// coefficients one by one with a refinement would be 128.
const MAX_VISITS: u64 = 100;

/// Refuses a progressive file whose scans visit its blocks too often, before the first is decoded.
///
/// A scan of 150 bytes can visit every block of a picture without a coefficient.
pub(crate) fn check_scans(bytes: &[u8]) -> Result<(), String> {
    let mut blocks: Vec<(u8, u64)> = Vec::new();
    let (mut visits, mut scans) = (0, 0);
    for segment in Segments::new(bytes) {
        match (segment.marker, segment.body) {
            // Sequential: a component is coded once.
            (0xC0 | 0xC1, _) => return Ok(()),
            (0xC2, [_, h1, h0, w1, w0, _, parts @ ..]) if blocks.is_empty() => {
                let (width, height) = (u16::from_be_bytes([*w1, *w0]), u16::from_be_bytes([*h1, *h0]));
                let parts = || parts.as_chunks::<3>().0.iter();
                let most =
                    |shift: u32| parts().map(|p| u64::from(p[1] >> shift & 15)).max().unwrap_or(1).max(1);
                let (most_across, most_down) = (most(4), most(0));
                blocks.extend(parts().map(|&[id, sampling, _]| {
                    let (across, down) = (u64::from(sampling >> 4), u64::from(sampling & 15));
                    let across = (u64::from(width) * across).div_ceil(8 * most_across);
                    (id, across * (u64::from(height) * down).div_ceil(8 * most_down))
                }));
            }
            (0xDA, [count, parts @ ..]) => {
                scans += 1;
                for part in parts.as_chunks::<2>().0.iter().take(usize::from(*count)) {
                    visits += blocks.iter().find(|(id, _)| *id == part[0]).map_or(0, |(_, blocks)| *blocks);
                }
            }
            _ => {}
        }
    }
    let total: u64 = blocks.iter().map(|(_, blocks)| blocks).sum();
    if visits > MAX_VISITS * total {
        return Err(format!(
            "its {scans} scans visit every block {} times, and {MAX_VISITS} times are permitted",
            visits / total.max(1)
        ));
    }
    Ok(())
}
