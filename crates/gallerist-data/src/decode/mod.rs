//! From the bytes of a file to an [`Image`](crate::Image), or the reason why not.
//!
//! The format is recognised by the content, never by the name. Sizes are read from
//! the header and checked before memory is allocated for the pixels. A JPEG is
//! decoded strictly ([`jpeg`]): a truncated or visibly damaged file is an error and
//! not a picture with a grey bottom.
//!
//! What a file may cost in time and memory is stated at [`DecodeLimits`].

mod file;
mod gif;
mod jpeg;
mod limits;
mod orientation;
mod pieces;
mod png;
mod tiff;
mod vp8l;
mod webp;

pub(crate) use file::decode_reduced;
pub use file::{DECODER_GAVE_UP, decode, decode_with};
pub use limits::{DecodeLimits, MAX_DECODED_BYTES, MAX_FILE_BYTES, MAX_SIDE};
