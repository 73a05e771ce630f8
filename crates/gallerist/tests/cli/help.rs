//! Help, errors, defaults, completions.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common::text;
use crate::program::{error, gallerist};

#[test]
fn help_says_what_there_is() {
    insta::assert_snapshot!("help", text(&gallerist(&["--help"]).stdout));
    for command in [
        "init",
        "train",
        "tune",
        "experiment",
        "embed",
        "convert",
        "evaluate",
        "threshold",
        "search",
        "loss",
        "data",
        "weights",
        "config",
        "completions",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), text(&gallerist(&[command, "--help"]).stdout));
    }
    insta::assert_snapshot!("help_data_info", text(&gallerist(&["data", "info", "--help"]).stdout));
    insta::assert_snapshot!("help_data_issues", text(&gallerist(&["data", "issues", "--help"]).stdout));
    for command in ["list", "show", "run", "table"] {
        let help = text(&gallerist(&["experiment", command, "--help"]).stdout);
        insta::assert_snapshot!(format!("help_experiment_{command}"), help);
    }
    for command in ["list", "fetch", "inspect", "import", "export"] {
        let help = text(&gallerist(&["weights", command, "--help"]).stdout);
        insta::assert_snapshot!(format!("help_weights_{command}"), help);
    }
}

#[test]
fn errors_say_what_was_wanted_what_was_found_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    };
    let typo = file("typo.toml", "[train]\nsteps = 5\n\n[optimizer]\nlearningrate = 0.1\n");
    let section = file("section.toml", "[optimiser]\nlearning_rate = 0.1\n");
    let syntax = file("syntax.toml", "[train]\nsteps =\n");
    let network = file("network.toml", "[network]\nkind = \"conv_block\"\n");
    let loss = file("loss.toml", "[loss]\nname = \"rll\"\nmargn = 0.1\n");
    let missing = file("missing.toml", "[data]\ntrain = [\"nowhere\"]\n");
    let none = file("none.toml", "");
    let smoke = "configs/smoke.toml";
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let mut all = String::new();
    let mut case = |name: &str, args: &[&str]| {
        let message = error(args).replace(dir.path().to_str().unwrap(), "DIR");
        all += &format!("--- {name}\n{message}\n");
    };
    case("no run file", &["train", "nothing.toml", "--out", out]);
    case("a typo in a key", &["train", &typo, "--out", out]);
    case("a typo in a section", &["train", &section, "--out", out]);
    case("a syntax error", &["train", &syntax, "--out", out]);
    case("an unknown network", &["train", &network, "--out", out]);
    case("a typo in a loss's parameter", &["train", &loss, "--out", out]);
    case("a typo in --set", &["train", smoke, "--set", "loss.margn=1", "--out", out]);
    case("--set without =", &["train", smoke, "--set", "loss.margin", "--out", out]);
    case("a value out of range", &["train", smoke, "--set", "optimizer.learning_rate=-1", "--out", out]);
    case("no training images", &["train", &none, "--out", out]);
    case("no such folder", &["train", &missing, "--out", out]);
    case(
        "batch larger than the classes allow",
        &["train", smoke, "--set", "sampler.classes_per_batch=500", "--out", out],
    );
    case("no run to go on with", &["train", "--resume", out]);
    case("no run to embed with", &["embed", "--run", out, "--images", ".", "--out", "x.npy"]);
    case("no embeddings", &["evaluate", "--embeddings", "nothing.npy"]);
    case("an unknown extension", &["evaluate", "--embeddings", smoke]);
    case("search in no gallery", &["search", "--gallery", "nothing.safetensors", "--query", "x.png"]);
    // The snapshot is that of a build without Parquet and Arrow.
    let all = match cfg!(feature = "arrow") {
        true => all.replace(
            "`.npy`, `.safetensors`, `.parquet`, `.arrow`, `.feather` or `.ipc`",
            "`.npy` or `.safetensors`",
        ),
        false => all,
    };
    insta::assert_snapshot!("errors", all);
    assert!(!Path::new(out).exists(), "a run that cannot start leaves no directory behind");
}

#[test]
fn the_printed_defaults_are_the_defaults() {
    let printed = gallerist(&["config", "--print-defaults"]);
    assert_eq!(printed.status.code(), Some(0));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("defaults.toml");
    std::fs::write(&path, &printed.stdout).unwrap();
    let checked = gallerist(&["config", "--check", path.to_str().unwrap(), "--json"]);
    let defaults = gallerist(&["config", "--print-defaults", "--json"]);
    let json = |out: &Output| serde_json::from_slice::<Value>(&out.stdout).unwrap();
    assert_eq!(json(&checked), json(&defaults));
}

#[test]
fn the_printed_defaults_name_the_keys_without_a_value() {
    let printed = text(&gallerist(&["config", "--print-defaults"]).stdout);
    for key in ["relabel", "relabel_sha256", "layout", "train_split", "test_fraction", "cache_folder"] {
        assert!(printed.contains(&format!("\n# {key} = ")), "{key}");
    }
}

#[test]
fn a_file_of_a_run_that_says_nothing_alone_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (name, what) in [
        ("timing.json", "the times of a run"),
        ("broken_images.json", "the list of a run's images that could not be read"),
        ("place.toml", "the place where a run directory was made"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, "[]").unwrap();
        let out = gallerist(&["info", path.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains(&format!("is {what}")), "{}", text(&out.stderr));
    }
    for (name, content, what) in [
        ("a.json", "{}", "is nothing that `info` describes"),
        ("b.json", "{\"format\": \"gallerist-new\"}", "is of the unknown format `gallerist-new`"),
        ("c.json", "{\"a\": ", "is damaged, or no JSON"),
        ("images.csv", "path,label\n", "is nothing that `info` describes"),
        ("report.html", "<!DOCTYPE html>", "is nothing that `info` describes"),
        ("lines.jsonl", "{\"id\":1}\n", "is nothing that `info` describes"),
        ("trials.toml", "[[trial]]\nnumber = 1\n", "is the trials of a search, and nothing"),
        ("space.toml", "[space]\n", "is the space of a search, and nothing"),
        ("run.toml", "[trainn]\n", "cannot read the run file"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let out = gallerist(&["info", path.to_str().unwrap()]);
        assert!(text(&out.stderr).contains(what), "{name}: {}", text(&out.stderr));
    }
}

#[cfg(unix)]
#[test]
fn the_hint_to_continue_a_run_can_be_pasted_into_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("my run");
    std::fs::create_dir_all(run.join("checkpoints")).unwrap();
    std::fs::write(run.join("checkpoints/last.safetensors"), "").unwrap();
    let out = gallerist(&["train", "configs/smoke.toml", "--out", run.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(2));
    let hint = format!("continue that run: --resume '{}'", run.display());
    assert!(text(&out.stderr).contains(&hint), "{}", text(&out.stderr));
}

#[test]
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let out = gallerist(&["completions", shell]);
        assert!(text(&out.stdout).contains("gallerist"), "{shell}");
    }
}
