//! What a run leaves behind: a network with its preprocessing, ready to embed images.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_data::{BatchPlan, Broken, ImageSet, ImageStore, Loader, LoaderOptions, Transform};
use gallerist_retrieval::{EmbeddingSet, Matrix, labels};

use crate::checkpoint::{self, Checkpoint};
use crate::network::{InputShape, Network};
use crate::pairwise::l2_normalize;
use crate::train::config::threads as resolved;
use crate::train::{RunConfig, RunDirectory, Which};
use crate::{Error, Result, params};

/// A trained network with its preprocessing.
///
/// # Example
///
/// ```no_run
/// use std::path::Path;
/// use gallerist_data::ImageSet;
/// use gallerist_learn::model::Model;
///
/// let model = Model::load(Path::new("runs/omniglot/checkpoints/best.safetensors"))?;
/// let gallery = model.embed(ImageSet::open("photos")?, 0, &mut |done, all| eprintln!("{done}/{all}"))?;
/// gallery.set.save("photos.safetensors")?;
/// # Ok::<(), gallerist_learn::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    config: RunConfig,
    network: Network,
    fingerprint: String,
    step: usize,
    normalize: bool,
}

/// Embeddings of an image set, and the images that could not be read.
#[derive(Debug)]
pub struct Embedded {
    /// One row per image that could be read, in the set's order.
    pub set: EmbeddingSet,
    /// The others; they have no row.
    pub broken: Vec<Broken>,
}

impl Embedded {
    /// The labels as numbers.
    ///
    /// # Errors
    ///
    /// When the images have no labels.
    pub fn label_ids(&self) -> Result<Vec<u32>> {
        match &self.set.labels {
            Some(names) => Ok(labels::encode(names).ids),
            None => Err(gallerist_data::Error::NoLabels {
                purpose: "evaluation",
                path: self.set.source.clone().unwrap_or_default(),
            }
            .into()),
        }
    }
}

/// What the fingerprint covers beside the weights: network, input, preprocessing.
pub(crate) fn description(config: &RunConfig, input: InputShape) -> String {
    let input = [input.channels, input.height, input.width];
    serde_json::to_string(&(&config.network, &config.image, input)).expect("plain data")
}

impl Model {
    pub(crate) fn new(config: RunConfig, input: InputShape, network: Network) -> Self {
        let fingerprint = checkpoint::fingerprint(&params::collect(&network), &description(&config, input));
        Model { config, network, fingerprint, step: 0, normalize: true }
    }

    /// The model of a checkpoint.
    ///
    /// # Errors
    ///
    /// When the file is damaged or not one of ours, or its tensors do not fit its run file.
    pub fn load(path: &Path) -> Result<Self> {
        let Checkpoint { header, network: tensors, .. } = Checkpoint::load(path)?;
        let bad = |reason: String| Error::Checkpoint { path: path.into(), reason, hint: None };
        let config = RunConfig::parse(&header.config, "in the checkpoint", &[])?;
        let [channels, height, width] = header.input;
        let input = InputShape { channels, height, width };
        let network = config.network.init(input, 0, &Device::flex())?;
        let (network, mismatch) = params::load(network, tensors);
        if !mismatch.is_empty() {
            return Err(bad(mismatch.to_string()));
        }
        let model = Model { step: header.step, ..Model::new(config, input, network.valid()) };
        if model.fingerprint != header.fingerprint {
            return Err(bad("its tensors do not give the fingerprint it names; the file is damaged".into()));
        }
        Ok(model)
    }

    /// The model of a run.
    ///
    /// # Errors
    ///
    /// When there is no run in the directory, or as for [`Model::load`].
    pub fn open(run: &Path, which: Which) -> Result<Self> {
        let directory = RunDirectory::open(run)?;
        let path = directory.checkpoint(which);
        if !path.exists() {
            let hint = match which {
                Which::Best => "the run was not finished; go on with --resume, or use --checkpoint last",
                Which::Last => "the run has not begun",
            };
            return Err(Error::Checkpoint { path, reason: "no such file".into(), hint: Some(hint.into()) });
        }
        Model::load(&path)
    }

    /// Embeddings as the network gives them instead of rows of length 1.
    pub fn raw(mut self) -> Self {
        self.normalize = false;
        self
    }

    /// SHA-256 over weights, network and preprocessing, 64 hexadecimal digits: equal fingerprints
    /// mean comparable embeddings.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Steps the model was trained for.
    pub fn step(&self) -> usize {
        self.step
    }

    /// The run file the model was trained with.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// Embeds a set of images, decoding on `threads` threads (0: one per core).
    ///
    /// `progress` is called with the images done and all images. An image that cannot be read is
    /// reported in [`Embedded::broken`] and has no row.
    ///
    /// # Errors
    ///
    /// When no image can be read.
    pub fn embed(
        &self,
        images: ImageSet,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Embedded> {
        let transform = Transform::evaluation(&self.config.image)?;
        self.embed_store(&Arc::new(ImageStore::new(Arc::new(images), transform, 0)), threads, progress)
    }

    pub(crate) fn embed_store(
        &self,
        store: &Arc<ImageStore>,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Embedded> {
        let set = store.set();
        let device = Device::flex();
        let mut rows: Vec<f32> = Vec::new();
        let mut items: Vec<u32> = Vec::with_capacity(set.len());
        let mut broken = Vec::new();
        let batch_size = self.config.evaluation.batch_size;
        let plan = BatchPlan::in_order(set.len(), batch_size);
        for batch in Loader::new(store.clone(), plan, LoaderOptions::evaluation(resolved(threads)))? {
            let batch = batch?;
            broken.extend(batch.broken.iter().cloned());
            if !batch.items.is_empty() {
                let shape = batch.shape();
                let images = Tensor::<4>::from_data(TensorData::new(batch.images, shape), &device);
                let embeddings = self.network.forward(images);
                let embeddings = if self.normalize { l2_normalize(embeddings) } else { embeddings };
                rows.extend(embeddings.into_data().try_into_vec::<f32>().expect("embeddings are f32"));
                items.extend(&batch.items);
            }
            progress(items.len() + broken.len(), set.len());
        }
        if items.is_empty() {
            let first = broken.first().map_or("there is none".into(), ToString::to_string);
            return Err(Error::NoImages { count: set.len(), origin: set.name().into(), first });
        }
        let embeddings = Matrix::new(items.len(), rows.len() / items.len(), rows)?;
        let pick = |of: &dyn Fn(usize) -> String| items.iter().map(|&i| of(i as usize)).collect::<Vec<_>>();
        let set = EmbeddingSet {
            embeddings,
            labels: set.labels().map(|ids| pick(&|i| set.class_names()[ids[i] as usize].clone())),
            paths: Some(pick(&|i| set.path(i).to_string())),
            cameras: set.cameras().map(|cameras| pick(&|i| cameras[i].clone())),
            model: Some(self.fingerprint.clone()),
            source: Some(set.name().to_string()),
            run: None,
        };
        Ok(Embedded { set, broken })
    }
}
