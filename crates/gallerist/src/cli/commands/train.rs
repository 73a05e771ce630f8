//! `gallerist train`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checkpoint::Checkpoint;
use crate::pages::{self, RunMetrics};
use crate::retrieval::EmbeddingSet;
use crate::retrieval::eval::{Evaluation, Report};
use crate::train::log::Step;
use crate::train::{Observer, Outcome as Ended, Phase, Profile, RunConfig, RunDirectory, Trainer, Which};
use crate::weights::Preprocessing;
use indicatif::ProgressBar;
use serde::Serialize;

use super::evaluate::{embed_test, table, warn_of_notes};
use super::progress::Doing;
use super::{Failure, Outcome, bar, embed_with_bar, model_of, working};
use crate::cli::args::Train;
use crate::cli::printer::{self, count, duration, grouped};

/// What a run that was stopped by Ctrl-C ends with.
const INTERRUPTED: u8 = 130;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary<'a> {
    run: &'a Path,
    finished: bool,
    steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a RunMetrics>,
}

pub(super) fn run(args: Train) -> Outcome {
    let (stop, stepping) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    watch_for_interrupts(stop.clone(), stepping.clone());
    let mut starting = Starting::default();
    let started = match (&args.resume, &args.config) {
        (Some(directory), _) => {
            let kept = RunDirectory::open_to_write(directory)?;
            let config = RunConfig::load(&kept.config(), &[])?;
            if let Some(done) = finished(&kept, &config, args.json)? {
                return Ok(done);
            }
            drop(kept);
            super::set_threads(config.train.threads);
            Trainer::resume_with(directory, args.device, &mut starting, &stop)
        }
        (None, Some(path)) => {
            let mut config = RunConfig::load(path, &args.set)?;
            config.log.profile |= args.profile;
            config.train.device = args.device.unwrap_or(config.train.device);
            super::set_threads(config.train.threads);
            let out = args.out.clone().unwrap_or_else(|| free_directory(path));
            Trainer::start_with(&config, &out, &mut starting, &stop)
        }
        (None, None) => unreachable!("clap asks for one of them"),
    };
    drop(starting);
    let mut trainer = match started {
        Ok(trainer) => trainer,
        Err(stopped @ crate::Error::Interrupted { .. }) => {
            let again = if args.resume.is_some() { "" } else { "; nothing was written" };
            printer::note(&format!("{stopped}{again}"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(directory) = &args.resume {
        if trainer.is_finished() {
            let all = count(trainer.step(), "step");
            printer::note(&format!("all {all} of {} are done; measuring what is left", directory.display()));
        } else {
            printer::note(&format!(
                "going on with {} at step {}",
                directory.display(),
                grouped(trainer.step())
            ));
        }
        if let Some(before) = trainer.moved_from() {
            printer::note(&format!(
                "trained on {before} so far: from here on the numbers differ in their last bits from those there"
            ));
        }
    }
    introduce(&trainer);
    stepping.store(true, Ordering::Relaxed);
    let mut shown = Shown::new(&trainer);
    let ended = trainer.run(&mut shown, &stop);
    shown.bar.finish_and_clear();
    let directory = trainer.directory().clone();
    if ended? == Ended::Interrupted {
        printer::note(&format!(
            "stopped at step {}; go on with: gallerist train --resume {}",
            grouped(trainer.step()),
            directory.path().display()
        ));
        if args.json {
            printer::json(&Summary {
                run: directory.path(),
                finished: false,
                steps: trainer.step(),
                report: None,
                metrics: None,
            })?;
        }
        return Ok(ExitCode::from(INTERRUPTED));
    }
    printer::note(&format!("trained for {}", duration(trainer.seconds())));
    if let Some(profile) = trainer.profile() {
        print_profile(profile, &directory);
    }

    let metrics = evaluate(&trainer, &shown)?;
    let report = directory.report();
    working("drawing the report", || pages::run_report(&directory))?.write(&report)?;
    if trainer.config().log.tensorboard && metrics.is_some() {
        crate::write_projector(&directory)?;
    }
    if let (false, Some(metrics)) = (args.json, &metrics) {
        printer::out(&format!("\n{}\n", table(&metrics.evaluation, &metrics.further)))?;
        warn_of_notes(&metrics.evaluation);
    }
    printer::note(&format!("report: {}", report.display()));
    if args.json {
        let summary = Summary {
            run: directory.path(),
            finished: true,
            steps: trainer.step(),
            report: Some(report),
            metrics: metrics.as_ref(),
        };
        printer::json(&summary)?;
    }
    let broken = metrics.map_or(trainer.broken().len(), |m| m.broken_images);
    Ok(ExitCode::from(u8::from(broken > 0)))
}

/// Says so where a run has nothing left to do, neither steps nor its measurements.
fn finished(directory: &RunDirectory, config: &RunConfig, json: bool) -> Result<Option<ExitCode>, Failure> {
    let last = directory.checkpoint(Which::Last);
    let has_test = !config.data.test.is_empty() || !config.data.query.is_empty();
    let measured = !has_test || directory.metrics().exists();
    if !measured || !directory.report().exists() || !last.exists() {
        return Ok(None);
    }
    let steps = Checkpoint::load(&last)?.header.step;
    if steps < config.train.steps {
        return Ok(None);
    }
    let (run, report) = (directory.path(), directory.report());
    printer::note(&format!(
        "the run {} is finished: all {} are done, and nothing was changed\n  report: {}\n  to train it further, raise \
         train.steps in {}; to measure it again: gallerist evaluate --run {}",
        run.display(),
        count(steps, "step"),
        report.display(),
        directory.config().display(),
        run.display()
    ));
    if json {
        let metrics = match directory.metrics().exists() {
            true => Some(RunMetrics::load(&directory.metrics())?),
            false => None,
        };
        let (report, metrics) = (Some(report), metrics.as_ref());
        printer::json(&Summary { run, finished: true, steps, report, metrics })?;
    }
    Ok(Some(ExitCode::SUCCESS))
}

fn print_profile(profile: &Profile, directory: &RunDirectory) {
    let share = |seconds: f64| format!("{:.1} %", 100.0 * seconds / profile.seconds);
    let operations: Vec<String> = profile
        .by_operation()
        .into_iter()
        .take(5)
        .map(|(name, seconds)| format!("{name} {}", share(seconds)))
        .collect();
    printer::note(&format!(
        "of {}: {} in the network's kernels ({}), {} waiting for images; all of it: {}",
        duration(profile.seconds),
        share(profile.in_kernels),
        operations.join(", "),
        share(profile.waited),
        directory.profile().display()
    ));
}

/// Ctrl-C (or a termination signal) raises the flag; a second one ends the program at once.
fn watch_for_interrupts(stop: Arc<AtomicBool>, stepping: Arc<AtomicBool>) {
    let handler = move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        printer::note(match stepping.load(Ordering::Relaxed) {
            true => &"\nstopping after this step; Ctrl-C again stops at once",
            false => &"\nstopping; Ctrl-C again stops at once",
        });
    };
    // Without the handler an interrupt loses the steps since the last checkpoint, nothing more.
    if let Err(e) = ctrlc::set_handler(handler) {
        printer::warning(&format!("Ctrl-C will stop without a checkpoint: {e}"));
    }
}

/// `runs/NAME` of the run file, numbered where that is taken.
fn free_directory(config: &Path) -> PathBuf {
    let name = config.file_stem().map_or("run".into(), |stem| stem.to_string_lossy().into_owned());
    let first = Path::new("runs").join(&name);
    let numbered = (2..).map(|n| Path::new("runs").join(format!("{name}-{n}")));
    std::iter::once(first).chain(numbered).find(|path| !path.exists()).expect("numbers do not end")
}

fn introduce(trainer: &Trainer) {
    let (config, set) = (trainer.config(), trainer.training_set());
    printer::note(&format!(
        "training on {} of {}; {} with {} parameters, loss {}, {} steps of {} images",
        count(set.len(), "image"),
        count(set.class_names().len(), "class"),
        config.network.name(),
        grouped(trainer.parameter_count()),
        config.loss,
        grouped(config.train.steps),
        trainer.images_per_step(),
    ));
    super::report_notes(set);
    trainer.test_notes().iter().for_each(|note| printer::warning(note));
    if let Some(report) = trainer.pretrained() {
        printer::note(&format!("weights: {report}"));
        printer::note(&format!("images: {}", Preprocessing::from(&config.image)));
    }
    if trainer.sampler().left_out_classes() > 0 {
        printer::warning(&format!(
            "{} with too few images for a batch take no part (sampler.small_classes = \"repeat\" lets them)",
            count(trainer.sampler().left_out_classes(), "class")
        ));
    }
    let device = trainer.device();
    let precision = trainer.config().train.precision.described(device).map(|text| format!(", {text}"));
    printer::note(&format!("device: {device}{}", precision.unwrap_or_default()));
    for reason in trainer.device().passed_over() {
        printer::note(&format!("  not {reason}"));
    }
    if let Some(seconds) = trainer.head_seconds() {
        printer::note(&format!("the first head took {} (network.head_init)", duration(seconds)));
    }
    printer::note(&format!("run directory: {}", trainer.directory().path().display()));
}

/// What a run does before its first step.
#[derive(Default)]
struct Starting {
    doing: Doing,
}

impl Observer for Starting {
    fn phase(&mut self, phase: &Phase) {
        self.doing.show(phase);
    }

    fn warning(&mut self, message: &str) {
        self.doing.suspend(|| printer::warning(&message));
    }
}

/// What does not fit is cut off the message.
pub(super) const STEPS: &str = "{bar:12} {pos}/{len} {eta} left  {wide_msg}";

/// The progress bar, and what the summary needs of the steps.
struct Shown {
    bar: ProgressBar,
    batch_size: usize,
    seconds: f64,
    waited: f64,
    images: usize,
    rate: Option<f64>,
    validation: String,
    /// What chooses the checkpoint.
    metric: String,
}

impl Shown {
    fn new(trainer: &Trainer) -> Self {
        let bar = bar(trainer.config().train.steps, STEPS);
        bar.set_position(trainer.step() as u64);
        bar.reset_eta();
        Shown {
            bar,
            batch_size: trainer.images_per_step(),
            seconds: 0.0,
            waited: 0.0,
            images: 0,
            rate: None,
            validation: String::new(),
            metric: trainer.config().validation.metric.clone(),
        }
    }

    fn waited_share(&self) -> f64 {
        if self.seconds > 0.0 { self.waited / self.seconds } else { 0.0 }
    }

    fn images_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.images as f64 / self.seconds } else { 0.0 }
    }
}

impl Observer for Shown {
    fn step(&mut self, record: &Step) {
        self.seconds += record.seconds;
        self.waited += record.waited;
        self.images += self.batch_size;
        let now = self.batch_size as f64 / record.seconds.max(1e-9);
        let rate = self.rate.map_or(now, |old| 0.95 * old + 0.05 * now);
        self.rate = Some(rate);
        self.bar.set_message(format!(
            "loss {:.3}{}  {} img/s  pos {:.0} %  neg {:.0} %",
            record.loss,
            self.validation,
            grouped(rate as usize),
            100.0 * record.positive_share,
            100.0 * record.negative_share
        ));
        self.bar.set_position(record.step as u64);
    }

    fn validation(&mut self, _step: usize, evaluation: &Evaluation, _best: bool) {
        self.validation = evaluation
            .metrics
            .get(&self.metric)
            .map_or(String::new(), |v| format!("  val {} {v:.3}", self.metric));
    }

    fn phase(&mut self, phase: &Phase) {
        let far = if phase.total > 0 {
            format!(" {}/{}", grouped(phase.done), grouped(phase.total))
        } else {
            String::new()
        };
        self.bar.set_message(format!("{}{far}", phase.what));
    }

    fn warning(&mut self, message: &str) {
        self.bar.suspend(|| printer::warning(&message));
    }
}

/// Embeds and measures the test images, and writes what belongs into the run directory.
fn evaluate(trainer: &Trainer, shown: &Shown) -> Result<Option<RunMetrics>, Failure> {
    let (config, directory) = (trainer.config(), trainer.directory());
    let Some(test) = pages::open_test(config)? else {
        printer::note(&"no test images (data.test, or data.query and data.gallery) to evaluate on");
        return Ok(None);
    };
    let class_overlap = test.queries.overlap_with(trainer.training_set());
    let which = config.evaluation.checkpoint;
    let model = model_of(directory.path(), which)?.on(trainer.device().device());
    let run = std::path::absolute(directory.path()).unwrap_or(directory.path().into());
    let mut broken = 0;
    let mut embed = |images, what: &str| -> Result<EmbeddingSet, Failure> {
        let mut embedded = embed_with_bar(&model, images, what)?;
        broken += embedded.broken.len();
        embedded.set.run = Some(run.to_string_lossy().into_owned());
        Ok(embedded.set)
    };
    let measured = embed_test(test, &config.evaluation, &mut embed)?;
    measured.save(directory)?;
    let Report { evaluation, further } = working("measuring", || measured.report())?;
    let metrics = RunMetrics {
        evaluation,
        further,
        checkpoint: if which == Which::Best { "best" } else { "last" }.into(),
        step: model.step(),
        model: model.fingerprint().into(),
        training_seconds: trainer.seconds(),
        waited_share: shown.waited_share(),
        images_per_second: shown.images_per_second(),
        broken_images: broken + trainer.broken().len(),
        class_overlap,
    };
    metrics.save(&directory.metrics())?;
    Ok(Some(metrics))
}
