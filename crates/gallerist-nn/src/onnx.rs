//! ONNX models of other programs as frozen networks, with or without a trained head.
//!
//! The model is computed as it is, without gradients; what is trained are the layers after its features. Because features
//! do not change in training, those of an image can be computed once: the network also accepts them in place of images
//! ([`Extractor`](crate::Extractor)).

use std::path::Path;
use std::sync::Arc;

use gallerist_onnx::Model;
pub use gallerist_onnx::{Engine, Rows};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::embedder::{AnyEmbedder, Embedder};
use crate::graph::Network;
use crate::heads::Head;
use crate::layers::Activation;
use crate::setting::{InputShape, Setting, value};
use crate::spec::NetworkSpec;
use gallerist_tensor::{Error, Result};

/// Parameters of an ONNX model as a network. The file is [`NetworkConfig::file`](crate::NetworkConfig::file).
///
/// `features` and `sha256` describe the file; [`OnnxConfig::of_model`] reads them, and so does reading a run file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnnxConfig {
    /// The output of the model that is taken; absent: `image_embeds` if there is one, else the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What computes the model.
    #[serde(skip_serializing_if = "Engine::is_default")]
    pub engine: Engine,
    /// How an output of tokens becomes one row per image. Feature maps become their mean over all positions.
    pub rows: Rows,
    /// Width of a linear layer with batch norm and ReLU between the features and the embedding; 0: none.
    pub hidden: usize,
    /// Length of an embedding; 0: the unchanged features.
    pub dimensions: usize,
    /// Length of the features; 0: not yet read from the file.
    pub features: usize,
    /// SHA-256 of the file; another file is refused. Empty: not yet read from the file.
    pub sha256: String,
}

impl Named for OnnxConfig {
    const NAME: &'static str = "onnx";
}

impl NetworkSpec for OnnxConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, self.features)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl OnnxConfig {
    /// The configuration with the length of the features and the SHA-256 of `model`, for images of this shape.
    ///
    /// The model is computed for a few images.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when it is no model of images of this shape, and when the features of an image depend on those that
    /// are computed with it.
    pub fn of_model(self, model: &Model, input: InputShape) -> Result<Self> {
        let shape = [input.channels, input.height, input.width];
        let features = model.checked_features(shape).map_err(refused)?;
        Ok(OnnxConfig { features, sha256: model.sha256().to_owned(), ..self })
    }

    /// The model in `file`, with this output and these rows.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] when the engine is not available, and when the file is no model of images or has no such output.
    pub fn open(&self, file: &Path) -> Result<Model> {
        let model = Model::open(file, self.output.as_deref(), self.rows, self.engine);
        model.map_err(|error| match file.exists() {
            true => refused(error),
            false => Error::Conflict {
                message: error.to_string(),
                hint: "set network.file, of a run in its config.toml, to the place of the model".into(),
            },
        })
    }

    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        let input = setting.input;
        let Some(file) = setting.file else {
            return Err(value("file", "an ONNX file for kind = \"onnx\"", "absent".into()));
        };
        if self.dimensions == 0 && self.hidden > 0 {
            return Err(value("dimensions", "1 or more with a hidden layer", "0".into()));
        }
        let model = self.open(file)?;
        let found = model.sha256();
        if !self.sha256.is_empty() && self.sha256 != found {
            return Err(Error::Conflict {
                message: format!(
                    "`{}` is another model than before\n  SHA-256 {found}, wanted {}",
                    file.display(),
                    self.sha256
                ),
                hint: "give the path of the model that the run began with (network.file), or begin a new run"
                    .into(),
            });
        }
        let features = model.features([input.channels, input.height, input.width]).map_err(refused)?;
        if self.features != features {
            let wanted =
                format!("{features}, the length of output `{}` of `{}`", model.output(), file.display());
            return Err(value("features", &wanted, self.features.to_string()));
        }
        let (mut b, images) = setting.builder(0.1, 1e-5)?;
        let mut x = b.extractor(images, Arc::new(model), features);
        if self.hidden > 0 {
            x = b.linear("head.hidden", x, self.hidden, true);
            x = b.norm("head.norm", x, Activation::Relu);
        }
        if self.dimensions > 0 {
            let name = if self.hidden > 0 { "head.embedding" } else { "head" };
            x = b.linear(name, x, self.dimensions, true);
        }
        b.finish(&[x], input)
    }
}

fn refused(error: gallerist_onnx::Error) -> Error {
    let hint =
        error.hint().unwrap_or_else(|| "`gallerist model inspect FILE` shows what a model contains".into());
    Error::Conflict { message: error.to_string(), hint }
}
