//! Steps whose loss, gradient or weights are not finite: what is done about them, and what is kept of them.
//!
//! A number that is not finite is found at three places of a step: in the loss of a batch, in the gradient of the step,
//! and in the weights after the optimizer. Then the step changes nothing that lasts: with [`OnNonfinite::Stop`] the run ends,
//! and its checkpoints are of earlier steps; with [`OnNonfinite::Skip`] weights, statistics of batch norm, the state of
//! the optimizer and cross-batch memories become again what they were before the step. All ranks of a distributed run do
//! the same.
//!
//! In f16, gradients that are not finite first lower the scale of the loss ([`LossScale`](crate::LossScale)): the step is left out, which is
//! no fault of the run. Only when the scale is 1, and for a loss or weights, is the step one of those here.
//!
//! What is kept: `nonfinite/step-000123.json` (the images, and the norm of each parameter and of its gradient), and
//! `step-000123.safetensors` (the embeddings, and the images as the network got them).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};
use gallerist_data::Batch;
use gallerist_tensor::params;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, json};

/// `train.on_nonfinite`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnNonfinite {
    /// The run ends with an error.
    #[default]
    Stop,
    /// The step is skipped and counted; the run ends after [`MOST_IN_SUCCESSION`](Self::MOST_IN_SUCCESSION) such steps
    /// in succession.
    Skip,
}

impl OnNonfinite {
    /// Steps in succession that are skipped before the run ends.
    pub const MOST_IN_SUCCESSION: usize = 10;

    pub(super) fn is_default(&self) -> bool {
        *self == OnNonfinite::default()
    }
}

/// Steps that were skipped because a number was not finite. A checkpoint contains them, so that a resumed run counts on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SkippedSteps {
    /// All of the run.
    pub all: usize,
    /// The last ones, without another step between them.
    pub in_succession: usize,
}

impl SkippedSteps {
    pub(super) fn is_none(&self) -> bool {
        self.all == 0
    }
}

/// Where a number is not finite.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    /// An image, as the network got it.
    Image(String),
    /// A parameter of the network or of the loss, before the step.
    Weights(String),
    Embeddings,
    Loss(f32),
    /// A finite embedding whose length has a square that f32 does not hold: the loss, the image and the length.
    Long(f32, String, f64),
    /// The gradient of a parameter.
    Gradient(String),
    /// The gradient is finite, and the sum of its squares is not.
    Norm(f32),
    /// A parameter after the step.
    Update(String),
}

impl Place {
    /// Whether it is a parameter that the loss learns, whose gradient is not clipped.
    pub(super) fn is_of_loss(&self) -> bool {
        match self {
            Place::Weights(name) | Place::Gradient(name) | Place::Update(name) => name.starts_with("loss."),
            _ => false,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Image(path) => write!(f, "the image `{path}`, as the network gets it, is not finite"),
            Place::Weights(name) => write!(f, "the weights `{name}` are not finite"),
            Place::Embeddings => f.write_str("the embeddings are not finite"),
            Place::Loss(value) => write!(f, "the loss is {value}"),
            Place::Long(value, image, length) => write!(
                f,
                "the loss is {value}: the embedding of `{image}` has the length {length:.1e}, whose square overflows"
            ),
            Place::Gradient(name) => write!(f, "the gradient of `{name}` is not finite"),
            Place::Norm(value) => write!(f, "the norm of the gradient is {value}"),
            Place::Update(name) => write!(f, "the weights `{name}` are not finite after the step"),
        }
    }
}

/// The embeddings of a batch of a step that may turn out not to be finite.
#[derive(Clone, Debug)]
pub(super) struct SeenBatch {
    pub(super) epoch: u64,
    /// The images of all ranks.
    pub(super) items: Vec<u32>,
    /// One `[n, d]` per head, without gradients.
    pub(super) outputs: Vec<Tensor<2>>,
}

/// The norms of a gradient by parameter, and how many of its numbers are not finite.
pub(super) type GradientNorms = BTreeMap<String, (f64, usize)>;

/// The norms of the gradients of a module.
pub(super) fn norms_of<M: Module>(module: &M, gradients: &GradientsParams) -> GradientNorms {
    struct Norms<'a> {
        path: params::Path,
        gradients: &'a GradientsParams,
        norms: GradientNorms,
    }
    impl ModuleVisitor for Norms<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.gradients.get::<D>(param.id) {
                let data = gradient.into_data().convert_dtype(DType::F32);
                self.norms.insert(self.path.name(), params::norm_and_nonfinite(&data));
            }
        }
    }
    let mut visitor = Norms { path: params::Path::default(), gradients, norms: GradientNorms::new() };
    module.visit(&mut visitor);
    visitor.norms
}

/// An image of the step.
#[derive(Debug, Serialize)]
pub(super) struct ImageStudy {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
    /// Length of its embedding in each head; `null`: not finite.
    pub(super) embedding_norms: Vec<f64>,
    /// Numbers of the image, as the network gets it, that are not finite; absent for an image of another rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nonfinite: Option<usize>,
    /// The smallest and the largest of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range: Option<[f32; 2]>,
}

/// A batch of the step.
#[derive(Debug, Serialize)]
pub(super) struct BatchStudy {
    pub(super) epoch: u64,
    pub(super) images: Vec<ImageStudy>,
}

/// A parameter of the network or of the loss.
#[derive(Debug, Serialize)]
pub(super) struct ParameterStudy {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    /// Norm of its finite numbers.
    pub(super) norm: f64,
    /// Its other numbers.
    pub(super) nonfinite: usize,
    /// The same of its gradient; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gradient_norm: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gradient_nonfinite: Option<usize>,
}

/// What is kept of a step, but for its tensors.
#[derive(Debug, Serialize)]
pub(super) struct Study {
    pub(super) step: usize,
    /// Where a number is not finite.
    pub(super) found: String,
    /// Whether the run went on without the step.
    pub(super) skipped: bool,
    pub(super) seed: u64,
    pub(super) learning_rate: f64,
    pub(super) precision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clip_norm: Option<f64>,
    /// `null`: not finite, here and in other numbers.
    pub(super) loss: Option<f32>,
    /// Of several losses the value of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) losses: Vec<f32>,
    pub(super) batches: Vec<BatchStudy>,
    /// Before the step, or after it where the step made them infinite; those of the loss begin with `loss.`.
    pub(super) parameters: Vec<ParameterStudy>,
}

/// Steps of which something is kept: the first of a run, and the latest.
const KEPT: usize = 5;

/// Numbers of the images of a batch that are kept at most.
pub(super) const MOST_PIXELS: usize = 16 << 20;

impl Study {
    /// Writes the two files into `folder`, and returns the one that describes the step. Of more than [`KEPT`] steps, the
    /// latest before this one is removed.
    pub(super) fn save(&self, folder: &Path, tensors: &BTreeMap<String, TensorData>) -> Result<PathBuf> {
        let io = |action, source| Error::Io { action, path: folder.into(), source };
        gallerist_util::files::create_dir_all(folder).map_err(|e| io("create", e))?;
        let name = format!("step-{:06}", self.step);
        let mut others = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|e| io("read", e))? {
            let path = entry.map_err(|e| io("read", e))?.path();
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let number = stem.strip_prefix("step-").and_then(|number| number.parse::<usize>().ok());
            others.extend(number.filter(|_| stem != name && path.extension().is_some_and(|e| e == "json")));
        }
        others.sort_unstable();
        for step in others.iter().skip(KEPT - 1) {
            for ending in ["json", "safetensors"] {
                let path = folder.join(format!("step-{step:06}.{ending}"));
                if path.exists() {
                    std::fs::remove_file(&path).map_err(|e| io("write", e))?;
                }
            }
        }
        params::write(&folder.join(format!("{name}.safetensors")), tensors)?;
        let path = folder.join(format!("{name}.json"));
        json::write(&path, self)?;
        Ok(path)
    }
}

/// The numbers of each image of a batch: how many are not finite, and the range of the others.
pub(super) fn ranges(batch: &Batch) -> Vec<(usize, [f32; 2])> {
    let length = (batch.images.len() / batch.len().max(1)).max(1);
    let of = |image: &[f32]| {
        let finite = image.iter().copied().filter(|value| value.is_finite());
        let range =
            finite.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
        (image.iter().filter(|value| !value.is_finite()).count(), range)
    };
    batch.images.chunks(length).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(step: usize) -> Study {
        Study {
            step,
            found: Place::Loss(f32::NAN).to_string(),
            skipped: true,
            seed: 1,
            learning_rate: 0.1,
            precision: "f32",
            loss_scale: None,
            clip_norm: None,
            loss: Some(f32::NAN),
            losses: Vec::new(),
            batches: Vec::new(),
            parameters: Vec::new(),
        }
    }

    #[test]
    fn the_first_steps_and_the_latest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for step in [3, 7, 8, 20, 31, 32, 700_000] {
            study(step).save(folder.path(), &BTreeMap::new()).unwrap();
            // The same step of a run that was resumed takes its place.
            let path = study(step).save(folder.path(), &BTreeMap::new()).unwrap();
            assert!(path.ends_with(format!("step-{step:06}.json")) && path.exists());
        }
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let wanted: Vec<String> = [3, 7, 8, 20, 700_000]
            .iter()
            .flat_map(|step| ["json", "safetensors"].map(|ending| format!("step-{step:06}.{ending}")))
            .collect();
        assert_eq!(names, wanted);
    }
}
