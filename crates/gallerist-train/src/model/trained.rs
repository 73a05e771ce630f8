//! A trained network with its preprocessing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use burn::module::Module;
use burn::tensor::Device;
use gallerist_collective::{Collective, Single};
use gallerist_data::ImageConfig;
use gallerist_nn::{
    AnyEmbedder, Architecture, Combine, Engine, HeadChoice, InputShape, OnnxConfig, Prepared, Products,
    Ranges, int8_unit,
};
use gallerist_onnx::TextModel;
use gallerist_retrieval::fingerprint;
use gallerist_retrieval::search::Metric;
use gallerist_tensor::params;
use serde_json::json;

use crate::checkpoint::{self, Checkpoint};
use crate::config::{CheckpointKind, Difference, RunConfig, differences};
use crate::directory::RunDirectory;
use crate::{Error, Result};

/// A trained network with its preprocessing.
///
/// # Example
///
/// ```no_run
/// use std::path::Path;
/// use gallerist_data::ImageSet;
/// use gallerist_train::model::Model;
///
/// let model = Model::load(Path::new("runs/omniglot/checkpoints/best.safetensors"))?;
/// let gallery = model.embed(ImageSet::open("photos")?, 0, &mut |done, all| eprintln!("{done}/{all}"))?;
/// gallery.set.save("photos.safetensors")?;
/// # Ok::<(), gallerist_train::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    pub(super) config: RunConfig,
    pub(super) input: InputShape,
    pub(super) network: AnyEmbedder,
    /// The fingerprint of weights, network and preprocessing.
    pub(super) base_fingerprint: String,
    /// The same with the marks of the heads and of unscaled rows.
    pub(super) fingerprint: String,
    pub(super) step: usize,
    /// Whether rows are scaled to length 1; `None`: determined by the metric.
    normalize: Option<bool>,
    /// The metric of the embeddings of this model, if it is not that of the run.
    declared: Option<Metric>,
    pub(super) heads: HeadChoice,
    pub(super) places: Vec<usize>,
    pub(super) device: Device,
    /// Whether an image that cannot be read is an error.
    pub(super) strict: bool,
    /// Who shares the work.
    pub(super) ranks: Arc<dyn Collective>,
    /// The file of the checkpoint, if it is one's.
    pub(super) checkpoint: Option<PathBuf>,
    /// The ranges of the network's values, for int8.
    ranges: Option<Ranges>,
    /// The network prepared for embedding on the CPU, made by the first pass.
    prepared: OnceLock<Option<Prepared>>,
    /// The text tower, opened by the first text.
    pub(super) text: OnceLock<TextModel>,
}

/// What the fingerprint says of a network in addition to its weights: its architecture without the engine of an ONNX model, and
/// the processing of images.
fn described(config: &RunConfig) -> (Architecture, &ImageConfig) {
    let mut architecture = config.network.architecture.clone();
    if let Some(network) = architecture.downcast_ref::<OnnxConfig>() {
        architecture = OnnxConfig { engine: Engine::default(), ..network.clone() }.into();
    }
    (architecture, &config.image)
}

/// The values of `trained` that a network and its images have, where `here` has others: `image.size = 28`.
fn changed_keys(trained: &RunConfig, here: &RunConfig) -> Vec<String> {
    let described = |config: &RunConfig| {
        let (network, image) = described(config);
        json!({"network": network, "image": image})
    };
    let shown = |of: Difference| match of.before {
        Some(value) => format!("{} = {value}", of.key),
        None => format!("no {}", of.key),
    };
    differences(&described(trained), &described(here)).into_iter().map(shown).collect()
}

/// The parts of the fingerprint in addition to the weights: network, input, preprocessing. The engine of an ONNX model is not one of
/// them: another engine changes the embeddings by their rounding.
pub(crate) fn description(config: &RunConfig, input: InputShape) -> String {
    let input = [input.channels, input.height, input.width];
    let (architecture, image) = described(config);
    serde_json::to_string(&(&architecture, image, input)).expect("plain data")
}

impl Model {
    pub(crate) fn new(config: RunConfig, input: InputShape, network: AnyEmbedder) -> Self {
        let base_fingerprint =
            checkpoint::fingerprint(&params::collect(&network), &description(&config, input));
        let heads = HeadChoice::default();
        let places = (0..config.network.heads().len()).collect();
        let device = network.devices().pop().map_or_else(Device::flex, Device::inner);
        Model {
            strict: config.data.strict,
            config,
            input,
            network,
            fingerprint: base_fingerprint.clone(),
            base_fingerprint,
            step: 0,
            normalize: None,
            declared: None,
            heads,
            places,
            device,
            ranks: Arc::new(Single),
            checkpoint: None,
            ranges: None,
            prepared: OnceLock::new(),
            text: OnceLock::new(),
        }
    }

    /// The network prepared for embedding images of this shape, `[.., channels, height, width]`; `None` on another device
    /// than the CPU, for another shape than the model's input, and for a network without a prepared form.
    pub(super) fn prepared(&self, [_, channels, height, width]: [usize; 4]) -> Option<&Prepared> {
        if self.device != Device::flex() || self.input != (InputShape { channels, height, width }) {
            return None;
        }
        let prepare = || match (self.config.evaluation.products, &self.ranges) {
            (Products::Int8, Some(ranges)) if int8_unit().is_some() => {
                self.network.prepare_int8(self.input, ranges)
            }
            (products, _) => self.network.prepare(self.input, products),
        };
        self.prepared.get_or_init(prepare).as_ref()
    }

    /// The model with its network on another device; [`Model::load`] loads it to the CPU.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use gallerist_tensor::device::DeviceChoice;
    /// use gallerist_train::model::Model;
    ///
    /// let device = DeviceChoice::Auto.open()?;
    /// let model = Model::load(Path::new("runs/omniglot/checkpoints/best.safetensors"))?.on(device.device());
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    pub fn on(self, device: &Device) -> Self {
        if self.device == *device {
            return self;
        }
        let (network, device) = (self.network.to_device(device), device.clone());
        Model { network, device, prepared: OnceLock::new(), ..self }
    }

    /// The model with these products instead of those of its run file (`evaluation.products`). Int8 reads the ranges of the
    /// network's values, which [`calibrate`](Self::calibrate) has measured, from a file in the checkpoint's folder. A model whose run
    /// file wants int8 is opened with that file; if there is none, it embeds in f32. CPUs without AVX-512 VNNI compute in f32, which is faster
    /// there.
    ///
    /// # Errors
    ///
    /// For int8 without ranges of this checkpoint.
    pub fn with_products(mut self, products: Products) -> Result<Self> {
        if products == Products::Int8 && self.ranges.is_none() {
            let ranges = self.read_ranges()?;
            self.take_ranges(ranges);
        } else if self.config.evaluation.products != products {
            self.prepared = OnceLock::new();
        }
        self.config.evaluation.products = products;
        Ok(self)
    }

    /// Embeds in int8 from now on, where the CPU has instructions for it.
    fn take_ranges(&mut self, (ranges, prepared): (Ranges, Prepared)) {
        self.ranges = Some(ranges);
        self.prepared = match int8_unit() {
            Some(_) => OnceLock::from(Some(prepared)),
            None => OnceLock::new(),
        };
    }

    /// The products of the network on the CPU.
    pub fn products(&self) -> Products {
        self.config.evaluation.products
    }

    /// The model with images embedded by all of `ranks`: every rank calls the same methods with the same images,
    /// embeds its part of them, and gets the embeddings of all.
    pub fn among(self, ranks: Arc<dyn Collective>) -> Self {
        Model { ranks, ..self }
    }

    /// The model of a checkpoint.
    ///
    /// # Errors
    ///
    /// When the file is damaged or not one of ours, or its tensors do not fit its run file.
    pub fn load(path: &Path) -> Result<Self> {
        let checkpoint = Checkpoint::load(path)?;
        let config = RunConfig::parse(&checkpoint.header.config, "in the checkpoint", &[])?;
        Self::of_checkpoint(config, checkpoint, path)
    }

    /// The model of a checkpoint whose run was started with parts given as values
    /// ([`TrainerBuilder`](crate::TrainerBuilder)). The configuration is given again, because the checkpoint keeps only
    /// the names and parameters of its parts.
    ///
    /// # Errors
    ///
    /// As [`Model::load`]; when the configuration gives another network or prepares images in another way.
    pub fn load_with(config: &RunConfig, path: &Path) -> Result<Self> {
        Self::of_checkpoint(config.clone(), Checkpoint::load(path)?, path)
    }

    fn of_checkpoint(config: RunConfig, checkpoint: Checkpoint, path: &Path) -> Result<Self> {
        let Checkpoint { header, network: tensors, .. } = checkpoint;
        let bad = |reason: String| Error::Checkpoint { path: path.into(), reason, hint: None };
        let [channels, height, width] = header.input;
        let input = InputShape { channels, height, width };
        let network = config.network.init(input, 0, &Device::flex())?;
        let (network, mismatch) = params::load(network, tensors);
        if !mismatch.is_empty() {
            return Err(bad(mismatch.to_string()));
        }
        let mut model = Model { step: header.step, ..Model::new(config, input, network.valid()) };
        if model.base_fingerprint != header.fingerprint {
            return Err(bad("its tensors do not give the fingerprint it names; the file is damaged".into()));
        }
        model.checkpoint = Some(path.into());
        if model.products() == Products::Int8
            && let Ok(ranges) = model.read_ranges()
        {
            model.take_ranges(ranges);
        }
        let heads = model.config.evaluation.head_choice();
        model.with_heads(heads)
    }

    /// Embeddings made of these heads instead of those of the run file's `[evaluation.heads]`.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](gallerist_tensor::Error::Value) for a head that the network does not have.
    pub fn with_heads(mut self, heads: HeadChoice) -> Result<Self> {
        self.places = heads.places(&self.config.network.heads())?;
        self.heads = heads;
        Ok(self.marked())
    }

    /// The model with the fingerprint of the rows that it makes.
    fn marked(mut self) -> Self {
        let plain = format!("{}{}", self.base_fingerprint, self.heads.mark());
        let is_unscaled = self.metric() == Metric::Cosine && !self.normalizes();
        self.fingerprint = if is_unscaled { fingerprint::unscaled(&plain) } else { plain };
        self
    }

    /// The model with the heads and the row length of embeddings that carry `fingerprint` and declare `metric`; `None`
    /// if they come from another model. Embeddings that declare no metric have length 1, unless their fingerprint is marked.
    pub fn matching(self, fingerprint: &str, metric: Option<Metric>) -> Option<Self> {
        let (plain, is_unscaled) = fingerprint::split(fingerprint);
        let (wanted, heads) = HeadChoice::of_fingerprint(plain);
        if self.base_fingerprint != wanted {
            return None;
        }
        let normalize = is_unscaled.then_some(false);
        let model = Model { declared: Some(metric.unwrap_or_default()), normalize, ..self };
        model.with_heads(heads).ok()
    }

    /// The model of a run, of its best or last checkpoint; `None`: the one that the run was measured with
    /// (`evaluation.checkpoint`).
    ///
    /// # Errors
    ///
    /// When there is no run in the directory, its `config.toml` has another network or other images than the checkpoint, or as for
    /// [`Model::load`].
    pub fn open(run: &Path, which: impl Into<Option<CheckpointKind>>) -> Result<Self> {
        let directory = RunDirectory::open(run)?;
        // The run file finds its files after the run was moved; the checkpoint names their old place.
        let here = RunConfig::load(&directory.config(), &[])?;
        let which = which.into().unwrap_or(here.evaluation.checkpoint);
        let path = directory.checkpoint(which);
        if !path.exists() {
            let has = |which| directory.checkpoint(which).exists();
            let has_steps = || std::fs::metadata(directory.log()).is_ok_and(|log| log.len() > 0);
            let hint = match which {
                CheckpointKind::Best if has(CheckpointKind::Last) => {
                    "the run is not finished; continue it with --resume, or use --checkpoint last"
                }
                CheckpointKind::Last if has(CheckpointKind::Best) => {
                    "the run has its best checkpoint only; use --checkpoint best"
                }
                _ if has_steps() => {
                    "the run has no checkpoints any more (`gallerist tune` removes those of its runs); train its config.toml again"
                }
                _ => "the run has not begun",
            };
            return Err(Error::Checkpoint { path, reason: "no such file".into(), hint: Some(hint.into()) });
        }
        let checkpoint = Checkpoint::load(&path)?;
        let mut config = RunConfig::parse(&checkpoint.header.config, "in the checkpoint", &[])?;
        let changes = changed_keys(&config, &here);
        if !changes.is_empty() {
            return Err(Error::from(gallerist_tensor::Error::Conflict {
                message: format!("`{}` has other values than the checkpoint", directory.config().display()),
                hint: format!("put back {}, or train again with the changed file", changes.join(", ")),
            }));
        }
        (config.network, config.text, config.data) = (here.network, here.text, here.data);
        config.evaluation = here.evaluation;
        (config.train.threads, config.train.loader_threads) = (here.train.threads, here.train.loader_threads);
        Self::of_checkpoint(config, checkpoint, &path)
    }

    /// Rows of length 1 (`true`), or as the network returns them, for any [metric](Self::metric) of the run. Rows as the
    /// network returns them, for the cosine, have a [fingerprint](Self::fingerprint) with the mark of
    /// [`gallerist_retrieval::fingerprint`].
    pub fn normalized(self, normalize: bool) -> Self {
        Model { normalize: Some(normalize), ..self }.marked()
    }

    /// The metric for the embeddings, which every file of them names: as the run
    /// [declares](RunConfig::metric), or the cosine for rows that were [scaled](Self::normalized) on request.
    pub fn metric(&self) -> Metric {
        let scaled = self.normalize == Some(true) || self.heads.combine == Combine::NormalizeThenConcat;
        if scaled { Metric::Cosine } else { self.declared.unwrap_or_else(|| self.config.metric()) }
    }

    /// Whether rows have length 1.
    pub(super) fn normalizes(&self) -> bool {
        self.normalize.unwrap_or_else(|| self.metric() == Metric::Cosine)
    }

    /// The model with the first image that cannot be read as an error; `false` as the run file says (`data.strict`).
    pub fn strict(self, strict: bool) -> Self {
        Model { strict: strict || self.strict, ..self }
    }

    /// Caches decoded images in this folder, which is created if necessary, instead of in the run
    /// file's `data.cache_folder`; `None`: no cache.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the folder cannot be made.
    pub fn with_cache(mut self, folder: Option<&Path>) -> Result<Self> {
        if let Some(folder) = folder {
            let failed = |source| Error::Io { action: "create", path: folder.into(), source };
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        self.config.data.cache_folder = folder.map(Path::to_owned);
        Ok(self)
    }

    /// SHA-256 over weights, network and preprocessing, 64 hexadecimal digits, and a mark such as
    /// `@L+M` where not all heads make the embedding, or `#unscaled` for rows that have to be
    /// [scaled](Self::normalized) before they are compared by the cosine: equal fingerprints mean comparable embeddings.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_file_with_other_values_than_the_checkpoint_is_refused_and_its_evaluation_and_threads_count() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[image]\nsize = 16\n[network]\nkind = \"conv_blocks\"\nchannels = [16]\ndimensions = 8\n";
        let config = RunConfig::parse(text, "a test", &[]).unwrap();
        let run = Model::untrained(&config).unwrap().save_run(folder.path()).unwrap();
        let written = std::fs::read_to_string(run.config()).unwrap();
        let change = |from: &str, to: &str| {
            assert!(written.contains(from), "{written}");
            std::fs::write(run.config(), written.replace(from, to)).unwrap();
            Model::open(folder.path(), CheckpointKind::Best)
        };
        for (from, to) in [("size = 16", "size = 8"), ("channels = [16]", "channels = [16, 16]")] {
            let error = change(from, to).unwrap_err();
            assert!(
                error.to_string().ends_with("config.toml` has other values than the checkpoint"),
                "{error}"
            );
            let hint = error.hint().unwrap();
            let (key, _) = from.split_once(" = ").unwrap();
            assert!(hint.contains(&format!(".{key} = ")), "{hint}");
        }
        let model = change("[evaluation]", "[evaluation]\nproducts = \"f32-direct\"").unwrap();
        assert_eq!(model.products(), Products::F32Direct);
        let model = change("loader_threads = 0", "loader_threads = 3").unwrap();
        assert_eq!(model.config().train.loader_threads, 3);
    }
}
