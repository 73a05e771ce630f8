//! The real program: its help, its errors, a small run from end to end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The program, started in the repository's root, with a terminal of 100 columns.
fn gallerist(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(args)
        .current_dir(root())
        .env("COLUMNS", "100")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code and stderr of a call that must fail.
fn error(args: &[&str]) -> String {
    let out = gallerist(args);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(out.stdout.is_empty(), "data on stdout beside an error: {}", text(&out.stdout));
    text(&out.stderr)
}

/// A run of `configs/smoke.toml`, made smaller, in `dir/run`.
fn small_run(dir: &Path, settings: &[&str]) -> PathBuf {
    let run = dir.join("run");
    let mut args = vec!["train", "configs/smoke.toml", "--out", run.to_str().unwrap(), "--json"];
    let small =
        ["train.steps=12", "train.checkpoint_every=5", "validation.every=6", "data.max_test_classes=20"];
    for setting in small.iter().chain(settings) {
        args.extend(["--set", setting]);
    }
    let out = gallerist(&args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    run
}

#[test]
fn help_says_what_there_is() {
    insta::assert_snapshot!("help", text(&gallerist(&["--help"]).stdout));
    for command in ["train", "embed", "evaluate", "search", "loss", "config", "completions"] {
        insta::assert_snapshot!(format!("help_{command}"), text(&gallerist(&[command, "--help"]).stdout));
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
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Angelic/character01") && page.contains("data:image/png"));
}

/// The bytes of the first image of a zip, in the order of its names.
fn first_image(zip: &Path) -> Vec<u8> {
    let set = gallerist::data::ImageSet::open(zip).unwrap();
    set.read(0).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bits_and_so_does_a_run_that_was_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let whole = small_run(&one, &["train.loader_threads=1"]);
    let other = small_run(&two, &["train.loader_threads=3"]);
    let read = |run: &Path, file: &str| std::fs::read(run.join(file)).unwrap();
    assert_eq!(read(&whole, "embeddings.safetensors").len(), read(&other, "embeddings.safetensors").len());
    assert_eq!(network(&whole), network(&other));

    // Killed between two checkpoints: as the disk is left by `kill -9` after step 7.
    let cut = dir.path().join("three").join("run");
    copy(&other, &cut);
    let log = std::fs::read_to_string(cut.join("log.jsonl")).unwrap();
    let eighth = log.lines().take(9).collect::<Vec<_>>().join("\n");
    std::fs::write(cut.join("log.jsonl"), &eighth[..eighth.len() - 20]).unwrap();
    for file in ["metrics.json", "embeddings.safetensors", "report.html", "checkpoints/best.safetensors"] {
        std::fs::remove_file(cut.join(file)).unwrap();
    }
    std::fs::copy(five_steps(dir.path()), cut.join("checkpoints/last.safetensors")).unwrap();
    std::fs::write(cut.join("checkpoints/.last.safetensors.tmp-of-a-killed-write"), "half").unwrap();
    let out = gallerist(&["train", "--resume", cut.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(network(&cut), network(&whole));
    let losses = |run: &Path| {
        let log = std::fs::read_to_string(run.join("log.jsonl")).unwrap();
        log.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|record| record["event"] == "step")
            .map(|record| (record["step"].clone(), record["loss"].clone(), record["gradient_norm"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(losses(&cut), losses(&whole));
}

/// The last checkpoint of the same run stopped after five steps.
fn five_steps(dir: &Path) -> PathBuf {
    use gallerist::train::{RunConfig, Trainer};
    use std::sync::atomic::{AtomicBool, Ordering};

    struct StopAtFive<'a>(&'a AtomicBool);
    impl gallerist::train::Observer for StopAtFive<'_> {
        fn step(&mut self, record: &gallerist::train::log::Step) {
            if record.step == 5 {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    let settings =
        ["train.steps=12", "train.checkpoint_every=5", "validation.every=6", "data.max_test_classes=20"];
    let settings: Vec<String> = settings.iter().map(|s| s.to_string()).collect();
    let config = RunConfig::load(&root().join("configs/smoke.toml"), &settings).unwrap();
    let run = dir.join("five");
    let stop = AtomicBool::new(false);
    let mut trainer = Trainer::start(&config, &run).unwrap();
    let ended = trainer.run(&mut StopAtFive(&stop), &stop).unwrap();
    assert_eq!(ended, gallerist::train::Outcome::Interrupted);
    run.join("checkpoints/last.safetensors")
}

/// The tensors of a run's last checkpoint.
fn network(run: &Path) -> Vec<(String, Vec<u8>)> {
    let checkpoint =
        gallerist::checkpoint::Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap();
    let tensors = checkpoint.network.iter().chain(&checkpoint.optimizer);
    tensors.map(|(name, data)| (name.clone(), data.as_bytes().to_vec())).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_loss_on_files_has_the_golden_value_and_gradient() {
    let golden = std::fs::read_to_string(root().join("fixtures/losses/losses.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let case = golden["cases"].as_array().unwrap().iter().find(|case| case["loss"] == "ice").unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let (rows, labels) = (numbers(&case["embeddings"]), numbers(&case["labels"]));
    let shape = [labels.len(), case["dim"].as_u64().unwrap() as usize];

    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    use gallerist::retrieval::file::npy;
    npy::write_f64(path("x.npy"), &shape, &rows).unwrap();
    npy::write_i64(path("y.npy"), &[shape[0]], &labels.iter().map(|&l| l as i64).collect::<Vec<_>>())
        .unwrap();
    let scale = format!("scale={}", case["params"]["scale"]);
    let (x, y, g) = (path("x.npy"), path("y.npy"), path("g.npy"));
    let files = ["--embeddings", &x, "--labels", &y];
    let out = gallerist(
        &[&["loss", "--loss", "ice", "--set", &scale, "--gradient", &g, "--json"], &files[..]].concat(),
    );
    let found: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1e-3);
    assert!(close(found["value"].as_f64().unwrap(), case["value"].as_f64().unwrap()));
    assert_eq!(found["queries"].as_array().unwrap().len(), shape[0]);
    let gradient = npy::read_f64(&g).unwrap();
    assert!(gradient.wide && gradient.shape == shape);
    assert!(gradient.values.iter().zip(numbers(&case["gradient"])).all(|(&a, b)| close(a, b)));

    // Bad input.
    npy::write_i64(path("short.npy"), &[2], &[0, 1]).unwrap();
    let mut nan = rows.clone();
    nan[shape[1] * 3 + 1] = f64::NAN;
    npy::write_f64(path("nan.npy"), &shape, &nan).unwrap();
    let header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 1), }\n";
    let half = [b"\x93NUMPY\x01\x00", &[header.len() as u8, 0][..], header.as_bytes(), &[0, 0]];
    std::fs::write(path("half.npy"), half.concat()).unwrap();
    let (short, nan, half) = (path("short.npy"), path("nan.npy"), path("half.npy"));
    for (args, part) in [
        (vec!["--loss", "ice", "--embeddings", &x, "--labels", &short], "12 rows, and there are 2 labels"),
        (vec!["--loss", "ice", "--embeddings", &nan, "--labels", &y], "row 3"),
        (vec!["--loss", "ice", "--embeddings", &half, "--labels", &y], "f32 or f64"),
        (vec!["--loss", "icee", "--embeddings", &x, "--labels", &y], "did you mean `ice`?"),
        (
            vec!["--loss", "ice", "--set", "scal=1", "--embeddings", &x, "--labels", &y],
            "did you mean `scale`?",
        ),
        (vec!["--preset", "rll-cvrp", "--embeddings", &x, "--labels", &y], "did you mean `rll-cvpr`?"),
    ] {
        let message = error(&[&["loss"], &args[..]].concat());
        assert!(message.contains(part), "{message}");
    }
    let alone = path("alone.txt");
    std::fs::write(&alone, (0..shape[0]).map(|i| format!("{i}\n")).collect::<String>()).unwrap();
    let out = gallerist(&["loss", "--preset", "rll-cvpr", "--embeddings", &x, "--labels", &alone]);
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("no sample has a positive"));
    insta::assert_snapshot!("losses", text(&gallerist(&["loss", "--list"]).stdout));
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
fn completions_are_scripts() {
    for shell in ["bash", "zsh", "fish"] {
        let out = gallerist(&["completions", shell]);
        assert!(text(&out.stdout).contains("gallerist"), "{shell}");
    }
}
