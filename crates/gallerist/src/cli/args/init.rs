//! `gallerist init`.

use std::path::PathBuf;

use clap::Args;

use super::named::named;
use super::shared::DeviceArgs;
use crate::Preset;

/// Write a run file for your images.
///
/// Looks at the images (classes, splits, sizes, colours, white borders) and writes a commented run file for
/// `gallerist train`. Network and preprocessing come from the weights, the other values from a measured recipe of the
/// preset, changed to suit the images. The number of steps comes from a few training steps on this machine. Without
/// test images, a part of the classes is held out for the test.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Training images: a published data set, a folder with one folder for each class, a CSV or TSV manifest, or a zip or
    /// tar archive
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) given: InitArgs,
    /// Number of training steps in place of a time
    #[arg(long, value_name = "N", conflicts_with = "minutes")]
    pub(crate) steps: Option<usize>,
    /// Run file to write [default: NAME.toml, NAME from the images]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print what was found, the reasons and the run file as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the user says of the images and the training.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Test images, of other classes than the training images [default: the split test, else held-out classes]
    #[arg(long, value_name = "PATH", num_args = 1.., requires = "images")]
    pub(crate) test: Vec<PathBuf>,
    /// Pretrained weights (`gallerist weights fetch`); their network is detected. Or an ONNX model, which stays as it is, and
    /// on whose features a layer is trained [default: random weights]
    #[arg(long, value_name = "FILE", requires = "images")]
    pub(crate) weights: Option<PathBuf>,
    /// Kind of the images [default: by their look]
    #[arg(long, value_parser = named::<Preset>(), requires = "images")]
    pub(crate) preset: Option<Preset>,
    /// Minutes of training on this machine [default: the steps of the recipe, at most 10 minutes]
    #[arg(long, value_name = "M", requires = "images")]
    pub(crate) minutes: Option<f64>,
}
