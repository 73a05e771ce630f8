//! The server of a gallery: its API, and the page that shows it.
//!
//! No tensor engine is needed here: the network comes through the door [`Embedder`].
//!
//! ```no_run
//! use std::path::Path;
//! use gallerist_serve::{Contents, Gallery, Images, Options, Server};
//!
//! let gallery = Gallery::open(Path::new("photos.safetensors"), false)?;
//! let options = Options::default();
//! let images = Images::open(Path::new("photos"), options.thumbnail_bytes, None)?;
//! let server = Server::bind(Contents { images: Some(images), ..gallery.into() }, options)?;
//! println!("http://{}", server.address()?);
//! server.run()?;
//! # Ok::<(), gallerist_serve::Error>(())
//! ```

mod analysis;
mod batch;
mod companion;
mod embedder;
mod error;
mod gallery;
mod gate;
mod http;
mod images;
mod metrics;
mod options;
mod protocol;
mod server;
mod state;

pub use companion::Companion;
pub use embedder::{Embedder, FeatureMap};
pub use error::{Error, Result};
pub use gallery::Gallery;
pub use images::Images;
pub use options::Options;
pub use server::{Server, Stop};
pub use state::Contents;
