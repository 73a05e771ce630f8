//! Commands whose operations on files fail, that are killed, or that a loss of power ends: nothing is lost, and the same
//! command works again.
//!
//! A library for `LD_PRELOAD` (`shim.rs`, compiled here) counts the operations that change a file or a folder below `FAULT_DIR`.
//! Operation number `FAULT_AT` fails, or the process is killed there, as `FAULT_KIND` says ([`FAULTS`]). Commands are
//! also killed at random moments. `power.rs` makes the folders that a loss of power may leave.
//!
//! `GALLERIST_FAULTS=all` tries all operations, [`KILLS`] moments and all folders of each command instead of a few; a part of
//! it is `operations`, `moments` or `power` ([`Part`]).

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

#[path = "../common/mod.rs"]
mod common;
mod fetch;
mod jobs;
mod maps;
mod power;
mod served;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{bitmap, root, text};
use gallerist::checkpoint::Checkpoint;
use gallerist::retrieval::file::is_stray;
use gallerist::retrieval::{EmbeddingSet, Matrix};
use power::{Before, Record};

/// What happens at an operation.
const FAULTS: [&str; 7] = [
    "before: killed before it",
    "within: killed in the middle of a write, else after it",
    "after: killed after it",
    "error: it fails with EIO, once",
    "full: it and all later ones fail with ENOSPC",
    "read-only: it and all later ones fail with EROFS",
    "denied: it and all later ones fail with EACCES",
];

/// Operations of a command at which each fault is tried.
const TRIED: usize = 5;

/// Moments at which a command is killed, of all and of a few.
const KILLS: (usize, usize) = (34, 2);

/// Folders after a loss of power that are tried, of a few.
const STATES: usize = 5;

/// What of a file, by its path and content, is the same in every run; `None`: nothing.
type Same<'a> = dyn Fn(&str, &[u8]) -> Option<Vec<u8>> + 'a;

/// The files below a folder, by their path in it. A path that ends with `/` is a folder.
type Tree = BTreeMap<String, Vec<u8>>;

/// What is tried of a command, by its name in `GALLERIST_FAULTS`.
#[derive(Clone, Copy)]
enum Part {
    /// Faults of operations.
    Operations,
    /// Kills at random moments.
    Moments,
    /// Folders after a loss of power.
    Power,
}

impl Part {
    /// Whether all of it is tried, instead of a few.
    fn is_whole(self) -> bool {
        let name = match self {
            Part::Operations => "operations",
            Part::Moments => "moments",
            Part::Power => "power",
        };
        match std::env::var("GALLERIST_FAULTS").as_deref() {
            Err(_) => false,
            Ok("all") => true,
            Ok(chosen @ ("operations" | "moments" | "power")) => chosen == name,
            Ok(other) => panic!("GALLERIST_FAULTS={other}: all, operations, moments or power"),
        }
    }
}

struct Harness {
    shim: PathBuf,
    /// Keeps the folders.
    _folder: tempfile::TempDir,
    /// Where commands work: the same path each time, because files contain it.
    dir: PathBuf,
    count: PathBuf,
    record: PathBuf,
    is_recording: Cell<bool>,
}

/// A command and what it is expected to do.
struct Work<'a> {
    start: &'a Tree,
    line: &'a str,
    /// The command that ends the work after a fault.
    again: &'a dyn Fn(&Path) -> String,
    /// The exit code of that command in a folder in which the work was done before the fault.
    code_if_done: i32,
    same: &'a Same<'a>,
    /// Accepts files between the start and the end.
    is_whole: &'a dyn Fn(&Path) -> bool,
    /// A file that is only ever appended to, and that is durable when the command has ended.
    log: Option<&'a str>,
    /// What holds in every folder after a loss of power.
    holds: &'a dyn Fn(&Tree) -> bool,
    /// A loss of power is tried, even where not all folders are.
    loses_power: bool,
    /// The command starts processes. If one of them is killed, it continues, and ends with exit code 1.
    has_children: bool,
    /// The number of operations differs between runs, because the network delivers bytes in pieces of any size. An operation
    /// that a run does not reach does not fail.
    varies: bool,
}

impl<'a> Work<'a> {
    fn new(start: &'a Tree, line: &'a str, again: &'a dyn Fn(&Path) -> String) -> Self {
        Work {
            start,
            line,
            again,
            code_if_done: 0,
            same: &exact,
            is_whole: &never,
            log: None,
            holds: &|_| true,
            has_children: false,
            varies: false,
            loses_power: true,
        }
    }

    /// How much is tried, of what `count` names: less of commands that take long.
    fn few(&self, count: usize) -> usize {
        if self.has_children { count.div_ceil(3) } else { count }
    }

    /// The first file that one of the folders has and the other has not, or not with this content.
    fn differing<'t>(&self, one: &'t Tree, other: &'t Tree) -> Option<&'t str> {
        let same = |tree: &Tree, name: &str| tree.get(name).map(|bytes| (self.same)(name, bytes));
        // What a process used is not known if the program that started and watched it was killed.
        let is_compared = |name: &&str| !(self.has_children && name.ends_with("/usage.json"));
        let mut names = one.keys().chain(other.keys()).map(String::as_str).filter(is_compared);
        names.find(|name| same(one, name) != same(other, name))
    }
}

impl Harness {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let source = root().join("crates/gallerist/tests/faults/shim.rs");
        let shim = path.join("shim.so");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let out = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-O", "-o"])
            .args([&shim, &source])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        let at = |name: &str| path.join(name);
        Harness {
            shim,
            dir: at("work"),
            count: at("count"),
            record: at("record"),
            _folder: folder,
            is_recording: Cell::new(false),
        }
    }

    /// A command in the folder, with a fault at operation `at`.
    fn command(&self, line: &str, fault: Option<(&str, usize)>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
        command.args(line.split_whitespace()).current_dir(&self.dir).env("LD_PRELOAD", &self.shim);
        command.env("FAULT_DIR", &self.dir).env("FAULT_COUNT", &self.count);
        fs::write(&self.count, [0; 8]).unwrap();
        if self.is_recording.get() {
            command.env("FAULT_RECORD", &self.record);
        }
        if let Some((kind, at)) = fault {
            command.env("FAULT_KIND", kind).env("FAULT_AT", at.to_string());
        }
        command
    }

    fn run(&self, line: &str, fault: Option<(&str, usize)>) -> Output {
        let out = self.command(line, fault).output().unwrap();
        self.wait_for_children();
        out
    }

    /// Waits for the processes that a killed command has started, which continue.
    fn wait_for_children(&self) {
        let mark = format!("FAULT_COUNT={}\0", self.count.display());
        let is_ours = |entry: fs::DirEntry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark.as_bytes())
        };
        let mut waited = 0;
        while fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(is_ours) {
            std::thread::sleep(Duration::from_millis(20));
            waited += 1;
            assert!(waited < 30_000, "a process of a killed command does not end");
        }
    }

    /// The operations of the last command.
    fn operations(&self) -> usize {
        i64::from_ne_bytes(fs::read(&self.count).unwrap().try_into().unwrap()) as usize
    }

    fn succeeds(&self, line: &str, when: &str) {
        let out = self.run(line, None);
        assert_eq!(out.status.code(), Some(0), "{when}: `{line}`: {}", text(&out.stderr));
    }

    fn begin(&self, start: &Tree) {
        let _ = fs::remove_dir_all(&self.dir);
        fs::create_dir_all(&self.dir).unwrap();
        for (name, bytes) in start {
            let path = self.dir.join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).unwrap();
                continue;
            }
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// Tries operations, moments and losses of power.
    fn check(&self, work: &Work<'_>) {
        self.begin(work.start);
        self.succeeds(work.line, "without a fault");
        let operations = self.operations();
        assert!(operations > 2, "`{}` does {operations} operations", work.line);
        let whole = tree(&self.dir);
        self.operations_fail(work, &whole, operations);
        self.killed_by_chance(work, &whole);
        if work.loses_power || Part::Power.is_whole() {
            self.power_is_lost(work, &whole);
        }
    }

    fn operations_fail(&self, work: &Work<'_>, whole: &Tree, operations: usize) {
        let line = work.line;
        let places = places(operations, work.few(TRIED));
        let (mut killed, mut refused, mut unreached) = (0, 0, 0);
        // Of commands that take long, every second fault.
        let every = if work.has_children && !Part::Operations.is_whole() { 2 } else { 1 };
        let faults = FAULTS.iter().step_by(every);
        for &fault in faults.clone() {
            for &at in &places {
                let when = format!("`{line}`, operation {at} of {operations}, {fault}");
                self.begin(work.start);
                let out = self.run(line, Some((fault, at)));
                let message = text(&out.stderr);
                match out.status.code() {
                    None => {
                        assert!(fault.contains("killed"), "{when}: {message}");
                        killed += 1;
                    }
                    // A process of it was killed or failed.
                    Some(1) if work.has_children => killed += usize::from(fault.contains("killed")),
                    Some(2) => {
                        assert!(message.contains("error: "), "{when}: {message}");
                        refused += 1;
                    }
                    // What failed is only a help, such as a cache.
                    Some(0) => {
                        // A temporary file that could not be removed is left to the next command.
                        let mut now = tree(&self.dir);
                        now.retain(|name, _| !is_temporary(name));
                        assert_eq!(work.differing(&now, whole), None, "{when}");
                        let is_reached = !work.varies || self.operations() >= at;
                        unreached += usize::from(fault.contains("killed") && !is_reached);
                    }
                    Some(code) => panic!("{when}: exit code {code}: {message}"),
                }
                if at == 1
                    && (fault.starts_with("read-only") || fault.starts_with("denied"))
                    && !work.has_children
                {
                    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
                    let now = tree(&self.dir);
                    assert!(out.status.code() == Some(0) || names(&now) == names(work.start), "{when}");
                }
                self.is_sound(work, whole, &when);
                self.ends(work, whole, &when);
            }
        }
        let tried = faults.len() * places.len();
        println!("`{line}`: {operations} operations, {tried} faults, {killed} kills, {refused} errors");
        assert!(work.has_children || killed + unreached == 3 * places.len(), "every kill takes place");
        assert!(killed > 0 && (refused > 0 || work.has_children), "no failure is an error");
    }

    fn killed_by_chance(&self, work: &Work<'_>, whole: &Tree) {
        self.begin(work.start);
        let start = Instant::now();
        self.run(work.line, None);
        let time = start.elapsed();
        let kills = if Part::Moments.is_whole() { KILLS.0 } else { work.few(KILLS.1) };
        let mut killed = 0;
        for (random, number) in power::numbers(17).take(kills).zip(1..) {
            let after = time.mul_f64(random as f64 / (1u64 << 31) as f64);
            let when = format!("`{}`, kill {number} after {after:?} of {time:?}", work.line);
            self.begin(work.start);
            let mut command = self.command(work.line, None);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(after);
            child.kill().unwrap();
            killed += usize::from(child.wait().unwrap().code().is_none());
            self.wait_for_children();
            self.is_sound(work, whole, &when);
            self.ends(work, whole, &when);
        }
        println!("`{}`: killed at {killed} of {kills} moments", work.line);
    }

    fn power_is_lost(&self, work: &Work<'_>, whole: &Tree) {
        let record = self.record(work.start, |harness| harness.succeeds(work.line, "recorded"));
        let mut found = record.whole();
        found.retain(|name, _| !name.ends_with('/'));
        assert!(found == tree(&self.dir), "`{}`: an operation was not recorded", work.line);
        let states = record.states();
        let tried = few(Part::Power, states.len(), work.few(STATES));
        let tried: Vec<_> = tried.into_iter().map(|at| &states[at]).collect();
        for state in states.iter().filter(|_| !work.has_children) {
            let when = format!("`{}`, {}", work.line, state.what);
            self.begin(&state.tree);
            self.is_sound(work, whole, &when);
            assert!((work.holds)(&state.tree), "{when}");
        }
        for state in &tried {
            let when = format!("`{}`, {}", work.line, state.what);
            self.begin(&state.tree);
            self.is_sound(work, whole, &when);
            if state.done == record.len() {
                let lost = whole.iter().find(|(name, bytes)| {
                    let wanted = (work.same)(name, bytes);
                    let found = state.tree.get(*name).and_then(|bytes| (work.same)(name, bytes));
                    wanted != found || (work.log == Some(name.as_str()) && !state.tree.contains_key(*name))
                });
                assert_eq!(lost.map(|(name, _)| name), None, "{when}: what the command has done is lost");
            }
            self.ends(work, whole, &when);
        }
        let (line, all, tried) = (work.line, states.len(), tried.len());
        println!(
            "`{line}`: {} operations recorded, {all} folders after a loss of power, {tried} tried",
            record.len()
        );
    }

    /// What `work` does to files.
    fn record(&self, start: &Tree, work: impl FnOnce(&Self)) -> Record {
        self.begin(start);
        let before = Before::of(&self.dir);
        let _ = fs::remove_file(&self.record);
        self.is_recording.set(true);
        work(self);
        self.is_recording.set(false);
        Record::parse(&fs::read(&self.record).unwrap(), before, &self.dir)
    }

    /// Every file under a final name is whole.
    fn is_sound(&self, work: &Work<'_>, whole: &Tree, when: &str) {
        for (name, bytes) in tree(&self.dir) {
            let is_of = |tree: &Tree| {
                tree.get(&name).map(|known| (work.same)(&name, known)) == Some((work.same)(&name, &bytes))
            };
            assert!(
                is_temporary(&name)
                    || is_of(work.start)
                    || is_of(whole)
                    || (work.is_whole)(&self.dir.join(&name)),
                "{when}: `{name}` is not whole"
            );
        }
    }

    /// The command, given again, ends the work as if nothing had been.
    fn ends(&self, work: &Work<'_>, whole: &Tree, when: &str) {
        let log = work.log.map(|name| self.dir.join(name));
        let before = log.as_ref().map(|path| fs::read(path).unwrap_or_default()).unwrap_or_default();
        let line = (work.again)(&self.dir);
        let out = self.run(&line, None);
        let is_expected = out.status.code().is_some_and(|code| code == 0 || code == work.code_if_done);
        assert!(is_expected, "{when}: `{line}`: {:?}, {}", out.status, text(&out.stderr));
        assert_eq!(work.differing(&tree(&self.dir), whole), None, "{when}");
        if let Some(path) = log {
            assert!(fs::read(&path).unwrap().starts_with(&before), "{when}: bytes of the log have changed");
            let undisturbed: Vec<usize> = steps(&whole[work.log.unwrap()]);
            assert_eq!(
                steps(&fs::read(&path).unwrap()),
                undisturbed,
                "{when}: steps are missing from the log"
            );
        }
    }
}

/// The steps of a log, without those that were done again.
fn steps(log: &[u8]) -> Vec<usize> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    fs::write(&path, log).unwrap();
    let records = gallerist::train::log::read(&path).unwrap();
    let step = |record: &gallerist::train::log::Record| match record {
        gallerist::train::log::Record::Step(step) => Some(step.step),
        _ => None,
    };
    records.iter().filter_map(step).collect()
}

/// The operations at which faults are tried.
fn places(operations: usize, tried: usize) -> Vec<usize> {
    few(Part::Operations, operations, tried).into_iter().map(|at| at + 1).collect()
}

/// All of so many, or a few at equal distances, first and last among them.
fn few(part: Part, count: usize, tried: usize) -> Vec<usize> {
    if part.is_whole() || count <= tried {
        return (0..count).collect();
    }
    assert!(tried > 1);
    (0..tried).map(|i| i * (count - 1) / (tried - 1)).collect()
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

fn is_temporary(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(is_stray)
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
    for line in [
        "convert a.safetensors b.safetensors --out all.safetensors --precision int8",
        "convert a.safetensors --out a.npy",
        "index build a.safetensors --out a.index --kind exact",
        "index build a.safetensors --out a.index --kind hnsw",
        "threshold --embeddings a.safetensors --far 0.3 --save b.safetensors",
        "plot map --embeddings a.safetensors --method pca --out map.svg",
    ] {
        harness.check(&Work::new(&start, line, &|_| line.to_owned()));
    }
    harness.begin(&start);
    harness.succeeds("index build a.safetensors --out a.index --kind hnsw", "the start");
    start.insert("a.index".into(), fs::read(harness.dir.join("a.index")).unwrap());
    for line in ["index add a.index b.safetensors", "convert b.safetensors --out a.safetensors"] {
        harness.check(&Work::new(&start, line, &|_| line.to_owned()));
    }
    let line = "index remove a.index --path 1/0.jpg --path 1/7.jpg";
    // Code 1 tells that there is nothing to remove.
    harness.check(&Work { code_if_done: 1, ..Work::new(&start, line, &|_| line.to_owned()) });
}

#[test]
fn a_folder_embedded_and_measured_for_int8() {
    let harness = Harness::new();
    let start = photos();
    let line = "embed --run run --checkpoint last --images photos --out photos.safetensors --cache cache";
    // The cache is verified when it is read. It is sparse, and its places are written in any order.
    let same = |name: &str, bytes: &[u8]| (!name.starts_with("cache/")).then(|| bytes.to_vec());
    harness.check(&Work {
        same: &same,
        is_whole: &is_cache,
        ..Work::new(&start, line, &|_| line.to_owned())
    });
    let line = "model calibrate --run run --checkpoint last --images photos";
    harness.check(&Work::new(&start, line, &|_| line.to_owned()));
}

#[test]
fn a_shard() {
    let harness = Harness::new();
    let mut start = photos();
    let rows = (0..9).map(|image| format!("photos/{0}/{image}.bmp,{0}\n", image / 3));
    start.insert("list.csv".into(), format!("path,label\n{}", rows.collect::<String>()).into_bytes());
    // One image cannot be read.
    start.insert("photos/1/4.bmp".into(), b"no image".to_vec());
    let line = "embed --run run --checkpoint last --shards list.csv --shard 0/1 --out shards --part 2 --precision bf16";
    harness.check(&Work { is_whole: &is_part, ..Work::new(&start, line, &|_| line.to_owned()) });
    start.insert("photos/1/4.bmp".into(), bitmap(80));
    harness.begin(&start);
    harness.succeeds(line, "the start");
    let start = tree(&harness.dir);
    harness.check(&Work::new(&start, "merge shards --out all.json", &|_| {
        "merge shards --out all.json".to_owned()
    }));
}

/// A part of a shard.
fn is_part(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.extension().is_some_and(|extension| extension == "parts"))
        && match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => serde_json::from_slice::<serde_json::Value>(&fs::read(path).unwrap()).is_ok(),
            _ => EmbeddingSet::load(path).is_ok(),
        }
}

fn is_cache(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("cache"))
}

/// A run and nine images.
fn photos() -> Tree {
    let run = root().join("fixtures/compat/0.1.0/run");
    let mut start: Tree =
        tree(&run).into_iter().map(|(name, bytes)| (format!("run/{name}"), bytes)).collect();
    for image in 0..9 {
        start.insert(format!("photos/{}/{image}.bmp", image / 3), bitmap(20 * image));
    }
    start
}

/// A run file of a training of parts of a second, but for its number of steps.
const SMALL: &str = "--set data.max_train_classes=30 --set data.max_test_classes=4 --set network.channels=[8,8,8,8] \
    --set sampler.classes_per_batch=8 --set report.queries=2 --set report.failures=2 --set report.map=false";

/// `configs/smoke.toml` with the absolute path of its images.
fn run_file() -> String {
    let config = fs::read_to_string(root().join("configs/smoke.toml")).unwrap();
    config.replace("../data/omniglot", root().join("data/omniglot").to_str().unwrap())
}

#[test]
fn a_run() {
    let harness = Harness::new();
    let start = Tree::from([("a.toml".to_owned(), run_file().into_bytes())]);
    let line = format!(
        "train a.toml --out run --set train.steps=6 --set train.checkpoint_every=2 --set validation.every=3 {SMALL}"
    );
    let again = |dir: &Path| match dir.join("run/checkpoints/last.safetensors").exists() {
        true => "train --resume run".to_owned(),
        false => line.clone(),
    };
    harness.check(&Work {
        same: &same_of_run,
        is_whole: &is_checkpoint,
        log: Some("run/log.jsonl"),
        holds: &log_has_the_steps_of_the_checkpoint,
        ..Work::new(&start, &line, &again)
    });
}

#[test]
fn a_run_that_may_only_be_read() {
    let harness = Harness::new();
    let mut start = photos();
    let temporary = "run/checkpoints/.last.safetensors.4711-0.gallerist-tmp";
    start.insert(temporary.into(), b"half".to_vec());
    harness.begin(&start);
    for kind in ["read-only", "denied"] {
        let out = harness.run("info run", Some((kind, 1)));
        assert_eq!(out.status.code(), Some(0), "{kind}: {}", text(&out.stderr));
        assert!(harness.operations() > 0, "{kind}: nothing was tried");
        assert!(harness.dir.join(temporary).exists(), "{kind}: it could be removed");
    }
    harness.succeeds("info run", "with the right to write");
    assert!(!harness.dir.join(temporary).exists());
}

/// Times are in the log and in a file of their own.
fn same_of_run(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    match name.rsplit('/').next().unwrap() {
        "log.jsonl" | "timing.json" => None,
        _ => Some(bytes.to_vec()),
    }
}

fn is_checkpoint(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors") && Checkpoint::load(path).is_ok()
}

/// The log has every step up to the last checkpoint, so that a resumed run has all of them.
fn log_has_the_steps_of_the_checkpoint(tree: &Tree) -> bool {
    let Some(bytes) = tree.get("run/checkpoints/last.safetensors") else { return true };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last.safetensors");
    fs::write(&path, bytes).unwrap();
    let done = Checkpoint::load(&path).unwrap().header.step;
    let logged = tree.get("run/log.jsonl").map(|log| steps(log)).unwrap_or_default();
    (1..=done).all(|step| logged.contains(&step))
}
