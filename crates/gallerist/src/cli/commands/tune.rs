//! `gallerist tune`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cli::args::Tune;
use crate::cli::failure::CommandResult;
use crate::cli::interrupts::{self, INTERRUPTED};
use crate::cli::jobs::JobsView;
use crate::cli::next::Done;
use crate::cli::printer::{self, Table};
use crate::jobs::{self, Job};
use crate::tune::{Space, Study, TuneObserver, TuneOptions, Tuned};

/// Trials that the terminal shows.
const SHOWN: usize = 10;

pub(super) fn run(args: Tune) -> CommandResult {
    let mut space = Space::load(&args.space)?;
    space.folds = args.folds.unwrap_or(space.folds);
    space.seed = args.seed.unwrap_or(space.seed);
    space.metric = args.metric.unwrap_or(space.metric);
    let options = TuneOptions {
        settings: args.set,
        trials: args.trials,
        jobs: args.jobs.max(1),
        threads: args.threads,
        ..TuneOptions::new(&args.run_file, args.out.unwrap_or_else(|| directory(&args.run_file)))
    };
    let stop = Arc::new(AtomicBool::new(false));
    interrupts::watch(stop.clone(), || "\nstopping after this step of each run; Ctrl-C again stops at once");
    let tuned = crate::tune(&space, &options, &mut View { parallel: options.jobs }, &stop)?;
    print(&tuned, args.json)?;
    let has_failures = tuned.study.trials.iter().any(|trial| trial.failure.is_some());
    Ok(match tuned.finished {
        false => ExitCode::from(INTERRUPTED),
        true => ExitCode::from(u8::from(has_failures)),
    })
}

fn print(tuned: &Tuned, json: bool) -> std::io::Result<()> {
    let study = &tuned.study;
    if json {
        printer::json(&study.summary())?;
    } else {
        let header = study.header();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut table = Table::new(&header, &vec![true; header.len()]);
        study.rows().into_iter().take(SHOWN).for_each(|row| table.row(row));
        printer::out(&format!("\n{table}\n"))?;
        if study.trials.len() > SHOWN {
            printer::note(&format!("the best {SHOWN} of {} trials; all: trials.md", study.trials.len()));
        }
    }
    for of in study.importance() {
        let than = if of.explained > of.chance { "more" } else { "not more" };
        printer::note(&format!(
            "{} explains {:.0} % of the differences between trials, {than} than by chance ({:.0} %)",
            of.parameter,
            100.0 * of.explained,
            100.0 * of.chance
        ));
    }
    if let Some(best) = &tuned.best {
        printer::note(&format!("best run file: {}", best.display()));
    }
    printer::note(&format!("page: {}", tuned.page.display()));
    if !tuned.finished {
        printer::note(&"stopped; the same command continues");
    } else if let (Some(best), false) = (&tuned.best, json) {
        Done::RunFile(best).show();
    }
    Ok(())
}

/// `runs/NAME-tune` of the run file. The same command continues there.
fn directory(run_file: &Path) -> PathBuf {
    let name = run_file.file_stem().map_or("run".into(), |stem| stem.to_string_lossy().into_owned());
    Path::new("runs").join(format!("{name}-tune"))
}

/// Shows the runs, and a line for each round.
struct View {
    parallel: usize,
}

impl TuneObserver for View {
    fn jobs<'a>(&'a mut self, jobs: &[Job]) -> Box<dyn jobs::Observer + 'a> {
        Box::new(JobsView::new(jobs, self.parallel))
    }

    fn round(&mut self, study: &Study, round: std::ops::Range<usize>) {
        for trial in &study.trials[round] {
            let mean = trial.mean().map_or("no result".into(), |mean| {
                format!(
                    "{} {mean:.4}, {} of {} folds",
                    study.space.metric,
                    trial.folds.len(),
                    study.space.folds
                )
            });
            let failed = if trial.failure.is_some() { ", failed" } else { "" };
            printer::note(&format!("trial {}: {mean}{failed}: {}", trial.number, trial.described()));
        }
        if let Some(best) = study.best() {
            let mean = best.mean().unwrap_or_default();
            printer::note(&format!("best so far: trial {}, {} {mean:.4}", best.number, study.space.metric));
        }
    }

    fn note(&mut self, message: &str) {
        printer::note(&message);
    }
}
