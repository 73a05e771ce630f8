//! The program as the tests of its commands start it.

#![allow(dead_code, reason = "no test needs everything")]

pub(crate) mod served;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gallerist::retrieval::{EmbeddingSet, Matrix};

/// The program, started in `dir`, with a terminal of 100 columns.
pub(crate) fn gallerist(dir: &Path, line: &str) -> Output {
    program(dir, &line.split_whitespace().collect::<Vec<_>>())
}

/// The same with arguments that may have spaces.
pub(crate) fn program(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(args)
        .current_dir(dir)
        .env("COLUMNS", "100")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("MILVUS_TOKEN")
        .env_remove("QDRANT_API_KEY")
        .output()
        .unwrap()
}

/// What a command that succeeds prints.
pub(crate) fn done(dir: &Path, line: &str) -> String {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// The message of a command that is refused.
pub(crate) fn refused(dir: &Path, line: &str) -> String {
    let out = gallerist(dir, line);
    assert_eq!(out.status.code(), Some(2), "{line}: {}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stderr)
}

/// The JSON that a command prints.
pub(crate) fn json(dir: &Path, line: &str) -> serde_json::Value {
    let out = gallerist(dir, line);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{line}: {}", text(&out.stderr)))
}

/// Rows of 12 values around 40 centres, whose values `centre` gives by class and place. Row `i` has the label `class i % 40`.
pub(crate) fn around_centres(
    rows: usize,
    seed: u64,
    model: &str,
    noise: f32,
    centre: impl Fn(usize, usize) -> f32,
) -> EmbeddingSet {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let data = (0..rows * 12).map(|at| centre(at / 12 % 40, at % 12) + noise * uniform()).collect();
    EmbeddingSet {
        labels: Some((0..rows).map(|row| format!("class{}", row % 40)).collect()),
        paths: Some((0..rows).map(|row| format!("{seed}/{row}.jpg")).collect()),
        cameras: Some((0..rows).map(|row| format!("c{}", row % 3)).collect()),
        model: Some(model.to_owned()),
        ..Matrix::new(rows, 12, data).unwrap().into()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The settings that make `configs/smoke.toml` a run of 12 steps.
pub(crate) const SMALL: [&str; 4] =
    ["train.steps=12", "train.checkpoint_every=5", "validation.every=6", "data.max_test_classes=20"];

/// A run of `configs/smoke.toml`, made smaller, in `dir/run`.
pub(crate) fn small_run(dir: &Path, settings: &[&str]) -> PathBuf {
    let run = dir.join("run");
    let mut args = vec!["train", "configs/smoke.toml", "--out", run.to_str().unwrap(), "--json"];
    for setting in SMALL.iter().chain(settings) {
        args.extend(["--set", setting]);
    }
    let out = program(&root(), &args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    run
}

/// A bitmap of one grey pixel.
pub(crate) fn bitmap(brightness: u8) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    for word in [58u32, 0, 54, 40, 1, 1, 24 << 16 | 1, 0, 4, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend([brightness, brightness, brightness, 0]);
    file
}
