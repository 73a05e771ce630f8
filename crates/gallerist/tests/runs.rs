//! The real program: runs that are stopped at any point, moved, resumed, and its messages for mistakes.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{gallerist, text};
use gallerist::train::{Observer, Phase, ResumeOptions, RunConfig, RunDirectory, State, Trainer};
use serde_json::Value;

/// A bitmap of 16 x 16 pixels, 24 bits each.
fn bitmap(class: usize, number: usize) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    let bytes = 16 * 16 * 3;
    for word in [54 + bytes, 0, 54, 40, 16, 16, 24 << 16 | 1, 0, bytes, 0, 0, 0, 0u32] {
        file.extend(word.to_le_bytes());
    }
    for at in 0..16 * 16 {
        let value = ((at * (class + 1) + 7 * number) % 251) as u8;
        file.extend([value; 3]);
    }
    file
}

/// A folder of eight classes with six images each.
fn images(folder: &Path) {
    for class in 0..8 {
        let folder = folder.join(format!("Kind-{}/sort-{class}", class % 2));
        std::fs::create_dir_all(&folder).unwrap();
        for number in 0..6 {
            std::fs::write(folder.join(format!("{number}.bmp")), bitmap(class, number)).unwrap();
        }
    }
}

const RUN_FILE: &str = r#"
[train]
steps = 6
checkpoint_every = 2
threads = 1
device = "cpu"
[data]
train = "data"
test = "data"
[validation]
fraction = 0.25
every = 3
[image]
size = 16
channels = 1
[sampler]
classes_per_batch = 4
images_per_class = 3
[network]
kind = "conv_blocks"
channels = [4]
dimensions = 4
"#;

/// A project: images in `data`, a run file `run.toml`.
fn project() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    images(&folder.path().join("data"));
    std::fs::write(folder.path().join("run.toml"), RUN_FILE).unwrap();
    folder
}

fn ok(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    text(&out.stderr)
}

fn refused(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(2), "{}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stderr)
}

/// The tensors of a run's last checkpoint.
fn tensors(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let path = run.join("checkpoints/last.safetensors");
    let checkpoint = gallerist::checkpoint::Checkpoint::load(&path).unwrap();
    checkpoint.network.iter().map(|(name, data)| (name.clone(), data.as_bytes().to_vec())).collect()
}

fn config(project: &Path) -> RunConfig {
    RunConfig::load(&project.join("run.toml"), &[]).unwrap()
}

#[test]
fn every_state_of_a_start_that_was_killed_can_be_started_again_and_resumed() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out whole"));
    let wanted = tensors(&at.join("whole"));
    let run_file = std::fs::read_to_string(at.join("whole/config.toml")).unwrap();
    let run_file = run_file.replace("/whole\"", "/cut\"");
    let temporary = ".config.toml.4711-0.gallerist-tmp";
    // What a kill leaves behind, in the order in which a start writes it.
    type Leave<'a> = &'a dyn Fn(&Path);
    let write = |path: PathBuf, text: &str| std::fs::write(path, text).unwrap();
    let folders: Leave<'_> = &|run| std::fs::create_dir_all(run.join("checkpoints")).unwrap();
    let states: [(&str, bool, Leave<'_>); 8] = [
        ("an empty folder", false, &|run| std::fs::create_dir_all(run).unwrap()),
        ("only the folder of checkpoints", false, folders),
        ("an empty temporary run file", false, &|run| {
            folders(run);
            write(run.join(temporary), "");
        }),
        ("half a temporary run file", false, &|run| {
            folders(run);
            write(run.join(temporary), &run_file[..run_file.len() / 2]);
        }),
        ("a temporary run file", true, &|run| {
            folders(run);
            write(run.join(temporary), &run_file);
        }),
        ("a run file", true, &|run| {
            folders(run);
            write(run.join("config.toml"), &run_file);
        }),
        ("a run file and an empty log", true, &|run| {
            folders(run);
            write(run.join("config.toml"), &run_file);
            write(run.join("log.jsonl"), "");
        }),
        ("half a checkpoint", true, &|run| {
            folders(run);
            write(run.join("config.toml"), &run_file);
            write(run.join("log.jsonl"), "");
            write(run.join("checkpoints/.last.safetensors.4711-1.gallerist-tmp"), "half");
        }),
    ];
    for (name, resumable, leave) in states {
        let run = at.join("cut");
        leave(&run);
        assert!(!matches!(State::of(&run).unwrap(), State::Started | State::Other), "{name}");
        ok(&gallerist(at, "train run.toml --out cut"));
        assert_eq!(tensors(&run), wanted, "{name}, started again");
        let strays = |folder: &Path| {
            let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_string_lossy().ends_with("gallerist-tmp")).count()
        };
        assert_eq!(strays(&run) + strays(&run.join("checkpoints")), 0, "{name}");
        std::fs::remove_dir_all(&run).unwrap();

        leave(&run);
        let out = gallerist(at, "train --resume cut");
        if resumable {
            ok(&out);
            assert_eq!(tensors(&run), wanted, "{name}, resumed");
        } else {
            let message = refused(&out);
            let said = message.contains("start it again with the same command")
                || message.contains("no config.toml");
            assert!(said, "{name}: {message}");
        }
        std::fs::remove_dir_all(&run).unwrap();
    }
    // A folder that holds something else, and a run that is whole, are refused.
    std::fs::create_dir_all(at.join("other")).unwrap();
    std::fs::write(at.join("other/thesis.tex"), "years of work").unwrap();
    assert!(refused(&gallerist(at, "train run.toml --out other")).contains("it is not empty"));
    assert!(refused(&gallerist(at, "train run.toml --out whole")).contains("it holds another run"));
    std::fs::remove_file(at.join("whole/checkpoints/last.safetensors")).unwrap();
    let message = refused(&gallerist(at, "train run.toml --out whole"));
    assert!(message.contains("whose last checkpoint is gone"), "{message}");
    let message = refused(&gallerist(at, "train --resume whole"));
    assert!(message.contains("last.safetensors") && message.contains("best.safetensors"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_start_that_is_killed_at_any_time_is_started_again_in_its_directory() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out whole"));
    let wanted = tensors(&at.join("whole"));
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gallerist"));
        command.args(["train", "run.toml", "--out", "cut"]).current_dir(at);
        command.stderr(Stdio::null()).stdout(Stdio::null());
        command
    };
    for milliseconds in (0..60).step_by(6) {
        let mut child = command().spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
        let state = State::of(&at.join("cut")).unwrap();
        let out = match state {
            State::Started => gallerist(at, "train --resume cut"),
            _ => gallerist(at, "train run.toml --out cut"),
        };
        ok(&out);
        assert_eq!(tensors(&at.join("cut")), wanted, "killed after {milliseconds} ms: {state:?}");
        std::fs::remove_dir_all(at.join("cut")).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn two_processes_do_not_train_into_one_directory() {
    let project = project();
    let at = project.path();
    let held = RunDirectory::create(&at.join("run"), &config(at)).unwrap();
    let message = refused(&gallerist(at, "train run.toml --out run"));
    assert!(message.contains("another process is training into it"), "{message}");
    drop(held);
    ok(&gallerist(at, "train run.toml --out run"));
}

/// Raises a flag when a phase has come so far.
struct StopIn<'a> {
    phase: &'static str,
    stop: &'a AtomicBool,
    seen: Vec<Phase>,
}

impl Observer for StopIn<'_> {
    fn phase(&mut self, phase: &Phase) {
        self.seen.push(*phase);
        if phase.what.contains(self.phase) && phase.done > 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Stops a run after its fourth step.
struct AtFour<'a>(&'a AtomicBool);

impl Observer for AtFour<'_> {
    fn step(&mut self, record: &gallerist::train::log::Step) {
        self.0.store(record.step >= 4, Ordering::Relaxed);
    }
}

#[test]
fn a_start_reports_what_it_does_and_stops_within_the_discriminant_analysis() {
    let project = project();
    let at = project.path();
    let mut config = config(at);
    config.network.head_init = gallerist::network::HeadInit::Lda;
    let run = at.join("run");
    for phase in ["embedding images", "discriminant analysis"] {
        let stop = AtomicBool::new(false);
        let mut observer = StopIn { phase, stop: &stop, seen: Vec::new() };
        let error = Trainer::start_with(&config, &run, &mut observer, &stop).err().unwrap();
        assert!(error.to_string().starts_with("stopped before the first step, while"), "{error}");
        assert!(error.to_string().contains(phase), "{error}");
        assert!(!run.exists(), "a run that was stopped before its first step leaves nothing behind");
        let last = observer.seen.last().unwrap();
        assert!(last.what.contains(phase) && last.done > 0 && last.done <= last.total, "{last:?}");
        assert_eq!(observer.seen[0].what, "reading the training images");
    }
    let started = Instant::now();
    let trainer = Trainer::start(&config, &run).unwrap();
    let (head, all) = (trainer.head_seconds().unwrap(), started.elapsed().as_secs_f64());
    assert!(head > 0.0 && head <= all && trainer.seconds() == head, "{head} of {all}");
}

#[test]
fn a_discriminant_head_is_refused_if_no_class_has_two_images() {
    let project = project();
    let at = project.path();
    for class in 0..8 {
        let folder = at.join(format!("data/Kind-{}/sort-{class}", class % 2));
        (1..6).for_each(|number| std::fs::remove_file(folder.join(format!("{number}.bmp"))).unwrap());
    }
    let mut config = config(at);
    (config.data.test, config.validation.fraction) = (Vec::new(), 0.0);
    config.network.head_init = gallerist::network::HeadInit::Lda;
    let run = at.join("run");
    let error = Trainer::start(&config, &run).err().unwrap().to_string();
    let wanted = "must be random where no training class has two images with different features, not lda";
    assert!(error.contains("`network.head_init`") && error.contains(wanted), "{error}");
    assert!(!run.exists());
    config.network.head_init = gallerist::network::HeadInit::Random;
    Trainer::start(&config, &run).unwrap();
}

#[test]
fn a_run_continues_with_its_trained_weights_if_it_loses_or_gains_an_average() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out whole"));
    let wanted = tensors(&at.join("whole"));
    let stopped = |name: &str, settings: &[String], change: &dyn Fn(&str) -> String| {
        let (run, stop) = (at.join(name), AtomicBool::new(false));
        let config = RunConfig::load(&at.join("run.toml"), settings).unwrap();
        let mut trainer = Trainer::start(&config, &run).unwrap();
        trainer.run(&mut AtFour(&stop), &stop).unwrap();
        drop(trainer);
        let path = run.join("config.toml");
        let before = std::fs::read_to_string(&path).unwrap();
        let after = change(&before);
        assert_ne!(after, before);
        std::fs::write(&path, after).unwrap();
        ok(&gallerist(at, &format!("train --resume {name}")));
        run
    };
    let average = "average_decay = 0.9\n";
    let run = stopped("lost", &["train.average_decay=0.9".into()], &|text| text.replace(average, ""));
    assert_eq!(tensors(&run), wanted);
    let gain = |text: &str| text.replace("[train]\n", &format!("[train]\n{average}"));
    let run = stopped("gained", &[], &gain);
    let path = run.join("checkpoints/last.safetensors");
    let mut last = gallerist::checkpoint::Checkpoint::load(&path).unwrap();
    let trained = last.state.extract_if(.., |name, _| name.starts_with("trained."));
    let trained: BTreeMap<String, Vec<u8>> = trained
        .map(|(name, data)| (name["trained.".len()..].to_string(), data.as_bytes().to_vec()))
        .collect();
    assert_eq!(trained, wanted);
    assert_ne!(tensors(&run), wanted, "the network of the checkpoint is the average");
}

#[test]
fn learned_parameters_of_a_loss_that_overflow_are_not_blamed_on_the_clipping() {
    let project = project();
    let at = project.path();
    let hint = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
        let config = RunConfig::load(&at.join("run.toml"), &settings).unwrap();
        let run = tempfile::tempdir().unwrap();
        let mut trainer = Trainer::start(&config, &run.path().join("run")).unwrap();
        let error = trainer.run(&mut (), &AtomicBool::new(false)).unwrap_err();
        (error.to_string(), error.hint().unwrap())
    };
    let (error, of_loss) = hint(&["loss={name=\"proxy_anchor\"}", "optimizer.loss_factor=1e300"]);
    assert!(error.contains("the weights `loss."), "{error}");
    assert!(of_loss.contains("lower optimizer.loss_factor") && !of_loss.contains("clip_norm"), "{of_loss}");
    let (error, of_network) = hint(&["optimizer.learning_rate=1e300"]);
    assert!(!error.contains("`loss."), "{error}");
    assert!(
        of_network.contains("set optimizer.clip_norm") && !of_network.contains("loss_factor"),
        "{of_network}"
    );
}

#[test]
fn a_boundary_for_each_class_is_refused_if_images_have_several_labels() {
    let project = project();
    let at = project.path();
    let row = |class: usize, number: usize| {
        format!("Kind-{}/sort-{class}/{number}.bmp,c{class}|all{class}\n", class % 2)
    };
    let rows: String = (0..48).map(|i| row(i % 8, i / 8)).collect();
    std::fs::write(at.join("data/manifest.csv"), format!("path,label\n{rows}")).unwrap();
    let config = |boundary: &str| {
        let loss = format!("loss={{name=\"margin\", boundary={boundary:?}}}");
        let settings = [loss, "data.test=[]".into(), "validation.fraction=0.0".into()];
        RunConfig::load(&at.join("run.toml"), &settings).unwrap()
    };
    let run = at.join("run");
    let error = Trainer::start(&config("per_class"), &run).err().unwrap();
    assert!(error.to_string().contains("the loss `margin` needs one class per sample"), "{error}");
    assert!(error.hint().unwrap().contains("boundary = \"learnt\""));
    assert!(!run.exists());
    Trainer::start(&config("learnt"), &run).unwrap();
}

#[test]
fn a_resumed_run_leaves_the_bytes_of_its_log_and_its_report_has_each_step_once() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    let run = at.join("run");
    let whole = gallerist::train::log::read(&run.join("log.jsonl")).unwrap();
    // Killed after step 5, the last checkpoint being of step 4, in the middle of a line.
    let stop = AtomicBool::new(false);
    let cut = at.join("cut");
    let mut trainer = Trainer::start(&config(at), &cut).unwrap();
    trainer.run(&mut AtFour(&stop), &stop).unwrap();
    drop(trainer);
    let mut log = std::fs::read_to_string(cut.join("log.jsonl")).unwrap();
    let fifth = std::fs::read_to_string(run.join("log.jsonl")).unwrap();
    let fifth = fifth.lines().find(|line| line.contains("\"step\":5,")).unwrap().to_string();
    // Digits that this program would not write.
    log += &fifth.replace("\"loss\":", "\"loss\":1");
    log += "\n{\"event\":\"step\",\"step\":6,\"lo";
    std::fs::write(cut.join("log.jsonl"), &log).unwrap();
    ok(&gallerist(at, "train --resume cut"));
    let after = std::fs::read_to_string(cut.join("log.jsonl")).unwrap();
    assert!(after.starts_with(&log), "the old bytes stay");
    let steps = |records: &[gallerist::train::log::Record]| -> Vec<(usize, f32)> {
        let of = |record: &gallerist::train::log::Record| match record {
            gallerist::train::log::Record::Step(step) => Some((step.step, step.loss)),
            _ => None,
        };
        records.iter().filter_map(of).collect()
    };
    assert_eq!(steps(&gallerist::train::log::read(&cut.join("log.jsonl")).unwrap()), steps(&whole));

    // Resumed once more, it says that it is finished and changes nothing.
    let before = std::fs::read(cut.join("log.jsonl")).unwrap();
    let said = ok(&gallerist(at, "train --resume cut"));
    assert!(
        said.contains("is finished: all 6 steps are done") && said.contains("raise train.steps"),
        "{said}"
    );
    assert!(!said.contains("trained for"), "{said}");
    assert_eq!(std::fs::read(cut.join("log.jsonl")).unwrap(), before);
    // Without its report it is measured again, and no step is taken.
    std::fs::remove_file(cut.join("report.html")).unwrap();
    let said = ok(&gallerist(at, "train --resume cut"));
    assert!(said.contains("measuring what is left") && cut.join("report.html").exists(), "{said}");
    // The command that it prints can be pasted.
    std::fs::rename(&cut, at.join("a run")).unwrap();
    let said = ok(&common::program(at, &["train", "--resume", "a run"]));
    assert!(cfg!(windows) || said.contains("gallerist evaluate --run 'a run'"), "{said}");
}

#[test]
fn a_finished_run_with_more_steps_is_not_finished_until_it_is_measured_again() {
    struct WhileEmbedding<'a>(&'a AtomicBool);
    impl Observer for WhileEmbedding<'_> {}
    impl gallerist::Observer for WhileEmbedding<'_> {
        fn embedding(&mut self, _: &str, _: usize, _: usize) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run --set evaluation.checkpoint=last"));
    let run = at.join("run");
    let file = std::fs::read_to_string(run.join("config.toml")).unwrap();
    std::fs::write(run.join("config.toml"), file.replace("\nsteps = 6\n", "\nsteps = 8\n")).unwrap();
    let stop = AtomicBool::new(false);
    let ended =
        gallerist::resume(&run, &ResumeOptions::default(), &mut WhileEmbedding(&stop), &stop).unwrap();
    assert_eq!((ended.end, ended.steps), (gallerist::TrainingEnd::Interrupted, 8));
    drop(ended);
    assert!(!run.join("report.html").exists() && !run.join("metrics.json").exists());
    let said = ok(&gallerist(at, "train --resume run"));
    assert!(said.contains("measuring what is left") && run.join("report.html").exists(), "{said}");
    let metrics: Value =
        serde_json::from_str(&std::fs::read_to_string(run.join("metrics.json")).unwrap()).unwrap();
    assert_eq!(metrics["step"], 8);
}

#[test]
fn the_threads_of_the_run_file_count_for_every_command_that_reads_the_run() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    let path = at.join("run/config.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(file.contains("\nthreads = 1\n") && file.contains("\nsteps = 6\n"), "{file}");
    let file = file.replace("\nthreads = 1\n", "\nthreads = 7\n");
    std::fs::write(&path, &file).unwrap();
    for line in [
        "embed --run run --images data --out all.safetensors",
        "evaluate --run run",
        "search --gallery run/embeddings.safetensors --query data/Kind-0/sort-0/0.bmp --html found.html",
    ] {
        let said = ok(&gallerist(at, &format!("{line} --device cpu --products bf16")));
        assert!(said.contains("device: cpu (7 threads), "), "{line}: {said}");
    }
    // A finished run that takes more steps.
    std::fs::write(&path, file.replace("\nsteps = 6\n", "\nsteps = 8\n")).unwrap();
    let said = ok(&gallerist(at, "train --resume run"));
    assert!(said.contains("cpu (7 threads)"), "{said}");
}

#[test]
fn a_project_that_was_moved_resumes_evaluates_and_searches_from_any_folder() {
    let parent = tempfile::tempdir().unwrap();
    let (before, after) = (parent.path().join("before"), parent.path().join("after"));
    images(&before.join("data"));
    std::fs::write(before.join("run.toml"), RUN_FILE).unwrap();
    ok(&gallerist(&before, "train run.toml --out runs/one"));
    ok(&gallerist(&before, "embed --run runs/one --images data --out gallery.safetensors"));
    ok(&gallerist(&before, "index build gallery.safetensors --out gallery.index"));
    let wanted = text(&gallerist(&before, "evaluate --run runs/one").stdout);
    std::fs::rename(&before, &after).unwrap();
    std::fs::rename(after.join("runs"), after.join("trained")).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let at = elsewhere.path();
    let (run, gallery) = (after.join("trained/one"), after.join("gallery.safetensors"));
    let (run, gallery, index) = (run.display(), gallery.display(), after.join("gallery.index"));
    let out = gallerist(at, &format!("evaluate --run {run}"));
    ok(&out);
    assert_eq!(text(&out.stdout), wanted);
    let query = after.join("data/Kind-0/sort-0/0.bmp");
    let (query, index) = (query.display(), index.display());
    // The run's own gallery finds its run beside it, another file by the run that it names.
    let own = format!("search --gallery {run}/embeddings.safetensors --query {query} -k 1 --json");
    ok(&gallerist(at, &own));
    // A copy of it does not take its new folder for the run.
    std::fs::copy(after.join("trained/one/embeddings.safetensors"), at.join("copy.safetensors")).unwrap();
    let of_copy = format!("search --gallery copy.safetensors --query {query} -k 1");
    let message = refused(&gallerist(at, &of_copy));
    assert!(message.contains("it does not name its run, and no run is next to it"), "{message}");
    ok(&gallerist(at, &format!("{of_copy} --run {run}")));
    let message = refused(&gallerist(at, &format!("search --gallery {gallery} --query {query} -k 1")));
    let old = before.join("runs/one");
    assert!(message.contains(&format!("its run is neither at `{}`", old.display())), "{message}");
    assert!(message.contains("--run DIR"), "{message}");
    let message = ok(&gallerist(at, &format!("search --gallery {gallery} --query {query} -k 1 --run {run}")));
    assert!(
        message.contains(&format!("next: gallerist serve --gallery {gallery} --run {run}\n")),
        "{message}"
    );
    std::fs::rename(after.join("trained"), after.join("runs")).unwrap();
    for file in [gallery.to_string(), index.to_string()] {
        let page = format!("--html {}", at.join("page.html").display());
        let images = format!("--images {}", after.join("data").display());
        let out =
            gallerist(at, &format!("search --gallery {file} --query {query} -k 1 --json {page} {images}"));
        ok(&out);
        let found: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(found[0]["results"][0]["distance"].as_f64().unwrap() < 1e-3, "{found}");
        let page = std::fs::read_to_string(at.join("page.html")).unwrap();
        assert!(!page.contains("cannot be found"), "the pictures are found in their new place");
    }

    // A run in the middle of its steps goes on.
    let mut config = RunConfig::load(&after.join("run.toml"), &[]).unwrap();
    config.data.run_directory = None;
    let stop = AtomicBool::new(true);
    let half = after.join("half");
    let mut trainer = Trainer::start(&config, &half).unwrap();
    trainer.run(&mut (), &stop).unwrap();
    drop(trainer);
    let moved = parent.path().join("moved");
    std::fs::rename(&after, &moved).unwrap();
    ok(&gallerist(at, &format!("train --resume {}", moved.join("half").display())));
    // Without its images it names the file looked for, and where to write the new place.
    std::fs::rename(moved.join("data"), moved.join("photographs")).unwrap();
    let message = refused(&gallerist(at, &format!("evaluate --run {}", moved.join("half").display())));
    assert!(message.contains("cannot find `") && message.contains("/data`"), "{message}");
    assert!(message.contains("write where it is now into `data.test` of"), "{message}");
}

#[test]
fn evaluate_without_arguments_names_its_three_forms() {
    let folder = tempfile::tempdir().unwrap();
    let message = refused(&gallerist(folder.path(), "evaluate"));
    for form in ["--run DIR", "--embeddings FILE", "--query FILE --gallery FILE"] {
        assert!(message.contains(form), "{message}");
    }
}

#[test]
fn a_label_that_does_not_exist_is_refused_with_near_ones_and_a_branch_selects_its_labels() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    ok(&gallerist(at, "index build run/embeddings.safetensors --out x.index"));
    let search = |more: &str| {
        gallerist(
            at,
            &format!("index search x.index --queries run/embeddings.safetensors -k 100 --json {more}"),
        )
    };
    let labels = |more: &str| {
        let out = search(more);
        ok(&out);
        let lists: Value = serde_json::from_slice(&out.stdout).unwrap();
        let mut labels: Vec<String> = lists[0]["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["label"].as_str().unwrap().to_string())
            .collect();
        labels.sort();
        labels.dedup();
        labels
    };
    let all = labels("");
    assert_eq!(all.len(), 8);
    let branch: Vec<String> = all.iter().filter(|label| label.starts_with("Kind-1/")).cloned().collect();
    assert_eq!(branch.len(), 4, "{all:?}");
    assert_eq!(labels("--label Kind-1/*"), branch);
    assert_eq!(labels("--label Kind-1"), branch);
    assert_eq!(labels(&format!("--not-label Kind-0/* --not-label {}", branch[0])), branch[1..]);
    let message = refused(&search("--label sort-3"));
    assert!(message.contains("no item has the label `sort-3`"), "{message}");
    assert!(message.contains("did you mean `Kind-1/sort-3`?"), "{message}");
    // Removing what is not there is no error, as before; a branch is removed as a whole.
    let out = gallerist(at, "index remove x.index --label sort-3");
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("did you mean `Kind-1/sort-3`?"));
    ok(&gallerist(at, "index remove x.index --label Kind-1/*"));
    assert_eq!(labels("").len(), 4);
}

#[test]
fn counts_beyond_the_limits_are_refused_by_every_command() {
    let project = project();
    let at = project.path();
    for (line, limit) in [
        ("index build x.safetensors --out x.index --threads 1000000", "wanted at most 1024"),
        ("data info data --threads 1000000", "wanted at most 1024"),
        ("serve --gallery x.index --threads 1000000", "wanted at most 1024"),
        ("evaluate --embeddings x.npy --bootstrap 1000000000000", "wanted at most 1000000"),
        ("evaluate --embeddings x.npy --few-shot 5x1 --episodes 1000000000000", "wanted at most 1000000"),
        ("plot cmc --embeddings x.npy --ranks 1000000000000 --out x.svg", "wanted at most 100000"),
        ("plot map --embeddings x.npy --steps 1000000000000 --out x.svg", "wanted at most 1000000"),
        ("index bench x.index --queries x.npy --repeats 100000000000", "wanted at most 1000000"),
        ("train run.toml --out x --set train.threads=1000000", "at most 1024"),
        ("train run.toml --out x --set network.channels=[8,2147483648]", "at most 1,073,741,824"),
        ("train run.toml --out x --set network.dimensions=99999999999", "at most 1,073,741,824"),
    ] {
        let message = refused(&gallerist(at, line));
        assert!(message.contains(limit), "{line}: {message}");
    }
    assert!(!at.join("x").exists());
}

#[cfg(unix)]
#[test]
fn names_of_files_cannot_steer_the_terminal() {
    let project = project();
    let at = project.path();
    let evil = "a\u{1b}[2J\u{202e}gpj\u{9b}31m\nerror: fake";
    std::fs::create_dir_all(at.join("data").join(evil)).unwrap();
    for number in 0..6 {
        std::fs::write(at.join("data").join(evil).join(format!("{number}{evil}.bmp")), bitmap(9, number))
            .unwrap();
    }
    std::fs::write(at.join("data").join(evil).join(format!("broken{evil}.bmp")), "nothing").unwrap();
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_gallerist")).args(args).current_dir(at).output().unwrap();
        [text(&out.stdout), text(&out.stderr)]
    };
    let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    let all = [
        run(&["train", "run.toml", "--out", "run"]),
        run(&["data", "info", "data"]),
        run(&["data", "info", "data", "--json"]),
        run(&["index", "build", "run/embeddings.safetensors", "--out", "x.index"]),
        run(&["index", "search", "x.index", "--queries", "run/embeddings.safetensors"]),
        run(&["index", "search", "x.index", "--queries", "run/embeddings.safetensors", "--json"]),
        run(&["search", "--gallery", "run/embeddings.safetensors", "--query", &format!("data/{evil}")]),
        run(&["evaluate", "--embeddings", &format!("no{evil}.safetensors")]),
        run(&["train", &format!("no{evil}.toml")]),
    ];
    let mut escaped = 0;
    for texts in &all {
        for text in texts {
            // Colours of our own are not written into a pipe.
            assert!(!text.contains(steers), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("error: fake")), "{text}");
            escaped += usize::from(text.contains("\\u{202e}") || text.contains("\\u202e"));
        }
    }
    assert!(escaped >= 7, "{escaped} texts name the file");
    // JSON is read back as the names are.
    let found: Value = serde_json::from_str(&all[5][0]).unwrap();
    assert!(found.to_string().contains("\u{202e}"), "the name comes back from JSON");
}

#[test]
fn info_of_a_run_reads_the_files_that_other_commands_need() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    let message = ok(&gallerist(at, "info run"));
    assert!(message.contains("next: gallerist serve --gallery run/embeddings.safetensors"), "{message}");
    for name in ["checkpoints/last.safetensors", "checkpoints/best.safetensors", "embeddings.safetensors"] {
        let path = at.join("run").join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let message = refused(&gallerist(at, "info run"));
        assert!(message.contains(name), "{message}");
        std::fs::write(&path, whole).unwrap();
    }

    // A run whose test images were not measured is continued; its training images do not take their place.
    for name in ["embeddings.safetensors", "metrics.json", "report.html"] {
        std::fs::remove_file(at.join("run").join(name)).unwrap();
    }
    let message = ok(&gallerist(at, "info run"));
    assert!(message.contains("next: gallerist train --resume run\n"), "{message}");
    ok(&gallerist(at, "train --resume run"));
    assert!(at.join("run/embeddings.safetensors").exists());

    // A run whose checkpoints were removed, as `tune` does.
    std::fs::remove_dir_all(at.join("run/checkpoints")).unwrap();
    std::fs::remove_file(at.join("run/embeddings.safetensors")).unwrap();
    let out = gallerist(at, "info run");
    let message = ok(&out);
    assert!(text(&out.stdout).contains("no checkpoint") && !message.contains("next:"), "{message}");
    let message = refused(&gallerist(at, "evaluate --run run"));
    assert!(message.contains("has no checkpoints any more") && !message.contains("--resume"), "{message}");
}

#[test]
fn results_without_paths_have_the_row_of_the_file_or_the_id_of_the_index() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    ok(&gallerist(at, "embed --run run --images data --out all.npy"));
    ok(&gallerist(at, "index build all.npy --out all.index"));
    for (gallery, name, key) in [("all.npy", "row", "index"), ("all.index", "id", "id")] {
        let line = format!("search --gallery {gallery} --query data/Kind-0/sort-0/0.bmp -k 2 --run run");
        let (table, lists) = (gallerist(at, &line), gallerist(at, &format!("{line} --json")));
        ok(&table);
        let lists: Value = serde_json::from_slice(&lists.stdout).unwrap();
        let table = text(&table.stdout);
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["rank", "distance", name, "label", "path"], "{table}");
        for rank in [0, 1] {
            let number = &lists[0]["results"][rank][key];
            let number = number.as_str().map_or_else(|| number.to_string(), str::to_owned);
            assert_eq!(rows[2 + rank][2], number, "{table}");
        }
    }
    let out = gallerist(at, "search --gallery run/embeddings.safetensors --query data/Kind-0/sort-0/0.bmp");
    ok(&out);
    let header = text(&out.stdout).lines().nth(1).unwrap().to_owned();
    assert_eq!(header.split_whitespace().collect::<Vec<_>>(), ["rank", "distance", "label", "path"]);
}

#[test]
fn embed_warns_before_other_images_replace_those_that_the_run_was_measured_on() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    let warns = |images: &str, out: &str| {
        let message = ok(&gallerist(at, &format!("embed --run run --images {images} --out {out}")));
        message.contains("has the embeddings of the images that the run was measured on")
    };
    assert!(!warns("data", "run/embeddings.safetensors"), "the same images");
    assert!(!warns("data/Kind-0", "some.safetensors"), "another file");
    assert!(warns("data/Kind-0", "run/embeddings.safetensors"));
    // What the warning says gets them back.
    std::fs::remove_file(at.join("run/report.html")).unwrap();
    ok(&gallerist(at, "train --resume run"));
    assert!(!warns("data", "run/embeddings.safetensors"));
}

#[test]
fn a_run_is_calibrated_and_embeds_and_searches_in_int8() {
    let project = project();
    let at = project.path();
    ok(&gallerist(at, "train run.toml --out run"));
    let embed = "embed --run run --images data --products int8 --out all.safetensors";
    let message = refused(&gallerist(at, embed));
    assert!(message.contains("hint: measure them on images such as those of the gallery"), "{message}");
    let message = ok(&gallerist(at, "model calibrate --run run --images data --count 20"));
    assert!(message.contains("ranges of 20 images written to run/checkpoints/best.ranges.json"), "{message}");
    assert!(message.contains("int8 against f32 on these images: cosine distance 0.0"), "{message}");
    let next = "embed --run run --products int8 --images data --out run/int8.safetensors";
    assert!(message.contains(&format!("next: gallerist {next}\n")), "{message}");
    let measured = std::fs::read(at.join("run/embeddings.safetensors")).unwrap();
    ok(&gallerist(at, next));
    assert_eq!(std::fs::read(at.join("run/embeddings.safetensors")).unwrap(), measured);
    let message = ok(&gallerist(at, embed));
    assert!(message.contains("int8 by ") || message.contains("it has no AVX-512 VNNI"), "{message}");
    let image = "data/Kind-0/sort-0/0.bmp";
    ok(&gallerist(
        at,
        &format!("search --gallery all.safetensors --query {image} --html x.html --products int8"),
    ));
    ok(&gallerist(at, "evaluate --run run --products int8"));
    let about = text(&gallerist(at, "info run/checkpoints/best.ranges.json").stdout);
    assert!(about.starts_with("the ranges of a network for int8"), "{about}");

    // Another checkpoint has other ranges.
    ok(&gallerist(at, "train run.toml --out longer --set train.steps=8"));
    let ranges = at.join("longer/checkpoints/last.ranges.json");
    std::fs::copy(at.join("run/checkpoints/best.ranges.json"), ranges).unwrap();
    let line = "embed --run longer --checkpoint last --images data --products int8 --out x.npy";
    let message = refused(&gallerist(at, line));
    assert!(message.contains("are of another checkpoint"), "{message}");
}
