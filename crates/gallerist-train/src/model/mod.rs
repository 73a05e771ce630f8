//! The result of a run: a network with its preprocessing, ready to embed images ([`Model`]).

mod embed;
mod exchange;
mod int8;
mod text;
mod trained;

pub use embed::{Embedded, EmbeddedBatch, ImageMaps, SPLIT, columns_of};
pub use int8::Calibration;
pub use text::EmbeddedText;
pub use trained::Model;
pub(crate) use trained::description;
