//! The search: rounds of trials, and for each round the folds on which its trials are measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gallerist_data::DataRecord;
use gallerist_train::{CheckpointKind, Fold, LogConfig, RunConfig};
use gallerist_util::files;
use gallerist_util::random::Random;

use super::pages;
use super::sampler::{Point, suggest, uniform};
use super::space::{Space, Values, as_number, setting};
use super::store::Store;
use super::study::{Study, Trial, rungs};
use crate::file::{io, write_text};
use crate::jobs::{self, End, Fingerprints, Job, JobOutcome, Numbers};
use crate::{Error, Result};

/// The values of the tuned keys in one trial.
type TrialValues = BTreeMap<String, toml::Value>;

/// What is tuned, where and how.
#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The run file.
    pub run_file: PathBuf,
    /// Settings of the run file, `key=value`.
    pub settings: Vec<String>,
    /// The folder of the search. A search of the same run file and space in it is continued.
    pub directory: PathBuf,
    /// Trials in total, including those that are done already.
    pub trials: usize,
    /// Runs at the same time, each in a separate process; 1 or more.
    pub jobs: usize,
    /// Compute threads of all runs together; 0: one per core.
    pub threads: usize,
    /// The program that is started with `train`; absent: the current one.
    pub program: Option<PathBuf>,
}

impl TuneOptions {
    /// 32 trials of a run file, one run at a time on all cores.
    pub fn new(run_file: impl Into<PathBuf>, directory: impl Into<PathBuf>) -> Self {
        TuneOptions {
            run_file: run_file.into(),
            settings: Vec::new(),
            directory: directory.into(),
            trials: 32,
            jobs: 1,
            threads: 0,
            program: None,
        }
    }
}

/// A search after [`tune`](super::tune()).
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The trials.
    pub study: Study,
    /// Whether all trials are done; otherwise the search was stopped.
    pub finished: bool,
    /// The run file with the best values; `None` if no trial has all folds yet.
    pub best: Option<PathBuf>,
    /// The page with the figures.
    pub page: PathBuf,
}

/// Follows a search. `()` ignores everything.
pub trait TuneObserver {
    /// Runs are about to start; returns what follows them.
    fn jobs<'a>(&'a mut self, _jobs: &[Job]) -> Box<dyn jobs::Observer + 'a> {
        Box::new(())
    }

    /// The trials at `round` were chosen and measured.
    fn round(&mut self, _study: &Study, _round: std::ops::Range<usize>) {}

    /// A message that needs no reaction.
    fn note(&mut self, _message: &str) {}
}

impl TuneObserver for () {}

/// See [`tune`](super::tune()).
pub(super) fn search(
    space: &Space,
    options: &TuneOptions,
    observer: &mut dyn TuneObserver,
    stop: &AtomicBool,
) -> Result<Tuned> {
    let load = |settings: &[String]| {
        let all: Vec<String> =
            space.settings().chain(options.settings.iter().chain(settings).cloned()).collect();
        Ok(RunConfig::load(&options.run_file, &all)?)
    };
    if options.trials == 0 {
        return Err(Error::new("wanted 1 trial or more, found 0", Some("give --trials 32")));
    }
    let origin = format!("for `{}`", options.run_file.display());
    space.validate(&origin)?;
    space.check(&origin, load)?;
    let base = load(&[])?;
    // Faults of the images are reported before anything is written.
    let (images, _) = base.data.open_train()?;
    images.class_fold(0, space.folds, space.seed)?;
    let run_file = base.with_absolute_paths().to_toml();
    let values = toml::Value::Table(run_file.parse().expect("the run file was just written"));
    let choice = |key: &str, value: &toml::Value| {
        let chosen = load(&[setting(key, value)]).ok()?.with_absolute_paths().to_toml();
        own_value(&toml::Value::Table(chosen.parse().ok()?), key).cloned()
    };
    let own = own_choices(space, &values, choice);
    let baseline = completed(space, &values, &own).ok();
    let has_baseline = baseline.is_some();
    let first_trials = first_trials(space, &values, &own, baseline)?;
    let images = DataRecord::of(&[("train", &images)]);
    let weights = Fingerprints::default().of_weights(&base);
    let store = Store::open(&options.directory, &run_file, space, &images, weights)?;
    let mut study = Study {
        name: options.run_file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        directory: options.directory.clone(),
        space: space.clone(),
        trials: store.trials()?,
        has_baseline,
    };
    // A process that was killed, or a full disk, is no fault of the settings: runs that failed are continued.
    study.trials.iter_mut().for_each(|trial| trial.failure = None);
    let mut running = Running { load: &load, options, observer, stop, store: &store };
    let mut first = 0;
    let mut finished = true;
    while finished && first < options.trials {
        let end = options.trials.min(first + space.round);
        choose(&mut study, first..end, &first_trials);
        let round = first..end.min(study.trials.len());
        if round.is_empty() {
            running.observer.note("every combination of the space was tried");
            break;
        }
        if load(&[])? != base {
            return Err(Error::new(
                format!("the run file `{}` was changed during the search", options.run_file.display()),
                Some("undo the change and start the same command again"),
            ));
        }
        store.save(&study.trials)?;
        finished = running.round(&mut study, round.clone())?;
        running.observer.round(&study, round.clone());
        refuse_if_all_failed(&study, first)?;
        first = round.end;
    }
    finish(study, finished, &load)
}

/// Writes what a search has found.
fn finish(study: Study, finished: bool, load: &dyn Fn(&[String]) -> Result<RunConfig>) -> Result<Tuned> {
    let best = match study.best() {
        Some(trial) => {
            let config = load(&settings(trial))?.with_absolute_paths();
            let path = study.directory.join("best.toml");
            write_text(&path, &pages::best_run_file(&study, trial, &config))?;
            Some(path)
        }
        None => None,
    };
    let page = pages::write_all(&study)?;
    Ok(Tuned { study, finished, best, page })
}

/// What the runs of a search share.
struct Running<'a> {
    load: &'a dyn Fn(&[String]) -> Result<RunConfig>,
    options: &'a TuneOptions,
    observer: &'a mut dyn TuneObserver,
    stop: &'a AtomicBool,
    store: &'a Store,
}

impl Running<'_> {
    /// Measures the trials of a round; returns whether it was not stopped.
    fn round(&mut self, study: &mut Study, round: std::ops::Range<usize>) -> Result<bool> {
        let mut going: Vec<usize> = round.clone().collect();
        let mut before = 0;
        for rung in rungs(study.space.folds) {
            if !self.measure(study, &going, before..rung)? {
                return Ok(false);
            }
            going = study.promoted(round.clone(), rung).into_iter().filter(|i| going.contains(i)).collect();
            before = rung;
        }
        Ok(true)
    }

    /// Runs the missing folds of some trials; returns whether all came to an end.
    fn measure(
        &mut self,
        study: &mut Study,
        trials: &[usize],
        folds: std::ops::Range<usize>,
    ) -> Result<bool> {
        let mut wanted = Vec::new();
        let mut runs = Vec::new();
        for &i in trials {
            let trial = &mut study.trials[i];
            let missing = folds.clone().filter(|&fold| fold >= trial.folds.len());
            let missing: Vec<usize> = missing.filter(|_| trial.failure.is_none()).collect();
            for fold in missing {
                match fold_run(trial, fold, &study.space, self.load) {
                    Ok(config) => {
                        let name = format!("trial {} fold {} of {}", i + 1, fold + 1, study.space.folds);
                        runs.push(Job::new(name, config));
                        wanted.push(i);
                    }
                    // Two values that do not fit together.
                    Err(error) => trial.failure = Some(error.to_string()),
                }
            }
        }
        if runs.is_empty() {
            self.store.save(&study.trials)?;
            return Ok(true);
        }
        let pool = jobs::Options {
            store: self.options.directory.join("runs"),
            jobs: self.options.jobs,
            threads: self.options.threads,
            program: self.options.program.clone(),
        };
        let outcomes = jobs::run(&runs, &pool, &mut *self.observer.jobs(&runs), self.stop)?;
        let mut stopped = false;
        for ((&i, job), outcome) in wanted.iter().zip(&runs).zip(&outcomes) {
            // A fold after a stopped one would be out of order; its run is done and only read the next time.
            let in_order =
                job.config.validation.fold.is_some_and(|fold| fold.number == study.trials[i].folds.len() + 1);
            match &outcome.end {
                End::Stopped => stopped = true,
                _ if !in_order => {}
                End::Failed(reason) => study.trials[i].failure = Some(reason.clone()),
                End::Done(numbers) => take(&mut study.trials[i], numbers, job, outcome),
            }
        }
        for outcome in outcomes.iter().filter(|outcome| outcome.numbers().is_some()) {
            // The numbers are kept. The weights of the many trials are deleted because nothing uses them: before the trials are
            // saved, after which a search that continues does not look at the run again.
            let checkpoints = outcome.directory.join("checkpoints");
            if checkpoints.exists() {
                std::fs::remove_dir_all(&checkpoints)
                    .and_then(|()| files::sync_folder(&outcome.directory))
                    .map_err(|e| io("remove", &checkpoints, e))?;
            }
        }
        self.store.save(&study.trials)?;
        Ok(!stopped)
    }
}

/// Adds a fold to a trial.
fn take(trial: &mut Trial, numbers: &Numbers, job: &Job, outcome: &JobOutcome) {
    let validation = &job.config.validation;
    let of = match job.config.evaluation.checkpoint {
        CheckpointKind::Best => &numbers.best_validation,
        CheckpointKind::Last => &numbers.last_validation,
    };
    match of.get(&validation.metric) {
        Some(value) => {
            trial.folds.push(*value);
            trial.seconds += numbers.seconds_per_step.unwrap_or(0.0) * numbers.steps as f64;
        }
        None => {
            let log = outcome.directory.join("log.jsonl");
            trial.failure = Some(format!("no validation with {} in {}", validation.metric, log.display()));
        }
    }
}

/// Chooses the trials of a round that are not there yet; fewer if the space has no further combination.
fn choose(study: &mut Study, round: std::ops::Range<usize>, first_trials: &[TrialValues]) {
    let told = study.told(round.start.min(study.trials.len()), Some(f64::NEG_INFINITY));
    let dimensions = study.dimensions();
    for i in study.trials.len().max(round.start)..round.end {
        if let Some(values) = first_trials.get(i) {
            study.trials.push(Trial { number: i + 1, values: values.clone(), ..Trial::default() });
            continue;
        }
        let mut random = Random::new(study.space.seed, "tune", 0, i as u64);
        let mut candidates = Vec::new();
        if round.start >= study.space.random_trials() {
            candidates = suggest(&dimensions, &told, &mut random);
        }
        let Some(values) = first_new(study, candidates, &mut random) else { return };
        study.trials.push(Trial { number: i + 1, values, ..Trial::default() });
    }
}

/// Points that are drawn for a trial from a space with a range, before no combination is left.
const MOST_DRAWS: usize = 10_000;

/// The values of the first point that no trial has, of the candidates and then of points drawn evenly.
fn first_new(study: &Study, candidates: Vec<Point>, random: &mut Random) -> Option<TrialValues> {
    let dimensions = study.dimensions();
    let counts: Option<Vec<usize>> = study.space.parameters().iter().map(|(_, of)| of.count()).collect();
    let combinations =
        counts.map(|counts| counts.iter().fold(1, |all: usize, count| all.saturating_mul(*count)));
    if combinations.is_some_and(|combinations| study.trials.len() >= combinations) {
        return None;
    }
    // The values of a range are rounded to four digits: a narrow one can be used up, too.
    let draws = if combinations.is_some() { usize::MAX } else { MOST_DRAWS };
    let drawn = std::iter::from_fn(|| Some(uniform(&dimensions, random))).take(draws);
    (candidates.into_iter().chain(drawn))
        .map(|point| study.values(&point))
        .find(|values| study.trials.iter().all(|trial| trial.values != *values))
}

/// The trials that nothing chooses: the run file itself, where its values are in the space (`baseline`), and those that the
/// space file gives, each once. `own` are the choices that the run file has.
fn first_trials(
    space: &Space,
    run_file: &toml::Value,
    own: &TrialValues,
    baseline: Option<TrialValues>,
) -> Result<Vec<TrialValues>> {
    let mut trials = Vec::from_iter(baseline);
    for (i, given) in space.trials.iter().enumerate() {
        let given = own.clone().into_iter().chain(given.clone()).collect();
        let values = completed(space, run_file, &given).map_err(|key| {
            Error::new(
                format!(
                    "[[trial]] {} has no `{key}`, and the run file has no value of it in its bounds",
                    i + 1
                ),
                Some(&format!("add `{key}` to it")),
            )
        })?;
        if !trials.contains(&values) {
            trials.push(values);
        }
    }
    Ok(trials)
}

/// A value for every key of the space: the given one, else that of the run file, in the form that the space gives them.
/// The error is a key that the run file does not have, or not in its bounds.
fn completed(space: &Space, run_file: &toml::Value, given: &TrialValues) -> Result<TrialValues, String> {
    let mut values = TrialValues::new();
    for (key, bounds) in space.parameters() {
        let value = given.get(key).or_else(|| own_value(run_file, key)).ok_or(key)?;
        let exact = bounds.value(bounds.coordinate(value).ok_or(key)?);
        let same = match as_number(value) {
            Some(number) => as_number(&exact) == Some(number),
            None => *value == exact,
        };
        values.insert(key.to_owned(), if same { exact } else { value.clone() });
    }
    Ok(values)
}

/// Of each tuned section the choice that the run file has. A section of a run file has all its keys: so must the choice,
/// which `filled_in` says. Keys of the section that are tuned themselves do not count.
fn own_choices(
    space: &Space,
    run_file: &toml::Value,
    filled_in: impl Fn(&str, &toml::Value) -> Option<toml::Value>,
) -> TrialValues {
    let mut found = TrialValues::new();
    for (key, values) in space.parameters() {
        let Values::Choices(choices) = values else { continue };
        let inner: Vec<&str> =
            space.space.keys().filter_map(|tuned| tuned.strip_prefix(key)?.strip_prefix('.')).collect();
        let rest = |section: Option<toml::Value>| {
            let mut section = section?;
            inner.iter().for_each(|key| remove(&mut section, key));
            Some(section)
        };
        let own = rest(own_value(run_file, key).cloned());
        let mut tables = choices.into_iter().filter(toml::Value::is_table);
        if let Some(choice) = tables.find(|choice| own.is_some() && rest(filled_in(key, choice)) == own) {
            found.insert(key.to_owned(), choice);
        }
    }
    found
}

/// Removes a key with dots.
fn remove(section: &mut toml::Value, key: &str) {
    let (inner, last) = key.rsplit_once('.').map_or((None, key), |(inner, last)| (Some(inner), last));
    let parts = inner.into_iter().flat_map(|inner| inner.split('.'));
    if let Some(toml::Value::Table(table)) =
        parts.into_iter().try_fold(section, |value, part| value.get_mut(part))
    {
        table.remove(last);
    }
}

/// The value that a run file has for a key with dots.
fn own_value<'a>(run_file: &'a toml::Value, key: &str) -> Option<&'a toml::Value> {
    key.split('.').try_fold(run_file, |value, part| match value {
        toml::Value::Table(inner) => inner.get(part),
        toml::Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The settings of a trial.
fn settings(trial: &Trial) -> Vec<String> {
    trial.values.iter().map(|(key, value)| setting(key, value)).collect()
}

/// The run file of one fold of a trial. It names no test images, so a search cannot open them.
fn fold_run(
    trial: &Trial,
    fold: usize,
    space: &Space,
    load: &dyn Fn(&[String]) -> Result<RunConfig>,
) -> Result<RunConfig> {
    let mut config = load(&settings(trial))?;
    // A run that is not validated is embedded with its last weights.
    if config.validation.fraction == 0.0 {
        config.evaluation.checkpoint = CheckpointKind::Last;
    }
    config.validation.fold = Some(Fold { number: fold + 1, of: space.folds });
    config.validation.seed = space.seed;
    config.validation.metric.clone_from(&space.metric);
    let data = &mut config.data;
    for images in [&mut data.test, &mut data.query, &mut data.gallery] {
        images.clear();
    }
    (data.test_split, data.query_split, data.gallery_split) = (None, None, None);
    // The classes that `data.test_fraction` holds out must not train either.
    data.without_test = data.test_fraction.is_some();
    config.log = LogConfig::default();
    config.validate()?;
    Ok(config)
}

/// Ends a search in which nothing works.
fn refuse_if_all_failed(study: &Study, first: usize) -> Result<()> {
    let Some(reason) = study.trials.iter().find_map(|trial| trial.failure.as_ref()).filter(|_| first == 0)
    else {
        return Ok(());
    };
    if study.trials.iter().any(|trial| trial.failure.is_none()) {
        return Ok(());
    }
    let reason = reason.replace('\n', "\n  ");
    let directory: &Path = &study.directory;
    Err(Error::new(
        format!("every trial of the first round failed; the first of them:\n  {reason}"),
        Some(&format!(
            "correct the run file or the bounds, and remove {} or give another --out",
            directory.display()
        )),
    ))
}
