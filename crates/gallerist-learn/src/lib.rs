//! Losses, networks and training for retrieval.
//!
//! The way of a batch: images -> [`network`] -> embeddings -> [`loss`] -> optimiser. The run file
//! ([`train::RunConfig`]) names every choice; [`train::Trainer`] carries it out; [`model::Model`]
//! is what a run leaves behind: a network with its preprocessing, ready to embed images.
#![recursion_limit = "256"]

pub mod checkpoint;
pub mod device;
pub mod error;
pub mod loss;
pub mod memory;
pub mod miner;
pub mod model;
pub mod network;
pub mod optim;
pub mod pairwise;
pub mod params;
pub mod train;
pub mod weights;

pub use error::{Error, Result};
