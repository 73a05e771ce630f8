//! How runs begin, and what they warn of, on the drawings that come with the project.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use gallerist::data::ImageSet;
use gallerist::model::Model;
use gallerist::train::log::{self, Record};
use gallerist::train::{CheckpointKind, Observer, RunConfig, RunEnd, Trainer};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// `configs/smoke.toml` on the processor, all its training classes trained on, with further settings.
fn config(settings: &[&str]) -> RunConfig {
    let background = root().join("data/omniglot/omniglot_images_background.zip");
    let train = format!("data.train=[{:?}]", background.to_str().unwrap());
    let fixed =
        [&train, "data.test=[]", "validation.fraction=0.0", "train.device=cpu", "train.checkpoint_every=0"];
    let settings: Vec<String> = fixed.iter().chain(settings).map(|s| s.to_string()).collect();
    RunConfig::load(&root().join("configs/smoke.toml"), &settings).unwrap()
}

/// Mean distance between the raw embeddings of the training images before the first step.
fn mean_distance_at_the_start(settings: &[&str]) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let trainer = Trainer::start(&config(settings), &run).unwrap();
    // Every 8th training image, so that it takes no time.
    let set = trainer.training_set();
    let images: Vec<u32> = (0..set.len() as u32).step_by(8).collect();
    mean_distance(&run, set.subset(&images))
}

fn mean_distance(run: &Path, images: ImageSet) -> f64 {
    let model = Model::open(run, CheckpointKind::Last).unwrap().normalized(false);
    let rows = model.embed(images, 1, &mut |_, _| {}).unwrap().set.embeddings;
    let distance = |i: usize, j: usize| {
        let squares = rows.row(i).iter().zip(rows.row(j)).map(|(a, b)| f64::from(a - b).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let pairs = || (0..rows.rows()).flat_map(|i| (0..i).map(move |j| (i, j)));
    pairs().map(|(i, j)| distance(i, j)).sum::<f64>() / pairs().count() as f64
}

#[test]
fn a_head_of_discriminants_begins_at_the_distance_that_its_loss_declares() {
    let declared = |settings: &[&str]| {
        let terms = config(settings).loss.0;
        terms.iter().filter_map(|term| term.loss.initial_distance()).fold(0.0, f64::max)
    };
    for settings in [
        &["network.head_init=lda", "loss={name=\"srt\"}"][..],
        &["network.head_init=lda", "loss={name=\"srt\", temperature=0.1}"],
        &["network.head_init=lda", "loss={name=\"triplet_batch_hard\"}"],
        &["network.head_init=lda", "loss=[{name=\"triplet_batch_hard\"}, {name=\"srt\"}, {name=\"rll\"}]"],
    ] {
        let (wanted, found) = (declared(settings), mean_distance_at_the_start(settings));
        assert!(wanted > 0.0 && (found / wanted - 1.0).abs() < 0.05, "{settings:?}: {found}, not {wanted}");
    }
}

#[test]
fn head_distance_overrules_the_loss_and_scales_a_random_head() {
    for settings in [
        &["network.head_init=lda", "loss={name=\"srt\"}", "network.head_distance=3.0"][..],
        &["network.head_init=lda", "network.head_distance=3.0"],
        &["loss={name=\"srt\"}", "network.head_distance=3.0"],
    ] {
        let found = mean_distance_at_the_start(settings);
        assert!((found / 3.0 - 1.0).abs() < 0.05, "{settings:?}: {found}");
    }
}

/// Keeps the warnings; stops the run after a step.
struct Watch<'a> {
    warnings: Vec<String>,
    stop: &'a AtomicBool,
    after: usize,
}

impl Observer for Watch<'_> {
    fn step(&mut self, record: &log::Step) {
        if record.step == self.after {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }
}

/// The warnings of lost dimensions in a run, with their steps, as the observer and the log have them.
fn lost_dimensions(settings: &[&str], stops: &[usize]) -> Vec<(usize, String)> {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut trainer = Trainer::start(&config(settings), &run).unwrap();
    let mut seen = Vec::new();
    for after in stops.iter().copied().chain([usize::MAX]) {
        let stop = AtomicBool::new(false);
        let mut watch = Watch { warnings: Vec::new(), stop: &stop, after };
        let outcome = trainer.run(&mut watch, &stop).unwrap();
        seen.extend(watch.warnings);
        if outcome == RunEnd::Interrupted {
            drop(trainer);
            trainer = Trainer::resume(&run).unwrap();
        }
    }
    let records = log::read(&run.join("log.jsonl")).unwrap();
    let logged = records.into_iter().filter_map(|record| match record {
        Record::Warning { step, message } if message.contains("participation ratio") => Some((step, message)),
        _ => None,
    });
    let logged: Vec<_> = logged.collect();
    let seen: Vec<_> = seen.iter().filter(|message| message.contains("participation ratio")).collect();
    assert_eq!(seen, logged.iter().map(|(_, message)| message).collect::<Vec<_>>());
    logged
}

/// The soft ranks are nearly linear at distances this small, and the embeddings grow along one direction.
const COLLAPSING: [&str; 7] = [
    "train.steps=45",
    "loss={name=\"srt\"}",
    "network.head_init=lda",
    "network.head_distance=0.3",
    "optimizer.kind=adamw",
    "optimizer.learning_rate=0.003",
    "schedule.kind=constant",
];

#[test]
fn a_run_that_gives_up_its_dimensions_is_warned_of_once_with_the_cause() {
    let lost = lost_dimensions(&COLLAPSING, &[]);
    let [(step, message)] = &lost[..] else { panic!("{lost:?}") };
    assert!((10..45).contains(step), "step {step}");
    for part in ["dimensions", "`srt`", "network.head_distance", "loss.temperature"] {
        assert!(message.contains(part), "`{part}` in {message}");
    }
    // The same, at the same step, where the run was stopped before, at and after it.
    assert_eq!(lost_dimensions(&COLLAPSING, &[2, step - 1, *step, step + 3]), lost);
}

#[test]
fn a_run_that_keeps_its_dimensions_is_not_warned_of() {
    for settings in [&["train.steps=40"][..], &["train.steps=40", "network.dimensions=2"]] {
        assert_eq!(lost_dimensions(settings, &[]), []);
    }
}
