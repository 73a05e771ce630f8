//! Bytes and SHA-256 digests as hexadecimal digits.

use std::io::{ErrorKind, Read};

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

/// The number of bytes that `reader` gives, and their SHA-256, 64 hexadecimal digits.
///
/// ```
/// use gallerist_util::hex;
/// assert_eq!(hex::sha256_of(&b"abc"[..])?, (3, hex::sha256(b"abc")));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `reader`.
pub fn sha256_of(mut reader: impl Read) -> std::io::Result<(u64, String)> {
    let (mut digest, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 1 << 18]);
    loop {
        match reader.read(&mut block) {
            Ok(0) => return Ok((bytes, encode(&digest.finalize()))),
            Ok(count) => {
                digest.update(&block[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first 16 digits of a digest, enough to tell two apart in a message. Shorter text is returned whole.
pub fn short(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}
