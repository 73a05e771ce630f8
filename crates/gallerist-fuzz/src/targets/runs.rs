//! The files of runs: checkpoints, run files, spaces of `tune`, experiments, logs; and anything, of which `gallerist info`
//! says what it is.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use gallerist::experiments::Experiment;
use gallerist::jobs::{Job, JobFolder};
use gallerist::network::Products;
use gallerist::train::checkpoint::Checkpoint;
use gallerist::train::model::Model;
use gallerist::train::{CheckpointKind, RunConfig, log};
use gallerist::tune::Space;
use gallerist::{RunMetrics, contents};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::{repair, scratch};

/// A fault of a run file is explained by reading it again without parts of it, key by key, up to a number of keys.
const EXPLAINED: Limit =
    Limit { memory: 64 << 20, memory_of_byte: 2000, time: Duration::from_secs(2), ..Limit::TEXT };

pub(super) fn checkpoint(bytes: &[u8]) {
    let bytes = &repair::checkpoint(bytes);
    let path = scratch::file("checkpoint.safetensors", bytes);
    let Ok(checkpoint) = within(Limit::TEXT, bytes, || Checkpoint::load(&path)) else { return };
    reached("loaded");
    if !checkpoint.header.sha256.is_empty() {
        reached("with a checksum");
    }
    let again = scratch::path("again.safetensors");
    checkpoint.save(&again).expect("a checkpoint that was loaded is written");
    let read = Checkpoint::load(&again).expect("a checkpoint that was written is loaded");
    let groups = |checkpoint: &Checkpoint| {
        let groups = [&checkpoint.network, &checkpoint.loss, &checkpoint.optimizer, &checkpoint.state];
        groups.map(|group| {
            group.iter().map(|(name, data)| format!("{name} {:?}", data.shape())).collect::<Vec<_>>()
        })
    };
    assert_eq!(groups(&read), groups(&checkpoint), "tensors change when they are written");
    assert_eq!(read.header.step, checkpoint.header.step);
}

pub(super) fn run_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(config) = within(EXPLAINED, bytes, || RunConfig::parse(text, "input", &[])) else { return };
    reached("parsed");
    if within(EXPLAINED, bytes, || config.validate()).is_ok() {
        reached("valid");
    }
    let written = config.to_toml();
    let read = RunConfig::parse(&written, "again", &[]).expect("a run file that was written is read");
    // Compared as text: NaN is not itself.
    assert_eq!(read.to_toml(), written, "a run file changes when it is written");
}

/// A setting of the command line.
pub(super) fn setting(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let settings: Vec<String> = text.lines().map(str::to_owned).collect();
    let defaults = RunConfig::default().to_toml();
    if within(EXPLAINED, bytes, || RunConfig::parse(&defaults, "input", &settings)).is_ok() {
        reached("parsed");
    }
}

pub(super) fn space(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(space) = within(EXPLAINED, bytes, || Space::parse(text, "input")) else { return };
    reached("parsed");
    let written = space.to_toml();
    let read = Space::parse(&written, "again").expect("a space that was written is read");
    assert_eq!(read.to_toml(), written, "a space changes when it is written");
}

pub(super) fn experiment(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(experiment) = within(EXPLAINED, bytes, || Experiment::parse(text, "input")) {
        reached("parsed");
        let _ = within(EXPLAINED, bytes, || experiment.scales());
    }
}

pub(super) fn log(bytes: &[u8]) {
    let path = scratch::file("log.jsonl", bytes);
    let records =
        within(Limit::TEXT, bytes, || log::read(&path)).expect("lines that are no records are skipped");
    if !records.is_empty() {
        reached("records");
    }
    assert!(records.len() <= bytes.split(|&byte| byte == b'\n').count());
}

/// The folder of a job in a store of experiments: the metrics of its run, what its process used, and its log, separated by the
/// byte 0x1E.
pub(super) fn job(bytes: &[u8]) {
    const STEPS: usize = 3;
    static FOLDER: OnceLock<JobFolder> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let mut config = RunConfig::default();
        config.train.steps = STEPS;
        config.data.test = vec![scratch::path("test")];
        let job = Job::new("job", config);
        let folder = JobFolder::of(&scratch::path("store"), &job);
        std::fs::create_dir_all(folder.run()).expect("a run directory");
        std::fs::write(folder.run().join("config.toml"), job.config.to_toml()).expect("a run file");
        std::fs::write(folder.run().join("report.html"), "").expect("a report");
        folder
    });
    let run = folder.run();
    let paths = [run.join("metrics.json"), run.with_file_name("usage.json"), run.join("log.jsonl")];
    let mut parts = bytes.splitn(paths.len(), |&byte| byte == 0x1E);
    for path in &paths {
        std::fs::write(path, parts.next().unwrap_or_default()).expect("a file of the job");
    }
    if let Ok(Some(numbers)) = within(EXPLAINED, bytes, || folder.numbers()) {
        reached("numbers");
        assert!(numbers.steps >= STEPS, "a run that has not ended counts as done");
    }
    let Ok(metrics) = within(Limit::TEXT, bytes, || RunMetrics::load(&paths[0])) else { return };
    reached("metrics");
    let again = scratch::path("again.json");
    metrics.save(&again).expect("metrics that were read are written");
    let read = RunMetrics::load(&again).expect("metrics that were written are read");
    let text = |metrics: &RunMetrics| serde_json::to_string(metrics).expect("metrics are written as JSON");
    assert_eq!(text(&read), text(&metrics), "metrics change when they are written");
}

/// The ranges of a run's layers, for embedding in int8. They name the checkpoint that they are of: that is made right.
pub(super) fn ranges(bytes: &[u8]) {
    static CHECKPOINT: OnceLock<(PathBuf, String)> = OnceLock::new();
    let (checkpoint, fingerprint) = CHECKPOINT.get_or_init(|| {
        let text = "[image]\nsize = 8\n[network]\nkind = \"conv_blocks\"\nchannels = [16, 4]\ndimensions = 4";
        let config = RunConfig::parse(text, "a run", &[]).expect("a run file");
        let model = Model::untrained(&config).expect("a model");
        let run = model.save_run(&scratch::path("calibrated")).expect("a run directory");
        (run.checkpoint(CheckpointKind::Best), model.fingerprint().to_owned())
    });
    let mut bytes = bytes.to_vec();
    if let Ok(mut content) = serde_json::from_slice::<serde_json::Value>(&bytes)
        && let Some(object) = content.as_object_mut()
    {
        object.insert("model".into(), fingerprint.clone().into());
        bytes = content.to_string().into_bytes();
    }
    std::fs::write(checkpoint.with_extension("ranges.json"), &bytes).expect("a file of the run");
    let model = Model::load(checkpoint).expect("the checkpoint");
    let Ok(model) = within(EXPLAINED, &bytes, || model.with_products(Products::Int8)) else { return };
    // Values that are no numbers are an error.
    if model.embed_preprocessed(&[&[0.5; 3 * 8 * 8]]).is_ok() {
        reached("used");
    }
}

/// A file whose name is what the first byte says.
pub(super) fn info(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let names = [
        "input.json",
        "input.jsonl",
        "input.toml",
        "input.safetensors",
        "input.index",
        "input.npy",
        "input.pth",
        "input.txt",
        "input.onnx",
        "input.tags.json",
        "input.map.safetensors",
        "shard-00001-of-00003.json",
    ];
    let bytes = if rest.get(8) == Some(&b'{') { repair::checkpoint(rest) } else { rest.to_vec() };
    let path = scratch::file(names[usize::from(first) % names.len()], &bytes);
    if let Ok(found) = within(EXPLAINED, &bytes, || contents(&path)) {
        reached(found.kind.words());
        assert_eq!(found.bytes, bytes.len() as u64);
        serde_json::to_string(&found).expect("a description is written as JSON");
    }
}
