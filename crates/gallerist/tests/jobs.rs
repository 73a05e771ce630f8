//! Many runs: skipped when done, continued after a kill, one failure alone.

#[path = "common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{SMALL, root};
use gallerist::jobs::{self, End, Job, JobFolder, Observer, Options, State};
use gallerist::train::RunConfig;

fn job(name: &str, settings: &[&str]) -> Job {
    let settings: Vec<String> = SMALL.iter().chain(settings).map(|setting| setting.to_string()).collect();
    Job::new(name, RunConfig::load(&root().join("configs/smoke.toml"), &settings).unwrap())
}

fn options(store: &Path) -> Options {
    let program = Some(PathBuf::from(env!("CARGO_BIN_EXE_gallerist")));
    Options { jobs: 2, threads: 2, program, ..Options::new(store) }
}

#[test]
fn a_job_whose_program_begins_jobs_of_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // The program of this test is not `gallerist`: as a job, it begins jobs again.
    if std::env::var_os("GALLERIST_JOB").is_some() {
        let error = jobs::Pool::new(&Options::new(folder.path().join("store"))).err().unwrap();
        assert!(error.hint().unwrap().contains("gallerist::cli::run"), "{error}");
        return;
    }
    let name = "a_job_whose_program_begins_jobs_of_its_own_is_refused";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env("GALLERIST_JOB", "1")
        .output()
        .unwrap();
    assert!(child.status.success() && String::from_utf8_lossy(&child.stdout).contains("1 passed"));
}

/// Raises a flag at a step of a job, and keeps the ends.
struct Watch<'a> {
    stop_at: usize,
    stop: &'a AtomicBool,
    running: usize,
}

impl Observer for Watch<'_> {
    fn state(&mut self, _job: usize, state: &State) {
        if let State::Running { step, .. } = state {
            self.running += 1;
            if *step >= self.stop_at {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn run(jobs: &[Job], store: &Path, stop_at: usize) -> (Vec<jobs::JobOutcome>, usize) {
    let stop = AtomicBool::new(false);
    let mut watch = Watch { stop_at, stop: &stop, running: 0 };
    let outcomes = jobs::run(jobs, &options(store), &mut watch, &stop).unwrap();
    (outcomes, watch.running)
}

#[test]
fn one_failure_leaves_the_other_jobs_alone_and_equal_jobs_run_once() {
    let store = tempfile::tempdir().unwrap();
    let mut broken = job("broken", &[]);
    broken.config.data.train = vec!["nowhere".into()];
    let jobs =
        [job("a", &[]), broken, job("b", &["loss.margin=0.3"]), job("the same as a", &["train.threads=3"])];
    let (outcomes, _) = run(&jobs, store.path(), usize::MAX);
    let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
    assert_eq!(names, ["a", "broken", "b", "the same as a"]);
    let reason = outcomes[1].failure().unwrap();
    assert!(reason.contains("nowhere"), "{reason}");
    assert_eq!(JobFolder::of(store.path(), &jobs[1]).failure().as_deref(), Some(reason));
    let [a, b, same] = [0, 2, 3].map(|i| outcomes[i].numbers().unwrap());
    assert_eq!(a, same);
    assert_ne!(a.metrics["map@r"], b.metrics["map@r"]);
    assert_eq!((a.steps, a.threads), (12, 1));
    assert!(a.seconds_per_step.unwrap() > 0.0 && !a.best_validation.is_empty());
    #[cfg(target_os = "linux")]
    assert!(a.peak_memory_mib.unwrap() > 1.0);
    assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 3);

    // Nothing is done twice, and what failed is tried again.
    let (again, running) = run(&jobs[..1], store.path(), usize::MAX);
    assert_eq!((again[0].numbers(), running), (Some(a), 0));
    assert!(matches!(run(&jobs[1..2], store.path(), usize::MAX).0[0].end, End::Failed(_)));
}

#[test]
fn a_stopped_job_continues_and_gets_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let long = [job("long", &["train.steps=60", "train.checkpoint_every=10"])];
    let (whole, _) = run(&long, &folder.path().join("whole"), usize::MAX);
    let store = folder.path().join("cut");
    let (stopped, _) = run(&long, &store, 3);
    assert!(matches!(stopped[0].end, End::Stopped), "{stopped:?}");
    assert!(stopped[0].directory.join("checkpoints/last.safetensors").exists());
    let (continued, _) = run(&long, &store, usize::MAX);
    assert_eq!(continued[0].numbers().unwrap().metrics, whole[0].numbers().unwrap().metrics);
}

#[test]
fn a_job_that_another_process_trains_is_waited_for() {
    let store = tempfile::tempdir().unwrap();
    let jobs = [job("one", &["train.steps=40"])];
    let folder = JobFolder::of(store.path(), &jobs[0]);
    // As a killed program leaves it: its training process goes on.
    let file = store.path().join("run.toml");
    std::fs::write(&file, jobs[0].config.to_toml()).unwrap();
    std::fs::create_dir_all(folder.run().parent().unwrap()).unwrap();
    let mut orphan = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .arg("train")
        .arg(&file)
        .arg("--out")
        .arg(folder.run())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !folder.run().join("log.jsonl").exists() {
        assert!(orphan.try_wait().unwrap().is_none(), "the run could not start");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (outcomes, running) = run(&jobs, store.path(), usize::MAX);
    assert!(orphan.wait().unwrap().success());
    assert_eq!((outcomes[0].numbers().unwrap().steps, running), (40, 0));
}

#[test]
fn jobs_whose_batches_depend_on_the_embeddings_share_a_training_only_with_the_same_ones() {
    let key = |sampler, evaluation| {
        job("a", &["validation.fraction=0.0", sampler, evaluation]).training_key().unwrap()
    };
    for (sampler, depends) in [
        ("sampler.kind=classes_images", false),
        ("sampler={kind='random', batch_size=40}", false),
        ("sampler.kind=hard_classes", true),
        ("sampler.kind=hard_identities", true),
    ] {
        let all = key(sampler, "evaluation.recall_at=[1]");
        assert_eq!(key(sampler, "evaluation.recall_at=[1,3]"), all, "{sampler}");
        for other in [
            "evaluation.heads=['embedding']",
            "evaluation.combine=normalize_then_concat",
            "evaluation.metric=euclidean",
        ] {
            assert_eq!(key(sampler, other) != all, depends, "{sampler}, {other}");
        }
    }
}

#[test]
fn jobs_that_differ_only_in_what_is_measured_are_trained_once() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name, recall| job(name, &["validation.fraction=0.0", recall]);
    let jobs = [
        named("a", "evaluation.recall_at=[1]"),
        job("other steps", &["validation.fraction=0.0", "evaluation.recall_at=[1]", "train.steps=11"]),
        named("b", "evaluation.recall_at=[1,3]"),
    ];
    let together = folder.path().join("together");
    let (outcomes, _) = run(&jobs, &together, usize::MAX);
    let read = |store: &Path, job: &Job, name: &str| {
        std::fs::read(JobFolder::of(store, job).run().join(name)).unwrap()
    };
    // The times in the log are those of the one training.
    assert_eq!(read(&together, &jobs[0], "log.jsonl"), read(&together, &jobs[2], "log.jsonl"));
    assert_ne!(read(&together, &jobs[0], "log.jsonl"), read(&together, &jobs[1], "log.jsonl"));
    let [a, b] = [0, 2].map(|i| &outcomes[i].numbers().unwrap().metrics);
    assert_eq!(a["recall@1"], b["recall@1"]);
    assert!(!a.contains_key("recall@3") && b.contains_key("recall@3"));

    // A damaged training is not taken.
    let damaged = JobFolder::of(&together, &jobs[0]).run().join("checkpoints/last.safetensors");
    std::fs::write(&damaged, b"damaged").unwrap();
    let third = named("c", "evaluation.recall_at=[1,5]");
    let other = JobFolder::of(&together, &jobs[2]).run().join("checkpoints/last.safetensors");
    let whole = std::fs::read(&other).unwrap();
    std::fs::write(&other, b"damaged").unwrap();
    let (outcomes, _) = run(std::slice::from_ref(&third), &together, usize::MAX);
    assert!(outcomes[0].numbers().unwrap().metrics.contains_key("recall@5"));
    assert_ne!(read(&together, &third, "log.jsonl"), read(&together, &jobs[2], "log.jsonl"));
    std::fs::write(&other, whole).unwrap();

    // The result is that of a training of its own.
    let alone = folder.path().join("alone");
    run(&jobs[2..], &alone, usize::MAX);
    for name in ["embeddings.safetensors", "metrics.json", "images.csv", "checkpoints/last.safetensors"] {
        assert_eq!(read(&alone, &jobs[2], name), read(&together, &jobs[2], name), "{name}");
    }
}
