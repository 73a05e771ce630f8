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
    for command in [
        "train",
        "embed",
        "convert",
        "evaluate",
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
    for command in ["list", "fetch", "inspect", "import", "export"] {
        let help = text(&gallerist(&["weights", command, "--help"]).stdout);
        insta::assert_snapshot!(format!("help_weights_{command}"), help);
    }
}

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
        assert_eq!(a["id"], gallerist::retrieval::index::item_id(Some(&source), path));
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

#[test]
fn the_same_seed_gives_the_same_bits_and_so_does_a_run_that_was_interrupted() {
    resuming_changes_no_bit(&[]);
}

#[test]
fn class_means_average_and_memory_are_resumed_to_the_last_bit() {
    resuming_changes_no_bit(&[
        "sampler.kind=hard_identities",
        "sampler.pool=12",
        "sampler.refresh_every=4",
        "sampler.images_per_mean=2",
        "train.accumulate=2",
        "train.average_decay=0.9",
        "xbm.size=100",
        "xbm.start_step=2",
    ]);
}

#[test]
fn products_in_bf16_are_resumed_to_the_last_bit() {
    use gallerist::train::Precision;
    let cpu = gallerist::device::DeviceChoice::Cpu.open().unwrap();
    if Precision::Bf16.check(&cpu).is_ok() {
        resuming_changes_no_bit(&["train.precision=bf16", "train.device=cpu"]);
    }
}

fn resuming_changes_no_bit(settings: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let with = |threads: &'static str| [&[threads], settings].concat();
    let whole = small_run(&one, &with("train.loader_threads=1"));
    let other = small_run(&two, &with("train.loader_threads=3"));
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
    std::fs::copy(five_steps(dir.path(), settings), cut.join("checkpoints/last.safetensors")).unwrap();
    std::fs::write(cut.join("checkpoints/.last.safetensors.tmp-of-a-killed-write"), "half").unwrap();
    let out = gallerist(&["train", "--resume", cut.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(network(&cut), network(&whole));
    // Lines of steps that were done again stay; a reader takes the later.
    let losses = |run: &Path| {
        let records = gallerist::train::log::read(&run.join("log.jsonl")).unwrap();
        let step = |record| match record {
            gallerist::train::log::Record::Step(step) => Some((step.step, step.loss, step.gradient_norm)),
            _ => None,
        };
        records.into_iter().filter_map(step).collect::<Vec<_>>()
    };
    assert_eq!(losses(&cut), losses(&whole));
}

/// The last checkpoint of the same run stopped after five steps.
fn five_steps(dir: &Path, further: &[&str]) -> PathBuf {
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
    let settings: Vec<String> = settings.iter().chain(further).map(|s| s.to_string()).collect();
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
    let tensors = checkpoint.network.iter().chain(&checkpoint.optimizer).chain(&checkpoint.state);
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
fn a_memory_lengthens_the_lists_of_a_loss_on_files() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y, m, of_m, g) = (path("x.npy"), path("y.txt"), path("m.npy"), path("m.txt"), path("g.npy"));
    npy::write_f64(&x, &[2, 1], &[0.0, 1.0]).unwrap();
    npy::write_f64(&m, &[1, 1], &[3.0]).unwrap();
    std::fs::write(&y, "wren\nheron\n").unwrap();
    std::fs::write(&of_m, "wren\n").unwrap();
    let batch = ["loss", "--embeddings", &x, "--labels", &y];
    let memory = ["--memory", &m, "--memory-labels", &of_m];
    let contrastive = ["--loss", "contrastive", "--set", "margin=2", "--gradient", &g, "--json"];
    let out = gallerist(&[&batch[..], &memory, &contrastive].concat());
    let found: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)));
    // From 0: a negative at 1 costs 1, the memory's positive at 3 costs 9. From 1: 1 and, at 2, nothing.
    assert_eq!(found["value"], 2.75);
    assert_eq!((&found["samples"], &found["memory"]), (&Value::from(2), &Value::from(1)));
    assert_eq!(found["queries"][0]["positives"], 1);
    assert_eq!(npy::read_f64(&g).unwrap().values, [-0.5, -1.0]);
    // Other rows of length 1 than the file's.
    let out = gallerist(&[&batch[..], &memory, &["--loss", "rll", "--normalize"]].concat());
    assert!(text(&out.stdout).contains("rows of the memory"), "{}", text(&out.stderr));

    let wide = path("wide.npy");
    npy::write_f64(&wide, &[1, 2], &[3.0, 4.0]).unwrap();
    for (args, part) in [
        (vec!["--loss", "rll", "--memory", &m], "give --memory-labels FILE"),
        (vec!["--loss", "rll", "--memory", &m, "--memory-labels", &y], "1 rows, and there are 2 labels"),
        (vec!["--loss", "rll", "--memory", &wide, "--memory-labels", &of_m], "1 values a row, the memory"),
        (vec!["--loss", "softmax", "--memory", &m, "--memory-labels", &of_m], "losses that take one: rll, "),
    ] {
        let message = error(&[&batch[..], &args].concat());
        assert!(message.contains(part), "{message}");
    }
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
fn a_loss_on_files_takes_a_miner_and_parameters() {
    use gallerist::retrieval::file::npy;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (x, y) = (path("x.npy"), path("y.npy"));
    // On a line: of class 0 at 0, 1 and 2, of class 1 at 2.5 and 9.
    npy::write_f64(&x, &[5, 1], &[0.0, 1.0, 2.0, 2.5, 9.0]).unwrap();
    npy::write_i64(&y, &[5], &[0, 0, 0, 1, 1]).unwrap();
    let run = |args: &[&str]| -> Value {
        let out = gallerist(&[&["loss", "--json", "--embeddings", &x, "--labels", &y], args].concat());
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)))
    };

    // The hardest of each: squared distances 4, 1, 4, 42.25, 42.25 to the positives; margin 3 to the
    // negatives: 0.5 from 2.5, 1.5, 0.5, 0.5 and 7 away.
    let found = run(&["--loss", "contrastive", "--set", "margin=3", "--miner", "hard"]);
    let hinges: f64 = [0.5, 1.5, 2.5, 2.5, 0.0].iter().map(|h: &f64| h * h).sum();
    let wanted = (4.0 + 1.0 + 4.0 + 42.25 + 42.25 + hinges) / 10.0;
    assert!((found["value"].as_f64().unwrap() - wanted).abs() < 1e-12, "{} {wanted}", found["value"]);
    assert_eq!(found["parameters"]["miner"]["name"], "hard");
    assert_eq!(found["queries"][1]["mined_negatives"], 1);
    let set = ["--loss", "contrastive", "--miner", "semi_hard", "--miner-set", "margin=7.5"];
    assert_eq!(run(&set)["parameters"]["miner"]["margin"], 7.5);

    let (proxies, other) = (path("proxies.safetensors"), path("other.safetensors"));
    let first = run(&["--loss", "proxy_nca", "--seed", "3", "--save-parameters", &proxies]);
    let again = run(&["--loss", "proxy_nca", "--seed", "4", "--parameters", &proxies]);
    assert_eq!(first["value"], again["value"]);
    run(&["--loss", "arc_face", "--save-parameters", &other]);

    let files = ["--embeddings", &x, "--labels", &y];
    for (args, part) in [
        (vec!["--loss", "ice", "--miner", "hard"], "`ice` takes no miner"),
        (vec!["--loss", "lifted", "--miner", "hrd"], "did you mean `hard`?"),
        (
            vec!["--loss", "lifted", "--miner", "semi_hard", "--miner-set", "margn=1"],
            "did you mean `margin`?",
        ),
        (vec!["--loss", "lifted", "--miner-set", "margin=1"], "--miner <NAME>"),
        (
            vec!["--loss", "proxy_nca", "--parameters", &other],
            "1 parameters are missing, the first is `proxies`",
        ),
        (vec!["--loss", "proxy_nca", "--parameters", &x], "no whole safetensors file"),
    ] {
        let message = error(&[&["loss"], &args[..], &files].concat());
        assert!(message.contains(part), "{message}");
    }
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

/// Embeddings of `rows` images of 7 classes as .npy, their labels and cameras as text.
fn evaluation_files(dir: &Path, name: &str, rows: usize) -> [String; 3] {
    use gallerist::retrieval::{Matrix, file::npy};
    let path = |what: &str| dir.join(format!("{name}{what}")).to_str().unwrap().to_string();
    let value = |i: usize| ((i * 7919 + rows) % 101) as f32 / 101.0 + 2.0 * f32::from(i % 4 == i / 4 % 7 % 4);
    let matrix = Matrix::new(rows, 4, (0..rows * 4).map(value).collect()).unwrap();
    npy::write_f32(path(".npy"), &matrix).unwrap();
    let write = |what: &str, of: &dyn Fn(usize) -> String| {
        std::fs::write(path(what), (0..rows).map(|row| of(row) + "\n").collect::<String>()).unwrap();
    };
    write(".labels", &|row| if row == 3 { "-1".into() } else { format!("person{}", row % 7) });
    write(".cameras", &|row| format!("c{}", row / 7 % 3));
    [path(".npy"), path(".labels"), path(".cameras")]
}

#[test]
fn an_evaluation_prints_all_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let [x, labels, cameras] = evaluation_files(dir.path(), "all", 90);
    let one = ["evaluate", "--embeddings", &x, "--labels", &labels];
    let further = [
        "--metrics",
        "recall@1,map,ndcg@5",
        "--rerank",
        "k_reciprocal",
        "--k1",
        "6",
        "--k2",
        "3",
        "--query-expansion",
        "3",
        "--cluster",
        "--verification",
        "--far",
        "0.1,0.01",
        "--few-shot",
        "3x2",
        "--episode-queries",
        "4",
        "--episodes",
        "20",
        "--bootstrap",
        "50",
        "--bootstrap-over",
        "classes",
        "--seed",
        "7",
    ];
    let shown = gallerist(&[&one[..], &further].concat());
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    insta::assert_snapshot!("evaluation", text(&shown.stdout));
    let json = |args: &[&str]| -> Value {
        let out = gallerist(&[args, &["--json"]].concat());
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr)))
    };
    let all = json(&[&one[..], &further].concat());
    for key in ["metrics", "intervals", "reranked", "expanded", "clustering", "verification", "few_shot"] {
        assert!(all[key].is_object(), "{key}");
    }
    assert_eq!(all["verification"]["tar_at_far"].as_array().unwrap().len(), 2);
    assert_eq!(all["reranked"]["intervals"]["over"], "classes");
    // The same seed gives the same bits for any number of threads.
    let alone = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args([&one[..], &further, &["--json"]].concat())
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&alone.stdout).unwrap(), all);

    let [q, query_labels, query_cameras] = evaluation_files(dir.path(), "query", 21);
    let split = [
        "evaluate",
        "--query",
        &q,
        "--query-labels",
        &query_labels,
        "--gallery",
        &x,
        "--gallery-labels",
        &labels,
    ];
    let seen = ["--query-cameras", &query_cameras, "--gallery-cameras", &cameras];
    let market = json(&[&split[..], &seen, &["--protocol", "market1501", "--multi-query", "max"]].concat());
    assert_eq!(market["protocol"], "market1501: queries against the other cameras' images");
    // One gallery image is junk.
    assert_eq!((&market["queries"], &market["gallery"]), (&Value::from(21), &Value::from(89)));
    assert!(market["metrics"]["map_trapezoid"].as_f64().unwrap() > 0.0);
    assert!(market["multi_query"]["queries"].as_u64().unwrap() <= 21);
    assert!(market["notes"][0].as_str().unwrap().contains("not those of the benchmark"));
    assert_eq!(json(&split)["protocol"], "queries against a gallery");
    assert_eq!(json(&[&split[..], &seen].concat())["protocol"], "queries against the other cameras' images");
    let euclidean = json(&[&one[..], &["--metric", "euclidean", "--recall-at", "3"]].concat());
    assert_eq!(euclidean["metrics"].as_object().unwrap().len(), 4);
    let sets = dir.path().join("sets");
    std::fs::write(&sets, (0..90).map(|row| format!("l{}|m{}\n", row % 7, row % 5)).collect::<String>())
        .unwrap();
    let sets = ["evaluate", "--embeddings", &x, "--labels", sets.to_str().unwrap()];
    assert!(json(&[&sets[..], &["--metrics", "ndcg_exp"]].concat())["metrics"]["ndcg_exp"].is_number());

    // Bad input.
    let two = |model: &str, name: &str| {
        use gallerist::retrieval::{EmbeddingSet, Matrix};
        let path = dir.path().join(name).to_str().unwrap().to_string();
        let mut set = EmbeddingSet::from(Matrix::new(2, 4, vec![0.5; 8]).unwrap());
        set.labels = Some(vec!["a".into(), "a".into()]);
        set.model = Some(model.into());
        set.save(&path).unwrap();
        path
    };
    let (first, second) = (two("sha256:aa", "first.safetensors"), two("sha256:bb", "second.safetensors"));
    let nan = dir.path().join("nan.npy").to_str().unwrap().to_string();
    gallerist::retrieval::file::npy::write_f64(&nan, &[90, 1], &[f64::NAN; 90]).unwrap();
    let mixed = ["evaluate", "--query", &first, "--gallery", &second];
    let mut errors = String::new();
    for args in [
        &[&one[..], &["--metrics", "recal@1"]].concat()[..],
        &[&one[..], &["--protocol", "market"]].concat(),
        &[&one[..], &["--protocol", "inshop"]].concat(),
        &[&split[..], &["--protocol", "cub200"]].concat(),
        &[&split[..], &["--protocol", "duke"]].concat(),
        &[&split[..], &["--cluster"]].concat(),
        &[&sets[..], &["--verification"]].concat(),
        &[&one[..], &["--few-shot", "50x1"]].concat(),
        &[&one[..], &["--rerank", "k_reciprocal", "--lambda", "2"]].concat(),
        &[&one[..], &["--across-cameras"]].concat(),
        &["evaluate", "--embeddings", &x, "--labels", &query_labels],
        &["evaluate", "--embeddings", &x],
        &["evaluate", "--embeddings", &nan, "--labels", &labels],
        &mixed,
    ] {
        let args: Vec<&str> = args.to_vec();
        errors += &format!("--- {}\n{}\n", args[1..].join(" "), error(&args));
    }
    insta::assert_snapshot!("evaluation_errors", errors.replace(dir.path().to_str().unwrap(), "DIR"));
    let forced = gallerist(&[&mixed[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0));
    assert!(text(&forced.stderr).contains("their distances mean nothing"));
}

/// A bitmap of one grey pixel.
fn bitmap(brightness: u8) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    for word in [58u32, 0, 54, 40, 1, 1, 24 << 16 | 1, 0, 4, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend([brightness, brightness, brightness, 0]);
    file
}

#[test]
fn a_manifest_with_several_labels_an_image_is_trained_on_and_evaluated() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let mut manifest = "path,label\n".to_string();
    for i in 0..16u8 {
        std::fs::write(path(&format!("{i}.bmp")), bitmap(15 * i)).unwrap();
        // Every colour is that of two images, every shape that of four.
        manifest += &format!("{i}.bmp,colour{}|shape{}\n", i / 2, i / 4);
    }
    std::fs::write(path("list.csv"), manifest).unwrap();
    let run = path("run");
    let settings = [
        format!("data.train=[{:?}]", path("list.csv")),
        format!("data.test=[{:?}]", path("list.csv")),
        "train.steps=2".into(),
        "validation.fraction=0.25".into(),
        "validation.every=1".into(),
        "image.size=8".into(),
        "image.channels=1".into(),
        "sampler.classes_per_batch=6".into(),
        "sampler.images_per_class=2".into(),
        "network.channels=[4]".into(),
        "loss.name=contrastive".into(),
    ];
    std::fs::write(path("run.toml"), "").unwrap();
    let mut args = vec!["train".to_string(), path("run.toml"), "--out".into(), run.clone()];
    args.extend(settings.into_iter().flat_map(|setting| ["--set".into(), setting]));
    let out = gallerist(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let metrics: Value =
        serde_json::from_slice(&std::fs::read(format!("{run}/metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["queries_without_match"], 0, "a shape is shared: {metrics}");
    let log = std::fs::read_to_string(format!("{run}/log.jsonl")).unwrap();
    let step: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    // A class is a colour with its shape; its two images and those of the other colour are positives: 3 each,
    // all of them pulled.
    assert_eq!(step["mined_positives"], 3.0, "{step}");
}

#[test]
fn data_info_counts_warns_of_leaks_and_broken_files_and_says_so_by_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, bytes: &[u8]| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for (i, path) in ["train/a/1.bmp", "train/a/2.bmp", "train/b/1.bmp", "test/c/1.bmp"].iter().enumerate() {
        put(path, &bitmap(i as u8));
    }
    let path = dir.path().to_str().unwrap();
    let shown = |args: &[&str]| {
        let out = gallerist(&[&["data", "info", path], args].concat());
        let all = format!("{}{}", text(&out.stdout), text(&out.stderr));
        (all.replace(path, "DIR").replace('\\', "/"), out.status.code())
    };
    let (clean, code) = shown(&[]);
    assert_eq!(code, Some(0), "{clean}");
    put("test/c/2.bmp", &bitmap(1));
    put("test/c/3.bmp", &bitmap(9)[..20]);
    let (found, code) = shown(&[]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!("data_info", found);
    let (json, code) = shown(&["--json", "--split", "test"]);
    let json: serde_json::Value = serde_json::from_str(json.split_once("\nwarning").unwrap().0).unwrap();
    assert_eq!((json["images"].as_u64(), code), (Some(3), Some(1)));
    assert_eq!(json["broken"].as_array().unwrap().len(), 1);
    let (train, code) = shown(&["--split", "train", "--layout", "folders"]);
    assert_eq!(code, Some(0), "{train}");

    let market = error(&["data", "info", path, "--layout", "market1501"]);
    assert!(market.contains("it is not laid out as Market-1501"), "{market}");
    assert!(error(&["data", "info", path, "--layout", "market"]).contains("there is no layout `market`"));
}
