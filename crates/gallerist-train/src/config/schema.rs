//! The sections and keys of a run file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use gallerist_data::{
    AugmentConfig, DatasetLayout, ImageConfig, ImageSet, LabelFrom, OpenOptions, SamplerConfig,
};
use gallerist_loss::cross_batch::XbmConfig;
use gallerist_nn::{Combine, HeadChoice, NetworkConfig, Products};
use gallerist_retrieval::cluster::Preset;
use gallerist_retrieval::eval::{
    Bootstrap, FewShotOptions, OpenSetOptions, ThresholdOptions, VerificationOptions,
};
use gallerist_retrieval::rerank::{KReciprocal, QueryExpansion};
use gallerist_retrieval::search::Metric;
use gallerist_tensor::device::DeviceChoice;
use serde::{Deserialize, Serialize};

use super::losses::{LossTerm, LossTerms};
use super::text::TextConfig;
use crate::nonfinite::OnNonfinite;
use crate::optim::{OptimizerConfig, ScheduleConfig};
use crate::precision::Precision;
use crate::{Error, Result};

/// The run file with every key, its default and its meaning.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// A run file, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Steps, seed, threads.
    pub train: TrainConfig,
    /// The images.
    pub data: DataConfig,
    /// Held-out classes for choosing the best checkpoint.
    pub validation: ValidationConfig,
    /// The preparation of images for the network.
    pub image: ImageConfig,
    /// Augmentation of the training images.
    pub augment: AugmentConfig,
    /// The composition of batches.
    pub sampler: SamplerConfig,
    /// The network.
    pub network: NetworkConfig,
    /// The text tower that belongs to the network; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextConfig>,
    /// The loss, or the losses whose weighted sum is minimised.
    pub loss: LossTerms,
    /// Cross-batch memory; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xbm: Option<XbmConfig>,
    /// Training by several processes.
    pub distributed: DistributedConfig,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// The learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// The evaluation.
    pub evaluation: EvaluationConfig,
    /// The content of the report.
    pub report: ReportConfig,
    /// Logs in addition to `log.jsonl`.
    pub log: LogConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            train: TrainConfig::default(),
            data: DataConfig::default(),
            validation: ValidationConfig::default(),
            image: ImageConfig::new(224, 3),
            augment: AugmentConfig::default(),
            sampler: SamplerConfig::default(),
            network: NetworkConfig::default(),
            text: None,
            loss: LossTerms::default(),
            xbm: None,
            distributed: DistributedConfig::default(),
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            evaluation: EvaluationConfig::default(),
            report: ReportConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimiser steps.
    pub steps: usize,
    /// Seed of all random numbers but those of a part with a key `seed` of its own, such as the miner `distance_weighted`.
    pub seed: u64,
    /// The device of the network.
    pub device: DeviceChoice,
    /// The dtype in which the network computes; its weights are always f32.
    pub precision: Precision,
    /// Compute threads; 0: one per core.
    pub threads: usize,
    /// Threads that decode and augment; 0: one per core.
    pub loader_threads: usize,
    /// Batches prepared ahead.
    pub prefetch: usize,
    /// Whether embeddings are L2-normalised before the loss; absent: as the loss's paper does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// A checkpoint is written every so many steps; 0: only at the end.
    pub checkpoint_every: usize,
    /// Batches per step; a step uses their mean gradient.
    pub accumulate: usize,
    /// Whether results within the network are computed again for the gradients instead of being kept
    /// ([`Network::forward_checkpointed`](gallerist_nn::Network::forward_checkpointed)): the same gradients with less memory,
    /// in about a third more time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gradient_checkpointing: bool,
    /// What is done about a step whose loss, gradient or weights are not finite.
    #[serde(skip_serializing_if = "OnNonfinite::is_default")]
    pub on_nonfinite: OnNonfinite,
    /// Decay of a moving average of the weights, which is used for embedding; absent: no average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub average_decay: Option<f64>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            steps: 2000,
            seed: 1,
            device: DeviceChoice::Auto,
            precision: Precision::F32,
            threads: 0,
            loader_threads: 0,
            prefetch: 4,
            normalize: None,
            checkpoint_every: 500,
            accumulate: 1,
            gradient_checkpointing: false,
            on_nonfinite: OnNonfinite::Stop,
            average_decay: None,
        }
    }
}

/// Threads for loading: `0` means one per core.
pub(crate) fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

/// `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Training images: folders, zips or CSV manifests; relative paths start at the run file's
    /// directory or, where nothing is found there, at the current one. Paths of `--set` start at the current one.
    pub train: Vec<PathBuf>,
    /// Test images, of classes that are not trained; absent: no evaluation at the end. If they
    /// have the splits `query` and `gallery`, the queries are compared with the gallery, else every image
    /// with the others.
    pub test: Vec<PathBuf>,
    /// Instead of `test`: images that are compared with those of `gallery`.
    pub query: Vec<PathBuf>,
    /// Instead of `test`: the gallery for the images of `query`.
    pub gallery: Vec<PathBuf>,
    /// Instead of `test`: the share of the classes of `train` whose images are the test images and do not train;
    /// absent: none. The choice depends only on the number of classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_fraction: Option<f64>,
    /// The test images are not measured at the end; those of `test_fraction` do not train either. For searches among
    /// run files, which must not use test images.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_test: bool,
    /// Layout of the images; absent: detected from the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<DatasetLayout>,
    /// The split to train on, as the layout, the `split` column of a manifest or the names of folders have
    /// it; absent: `train` where the layout is a published data set's, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_split: Option<String>,
    /// The split to test on; absent: `test` where the layout is a published data set's, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_split: Option<String>,
    /// The split of `query`; absent: `query` where there is one, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_split: Option<String>,
    /// The split of `gallery`; absent: `gallery` where there is one, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gallery_split: Option<String>,
    /// CSV files of corrections of the training images, as `gallerist data issues` writes them and you fill them: labels
    /// change, images are left out; absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relabel: Vec<PathBuf>,
    /// The SHA-256 of the files of `relabel`; the program writes it when the run starts. With other contents, the run
    /// does not continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relabel_sha256: Option<String>,
    /// Which part of a label is the class: `path` (`Fruit/Apple`) or `leaf` (`Apple`).
    pub label: LabelFrom,
    /// Whether images are cropped to their bounding boxes, in training and test, if the annotations have them.
    pub crop_boxes: bool,
    /// At most so many training classes, the first in the order of the set; 0: all.
    pub max_train_classes: usize,
    /// At most so many test classes; 0: all. Of queries and a gallery, the queries' classes are counted, and the
    /// gallery keeps these classes and the images that are relevant to no query.
    pub max_test_classes: usize,
    /// Whether every training class, rotated by 90, 180 and 270 degrees, gives three further classes.
    pub rotation_classes: bool,
    /// Whether the first image that cannot be read ends the run, and embedding with its network, with an error. Otherwise
    /// such images are reported, and in training another image of their class takes their place.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Memory for decoded images, in MiB; images that do not fit are decoded again when needed.
    pub cache_mib: usize,
    /// Folder for decoded images that later runs, and embedding with this one, find again, at the size at which they
    /// are kept; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_folder: Option<PathBuf>,
    /// The run directory that this run file was written into, in run files of earlier versions; now it is in
    /// `place.toml`. Paths that are gone are looked for at the same place relative to where the run file is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_directory: Option<PathBuf>,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            train: Vec::new(),
            test: Vec::new(),
            query: Vec::new(),
            gallery: Vec::new(),
            test_fraction: None,
            without_test: false,
            layout: None,
            train_split: None,
            test_split: None,
            query_split: None,
            gallery_split: None,
            relabel: Vec::new(),
            relabel_sha256: None,
            label: LabelFrom::Path,
            crop_boxes: false,
            max_train_classes: 0,
            max_test_classes: 0,
            rotation_classes: false,
            strict: false,
            cache_mib: 1024,
            cache_folder: None,
            run_directory: None,
        }
    }
}

/// The images of other classes, and those of these classes.
pub(crate) fn by_classes(set: &ImageSet, classes: &BTreeSet<String>) -> (ImageSet, ImageSet) {
    let name = |i: u32| set.labels().map(|labels| &set.class_names()[labels[i as usize] as usize]);
    let (inside, outside): (Vec<u32>, Vec<u32>) =
        (0..set.len() as u32).partition(|&i| name(i).is_some_and(|name| classes.contains(name)));
    (set.subset(&outside), set.subset(&inside))
}

impl DataConfig {
    /// How the training images are opened.
    pub fn train_options(&self) -> OpenOptions {
        let options = self.options(&self.train_split, "train", self.max_train_classes);
        OpenOptions { relabel: self.relabel.clone(), ..options }
    }

    /// How the test images are opened.
    pub fn test_options(&self) -> OpenOptions {
        self.options(&self.test_split, "test", self.max_test_classes)
    }

    /// How the images of `query` are opened.
    pub fn query_options(&self) -> OpenOptions {
        self.options(&self.query_split, "query", 0)
    }

    /// How the images of `gallery` are opened.
    pub fn gallery_options(&self) -> OpenOptions {
        self.options(&self.gallery_split, "gallery", 0)
    }

    /// Whether the run has test images to measure.
    pub fn has_test(&self) -> bool {
        let named = !self.test.is_empty() || !self.query.is_empty() || self.test_fraction.is_some();
        named && !self.without_test
    }

    /// The images of `train`: those that train (and validate), and the test images that `test_fraction` holds out.
    ///
    /// # Errors
    ///
    /// When `train` is empty, the images cannot be read, or they have fewer than two classes to divide.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # for class in ["heron", "owl", "tern", "wren"] {
    /// #     std::fs::create_dir_all(folder.path().join(class)).unwrap();
    /// #     std::fs::write(folder.path().join(class).join("1.png"), "").unwrap();
    /// # }
    /// use gallerist_train::DataConfig;
    ///
    /// let train = vec![folder.path().to_path_buf()];
    /// let data = DataConfig { train, test_fraction: Some(0.5), ..DataConfig::default() };
    /// let (train, test) = data.open_train()?;
    /// assert_eq!((train.class_names().len(), test.unwrap().class_names().len()), (2, 2));
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    pub fn open_train(&self) -> Result<(ImageSet, Option<ImageSet>)> {
        self.check_corrections()?;
        self.open_train_without(None)
    }

    /// As [`open_train`](Self::open_train), with the corrections as they are; `held_out` are the labels of the test images in
    /// place of those that `test_fraction` chooses.
    pub(crate) fn open_train_without(
        &self,
        held_out: Option<&BTreeSet<String>>,
    ) -> Result<(ImageSet, Option<ImageSet>)> {
        if self.train.is_empty() {
            return Err(gallerist_tensor::Error::Value {
                key: "data.train".into(),
                wanted: "a list of folders, zips or manifests".into(),
                found: "empty".into(),
            }
            .into());
        }
        let set = ImageSet::open_with(&self.train, &self.train_options())?;
        let Some(fraction) = self.test_fraction else { return Ok((set, None)) };
        let (train, test) = match held_out {
            Some(classes) => by_classes(&set, classes),
            None => set.split_classes(fraction, TEST_SEED)?,
        };
        Ok((train, Some(test)))
    }

    /// Whether the test images are those that `test_fraction` holds out.
    pub(crate) fn holds_out_test(&self) -> bool {
        self.has_test() && self.test.is_empty() && self.query.is_empty()
    }

    /// The SHA-256 of the files of `relabel`, where there are any.
    ///
    /// # Errors
    ///
    /// When one of them cannot be read.
    pub fn digest_of_corrections(&self) -> Result<Option<String>> {
        if self.relabel.is_empty() {
            return Ok(None);
        }
        Ok(Some(gallerist_data::digest_of_corrections(&self.relabel)?))
    }

    /// Refuses other corrections than those that the run started with.
    pub(crate) fn check_corrections(&self) -> Result<()> {
        if self.relabel_sha256.is_none() || self.relabel_sha256 == self.digest_of_corrections()? {
            return Ok(());
        }
        let files: Vec<String> = self.relabel.iter().map(|file| format!("`{}`", file.display())).collect();
        Err(Error::ChangedCorrections { files: files.join(", ") })
    }

    pub(super) fn validate(&self) -> Result<()> {
        if let Some(fraction) = self.test_fraction {
            let fits = fraction > 0.0 && fraction < 1.0;
            let wanted = "above 0 and below 1; absent: no classes are held out";
            gallerist_tensor::Error::require("data.test_fraction".into(), fraction, fits, wanted)?;
        }
        let refuse = |problem: String, hint: &str| Err(Error::TestImages { problem, hint: hint.into() });
        let given = |paths: &Vec<PathBuf>| !paths.is_empty();
        let sides = [("data.query", &self.query), ("data.gallery", &self.gallery)];
        let named =
            [("data.test", &self.test), sides[0], sides[1]].into_iter().find(|(_, paths)| given(paths));
        if let (Some(_), Some((key, _))) = (self.test_fraction, named) {
            return refuse(
                format!("data.test_fraction and {key} are both given"),
                "leave out data.test_fraction to test on other images than those of data.train",
            );
        }
        if let (true, Some((key, _))) = (given(&self.test), sides.iter().find(|(_, paths)| given(paths))) {
            return refuse(
                format!("data.test and {key} are both given"),
                "give data.test (every image against the others, or its split `query` against its split `gallery`), \
                 or data.query and data.gallery",
            );
        }
        if given(&self.query) != given(&self.gallery) {
            let [there, missing] = if given(&self.query) { [0, 1] } else { [1, 0] };
            return refuse(
                format!("{} is given, and {} is not", sides[there].0, sides[missing].0),
                "give both, or data.test in place of them to compare every image with the others",
            );
        }
        let splits = [("data.query_split", &self.query_split), ("data.gallery_split", &self.gallery_split)];
        if let (false, Some((key, _))) =
            (given(&self.query), splits.iter().find(|(_, split)| split.is_some()))
        {
            return refuse(
                format!("{key} is given, and data.query and data.gallery are not"),
                "give the images as data.query and data.gallery; they may be the same",
            );
        }
        Ok(())
    }

    fn options(&self, split: &Option<String>, default: &str, max_classes: usize) -> OpenOptions {
        OpenOptions {
            layout: self.layout,
            split: split.clone(),
            default_split: Some(default.to_owned()),
            label_from: self.label,
            crop_boxes: self.crop_boxes,
            // 0 means no limit.
            max_classes: (max_classes > 0).then_some(max_classes),
            ..OpenOptions::default()
        }
    }
}

/// Seed of the classes that `data.test_fraction` holds out. It is fixed, so that runs of other seeds have the same test.
const TEST_SEED: u64 = 0;

/// `[validation]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// Share of the training classes that is held out for validation; 0: no validation, the last
    /// checkpoint is the best.
    pub fraction: f64,
    /// Held out in place of `fraction`: one of several equal parts of the training classes; absent: `fraction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<Fold>,
    /// Seed of the choice of classes.
    pub seed: u64,
    /// Validation every so many steps, and at the last.
    pub every: usize,
    /// The metric by which the best checkpoint is chosen.
    pub metric: String,
}

impl Default for ValidationConfig {
    fn default() -> Self {
        ValidationConfig { fraction: 0.1, fold: None, seed: 0, every: 200, metric: "map@r".into() }
    }
}

impl ValidationConfig {
    /// Whether the same classes of a set are held out.
    pub(crate) fn holds_out_as(&self, other: &ValidationConfig) -> bool {
        let choice = |of: &ValidationConfig| (of.fold, of.fold.is_none().then_some(of.fraction), of.seed);
        choice(self) == choice(other)
    }
}

/// `validation.fold`: one of the class-disjoint parts that the training classes are divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fold {
    /// The number of the fold, from 1.
    pub number: usize,
    /// Number of folds, 2 or more.
    pub of: usize,
}

/// Default memory for the feature maps of a batch that is embedded, in MiB per compute thread. A higher value is slower:
/// maps that do not fit into the CPU caches are read from memory again.
pub const MEMORY_PER_THREAD_MIB: usize = 16;

/// The same on a GPU, in total. A GPU needs many images at once for full throughput.
pub const MEMORY_OF_GPU_MIB: usize = 2048;

/// `[evaluation]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// The K of Recall@K.
    pub recall_at: Vec<usize>,
    /// The comparison of embeddings: `cosine` (they are written with length 1) or `euclidean` (they are written as the
    /// network returns them). Absent: depends on the loss, see [`RunConfig::metric`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Images embedded at once; 0: as many as fit into `memory_mib`.
    pub batch_size: usize,
    /// Memory for the feature maps of the images that are embedded at once, in MiB; 0: [`MEMORY_PER_THREAD_MIB`] for
    /// each compute thread, [`MEMORY_OF_GPU_MIB`] on a GPU.
    pub memory_mib: usize,
    /// The products of a network that only embeds, on the CPU. `int8` needs ranges, which `gallerist model calibrate` measures
    /// when the run has ended; its own measurements are in f32.
    #[serde(skip_serializing_if = "are_default")]
    pub products: Products,
    /// Which weights are evaluated on the test set: `last` or `best` (on the validation classes).
    pub checkpoint: CheckpointKind,
    /// The network's heads that make the embedding; empty: all.
    pub heads: Vec<String>,
    /// How several heads become one embedding.
    pub combine: Combine,
    /// The benchmark whose metrics are measured; absent: Recall@K of `recall_at`, precision@1, MAP@R and
    /// R-precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The metrics that are measured instead; empty: those of the protocol, or the default ones.
    pub metrics: Vec<String>,
    /// The k-means for NMI, AMI and pair F1; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Preset>,
    /// Parameters of an additional measurement after re-ranking; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank: Option<KReciprocal>,
    /// Parameters of an additional measurement with expanded queries; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_expansion: Option<QueryExpansion>,
    /// The true accept rates over all pairs; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationOptions>,
    /// Open-set identification: searches for known and unknown identities; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_set: Option<OpenSetOptions>,
    /// The threshold of a match for a wanted false match rate; absent: none. With queries and a gallery its `rate` is
    /// `search`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<ThresholdOptions>,
    /// Retrieval in small galleries; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub few_shot: Option<FewShotOptions>,
    /// Confidence intervals; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
}

/// Run files from before the key keep their text, by which experiments find their runs.
fn are_default(products: &Products) -> bool {
    *products == Products::default()
}

impl EvaluationConfig {
    /// Which heads make the embedding, and how.
    pub fn head_choice(&self) -> HeadChoice {
        HeadChoice { heads: self.heads.clone(), combine: self.combine }
    }
}

gallerist_util::named_values! {
    /// The two checkpoints of a run.
    #[derive(Default)]
    pub enum CheckpointKind {
        /// The one with the best validation result.
        #[default]
        Best = "best", "The one with the best validation result";
        /// The one of the last step.
        Last = "last", "The one of the last step";
    }
}

impl CheckpointKind {
    /// File name in the run's `checkpoints` directory.
    pub fn file_name(self) -> &'static str {
        match self {
            CheckpointKind::Last => "last.safetensors",
            CheckpointKind::Best => "best.safetensors",
        }
    }
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        EvaluationConfig {
            recall_at: vec![1, 2, 4, 8],
            metric: None,
            batch_size: 0,
            memory_mib: 0,
            products: Products::default(),
            checkpoint: CheckpointKind::Best,
            heads: Vec::new(),
            combine: Combine::default(),
            protocol: None,
            metrics: Vec::new(),
            rerank: None,
            query_expansion: None,
            cluster: None,
            verification: None,
            open_set: None,
            threshold: None,
            few_shot: None,
            bootstrap: None,
        }
    }
}

/// `[report]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// Ranked lists shown of queries drawn at random.
    pub queries: usize,
    /// Ranked lists shown of the queries with the lowest average precision.
    pub failures: usize,
    /// Results shown per query.
    pub results: usize,
    /// Draws the map of the embeddings by t-SNE, 17 s of CPU time for 13,000 images.
    pub map: bool,
}

impl Default for ReportConfig {
    fn default() -> Self {
        ReportConfig { queries: 16, failures: 16, results: 10, map: true }
    }
}

/// `[distributed]`: training by several processes (ranks). One process ignores it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DistributedConfig {
    /// Whether batch norm uses the statistics of the whole batch, so that the steps are those of one process; else those
    /// of the images of each rank. Frozen batch norm is not concerned.
    pub sync_batch_norm: bool,
    /// Seconds that a rank waits for the others before it gives up.
    pub timeout_seconds: u64,
}

impl Default for DistributedConfig {
    fn default() -> Self {
        DistributedConfig { sync_batch_norm: true, timeout_seconds: 1800 }
    }
}

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Writes event files and the Embedding Projector's files into the run's folder `tensorboard`.
    pub tensorboard: bool,
    /// Measures the network's kernels on the CPU and writes the seconds of each operation to the run's
    /// `profile.json`; costs no time worth mentioning.
    pub profile: bool,
}

impl RunConfig {
    /// How the run's embeddings are compared: `evaluation.metric`, else as they were trained.
    ///
    /// Embeddings that were scaled to length 1 before the loss are compared by the cosine; others as
    /// [`LossConfig::metric`](gallerist_loss::LossConfig::metric) says. With several losses, the first of those that count in the
    /// last step decides. `evaluation.combine = "normalize_then_concat"` scales rows, and so implies the cosine.
    ///
    /// ```
    /// use gallerist_train::RunConfig;
    /// use gallerist_retrieval::search::Metric;
    ///
    /// let metric = |text| RunConfig::parse(text, "example", &[]).unwrap().metric();
    /// assert_eq!(metric("[loss]\nname = \"rll\""), Metric::Cosine);
    /// assert_eq!(metric("[loss]\nname = \"srt\""), Metric::Euclidean);
    /// assert_eq!(metric("[loss]\nname = \"srt\"\n[train]\nnormalize = true"), Metric::Cosine);
    /// assert_eq!(metric("[loss]\nname = \"srt\"\n[evaluation]\nmetric = \"cosine\""), Metric::Cosine);
    /// ```
    pub fn metric(&self) -> Metric {
        if self.evaluation.combine == Combine::NormalizeThenConcat {
            return Metric::Cosine;
        }
        let of_loss =
            |term: &LossTerm| term.loss.metric(self.train.normalize.unwrap_or(term.loss.normalized()));
        self.evaluation.metric.or_else(|| self.loss.last(self.train.steps).map(of_loss)).unwrap_or_default()
    }
}
