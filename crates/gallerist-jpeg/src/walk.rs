//! The walk over a whole file.

use crate::headers::Headers;
use crate::picture::Planes;
use crate::problem::{CUT, HEADER, Interrupt, STOPPED};
use crate::visits::check_scans;

/// Walks a JPEG from its first to its end marker.
///
/// Returns the picture of a file of the common kind: sequential, with one
/// scan, grey or with two planes of chroma at the size or half the size of the third. `None` for the others.
///
/// The picture is reduced as far as both of its sides stay `least` or more. `check_size` gets width, height and the
/// number of components before memory is allocated for them. `interrupt` can end the walk.
///
/// # Errors
///
/// The damage that was found, in words.
///
/// ```
/// let problem = gallerist_jpeg::walk(b"\xFF\xD8\xFF", None, &gallerist_jpeg::Never, |_, _, _| Ok(())).err();
/// assert_eq!(problem.unwrap(), "truncated JPEG: it ends before its end marker");
/// ```
pub fn walk(
    bytes: &[u8],
    least: Option<usize>,
    interrupt: &dyn Interrupt,
    check_size: impl Fn(usize, usize, usize) -> Result<(), String>,
) -> Result<Option<Planes>, String> {
    check_scans(bytes)?;
    let mut headers = Headers::new(least);
    let mut at = 2;
    loop {
        // Fill bytes may precede a marker.
        if *bytes.get(at).ok_or(CUT)? != 0xFF {
            return Err("corrupt JPEG: data where a marker should be".to_owned());
        }
        let fill = bytes[at..].iter().take_while(|&&b| b == 0xFF).count();
        let marker = *bytes.get(at + fill).ok_or(CUT)?;
        at += fill + 1;
        if marker == 0xD9 {
            return Ok(Planes::new(headers.planes));
        }
        if matches!(marker, 0x01 | 0xD0..=0xD8) {
            return Err("corrupt JPEG: a marker where none should be".to_owned());
        }
        if interrupt.at_segment() {
            return Err(STOPPED.to_owned());
        }
        let length = bytes.get(at..at + 2).ok_or(CUT)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        if length < 2 {
            return Err(HEADER.to_owned());
        }
        let body = bytes.get(at + 2..at + length).ok_or(CUT)?;
        at += length;
        match marker {
            0xC4 => headers.read_tables(body)?,
            0xDB => headers.read_steps(body)?,
            0xC0..=0xC2 => {
                headers.read_frame(body, marker == 0xC2)?;
                check_size(headers.width, headers.height, headers.components.len())?;
                headers.allocate();
            }
            0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                return Err("JPEG of an unsupported kind: lossless, hierarchical or arithmetic".to_owned());
            }
            0xDD => {
                let &[high, low] = body else { return Err(HEADER.to_owned()) };
                headers.restart_interval = usize::from(u16::from_be_bytes([high, low]));
            }
            0xDA => at += headers.check_scan(body, &bytes[at..], interrupt)?,
            _ => {}
        }
    }
}
