//! The calls of the API, and the checks that every request passes.

mod about;
mod analysis;
mod asked;
mod assets;
mod bare;
mod change;
mod chosen;
mod clusters;
mod embedding;
mod error;
mod etag;
mod extract;
mod filter;
mod galleries;
mod gallery;
mod groups;
mod heatmap;
mod histogram;
mod items;
mod json;
mod limited;
mod named;
mod origin;
mod pictures;
mod reload;
mod router;
mod saved;
mod search;
mod security;
mod token;
mod upload;

pub(crate) use error::Refusal;
pub(crate) use galleries::Galleries;
use router::router;
