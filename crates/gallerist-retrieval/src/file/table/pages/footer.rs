//! The footer of a Parquet file.
//!
//! The library skips what it does not know in a time that the items of a list determine, not their bytes. So a footer is read
//! here first, by the types that the format gives to its fields. It also builds groups of columns by functions that call
//! themselves, and has no limit for groups in groups.

use std::fs::File;

use parquet::file::reader::{ChunkReader as _, Length as _};

use super::super::fault::{Fault, damaged};
use super::thrift::{BINARY, BYTE, Compact, DOUBLE, FALSE, I16, I32, I64, LIST, STRUCT, TRUE, Unread};

/// Bytes after the footer: its length, and the magic number.
const TAIL: u64 = 8;

/// The deepest nesting of groups of columns. Embeddings have two levels: a list, and its values.
const DEEPEST: usize = 32;

/// Refuses a file with another footer than the format describes, and one whose groups are nested too deeply.
pub(in super::super) fn check_footer(file: &File) -> Result<(), Fault> {
    let length = file.len();
    let end = length.checked_sub(TAIL).ok_or_else(|| damaged("it has no footer"))?;
    let tail = file.get_bytes(end, TAIL as usize).map_err(damaged)?;
    let size = u32::from_le_bytes(*tail.first_chunk().expect("eight bytes"));
    let start = end.checked_sub(u64::from(size)).ok_or_else(|| damaged("it has no footer"))?;
    let footer = file.get_bytes(start, size as usize).map_err(damaged)?;
    read(&mut Compact(&footer), STRUCT, &FOOTER).map_err(|_| damaged("its footer"))?;
    check_depth(&mut Compact(&footer))
        .map_err(|_| damaged(format!("its columns are nested deeper than {DEEPEST}")))
}

/// Refuses groups that are too deep, in a footer that [`read`] has read. The schema lists each group before its children.
fn check_depth(footer: &mut Compact) -> Result<(), Unread> {
    footer.fields(|rest, id, kind| {
        if id != 2 {
            return rest.skip(kind);
        }
        // For each open group, the number of its children that have not been read.
        let mut open: Vec<usize> = Vec::new();
        let (_, count) = rest.list()?;
        for _ in 0..count {
            let mut children = 0;
            rest.fields(|rest, id, kind| match id {
                5 => rest.size().map(|size| children = size),
                _ => rest.skip(kind),
            })?;
            while open.pop_if(|left| *left == 0).is_some() {}
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            if children > 0 {
                open.push(children);
            }
            if open.len() > DEEPEST {
                return Err(Unread::Damaged);
            }
        }
        Ok(())
    })
}

/// What a field is.
enum Shape {
    /// A number or text of one of these types, or true or false.
    Value(&'static [u8]),
    List(&'static Shape),
    /// The fields with these numbers; others may be anything.
    Fields(&'static [(i16, &'static Shape)]),
}

use Shape::{Fields, List, Value};

const BOOL: Shape = Value(&[TRUE, FALSE]);
const NUMBER: Shape = Value(&[I32]);
const LONG: Shape = Value(&[I64]);
const TEXT: Shape = Value(&[BINARY]);
const REAL: Shape = Value(&[DOUBLE]);
const OCTET: Shape = Value(&[BYTE]);
const EMPTY: Shape = Fields(&[]);

/// `FileMetaData` of the format; what the library skips is left out.
const FOOTER: Shape = Fields(&[
    (1, &NUMBER),
    (2, &List(&SCHEMA)),
    (3, &LONG),
    (4, &List(&ROW_GROUP)),
    (5, &List(&Fields(&[(1, &TEXT), (2, &TEXT)]))),
    (6, &TEXT),
    (7, &List(&Fields(&[(1, &EMPTY), (2, &EMPTY)]))),
    (9, &TEXT),
]);
const SCHEMA: Shape = Fields(&[
    (1, &NUMBER),
    (2, &NUMBER),
    (3, &NUMBER),
    (4, &TEXT),
    (5, &NUMBER),
    (6, &NUMBER),
    (7, &NUMBER),
    (8, &NUMBER),
    (9, &NUMBER),
    (10, &LOGICAL_TYPE),
]);
const LOGICAL_TYPE: Shape = Fields(&[
    (1, &EMPTY),
    (2, &EMPTY),
    (3, &EMPTY),
    (4, &EMPTY),
    (5, &Fields(&[(1, &NUMBER), (2, &NUMBER)])),
    (6, &EMPTY),
    (7, &TIME),
    (8, &TIME),
    (10, &Fields(&[(1, &OCTET), (2, &BOOL)])),
    (11, &EMPTY),
    (12, &EMPTY),
    (13, &EMPTY),
    (14, &EMPTY),
    (15, &EMPTY),
    (16, &Fields(&[(1, &OCTET)])),
    (17, &Fields(&[(1, &TEXT)])),
    (18, &Fields(&[(1, &TEXT), (2, &NUMBER)])),
]);
const TIME: Shape = Fields(&[(1, &BOOL), (2, &Fields(&[(1, &EMPTY), (2, &EMPTY), (3, &EMPTY)]))]);
const ROW_GROUP: Shape = Fields(&[
    (1, &List(&COLUMN)),
    (2, &LONG),
    (3, &LONG),
    (4, &List(&Fields(&[(1, &NUMBER), (2, &BOOL), (3, &BOOL)]))),
    (5, &LONG),
    (6, &LONG),
    (7, &Value(&[I16])),
]);
const COLUMN: Shape = Fields(&[
    (1, &TEXT),
    (2, &LONG),
    (3, &COLUMN_METADATA),
    (4, &LONG),
    (5, &NUMBER),
    (6, &LONG),
    (7, &NUMBER),
]);
const COLUMN_METADATA: Shape = Fields(&[
    (1, &NUMBER),
    (2, &List(&NUMBER)),
    (4, &NUMBER),
    (5, &LONG),
    (6, &LONG),
    (7, &LONG),
    (9, &LONG),
    (10, &LONG),
    (11, &LONG),
    (12, &STATISTICS),
    (13, &List(&Fields(&[(1, &NUMBER), (2, &NUMBER), (3, &NUMBER)]))),
    (14, &LONG),
    (15, &NUMBER),
    (16, &Fields(&[(1, &LONG), (2, &List(&LONG)), (3, &List(&LONG))])),
    (17, &Fields(&[(1, &BOX), (2, &List(&NUMBER))])),
]);
const STATISTICS: Shape = Fields(&[
    (1, &TEXT),
    (2, &TEXT),
    (3, &LONG),
    (4, &LONG),
    (5, &TEXT),
    (6, &TEXT),
    (7, &BOOL),
    (8, &BOOL),
    (9, &LONG),
]);
const BOX: Shape =
    Fields(&[(1, &REAL), (2, &REAL), (3, &REAL), (4, &REAL), (5, &REAL), (6, &REAL), (7, &REAL), (8, &REAL)]);

/// Reads a value of type `kind`, which has this shape.
fn read(rest: &mut Compact, kind: u8, shape: &Shape) -> Result<(), Unread> {
    match (shape, kind) {
        (Value(kinds), _) if kinds.contains(&kind) => rest.skip(kind),
        (List(item), LIST) => {
            let (kind, count) = rest.list()?;
            (0..count).try_for_each(|_| read(rest, kind, item))
        }
        (Fields(known), STRUCT) => {
            rest.fields(|rest, id, kind| match known.iter().find(|(known, _)| *known == id) {
                Some((_, shape)) => read(rest, kind, shape),
                None => rest.skip(kind),
            })
        }
        _ => Err(Unread::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_in_groups_have_a_limit_and_groups_beside_groups_have_none() {
        let group = |children: u8| [0x35, 0x00, 0x18, 0x01, b'g', 0x15, 2 * children, 0x00];
        let leaf = [0x15, 0x02, 0x25, 0x00, 0x18, 0x01, b'x', 0x00];
        let footer = |elements: &[[u8; 8]]| {
            let count = elements.len() as u8;
            let bytes = [&[0x29, 0xFC, count][..], elements.as_flattened(), &[0x00]].concat();
            assert_eq!(read(&mut Compact(&bytes), STRUCT, &FOOTER), Ok(()));
            check_depth(&mut Compact(&bytes))
        };
        let deep = |groups: usize| [vec![group(1); groups], vec![leaf]].concat();
        assert_eq!(footer(&deep(DEEPEST)), Ok(()));
        assert_eq!(footer(&deep(DEEPEST + 1)), Err(Unread::Damaged));
        let beside: Vec<[u8; 8]> = (0..40).flat_map(|_| [group(1), leaf]).collect();
        assert_eq!(footer(&[vec![group(40)], beside].concat()), Ok(()));
    }

    #[test]
    fn items_that_take_no_bytes_are_refused_wherever_they_are() {
        let footer = |bytes: &[u8]| read(&mut Compact(bytes), STRUCT, &FOOTER);
        assert_eq!(footer(&[0x15, 0x02, 0x00]), Ok(()));
        // A list of 2^31 - 1 booleans in an unknown field, in a list there, and in one of its structs.
        let booleans = [0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0x07];
        assert_eq!(footer(&[&[0xF9][..], &booleans, &[0x00]].concat()), Err(Unread::Damaged));
        assert_eq!(footer(&[&[0xF9, 0x19][..], &booleans, &[0x00]].concat()), Err(Unread::Damaged));
        assert_eq!(
            footer(&[&[0xF9, 0x1C, 0x19][..], &booleans, &[0x00, 0x00]].concat()),
            Err(Unread::Damaged)
        );
        // A field that the library reads whatever its type is: the version, as a list.
        assert_eq!(footer(&[0x19, 0x15, 0x02, 0x00]), Err(Unread::Damaged));
        // Statistics with a text where a number belongs.
        let statistics = [0x49, 0x1C, 0x19, 0x1C, 0x3C, 0xCC, 0x38, 0x01, 0x00];
        assert_eq!(footer(&statistics), Err(Unread::Damaged));
    }
}
