//! The lengths of the fields of an ONNX file, before it is read.
//!
//! The reader (rten-onnx 0.27) trusts them: it allocates as much memory as a field says, seeks backwards for a length above
//! 2^63, which never ends, and follows graphs within graphs without a limit.

use std::fs::File;
use std::io::{BufReader, Read};

/// Messages within messages. Each graph within a graph takes three.
const MAX_DEPTH: usize = 100;

/// The messages that are read, and their fields that are messages.
#[derive(Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Value,
    Type,
    TensorType,
    Sequence,
    Shape,
    /// A message without messages.
    Leaf,
}

impl Kind {
    /// The message in a field.
    fn of_field(self, number: u64) -> Option<Self> {
        Some(match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6) => Self::Graph,
            (Self::Model, 8 | 14) | (Self::Tensor, 13) | (Self::Shape, 1) => Self::Leaf,
            (Self::Graph, 1) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5) => Self::Tensor,
            (Self::Graph, 11..=13) => Self::Value,
            (Self::Node, 5) => Self::Attribute,
            (Self::Value, 2) | (Self::Sequence, 1) => Self::Type,
            (Self::Type, 1) => Self::TensorType,
            (Self::Type, 4) => Self::Sequence,
            (Self::TensorType, 2) => Self::Shape,
            _ => return None,
        })
    }
}

/// Refuses a file in which a field is longer than the message around it, or messages are nested too deeply. What is wrong
/// otherwise is left to the reader.
pub(crate) fn check(file: File) -> Result<(), String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    Walk { reader: BufReader::new(file), at: 0 }.message(Kind::Model, length, 0)
}

struct Walk {
    reader: BufReader<File>,
    at: u64,
}

impl Walk {
    fn message(&mut self, kind: Kind, end: u64, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} messages are nested"));
        }
        while self.at < end {
            let key = self.varint(end)?;
            let length = match key & 7 {
                0 => {
                    self.varint(end)?;
                    continue;
                }
                1 => 8,
                2 => self.varint(end)?,
                5 => 4,
                // Groups have no length; others are no fields.
                _ => continue,
            };
            if length > end - self.at {
                return Err("a field is longer than the message around it".to_owned());
            }
            match kind.of_field(key >> 3).filter(|_| key & 7 == 2) {
                Some(inner) => self.message(inner, self.at + length, depth + 1)?,
                None => {
                    self.reader.seek_relative(length as i64).map_err(|error| error.to_string())?;
                    self.at += length;
                }
            }
        }
        Ok(())
    }

    /// A number of up to ten bytes.
    fn varint(&mut self, end: u64) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            if self.at >= end {
                return Err("a field is longer than the message around it".to_owned());
            }
            let mut byte = [0];
            self.reader.read_exact(&mut byte).map_err(|error| error.to_string())?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7F).checked_shl(shift).unwrap_or(0);
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err("a number has more than ten bytes".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with a length.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        [&bytes[..], content].concat()
    }

    fn checked(bytes: &[u8]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        std::fs::write(&path, bytes).unwrap();
        check(File::open(path).unwrap())
    }

    #[test]
    fn a_field_is_not_longer_than_the_message_around_it() {
        for length in [
            &[5][..],
            &[0xFF, 0xFF, 0xFF, 0x7F],
            &[0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
        ] {
            // In the model, in its graph, and in a node of that.
            let long = [&[2 << 3 | 2][..], length, b"ab"].concat();
            for file in [long.clone(), field(7, &long), field(7, &field(1, &long))] {
                assert_eq!(checked(&file).unwrap_err(), "a field is longer than the message around it");
                // Also where the file is long enough.
                if file[0] == 0x3A {
                    assert!(checked(&[file, field(3, b"after it")].concat()).is_err());
                }
            }
        }
        assert_eq!(checked(&[0x3A, 0xFF]).unwrap_err(), "a field is longer than the message around it");
        assert_eq!(checked(&field(7, &field(1, &field(4, b"Relu")))), Ok(()));
    }

    #[test]
    fn graphs_within_graphs_are_not_followed_without_a_limit() {
        let nested =
            |count: usize| (0..count).fold(Vec::new(), |graph, _| field(1, &field(5, &field(6, &graph))));
        assert_eq!(checked(&field(7, &nested(30))), Ok(()));
        assert_eq!(checked(&field(7, &nested(1000))).unwrap_err(), "more than 100 messages are nested");
    }
}
