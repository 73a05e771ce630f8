//! A server for a gallery: its API, and the web page that shows it.
//!
//! This crate needs no tensor engine. A program gives the network through the trait [`Embedder`]; without one the
//! server shows and searches the gallery, but takes no uploads.
//!
//! # A server in a program of your own
//!
//! [`Server::run_until_signal`] serves until Ctrl-C. A program with its own event loop calls [`Server::run`] on a
//! thread and [`Stop::now`] to end it.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use gallerist_serve::{Contents, Embedder, Gallery, Images, Options, Server};
//!
//! fn serve(network: impl Embedder + 'static) -> gallerist_serve::Result<()> {
//!     let gallery = Gallery::open(Path::new("photos.safetensors"), false)?;
//!     let options = Options::default();
//!     let images = Images::open(Path::new("photos"), options.thumbnail_bytes, None)?;
//!     let contents = Contents { images: Some(images), embedder: Some(Arc::new(network)), ..gallery.into() };
//!     let server = Server::bind(contents, options)?;
//!     println!("{}", server.url()?);
//!     server.run_until_signal()
//! }
//! ```

mod access;
mod analysis;
mod audit;
mod batch;
mod client;
mod companion;
mod embedder;
mod embeddings;
mod error;
mod gallery;
mod gate;
mod http;
mod id;
mod images;
mod limits;
mod metrics;
#[cfg(all(test, shuttle))]
mod models;
mod options;
mod protocol;
mod reload;
mod reloaded;
mod saved;
mod server;
mod source_images;
mod stamp;
mod state;
mod sync;
mod tls;

pub use access::Token;
pub use audit::AUDIT_LINES;
pub use client::Network;
pub use companion::Companion;
pub use embedder::{BatchEmbedder, Embedder, FeatureMap, TextVector};
pub use error::{Error, Result};
pub use gallery::Gallery;
pub use images::Images;
pub use options::Options;
pub use reloaded::{Outcome, Reloaded};
pub use server::{Reload, Server, Stop};
pub use source_images::SourceImages;
pub use state::Contents;
pub use tls::Tls;
