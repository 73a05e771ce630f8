//! Bytes and SHA-256 digests as hexadecimal digits.

use sha2::{Digest, Sha256};

/// Bytes as lower-case hexadecimal digits, two per byte.
///
/// ```
/// assert_eq!(gallerist_util::hex::encode(&[0, 0x1f, 0xff]), "001fff");
/// ```
pub fn encode(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string can be written to");
        text
    })
}

/// The SHA-256 of `bytes`, 64 hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    encode(&Sha256::digest(bytes))
}

/// The first 16 digits of a digest, enough to tell two apart in a message. Shorter text is returned whole.
pub fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}
