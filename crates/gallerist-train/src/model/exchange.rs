//! A model from a file of weights, without training; a model for other programs.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::Device;
use gallerist_data::Transform;

use super::trained::{Model, description};
use crate::checkpoint::{Checkpoint, Header};
use crate::{CheckpointKind, RunConfig, RunDirectory};
use gallerist_nn::{AnyEmbedder, InputShape};
use gallerist_tensor::params;
use gallerist_weights::{self as weights, LoadReport, OnnxOptions, Weights};

use crate::Result;

impl Model {
    /// The network of a run file with the weights of a file, without training. The weights of new layers depend on
    /// the seed of the run file.
    ///
    /// # Errors
    ///
    /// As for [`weights::load`], and where the run file does not fit its images' size.
    pub fn from_weights(config: &RunConfig, weights: Weights) -> Result<(Self, LoadReport)> {
        let (network, input) = fresh(config)?;
        let (network, report) = weights::load(network, weights)?;
        let model = Model::new(config.clone(), input, network).with_heads(config.evaluation.head_choice())?;
        Ok((model, report))
    }

    /// The network of a run file as it is before training, such as an ONNX model of another program.
    ///
    /// # Errors
    ///
    /// Where the run file does not fit its images' size, or the file of the model cannot be used.
    pub fn untrained(config: &RunConfig) -> Result<Self> {
        let (network, input) = fresh(config)?;
        Model::new(config.clone(), input, network).with_heads(config.evaluation.head_choice())
    }

    /// Makes a run directory of the model, so that every command for runs accepts it. Its training
    /// cannot be continued.
    ///
    /// # Errors
    ///
    /// When the directory holds something already or cannot be written.
    pub fn save_run(&self, directory: &Path) -> Result<RunDirectory> {
        let config = self.config.with_absolute_paths();
        let directory = RunDirectory::create(directory, &config)?;
        let network = params::collect(&self.network);
        let header = Header {
            step: self.step,
            config: config.to_toml(),
            fingerprint: crate::checkpoint::fingerprint(&network, &description(&self.config, self.input)),
            input: [self.input.channels, self.input.height, self.input.width],
            ..Header::default()
        };
        let checkpoint = Checkpoint { header, network, ..Default::default() };
        for which in [CheckpointKind::Last, CheckpointKind::Best] {
            checkpoint.save(&directory.checkpoint(which))?;
        }
        Ok(directory)
    }

    /// Writes the network's tensors with PyTorch's names, as safetensors.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn export_safetensors(&self, path: &Path) -> Result<()> {
        Ok(weights::save_safetensors(&self.network, path, self.about())?)
    }

    /// Writes the model as ONNX: from prepared images to the embeddings that [`Model::embed`] gives. Where those are means
    /// over several [views](Transform::views) of an image, the file computes the embedding of one view.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn export_onnx(&self, path: &Path) -> Result<()> {
        let options = OnnxOptions {
            input: self.input,
            heads: self.heads.clone(),
            places: self.places.clone(),
            normalize: self.normalizes(),
            metadata: self.about(),
        };
        Ok(weights::save_onnx(&self.network, path, &options)?)
    }

    /// Metadata of an exported file.
    fn about(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("format".into(), "gallerist-model".into()),
            ("fingerprint".into(), self.fingerprint.clone()),
            ("network".into(), json(&self.config.network.architecture)),
            ("image".into(), json(&self.config.image)),
            ("heads".into(), json(&self.heads)),
            ("normalized".into(), self.normalizes().to_string()),
            ("metric".into(), self.metric().name().into()),
        ])
    }
}

/// The network with weights drawn from the seed, and the size of its images.
fn fresh(config: &RunConfig) -> Result<(AnyEmbedder, InputShape)> {
    let [channels, height, width] = Transform::evaluation(&config.image)?.shape();
    let input = InputShape { channels, height, width };
    Ok((config.network.init(input, config.train.seed, &Device::flex())?, input))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}
