//! The program from outside: its own parts work by their names in every command.

use std::path::Path;
use std::process::Command;

const RUN_FILE: &str = r#"
[train]
steps = 20
device = "cpu"
[data]
train = "stripes://8"
test = "stripes://5"
[validation]
fraction = 0.25
every = 10
metric = "last_rank"
[image]
size = 16
channels = 1
[sampler]
classes_per_batch = 4
images_per_class = 3
[network]
kind = "perceptron"
hidden = 16
[loss]
name = "contrast"
push = 0.5
[evaluation]
metrics = ["recall@1", "last_rank"]
"#;

/// What the program prints to stdout and stderr.
fn downstream(directory: &Path, line: &str, status: i32) -> (String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_downstream"))
        .args(line.split_whitespace())
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(out.status.code(), Some(status), "{line}: {}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

#[test]
fn its_own_parts_are_trained_measured_and_searched() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("run.toml"), RUN_FILE).unwrap();
    let (metrics, _) = downstream(at, "train run.toml --out run", 0);
    assert!(metrics.contains("last_rank") && metrics.contains("50 queries"), "{metrics}");
    assert!(at.join("run/report.html").exists());

    let (again, _) = downstream(at, "evaluate --run run", 0);
    assert_eq!(again.trim(), metrics.trim());
    downstream(at, "embed --run run --images stripes://5 --out stripes.safetensors", 0);
    let (found, _) = downstream(at, "search --gallery stripes.safetensors --query stripes://1 -k 1 --run run", 0);
    assert!(found.contains("every 2"), "{found}");

    let (_, unknown) = downstream(at, "train run.toml --out other --set network.kind=perceptrom", 2);
    assert!(unknown.contains("did you mean `perceptron`?"), "{unknown}");
}
