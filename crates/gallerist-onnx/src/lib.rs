//! ONNX models as frozen feature extractors: from prepared images to one row of features per image.
//!
//! With the feature `engine`, the model is computed by [rten](https://docs.rs/rten), in Rust and on the CPU. With the feature
//! `onnxruntime`, [`Engine::Onnxruntime`] is a second engine, whose library the user installs. [`Model`] adds what images need: the layout
//! of the input (channels first or last), models that were exported for a fixed number of images, and rows made of tokens
//! or feature maps. [`Inspection`] shows what a file contains and which operators the engine lacks, without computing it.
//!
//! [`TextModel`] is the text tower of a model of images and texts (CLIP, SigLIP): from a text to a row that is comparable
//! with the rows of its image tower.
//!
//! # Example
//!
//! ```no_run
//! use gallerist_onnx::{Engine, Model, Rows};
//!
//! let model = Model::open("dinov2.onnx".as_ref(), None, Rows::default(), Engine::default())?;
//! let images = vec![0.0; 2 * 3 * 224 * 224];
//! let features = model.extract(&images, [2, 3, 224, 224])?;
//! assert_eq!(features.len(), 2 * model.features([3, 224, 224])?);
//! # Ok::<(), gallerist_onnx::Error>(())
//! ```
//!
//! A text:
//!
//! ```no_run
//! use gallerist_onnx::{Engine, TextModel};
//!
//! let model = TextModel::open("text.onnx".as_ref(), "tokenizer.json".as_ref(), None, None, Engine::default())?;
//! let shoe = model.embed("a red shoe")?;
//! if let Some(tokens) = shoe.cut_to {
//!     eprintln!("only the first {tokens} tokens count");
//! }
//! # Ok::<(), gallerist_onnx::Error>(())
//! ```

#[cfg(not(feature = "engine"))]
mod absent;
#[cfg(feature = "engine")]
mod cubic;
#[cfg(feature = "engine")]
mod cut;
#[cfg(feature = "engine")]
mod departures;
mod engine;
mod error;
#[cfg(feature = "engine")]
mod inspect;
mod inspection;
#[cfg(feature = "engine")]
mod lengths;
#[cfg(feature = "engine")]
mod model;
mod rows;
#[cfg(feature = "engine")]
mod session;
#[cfg(feature = "engine")]
mod text;
mod text_row;

#[cfg(not(feature = "engine"))]
pub use absent::{Model, TextModel};
pub use engine::Engine;
pub use error::{Error, Result};
pub use inspection::{Inspection, MissingOperator, Port};
#[cfg(feature = "engine")]
pub use model::Model;
pub use rows::Rows;
#[cfg(feature = "engine")]
pub use text::TextModel;
pub use text_row::{MAX_TEXT_BYTES, TextRow};
