//! `gallerist weights`.

use serde_json::Value;

use crate::common::{small_run, text};
use crate::program::{error, gallerist};

#[test]
fn files_of_weights_are_shown_and_refused() {
    let inspect = |name: &str| gallerist(&["weights", "inspect", &format!("fixtures/weights/{name}")]);
    insta::assert_snapshot!("weights_inspect", text(&inspect("zip.pth").stdout));
    insta::assert_snapshot!("weights_list", text(&gallerist(&["weights", "list"]).stdout));
    let refused = [
        error(&["weights", "inspect", "fixtures/weights/code-zip.pth"]),
        error(&["weights", "inspect", "Cargo.toml"]),
        error(&["weights", "inspect", "fixtures/weights/zip.pth", "--config", "configs/smoke.toml"]),
        error(&["weights", "fetch", "resnet50"]),
        error(&["weights", "fetch", "https://example.org/w.pth"]),
    ];
    insta::assert_snapshot!("weights_refused", refused.join("\n"));
}

#[test]
fn a_trained_network_goes_out_and_comes_back_with_the_same_fingerprint() {
    let dir = tempfile::tempdir().unwrap();
    let run = small_run(dir.path(), &[]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let run = run.to_str().unwrap();
    let (file, model, config) = (path("w.safetensors"), path("model"), format!("{run}/config.toml"));
    let ok = |args: &[&str]| {
        let out = gallerist(args);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        out
    };
    ok(&["weights", "export", "--run", run, "--out", &file]);
    ok(&["weights", "export", "--run", run, "--out", &path("w.onnx")]);
    assert!(std::fs::metadata(path("w.onnx")).unwrap().len() > 10_000);
    assert!(error(&["weights", "export", "--run", run, "--out", &path("w.bin")]).contains(".onnx"));
    let shown = ok(&["weights", "inspect", &file, "--config", &config]);
    assert!(text(&shown.stdout).contains(" 0 new, 0 not taken"), "{}", text(&shown.stdout));
    ok(&["weights", "import", &file, "--config", &config, "--out", &model]);
    let fingerprint = |run: &str| {
        let (images, out) = ("data/omniglot/omniglot_images_evaluation.zip", path("e.npy"));
        let out = ok(&["embed", "--run", run, "--images", images, "--out", &out, "--json"]);
        serde_json::from_slice::<Value>(&out.stdout).unwrap()["model"].clone()
    };
    assert_eq!(fingerprint(run), fingerprint(&model));
    let started = path("started");
    let weights = format!("network.weights={file}");
    let out = ok(&[
        "train",
        "configs/smoke.toml",
        "--set",
        &weights,
        "--set",
        "train.steps=1",
        "--set",
        "validation.fraction=0",
        "--set",
        "data.test=[]",
        "--out",
        &started,
    ]);
    assert!(text(&out.stderr).contains("weights: 22 tensors loaded\n"), "{}", text(&out.stderr));
}
