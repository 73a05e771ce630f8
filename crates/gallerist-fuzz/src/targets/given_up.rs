//! Decoders that panic.

use gallerist_data::{DECODER_GAVE_UP, Error, Image};

/// Fails if a decoder panicked, which the reader makes an error of.
pub(super) fn assert_not_given_up(decoded: &Result<Image, Error>) {
    if let Err(Error::Decode { problem, .. }) = decoded {
        assert!(!problem.starts_with(DECODER_GAVE_UP), "{problem}");
    }
}
