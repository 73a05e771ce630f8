//! `.safetensors` files with a checksum of their content.

use std::io;
use std::ops::Range;
use std::path::Path;

use gallerist_util::hex;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::atomic::write_atomically;
use crate::{Error, Result};

pub(crate) const AGAIN: &str = "copy or write the file again";
/// The bytes before the checksum in the header. Inside a JSON string the quotes would be escaped, so
/// they occur once.
const CHECKSUM_KEY: &[u8] = b"\"sha256\":\"";
pub(crate) const CHECKSUM_DIGITS: usize = 64;

/// Takes the bytes of a file, one block at a time.
pub(crate) type Take<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

/// Writes a `.safetensors` file whose header holds 64 zeros as `sha256`: they become the checksum.
/// `values` is called twice and must
/// give the same bytes of the tensors.
pub(crate) fn write_sealed(
    path: &Path,
    header: &Map<String, Value>,
    values: impl Fn(&mut Take) -> io::Result<()>,
) -> Result<()> {
    let mut header = serde_json::to_vec(header).expect("a header is valid JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut checksum = Sha256::new_with_prefix(&header);
    values(&mut |bytes| {
        checksum.update(bytes);
        Ok(())
    })
    .map_err(|source| Error::io("write", path, source))?;
    let span = checksum_span(&header).expect("the header has a checksum");
    header[span].copy_from_slice(hex::encode(&checksum.finalize()).as_bytes());
    write_atomically(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        values(&mut |bytes| file.write_all(bytes))
    })
}

/// True when the stated checksum is that of the header and the bytes after it.
pub(crate) fn checksum_holds(header: &[u8], values: &[u8], stated: Option<&String>) -> bool {
    let found = checksum_span(header).map(|span| {
        let mut blank = header.to_vec();
        blank[span].fill(b'0');
        hex::encode(&Sha256::new().chain_update(&blank).chain_update(values).finalize())
    });
    found.is_some() && stated == found.as_ref()
}

/// Hands the bytes of `values` to `take`, a block at a time.
pub(crate) fn encode<T: Copy, const N: usize>(
    values: &[T],
    bytes: impl Fn(T) -> [u8; N],
    take: &mut Take,
) -> io::Result<()> {
    let mut block = Vec::with_capacity(N << 14);
    for values in values.chunks(1 << 14) {
        block.clear();
        values.iter().for_each(|&value| block.extend_from_slice(&bytes(value)));
        take(&block)?;
    }
    Ok(())
}

/// The range of the digits of the checksum in a header.
fn checksum_span(header: &[u8]) -> Option<Range<usize>> {
    let key = header.windows(CHECKSUM_KEY.len()).position(|window| window == CHECKSUM_KEY)?;
    let start = key + CHECKSUM_KEY.len();
    (start + CHECKSUM_DIGITS <= header.len()).then_some(start..start + CHECKSUM_DIGITS)
}
