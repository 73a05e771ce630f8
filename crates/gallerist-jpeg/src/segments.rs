//! The segments of a JPEG, without a look into the codes of its scans.

/// A marker and its segment.
pub struct Segment<'a> {
    /// The second byte of the marker.
    pub marker: u8,
    /// What follows the length.
    pub body: &'a [u8],
    /// Where the marker begins and the body ends.
    start: usize,
    end: usize,
}

/// Walks from segment to segment and over the codes of scans, up to the end marker or the first fault.
pub struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    /// The segments of a file.
    pub fn new(bytes: &'a [u8]) -> Segments<'a> {
        Segments { bytes, at: 2 }
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        // Within a scan 0xFF is followed by 0, by the number of a restart marker, or by itself.
        let marker = loop {
            self.at += self.bytes.get(self.at..)?.iter().position(|&b| b == 0xFF)?;
            match *self.bytes.get(self.at + 1)? {
                0xFF => self.at += 1,
                0 | 0x01 | 0xD0..=0xD8 => self.at += 2,
                marker => break marker,
            }
        };
        let start = self.at;
        if marker == 0xD9 {
            return None;
        }
        let length = self.bytes.get(start + 2..start + 4)?;
        let end = start + 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
        let body = self.bytes.get(start + 4..end)?;
        self.at = end;
        Some(Segment { marker, body, start, end })
    }
}

/// A checked file without the segments that no pixel depends on: profiles, texts, comments. The orientation
/// (Exif) stays. With `headers_only` it ends before the codes of the first scan.
pub fn needed(bytes: &[u8], headers_only: bool) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut from = 0;
    for segment in Segments::new(bytes) {
        let stays = match segment.marker {
            // Exif, and what Adobe says of the colours.
            0xE1 => segment.body.starts_with(b"Exif\0\0"),
            0xE0 | 0xEE => true,
            0xE2..=0xEF | 0xFE => false,
            _ => true,
        };
        if !stays {
            kept.extend_from_slice(&bytes[from..segment.start]);
            from = segment.end;
        }
        if headers_only && segment.marker == 0xDA {
            kept.extend_from_slice(&bytes[from..segment.end]);
            return kept;
        }
    }
    kept.extend_from_slice(&bytes[from..]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_pixels_and_orientation_need_is_kept() {
        let segment = |marker: u8, body: &[u8]| {
            [&[0xFF, marker][..], &(body.len() as u16 + 2).to_be_bytes(), body].concat()
        };
        let exif = segment(0xE1, b"Exif\0\0II");
        let adobe = segment(0xEE, b"Adobe");
        let scan = [segment(0xDA, &[1]), vec![1, 0xFF, 0, 2, 0xFF, 0xD3, 4]].concat();
        let dropped = [
            segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0"),
            segment(0xE2, b"ICC_PROFILE\0"),
            segment(0xED, b"Photoshop"),
            segment(0xFE, b"a comment"),
        ]
        .concat();
        let file = |dropped: &[u8]| {
            let parts: [&[u8]; 8] =
                [&[0xFF, 0xD8], dropped, &exif, dropped, &adobe, &scan, dropped, &[0xFF, 0xD9]];
            parts.concat()
        };
        assert_eq!(needed(&file(&dropped), false), file(&[]));
        let headers = needed(&file(&dropped), true);
        assert_eq!(headers, [&[0xFF, 0xD8], &exif[..], &adobe, &segment(0xDA, &[1])].concat());
    }
}
