//! Commands whose operations on files fail, or that are killed at them: nothing is lost, and the same command works again.
//!
//! A library for `LD_PRELOAD` (`shim.rs`, compiled here) counts the operations that change a file or a folder below `FAULT_DIR`.
//! Operation number `FAULT_AT` fails, or the process is killed there, as `FAULT_KIND` says ([`FAULTS`]).
//!
//! `GALLERIST_FAULTS=all` tries every operation instead of [`TRIED`] of each command.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[path = "../common/mod.rs"]
mod common;
mod served;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{bitmap, root, text};
use gallerist::checkpoint::Checkpoint;
use gallerist::retrieval::{EmbeddingSet, Matrix};

/// What happens at an operation.
const FAULTS: [&str; 5] = [
    "before: killed before it",
    "within: killed in the middle of a write, else after it",
    "after: killed after it",
    "error: it fails with EIO, once",
    "full: it and all later ones fail with ENOSPC",
];

/// Operations of a command at which each fault is tried.
const TRIED: usize = 12;

/// What of a file, by its path and content, is the same in every run; `None`: nothing.
type Same<'a> = dyn Fn(&str, &[u8]) -> Option<Vec<u8>> + 'a;

/// The files below a folder, by their path in it.
type Tree = BTreeMap<String, Vec<u8>>;

struct Harness {
    shim: PathBuf,
    /// Keeps the folders.
    _folder: tempfile::TempDir,
    /// Where commands work: the same path each time, because files contain it.
    dir: PathBuf,
    count: PathBuf,
}

impl Harness {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let (shim, dir, count) = (path.join("shim.so"), path.join("work"), path.join("count"));
        let source = root().join("crates/gallerist/tests/faults/shim.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let out = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-O", "-o"])
            .args([&shim, &source])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        Harness { shim, _folder: folder, dir, count }
    }

    /// A command in the folder, with a fault at operation `at`.
    fn command(&self, line: &str, fault: Option<(&str, usize)>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
        command.args(line.split_whitespace()).current_dir(&self.dir).env("LD_PRELOAD", &self.shim);
        command.env("FAULT_DIR", &self.dir).env("FAULT_COUNT", &self.count);
        if let Some((kind, at)) = fault {
            command.env("FAULT_KIND", kind).env("FAULT_AT", at.to_string());
        }
        command
    }

    fn run(&self, line: &str, fault: Option<(&str, usize)>) -> Output {
        self.command(line, fault).output().unwrap()
    }

    /// The operations of the last command that ended.
    fn operations(&self) -> usize {
        i64::from_ne_bytes(fs::read(&self.count).unwrap().try_into().unwrap()) as usize
    }

    fn succeeds(&self, line: &str, when: &str) {
        let out = self.run(line, None);
        assert_eq!(out.status.code(), Some(0), "{when}: `{line}`: {}", text(&out.stderr));
    }

    fn begin(&self, start: &Tree) {
        let _ = fs::remove_dir_all(&self.dir);
        for (name, bytes) in start {
            let path = self.dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Tries every fault on `command`, from the files of `start`; `again` is the command that ends the work after a
    /// fault. `is_whole` accepts files between the
    /// start and the end.
    fn check(
        &self,
        start: &Tree,
        command: &str,
        again: &dyn Fn(&Path) -> String,
        same: &Same<'_>,
        is_whole: &dyn Fn(&Path) -> bool,
    ) {
        self.begin(start);
        self.succeeds(command, "without a fault");
        let operations = self.operations();
        assert!(operations > 2, "`{command}` does {operations} operations");
        let whole = tree(&self.dir);
        let compared = |tree: &Tree| -> BTreeMap<String, Option<Vec<u8>>> {
            tree.iter().map(|(name, bytes)| (name.clone(), same(name, bytes))).collect()
        };
        let places = places(operations);
        let (mut killed, mut refused) = (0, 0);
        for fault in FAULTS {
            for &at in &places {
                let when = format!("`{command}`, operation {at} of {operations}, {fault}");
                self.begin(start);
                let out = self.run(command, Some((fault, at)));
                let message = text(&out.stderr);
                match out.status.code() {
                    None => {
                        assert!(fault.contains("killed"), "{when}: {message}");
                        killed += 1;
                    }
                    Some(2) => {
                        assert!(message.contains("error: "), "{when}: {message}");
                        refused += 1;
                    }
                    // What failed is only a help, such as a cache.
                    Some(0) => assert_eq!(compared(&tree(&self.dir)), compared(&whole), "{when}"),
                    Some(code) => panic!("{when}: exit code {code}: {message}"),
                }
                for (name, bytes) in tree(&self.dir) {
                    let is_of = |tree: &Tree| {
                        tree.get(&name).map(|known| same(&name, known)) == Some(same(&name, &bytes))
                    };
                    let is_stray = name.rsplit('/').next().is_some_and(gallerist::retrieval::file::is_stray);
                    assert!(
                        is_stray || is_of(start) || is_of(&whole) || is_whole(&self.dir.join(&name)),
                        "{when}: `{name}` is not whole"
                    );
                }
                self.succeeds(&again(&self.dir), &when);
                let after = tree(&self.dir);
                let (after, wanted) = (compared(&after), compared(&whole));
                let names =
                    |tree: &BTreeMap<String, Option<Vec<u8>>>| tree.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&after), names(&wanted), "{when}");
                let differing = wanted.iter().find(|(name, content)| after[*name] != **content);
                assert_eq!(differing.map(|(name, _)| name), None, "{when}");
            }
        }
        let tried = FAULTS.len() * places.len();
        println!("`{command}`: {operations} operations, {tried} faults, {killed} kills, {refused} errors");
        assert_eq!(killed, 3 * places.len(), "every kill takes place");
        assert!(refused > 0, "no failure is an error");
    }
}

/// The operations at which faults are tried.
fn places(operations: usize) -> Vec<usize> {
    match std::env::var("GALLERIST_FAULTS").as_deref() {
        Ok("all") => (1..=operations).collect(),
        _ => {
            let mut places: Vec<usize> = (0..TRIED).map(|i| 1 + i * (operations - 1) / (TRIED - 1)).collect();
            places.dedup();
            places
        }
    }
}

fn tree(folder: &Path) -> Tree {
    fn add(folder: &Path, prefix: &str, tree: &mut Tree) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => add(&entry.path(), &format!("{name}/"), tree),
                false => drop(tree.insert(name, fs::read(entry.path()).unwrap())),
            }
        }
    }
    let mut found = Tree::new();
    add(folder, "", &mut found);
    found
}

/// Embeddings of 60 rows with labels and paths.
fn embeddings(seed: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let values = (0..60 * 8).map(|at| ((at + seed) * (at + 3) % 31) as f32 / 16.0 - 1.0).collect();
    let set = EmbeddingSet {
        labels: Some((0..60).map(|row| format!("class {}", row % 6)).collect()),
        paths: Some((0..60).map(|row| format!("{seed}/{row}.jpg")).collect()),
        ..Matrix::new(60, 8, values).unwrap().into()
    };
    set.save(&path).unwrap();
    fs::read(path).unwrap()
}

fn never(_: &Path) -> bool {
    false
}

fn exact(_: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.to_vec())
}

#[test]
fn files_of_embeddings_and_indices() {
    let harness = Harness::new();
    let mut start =
        Tree::from([("a.safetensors".into(), embeddings(1)), ("b.safetensors".into(), embeddings(2))]);
    let again = |line: &'static str| move |_: &Path| line.to_owned();
    for line in [
        "convert a.safetensors b.safetensors --out all.safetensors --precision int8",
        "convert a.safetensors --out a.npy",
        "index build a.safetensors --out a.index --kind exact",
        "index build a.safetensors --out a.index --kind hnsw",
        "threshold --embeddings a.safetensors --far 0.3 --save b.safetensors",
        "plot map --embeddings a.safetensors --method pca --out map.svg",
    ] {
        harness.check(&start, line, &again(line), &exact, &never);
    }
    harness.begin(&start);
    harness.succeeds("index build a.safetensors --out a.index --kind hnsw", "the start");
    start.insert("a.index".into(), fs::read(harness.dir.join("a.index")).unwrap());
    for line in ["index add a.index b.safetensors", "convert b.safetensors --out a.safetensors"] {
        harness.check(&start, line, &again(line), &exact, &never);
    }
}

#[test]
fn an_embedded_folder() {
    let harness = Harness::new();
    let run = root().join("fixtures/compat/0.1.0/run");
    let mut start: Tree =
        tree(&run).into_iter().map(|(name, bytes)| (format!("run/{name}"), bytes)).collect();
    for image in 0..9 {
        start.insert(format!("photos/{}/{image}.bmp", image / 3), bitmap(20 * image));
    }
    let line = "embed --run run --checkpoint last --images photos --out photos.safetensors --cache cache";
    // The cache is verified when it is read. It is sparse, and its places are written in any order.
    let same = |name: &str, bytes: &[u8]| (!name.starts_with("cache/")).then(|| bytes.to_vec());
    harness.check(&start, line, &|_| line.to_owned(), &same, &never);
}

#[test]
fn a_run() {
    let harness = Harness::new();
    let config = fs::read_to_string(root().join("configs/smoke.toml")).unwrap();
    let data = root().join("data/omniglot");
    let config = config.replace("../data/omniglot", data.to_str().unwrap());
    let start = Tree::from([("a.toml".to_owned(), config.into_bytes())]);
    let settings = "--set train.steps=6 --set train.checkpoint_every=2 --set validation.every=3 \
        --set data.max_train_classes=30 --set data.max_test_classes=4 --set network.channels=[8,8,8,8] \
        --set sampler.classes_per_batch=8 --set report.queries=2 --set report.failures=2 --set report.map=false";
    let line = format!("train a.toml --out run {settings}");
    let again = |dir: &Path| match dir.join("run/checkpoints/last.safetensors").exists() {
        true => "train --resume run".to_owned(),
        false => line.clone(),
    };
    // Times are in the logs, the checkpoints' metadata, the metrics and the report.
    let same = |name: &str, bytes: &[u8]| match name.rsplit('/').next().unwrap() {
        "last.safetensors" | "best.safetensors" => Some(tensors_of(bytes)),
        "log.jsonl" | "metrics.json" | "report.html" => None,
        _ => Some(bytes.to_vec()),
    };
    let is_whole = |path: &Path| match path.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => Checkpoint::load(path).is_ok(),
        _ => false,
    };
    harness.check(&start, &line, &again, &same, &is_whole);
}

/// The tensors' part of a checkpoint.
fn tensors_of(bytes: &[u8]) -> Vec<u8> {
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + length..].to_vec()
}
