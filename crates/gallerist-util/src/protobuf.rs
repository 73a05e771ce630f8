//! Messages of Protocol Buffers, written field by field.
//!
//! ONNX and TensorBoard's event files need varints, floating-point numbers, bytes and nested messages, and only write
//! them. `prost` would add its derive macro to the default build for these few lines.

/// A message under construction.
#[derive(Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// The encoded message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// The field number and the wire type: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
    fn key(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    /// Appends an integer or an enumeration (`int64`, `enum`). Negative numbers take ten bytes.
    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    /// Appends a `float`.
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends a `double`.
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Appends `bytes`.
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Appends a `string`.
    pub fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    /// Appends a nested message.
    pub fn message(self, field: u32, value: Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// Appends a field for each of `values`, such as a repeated one.
    pub fn all<T>(self, values: impl IntoIterator<Item = T>, add: impl Fn(Self, T) -> Self) -> Self {
        values.into_iter().fold(self, add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentations_examples_are_written_byte_for_byte() {
        // protobuf.dev, "Encoding": 150 in field 1, "testing" in field 2, the first inside field 3.
        let first = || Message::default().int(1, 150);
        assert_eq!(first().into_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing").into_bytes();
        assert_eq!(text, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        assert_eq!(Message::default().message(3, first()).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(
            Message::default().int(1, -2).into_bytes()[1..],
            [0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]
        );
        assert_eq!(Message::default().double(1, 1.0).into_bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f]);
        assert_eq!(Message::default().float(2, 1.0).into_bytes(), [0x15, 0, 0, 0x80, 0x3f]);
    }
}
