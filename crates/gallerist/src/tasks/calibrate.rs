//! Measuring the ranges of a network's values, for embedding in int8.

use std::path::{Path, PathBuf};

use gallerist_data::{Broken, OpenOptions};
use gallerist_train::CheckpointKind;
use serde::Serialize;

use super::embed::{open_images, report_broken};
use super::model;
use crate::{Observer, Result};

/// Images that [`calibrate`] measures by default.
pub const DEFAULT_CALIBRATION_IMAGES: usize = 256;

/// Options of [`calibrate`].
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// The checkpoint of the run; `None`: its `evaluation.checkpoint`.
    pub checkpoint: Option<CheckpointKind>,
    /// Split, layout and labels of the images.
    pub images: OpenOptions,
    /// The number of images that are measured, evenly spaced in the set.
    pub count: usize,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { checkpoint: None, images: OpenOptions::default(), count: DEFAULT_CALIBRATION_IMAGES }
    }
}

/// What [`calibrate`] has measured.
#[derive(Clone, Debug, Serialize)]
pub struct Calibrated {
    /// The file of the ranges, in the run directory.
    pub file: PathBuf,
    /// The images that were measured.
    pub images: usize,
    /// Images that could not be read.
    pub broken: Vec<String>,
    /// Cosine distance between an image's embedding in int8 and in f32: the mean over these images.
    pub mean_distance: f64,
    /// And the largest.
    pub largest_distance: f64,
}

/// Measures the ranges of the values of a run's network on images, and writes them into the run directory, for embedding in int8
/// (`evaluation.products`, [`EmbedOptions::products`](crate::EmbedOptions::products)). Ranges of the same checkpoint are replaced.
///
/// # Example
///
/// ```no_run
/// use std::path::{Path, PathBuf};
/// use gallerist::network::Products;
/// use gallerist::{CalibrateOptions, EmbedOptions};
///
/// let (run, photos) = (Path::new("runs/first"), [PathBuf::from("photos")]);
/// gallerist::calibrate(run, &photos, &CalibrateOptions::default(), &mut ())?;
/// let options = EmbedOptions { products: Some(Products::Int8), ..EmbedOptions::default() };
/// gallerist::embed(run, &photos, &options, &mut ())?.set.save("photos.safetensors")?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When the run has no such checkpoint, its network has no form in int8, no image can be read, or the file cannot be written.
pub fn calibrate(
    run: &Path,
    images: &[PathBuf],
    options: &CalibrateOptions,
    observer: &mut dyn Observer,
) -> Result<Calibrated> {
    let model = model::open(run, options.checkpoint)?;
    let set = open_images(images, &options.images, observer)?;
    let threads = model.config().train.loader_threads;
    let progress = &mut |done, all| observer.embedding("measuring", done, all);
    let calibration = model.calibrate(set, options.count, threads, progress);
    observer.phase_done();
    let calibration = calibration?;
    report_broken(&calibration.broken, observer);
    let file = model.save_ranges(&calibration)?;
    Ok(Calibrated {
        file,
        images: calibration.images,
        broken: calibration.broken.iter().map(Broken::to_string).collect(),
        mean_distance: calibration.mean_distance,
        largest_distance: calibration.largest_distance,
    })
}
