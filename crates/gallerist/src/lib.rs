//! Deep metric learning and image retrieval.
//!
//! Gallerist trains networks that embed images of one class close to each other, embeds and searches galleries,
//! and evaluates retrieval with the metrics and protocols of the field. Everything that the program `gallerist` does
//! is one call of this library.
//!
//! | task | see |
//! | --- | --- |
//! | write a run file for your images | [`init`](init()) |
//! | train from a run file, measure, write the report | [`train`](train()), [`resume`] |
//! | embed images with a trained network | [`embed`], [`model::Model`] |
//! | embed a large list of images in shards, on many machines | [`embed_shard`], [`retrieval::shards`] |
//! | search a gallery with images | [`search`] |
//! | train many runs in parallel | [`jobs`] |
//! | search for the best values of a run file | [`tune`](tune()), [`mod@tune`] |
//! | repeat the tables of the papers, compare settings | [`experiments`] |
//! | calibrate the threshold of a match | [`threshold`](threshold()) |
//! | measure retrieval | [`evaluate`], [`retrieval::eval`] |
//! | serve a gallery to people and programs | [`serve`](serve()), [`mod@serve`] |
//! | follow the progress of these calls | [`Observer`] |
//! | bring your own loss, network, sampler, image source, metric | [`Registry`] |
//! | write your own program with the same command line | [`cli::run`] |
//! | use a loss in a training loop of your own | [`loss`] |
//! | compute a loss on embeddings from a file | [`compute_loss`] |
//! | compute on a GPU | [`device`] |
//! | start from trained weights, or export a network | [`weights`] |
//! | use an ONNX model as a frozen extractor | [`onnx`], [`network::OnnxConfig`] |
//! | find wrong labels, near-duplicates and outliers | [`issues`], [`retrieval::issues`] |
//! | search embeddings exactly | [`retrieval::search`] |
//! | keep a gallery that changes, or one of millions | [`retrieval::index`] |
//! | read images, sample batches, load them ahead | [`data`] |
//! | write reports as HTML pages | [`report`](report()), [`pages`], [`mod@report`] |
//! | draw curves, ranked lists, maps, histograms | [`plots`], [`map`] |
//!
//! [`prelude`] has the types and traits that most programs need. `examples/` has short programs: a training loop
//! by hand, your own network, loss and data, a server inside a program.
//!
//! The feature `cli` (default) has the command line; without it the library has fewer dependencies.
//!
//! # From a run file to a ranked list
//!
//! ```no_run
//! use std::{path::{Path, PathBuf}, sync::atomic::AtomicBool};
//! use gallerist::{EmbedOptions, ImageSearchOptions, train::RunConfig};
//!
//! let config = RunConfig::load(Path::new("configs/omniglot.toml"), &[])?;
//! let run = Path::new("runs/first");
//! gallerist::train(&config, run, &mut (), &AtomicBool::new(false))?;
//!
//! let photos = [PathBuf::from("photos")];
//! gallerist::embed(run, &photos, &EmbedOptions::default(), &mut ())?.set.save("photos.safetensors")?;
//! let (gallery, query) = (Path::new("photos.safetensors"), [PathBuf::from("query.png")]);
//! let found = gallerist::search(gallery, &query, &ImageSearchOptions::default(), &mut ())?;
//! println!("{:?}", found.lists[0].results);
//! # Ok::<(), gallerist::Error>(())
//! ```
#![recursion_limit = "256"]

#[cfg(feature = "cli")]
pub mod cli;
mod compatible;
mod contents;
mod error;
pub mod experiments;
mod file;
mod image_places;
mod init;
pub mod jobs;
pub mod measured;
mod narrow;
mod observer;
mod onnx_model;
pub mod pages;
mod pictures;
pub mod plots;
pub mod prelude;
mod projector;
mod ranking;
mod registry;
mod repeats;
mod run_metrics;
mod tasks;
mod text;
pub mod tune;
mod unread;

pub use contents::{Contents, ContentsKind, Facts, contents};
pub use error::{Error, Result};
pub use gallerist_collective as collective;
pub use gallerist_data as data;
#[cfg(feature = "database")]
pub use gallerist_database as database;
pub use gallerist_loss as loss;
pub use gallerist_loss::{cross_batch, miner};
pub use gallerist_map as map;
#[cfg(feature = "milvus")]
pub use gallerist_milvus as milvus;
pub use gallerist_nn as network;
pub use gallerist_onnx as onnx;
#[cfg(feature = "qdrant")]
pub use gallerist_qdrant as qdrant;
pub use gallerist_report as report;
pub use gallerist_retrieval as retrieval;
pub use gallerist_serve as serve;
pub use gallerist_tensor::{Error as TensorError, burn, device, pairwise, params};
pub use gallerist_train as train;
pub use gallerist_train::{checkpoint, model, optim};
pub use gallerist_weights as weights;
pub use init::{
    DEFAULT_MINUTES, Findings, InitOptions, Initialized, PartFindings, Preset, init, name_of_images,
};
pub use narrow::{Conditions, Narrowed, parse_condition};
pub use observer::Observer;
pub use projector::{write_projector, write_projector_files};
pub use registry::Registry;
pub use run_metrics::{EarlierTiming, RunMetrics};
pub use tasks::{
    CalibrateOptions, Calibrated, ComputedLoss, DEFAULT_CALIBRATION_IMAGES, DEFAULT_PART_IMAGES,
    EmbedOptions, EmbeddedShard, EmbeddingsFile, EvaluateInput, EvaluateOptions, EvaluateRun, Evaluated,
    Found, FoundIssues, FoundItem, FoundList, ImagePart, ImageSearchOptions, IssueClasses, IssueGroup,
    IssueImage, IssueLabel, IssueOutlier, IssuesOptions, LossOptions, NamedGallery, ServeOptions,
    ShardFormat, ShardOptions, ThresholdInput, ThresholdSettings, Trained, TrainingEnd, calibrate,
    check_save_threshold, complete, compute_loss, embed, embed_images, embed_shard, evaluate, issues,
    open_model, report, resume, save_threshold, search, serve, serve_all, set_threads, threshold, train,
    world,
};
pub use tune::tune;
pub use unread::warn_of_unread;
