//! The same run file gives the same bytes: in two processes and two directories, twice in a process, for any number of
//! threads, and with AVX2 as with AVX-512. Without vector instructions, the results differ by rounding.

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use common::{done, root, text};
use gallerist::checkpoint::Checkpoint;
use gallerist::retrieval::EmbeddingSet;
use gallerist::train::{RunConfig, Trainer};
use serde_json::Value;

/// A run with everything that could differ: class means, memory, averaged weights, validation, a broken image.
const SETTINGS: [&str; 14] = [
    "train.steps=8",
    "train.checkpoint_every=3",
    "train.accumulate=2",
    "train.average_decay=0.9",
    "validation.every=4",
    "data.max_train_classes=40",
    "data.max_test_classes=8",
    "sampler={ kind = \"hard_identities\", classes_per_batch = 8, images_per_class = 3, pool = 12, refresh_every = 3, images_per_mean = 4 }",
    "xbm={ size = 60, start_step = 1 }",
    "optimizer={ kind = \"adamw\", learning_rate = 0.003, clip_norm = 1.0 }",
    "network.dimensions=16",
    "evaluation.bootstrap={ resamples = 20 }",
    "report.queries=3",
    "report.failures=3",
];

/// Files that are not the same in two runs of a run file: times, and the place of the run directory.
const VARYING: [&str; 3] = ["log.jsonl", "timing.json", "place.toml"];

/// Fields of the log that are times.
const TIMES: [&str; 2] = ["seconds", "waited"];

fn train(out: &Path, further: &[&str], variables: &[(&str, &str)]) -> PathBuf {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
    command.args(["train", "configs/smoke.toml", "--device", "cpu", "--out"]).arg(out).current_dir(root());
    for setting in SETTINGS.iter().chain(further) {
        command.args(["--set", setting]);
    }
    let done = command.envs(variables.iter().copied()).output().unwrap();
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    out.into()
}

/// All files of a folder by their path in it.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    found
}

/// The records of a log without times.
fn log_without_times(bytes: &[u8]) -> Vec<Value> {
    let record = |line: &str| {
        let mut record: Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap();
        assert!(fields["event"] != "step" || TIMES.iter().all(|time| fields.contains_key(*time)), "{line}");
        fields.retain(|name, _| !TIMES.contains(&name.as_str()));
        record
    };
    std::str::from_utf8(bytes).unwrap().lines().map(record).collect()
}

/// Every tensor of the checkpoints, and the embeddings, as bits.
fn tensors(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in ["last", "best"] {
        let checkpoint = Checkpoint::load(&run.join(format!("checkpoints/{name}.safetensors"))).unwrap();
        let groups = [&checkpoint.network, &checkpoint.loss, &checkpoint.optimizer, &checkpoint.state];
        for (group, tensors) in groups.into_iter().enumerate() {
            let bytes = tensors.iter().map(|(tensor, data)| (tensor, data.as_bytes().to_vec()));
            all.extend(bytes.map(|(tensor, bytes)| (format!("{name}.{group}.{tensor}"), bytes)));
        }
    }
    let rows = EmbeddingSet::load(run.join("embeddings.safetensors")).unwrap().embeddings;
    let bits = (0..rows.rows()).flat_map(|row| rows.row(row).iter().flat_map(|value| value.to_le_bytes()));
    all.insert("embeddings".into(), bits.collect());
    all
}

#[test]
fn two_runs_of_a_run_file_leave_equal_files_but_for_those_of_times_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two] = ["one/run", "two/deeper/run"].map(|name| train(&folder.path().join(name), &[], &[]));
    let (first, second) = (files(&one), files(&two));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    for wanted in [
        "checkpoints/last.safetensors",
        "checkpoints/best.safetensors",
        "embeddings.safetensors",
        "report.html",
    ] {
        assert!(first.contains_key(wanted), "{wanted}");
    }
    let differing: Vec<&String> = first.keys().filter(|name| first[*name] != second[*name]).collect();
    assert!(differing.iter().all(|name| VARYING.contains(&name.as_str())), "{differing:?}");
    assert_eq!(log_without_times(&first["log.jsonl"]), log_without_times(&second["log.jsonl"]));
    // So are embeddings and indices that are made of them.
    let dir = folder.path();
    let images = root().join("data/omniglot/omniglot_images_background.zip");
    std::fs::create_dir(dir.join("out")).unwrap();
    for (run, name) in [("one/run", "a"), ("two/deeper/run", "b")] {
        let embed = format!("embed --run {run} --images {} --out out/{name}.safetensors", images.display());
        done(dir, &embed);
        for kind in ["exact", "hnsw"] {
            done(
                dir,
                &format!(
                    "index build {run}/embeddings.safetensors --out out/{name}-{kind}.index --kind {kind}"
                ),
            );
        }
        // The run that is named is that of the directory.
        let set = EmbeddingSet::load(dir.join(run).join("embeddings.safetensors")).unwrap();
        assert_eq!(Path::new(&set.run.unwrap()), dir.join(run).canonicalize().unwrap());
    }
    let made = files(&dir.join("out"));
    let is_run = |bytes: &[u8], run: &str| text_of(bytes).contains(run);
    for (a, b) in [
        ("a.safetensors", "b.safetensors"),
        ("a-exact.index", "b-exact.index"),
        ("a-hnsw.index", "b-hnsw.index"),
    ] {
        // They name their run.
        assert!(is_run(&made[a], "one/run") && is_run(&made[b], "two/deeper/run"), "{a}");
    }
    let rows = |name: &str| EmbeddingSet::load(dir.join("out").join(name)).unwrap().embeddings;
    assert_eq!(rows("a.safetensors"), rows("b.safetensors"));
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn one_two_and_three_threads_give_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let run = |threads: usize| {
        let settings = [format!("train.threads={threads}"), format!("train.loader_threads={threads}")];
        train(&folder.path().join(threads.to_string()), &[&settings[0], &settings[1]], &[])
    };
    let wanted = tensors(&run(1));
    for threads in [2, 3] {
        let found = tensors(&run(threads));
        let differing: Vec<&String> = wanted.keys().filter(|name| wanted[*name] != found[*name]).collect();
        assert!(differing.is_empty(), "{threads} threads: {differing:?}");
    }
}

#[test]
fn a_run_twice_in_a_process_has_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let settings: Vec<String> = SETTINGS.iter().map(|setting| (*setting).to_owned()).collect();
    let config = RunConfig::load(&root().join("configs/smoke.toml"), &settings).unwrap();
    let run = |name: &str| {
        let out = folder.path().join(name);
        Trainer::start(&config, &out).unwrap().run(&mut (), &AtomicBool::new(false)).unwrap();
        ["last", "best"]
            .map(|which| std::fs::read(out.join(format!("checkpoints/{which}.safetensors"))).unwrap())
    };
    assert_eq!(run("one"), run("two"));
}

/// The loss of each step.
fn losses(run: &Path) -> Vec<f64> {
    let log = std::fs::read(run.join("log.jsonl")).unwrap();
    let steps = log_without_times(&log).into_iter().filter(|record| record["event"] == "step");
    steps.map(|step| step["loss"].as_f64().unwrap()).collect()
}

#[cfg(target_arch = "x86_64")]
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_gives_the_bits_of_avx512_and_portable_code_differs_by_rounding() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    let has_wide = is_x86_feature_detected!("avx512f");
    for (name, there) in
        [("portable", true), ("avx2", is_x86_feature_detected!("avx2")), ("avx512", has_wide)]
    {
        if !there {
            println!("this CPU has no {name}");
            continue;
        }
        let run = |time: &str| {
            let out = folder.path().join(format!("{name}-{time}"));
            train(&out, &[], &[("GALLERIST_INSTRUCTIONS", name)])
        };
        let (one, two) = (run("one"), run("two"));
        assert_eq!(tensors(&one), tensors(&two), "{name} twice");
        all.push((name, losses(&one), tensors(&one)));
    }
    let (widest, losses, tensors) = all.last().unwrap();
    for (name, other_losses, other_tensors) in &all {
        let differences = losses.iter().zip(other_losses).map(|(a, b)| ((a - b) / a).abs());
        let differences: Vec<f64> = differences.collect();
        let equal = tensors.iter().filter(|(tensor, bytes)| other_tensors[*tensor] == **bytes).count();
        let all: Vec<String> = differences.iter().map(|difference| format!("{difference:.1e}")).collect();
        let [a, b] = [tensors, other_tensors].map(|tensors| floats(&tensors["embeddings"]));
        let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!(
            "{name} and {widest}: losses differ by {}; {equal} of {} tensors are equal; embeddings differ by at most {apart:.1e}",
            all.join(", "),
            tensors.len()
        );
        match *name {
            "portable" => assert!(differences[0] < 1e-5, "the first step differs by rounding only"),
            _ => assert_eq!(equal, tensors.len(), "{name} and {widest}"),
        }
    }
}

#[test]
fn an_unknown_instruction_set_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
    let out =
        command.args(["config", "--print-defaults"]).env("GALLERIST_INSTRUCTIONS", "avx3").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("not `avx3`"), "{}", text(&out.stderr));
}
