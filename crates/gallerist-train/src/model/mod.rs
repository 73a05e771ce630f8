//! The result of a run: a network with its preprocessing, ready to embed images ([`Model`]).

mod embed;
mod exchange;
mod trained;

pub use embed::{Embedded, ImageMaps, SPLIT, columns_of};
pub use trained::Model;
pub(crate) use trained::description;
