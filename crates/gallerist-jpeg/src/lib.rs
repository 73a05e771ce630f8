//! Finds damage in JPEG files, and decodes the common ones on the way.
//!
//! A JPEG has no checksum, and decoders make a picture of nearly any bytes. But
//! a damaged bit usually shifts the borders of the Huffman codes after it, and
//! then the codes no longer come out even: this walk over the codes (ITU-T
//! T.81, sections B, F and G; sequential and progressive) refuses a scan with
//! an unassigned code, a run beyond the end of its block, a coefficient that no
//! picture has, too few or too many bits for its blocks, or a wrong restart
//! marker, and a file that ends before its end marker.
//! Damage that gives another plausible file cannot be found.
//!
//! The scan of a sequential file is decoded in the same walk, to the same bits as
//! [zune-jpeg](https://docs.rs/zune-jpeg) gives, and at a reduced size on request. Other decoders do neither: a strict
//! check before them would walk over all codes twice, and zune-jpeg has no reduced sizes.

mod color;
mod headers;
mod huffman;
mod idct;
mod picture;
mod plane;
mod problem;
mod progressive;
mod scan;
mod segments;
mod sequential;
mod visits;
mod walk;

pub use picture::{Picture, Planes};
pub use problem::{Interrupt, Never};
pub use segments::{Segment, Segments, needed};
pub use walk::walk;
