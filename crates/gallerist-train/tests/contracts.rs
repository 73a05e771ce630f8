//! Parts of another crate that break the contract of their trait are refused, and those that use Burn's layers are
//! trained as the built-in ones are.

#[path = "common/seen.rs"]
mod seen;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear};
use burn::tensor::{Device, Int, Tensor};
use gallerist_data::{
    BatchSampler, Image, ImageContent, ImageListing, ImageRecord, ImageSet, ImageSource, SamplerFactory,
};
use gallerist_loss::toolbox::Pairs;
use gallerist_loss::{
    AnyLoss, Lists, LossConfig, LossOutput, LossShape, LossSpec, PairLoss, Progress, RankingLoss,
};
use gallerist_nn::{AnyEmbedder, Embedder, Head, NetworkSpec, Setting};
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::model::Model;
use gallerist_train::{Error, LossTerms, RunConfig, Trainer, TrainerBuilder};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use seen::Seen;

const CLASSES: usize = 6;
const IMAGES: usize = 5;

/// Grey images of 8 x 8 pixels.
struct Pictures {
    labelled: bool,
}

impl ImageSource for Pictures {
    fn name(&self) -> &str {
        "pictures"
    }

    fn list(&mut self) -> Result<ImageListing, gallerist_data::Error> {
        let record = |i: usize| {
            let record = ImageRecord::new(format!("{i}.png"));
            if self.labelled { record.with_label(format!("class {}", i / IMAGES)) } else { record }
        };
        Ok((0..CLASSES * IMAGES).map(record).collect::<Vec<_>>().into())
    }

    fn read(&self, number: usize, _: &str) -> Result<ImageContent, gallerist_data::Error> {
        let (class, number) = (number / IMAGES, number % IMAGES);
        let value = |at: usize| ((at * (class + 1) + 7 * number) % 251) as u8;
        Ok(ImageContent::Decoded(Image::new(8, 8, 1, (0..64).map(value).collect())))
    }
}

fn pictures() -> ImageSet {
    ImageSet::from_source(Pictures { labelled: true }).unwrap()
}

/// A configuration with one field, the fault of the part.
macro_rules! faulty {
    ($config:ident, $name:literal) => {
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        struct $config {
            fault: String,
        }

        impl Named for $config {
            const NAME: &'static str = $name;
        }

        impl $config {
            fn with(fault: &str) -> Self {
                $config { fault: fault.into() }
            }
        }
    };
}

faulty!(NormedConfig, "normed");

/// Two linear layers with Burn's batch norm between them.
#[derive(Module, Debug)]
struct Normed {
    body: Linear,
    norm: BatchNorm,
    head: Linear,
    #[module(skip)]
    fault: String,
}

impl Embedder for Normed {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        let [n, ..] = images.dims();
        let features = self.body.forward(images.flatten(1, 3));
        let output = self.head.forward(self.norm.forward::<2>(features).tanh());
        match self.fault.as_str() {
            "none" => Vec::new(),
            "two" => vec![output.clone(), output],
            "columns" => vec![output.slice([0..n, 0..3])],
            "rows" => vec![output.slice([0..n - 1, 0..4])],
            "detached" => vec![output.detach()],
            _ => vec![output],
        }
    }
}

impl NetworkSpec for NormedConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(4)]
    }

    fn build(&self, setting: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        // Not drawn: the engine's generator is one for the process, and other tests seed it meanwhile.
        let linear = |inputs, outputs| {
            let weight = Tensor::<1, Int>::arange(0..(inputs * outputs) as i64, setting.device).float().sin();
            let weight = weight.div_scalar((inputs as f64).sqrt()).reshape([inputs, outputs]);
            Linear { weight: Param::from_tensor(weight), bias: None }
        };
        let (body, head) = (linear(64, 8), linear(8, 4));
        let norm = BatchNormConfig::new(8).init(setting.device);
        Ok(Normed { body, norm, head, fault: self.fault.clone() }.boxed())
    }
}

faulty!(PullConfig, "pull");

/// Positives attract, negatives repel.
#[derive(Module, Debug)]
struct Pull {
    #[module(skip)]
    fault: String,
}

impl PairLoss for Pull {
    fn forward_lists(&self, lists: &Lists<'_>, _: Progress) -> LossOutput {
        let pairs = Pairs::new(lists);
        let value =
            (lists.distances() * (pairs.positives.clone() - pairs.negatives.clone())).mean().reshape([1]);
        let value = match self.fault.as_str() {
            "detached" => value.detach(),
            "zero" => value.mul_scalar(0.0),
            _ => value,
        };
        LossOutput { value, queries: pairs.queries() }
    }
}

impl LossSpec for PullConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        Pull { fault: self.fault.clone() }.boxed()
    }
}

faulty!(RunsConfig, "runs");

/// Consecutive images, six in a batch.
struct Runs {
    fault: String,
}

impl BatchSampler for Runs {
    fn epoch(&self, _: u64, epoch: u64) -> Vec<Vec<u32>> {
        let mut batches: Vec<Vec<u32>> = (0..5).map(|batch| (6 * batch..6 * batch + 6).collect()).collect();
        match self.fault.as_str() {
            "no batch" => batches.clear(),
            "empty batch" => batches = vec![Vec::new(); 3],
            "index" => batches[1][0] = 1000,
            "short" => batches[4].truncate(4),
            "late" if epoch == 1 => batches.clear(),
            _ => {}
        }
        batches
    }

    fn batch_size(&self) -> usize {
        6
    }
}

impl SamplerFactory for RunsConfig {
    fn batch_size(&self) -> usize {
        6
    }

    fn build(&self, _: &ImageSet) -> Result<Arc<dyn BatchSampler>, gallerist_data::Error> {
        Ok(Arc::new(Runs { fault: self.fault.clone() }))
    }
}

fn config() -> RunConfig {
    let text = "[train]\nsteps = 8\ndevice = \"cpu\"\n[validation]\nfraction = 0.0\n[image]\nsize = 8\nchannels = 1\n\
                [sampler]\nclasses_per_batch = 3\nimages_per_class = 2\n[loss]\nname = \"contrastive\"\n\
                [network]\nchannels = [4]\ndimensions = 4\n";
    RunConfig::parse(text, "a test", &[]).unwrap()
}

fn loss(fault: &str) -> LossTerms {
    LossTerms(vec![LossConfig::from(PullConfig::with(fault)).into()])
}

fn start(config: &RunConfig, directory: &Path) -> Result<Trainer, Error> {
    TrainerBuilder::new(config).images(pictures(), None).start(directory)
}

/// The error of a run that starts.
fn error_of_run(config: &RunConfig) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = start(config, &folder.path().join("run")).unwrap();
    trainer.run(&mut (), &AtomicBool::new(false)).unwrap_err().to_string()
}

#[test]
fn batches_that_cannot_be_trained_are_refused_before_there_is_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    for (fault, problem) in [
        ("no batch", "no batch of 6 from 30 images"),
        ("empty batch", "batch 0 has 0 images, and batch_size() is 6"),
        ("index", "batch 1 has the index 1000, and the set has 30 images"),
        ("short", "batch 4 has 4 images, and batch_size() is 6"),
    ] {
        let config = RunConfig { sampler: RunsConfig::with(fault).into(), ..config() };
        let error = start(&config, &run).err().unwrap();
        assert_eq!(error.to_string(), format!("the sampler `runs`, epoch 0: {problem}"));
        assert!(error.hint().is_some() && !run.exists());
    }
}

#[test]
fn a_later_epoch_without_batches_ends_the_run_with_an_error() {
    let late = RunConfig { sampler: RunsConfig::with("late").into(), ..config() };
    assert_eq!(error_of_run(&late), "the sampler `runs`, epoch 1: no batch of 6 from 30 images");
    // The five steps before it are not lost.
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut all = Seen::default();
    start(&late, &run).unwrap().run(&mut all, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(all.steps.len(), 5);
}

#[test]
fn images_without_labels_are_refused_before_there_is_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut config = config();
    config.sampler = gallerist_data::RandomBatchesConfig { batch_size: 6 }.into();
    let images = ImageSet::from_source(Pictures { labelled: false }).unwrap();
    let error = TrainerBuilder::new(&config).images(images, None).start(&run).err().unwrap();
    assert_eq!(error.to_string(), "training needs class labels, and `pictures` has none");
    assert!(!run.exists());
}

#[test]
fn outputs_that_are_not_those_of_the_heads_are_refused() {
    for (fault, problem) in [
        ("none", "returns 0 outputs and has 1 heads"),
        ("two", "returns 2 outputs and has 1 heads"),
        ("columns", "returns an output [6, 3] for the head `embedding`, which is [6, 4]"),
        ("rows", "returns an output [5, 4] for the head `embedding`, which is [6, 4]"),
    ] {
        let config = RunConfig { network: NormedConfig::with(fault).into(), ..config() };
        assert_eq!(error_of_run(&config), format!("the network `normed` {problem}"));
        // The first checkpoint is a model.
        let folder = tempfile::tempdir().unwrap();
        let model: Model = start(&config, &folder.path().join("run")).unwrap().model();
        let error = model.embed(pictures(), 1, &mut |_, _| ()).unwrap_err().to_string();
        assert!(error.starts_with("the network `normed` returns"), "{error}");
        let image = pictures().decode(0).unwrap();
        assert!(model.embed_image(image.clone()).is_err(), "{fault}");
        assert!(model.embed_with_maps(image).unwrap_err().to_string().contains("returns"), "{fault}");
    }
}

#[test]
fn outputs_and_values_without_gradients_are_refused() {
    let network = RunConfig { network: NormedConfig::with("detached").into(), ..config() };
    assert_eq!(
        error_of_run(&network),
        "the outputs of the network `normed` are not connected to its parameters"
    );
    let value = RunConfig { loss: loss("detached"), ..config() };
    assert_eq!(error_of_run(&value), "the value of the loss `pull` is not connected to the embeddings");
}

#[test]
fn only_steps_without_a_gradient_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let seen = |fault: &str| {
        let config = RunConfig { loss: loss(fault), ..config() };
        let mut seen = Seen::default();
        let mut trainer = start(&config, &folder.path().join(format!("run{fault}"))).unwrap();
        trainer.run(&mut seen, &AtomicBool::new(false)).unwrap();
        seen
    };
    let warned = |seen: &Seen| seen.warnings.iter().filter(|message| message.contains("a gradient")).count();
    let (learning, still) = (seen(""), seen("zero"));
    // Neither counts the pairs that give a gradient.
    assert!(learning.steps.iter().all(|step| step.mined_positives == 0.0 && step.gradient_norm > 0.0));
    assert_eq!(warned(&learning), 0);
    assert!(still.steps.iter().all(|step| step.gradient_norm == 0.0));
    assert_eq!(warned(&still), 1);
    assert!(still.warnings.iter().any(|message| message.starts_with("no pair of the first 5 batches")));
}

#[test]
fn running_statistics_of_burns_batch_norm_do_not_depend_on_threads() {
    let folder = tempfile::tempdir().unwrap();
    let last = |name: &str, steps: usize| {
        let mut config = RunConfig { network: NormedConfig::default().into(), ..config() };
        config.train.steps = steps;
        let run = folder.path().join(name);
        start(&config, &run).unwrap().run(&mut (), &AtomicBool::new(false)).unwrap();
        Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap()
    };
    // The first step moves the statistics, and its checkpoint has them.
    let mean = last("one step", 1).network["norm.running_mean"].try_to_vec::<f32>().unwrap();
    assert!(mean.iter().any(|&value| value != 0.0), "{mean:?}");
    let within = |threads: usize, name: &str| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| last(name, 24)).header.fingerprint
    };
    let alone = within(1, "one thread");
    assert_eq!(within(2, "two threads"), alone);
    // From outside of the pool, a pass runs on any of its threads.
    for number in 0..3 {
        assert_eq!(last(&format!("outside {number}"), 24).header.fingerprint, alone);
    }
}
