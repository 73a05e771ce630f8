//! The view of many jobs on stderr: a bar for each that runs, and a line for each that ended.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{MultiProgress, ProgressBar};

use super::printer::{self, duration};
use super::progress::{JOB, SUMMARY, bar};
use crate::jobs::{Job, Observer, State};

/// Shows the states of jobs. What is not a terminal gets the lines and no bars.
pub(crate) struct JobsView {
    jobs: Vec<Shown>,
    bars: MultiProgress,
    summary: ProgressBar,
    /// Jobs at the same time.
    parallel: usize,
    terminal: bool,
}

struct Shown {
    name: String,
    state: State,
    bar: Option<ProgressBar>,
    begun: Option<Instant>,
    /// Seconds of a job that was run by this call.
    took: Option<f64>,
}

impl JobsView {
    /// A view of jobs, of which `parallel` run at once.
    pub(crate) fn new(jobs: &[Job], parallel: usize) -> Self {
        let shown = |job: &Job| Shown {
            name: job.name.clone(),
            state: State::Waiting,
            bar: None,
            begun: None,
            took: None,
        };
        let bars = MultiProgress::new();
        let summary = bars.add(bar(jobs.len(), SUMMARY));
        JobsView {
            jobs: jobs.iter().map(shown).collect(),
            bars,
            summary,
            parallel: parallel.max(1),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn count(&self, of: fn(&State) -> bool) -> usize {
        self.jobs.iter().filter(|job| of(&job.state)).count()
    }

    /// Seconds until all jobs are done: those of the running ones, and for each waiting one the mean of what the others
    /// took.
    fn seconds_left(&self) -> Option<f64> {
        let took: Vec<f64> = self.jobs.iter().filter_map(|job| job.took).collect();
        let running = self.jobs.iter().filter_map(|job| match job.state {
            State::Running { seconds_left, .. } => seconds_left,
            _ => None,
        });
        let begun = running.clone().count();
        let waiting = self.count(|state| *state == State::Waiting) as f64;
        let mean = match took.is_empty() {
            false => took.iter().sum::<f64>() / took.len() as f64,
            // Before the first end: what those that run will have taken.
            true if begun > 0 => {
                let so_far =
                    self.jobs.iter().filter_map(|job| job.begun).map(|begun| begun.elapsed().as_secs_f64());
                (so_far.sum::<f64>() + running.clone().sum::<f64>()) / begun as f64
            }
            true => return None,
        };
        Some((running.sum::<f64>() + waiting * mean) / self.parallel as f64)
    }

    fn summarize(&self) {
        let ended = self.count(|state| matches!(state, State::Done | State::Failed(_)));
        let failed = self.count(|state| matches!(state, State::Failed(_)));
        let left = self
            .seconds_left()
            .map_or(String::new(), |seconds| format!(", about {} left", duration(seconds)));
        let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        self.summary.set_message(format!("{ended} of {} done{failed}{left}", self.jobs.len()));
        self.summary.set_position(ended as u64);
    }

    fn line(&self, text: &str) {
        self.bars.suspend(|| printer::note(&text));
    }
}

impl Observer for JobsView {
    fn state(&mut self, job: usize, state: &State) {
        let (bars, summary, terminal) = (&self.bars, &self.summary, self.terminal);
        let shown = &mut self.jobs[job];
        let before = std::mem::replace(&mut shown.state, state.clone());
        let mut line = None;
        match state {
            State::Waiting => return,
            State::Running { step, steps, seconds_left } => {
                shown.begun.get_or_insert_with(Instant::now);
                let name = &shown.name;
                let bar = shown.bar.get_or_insert_with(|| {
                    let bar = bars.insert_before(summary, bar(*steps, JOB));
                    bar.set_prefix(printer::shown(name).into_owned());
                    bar
                });
                bar.set_position(*step as u64);
                bar.set_message(match seconds_left {
                    _ if step == steps => "measuring".into(),
                    Some(seconds) => format!("{} left", duration(*seconds)),
                    None => "starting".into(),
                });
                if !terminal && before == State::Waiting {
                    line = Some(format!("started: {name}"));
                }
            }
            State::Elsewhere => line = Some(format!("waiting: {} (another process works on it)", shown.name)),
            State::Done => {
                shown.took = shown.begun.map(|begun| begun.elapsed().as_secs_f64());
                line = Some(match shown.took {
                    Some(seconds) => format!("done: {} ({})", shown.name, duration(seconds)),
                    None => format!("was done: {}", shown.name),
                });
            }
            State::Failed(reason) => {
                line = Some(format!("failed: {}\n  {}", shown.name, reason.replace('\n', "\n  ")));
            }
            State::Stopped => line = Some(format!("stopped: {}", shown.name)),
        }
        if matches!(state, State::Done | State::Failed(_) | State::Stopped)
            && let Some(bar) = shown.bar.take()
        {
            bar.finish_and_clear();
            bars.remove(&bar);
        }
        if let Some(line) = line {
            self.line(&line);
        }
        self.summarize();
    }
}

impl Drop for JobsView {
    fn drop(&mut self) {
        self.summary.finish_and_clear();
    }
}
