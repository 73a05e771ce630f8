//! `gallerist train --resume`: the same bits as without an interruption.

use std::path::{Path, PathBuf};

use crate::common::{root, small_run, text};
use crate::program::{error, gallerist};

#[test]
fn the_same_seed_gives_the_same_bits_and_so_does_a_run_that_was_interrupted() {
    resuming_changes_no_bit(&[]);
}

#[test]
fn class_means_average_and_memory_are_resumed_to_the_last_bit() {
    resuming_changes_no_bit(&[
        "sampler.kind=hard_identities",
        "sampler.pool=12",
        "sampler.refresh_every=4",
        "sampler.images_per_mean=2",
        "train.accumulate=2",
        "train.average_decay=0.9",
        "xbm.size=100",
        "xbm.start_step=2",
    ]);
}

#[test]
fn dropped_paths_are_resumed_to_the_last_bit() {
    resuming_changes_no_bit(&[
        "network={kind='vit', width=16, depth=2, attention_heads=2, patch=7, drop_path=0.5, dimensions=8}",
        "optimizer={kind='adamw', learning_rate=0.001, layer_decay=0.7}",
        "train.accumulate=2",
    ]);
}

#[test]
fn gradient_checkpointing_changes_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "network={kind='vit', width=16, depth=3, attention_heads=2, patch=7, drop_path=0.5, dimensions=8}",
        "train.accumulate=2",
    ];
    let whole = small_run(&dir.path().join("whole"), &settings);
    let with = [&settings[..], &["train.gradient_checkpointing=true"]].concat();
    let checkpointed = small_run(&dir.path().join("checkpointed"), &with);
    assert_eq!(network(&whole), network(&checkpointed));
}

#[test]
fn gradient_checkpointing_needs_fixed_batch_norms() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = (root().join("configs/smoke.toml"), folder.path().join("run"));
    let [config, out] = [&config, &out].map(|path| path.to_str().unwrap());
    let error = error(&["train", config, "--out", out, "--set", "train.gradient_checkpointing=true"]);
    assert!(error.contains("train.gradient_checkpointing"), "{error}");
    assert!(error.contains("network.freeze_batch_norm"), "{error}");
}

#[test]
fn gradient_checkpointing_names_the_batch_norm_that_is_never_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = (root().join("configs/smoke.toml"), folder.path().join("run"));
    let [config, out] = [&config, &out].map(|path| path.to_str().unwrap());
    let network = "network={kind='resnet', depth=18, hidden=8, hidden_norm=true, freeze_batch_norm='all'}";
    let checkpointing = ["--set", network, "--set", "train.gradient_checkpointing=true"];
    let error = error(&[&["train", config, "--out", out][..], &checkpointing].concat());
    assert!(error.contains("its batch norm `head.norm` uses the statistics of the batch"), "{error}");
    assert!(error.contains("network.hidden_norm"), "{error}");
    assert!(!error.contains("must be frozen"), "{error}");
}

#[test]
fn products_in_bf16_are_resumed_to_the_last_bit() {
    use gallerist::train::Precision;
    let cpu = gallerist::device::DeviceChoice::Cpu.open().unwrap();
    if Precision::Bf16.check(&cpu).is_ok() {
        resuming_changes_no_bit(&["train.precision=bf16", "train.device=cpu"]);
    }
}

fn resuming_changes_no_bit(settings: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let with = |threads: &'static str| [&[threads], settings].concat();
    let whole = small_run(&one, &with("train.loader_threads=1"));
    let other = small_run(&two, &with("train.loader_threads=3"));
    let read = |run: &Path, file: &str| std::fs::read(run.join(file)).unwrap();
    assert_eq!(read(&whole, "embeddings.safetensors").len(), read(&other, "embeddings.safetensors").len());
    assert_eq!(network(&whole), network(&other));

    // Killed between two checkpoints: as the disk is left by `kill -9` after step 7.
    let cut = dir.path().join("three").join("run");
    copy(&other, &cut);
    let log = std::fs::read_to_string(cut.join("log.jsonl")).unwrap();
    let eighth = log.lines().take(9).collect::<Vec<_>>().join("\n");
    std::fs::write(cut.join("log.jsonl"), &eighth[..eighth.len() - 20]).unwrap();
    for file in ["metrics.json", "embeddings.safetensors", "report.html", "checkpoints/best.safetensors"] {
        std::fs::remove_file(cut.join(file)).unwrap();
    }
    std::fs::copy(five_steps(dir.path(), settings), cut.join("checkpoints/last.safetensors")).unwrap();
    std::fs::write(cut.join("checkpoints/.last.safetensors.tmp-of-a-killed-write"), "half").unwrap();
    let out = gallerist(&["train", "--resume", cut.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(network(&cut), network(&whole));
    // Lines of steps that were done again stay; a reader takes the later.
    let losses = |run: &Path| {
        let records = gallerist::train::log::read(&run.join("log.jsonl")).unwrap();
        let step = |record| match record {
            gallerist::train::log::Record::Step(step) => Some((step.step, step.loss, step.gradient_norm)),
            _ => None,
        };
        records.into_iter().filter_map(step).collect::<Vec<_>>()
    };
    assert_eq!(losses(&cut), losses(&whole));
}

/// The last checkpoint of the same run stopped after five steps.
fn five_steps(dir: &Path, further: &[&str]) -> PathBuf {
    use gallerist::train::{RunConfig, Trainer};
    use std::sync::atomic::{AtomicBool, Ordering};

    struct StopAtFive<'a>(&'a AtomicBool);
    impl gallerist::train::Observer for StopAtFive<'_> {
        fn step(&mut self, record: &gallerist::train::log::Step) {
            if record.step == 5 {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    let settings =
        ["train.steps=12", "train.checkpoint_every=5", "validation.every=6", "data.max_test_classes=20"];
    let settings: Vec<String> = settings.iter().chain(further).map(|s| s.to_string()).collect();
    let config = RunConfig::load(&root().join("configs/smoke.toml"), &settings).unwrap();
    let run = dir.join("five");
    let stop = AtomicBool::new(false);
    let mut trainer = Trainer::start(&config, &run).unwrap();
    let ended = trainer.run(&mut StopAtFive(&stop), &stop).unwrap();
    assert_eq!(ended, gallerist::train::RunEnd::Interrupted);
    run.join("checkpoints/last.safetensors")
}

/// The tensors of a run's last checkpoint.
fn network(run: &Path) -> Vec<(String, Vec<u8>)> {
    let checkpoint =
        gallerist::checkpoint::Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap();
    let tensors = checkpoint.network.iter().chain(&checkpoint.optimizer).chain(&checkpoint.state);
    tensors.map(|(name, data)| (name.clone(), data.as_bytes().to_vec())).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
