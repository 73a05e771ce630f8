//! Deep metric learning and image retrieval.
//!
//! Gallerist trains a network whose distances mean "the same thing", embeds a gallery with it,
//! searches the gallery exactly, measures the result by the field's protocols, and shows the
//! ranked lists. The program `gallerist` does all of it from a run file; this library is the same
//! from Rust.
//!
//! | you want to | look at |
//! | --- | --- |
//! | train from a run file | [`train::Trainer`], [`train::RunConfig`] |
//! | use a loss in a training loop of your own | [`loss`] |
//! | embed images with a trained network | [`model::Model`] |
//! | compute on a GPU | [`device`] |
//! | start from trained weights, or give a network to another program | [`weights`] |
//! | search embeddings exactly | [`retrieval::search`] |
//! | keep a gallery that changes, or one of millions | [`retrieval::index`] |
//! | measure retrieval | [`retrieval::eval`], of a run [`measured`] |
//! | read images, sample batches, load them ahead | [`data`] |
//! | write the pages people look at | [`pages`], [`report`] |
//! | draw curves, ranked lists, maps, histograms | [`plots`], [`map`] |
//! | serve a gallery to people and programs | [`serve`] |
//!
//! # From a run file to a ranked list
//!
//! ```no_run
//! use std::{path::Path, sync::atomic::AtomicBool};
//! use gallerist::data::ImageSet;
//! use gallerist::model::Model;
//! use gallerist::retrieval::search::{Metric, SearchOptions, search};
//! use gallerist::train::{RunConfig, Trainer, Which};
//!
//! let config = RunConfig::load(Path::new("configs/omniglot.toml"), &[])?;
//! Trainer::start(&config, Path::new("runs/first"))?.run(&mut (), &AtomicBool::new(false))?;
//!
//! let model = Model::open(Path::new("runs/first"), Which::Best)?;
//! let gallery = model.embed(ImageSet::open("photos")?, 0, &mut |_, _| {})?.set;
//! let query = model.embed(ImageSet::open("query.png")?, 0, &mut |_, _| {})?.set;
//! let lists = search(&query.embeddings, &gallery.embeddings, &SearchOptions::new(5))?;
//! println!("{:?}", lists.indices(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![recursion_limit = "256"]

pub mod cli;
pub mod measured;
pub mod pages;
mod pictures;
pub mod plots;
mod projector;
mod ranking;

pub use gallerist_data as data;
pub use gallerist_loss as loss;
pub use gallerist_loss::{memory, miner};
pub use gallerist_map as map;
#[cfg(feature = "milvus")]
pub use gallerist_milvus as milvus;
pub use gallerist_nn as network;
pub use gallerist_report as report;
pub use gallerist_retrieval as retrieval;
pub use gallerist_serve as serve;
pub use gallerist_tensor::{Error as TensorError, burn, device, pairwise, params};
pub use gallerist_train as train;
pub use gallerist_train::{Error, Result, checkpoint, model, optim};
pub use gallerist_weights as weights;
pub use projector::write_projector;
