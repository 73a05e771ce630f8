//! `gallerist experiment`: rows are run, skipped, continued; the table has what was measured, and nothing else.

#[path = "common/mod.rs"]
mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{program, root, text};
use serde_json::Value;

/// Three rows on a tiny set, one of which cannot train; one more is only printed.
const OWN: &str = r#"
[experiment]
name = "own"
title = "Does the margin matter, <or> not?"
kind = "table"
axis = "margin"
maps = { classes = 4 }

[[part]]
name = "Omniglot"
metrics = ["recall@1", "nmi"]
smoke = { base = "smoke-omniglot", train = { steps = 6 } }

[[row]]
name = "m = 0.2"
x = 0.2
run = { loss = { name = "rll", margin = 0.2 } }
printed = { Omniglot = [79.0, "-"] }

[[row]]
name = "m = 0.4"
x = 0.4
run = { loss = { name = "rll", margin = 0.4 } }
printed = { Omniglot = [79.8, 60.1] }

[[row]]
name = "too many classes"
x = 0.5
run = { sampler = { classes_per_batch = 500 } }

[[row]]
name = "another program"
x = 0.6
not_run = "Gallerist does not have this method"
printed = { Omniglot = [50.0, "-"] }
"#;

fn experiment(store: &Path, args: &[&str]) -> Output {
    let store = store.to_str().unwrap();
    let file = format!("{store}/own.toml");
    let common = [&file, "--scale", "smoke", "--store", store];
    program(&root(), &[&["experiment", args[0]], &common[..], &args[1..]].concat())
}

fn store() -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    std::fs::write(store.path().join("own.toml"), OWN).unwrap();
    store
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out.stderr)))
}

#[test]
fn rows_are_run_once_and_the_table_has_only_what_was_measured() {
    let store = store();
    let before = json(&experiment(store.path(), &["table", "--json"]));
    assert!(before["rows"].as_array().unwrap().iter().all(|row| row["done"] == 0));
    assert!(before["rows"][0]["cells"][0]["measured"].is_null());

    let out = experiment(store.path(), &["run", "--seeds", "2", "--jobs", "2", "--json"]);
    assert_eq!(out.status.code(), Some(1), "one row fails: {}", text(&out.stderr));
    assert!(text(&out.stderr).contains("cannot form batches of 500 classes"), "{}", text(&out.stderr));
    let table = json(&out);
    let row = |i: usize| &table["rows"][i];
    let cell = &row(0)["cells"][0];
    assert_eq!((&cell["printed"], &cell["measured"]["runs"]), (&79.0.into(), &2.into()));
    assert!(cell["measured"]["half_width"].as_f64().is_some());
    // The test has 10 classes: chance is a tenth.
    assert!(cell["measured"]["mean"].as_f64().is_some_and(|mean| mean > 5.0 && mean <= 100.0));
    assert!(
        row(0)["cells"][1]["printed"].is_null() && row(0)["cells"][1]["measured"]["mean"].as_f64().is_some()
    );
    assert_eq!((&row(2)["done"], &row(2)["failures"].as_array().unwrap().len()), (&0.into(), &2));
    assert_eq!((&row(3)["runs"], &row(3)["cells"][0]["printed"]), (&0.into(), &50.0.into()));
    assert!(row(0)["seconds_per_step"].as_f64().unwrap() > 0.0);

    // The share of one machine.
    let second = json(&experiment(store.path(), &["table", "--seeds", "2-2", "--json"]));
    assert_eq!((&table["seeds"], &second["seeds"]), (&serde_json::json!([1, 2]), &serde_json::json!([2])));
    let values = &second["rows"][0]["cells"][0]["values"];
    assert_eq!(values.as_object().unwrap().len(), 1);
    assert!(values["2"].is_f64() && values["2"] == cell["values"]["2"], "{values}");
    assert!(second["head"].to_string().contains("seed 2, no interval"), "{}", second["head"]);
    // With maps of its first seed.
    let titles: Vec<_> = second["maps"].as_array().unwrap().iter().map(|map| map["title"].clone()).collect();
    assert_eq!(titles, ["m = 0.2", "m = 0.4"]);

    // The same again trains nothing, and removes what a process left that was killed at the end of a job.
    let folders = std::fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().path());
    let strays: Vec<_> = folders
        .filter(|folder| folder.join("run").is_dir())
        .map(|folder| folder.join(".usage.json.7-0.gallerist-tmp"))
        .collect();
    strays.iter().for_each(|stray| std::fs::write(stray, "{").unwrap());
    let again = experiment(store.path(), &["run", "--seeds", "2", "--only", "m = 0.2"]);
    assert_eq!(again.status.code(), Some(0));
    assert_eq!(text(&again.stderr).matches("was done: m = 0.2").count(), 2, "{}", text(&again.stderr));
    assert!(strays.len() >= 4 && strays.iter().filter(|stray| !stray.exists()).count() == 2);

    let read = |ending: &str| {
        std::fs::read_to_string(store.path().join(format!("tables/own-smoke.{ending}"))).unwrap()
    };
    let out = experiment(store.path(), &["table", "--seeds", "2"]);
    assert_eq!(text(&out.stdout), read("md"));
    assert!(read("md").contains("| another program | 50.0 | – |") && read("md").contains("Scale smoke"));
    let csv = read("csv");
    let mut lines = csv.lines();
    let columns = lines.next().unwrap().split(',').count();
    assert!(lines.clone().count() > 8 && lines.all(|line| line.split(',').count() == columns), "{csv}");
    let page = read("html");
    let (numbers, maps) = page.split_once("<section id=\"maps\">").unwrap();
    assert!(numbers.contains("<polyline") && numbers.contains("&lt;or&gt;"));
    assert!(!page.contains("<or>") && !numbers.contains("NaN"));
    // A map for each row that has run, of four of the ten characters with 20 images each.
    assert_eq!(maps.matches("class=\"atlas\"").count(), 2);
    assert!(maps.contains("80 embeddings of 4 classes") && maps.contains("The first of 10 classes by name."));
    assert!(read("md").contains("![Map of m = 0.4](own-smoke-map-2.svg)"));
    assert!(
        std::fs::read_to_string(store.path().join("tables/own-smoke-map-2.svg")).unwrap().contains("m = 0.4")
    );
    assert_eq!(table["maps"][0]["file"], "own-smoke-map-1.svg");
}

#[cfg(unix)]
#[test]
fn a_killed_command_continues() {
    let store = store();
    let long = OWN.replace("steps = 6", "steps = 300");
    std::fs::write(store.path().join("own.toml"), long).unwrap();
    let path = store.path().to_str().unwrap();
    let args = [
        "experiment",
        "run",
        &format!("{path}/own.toml"),
        "--scale",
        "smoke",
        "--store",
        path,
        "--only",
        "m = 0.2",
    ];
    let mut first = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(args)
        .current_dir(root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let logs = || {
        let folders = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        folders.map(|folder| folder.join("run/log.jsonl")).find(|log| log.is_file())
    };
    while logs().is_none_or(|log| std::fs::read_to_string(log).unwrap().lines().count() < 4) {
        assert!(first.try_wait().unwrap().is_none(), "the command ended early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // SIGKILL: the training process goes on, and the next command waits for it.
    first.kill().unwrap();
    first.wait().unwrap();
    let out = program(&root(), &args);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("| m = 0.2 |") && text(&out.stdout).contains("1/1"));
}

#[test]
fn errors_say_what_to_do() {
    let error = |args: &[&str]| {
        let out = program(&root(), args);
        assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
        text(&out.stderr)
    };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let typo = error(&["experiment", "run", "rll-cvpr-tabel-4", "--store", dir]);
    assert!(typo.contains("did you mean `rll-cvpr-table-4`?"), "{typo}");
    let missing = error(&["experiment", "run", "rll-cvpr-table-4", "--scale", "full", "--store", dir]);
    assert!(missing.contains("Stanford_Online_Products") && missing.contains("--data DIR"), "{missing}");
    let row = error(&["experiment", "run", "rll-cvpr-table-4", "--only", "m = 9", "--store", dir]);
    assert!(row.contains("its rows are: m = 0, m = 0.2"), "{row}");
    for seeds in ["0", "3-2", "1-1001", "some", ""] {
        let error = error(&["experiment", "table", "rll-cvpr-table-4", "--seeds", seeds]);
        assert!(error.contains("such as 5 for 1 to 5, or a range such as 4-5"), "{seeds}: {error}");
    }
    let drawing = error(&["experiment", "run", "nra-figure-1", "--store", dir]);
    assert!(drawing.contains("nothing to run"), "{drawing}");
    let store = store();
    let own = |args: &[&str]| {
        let out = experiment(store.path(), args);
        assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
        text(&out.stderr)
    };
    let printed = own(&["run", "--only", "another program"]);
    let reason = "hint: `another program` is only printed: Gallerist does not have this method";
    assert!(printed.contains("nothing to run at the scale smoke") && printed.contains(reason), "{printed}");
    std::fs::write(store.path().join("own.toml"), OWN.replace("smoke-omniglot", "zzz")).unwrap();
    let base = own(&["table"]);
    assert!(base.contains("the bases are ") && base.contains("smoke-omniglot"), "{base}");
    assert!(!base.contains("experiment list"), "{base}");
}

#[test]
fn every_experiment_can_be_shown() {
    let list = json(&program(&root(), &["experiment", "list", "--json"]));
    assert!(list.as_array().unwrap().len() >= 48);
    for name in ["rll-cvpr-table-4", "srt-table-1", "nra-figure-4", "ice-figure-1"] {
        let out = program(&root(), &["experiment", "show", name]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        // Whether images are there depends on the machine.
        let shown = text(&out.stdout);
        let shown: Vec<&str> = shown.lines().filter(|line| !line.contains(", missing: ")).collect();
        insta::assert_snapshot!(format!("show_{name}"), shown.join("\n"));
    }
    let file = program(&root(), &["experiment", "show", "rll-cvpr-table-4", "--row", "m = 0.2"]);
    assert!(text(&file.stdout).contains("margin = 0.2"));
}

/// Rows on folders of pictures: `train` with 6 classes and `test` with 4, of 4 images each.
const PICTURES: &str = r#"
[experiment]
name = "pictures"
title = "What becomes of these images?"
kind = "table"

[[part]]
name = "Pictures"
metrics = ["recall@1", "mrr", "nmi"]
smoke = { base = "BASE" }

[[row]]
name = "plain"

[[row]]
name = "corrected"
run = { data = { relabel = ["FOLDER/corrections.csv"] } }
"#;

/// The folder of [`PICTURES`] with its images and its base.
fn pictures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (side, classes) in [("train", 6), ("test", 4)] {
        for (class, image) in (0..classes).flat_map(|class| (0..4).map(move |image| (class, image))) {
            let file = path(&format!("{side}/class-{class}/{image}.bmp"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, common::bitmap((40 * class + 7 * image) as u8)).unwrap();
        }
    }
    let place = folder.path().to_str().unwrap();
    let base = format!(
        "[base]\nabout = \"pictures\"\nneeds = \"nothing\"\n[train]\nsteps = 3\n[data]\ntrain = [\"{place}/train\"]\n\
         test = [\"{place}/test\"]\n[validation]\nfraction = 0.0\n[image]\nsize = 8\n[sampler]\nkind = \
         \"classes_images\"\nclasses_per_batch = 3\nimages_per_class = 2\n[network]\nkind = \"conv_blocks\"\nchannels = \
         [4]\ndimensions = 4\n[evaluation]\nmetrics = [\"recall@1\"]\n[report]\nmap = false\n"
    );
    std::fs::write(path("base.toml"), base).unwrap();
    let base = format!("{place}/base.toml");
    std::fs::write(path("own.toml"), PICTURES.replace("BASE", &base).replace("FOLDER", place)).unwrap();
    correct(folder.path(), 0);
    folder
}

/// Gives an image of the first class the label of the second.
fn correct(folder: &Path, image: usize) {
    let line = format!("class-0/{image}.bmp,class-0,relabel,class-1");
    std::fs::write(folder.join("corrections.csv"), format!("image,label,action,new_label\n{line}\n"))
        .unwrap();
}

fn run_rows(folder: &Path, only: &[&str]) -> (Value, String) {
    let only: Vec<&str> = only.iter().flat_map(|row| ["--only", row]).collect();
    let out = experiment(folder, &[&["run", "--json"], &only[..]].concat());
    (json(&out), text(&out.stderr))
}

#[test]
fn all_columns_are_measured_and_corrections_of_labels_count_with_their_content() {
    let folder = pictures();
    let (table, said) = run_rows(folder.path(), &[]);
    for row in 0..2 {
        assert_eq!(table["rows"][row]["done"], 1, "{said}");
        // Metrics and clustering that the base does not name.
        assert!((0..3).all(|cell| table["rows"][row]["cells"][cell]["measured"]["mean"].is_f64()), "{table}");
    }
    let (_, again) = run_rows(folder.path(), &[]);
    assert_eq!(again.matches("was done").count(), 2, "{again}");
    // Other corrections are another run; the table keeps the numbers of the row that is not run.
    correct(folder.path(), 1);
    let (table, other) = run_rows(folder.path(), &["corrected"]);
    assert!(other.contains("started: corrected") && !other.contains("plain"), "{other}");
    assert_eq!((&table["rows"][0]["done"], &table["rows"][1]["done"]), (&1.into(), &1.into()));
}

#[test]
fn runs_of_other_images_and_damaged_runs_are_failures_of_their_rows() {
    let folder = pictures();
    replace(folder.path(), "own.toml", "kind = \"table\"\n", "kind = \"table\"\nmaps = {}\n");
    let (table, said) = run_rows(folder.path(), &["plain"]);
    assert_eq!(table["maps"][0]["title"], "plain", "{said}");
    std::fs::remove_file(folder.path().join("test/class-3/0.bmp")).unwrap();
    let (_, said) = run_rows(folder.path(), &["plain"]);
    assert!(said.contains("images, labels, cameras or splits have changed since this run"), "{said}");
    // The table has no numbers of that run, also without running.
    let table = json(&experiment(folder.path(), &["table", "--json"]));
    assert_eq!(table["rows"][0]["done"], 0, "{table}");
    assert!(table["rows"][0]["cells"][0]["measured"].is_null() && table["maps"].is_null(), "{table}");
    assert!(table["rows"][0]["failures"][0].as_str().unwrap().contains("have changed"), "{table}");
    let hint = said.split("remove the folder ").nth(1).unwrap().split(": then").next().unwrap();
    std::fs::remove_dir_all(root().join(hint)).unwrap();
    let (table, said) = run_rows(folder.path(), &["plain"]);
    assert_eq!(table["rows"][0]["done"], 1, "{said}");

    let mut runs =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path().join("run/metrics.json"));
    std::fs::write(runs.find(|file| file.exists()).unwrap(), "{").unwrap();
    let (table, said) = run_rows(folder.path(), &[]);
    assert!(said.contains("metrics.json") && said.contains("remove the folder"), "{said}");
    assert_eq!((&table["rows"][0]["done"], &table["rows"][1]["done"]), (&0.into(), &1.into()));
    assert!(table["rows"][0]["failures"][0].as_str().unwrap().contains("metrics.json"), "{table}");
}

/// Changes a file in the folder of [`PICTURES`].
fn replace(folder: &Path, file: &str, before: &str, after: &str) {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(text.contains(before), "{text}");
    std::fs::write(folder.join(file), text.replace(before, after)).unwrap();
}

#[test]
fn columns_are_measured_where_the_base_names_no_metrics_and_impossible_ones_are_refused() {
    let folder = pictures();
    replace(folder.path(), "base.toml", "[evaluation]\nmetrics = [\"recall@1\"]\n", "");
    let (table, said) = run_rows(folder.path(), &["plain"]);
    assert!(
        (0..4).all(|cell| table["rows"][0]["cells"][cell]["measured"]["mean"].is_f64()),
        "{table} {said}"
    );
    let refused = |before: &str, after: &str, part: &str| {
        replace(folder.path(), "own.toml", before, after);
        let out = experiment(folder.path(), &["table"]);
        assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
        assert!(text(&out.stderr).contains(part), "{}", text(&out.stderr));
        replace(folder.path(), "own.toml", after, before);
    };
    refused("\"mrr\"", "\"rerank mrr\"", "`reranked METRIC`");
    refused("\"mrr\"", "\"reranked mrr\"", "give evaluation.rerank");
    refused("\"mrr\"", "\"expanded mrr\"", "give evaluation.query_expansion");
    refused("\"mrr\", \"nmi\"", "\"recall@1\", \"nmi\"", "has the metric recall@1 twice");
    let row = "name = \"plain\"";
    // One row with the ranking is enough.
    let reranks = format!("{row}\nrun = {{ evaluation = {{ rerank = {{}} }} }}");
    replace(folder.path(), "own.toml", row, &reranks);
    replace(folder.path(), "own.toml", "\"mrr\"", "\"reranked mrr\"");
    let out = experiment(folder.path(), &["table"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    replace(folder.path(), "own.toml", "\"reranked mrr\"", "\"mrr\"");
    replace(folder.path(), "own.toml", &reranks, row);
    refused(row, &format!("{row}\nrun = {{ train = {{ seed = 5 }} }}"), "sets train.seed");
    refused(row, &format!("{row}\nprinted = {{ Pictures = [nan, 1, 2] }}"), "has nan for a printed number");
    replace(
        folder.path(),
        "base.toml",
        "[data]\n",
        "[base.files]\nchars = [\"x\"]\n[data]\nrelabel = [\"{typo}/a.csv\"]\n",
    );
    let out = experiment(folder.path(), &["table"]);
    assert!(text(&out.stderr).contains("`{typo}/a.csv` names no file of the base"), "{}", text(&out.stderr));
}

#[test]
fn a_name_with_a_bar_is_one_cell_of_the_markdown_table() {
    let folder = pictures();
    let second = "[[part]]\nname = \"a|b\"\nmetrics = [\"map\"]\n\n[[row]]\nname = \"plain\"\nprinted = { \"a|b\" = [5] }";
    replace(folder.path(), "own.toml", "[[row]]\nname = \"plain\"", second);
    let out = experiment(folder.path(), &["table"]);
    assert!(
        text(&out.stdout).contains("| a\\|b map printed |"),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
}

#[test]
fn images_that_cannot_be_read_are_counted_and_what_is_done_about_them_decides_the_run() {
    let folder = pictures();
    std::fs::write(folder.path().join("test/class-1/2.bmp"), "nothing").unwrap();
    let out = experiment(folder.path(), &["run", "--only", "plain"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("| 1 broken image |"), "{}", text(&out.stdout));
    let strict = std::fs::read_to_string(folder.path().join("own.toml")).unwrap();
    let strict =
        strict.replace("name = \"plain\"\n", "name = \"plain\"\nrun = { data = { strict = true } }\n");
    std::fs::write(folder.path().join("own.toml"), strict).unwrap();
    let (table, said) = run_rows(folder.path(), &["plain"]);
    assert!(said.contains("class-1/2.bmp") && table["rows"][0]["done"] == 0, "{said}");

    // Each image counts once, in training and in the test.
    let folder = pictures();
    std::fs::write(folder.path().join("test/class-1/2.bmp"), "nothing").unwrap();
    for class in 0..6 {
        std::fs::write(folder.path().join(format!("train/class-{class}/3.bmp")), "nothing").unwrap();
    }
    let (table, said) = run_rows(folder.path(), &["plain"]);
    let runs = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let lists = runs.filter_map(|run| std::fs::read(run.join("run/broken_images.json")).ok());
    let listed: usize = lists.map(|list| serde_json::from_slice::<Vec<Value>>(&list).unwrap().len()).sum();
    assert!(listed > 1, "{said}");
    assert_eq!(table["rows"][0]["broken_images"], listed, "{said}");
}

#[test]
fn a_run_whose_weights_have_changed_is_a_failure_of_its_row() {
    let folder = pictures();
    run_rows(folder.path(), &["plain"]);
    let mut runs = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path().join("run"));
    let checkpoint = runs.find(|run| run.is_dir()).unwrap().join("checkpoints/last.safetensors");
    let weights = folder.path().join("weights.safetensors");
    let network = gallerist::params::read(&checkpoint).unwrap().into_iter();
    let mut network: std::collections::BTreeMap<_, _> = network
        .filter_map(|(name, data)| {
            let name = name.strip_prefix("network.")?;
            Some((name.replace(".gamma", ".weight").replace(".beta", ".bias"), data))
        })
        .collect();
    gallerist::params::write(&weights, &network).unwrap();
    let named = format!("[network]\nweights = {:?}\n", weights.to_str().unwrap());
    replace(folder.path(), "base.toml", "[network]\n", &named);
    let (table, said) = run_rows(folder.path(), &["plain"]);
    assert_eq!(table["rows"][0]["done"], 1, "{said}");
    let (_, said) = run_rows(folder.path(), &["plain"]);
    assert!(said.contains("was done"), "{said}");

    let first = network.values_mut().next().unwrap();
    *first = gallerist::burn::tensor::TensorData::zeros::<f32, _>(first.shape().to_vec());
    gallerist::params::write(&weights, &network).unwrap();
    let (table, said) = run_rows(folder.path(), &["plain"]);
    assert!(said.contains("the weights that the network starts from have changed"), "{said}");
    assert_eq!(table["rows"][0]["done"], 0);
    assert!(table["rows"][0]["cells"][0]["measured"].is_null(), "{table}");
}

#[test]
fn what_a_base_does_not_set_comes_from_its_file_of_weights() {
    let folder = pictures();
    let weights = folder.path().join("weights.safetensors");
    let mut image = gallerist::data::ImageConfig::new(24, 3);
    image.mean = vec![0.25];
    let metadata = [
        ("image", serde_json::to_string(&image).unwrap()),
        ("network", r#"{"kind": "mobilenet_v2", "layout": "timm"}"#.to_owned()),
    ];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value)).into();
    gallerist::params::write_with(&weights, &std::collections::BTreeMap::new(), Some(metadata)).unwrap();
    let network = "kind = \"conv_blocks\"\nchannels = [4]\n";
    let named = format!("kind = \"mobilenet_v2\"\nweights = {:?}\n", weights.to_str().unwrap());
    replace(folder.path(), "base.toml", network, &named);
    let own = folder.path().join("own.toml");
    let show = ["experiment", "show", own.to_str().unwrap(), "--scale", "smoke", "--row", "plain"];
    let out = program(&root(), &show);
    let shown = text(&out.stdout);
    assert!(
        shown.contains("mean = [0.25]") && shown.contains("layout = \"timm\""),
        "{shown}{}",
        text(&out.stderr)
    );
    assert!(shown.contains("\nsize = 8\n"), "the base's own size: {shown}");
}
