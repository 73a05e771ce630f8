//! Numbers that are not finite, in the loss, the gradient, the weights and the embeddings; and embeddings that collapse.

#[path = "common/pictures.rs"]
mod pictures;
#[path = "common/seen.rs"]
mod seen;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_data::ImageSet;
use gallerist_loss::{
    AnyLoss, Labels, LiftedConfig, LossConfig, LossOutput, LossShape, LossSpec, Progress, Queries,
    RankingLoss,
};
use gallerist_nn::{AnyEmbedder, Embedder, Head, NetworkSpec, Setting};
use gallerist_testkit::ranks::with_ranks;
use gallerist_train::checkpoint::{Checkpoint, Header};
use gallerist_train::log::{self, Record, Step};
use gallerist_train::{Error, LossTerms, Observer, OnNonfinite, RunConfig, RunEnd, Trainer, TrainerBuilder};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use seen::Seen;

/// The mean square of all numbers, which makes embeddings collapse; at some steps it is poisoned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PoisonConfig {
    /// Steps, from 1, with a loss that is NaN.
    loss: Vec<usize>,
    /// Steps with a finite loss whose gradient is NaN.
    gradient: Vec<usize>,
}

impl Named for PoisonConfig {
    const NAME: &'static str = "poison";
}

impl LossSpec for PoisonConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        Poison { config: self.clone() }.boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn takes_memory(&self) -> bool {
        true
    }
}

#[derive(Module, Debug)]
struct Poison {
    #[module(skip)]
    config: PoisonConfig,
}

impl RankingLoss for Poison {
    fn forward(&self, embeddings: Tensor<2>, _: Labels<'_>, progress: Progress) -> LossOutput {
        let step = progress.step + 1;
        let mut value = embeddings.clone().square().mean();
        if self.config.loss.contains(&step) {
            value = value.mul_scalar(f32::NAN);
        }
        if self.config.gradient.contains(&step) {
            // 0 times the derivative of a root at 0.
            value = value + embeddings.mul_scalar(0.0).sqrt().sum();
        }
        LossOutput { value, queries: Queries::default() }
    }

    fn forward_against(
        &self,
        embeddings: Tensor<2>,
        labels: Labels<'_>,
        _: Option<gallerist_loss::CrossBatchRows<'_>>,
        progress: Progress,
    ) -> LossOutput {
        self.forward(embeddings, labels, progress)
    }
}

/// A linear network; in evaluation, and as it begins, its numbers may be infinite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OverflowConfig {
    /// Factor of the embeddings in evaluation.
    factor: f32,
    /// A weight at the start.
    weight: Option<String>,
}

impl Named for OverflowConfig {
    const NAME: &'static str = "overflow";
}

impl NetworkSpec for OverflowConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head { name: "all", dimensions: 4 }]
    }

    fn build(&self, setting: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        let rows = setting.input.channels * setting.input.height * setting.input.width;
        let mut values: Vec<f32> = (0..rows * 4).map(|i| ((i * 7 % 11) as f32 - 5.0) / 100.0).collect();
        if let Some(weight) = &self.weight {
            values[3] = weight.parse().unwrap();
        }
        let weight = Param::from_data(TensorData::new(values, [rows, 4]), setting.device);
        Ok(Overflow { weight, factor: self.factor }.boxed())
    }
}

#[derive(Module, Debug)]
struct Overflow {
    weight: Param<Tensor<2>>,
    #[module(skip)]
    factor: f32,
}

impl Embedder for Overflow {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        let is_training = images.device().is_autodiff();
        let x = images.flatten::<2>(1, 3).matmul(self.weight.val());
        vec![if is_training { x } else { x.mul_scalar(self.factor) }]
    }
}

/// Six classes of four grey bitmaps of 8 x 8 pixels.
fn images(folder: &Path) -> ImageSet {
    pictures::write(folder, [6, 4, 8], 2);
    ImageSet::open(folder).unwrap()
}

const NETWORK: &str = "[network]\nkind = \"conv_blocks\"\nchannels = [4, 4]\ndimensions = 6";

fn config(train: &str, more: &str, loss: PoisonConfig) -> RunConfig {
    let text = format!(
        "[train]\nsteps = 6\ncheckpoint_every = 1\nthreads = 1\nloader_threads = 1\ndevice = \"cpu\"\n{train}\n[image]\n\
         size = 8\nchannels = 1\n[sampler]\nclasses_per_batch = 4\nimages_per_class = 3\n[validation]\nfraction = 0.0\n\
         {more}"
    );
    let mut config = RunConfig::parse(&text, "a test", &[]).unwrap();
    config.loss = LossTerms(vec![LossConfig::from(loss).into()]);
    config
}

/// Stops after a step.
struct StopAfter<'a>(usize, &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn step(&mut self, record: &Step) {
        self.1.store(record.step >= self.0, Ordering::Relaxed);
    }
}

fn run(config: &RunConfig, set: &ImageSet, out: &Path) -> (Result<RunEnd, Error>, Seen) {
    let mut seen = Seen::default();
    let mut trainer = TrainerBuilder::new(config).images(set.clone(), None).start(out).unwrap();
    let end = trainer.run(&mut seen, &AtomicBool::new(false));
    (end, seen)
}

fn last(run: &Path) -> Checkpoint {
    Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).map(|entries| entries.map(|e| e.unwrap().file_name())).unwrap();
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_with_its_step_kept_and_good_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let out = folder.path().join("run");
    let poison = PoisonConfig { loss: vec![4], ..PoisonConfig::default() };
    let config = config("", NETWORK, poison);
    let (end, seen) = run(&config, &set, &out);
    let error = end.unwrap_err();
    let Error::Nonfinite { step: 4, found, file: Some(file), .. } = &error else { panic!("{error:?}") };
    assert_eq!(found, "the loss is NaN");
    let message = error.to_string();
    assert!(message.contains("at step 4") && message.contains("step-000004.json"), "{message}");
    let hint = error.hint().unwrap();
    for part in ["optimizer.learning_rate", "optimizer.clip_norm", "on_nonfinite"] {
        assert!(hint.contains(part), "`{part}` in {hint}");
    }
    assert_eq!(seen.steps.len(), 3);

    let study = json(file);
    assert_eq!((&study["step"], &study["skipped"], &study["loss"]), (&4.into(), &false.into(), &Value::Null));
    let of_batch = study["batches"][0]["images"].as_array().unwrap();
    assert_eq!(of_batch.len(), 12);
    for image in of_batch {
        let (path, label) = (image["path"].as_str().unwrap(), image["label"].as_str().unwrap());
        assert!(path.starts_with(&format!("{label}/")), "{image}");
        assert_eq!(image["nonfinite"], 0);
        assert!(image["embedding_norms"][0].as_f64().unwrap() > 0.0);
        let range = image["range"].as_array().unwrap();
        assert!(range[0].as_f64().unwrap() < range[1].as_f64().unwrap(), "{image}");
    }
    let names: Vec<&str> =
        study["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.ends_with("running_var")) && names.len() > 6, "{names:?}");
    let tensors = gallerist_tensor::params::read(&file.with_extension("safetensors")).unwrap();
    assert_eq!(&tensors["batch.0.images"].shape()[..], [12, 1, 8, 8]);
    let [(_, embeddings)] =
        &tensors.iter().filter(|(name, _)| name.contains("embeddings")).collect::<Vec<_>>()[..]
    else {
        panic!("one head")
    };
    assert_eq!(&embeddings.shape()[..], [12, 6]);

    // The checkpoint is that of the step before; from it the run comes to the same step again.
    let before = std::fs::read(out.join("checkpoints/last.safetensors")).unwrap();
    assert_eq!(last(&out).header.step, 3);
    let kept = std::fs::read(file).unwrap();
    let mut trainer = TrainerBuilder::new(&config).images(set, None).resume(&out).unwrap();
    let again = trainer.run(&mut (), &AtomicBool::new(false)).unwrap_err();
    assert_eq!(again.to_string(), message);
    assert_eq!(std::fs::read(out.join("checkpoints/last.safetensors")).unwrap(), before);
    assert_eq!(std::fs::read(file).unwrap(), kept, "the same study");
    assert_eq!(files(&out.join("nonfinite")), ["step-000004.json", "step-000004.safetensors"]);
}

#[test]
fn a_gradient_that_is_no_number_is_named_with_its_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let poison = PoisonConfig { gradient: vec![2], ..PoisonConfig::default() };
    let (end, _) = run(&config("accumulate = 2", NETWORK, poison), &set, &folder.path().join("run"));
    let error = end.unwrap_err();
    let Error::Nonfinite { step: 2, found, file: Some(file), .. } = &error else { panic!("{error:?}") };
    let study = json(file);
    assert_eq!(study["batches"].as_array().unwrap().len(), 2);
    let bad = study["parameters"].as_array().unwrap().iter().filter(|p| p["gradient_nonfinite"] != 0);
    let bad: Vec<&str> =
        bad.filter(|p| !p["gradient_nonfinite"].is_null()).map(|p| p["name"].as_str().unwrap()).collect();
    assert!(
        bad.iter().any(|name| *found == format!("the gradient of `{name}` is not finite")),
        "{found} {bad:?}"
    );
}

/// All tensors of a checkpoint by name.
fn tensors(checkpoint: &Checkpoint) -> BTreeMap<String, Vec<u8>> {
    let groups = [&checkpoint.network, &checkpoint.loss, &checkpoint.optimizer, &checkpoint.state];
    let all = groups.iter().enumerate().flat_map(|(group, tensors)| {
        tensors.iter().map(move |(name, data)| (format!("{group}.{name}"), data.as_bytes().to_vec()))
    });
    all.collect()
}

#[test]
fn a_skipped_step_changes_no_tensor_and_is_counted() {
    let more = "[optimizer]\nkind = \"adamw\"\nlearning_rate = 0.01\n[xbm]\nsize = 40\nstart_step = 0\n";
    for (poison, accumulate) in [
        (PoisonConfig { loss: vec![3, 4], ..PoisonConfig::default() }, 1),
        (PoisonConfig { gradient: vec![3, 4], ..PoisonConfig::default() }, 2),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let set = images(&folder.path().join("images"));
        let out = folder.path().join("run");
        let train = format!("on_nonfinite = \"skip\"\naverage_decay = 0.9\naccumulate = {accumulate}");
        let config = config(&train, &format!("{more}{NETWORK}"), poison);
        let (stop, never) = (AtomicBool::new(false), AtomicBool::new(false));
        let parts = || TrainerBuilder::new(&config).images(set.clone(), None);
        let end = parts().start(&out).unwrap().run(&mut StopAfter(2, &stop), &stop).unwrap();
        assert_eq!(end, RunEnd::Interrupted);
        let before = last(&out);
        assert!(before.optimizer.len() > 4 && before.state.keys().any(|name| name.starts_with("memory")));
        // Each skipped step in a run of its own: the count continues.
        for step in [3, 4] {
            let stop = AtomicBool::new(false);
            parts().resume(&out).unwrap().run(&mut StopAfter(step, &stop), &stop).unwrap();
            let after = last(&out);
            assert_eq!(after.header.step, step);
            assert_eq!((after.header.skipped.all, after.header.skipped.in_succession), (step - 2, step - 2));
            assert_eq!(tensors(&after), tensors(&before), "step {step}");
        }
        let mut trainer = parts().resume(&out).unwrap();
        assert_eq!(trainer.run(&mut (), &never).unwrap(), RunEnd::Finished);
        assert_eq!(trainer.skipped_steps(), 2);
        let end = last(&out);
        assert_eq!((end.header.step, end.header.skipped.all, end.header.skipped.in_succession), (6, 2, 0));
        assert_ne!(tensors(&end), tensors(&before));
        let records = log::read(&out.join("log.jsonl")).unwrap();
        let steps: Vec<(usize, bool)> = records
            .iter()
            .filter_map(|record| match record {
                Record::Step(step) => Some((step.step, step.skipped.is_some())),
                _ => None,
            })
            .collect();
        assert_eq!(steps, [(1, false), (2, false), (3, true), (4, true), (5, false), (6, false)]);
    }
}

#[test]
fn a_run_with_a_skipped_step_has_the_bits_of_one_that_was_stopped_at_it() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let poison = PoisonConfig { loss: vec![2, 5], ..PoisonConfig::default() };
    let config = config("on_nonfinite = \"skip\"", NETWORK, poison);
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    assert_eq!(run(&config, &set, &whole).0.unwrap(), RunEnd::Finished);
    let builder = || TrainerBuilder::new(&config).images(set.clone(), None);
    let stop = AtomicBool::new(false);
    builder().start(&parts).unwrap().run(&mut StopAfter(2, &stop), &stop).unwrap();
    builder().resume(&parts).unwrap().run(&mut (), &AtomicBool::new(false)).unwrap();
    let bytes = [whole, parts].map(|run| std::fs::read(run.join("checkpoints/last.safetensors")).unwrap());
    assert_eq!(bytes[0], bytes[1]);
}

#[test]
fn after_too_many_skipped_steps_in_succession_the_run_stops() {
    const MOST: usize = OnNonfinite::MOST_IN_SUCCESSION;
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let out = folder.path().join("run");
    let poison = PoisonConfig { loss: (3..100).collect(), ..PoisonConfig::default() };
    let mut config = config("on_nonfinite = \"skip\"", NETWORK, poison);
    config.train.steps = 50;
    let (end, seen) = run(&config, &set, &out);
    let error = end.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Nonfinite { step, skipped: MOST, .. } if step == 3 + MOST), "{text}");
    assert!(text.contains(&format!("after {MOST} skipped steps in succession")), "{text}");
    assert_eq!(seen.steps.iter().filter(|step| step.skipped.is_some()).count(), MOST);
    assert_eq!(seen.warnings.iter().filter(|warning| warning.contains("is skipped")).count(), 5);
    assert_eq!(files(&out.join("nonfinite")).len(), 2 * 5, "the first steps and the latest");
    let kept = last(&out);
    assert_eq!((kept.header.step, kept.first_nonfinite()), (2 + MOST, None));
}

#[test]
fn a_learning_rate_that_explodes_leaves_a_finite_checkpoint() {
    for on_nonfinite in ["stop", "skip"] {
        let folder = tempfile::tempdir().unwrap();
        let set = images(&folder.path().join("images"));
        let out = folder.path().join("run");
        let optimizer = "[optimizer]\nkind = \"sgd\"\nmomentum = 0.0\nlearning_rate = 1e38\n[schedule]\nkind = \"constant\"\n";
        let train = format!("on_nonfinite = \"{on_nonfinite}\"");
        let mut config = config(&train, &format!("{optimizer}{NETWORK}"), PoisonConfig::default());
        config.train.steps = 50;
        let (end, _) = run(&config, &set, &out);
        let error = end.unwrap_err();
        let hint = error.hint().unwrap();
        let Error::Nonfinite { file: Some(file), .. } = &error else { panic!("{error}") };
        assert!(
            hint.contains("learning_rate (it is 1e38") || hint.contains("learning_rate (it is 1000000"),
            "{hint}"
        );
        assert!(file.exists());
        let kept = last(&out);
        assert_eq!(kept.first_nonfinite(), None, "{on_nonfinite}");
        let skipped = kept.header.skipped.all;
        assert_eq!(skipped, if on_nonfinite == "skip" { OnNonfinite::MOST_IN_SUCCESSION } else { 0 });
    }
}

#[test]
fn embeddings_whose_squares_overflow_are_named_as_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let mut config = config("", "", PoisonConfig::default());
    config.network = OverflowConfig { factor: 1.0, weight: Some("1e30".into()) }.into();
    config.loss = LossTerms(vec![LossConfig::from(LiftedConfig::default()).into()]);
    let (end, _) = run(&config, &set, &folder.path().join("run"));
    let error = end.unwrap_err().to_string();
    assert!(error.starts_with("the loss is NaN: the embedding of `class-"), "{error}");
    assert!(error.contains("whose square overflows at step 1"), "{error}");
}

#[test]
fn a_network_that_begins_with_an_infinite_weight_is_refused_before_a_directory_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let out = folder.path().join("run");
    let mut config = config("", "", PoisonConfig::default());
    config.network = OverflowConfig { factor: 1.0, weight: Some("inf".into()) }.into();
    let error = TrainerBuilder::new(&config).images(set, None).start(&out).err().unwrap();
    assert!(error.to_string().starts_with("the weights `weight` are not finite at step 0"), "{error}");
    assert!(!out.exists());
}

#[test]
fn embeddings_that_are_not_finite_end_a_run_or_are_left_out_of_validation() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let (train, validation) = set.split_classes(0.3, 0).unwrap();
    for on_nonfinite in ["stop", "skip"] {
        let out = folder.path().join(on_nonfinite);
        let mut config = config(&format!("on_nonfinite = \"{on_nonfinite}\""), "", PoisonConfig::default());
        config.network = OverflowConfig { factor: f32::INFINITY, weight: None }.into();
        config.validation.every = 3;
        let parts = TrainerBuilder::new(&config).images(train.clone(), Some(validation.clone()));
        let mut trainer = parts.start(&out).unwrap();
        let mut seen = Seen::default();
        let end = trainer.run(&mut seen, &AtomicBool::new(false));
        if on_nonfinite == "stop" {
            let error = end.unwrap_err();
            assert!(matches!(error, Error::NonfiniteEmbeddings { .. }), "{error}");
            assert!(error.to_string().contains(".bmp") && error.hint().is_some(), "{error}");
            assert_eq!(last(&out).header.step, 2);
        } else {
            assert_eq!(end.unwrap(), RunEnd::Finished);
            let left_out = seen.warnings.iter().filter(|w| w.contains("this validation is left out"));
            assert_eq!(left_out.count(), 2, "{:?}", seen.warnings);
            assert!(trainer.best().is_none());
        }
    }
}

#[test]
fn all_ranks_skip_and_stop_alike() {
    let folder = tempfile::tempdir().unwrap();
    images(&folder.path().join("images"));
    for (name, on_nonfinite) in [("a", "stop"), ("b", "skip")] {
        let poison = PoisonConfig { loss: vec![2], gradient: vec![4] };
        let config = config(&format!("on_nonfinite = \"{on_nonfinite}\""), NETWORK, poison);
        let out = folder.path().join(name);
        let found = with_ranks(2, |ranks| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.install(|| {
                let set = ImageSet::open(folder.path().join("images")).unwrap();
                let mut trainer =
                    TrainerBuilder::new(&config).images(set, None).ranks(ranks).start(&out).unwrap();
                let mut seen = Seen::default();
                let end = match trainer.run(&mut seen, &AtomicBool::new(false)) {
                    Ok(end) => format!("{end:?}"),
                    Err(Error::Nonfinite { step, found, .. }) => format!("{step}: {found}"),
                    Err(other) => panic!("{other}"),
                };
                let skipped = seen.steps.iter().filter(|s| s.skipped.is_some()).map(|s| s.step);
                (end, skipped.collect::<Vec<_>>())
            })
        });
        assert_eq!(found[0], found[1]);
        let wanted = match on_nonfinite {
            "stop" => ("2: the loss is NaN".to_owned(), vec![]),
            _ => ("Finished".to_owned(), vec![2, 4]),
        };
        assert_eq!(found[0], wanted);
    }
}

#[test]
fn embeddings_that_collapse_are_warned_of_once_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let set = images(&folder.path().join("images"));
    let out = folder.path().join("run");
    let optimizer = "[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n[schedule]\nkind = \"constant\"\n";
    let mut config = config("", optimizer, PoisonConfig::default());
    config.network = OverflowConfig { factor: 1.0, weight: None }.into();
    (config.train.steps, config.train.checkpoint_every) = (400, 0);
    let (end, seen) = run(&config, &set, &out);
    assert_eq!(end.unwrap(), RunEnd::Finished);
    let [first, .., end] = &seen.steps[..] else { panic!("steps") };
    assert!(end.negative_distance < 0.1 * first.negative_distance, "{first:?} {end:?}");
    let records = log::read(&out.join("log.jsonl")).unwrap();
    let logged: Vec<&String> = records
        .iter()
        .filter_map(|record| match record {
            Record::Warning { message, .. } if message.contains("collapse") => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(logged.len(), 1, "{:?}", seen.warnings);
    assert!(seen.warnings.contains(logged[0]));
    assert!(logged[0].contains("optimizer.learning_rate (it is 0.1)"), "{}", logged[0]);
}

#[test]
fn headers_of_earlier_versions_have_no_skipped_steps() {
    let text = serde_json::to_string(&Header { seconds: 2.5, ..Header::default() }).unwrap();
    let text = text.replace(",\"collapse_watch\":{\"first\":[],\"recent\":[],\"warned\":false}", "");
    let header: Header = serde_json::from_str(&text).unwrap();
    assert_eq!((header.seconds, header.skipped.all, header.data.as_str()), (2.5, 0, ""));
    assert!(Trainer::resume(Path::new("no run")).is_err());
}
