//! From a run file to a run directory with metrics and report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gallerist_collective::Collective;
use gallerist_retrieval::eval::{Evaluation, EvaluationReport};
use gallerist_train::checkpoint::{Checkpoint, Header};
use gallerist_train::log::Step;
use gallerist_train::model::Model;
use gallerist_train::{
    self as training, BrokenImage, CheckpointKind, Phase, ResumeOptions, RunConfig, RunDirectory, RunEnd,
    Timing, Trainer, open_test_of,
};
use gallerist_util::interrupt;

use super::model::set_threads;
use super::test_images::embed_test;
use super::threshold::save_threshold;
use crate::file::write_text;
use crate::observer::working;
use crate::run_metrics::{EarlierTiming, RunMetrics};
use crate::{Observer, Result, pages, write_projector};

/// How a call of [`train`] or [`resume`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingEnd {
    /// All steps are done, and the test images are measured.
    Finished,
    /// Stopped; [`resume`] continues from the last checkpoint.
    Interrupted,
    /// The run was finished before the call, which has changed nothing.
    WasFinished,
}

/// A run after [`train`] or [`resume`].
#[derive(Debug)]
pub struct Trained {
    /// Its directory.
    pub directory: RunDirectory,
    /// How the call ended.
    pub end: TrainingEnd,
    /// Steps taken since the start of the run.
    pub steps: usize,
    /// The metrics of the test images; `None` for an interrupted run, and where the run file names no test images.
    pub metrics: Option<RunMetrics>,
    /// The page with the report; `None` for an interrupted run.
    pub report: Option<PathBuf>,
    /// Images, training, validation and test, that could not be read. `broken_images.json` in the directory lists them.
    pub broken_images: usize,
    /// Steps that were skipped because their loss, gradient or weights were not finite (`train.on_nonfinite`).
    pub skipped_steps: usize,
}

/// Trains a network in a new directory, measures the test images, and writes the report.
///
/// The directory then has the files that [`gallerist::train`](gallerist_train) lists, and `report.html`. When `stop`
/// is raised, a checkpoint is written and the call returns.
///
/// With the feature `mpi`, in a program that an MPI launcher has started several times, the processes train together
/// ([`world`](crate::world)): each makes this call, and rank 0 writes the directory and has the metrics.
///
/// # Example
///
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use gallerist::train::RunConfig;
///
/// let config = RunConfig::load(Path::new("configs/omniglot.toml"), &[])?;
/// let trained = gallerist::train(&config, Path::new("runs/first"), &mut (), &AtomicBool::new(false))?;
/// println!("{:?}", trained.metrics.map(|metrics| metrics.evaluation.metrics));
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// As [`RunConfig::check_registered`], [`Trainer::start_with`] and [`Trainer::run`]; when a file cannot be written.
pub fn train(
    config: &RunConfig,
    directory: &Path,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Trained> {
    train_keeping(config, None, directory, observer, stop)
}

/// [`train`], which keeps the text of the run file, `init_file`, in the directory.
pub(crate) fn train_keeping(
    config: &RunConfig,
    init_file: Option<&str>,
    directory: &Path,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Trained> {
    config.check_registered()?;
    set_threads_of_rank(config.train.threads)?;
    let trainer = Trainer::start_with(config, directory, observer, stop);
    observer.phase_done();
    let trainer = trainer?;
    if let (Some(text), 0) = (init_file, trainer.ranks().rank()) {
        write_text(&trainer.directory().init_file(), text)?;
    }
    finish(trainer, false, observer, stop)
}

/// Continues a run from its last checkpoint.
///
/// # Errors
///
/// As [`Trainer::resume_with`] and [`Trainer::run`]; when a file cannot be written.
pub fn resume(
    directory: &Path,
    options: &ResumeOptions,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Trained> {
    let ranks = world()?;
    let opened = RunDirectory::open_among(directory, &*ranks)?;
    let config = RunConfig::load(&opened.config(), &[])?;
    // Before a checkpoint is read, which already computes.
    set_threads_of_rank(config.train.threads)?;
    if let Some(last) = header_of_finished(&opened, &config)? {
        let metrics = match opened.metrics().exists() {
            true => Some(RunMetrics::load(&opened.metrics())?),
            false => None,
        };
        let report = Some(opened.report());
        let broken_images = BrokenImage::load(&opened.broken_images())?.len();
        ranks.finish();
        return Ok(Trained {
            directory: opened,
            end: TrainingEnd::WasFinished,
            steps: last.step,
            metrics,
            report,
            broken_images,
            skipped_steps: last.skipped.all,
        });
    }
    drop(opened);
    let trainer = Trainer::resume_with(directory, options, observer, stop);
    observer.phase_done();
    finish(trainer?, true, observer, stop)
}

/// The processes that train together: those of the MPI launcher that has started this one, or this one alone.
///
/// # Errors
///
/// As [`gallerist_collective::world`].
pub fn world() -> Result<Arc<dyn Collective>> {
    Ok(gallerist_collective::world().map_err(training::Error::from)?)
}

/// [`set_threads`], where 0 is one per core that this rank has for itself.
fn set_threads_of_rank(threads: usize) -> Result<()> {
    let ranks = world()?;
    let share = threads == 0 && ranks.size() > 1;
    set_threads(if share { ranks.threads().map_err(training::Error::from)? } else { threads });
    Ok(())
}

/// Takes the remaining steps of a trainer that was started or resumed otherwise, such as by a
/// [`TrainerBuilder`](gallerist_train::TrainerBuilder) with images as values; then as [`train`].
///
/// The parts of the run must be registered ([`Registry`](crate::Registry)), because the report and the embeddings of the
/// test images are made from the files of the run.
///
/// # Errors
///
/// As [`RunConfig::check_registered`] and [`Trainer::run`]; when a file cannot be written.
pub fn complete(trainer: Trainer, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Trained> {
    trainer.config().check_registered()?;
    let resumed = trainer.step() > 0;
    finish(trainer, resumed, observer, stop)
}

/// Writes the report of a run, `report.html` in its directory, from the files that it has.
///
/// # Errors
///
/// As [`pages::run_report`], and when the file cannot be written.
pub fn report(run: &RunDirectory) -> Result<PathBuf> {
    let path = run.report();
    pages::run_report(run)?.write(&path)?;
    Ok(path)
}

/// The header of the last checkpoint of a run that is complete: no steps and no measurements are left.
fn header_of_finished(directory: &RunDirectory, config: &RunConfig) -> Result<Option<Header>> {
    let last = directory.checkpoint(CheckpointKind::Last);
    let measured = !config.data.has_test() || directory.metrics().exists();
    if !measured || !directory.report().exists() || !last.exists() {
        return Ok(None);
    }
    let header = Checkpoint::load(&last)?.header;
    Ok((header.step >= config.train.steps).then_some(header))
}

/// Takes the remaining steps, measures the test images and writes the report.
fn finish(
    mut trainer: Trainer,
    resumed: bool,
    observer: &mut dyn Observer,
    stop: &AtomicBool,
) -> Result<Trained> {
    observer.started(&trainer, resumed);
    let mut timed = Timed { inner: observer, steps: 0, seconds: 0.0, waited: 0.0 };
    let outcome = trainer.run(&mut timed, stop)?;
    let pace = Pace {
        waited_share: if timed.seconds > 0.0 { timed.waited / timed.seconds } else { 0.0 },
        images_per_second: match timed.seconds {
            seconds if seconds > 0.0 => (timed.steps * trainer.images_per_step()) as f64 / seconds,
            _ => 0.0,
        },
    };
    observer.trained(&trainer, outcome);
    let (directory, steps) = (trainer.directory().clone(), trainer.step());
    let (broken_images, skipped_steps) = (trainer.broken().len(), trainer.skipped_steps());
    let ranks = trainer.ranks().clone();
    let interrupted = |directory| {
        let end = TrainingEnd::Interrupted;
        let (metrics, report) = (None, None);
        Ok(Trained { directory, end, steps, metrics, report, broken_images, skipped_steps })
    };
    if outcome == RunEnd::Interrupted {
        ranks.finish();
        return interrupted(directory);
    }
    // Several ranks measure together: they finish it.
    let stop = Some(stop).filter(|_| ranks.size() == 1);
    let measured = interrupt::catch(|| measure(&trainer, &mut Stoppable { inner: observer, stop }));
    let Ok(metrics) = measured else {
        observer.phase_done();
        return interrupted(directory);
    };
    let metrics = metrics?;
    if ranks.rank() == 0 {
        let (step, training_seconds) = (trainer.step(), trainer.seconds());
        Timing {
            step,
            training_seconds,
            waited_share: Some(pace.waited_share),
            images_per_second: Some(pace.images_per_second),
        }
        .save(&directory.timing())?;
    }
    ranks.finish();
    if ranks.rank() != 0 {
        let end = TrainingEnd::Finished;
        let (metrics, report) = (None, None);
        return Ok(Trained { directory, end, steps, metrics, report, broken_images: 0, skipped_steps });
    }
    let drawn = interrupt::catch(|| {
        working(&mut Stoppable { inner: observer, stop }, "drawing the report", || report(&directory))
    });
    let Ok(page) = drawn else {
        observer.phase_done();
        return interrupted(directory);
    };
    let page = page?;
    if trainer.config().log.tensorboard && metrics.is_some() {
        write_projector(&directory)?;
    }
    Ok(Trained {
        directory,
        end: TrainingEnd::Finished,
        steps,
        broken_images: metrics.as_ref().map_or(broken_images, |metrics| metrics.broken_images),
        skipped_steps,
        metrics,
        report: Some(page),
    })
}

/// How fast the steps of this call were.
struct Pace {
    waited_share: f64,
    images_per_second: f64,
}

/// Embeds and measures the test images, and writes embeddings and metrics into the run directory.
fn measure(trainer: &Trainer, observer: &mut dyn Observer) -> Result<Option<RunMetrics>> {
    let (config, directory) = (trainer.config(), trainer.directory());
    let Some(test) = open_test_of(directory, config)? else {
        if !config.data.without_test {
            observer.note("no test images (data.test, data.test_fraction, or data.query and data.gallery) to evaluate on");
        }
        return Ok(None);
    };
    let class_overlap = test.queries.overlap_with(trainer.training_set());
    let which = config.evaluation.checkpoint;
    let ranks = trainer.ranks();
    // Rank 0 has written the checkpoint.
    ranks.barrier().map_err(training::Error::from)?;
    let model = Model::open(directory.path(), which)?.on(trainer.device().device()).among(ranks.clone());
    if ranks.rank() == 0
        && let Some(message) = uneven_heads(&model.head_lengths(&test.queries, HEAD_IMAGES)?)
    {
        observer.warning(&message);
    }
    // The place of the directory is no part of the files in it.
    let (measured, broken) = embed_test(&model, test, &config.evaluation, Some(Path::new(".")), observer)?;
    if ranks.rank() != 0 {
        return Ok(None);
    }
    let broken = [trainer.broken(), &broken].concat();
    BrokenImage::save(&broken, &directory.broken_images())?;
    measured.save(directory)?;
    let EvaluationReport { evaluation, mut further } = working(observer, "measuring", || measured.report())?;
    if let Some(found) = &mut further.threshold {
        found.rule.model = Some(model.fingerprint().into());
        let gallery = directory.gallery();
        let file = if gallery.exists() { gallery } else { directory.embeddings() };
        save_threshold(&found.rule, &file)?;
        found.notes.iter().for_each(|note| observer.warning(note));
    }
    let metrics = RunMetrics {
        evaluation,
        further,
        checkpoint: if which == CheckpointKind::Best { "best" } else { "last" }.into(),
        step: model.step(),
        model: model.fingerprint().into(),
        earlier: EarlierTiming::default(),
        broken_images: broken.len(),
        skipped_steps: trainer.skipped_steps(),
        class_overlap,
    };
    metrics.save(&directory.metrics())?;
    Ok(Some(metrics))
}

/// Test images whose outputs are compared between the heads.
const HEAD_IMAGES: usize = 16;

/// What to know about heads of which one has outputs so much longer than another that it decides their concatenation.
fn uneven_heads(lengths: &[(&str, f64)]) -> Option<String> {
    // The shorter of two heads has a tenth of the squared length of their concatenation.
    const MOST: f64 = 3.0;
    let longest = lengths.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let shortest = lengths.iter().map(|&(_, length)| length).fold(f64::INFINITY, f64::min);
    (longest.1 > MOST * shortest).then(|| {
        let each = |(name, length): &(&str, f64)| {
            let digits = if *length < 100.0 { 2 } else { 0 };
            format!("{name} {length:.digits$}")
        };
        let each: Vec<String> = lengths.iter().map(each).collect();
        format!(
            "the outputs of the heads have mean lengths of {}, and their concatenation depends mostly on {}; \
             evaluation.combine = \"normalize_then_concat\" gives all the same weight",
            each.join(", "),
            longest.0
        )
    })
}

/// Forwards everything, and ends the computation when `stop` is raised.
struct Stoppable<'a> {
    inner: &'a mut dyn Observer,
    stop: Option<&'a AtomicBool>,
}

impl Stoppable<'_> {
    fn check(&self) {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            interrupt::throw();
        }
    }
}

impl training::Observer for Stoppable<'_> {
    fn warning(&mut self, message: &str) {
        self.inner.warning(message);
    }

    fn phase(&mut self, phase: &Phase) {
        self.inner.phase(phase);
        self.check();
    }
}

impl Observer for Stoppable<'_> {
    fn note(&mut self, message: &str) {
        self.inner.note(message);
    }

    fn embedding(&mut self, what: &str, done: usize, total: usize) {
        self.inner.embedding(what, done, total);
        self.check();
    }

    fn phase_done(&mut self) {
        self.inner.phase_done();
    }
}

/// Adds up the time of the steps, and forwards everything.
struct Timed<'a> {
    inner: &'a mut dyn Observer,
    steps: usize,
    seconds: f64,
    waited: f64,
}

impl training::Observer for Timed<'_> {
    fn step(&mut self, record: &Step) {
        self.steps += 1;
        self.seconds += record.seconds;
        self.waited += record.waited;
        self.inner.step(record);
    }

    fn validation(&mut self, step: usize, evaluation: &Evaluation, best: bool) {
        self.inner.validation(step, evaluation, best);
    }

    fn warning(&mut self, message: &str) {
        self.inner.warning(message);
    }

    fn phase(&mut self, phase: &Phase) {
        self.inner.phase(phase);
    }
}

#[cfg(test)]
mod tests {
    use super::uneven_heads;

    #[test]
    fn a_head_that_decides_the_concatenation_is_named() {
        assert_eq!(uneven_heads(&[("L", 1.0), ("M", 2.0), ("H", 2.9)]), None);
        assert_eq!(uneven_heads(&[]), None);
        let message = uneven_heads(&[("L", 34.49), ("M", 152.5), ("H", 1554.0)]).unwrap();
        assert!(message.contains("of L 34.49, M 152, H 1554, and"), "{message}");
        assert!(message.contains("mostly on H; evaluation.combine"), "{message}");
    }
}
