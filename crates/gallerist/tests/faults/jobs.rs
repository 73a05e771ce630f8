//! Commands that start processes which train: `experiment run` and `tune`.

use std::path::Path;

use super::{Harness, SMALL, Tree, Work, is_checkpoint, run_file, same_of_run};

const EXPERIMENT: &str = r#"
[experiment]
name = "own"
title = "Two rows that are trained once"
kind = "table"

[[part]]
name = "Omniglot"
metrics = ["recall@1"]
[part.smoke]
base = "base.toml"
about = "two batches for each of three checkpoints"
train = { steps = 6, checkpoint_every = 2 }
data = { max_train_classes = 30, max_test_classes = 4 }
network = { channels = [8, 8, 8, 8] }
sampler = { classes_per_batch = 8 }
report = { queries = 2, failures = 2, map = false }

[[row]]
name = "m = 0.4"
run = { loss = { name = "rll", margin = 0.4 }, validation = { fraction = 0.0 } }

[[row]]
name = "m = 0.4, also Recall@2"
run = { loss = { name = "rll", margin = 0.4 }, validation = { fraction = 0.0 }, evaluation = { recall_at = [1, 2] } }
"#;

const BASE: &str = "[base]\nabout = \"a few characters\"\nneeds = \"nothing\"\n\n[base.files]\n\n";

const SPACE: &str = "\
folds = 2
startup = 1
round = 1

[space]
\"optimizer.learning_rate\" = { choices = [0.01, 0.02] }
";

/// Also of programs that start a training: its messages, its memory, and the tables and pages, which have times.
fn same(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    match name.rsplit('/').next().unwrap() {
        "stderr.txt" | "usage.json" | "trials.toml" | "trials.md" | "trials.csv" | "result.json" => None,
        "own-smoke.json" => None,
        name if name.ends_with(".html") || name.ends_with(".md") || name.ends_with(".csv") => None,
        _ => same_of_run(name, bytes),
    }
}

/// A file that says why a training failed stays until the next start.
fn is_whole(path: &Path) -> bool {
    path.ends_with("failure.txt") || is_checkpoint(path)
}

#[test]
fn an_experiment() {
    let harness = Harness::new();
    let start = Tree::from([
        ("own.toml".into(), EXPERIMENT.as_bytes().to_vec()),
        ("base.toml".into(), [BASE, &run_file()].concat().into_bytes()),
    ]);
    let line = "experiment run own.toml --scale smoke --store store --seeds 1 --jobs 1";
    let again = |_: &Path| line.to_owned();
    harness.check(&Work {
        same: &same,
        is_whole: &is_whole,
        has_children: true,
        loses_power: false,
        ..Work::new(&start, line, &again)
    });
}

#[test]
fn a_search_for_settings() {
    let harness = Harness::new();
    let start = Tree::from([
        ("a.toml".into(), run_file().into_bytes()),
        ("space.toml".into(), SPACE.as_bytes().to_vec()),
        // Of a search that was killed before it had written anything else.
        ("out/.run.toml.7-0.gallerist-tmp".into(), b"folds".to_vec()),
    ]);
    let line =
        format!("tune a.toml --space space.toml --out out --trials 1 --jobs 1 --set train.steps=2 {SMALL}");
    let again = |_: &Path| line.clone();
    harness.check(&Work {
        same: &same,
        is_whole: &is_whole,
        has_children: true,
        ..Work::new(&start, &line, &again)
    });
}
