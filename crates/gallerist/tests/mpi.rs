//! Training by several processes that `mpirun` starts.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use gallerist::RunMetrics;
use gallerist::checkpoint::Checkpoint;
use gallerist::train::log::{Record, Step, read};
use gallerist::train::{CheckpointKind, RunDirectory};

/// A cross-batch memory of four batches.
const MEMORY: &str = "xbm={ size = 240, start_step = 5 }";

fn smoke() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/smoke.toml")
}

/// `mpirun -n RANKS gallerist ARGUMENTS`.
fn mpirun(ranks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_gallerist")).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn succeed(output: Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn train(ranks: usize, out: &Path, settings: &[&str]) {
    let (config, out) = (smoke(), out.to_str().unwrap());
    let mut arguments = vec!["train", config.to_str().unwrap(), "--out", out];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    succeed(mpirun(ranks, &arguments).output().unwrap());
}

fn steps(run: &Path) -> Vec<Step> {
    let step = |record| if let Record::Step(step) = record { Some(step) } else { None };
    read(&RunDirectory::open(run).unwrap().log()).unwrap().into_iter().filter_map(step).collect()
}

fn close(found: f32, wanted: f32, by: f32, what: &str) {
    assert!((found - wanted).abs() <= by * wanted.abs(), "{what}: {found} instead of {wanted}");
}

#[test]
fn ranks_take_the_steps_of_one_process_and_find_the_same_images() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [MEMORY, "loss={ name = \"multi_similarity\" }", "train.steps=40"];
    let mut all = Vec::new();
    for ranks in [1, 2, 4] {
        let out = folder.path().join(ranks.to_string());
        train(ranks, &out, &settings);
        let metrics = RunMetrics::load(&RunDirectory::open(&out).unwrap().metrics()).unwrap();
        all.push((ranks, steps(&out), metrics.evaluation.metrics["recall@1"]));
    }
    let (_, wanted, recall) = &all[0];
    for (ranks, found, found_recall) in &all[1..] {
        assert_eq!((found.len(), wanted.len()), (40, 40));
        close(found[0].loss, wanted[0].loss, 1e-6, &format!("first loss of {ranks} ranks"));
        close(found[0].gradient_norm, wanted[0].gradient_norm, 1e-5, &format!("gradient of {ranks} ranks"));
        close(found[9].loss, wanted[9].loss, 1e-2, &format!("tenth loss of {ranks} ranks"));
        assert!(
            (found_recall - recall).abs() < 0.03,
            "recall {found_recall} of {ranks} ranks, {recall} of one"
        );
    }
}

/// A run of several ranks that does not end soon, in its first steps.
struct Long {
    child: Child,
    out: PathBuf,
}

impl Long {
    fn start(ranks: usize, out: PathBuf) -> Self {
        let (config, path) = (smoke(), out.to_str().unwrap().to_owned());
        let arguments = [
            "train",
            config.to_str().unwrap(),
            "--out",
            &path,
            "--set",
            "train.steps=100000",
            "--set",
            "validation.every=100000",
        ];
        let mut command = mpirun(ranks, &arguments);
        // For how long Open MPI waits between its signals.
        command.env("OMPI_MCA_odls_base_sigkill_timeout", "3");
        let long = Long { child: command.spawn().unwrap(), out };
        let begun = Instant::now();
        while !std::fs::read(long.out.join("log.jsonl")).is_ok_and(|log| log.len() > 2000) {
            assert!(begun.elapsed() < Duration::from_secs(120), "no steps");
            std::thread::sleep(Duration::from_millis(50));
        }
        long
    }

    /// The process of a rank.
    fn process(&self, rank: usize) -> u32 {
        let (of_run, wanted) = (self.out.to_str().unwrap(), format!("OMPI_COMM_WORLD_RANK={rank}"));
        let is_rank = |process: &u32| {
            let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
            let has = |bytes: Vec<u8>, text: &str| {
                bytes.split(|&byte| byte == 0).any(|part| part == text.as_bytes())
            };
            has(read("cmdline"), of_run) && has(read("environ"), &wanted)
        };
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.into_iter().find(is_rank).expect("the rank is there")
    }

    /// Waits for the end; `within` seconds.
    fn end(self, within: u64) -> (Output, Duration) {
        let begun = Instant::now();
        let output = self.child.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(within), "the end took {:?}", begun.elapsed());
        (output, begun.elapsed())
    }
}

fn signal(name: &str, process: u32) {
    succeed(Command::new("kill").args([name, &process.to_string()]).output().unwrap());
}

#[test]
fn where_a_rank_is_killed_all_end_and_the_message_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let long = Long::start(3, folder.path().join("run"));
    let others = [0, 2].map(|rank| long.process(rank));
    let killed = long.process(1);
    signal("-KILL", killed);
    let (output, _) = long.end(10);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("rank 1 of 3") || text.contains("process rank 1"), "{text}");
    for process in others {
        assert!(!Path::new(&format!("/proc/{process}/exe")).exists(), "process {process} is still there");
    }
}

#[test]
fn a_stopped_run_has_a_checkpoint_and_continues_with_another_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let long = Long::start(2, folder.path().join("run"));
    let (out, launcher) = (long.out.clone(), long.child.id());
    signal("-INT", launcher);
    let (output, _) = long.end(30);
    assert!(!output.status.success());
    let last = || {
        Checkpoint::load(&RunDirectory::open(&out).unwrap().checkpoint(CheckpointKind::Last))
            .unwrap()
            .header
            .step
    };
    let stopped = last();
    assert!(stopped > 0, "{}", String::from_utf8_lossy(&output.stderr));
    let config = RunDirectory::open(&out).unwrap().config();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("steps = 100000", &format!("steps = {}", stopped + 5))).unwrap();
    succeed(mpirun(3, &["train", "--resume", out.to_str().unwrap()]).output().unwrap());
    assert_eq!(last(), stopped + 5);
    let steps: Vec<usize> = steps(&out).iter().map(|step| step.step).collect();
    assert_eq!(steps, (1..=stopped + 5).collect::<Vec<_>>());
}

#[test]
fn other_commands_are_refused() {
    let output = mpirun(2, &["config", "--print-defaults"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("one of 2 ranks") && text.contains("gallerist train"),
        "{text}"
    );
}
