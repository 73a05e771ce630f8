//! `gallerist train`: a small run from end to end, and what is refused.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common::{bitmap, root, small_run, text};
use crate::program::{error, gallerist};

#[test]
fn a_small_run_leaves_everything_behind_and_its_files_serve_the_other_commands() {
    let dir = tempfile::tempdir().unwrap();
    let run = small_run(dir.path(), &[]);
    let path = |name: &str| run.join(name).to_str().unwrap().to_string();
    for file in [
        "config.toml",
        "log.jsonl",
        "metrics.json",
        "embeddings.safetensors",
        "report.html",
        "checkpoints/last.safetensors",
        "checkpoints/best.safetensors",
    ] {
        assert!(run.join(file).exists(), "{file}");
    }

    // The log: one JSON object a line, every step once.
    let log = std::fs::read_to_string(run.join("log.jsonl")).unwrap();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<u64> =
        records.iter().filter(|r| r["event"] == "step").map(|r| r["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=12).collect::<Vec<_>>());
    assert_eq!(records.iter().filter(|r| r["event"] == "validation").count(), 2);

    // The metrics, in the shape that scripts read.
    let metrics: Value =
        serde_json::from_str(&std::fs::read_to_string(run.join("metrics.json")).unwrap()).unwrap();
    let shape = |value: &Value| match value {
        Value::Object(map) => map.keys().cloned().collect::<Vec<_>>().join("\n"),
        _ => panic!("an object"),
    };
    insta::assert_snapshot!(
        "metrics_keys",
        format!("{}\n--- metrics\n{}", shape(&metrics), shape(&metrics["metrics"]))
    );
    assert_eq!(metrics["queries"], 400);

    // `evaluate` gives the same figures from the run and from its embeddings.
    let from_run = gallerist(&["evaluate", "--run", run.to_str().unwrap(), "--json"]);
    let from_file = gallerist(&["evaluate", "--embeddings", &path("embeddings.safetensors"), "--json"]);
    let figures = |out: &Output| serde_json::from_slice::<Value>(&out.stdout).unwrap()["metrics"].clone();
    assert_eq!(figures(&from_run), metrics["metrics"]);
    assert_eq!(figures(&from_file), metrics["metrics"]);

    // The runs of a one-shot test: each test image is a copy of its class's training image.
    let characters =
        gallerist::data::ImageSet::open(root().join("data/omniglot/omniglot_images_evaluation.zip"));
    let characters = characters.unwrap();
    let runs = dir.path().join("runs");
    let mut answers = String::new();
    for class in 0..4 {
        for (folder, place) in [("training", class), ("test", 3 - class)] {
            let file = runs.join("run01").join(folder).join(format!("{place}.png"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, characters.read(class * 20).unwrap()).unwrap();
        }
        answers += &format!("run01/test/{}.png run01/training/{class}.png\n", 3 - class);
    }
    std::fs::write(runs.join("run01/class_labels.txt"), answers).unwrap();
    let one_shot = ["evaluate", "--run", run.to_str().unwrap(), "--one-shot", runs.to_str().unwrap()];
    let found: Value =
        serde_json::from_slice(&gallerist(&[&one_shot[..], &["--json"]].concat()).stdout).unwrap();
    assert_eq!((&found["one_shot"]["accuracy"], &found["one_shot"]["ways"]), (&1.0.into(), &4.into()));
    assert!(text(&gallerist(&one_shot).stdout).contains("4-way, 4 test images"));

    // `embed` gives the same rows; `search` finds an image of the gallery itself, at distance 0.
    let zip = "data/omniglot/omniglot_images_evaluation.zip";
    let again = dir.path().join("again.safetensors");
    let embedded = gallerist(&[
        "embed",
        "--run",
        run.to_str().unwrap(),
        "--images",
        zip,
        "--out",
        again.to_str().unwrap(),
        "--json",
    ]);
    let summary: Value = serde_json::from_slice(&embedded.stdout).unwrap();
    assert_eq!((&summary["images"], &summary["dimensions"]), (&13_180.into(), &32.into()));

    // A published data set is told by its folders; a split of it is embedded with its cameras.
    let market = dir.path().join("market");
    for (i, file) in ["bounding_box_train/0007_c1s1_1.bmp", "query/0002_c3s1_1.bmp", "query/0002_c4s1_1.bmp"]
        .iter()
        .enumerate()
    {
        let file = market.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bitmap(i as u8)).unwrap();
    }
    let queries = dir.path().join("queries.safetensors");
    let (run_path, market, out) =
        (run.to_str().unwrap(), market.to_str().unwrap(), queries.to_str().unwrap());
    let embedded =
        gallerist(&["embed", "--run", run_path, "--images", market, "--split", "query", "--out", out]);
    let said = text(&embedded.stderr);
    assert!(said.contains("split `query` of Market-1501 has 2 images of 1 class; published are"), "{said}");
    let set = gallerist::retrieval::EmbeddingSet::load(&queries).unwrap();
    assert_eq!(set.labels.unwrap(), ["0002", "0002"]);
    assert_eq!(set.cameras.unwrap(), ["3", "4"]);

    let query = dir.path().join("query.png");
    std::fs::write(&query, first_image(&root().join(zip))).unwrap();
    let page = dir.path().join("page.html");
    let found = gallerist(&[
        "search",
        "--gallery",
        again.to_str().unwrap(),
        "--query",
        query.to_str().unwrap(),
        "-k",
        "3",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]);
    let lists: Value =
        serde_json::from_slice(&found.stdout).unwrap_or_else(|_| panic!("{}", text(&found.stderr)));
    let first = &lists[0]["results"][0];
    assert_eq!(first["index"], 0);
    assert_eq!(first["label"], "Angelic/character01");
    assert!(first["distance"].as_f64().unwrap() < 1e-3);
    assert_eq!(lists[0]["results"].as_array().unwrap().len(), 3);
    // An index of the same embeddings finds the same images; it names them by ids.
    let index = dir.path().join("again.index");
    let (again, index) = (again.to_str().unwrap(), index.to_str().unwrap());
    let query_file = query.to_str().unwrap();
    let built = gallerist(&["index", "build", again, "--out", index]);
    assert_eq!(built.status.code(), Some(0), "{}", text(&built.stderr));
    let found = gallerist(&["search", "--gallery", index, "--query", query_file, "-k", "3", "--json"]);
    let by_index: Value =
        serde_json::from_slice(&found.stdout).unwrap_or_else(|_| panic!("{}", text(&found.stderr)));
    for (a, b) in (0..3).map(|at| (&by_index[0]["results"][at], &lists[0]["results"][at])) {
        assert_eq!((&a["path"], &a["label"], &a["distance"]), (&b["path"], &b["label"], &b["distance"]));
        let source = gallerist::retrieval::file::Source::name_of(&root().join(zip));
        let path = a["path"].as_str().unwrap();
        assert_eq!(a["id"], gallerist::retrieval::index::item_id(Some(&source), path).to_string());
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Angelic/character01") && page.contains("data:image/png"));

    // A gallery of one image, in int8: more results asked for than there are; then cut short.
    let (run, query) = (run.to_str().unwrap(), query.to_str().unwrap());
    let one = dir.path().join("one.safetensors");
    let file = one.to_str().unwrap();
    let out = gallerist(&["embed", "--run", run, "--images", query, "--out", file, "--precision", "int8"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let search = ["search", "--gallery", file, "--query", query, "-k", "3", "--json"];
    let lists: Value = serde_json::from_slice(&gallerist(&search).stdout).unwrap();
    let results = lists[0]["results"].as_array().unwrap();
    assert!(results.len() == 1 && results[0]["distance"].as_f64().unwrap() < 0.02, "{results:?}");
    let whole = std::fs::read(&one).unwrap();
    std::fs::write(&one, &whole[..whole.len() - 1]).unwrap();
    assert!(error(&search).contains("it is cut short or damaged"));
}

/// The bytes of the first image of a zip, in the order of its names.
fn first_image(zip: &Path) -> Vec<u8> {
    let set = gallerist::data::ImageSet::open(zip).unwrap();
    set.read(0).unwrap()
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
#[test]
fn a_device_that_the_program_was_not_built_for_is_refused_before_a_run_begins() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    for (device, feature) in [("cuda:1", "cuda"), ("wgpu", "wgpu")] {
        let out = error(&["train", "configs/smoke.toml", "--device", device, "--out", run.to_str().unwrap()]);
        assert!(out.contains(&format!("cannot compute on `{device}`")), "{out}");
        assert!(out.contains(&format!("cargo build --release --features {feature}")), "{out}");
        assert!(!run.exists());
    }
    let out = error(&["train", "configs/smoke.toml", "--device", "gpu", "--out", run.to_str().unwrap()]);
    assert!(out.contains("a device is auto, cpu, cuda, cuda:N, wgpu or wgpu:N, not `gpu`"), "{out}");
}

#[test]
fn f16_is_refused_on_the_processor() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let settings = ["--device", "cpu", "--set", "train.precision=f16", "--out", run.to_str().unwrap()];
    let out = error(&[&["train", "configs/smoke.toml"], &settings[..]].concat());
    assert!(out.contains("`train.precision` must be f32 ") && out.contains("not f16"), "{out}");
    assert!(!run.exists());
}

#[test]
fn a_second_run_does_not_go_into_the_directory_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let run = small_run(dir.path(), &["data.test=[]"]);
    let before = std::fs::read(run.join("checkpoints/last.safetensors")).unwrap();
    let message = error(&["train", "configs/smoke.toml", "--out", run.to_str().unwrap()]);
    assert!(message.contains("it holds another run") && message.contains("--resume"), "{message}");
    assert_eq!(before, std::fs::read(run.join("checkpoints/last.safetensors")).unwrap());
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let message = error(&[
        "train",
        "configs/smoke.toml",
        "--out",
        run.to_str().unwrap(),
        "--set",
        "optimizer.learning_rate=1e30",
        "--set",
        "train.checkpoint_every=1",
    ]);
    assert!(message.contains("at step ") && message.contains("learning_rate"), "{message}");
    let checkpoint =
        gallerist::checkpoint::Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap();
    assert!(checkpoint.header.step >= 1);
}

#[test]
fn a_rank_of_a_program_without_mpi_says_so_and_trains_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let program = |line: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gallerist"));
        let out =
            command.args(line).env("OMPI_COMM_WORLD_SIZE", "4").current_dir(dir.path()).output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        text(&out.stderr)
    };
    let config = root().join("configs/smoke.toml");
    let error = program(&["embed", "--run", "x", "--images", "y", "--out", "z"]);
    assert!(error.contains("one of 4 ranks") && error.contains("gallerist train"), "{error}");
    if cfg!(not(feature = "mpi")) {
        let error = program(&["train", config.to_str().unwrap(), "--out", "run"]);
        assert!(error.contains("one of 4 ranks") && error.contains("--features mpi"), "{error}");
        assert!(!dir.path().join("run").exists());
    }
}
