//! `gallerist train`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gallerist_collective::Collective;
use serde::Serialize;

use crate::cli::args::Train;
use crate::cli::commands::init;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::interrupts::{self, INTERRUPTED};
use crate::cli::metrics_table::{table, warn_of_notes};
use crate::cli::next::{Done, quoted};
use crate::cli::printer::{self, count, grouped};
use crate::cli::terminal::Terminal;
use crate::train::{ResumeOptions, RunConfig, RunDirectory, Timing};
use crate::{Error, InitOptions, Observer, Result, RunMetrics, Trained, TrainingEnd, name_of_images};

/// What `--json` prints.
#[derive(Serialize)]
struct Summary<'a> {
    run: &'a Path,
    finished: bool,
    steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a RunMetrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timing: Option<Timing>,
    broken_images: usize,
    skipped_steps: usize,
}

pub(super) fn run(args: Train) -> CommandResult {
    let ranks = crate::world()?;
    if ranks.rank() != 0 {
        return run_rank(&args, &*ranks);
    }
    let (stop, stepping) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let steps = stepping.clone();
    interrupts::watch(stop.clone(), move || match steps.load(Ordering::Relaxed) {
        true => "\nstopping after this step; Ctrl-C again stops at once",
        false => "\nstopping; Ctrl-C again stops at once",
    });
    let trained = train(&args, &mut Terminal::stepping(stepping), &stop);
    let trained = match trained {
        Ok(trained) => trained,
        Err(Error::Train(stopped @ crate::train::Error::Interrupted { .. })) => {
            let again = if args.resume.is_some() { "" } else { "; nothing was written" };
            printer::note(&format!("{stopped}{again}"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    };
    print(&trained, args.json)?;
    Ok(match trained.end {
        TrainingEnd::Interrupted => ExitCode::from(INTERRUPTED),
        TrainingEnd::Finished | TrainingEnd::WasFinished => {
            ExitCode::from(u8::from(trained.broken_images > 0))
        }
    })
}

/// A rank other than 0, which prints nothing.
fn run_rank(args: &Train, ranks: &dyn Collective) -> CommandResult {
    /// Most errors are found by all ranks: that of rank 0 comes first, and its end ends the others.
    const AFTER_RANK_0: Duration = Duration::from_secs(2);
    let stop = Arc::new(AtomicBool::new(false));
    interrupts::watch(stop.clone(), || "");
    match train(args, &mut (), &stop) {
        Ok(Trained { end: TrainingEnd::Interrupted, .. }) => Ok(ExitCode::from(INTERRUPTED)),
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            std::thread::sleep(AFTER_RANK_0);
            let mut failure = Failure::from(error);
            failure.message = format!("{} (rank {} of {})", failure.message, ranks.rank(), ranks.size());
            Err(failure)
        }
    }
}

fn train(args: &Train, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Trained> {
    match (&args.resume, &args.config) {
        (Some(directory), _) => {
            let (device, force_data, strict) = (args.device, args.force_data, args.strict);
            crate::resume(directory, &ResumeOptions { device, force_data, strict }, observer, stop)
        }
        (None, Some(path)) => {
            let mut config = RunConfig::load(path, &args.set)?;
            config.log.profile |= args.profile;
            config.data.strict |= args.strict;
            config.train.device = args.device.unwrap_or(config.train.device);
            let name = path.file_stem().map_or("run".into(), |stem| stem.to_string_lossy());
            let out = out_of_all(args.out.clone().unwrap_or_else(|| free_directory(&name)))?;
            crate::train(&config, &out, observer, stop)
        }
        (None, None) => train_on_images(args, observer, stop),
    }
}

/// Makes a run file for the images, and trains by it.
fn train_on_images(args: &Train, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<Trained> {
    if crate::world()?.size() > 1 {
        return Err(Error::new(
            "several ranks train by a run file, not by images",
            Some(
                "gallerist init --images IMAGES --out run.toml writes one; then mpirun … gallerist train run.toml",
            ),
        ));
    }
    let out = args.out.clone().unwrap_or_else(|| free_directory(&name_of_images(&args.images)));
    // Before the speed is measured.
    RunDirectory::check(&out)?;
    let absolute = |path: &PathBuf| gallerist_util::text::absolute_or_address(path);
    let steps = args.set.iter().rev().find_map(|set| set.strip_prefix("train.steps=")?.trim().parse().ok());
    let options = InitOptions {
        test: args.given.test.iter().map(absolute).collect(),
        weights: args.given.weights.as_ref().map(absolute),
        preset: args.given.preset,
        minutes: args.given.minutes,
        steps,
        device: args.device.unwrap_or_default(),
    };
    let images: Vec<PathBuf> = args.images.iter().map(absolute).collect();
    let mut made = crate::init(&images, &options, observer, stop)?;
    init::show(&made);
    made.config = RunConfig::parse(&made.toml, "the run file for the images", &args.set)?;
    made.config.log.profile |= args.profile;
    made.config.data.strict |= args.strict;
    made.config.train.device = args.device.unwrap_or(made.config.train.device);
    made.train(&out, observer, stop)
}

/// Prints the summary.
fn print(trained: &Trained, json: bool) -> Result<(), Failure> {
    let (directory, steps) = (&trained.directory, trained.steps);
    let run = directory.path();
    let report = trained.report.as_deref();
    match (trained.end, report) {
        (TrainingEnd::WasFinished, Some(report)) => {
            note_gaps(trained);
            printer::note(&format!(
                "the run {} is finished: all {} are done, and nothing was changed\n  report: {}\n  to train it further, \
                 raise train.steps in {}; to measure it again: gallerist evaluate --run {}",
                run.display(),
                count(steps, "step"),
                report.display(),
                directory.config().display(),
                quoted(&run.to_string_lossy())
            ));
        }
        (TrainingEnd::Finished, Some(report)) => {
            if let (false, Some(metrics)) = (json, &trained.metrics) {
                printer::out(&format!("\n{}\n", table(&metrics.evaluation, &metrics.further)))?;
                warn_of_notes(&metrics.evaluation);
            }
            note_gaps(trained);
            printer::note(&format!("report: {}", report.display()));
        }
        _ => printer::note(&format!("stopped at step {}", grouped(steps))),
    }
    if json {
        let finished = trained.end != TrainingEnd::Interrupted;
        let metrics = trained.metrics.as_ref();
        let timing = Timing::load(&directory.timing())?;
        let (broken_images, skipped_steps) = (trained.broken_images, trained.skipped_steps);
        printer::json(&Summary {
            run,
            finished,
            steps,
            report,
            metrics,
            timing,
            broken_images,
            skipped_steps,
        })?;
    } else {
        match trained.end {
            TrainingEnd::Interrupted => Done::Stopped(run).show(),
            TrainingEnd::Finished | TrainingEnd::WasFinished => Done::Run(directory).show(),
        }
    }
    Ok(())
}

/// Says how many images could not be read, and how many steps were skipped.
fn note_gaps(trained: &Trained) {
    let directory = &trained.directory;
    if trained.broken_images > 0 {
        printer::note(&format!(
            "{} could not be read: {}",
            count(trained.broken_images, "image"),
            directory.broken_images().display()
        ));
    }
    if trained.skipped_steps > 0 {
        printer::warning(&format!(
            "{} skipped, because loss, gradient or weights were not finite: {}",
            count(trained.skipped_steps, "step"),
            directory.nonfinite().display()
        ));
    }
}

/// The directory that rank 0 has chosen.
fn out_of_all(own: PathBuf) -> Result<PathBuf> {
    let ranks = crate::world()?;
    if ranks.size() == 1 {
        return Ok(own);
    }
    let mut name = own.to_string_lossy().into_owned().into_bytes();
    ranks.broadcast(&mut name).map_err(crate::train::Error::from)?;
    Ok(PathBuf::from(String::from_utf8_lossy(&name).into_owned()))
}

/// `runs/NAME`, numbered if that exists.
fn free_directory(name: &str) -> PathBuf {
    let first = Path::new("runs").join(name);
    let numbered = (2..).map(|n| Path::new("runs").join(format!("{name}-{n}")));
    std::iter::once(first).chain(numbered).find(|path| !path.exists()).expect("numbers do not end")
}
