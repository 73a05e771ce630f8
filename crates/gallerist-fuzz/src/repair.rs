//! Makes damaged inputs pass the checks that no mutation would pass: checksums and lengths.

#[cfg(feature = "engine")]
use ::safetensors::SafeTensors;
use gallerist_util::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};

const KEY: &[u8] = b"\"sha256\":\"";
const DIGITS: usize = 64;
/// Tensors of a repaired file; longer ones are not needed to reach the code.
const MOST: usize = 1 << 20;

/// A safetensors file whose header has the length that the file says, whose tensors have the length that the header says,
/// and whose SHA-256 is right. What cannot be repaired stays.
pub(crate) fn safetensors(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < 10 {
        return bytes;
    }
    let length = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    if length(&bytes) > bytes.len() as u64 - 8 {
        let Some(end) = bytes.iter().rposition(|&byte| byte == b'}').filter(|&end| end >= 8) else {
            return bytes;
        };
        bytes[..8].copy_from_slice(&(end as u64 - 7).to_le_bytes());
    }
    let end = 8 + length(&bytes) as usize;
    if let Ok(Value::Object(header)) = serde_json::from_slice::<Value>(&bytes[8..end]) {
        let ends = header.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
        let wanted = ends.max().unwrap_or(0);
        if wanted <= MOST as u64 {
            bytes.resize(end + wanted as usize, 0);
        }
    }
    let (before, values) = bytes.split_at_mut(end);
    let header = &mut before[8..];
    let Some(at) = header.windows(KEY.len()).position(|window| window == KEY) else { return bytes };
    let at = at + KEY.len();
    if at + DIGITS <= header.len() {
        header[at..at + DIGITS].fill(b'0');
        let digest = Sha256::new().chain_update(&*header).chain_update(values).finalize();
        header[at..at + DIGITS].copy_from_slice(hex::encode(&digest).as_bytes());
    }
    bytes
}

/// A checkpoint of a run: [`safetensors`], and the SHA-256 in its header, if it has one, is right.
#[cfg(feature = "engine")]
pub(crate) fn checkpoint(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = safetensors(bytes);
    let Some(digest) = digest_of_checkpoint(&bytes) else { return bytes };
    // The header of the checkpoint is a text in that of the file: its quotes have backslashes.
    let key = br#"\"sha256\":\""#;
    if let Some(at) = bytes.windows(key.len()).position(|window| window == key) {
        let at = at + key.len();
        if let Some(place) = bytes.get_mut(at..at + DIGITS) {
            place.copy_from_slice(digest.as_bytes());
        }
    }
    bytes
}

/// SHA-256 of the names, shapes and bytes of all tensors in the order of their names, and of the header with zeros for digits.
#[cfg(feature = "engine")]
fn digest_of_checkpoint(bytes: &[u8]) -> Option<String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
    let header = metadata.metadata().as_ref()?.get("gallerist")?;
    let (before, rest) = header.split_once(r#""sha256":""#)?;
    let after = rest.get(DIGITS..)?;
    let file = SafeTensors::deserialize(bytes).ok()?;
    let tensors: std::collections::BTreeMap<_, _> = file.iter().collect();
    let mut hasher = Sha256::new();
    for (name, tensor) in tensors {
        let numbers = [name.len(), tensor.shape().len()].map(|number| (number as u64).to_le_bytes());
        hasher.update(numbers[0]);
        hasher.update(name);
        hasher.update(numbers[1]);
        for &side in tensor.shape() {
            hasher.update((side as u64).to_le_bytes());
        }
        hasher.update(tensor.data());
    }
    hasher.update(format!("{before}\"sha256\":\"{}{after}", "0".repeat(DIGITS)));
    Some(hex::encode(&hasher.finalize()))
}

/// A PNG whose chunks have the right CRC-32.
pub(crate) fn png(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
        let (start, end) = (at + 4, at + 8 + length);
        if end + 4 > bytes.len() {
            break;
        }
        let sum = crc32fast::hash(&bytes[start..end]).to_be_bytes();
        bytes[end..end + 4].copy_from_slice(&sum);
        at = end + 4;
    }
    bytes
}
