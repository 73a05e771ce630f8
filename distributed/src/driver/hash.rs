//! The hash of a result: equal hashes mean equal results, to the last bit.

use gallerist_util::hex;
use sha2::{Digest, Sha256};

/// SHA-256 over the parts of a result.
#[derive(Default)]
pub(super) struct ResultHash(Sha256);

impl ResultHash {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// 64 hexadecimal digits.
    pub(super) fn digits(self) -> String {
        hex::encode(&self.0.finalize())
    }
}
