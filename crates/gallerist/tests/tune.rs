//! `gallerist tune` on a few characters and a few steps.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{program, root, text};
use gallerist::data::ImageSet;
use gallerist::train::RunConfig;

const SPACE: &str = "\
folds = 2
startup = 3
round = 2

[space]
\"loss.margin\" = { low = 0.1, high = 1.0, log = true }
\"sampler.images_per_class\" = { low = 2, high = 4, int = true }
\"optimizer.learning_rate\" = { choices = [0.01, 0.1] }
";

/// The settings of a run of a fraction of a second. There are no such test images.
const TINY: [&str; 5] = [
    "train.steps=3",
    "data.max_train_classes=12",
    "data.test=[\"no/such/images\"]",
    "sampler.classes_per_batch=4",
    "network.channels=[4, 4]",
];

fn arguments<'a>(space: &'a str, out: &'a str, further: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["tune", "configs/smoke.toml", "--space", space, "--out", out];
    for setting in TINY {
        args.extend(["--set", setting]);
    }
    args.extend(further);
    args
}

fn space_file(dir: &Path, content: &str) -> String {
    let path = dir.join("space.toml");
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().into()
}

fn tune(dir: &Path, space: &str, further: &[&str]) -> (PathBuf, Output) {
    let (space, out) = (space_file(dir, space), dir.join("out"));
    (out.clone(), program(&root(), &arguments(&space, out.to_str().unwrap(), further)))
}

/// The trials without their times.
fn trials(out: &Path) -> toml::Table {
    let text = std::fs::read_to_string(out.join("trials.toml")).unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    for trial in table["trial"].as_array_mut().unwrap() {
        trial.as_table_mut().unwrap().remove("seconds");
    }
    table
}

#[test]
fn a_search_uses_the_folds_of_the_training_classes_only_and_its_best_run_file_trains() {
    let dir = tempfile::tempdir().unwrap();
    let (out, output) = tune(dir.path(), SPACE, &["--trials", "5", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["trials"].as_array().unwrap().len(), 5);
    assert_eq!(result["trials"][0]["values"]["loss.margin"], 0.4, "the first trial is the run file");

    // Every run held out one of two folds, which share no class, and named no test images.
    let mut held_out = BTreeSet::new();
    let mut runs = 0;
    for job in std::fs::read_dir(out.join("runs")).unwrap() {
        let run = job.unwrap().path().join("run");
        let config = RunConfig::load(&run.join("config.toml"), &[]).unwrap();
        assert!(
            config.data.test.is_empty() && config.data.query.is_empty() && config.data.gallery.is_empty()
        );
        assert!(!run.join("metrics.json").exists() && !run.join("embeddings.safetensors").exists());
        assert!(!run.join("checkpoints").exists(), "the weights of a measured run are removed");
        let fold = config.validation.fold.unwrap();
        let images = ImageSet::open_with(&config.data.train, &config.data.train_options()).unwrap();
        let (rest, held) = images.class_fold(fold.number - 1, fold.of, config.validation.seed).unwrap();
        assert!(held.class_names().iter().all(|class| !rest.class_names().contains(class)));
        held_out.insert((fold.number, held.class_names().to_vec()));
        runs += 1;
    }
    assert_eq!(held_out.len(), 2, "the folds are the same for every trial");
    let folds: usize =
        trials(&out)["trial"].as_array().unwrap().iter().map(|t| t["folds"].as_array().unwrap().len()).sum();
    assert_eq!(folds, runs);
    assert!(
        (6..10).contains(&runs),
        "halving stops some of 5 trials after the first of 2 folds: {runs} runs"
    );

    let best = out.join("best.toml");
    let number = result["best"].as_u64().unwrap() as usize;
    let values = &result["trials"][number - 1]["values"];
    let config = RunConfig::load(&best, &[]).unwrap();
    assert_eq!(config.optimizer.learning_rate, values["optimizer.learning_rate"].as_f64().unwrap());
    assert_eq!(config.validation.fold, None);
    assert!(config.data.test[0].ends_with("no/such/images"), "the test images are those of the run file");
    let run = dir.path().join("run");
    let args = ["train", best.to_str().unwrap(), "--set", "data.test=[]", "--out", run.to_str().unwrap()];
    let output = program(&root(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(out.join("tune.html")).unwrap();
    assert!(page.contains("Tuning of smoke") && page.contains("Slices") && page.contains("loss.margin"));
    for file in ["trials.md", "trials.csv", "result.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
}

#[test]
fn given_trials_come_first_and_what_they_leave_out_is_that_of_the_run_file() {
    let dir = tempfile::tempdir().unwrap();
    let given = "[[trial]]\n\"loss.margin\" = 0.4\n[[trial]]\n\"loss.margin\" = 0.7\n\"optimizer.learning_rate\" = 0.1\n";
    let (out, output) = tune(dir.path(), &format!("{SPACE}\n{given}"), &["--trials", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let trials = trials(&out);
    let values = |i: usize| trials["trial"][i]["values"].to_string();
    // The first given trial is the run file.
    assert!(values(0).contains("\"loss.margin\" = 0.4"), "{trials:?}");
    assert!(values(1).contains("\"loss.margin\" = 0.7"), "{trials:?}");
    assert!(values(1).contains("\"optimizer.learning_rate\" = 0.1"), "{trials:?}");
    assert_ne!(values(2), values(0));
}

#[test]
fn a_killed_search_goes_on_with_the_trials_of_one_that_was_not_killed() {
    let (whole, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (uninterrupted, output) = tune(whole.path(), SPACE, &["--trials", "5"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let (space, out) = (space_file(killed.path(), SPACE), killed.path().join("out"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(arguments(&space, out.to_str().unwrap(), &["--trials", "5"]))
        .current_dir(root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Killed in the second round.
    let begun =
        || std::fs::read_to_string(out.join("trials.toml")).is_ok_and(|text| text.contains("number = 3"));
    while !begun() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // With another number of jobs.
    let (out, output) = tune(killed.path(), SPACE, &["--trials", "5", "--jobs", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(trials(&out), trials(&uninterrupted));

    // Nothing is left to do, and more trials can be asked for.
    let before = trials(&out);
    let (out, output) = tune(killed.path(), SPACE, &["--trials", "5"]);
    assert_eq!((output.status.code(), trials(&out)), (Some(0), before.clone()));
    let (out, output) = tune(killed.path(), SPACE, &["--trials", "6"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let more = trials(&out)["trial"].as_array().unwrap().clone();
    assert_eq!(more.len(), 6);
    assert_eq!(more[..5], before["trial"].as_array().unwrap()[..]);

    // The folder belongs to this search.
    let (_, output) = tune(killed.path(), &SPACE.replace("high = 1.0", "high = 2.0"), &[]);
    let message = text(&output.stderr);
    assert!(
        message.contains("its search has another space file: `high = 1.0` before, `high = 2.0` now"),
        "{message}"
    );
    assert!(message.contains("hint: give another --out"), "{message}");
    let (_, output) = tune(killed.path(), SPACE, &["--set", "optimizer.weight_decay=0.5"]);
    let message = text(&output.stderr);
    assert!(message.contains("its search has another run file: `weight_decay ="), "{message}");
}

#[test]
fn what_cannot_be_tuned_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = String::new();
    let mut case = |name: &str, space: &str, further: &[&str]| {
        let (out, output) = tune(dir.path(), space, further);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output.stderr));
        assert!(!out.join("space.toml").exists(), "{name}");
        let message = text(&output.stderr).replace(dir.path().to_str().unwrap(), "DIR");
        let message = message.replace(root().to_str().unwrap(), "ROOT");
        all += &format!("--- {name}\n{message}\n");
    };
    let space = |line: &str| format!("folds = 2\n[space]\n{line}\n");
    case("a typo in a key", &space("\"loss.margn\" = { low = 0.1, high = 1.0 }"), &[]);
    case(
        "a section that is not there",
        &space("\"optimiser.learning_rate\" = { low = 0.1, high = 1.0 }"),
        &[],
    );
    case("fractions of images", &space("\"sampler.images_per_class\" = { low = 2, high = 4 }"), &[]);
    case("a bound out of range", &space("\"optimizer.learning_rate\" = { low = -1.0, high = 1.0 }"), &[]);
    case("an unknown choice", &space("\"schedule.kind\" = { choices = [\"cosine\", \"cosin\"] }"), &[]);
    let several = "loss = { choices = [{ name = \"rll\" }, { name = \"ice\" }] }\n\"loss.margin\" = { low = 0.1, high = 1.0 }";
    case("a key that one of the losses does not have", &space(several), &[]);
    let given = "folds = 2\n[space]\n\"loss.margin\" = { low = 0.5, high = 1.0 }\n[[trial]]\n";
    case("a trial without a key that the run file has out of its bounds", given, &[]);
    case("the test images", &space("\"data.test_split\" = { choices = [\"a\", \"b\"] }"), &[]);
    case("an unknown metric", SPACE, &["--metric", "map@"]);
    case("more folds than classes", SPACE, &["--folds", "13"]);
    case("no trials", SPACE, &["--trials", "0"]);
    insta::assert_snapshot!("tune_errors", all);
}

#[test]
fn a_search_whose_every_run_fails_ends_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (_, output) = tune(dir.path(), SPACE, &["--trials", "3", "--set", "sampler.classes_per_batch=50"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("every trial of the first round failed") && message.contains("batch"),
        "{message}"
    );
}

#[test]
fn the_section_set_holds_in_every_trial_and_the_command_line_has_precedence() {
    let dir = tempfile::tempdir().unwrap();
    let space = "folds = 2\n[set]\nloss = { name = \"nra\" }\n\"train.steps\" = 2\n\"sampler.images_per_class\" = 3\n\
        [space]\n\"loss.alpha\" = { low = 1.0, high = 8.0 }\n";
    // TINY sets train.steps to 3.
    let (out, output) = tune(dir.path(), space, &["--trials", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let best: toml::Table = std::fs::read_to_string(out.join("best.toml")).unwrap().parse().unwrap();
    assert_eq!(best["loss"]["name"].as_str(), Some("nra"));
    assert_eq!(best["sampler"]["images_per_class"].as_integer(), Some(3));
    assert_eq!(best["train"]["steps"].as_integer(), Some(3));

    let (_, output) = tune(dir.path(), &space.replace("train.steps", "train.stepps"), &["--trials", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `steps`"), "{}", text(&output.stderr));
}

#[test]
fn a_search_ends_when_the_values_of_a_narrow_range_are_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let space = "folds = 2\nstartup = 3\nround = 2\n[space]\n\"loss.margin\" = { low = 0.4, high = 0.4002 }";
    let (out, output) = tune(dir.path(), space, &["--trials", "9"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("every combination of the space was tried"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(trials(&out)["trial"].as_array().unwrap().len(), 3);
}

#[test]
fn a_choice_of_sections_has_the_one_of_the_run_file_and_tuned_keys_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let space = "folds = 2\n[space]\nloss = { choices = [{ name = \"ice\" }, { name = \"rll\" }, { name = \"proxy_nca\" }] }";
    let (out, output) = tune(dir.path(), space, &["--trials", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        trials(&out)["trial"][0]["values"]["loss"]["name"].as_str(),
        Some("rll"),
        "{}",
        text(&output.stderr)
    );

    // The loss of the run file has no scale; every choice has.
    let dir = tempfile::tempdir().unwrap();
    let space = "folds = 2\n[space]\nloss = { choices = [{ name = \"ice\" }, { name = \"proxy_nca\" }] }\n\"loss.scale\" = { low = 1, high = 20 }";
    let (_, output) = tune(dir.path(), space, &["--trials", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_search_is_not_continued_on_other_images() {
    let dir = tempfile::tempdir().unwrap();
    let space = "folds = 2\n[space]\n\"loss.margin\" = { low = 0.1, high = 1.0 }";
    tune(dir.path(), space, &["--trials", "1"]);
    let list = dir.path().join("out/images.csv");
    let text_of = std::fs::read_to_string(&list).unwrap();
    let (kept, last) = text_of.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&list, format!("{kept}\n")).unwrap();
    let (_, output) = tune(dir.path(), space, &["--trials", "2"]);
    assert_eq!(output.status.code(), Some(2), "{last}");
    assert!(
        text(&output.stderr).contains("the training images have changed since"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_search_is_not_continued_from_other_weights() {
    let dir = tempfile::tempdir().unwrap();
    let trained =
        common::small_run(dir.path(), &["train.steps=1", "data.test=[]", "network.channels=[4, 4]"]);
    let network = gallerist::params::read(&trained.join("checkpoints/last.safetensors")).unwrap();
    let network = network.into_iter();
    let mut network: std::collections::BTreeMap<_, _> = network
        .filter_map(|(name, data)| {
            let name = name.strip_prefix("network.")?;
            Some((name.replace(".gamma", ".weight").replace(".beta", ".bias"), data))
        })
        .collect();
    let weights = dir.path().join("weights.safetensors");
    gallerist::params::write(&weights, &network).unwrap();
    let space = "folds = 2\n[space]\n\"loss.margin\" = { low = 0.1, high = 1.0 }";
    let setting = format!("network.weights={:?}", weights.to_str().unwrap());
    let further = ["--set", setting.as_str(), "--trials"];
    let (_, output) = tune(dir.path(), space, &[&further[..], &["1"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let first = network.values_mut().next().unwrap();
    *first = gallerist::burn::tensor::TensorData::zeros::<f32, _>(first.shape().to_vec());
    gallerist::params::write(&weights, &network).unwrap();
    let (_, output) = tune(dir.path(), space, &[&further[..], &["2"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("the weights that its trials start from have changed"));
}
