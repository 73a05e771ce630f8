//! A network of another crate is trained, resumed and loaded as the built-in ones are.

#[path = "common/own.rs"]
mod own;

use std::sync::atomic::AtomicBool;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_data::ImageSet;
use gallerist_loss::miner::{Candidates, Choice, Miner};
use gallerist_loss::{
    AnyLoss, ContrastiveConfig, Lists, LossConfig, LossOutput, LossShape, LossSpec, PairLoss, Progress,
    Queries, RankingLoss,
};
use gallerist_nn::{AnyEmbedder, Architecture, Embedder, Head, NetworkSpec, Setting};
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::log::Step;
use gallerist_train::model::Model;
use gallerist_train::{CheckpointKind, LossTerms, Observer, RunConfig, RunEnd, Trainer, TrainerBuilder};
use gallerist_util::registry::Named;
use own::{StopAfter, config, images};
use serde::{Deserialize, Serialize};

/// A linear network with two embeddings.
#[derive(Module, Debug)]
struct TwoViews {
    body: Param<Tensor<2>>,
    head: Vec<Param<Tensor<2>>>,
}

impl Embedder for TwoViews {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        let features = images.flatten::<2>(1, 3).matmul(self.body.val()).tanh();
        self.head.iter().map(|head| features.clone().matmul(head.val())).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TwoViewsConfig {
    width: usize,
}

impl Default for TwoViewsConfig {
    fn default() -> Self {
        TwoViewsConfig { width: 8 }
    }
}

impl Named for TwoViewsConfig {
    const NAME: &'static str = "two_views";
}

impl NetworkSpec for TwoViewsConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head { name: "near", dimensions: 3 }, Head { name: "far", dimensions: 5 }]
    }

    fn build(&self, setting: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        let (input, device) = (setting.input, setting.device);
        let mut drawn = gallerist_util::random::Random::new(setting.seed, "two views", 0, 0);
        let mut weights = |rows: usize, columns: usize| {
            let values: Vec<f32> = (0..rows * columns).map(|_| drawn.between(-0.3, 0.3) as f32).collect();
            Param::from_data(TensorData::new(values, [rows, columns]), device)
        };
        let body = weights(input.channels * input.height * input.width, self.width);
        let head = self.heads().iter().map(|head| weights(self.width, head.dimensions)).collect();
        Ok(TwoViews { body, head }.boxed())
    }
}

#[test]
fn a_registered_network_is_trained_resumed_and_loaded_by_its_name() {
    Architecture::register::<TwoViewsConfig>().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    images(&data);
    let config = config(&data, "kind = \"two_views\"\nwidth = 6");
    assert_eq!(config.network.architecture.downcast_ref(), Some(&TwoViewsConfig { width: 6 }));

    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let never = AtomicBool::new(false);
    let mut trainer = Trainer::start(&config, &whole).unwrap();
    assert_eq!(trainer.run(&mut (), &never).unwrap(), RunEnd::Finished);
    assert_eq!(trainer.parameter_count(), 64 * 6 + 6 * (3 + 5));
    assert!(trainer.best().is_some());

    let stop = AtomicBool::new(false);
    let ended = Trainer::start(&config, &parts).unwrap().run(&mut StopAfter(2, &stop), &stop).unwrap();
    assert_eq!(ended, RunEnd::Interrupted);
    let mut resumed = Trainer::resume(&parts).unwrap();
    assert_eq!(resumed.step(), 2);
    resumed.run(&mut (), &never).unwrap();

    let models = [&whole, &parts].map(|run| Model::open(run, CheckpointKind::Last).unwrap());
    assert_eq!(models[0].fingerprint(), models[1].fingerprint(), "the same bits after a resume");
    let embedded = models[0].embed(ImageSet::open(&data).unwrap(), 1, &mut |_, _| ()).unwrap();
    assert_eq!(embedded.set.embeddings.cols(), 8);
    let image = ImageSet::open(&data).unwrap().decode(0).unwrap();
    let error = models[0].embed_with_maps(image).unwrap_err();
    assert!(error.to_string().contains("`two_views` shows no feature maps"), "{error}");
    let error = models[0].export_onnx(&folder.path().join("model.onnx")).unwrap_err();
    assert!(error.to_string().contains("has no list of layers"), "{error}");

    // Its tensors go into a file and start another run.
    let file = folder.path().join("model.safetensors");
    models[0].export_safetensors(&file).unwrap();
    let mut from_file = config.clone();
    from_file.network.weights = Some(file);
    let trainer = Trainer::start(&from_file, &folder.path().join("again")).unwrap();
    assert_eq!(trainer.pretrained().unwrap().loaded.len(), 3);
    let mut lda = config.clone();
    lda.network.head_init = gallerist_nn::HeadInit::Lda;
    let error = Trainer::start(&lda, &folder.path().join("lda")).err().unwrap();
    assert!(error.to_string().contains("without linear heads"), "{error}");
}

/// The same network under a name that nobody registers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct UnregisteredConfig {
    inner: TwoViewsConfig,
}

impl Named for UnregisteredConfig {
    const NAME: &'static str = "unregistered";
}

impl NetworkSpec for UnregisteredConfig {
    fn heads(&self) -> Vec<Head> {
        self.inner.heads()
    }

    fn build(&self, setting: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        self.inner.build(setting)
    }
}

#[test]
fn a_run_of_parts_given_as_values_is_resumed_with_them_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    images(&data);
    let mut config = config(&data, "channels = [4]");
    config.data.train = Vec::new();
    config.network = UnregisteredConfig::default().into();
    let parts = || {
        let (train, validation) = ImageSet::open(&data).unwrap().split_classes(0.25, 0).unwrap();
        TrainerBuilder::new(&config).images(train, Some(validation))
    };
    let never = AtomicBool::new(false);
    let whole = folder.path().join("whole");
    let mut trainer = parts().start(&whole).unwrap();
    trainer.run(&mut (), &never).unwrap();
    assert!(trainer.best().is_some());

    let halved = folder.path().join("halved");
    let stop = AtomicBool::new(false);
    parts().start(&halved).unwrap().run(&mut StopAfter(3, &stop), &stop).unwrap();
    let error = Trainer::resume(&halved).err().unwrap().to_string();
    assert!(error.contains("unknown value `unregistered`"), "{error}");
    parts().resume(&halved).unwrap().run(&mut (), &never).unwrap();
    let fingerprints = [&whole, &halved]
        .map(|run| Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap().header.fingerprint);
    assert_eq!(fingerprints[0], fingerprints[1]);
}

/// A loss with a value for each query.
#[derive(Module, Debug)]
struct PerQuery;

impl PairLoss for PerQuery {
    fn forward_lists(&self, lists: &Lists<'_>, _: Progress) -> LossOutput {
        let value = lists.distances().mean_dim(1).flatten(0, 1);
        LossOutput { value, queries: Queries::default() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct PerQueryConfig {}

impl Named for PerQueryConfig {
    const NAME: &'static str = "per_query";
}

impl LossSpec for PerQueryConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        PerQuery.boxed()
    }
}

/// A miner that takes an anchor for its own positive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SelfishMiner {}

impl Named for SelfishMiner {
    const NAME: &'static str = "selfish";
}

impl Miner for SelfishMiner {
    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        Choice::Product { positives: vec![candidates.query], negatives: candidates.negatives.to_vec() }
    }
}

#[test]
fn an_own_loss_or_miner_that_breaks_its_contract_ends_the_run_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    images(&data);
    let error = |name: &str, loss: LossConfig| {
        let mut config = config(&data, "channels = [4]\ndimensions = 4");
        config.loss = LossTerms(vec![loss.into()]);
        let mut trainer = Trainer::start(&config, &folder.path().join(name)).unwrap();
        trainer.run(&mut (), &AtomicBool::new(false)).unwrap_err().to_string()
    };
    let found = error("loss", PerQueryConfig {}.into());
    assert_eq!(found, "the value of the loss `per_query` has the shape [12], not [1]");
    let miner = Some(SelfishMiner {}.into());
    let found = error("miner", ContrastiveConfig { miner, ..ContrastiveConfig::default() }.into());
    assert_eq!(
        found,
        "the miner `selfish` chose for query 0 the positive 0, which is not among its positives"
    );
}

#[test]
fn a_checkpoint_that_does_not_fit_a_changed_run_file_names_the_changed_keys() {
    Architecture::register::<TwoViewsConfig>().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (folder.path().join("data"), folder.path().join("run"));
    images(&data);
    Trainer::start(&config(&data, "kind = \"two_views\"\nwidth = 6"), &run).unwrap();
    let file = run.join("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("width = 6", "width = 7")).unwrap();
    let error = Trainer::resume(&run).err().unwrap();
    assert!(error.to_string().contains("`body` is [64, 7] here and [64, 6] in the file"), "{error}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("config.toml` since the checkpoint"), "{hint}");
    assert!(hint.ends_with("network.width = 7 (was 6)"), "{hint}");
}

/// A network with the name of a built-in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct NamesakeConfig {
    channels: Vec<usize>,
}

impl Named for NamesakeConfig {
    const NAME: &'static str = "conv_blocks";
}

impl NetworkSpec for NamesakeConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(2)]
    }

    fn build(&self, setting: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        TwoViewsConfig::default().build(setting)
    }
}

/// A miner that nobody registers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct UnregisteredMiner {}

impl Named for UnregisteredMiner {
    const NAME: &'static str = "unregistered_miner";
}

impl Miner for UnregisteredMiner {
    fn choose(&self, _: &Candidates<'_>) -> Choice {
        Choice::nothing()
    }
}

#[test]
fn parts_that_the_run_file_cannot_give_again_are_named() {
    Architecture::register::<TwoViewsConfig>().unwrap();
    let problem = |config: RunConfig| {
        let error = config.check_registered().unwrap_err();
        assert!(error.hint().unwrap().contains("Registry::default()"), "{error}");
        error.to_string()
    };
    RunConfig::default().check_registered().unwrap();
    RunConfig { network: TwoViewsConfig { width: 3 }.into(), ..RunConfig::default() }
        .check_registered()
        .unwrap();

    let network = UnregisteredConfig::default().into();
    let found = problem(RunConfig { network, ..RunConfig::default() });
    assert!(found.contains("network.kind: unknown value `unregistered`"), "{found}");

    let network = NamesakeConfig { channels: vec![4] }.into();
    let found = problem(RunConfig { network, ..RunConfig::default() });
    assert!(found.contains("[network]: its name and parameters there give another part"), "{found}");

    let loss = ContrastiveConfig { miner: Some(UnregisteredMiner {}.into()), ..ContrastiveConfig::default() };
    let loss = LossTerms(vec![LossConfig::from(loss).into()]);
    let found = problem(RunConfig { loss, ..RunConfig::default() });
    assert!(found.contains("loss.miner.name: unknown value `unregistered_miner`"), "{found}");
}

/// A configuration with parameters that every `[network]` and every `[loss]` has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct ClashingConfig {
    head_init: usize,
    weight: f64,
}

impl Named for ClashingConfig {
    const NAME: &'static str = "clashing";
}

impl NetworkSpec for ClashingConfig {
    fn heads(&self) -> Vec<Head> {
        Vec::new()
    }

    fn build(&self, _: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        unreachable!("refused before it is built")
    }
}

impl LossSpec for ClashingConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        unreachable!("refused before it is built")
    }
}

#[test]
fn a_parameter_with_the_name_of_a_common_key_is_refused() {
    let own = RunConfig { network: ClashingConfig::default().into(), ..RunConfig::default() };
    assert_eq!(
        own.validate().unwrap_err().to_string(),
        "the network `clashing` has a parameter `head_init`, which is a key of every [network]"
    );
    let loss = LossTerms(vec![LossConfig::from(ClashingConfig::default()).into()]);
    let own = RunConfig { loss, ..RunConfig::default() };
    assert_eq!(
        own.validate().unwrap_err().to_string(),
        "the loss `clashing` has a parameter `weight`, which is a key of every [loss]"
    );
}

/// Keeps the value of each loss in each step.
#[derive(Default)]
struct Values(Vec<(f32, Vec<f32>)>);

impl Observer for Values {
    fn step(&mut self, record: &Step) {
        self.0.push((record.loss, record.losses.clone()));
    }
}

#[test]
fn a_loss_moves_the_network_in_its_steps_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    images(&data);
    let run = |name: &str, terms: [&str; 2]| {
        let mut config = config(&data, "kind = \"conv_blocks\"\nchannels = [4, 4]\ndimensions = 6");
        let losses = |[first, second]: [&str; 2]| {
            format!("[[loss]]\nname = \"rll\"\n{first}\n[[loss]]\nname = \"triplet_batch_hard\"\n{second}")
        };
        config.loss = RunConfig::parse(&losses(terms), "a test", &[]).unwrap().loss;
        let mut values = Values::default();
        let never = AtomicBool::new(false);
        Trainer::start(&config, &folder.path().join(name)).unwrap().run(&mut values, &never).unwrap();
        values.0
    };
    let first = run("first", ["", "weight = 1e-30"]);
    let switched = run("switched", ["until_step = 3", "from_step = 4"]);
    for (at, (loss, losses)) in switched.iter().enumerate() {
        assert_eq!(*loss, losses[usize::from(at >= 3)], "step {}", at + 1);
    }
    // The weights after three steps are those of the first loss alone, those after four are not.
    assert_eq!(switched[3].1, first[3].1);
    assert_ne!(switched[4].1, first[4].1);
}
