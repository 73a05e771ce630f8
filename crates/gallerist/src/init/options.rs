//! What a run file is made from.

use std::path::PathBuf;

use gallerist_tensor::device::DeviceChoice;

use super::preset::Preset;

/// Minutes of training where none are given; the preset's recipe may need fewer.
pub const DEFAULT_MINUTES: f64 = 10.0;

/// How [`init`](crate::init()) chooses.
#[derive(Clone, Debug, Default)]
pub struct InitOptions {
    /// Test images, of other classes; empty: a split of the images, or held-out classes.
    pub test: Vec<PathBuf>,
    /// A file of pretrained weights; or an ONNX model (`.onnx`), which stays as it is, and on whose features a layer is trained.
    /// `None`: the network starts from random weights.
    pub weights: Option<PathBuf>,
    /// The kind of the images; `None`: by their look.
    pub preset: Option<Preset>,
    /// Minutes of training on this machine, from a measured rate; `None`: the steps of the recipe, but at most
    /// [`DEFAULT_MINUTES`].
    pub minutes: Option<f64>,
    /// Steps of training. The rate is then not measured.
    pub steps: Option<usize>,
    /// The device of the network.
    pub device: DeviceChoice,
}
