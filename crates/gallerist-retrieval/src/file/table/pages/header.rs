//! The header of a page of a Parquet file.

use super::thrift::{Compact, FALSE, I32, STRUCT, TRUE, Unread};

/// What a page claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the page in the file.
    pub(super) compressed: usize,
    /// Bytes of the page in memory.
    pub(super) uncompressed: usize,
    /// Values with nulls, or the entries of a dictionary.
    pub(super) values: usize,
    /// Bytes at the start that are not compressed.
    pub(super) levels: usize,
    /// Whether the rest is stored without the compression of the column.
    pub(super) is_plain: bool,
    /// Whether the values are texts whose lengths, or common beginnings, are stored as differences.
    pub(super) is_delta_text: bool,
}

/// The encodings of texts by differences.
const DELTA_TEXTS: [usize; 2] = [6, 7];

impl Header {
    /// The header at the start of `bytes`, and its length.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, usize), Unread> {
        let mut header = Self::default();
        let mut rest = Compact(bytes);
        let (mut compressed, mut uncompressed) = (None, None);
        rest.fields(|rest, id, kind| {
            match (id, kind) {
                (1 | 4, I32) => rest.skip(I32)?,
                (2, I32) => uncompressed = Some(rest.size()?),
                (3, I32) => compressed = Some(rest.size()?),
                (5, STRUCT) => header.data_page(rest)?,
                (6, STRUCT) => rest.skip(STRUCT)?,
                (7, STRUCT) => header.dictionary_page(rest)?,
                (8, STRUCT) => header.second_data_page(rest)?,
                (1..=8, _) => return Err(Unread::Damaged),
                _ => rest.skip(kind)?,
            }
            Ok(())
        })?;
        header.compressed = compressed.ok_or(Unread::Damaged)?;
        header.uncompressed = uncompressed.ok_or(Unread::Damaged)?;
        match header.levels <= header.compressed.min(header.uncompressed) {
            true => Ok((header, bytes.len() - rest.0.len())),
            false => Err(Unread::Damaged),
        }
    }

    fn data_page(&mut self, rest: &mut Compact) -> Result<(), Unread> {
        rest.fields(|rest, id, kind| {
            match (id, kind) {
                (1, I32) => self.values = self.values.max(rest.size()?),
                (2, I32) => self.is_delta_text |= DELTA_TEXTS.contains(&rest.size()?),
                (3 | 4, I32) => rest.skip(I32)?,
                (1..=4, _) => return Err(Unread::Damaged),
                _ => rest.skip(kind)?,
            }
            Ok(())
        })
    }

    fn dictionary_page(&mut self, rest: &mut Compact) -> Result<(), Unread> {
        rest.fields(|rest, id, kind| {
            match (id, kind) {
                (1, I32) => self.values = self.values.max(rest.size()?),
                (2, I32) => rest.skip(I32)?,
                (3, TRUE | FALSE) => {}
                (1..=3, _) => return Err(Unread::Damaged),
                _ => rest.skip(kind)?,
            }
            Ok(())
        })
    }

    /// The header of a data page of version 2.
    fn second_data_page(&mut self, rest: &mut Compact) -> Result<(), Unread> {
        let (mut definition, mut repetition) = (0, 0);
        rest.fields(|rest, id, kind| {
            match (id, kind) {
                (1, I32) => self.values = self.values.max(rest.size()?),
                (2 | 3, I32) => rest.skip(I32)?,
                (4, I32) => self.is_delta_text |= DELTA_TEXTS.contains(&rest.size()?),
                (5, I32) => definition = rest.size()?,
                (6, I32) => repetition = rest.size()?,
                (7, TRUE | FALSE) => self.is_plain = kind == FALSE,
                (1..=7, _) => return Err(Unread::Damaged),
                _ => rest.skip(kind)?,
            }
            Ok(())
        })?;
        self.levels = definition + repetition;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of version 1: 300 values, PLAIN, with statistics and a checksum.
    const DATA_PAGE: [u8; 38] = [
        0x15, 0x00, 0x15, 0xE0, 0x12, 0x15, 0x90, 0x03, 0x15,
        0x05, // type, 1200 bytes, 200 in the file, checksum
        0x1C, 0x15, 0xD8, 0x04, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, // values, encodings
        0x1C, 0x18, 0x04, 1, 2, 3, 4, 0x18, 0x02, 5, 6, 0x16, 0x00, 0x16, 0x0A, 0x00, // statistics
        0x00, 0x00,
    ];

    #[test]
    fn a_header_is_read_and_its_beginnings_are_short() {
        let mut bytes = DATA_PAGE.to_vec();
        bytes.extend([7; 9]);
        let wanted = Header { compressed: 200, uncompressed: 1200, values: 300, ..Header::default() };
        assert_eq!(Header::read(&bytes), Ok((wanted, DATA_PAGE.len())));
        for end in 0..DATA_PAGE.len() {
            assert_eq!(Header::read(&DATA_PAGE[..end]), Err(Unread::Short), "{end} bytes");
        }
    }

    #[test]
    fn headers_of_version_2_and_of_dictionaries_are_read() {
        let second = [
            0x15, 0x06, 0x15, 0x64, 0x15, 0x3C, 0x5C, // type 3, 50 bytes, 30 in the file
            0x15, 0x14, 0x15, 0x00, 0x15, 0x14, 0x15, 0x0E, 0x15, 0x04, 0x15, 0x02, 0x12, 0x00, 0x00,
        ];
        let wanted = Header {
            compressed: 30,
            uncompressed: 50,
            values: 10,
            levels: 3,
            is_plain: true,
            is_delta_text: true,
        };
        assert_eq!(Header::read(&second), Ok((wanted, second.len())));
        let dictionary = [0x15, 0x04, 0x15, 0x64, 0x15, 0x3C, 0x4C, 0x15, 0x14, 0x15, 0x00, 0x11, 0x00, 0x00];
        let wanted = Header { compressed: 30, uncompressed: 50, values: 10, ..Header::default() };
        assert_eq!(Header::read(&dictionary), Ok((wanted, dictionary.len())));
    }

    #[test]
    fn what_the_library_would_read_in_another_way_is_damaged() {
        let damaged = |bytes: &[u8]| assert_eq!(Header::read(bytes), Err(Unread::Damaged), "{bytes:x?}");
        // A size of another type, a negative one, one of 40 bits, none.
        damaged(&[0x15, 0x00, 0x13, 0x64, 0x15, 0x3C, 0x00]);
        damaged(&[0x15, 0x00, 0x15, 0x01, 0x15, 0x3C, 0x00]);
        damaged(&[0x15, 0x00, 0x15, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 0x15, 0x3C, 0x00]);
        damaged(&[0x15, 0x00, 0x15, 0x64, 0x00]);
        // A number without end, a field of number 40,000, a list of booleans.
        damaged(&[0x15, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        damaged(&[0x05, 0x80, 0xF1, 0x04, 0x00]);
        damaged(&[0x99, 0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0x00]);
        // Structs without end.
        damaged(&[0x9C; 40]);
        // More levels than bytes.
        damaged(&[0x15, 0x06, 0x15, 0x04, 0x15, 0x04, 0x5C, 0x55, 0x64, 0x00, 0x00]);
    }
}
