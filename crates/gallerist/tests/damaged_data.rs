//! Images that are damaged, and images and labels that change between a run and its resumption.

#[path = "common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{gallerist, refused, text};
use gallerist::checkpoint::Checkpoint;
use gallerist::train::log::{self, Record, Step};
use gallerist::train::{
    BrokenImage, CheckpointKind, Observer, ResumeOptions, RunConfig, RunDirectory, RunEnd, Trainer,
};
use serde_json::Value;

/// A grey bitmap of 8 x 8 pixels.
fn picture(class: usize, number: usize) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    let bytes = 8 * 8 * 3;
    for word in [54 + bytes, 0, 54, 40, 8, 8, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0u32] {
        file.extend(word.to_le_bytes());
    }
    (0..64usize).for_each(|at| file.extend([((at * (class + 2) + 7 * number) % 251) as u8; 3]));
    file
}

fn pictures(folder: &Path, classes: usize, images: usize) {
    for class in 0..classes {
        let folder = folder.join(format!("class-{class:02}"));
        fs::create_dir_all(&folder).unwrap();
        for number in 0..images {
            fs::write(folder.join(format!("{number:02}.bmp")), picture(class, number)).unwrap();
        }
    }
}

const RUN_FILE: &str = "[train]\nsteps = 60\ncheckpoint_every = 20\ndevice = \"cpu\"\n\
    [data]\ntrain = [\"train\"]\ntest = [\"test\"]\n[image]\nsize = 8\nchannels = 1\n\
    [sampler]\nclasses_per_batch = 8\nimages_per_class = 4\n[validation]\nfraction = 0.2\nevery = 30\n\
    [network]\nkind = \"conv_blocks\"\nchannels = [4]\ndimensions = 4\n[report]\nmap = false\nqueries = 2\nfailures = 2\n";

/// 400 training images and 100 test images; of each, 1 % are damaged: cut, empty, and no image at all.
fn damaged(dir: &Path) -> Vec<(&'static str, String)> {
    pictures(&dir.join("train"), 20, 20);
    pictures(&dir.join("test"), 5, 20);
    fs::write(dir.join("run.toml"), RUN_FILE).unwrap();
    let mut all = Vec::new();
    for (set, image, content) in [
        ("train", "class-01/03.bmp", &picture(1, 3)[..40]),
        ("train", "class-07/19.bmp", b""),
        ("train", "class-11/00.bmp", b"<html>not found</html>"),
        ("train", "class-18/10.bmp", &picture(1, 3)[..100]),
        ("test", "class-02/07.bmp", b""),
    ] {
        fs::write(dir.join(set).join(image), content).unwrap();
        all.push((set, image.to_owned()));
    }
    all
}

fn listed(run: &Path) -> Vec<BrokenImage> {
    BrokenImage::load(&RunDirectory::open(run).unwrap().broken_images()).unwrap()
}

#[test]
fn damaged_images_are_listed_once_with_their_reasons_and_replaced_alike_by_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let images = damaged(dir);
    let mut wanted = None;
    for threads in [1, 3] {
        let name = format!("run{threads}");
        let line = format!("train run.toml --out {name} --json --set train.loader_threads={threads}");
        let out = gallerist(dir, &line);
        let printed = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{printed}");
        let run = dir.join(&name);
        let broken = listed(&run);
        let mut names: Vec<&str> = broken.iter().map(|one| one.image.as_str()).collect();
        names.sort_unstable();
        let mut of_all: Vec<&str> = images.iter().map(|(_, image)| image.as_str()).collect();
        of_all.sort_unstable();
        assert_eq!(names, of_all, "each once");
        let html = fs::read_to_string(run.join("report.html")).unwrap();
        for one in &broken {
            assert!(one.reason.contains(&one.image) && one.reason.len() > one.image.len() + 20, "{one:?}");
            assert_eq!(printed.matches(&one.image).count(), 1, "{printed}");
            assert!(html.contains(&one.image), "{} in the report", one.image);
        }
        let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!((&summary["broken_images"], &summary["metrics"]["broken_images"]), (&5.into(), &5.into()));
        let records = log::read(&run.join("log.jsonl")).unwrap();
        let logged: Vec<&BrokenImage> = records
            .iter()
            .filter_map(|record| match record {
                Record::BrokenImage { image, .. } => Some(image),
                _ => None,
            })
            .collect();
        assert_eq!(logged, broken.iter().filter(|one| one.set != "test").collect::<Vec<_>>());
        let last = Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap();
        assert_eq!(last.header.broken.len(), 4);
        let result = (last.header.fingerprint, broken);
        assert_eq!(&result, wanted.get_or_insert_with(|| result.clone()), "{threads} threads");
    }

    // Resumed when it is finished, a run reports them again.
    let out = gallerist(dir, "train --resume run1 --json");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("nothing was changed"), "{}", text(&out.stderr));
    let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&summary["broken_images"], &summary["metrics"]["broken_images"]), (&5.into(), &5.into()));

    // Embedding and evaluation leave them out, report them, and end with exit code 1.
    let out = gallerist(dir, "embed --run run1 --images train --out train.safetensors --json");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&summary["images"], summary["broken"].as_array().unwrap().len()), (&396.into(), 4));
    let out = gallerist(dir, "evaluate --run run1 --json");
    assert_eq!(out.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(found["broken_images"][0]["image"], "class-02/07.bmp");
}

#[test]
fn strict_commands_stop_at_the_first_damaged_image() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    damaged(dir);
    let first = |message: &str| {
        assert!(message.contains(".bmp`") && message.contains("hint: "), "{message}");
        assert_eq!(message.matches(".bmp").count(), 1, "{message}");
        message.split('`').nth(1).unwrap().to_owned()
    };
    // The same image for any number of threads, by the option or by the key.
    let by_option = refused(dir, "train run.toml --out a --strict --set train.loader_threads=1");
    let by_key = refused(dir, "train run.toml --out b --set data.strict=true --set train.loader_threads=3");
    assert_eq!(first(&by_option), first(&by_key));
    // The run starts, and continues when the images are repaired.
    let mut train = dir.join("train");
    for image in ["class-01/03", "class-07/19", "class-11/00", "class-18/10"] {
        fs::write(train.join(format!("{image}.bmp")), picture(1, 3)).unwrap();
    }
    let test = refused(dir, "train --resume b");
    assert!(test.contains("class-02/07.bmp"), "{test}");
    train.pop();
    fs::write(dir.join("test/class-02/07.bmp"), picture(2, 7)).unwrap();
    let out = gallerist(dir, "train --resume b");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    fs::write(dir.join("test/class-02/07.bmp"), b"").unwrap();
    assert!(first(&refused(dir, "evaluate --run b")).contains("class-02/07.bmp"), "the run is strict");
    assert!(first(&refused(dir, "embed --run b --images test --out x.npy --strict")).contains("07.bmp"));
    assert!(!dir.join("x.npy").exists());
}

/// Damages images after a step.
struct Damage<'a>(&'a Path, Vec<String>);

impl Observer for Damage<'_> {
    fn step(&mut self, record: &Step) {
        if record.step != 10 {
            return;
        }
        for class in 0..4 {
            fs::remove_file(self.0.join(format!("class-{class:02}/05.bmp"))).unwrap();
            // Another picture of the same length.
            fs::write(self.0.join(format!("class-{class:02}/06.bmp")), picture(99, 1)).unwrap();
            fs::write(self.0.join(format!("class-{class:02}/07.bmp")), b"cut").unwrap();
        }
    }

    fn warning(&mut self, message: &str) {
        self.1.push(message.into());
    }
}

#[test]
fn images_that_disappear_or_change_during_training_are_replaced_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    pictures(&dir.join("train"), 10, 10);
    let text = RUN_FILE.replace("test = [\"test\"]\n", "cache_mib = 0\n");
    fs::write(dir.join("run.toml"), text).unwrap();
    let settings = ["validation.fraction=0.0", "train.steps=40"].map(str::to_owned);
    let config = RunConfig::load(&dir.join("run.toml"), &settings).unwrap();
    let mut trainer = Trainer::start(&config, &dir.join("run")).unwrap();
    let train = dir.join("train");
    let mut damage = Damage(&train, Vec::new());
    assert_eq!(trainer.run(&mut damage, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    let mut names: Vec<&str> = trainer.broken().iter().map(|one| one.image.as_str()).collect();
    names.sort_unstable();
    let wanted: Vec<String> =
        (0..4).flat_map(|class| [5, 6, 7].map(|image| format!("class-{class:02}/0{image}.bmp"))).collect();
    assert_eq!(names, wanted);
    for one in trainer.broken() {
        let reason = &one.reason;
        match &one.image[9..] {
            "05.bmp" => assert!(reason.starts_with("cannot read"), "{reason}"),
            _ => assert!(reason.ends_with("has changed since it was read first"), "{reason}"),
        }
        assert_eq!(damage.1.iter().filter(|warning| warning.contains(reason.as_str())).count(), 1);
    }
}

/// A run that was stopped after 20 of 60 steps.
fn stopped(dir: &Path, settings: &[&str]) -> PathBuf {
    struct Stop<'a>(&'a AtomicBool);
    impl Observer for Stop<'_> {
        fn step(&mut self, record: &Step) {
            self.0.store(record.step == 20, Ordering::Relaxed);
        }
    }
    pictures(&dir.join("train"), 20, 6);
    pictures(&dir.join("test"), 5, 4);
    fs::write(dir.join("run.toml"), RUN_FILE).unwrap();
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let config = RunConfig::load(&dir.join("run.toml"), &settings).unwrap();
    let stop = AtomicBool::new(false);
    let run = dir.join("run");
    let end = Trainer::start(&config, &run).unwrap().run(&mut Stop(&stop), &stop).unwrap();
    assert_eq!(end, RunEnd::Interrupted);
    run
}

#[test]
fn a_run_whose_images_or_labels_changed_is_not_resumed_unless_that_is_forced() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = stopped(dir, &[]);
    let before = fs::read(run.join("checkpoints/last.safetensors")).unwrap();
    let train = dir.join("train");
    let resume = "train --resume run";

    fs::rename(train.join("class-03/02.bmp"), dir.join("aside.bmp")).unwrap();
    let message = refused(dir, resume);
    assert!(message.contains("changed since step 20"), "{message}");
    assert!(message.contains("1 image is gone, `class-03/02.bmp` (`class-03`)"), "{message}");
    assert!(message.contains("--force-data"), "{message}");
    fs::write(train.join("class-05/99.bmp"), picture(5, 99)).unwrap();
    let message = refused(dir, resume);
    assert!(message.contains("1 image was added, `class-05/99.bmp` (`class-05`)"), "{message}");
    assert_eq!(fs::read(run.join("checkpoints/last.safetensors")).unwrap(), before);

    let out = gallerist(dir, "train --resume run --force-data");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("the images of the run have changed"), "{}", text(&out.stderr));
    assert!(fs::read_to_string(run.join("images.csv")).unwrap().contains("class-05/99.bmp"));
    // From now on these are its images.
    let found = fs::read_to_string(run.join("config.toml")).unwrap();
    fs::write(run.join("config.toml"), found.replace("steps = 60", "steps = 65")).unwrap();
    assert_eq!(gallerist(dir, resume).status.code(), Some(0));
}

/// Resumes a run with the images as they are, takes no step, and returns the warnings.
fn forced(run: &Path) -> String {
    #[derive(Default)]
    struct Warnings(Vec<String>);
    impl Observer for Warnings {
        fn warning(&mut self, message: &str) {
            self.0.push(message.into());
        }
    }
    let options = ResumeOptions { force_data: true, ..ResumeOptions::default() };
    let mut warnings = Warnings::default();
    let trainer = Trainer::resume_with(run, &options, &mut warnings, &AtomicBool::new(false)).unwrap();
    assert_eq!(trainer.step(), 20);
    warnings.0.join("\n")
}

fn last(run: &Path) -> Checkpoint {
    Checkpoint::load(&run.join("checkpoints/last.safetensors")).unwrap()
}

#[test]
fn what_the_loss_has_learned_of_a_class_goes_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = stopped(dir, &["loss.name=proxy_anchor", "validation.fraction=0.0"]);
    let train = dir.join("train");
    // The proxies and their velocities.
    let learned = || {
        let names = fs::read_dir(&train).unwrap().map(|entry| entry.unwrap().file_name());
        let classes: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
        let last = last(&run);
        [&last.loss, &last.optimizer].map(|tensors| {
            let (_, data) = tensors.iter().find(|(name, _)| name.contains("proxies")).unwrap();
            let rows = data.as_slice::<f32>().unwrap().chunks_exact(4).map(<[f32]>::to_vec);
            assert_eq!(rows.len(), classes.len());
            classes.iter().cloned().zip(rows).collect::<BTreeMap<String, Vec<f32>>>()
        })
    };
    let [proxies, velocities] = learned();
    fs::rename(train.join("class-03"), train.join("a-class")).unwrap();
    fs::remove_dir_all(train.join("class-10")).unwrap();
    let said = forced(&run);
    assert!(said.contains("the loss keeps what it has learned of 18 classes (new: 1, gone: 2)"), "{said}");
    let [now, velocities_now] = learned();
    for (class, row) in &now {
        match proxies.get(class) {
            Some(before) => {
                assert_eq!((row, &velocities_now[class]), (before, &velocities[class]), "{class}");
            }
            None => {
                assert_eq!(class, "a-class");
                assert!(proxies.values().all(|other| other != row), "{row:?}");
                assert_eq!(velocities_now[class], [0.0; 4]);
            }
        }
    }

    // Without the list of its images it is not known what its rows are of.
    fs::remove_file(run.join("images.csv")).unwrap();
    fs::rename(train.join("class-05"), train.join("b-class")).unwrap();
    let message = refused(dir, "train --resume run --force-data");
    assert!(message.contains("which classes these are is not known"), "{message}");
    assert!(message.contains("put back the images and labels of that step"), "{message}");
    fs::rename(train.join("b-class"), train.join("class-05")).unwrap();
    let out = gallerist(dir, "train --resume run");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(run.join("images.csv").exists(), "the list is that of the checkpoint, and is written again");
}

#[test]
fn a_memory_and_class_means_of_other_images_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let settings = [
        "loss.name=contrastive",
        "xbm.size=64",
        "xbm.start_step=2",
        "sampler.kind=hard_identities",
        "sampler.pool=4",
        "sampler.refresh_every=50",
        "validation.fraction=0.0",
    ];
    let run = stopped(dir, &settings);
    let names = |run: &Path| last(run).state.into_keys().collect::<Vec<_>>();
    let before = names(&run);
    for wanted in ["memory.0.labels", "sampler.class_means"] {
        assert!(before.iter().any(|name| name == wanted), "{before:?}");
    }
    // Every class has another number.
    fs::rename(dir.join("train/class-19"), dir.join("train/aardvark")).unwrap();
    let said = forced(&run);
    assert!(said.contains("the cross-batch memory begins anew"), "{said}");
    assert!(names(&run).is_empty(), "{:?}", names(&run));
    let out = gallerist(dir, "train --resume run");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn values_of_two_metrics_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let run = stopped(dir, &["validation.every=10", "validation.metric=recall@1"]);
    // A value that no later one exceeds.
    let mut checkpoint = last(&run);
    checkpoint.header.best.as_mut().unwrap().value = 1.0;
    checkpoint.save(&run.join("checkpoints/last.safetensors")).unwrap();
    let run_file = fs::read_to_string(run.join("config.toml")).unwrap();
    let changed = run_file.replace("metric = \"recall@1\"", "metric = \"map@r\"");
    fs::write(run.join("config.toml"), changed).unwrap();
    let out = gallerist(dir, "train --resume run");
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{printed}");
    assert!(printed.contains("by `recall@1`; from now on `map@r` chooses"), "{printed}");
    let best = Checkpoint::load(&run.join("checkpoints/best.safetensors")).unwrap().header;
    let chosen = best.best.unwrap();
    assert_eq!((chosen.metric.as_str(), chosen.step), ("map@r", best.step));
    assert!(best.step > 20, "{}", best.step);
}

#[test]
fn another_label_in_a_manifest_is_named_and_other_pixels_and_places_are_not_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::create_dir(dir.join("here")).unwrap();
    let here = dir.join("here");
    pictures(&here.join("train"), 20, 6);
    let rows: String = (0..20)
        .flat_map(|class| (0..6).map(move |n| format!("class-{class:02}/{n:02}.bmp,kind {class}\n")))
        .collect();
    let manifest = |rows: &str| {
        fs::write(here.join("train/manifest.csv"), format!("path,label\n{rows}")).unwrap();
    };
    manifest(&rows);
    let run = stopped(&here, &["validation.fraction=0.0"]);
    manifest(&rows.replace("class-04/01.bmp,kind 4", "class-04/01.bmp,kind 5"));
    let message = refused(&here, "train --resume run");
    assert!(
        message.contains("1 image has another label, `class-04/01.bmp` (`kind 4`, now `kind 5`)"),
        "{message}"
    );
    // Without the list of its images, the run still knows that they are others.
    fs::rename(run.join("images.csv"), dir.join("images.csv")).unwrap();
    assert!(refused(&here, "train --resume run").contains("images, labels, cameras or splits differ"));
    fs::rename(dir.join("images.csv"), run.join("images.csv")).unwrap();

    manifest(&rows);
    fs::write(here.join("train/class-04/01.bmp"), picture(4, 55)).unwrap();
    let there = dir.join("there");
    fs::rename(&here, &there).unwrap();
    let out = gallerist(&there, "train --resume run");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let directory = RunDirectory::open(&there.join("run")).unwrap();
    assert_eq!(Checkpoint::load(&directory.checkpoint(CheckpointKind::Last)).unwrap().header.step, 60);
}

#[test]
fn corrections_that_changed_are_refused_unless_that_is_forced() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("fix.csv"), "image,action,new_label\nclass-04/01.bmp,relabel,class-05\n").unwrap();
    let relabel = format!("data.relabel=[{:?}]", dir.join("fix.csv").to_str().unwrap());
    let run = stopped(dir, &[&relabel]);
    fs::write(dir.join("fix.csv"), "image,action,new_label\nclass-04/02.bmp,relabel,class-05\n").unwrap();
    let message = refused(dir, "train --resume run");
    assert!(message.contains("corrections") && message.contains("--force-data"), "{message}");
    let out = gallerist(dir, "train --resume run --force-data");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("2 images have other labels"), "{}", text(&out.stderr));
    let config = RunConfig::load(&run.join("config.toml"), &[]).unwrap();
    config.data.open_train().expect("the run file names the corrections as they are");
}

/// A run of 20 steps on 12 classes of 4 images, with further settings.
fn small(dir: &Path, name: &str, settings: &[&str]) -> PathBuf {
    let out = gallerist(dir, &format!("train run.toml --out {name} --set {}", settings.join(" --set ")));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    dir.join(name)
}

const HELD_OUT: [&str; 5] = [
    "data.test=[]",
    "data.test_fraction=0.25",
    "train.steps=20",
    "validation.every=10",
    "sampler.classes_per_batch=4",
];

fn of_12_classes(dir: &Path) {
    pictures(&dir.join("train"), 12, 4);
    fs::write(dir.join("run.toml"), RUN_FILE).unwrap();
}

#[test]
fn the_test_classes_of_a_run_stay_when_classes_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let run = small(dir, "run", &HELD_OUT);
    let list = fs::read_to_string(run.join("images.csv")).unwrap();
    let tested = |list: &str| list.lines().filter(|row| row.starts_with("test,")).count();
    assert_eq!(tested(&list), 12, "three classes of four images");
    let measure = || {
        let out = gallerist(dir, "evaluate --run run --json");
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let value: Value = serde_json::from_slice(&out.stdout).unwrap();
        (value["evaluation"]["metrics"].clone(), text(&out.stderr))
    };
    let (before, printed) = measure();
    assert!(!printed.contains("changed") && printed.contains("checkpoint: best, step "), "{printed}");
    pictures(&dir.join("train"), 15, 4);
    let (after, printed) = measure();
    assert!(!printed.contains("changed"), "{printed}");
    assert_eq!(before, after, "other classes are no test classes");
    // One image less of a test class is said.
    let one = list.lines().find(|row| row.starts_with("test,")).unwrap().split(',').nth(2).unwrap();
    fs::remove_file(dir.join("train").join(one)).unwrap();
    let (_, printed) = measure();
    assert!(
        printed.contains("the test images have changed since the run began: 1 image is gone"),
        "{printed}"
    );

    // A run of an earlier version, whose list has no test images.
    let of_training: String =
        list.lines().filter(|row| !row.starts_with("test,")).map(|row| format!("{row}\n")).collect();
    fs::write(run.join("images.csv"), &of_training).unwrap();
    let message = refused(dir, "evaluate --run run");
    assert!(
        message.contains("that the run was trained on") && message.contains("--query IMAGES"),
        "{message}"
    );
    for class in 12..15 {
        fs::remove_dir_all(dir.join(format!("train/class-{class}"))).unwrap();
    }
    measure();
    // None of the test classes is left.
    fs::write(run.join("images.csv"), list.replace("test,0,", "test,0,gone/").replace(",class-", ",gone-"))
        .unwrap();
    let message = refused(dir, "evaluate --run run");
    assert!(message.contains("none of the 3 test classes of the run is left"), "{message}");
}

#[test]
fn a_finished_run_is_measured_with_corrections_that_changed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let first = "image,action,new_label\nclass-00/00.bmp,drop,\n";
    fs::write(dir.join("fix.csv"), first).unwrap();
    let run = small(dir, "run", &[&HELD_OUT[..], &["data.relabel=[\"fix.csv\"]"]].concat());
    let list = fs::read_to_string(run.join("images.csv")).unwrap();
    let tested = list.lines().find(|row| row.starts_with("test,")).unwrap().split(',').nth(2).unwrap();
    fs::write(dir.join("fix.csv"), format!("{first}{tested},drop,\n")).unwrap();
    // What the first command advises works.
    for (line, wanted) in [
        ("train --resume run --force-data", "to measure it again: gallerist evaluate --run "),
        ("evaluate --run run", "the test images have changed since the run began: 1 image is gone"),
    ] {
        let out = gallerist(dir, line);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(text(&out.stderr).contains(wanted), "{}", text(&out.stderr));
    }
}

#[test]
fn a_resumed_run_keeps_its_test_classes_when_classes_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let run = small(dir, "run", &HELD_OUT);
    let tested = |run: &Path| -> Vec<String> {
        let list = fs::read_to_string(run.join("images.csv")).unwrap();
        list.lines().filter(|row| row.starts_with("test,")).map(str::to_owned).collect()
    };
    let before = tested(&run);
    let text_of = fs::read_to_string(run.join("config.toml")).unwrap();
    fs::write(run.join("config.toml"), text_of.replace("steps = 20", "steps = 30")).unwrap();
    pictures(&dir.join("train"), 15, 4);
    let message = refused(dir, "train --resume run");
    assert!(message.contains("images were added") && !message.contains("moved"), "{message}");
    let out = gallerist(dir, "train --resume run --force-data");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let warning = "the run file `config.toml` was changed since step 20, and the run continues with it: train.steps = 30 (was 20)";
    assert!(text(&out.stderr).contains(warning), "{}", text(&out.stderr));
    assert_eq!(tested(&run), before);
    let metrics: Value = serde_json::from_slice(&fs::read(run.join("metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["class_overlap"]["shared"], 0, "{metrics}");
}

#[test]
fn a_run_that_validates_more_often_keeps_its_validation_classes() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let run = small(dir, "run", &HELD_OUT);
    let validated = || -> BTreeSet<String> {
        let list = fs::read_to_string(run.join("images.csv")).unwrap();
        let rows = list.lines().filter(|row| row.starts_with("validation,"));
        rows.map(|row| row.split(',').nth(3).unwrap().to_owned()).collect()
    };
    let before = validated();
    let run_file = fs::read_to_string(run.join("config.toml")).unwrap();
    let changed = run_file.replace("\nevery = 10\n", "\nevery = 5\n").replace("steps = 20", "steps = 30");
    fs::write(run.join("config.toml"), &changed).unwrap();
    // Of so many classes, another number would be drawn.
    pictures(&dir.join("train"), 40, 4);
    let out = gallerist(dir, "train --resume run --force-data");
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{printed}");
    assert!(printed.contains("validation.every = 5 (was 10)"), "{printed}");
    assert_eq!(validated(), before);
}

#[test]
fn a_validation_without_a_match_chooses_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    pictures(&dir.join("train"), 4, 6);
    pictures(&dir.join("test"), 3, 4);
    // So many classes of one image that all validation images are of them.
    for class in 10..60 {
        let folder = dir.join(format!("train/single-{class}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("1.bmp"), picture(class, 1)).unwrap();
    }
    fs::write(dir.join("run.toml"), RUN_FILE).unwrap();
    let out = gallerist(
        dir,
        "train run.toml --out run --set train.steps=20 --set validation.every=10 --set validation.fraction=0.04 --set \
         sampler.classes_per_batch=4",
    );
    let printed = text(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{printed}");
    assert!(printed.contains("validation images has another image of its class"), "{printed}");
    let best = Checkpoint::load(&dir.join("run/checkpoints/best.safetensors")).unwrap();
    assert_eq!((best.header.step, best.header.best.is_none()), (20, true));
}

#[test]
fn the_checkpoint_that_a_run_names_is_measured_and_embeds() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let last = [&HELD_OUT[..], &["evaluation.checkpoint=\"last\"", "optimizer.learning_rate=0.03"]].concat();
    let run = small(dir, "run", &last);
    let fingerprint =
        |name: &str| Checkpoint::load(&run.join("checkpoints").join(name)).unwrap().header.fingerprint;
    let (best, last) = (fingerprint("best.safetensors"), fingerprint("last.safetensors"));
    assert_ne!(best, last);
    for (option, wanted) in [("", &last), (" --checkpoint best", &best)] {
        let out = gallerist(dir, &format!("embed --run run --images train --out x.safetensors{option}"));
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let set = gallerist::retrieval::EmbeddingSet::load(dir.join("x.safetensors")).unwrap();
        assert_eq!(set.model.as_ref(), Some(wanted), "{option}");
    }
    let out = gallerist(dir, "evaluate --run run");
    assert!(text(&out.stderr).contains("checkpoint: last, step 20"), "{}", text(&out.stderr));
}

#[test]
fn settings_without_effect_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let held_out = HELD_OUT.join(" --set ");
    let further =
        "schedule.warmup_steps=20 --set xbm.size=64 --set xbm.start_step=20 --set loss.name=contrastive";
    let out = gallerist(dir, &format!("train run.toml --out run --set {held_out} --set {further}"));
    let printed = text(&out.stderr);
    assert!(printed.contains("never reaches optimizer.learning_rate"), "{printed}");
    assert!(printed.contains("starts at step 20 (xbm.start_step), and the run has 20 steps"), "{printed}");
    assert!(!printed.contains("no pair attracts"), "{printed}");
    for (loss, warned) in [("contrastive", true), ("proxy_anchor", false)] {
        let settings = format!("{held_out} --set sampler.images_per_class=1 --set loss.name={loss}");
        let out = gallerist(dir, &format!("train run.toml --out {loss} --set {settings}"));
        let printed = text(&out.stderr);
        assert_eq!(printed.contains("no pair attracts"), warned, "{printed}");
    }
}

/// Raises the flag at the first image of the test that is embedded.
struct StopInTest<'a>(&'a AtomicBool);

impl Observer for StopInTest<'_> {}

impl gallerist::Observer for StopInTest<'_> {
    fn embedding(&mut self, _: &str, done: usize, _: usize) {
        self.0.store(done > 0, Ordering::Relaxed);
    }
}

#[test]
fn a_run_stops_while_it_embeds_its_test_images_and_resumes_there() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    of_12_classes(dir);
    let settings = HELD_OUT.map(String::from);
    let mut config = RunConfig::load(&dir.join("run.toml"), &settings).unwrap();
    config.data.train = vec![dir.join("train")];
    let (stop, run) = (AtomicBool::new(false), dir.join("run"));
    let stopped = gallerist::train(&config, &run, &mut StopInTest(&stop), &stop).unwrap();
    assert_eq!((stopped.end, stopped.steps), (gallerist::TrainingEnd::Interrupted, 20));
    assert!(!run.join("metrics.json").exists());
    drop(stopped);
    let resumed = gallerist::resume(&run, &Default::default(), &mut (), &AtomicBool::new(false)).unwrap();
    assert_eq!(resumed.end, gallerist::TrainingEnd::Finished);
    assert!(run.join("metrics.json").exists() && run.join("report.html").exists());
}
