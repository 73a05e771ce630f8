//! The files that a search writes for people: the best run file, tables, the page.

use std::path::PathBuf;

use gallerist_report::figure::{Bar, Figure, Mark, MarkKind, Scatter, bars, scatter};
use gallerist_report::{StudyPage, StudySection, StudyTable};
use gallerist_train::RunConfig;

use super::space::{Values, as_number, inline, plain};
use super::study::{Study, Trial};
use crate::Result;
use crate::file::write_text;

/// The run file with the values of a trial.
pub(super) fn best_run_file(study: &Study, trial: &Trial, config: &RunConfig) -> String {
    let values: Vec<String> =
        trial.values.iter().map(|(key, value)| format!("#   {key} = {}\n", inline(value))).collect();
    format!(
        "# Written by `gallerist tune`: trial {} of {}, mean {} {:.4} over {} folds of the training classes.\n{}\n{}",
        trial.number,
        study.trials.len(),
        study.space.metric,
        trial.mean().unwrap_or(f64::NAN),
        study.space.folds,
        values.concat(),
        config.to_toml()
    )
}

/// Writes the tables and the page; returns the path of the page.
pub(super) fn write_all(study: &Study) -> Result<PathBuf> {
    let file = |name: &str| study.directory.join(name);
    write_text(&file("trials.md"), &study.to_markdown())?;
    write_text(&file("trials.csv"), &study.to_csv())?;
    let json = serde_json::to_string_pretty(&study.summary()).expect("plain data");
    write_text(&file("result.json"), &(json + "\n"))?;
    let path = file("tune.html");
    page(study).write(&path)?;
    Ok(path)
}

/// The page of a search: the metric by trial, the importance of each key, its slices, the trials.
pub fn page(study: &Study) -> StudyPage {
    let metric = &study.space.metric;
    let count = |state: &str| study.trials.iter().filter(|trial| study.state(trial) == state).count();
    let mut summary = match study.best() {
        Some(best) => format!(
            "Best: trial {} with a mean {metric} of {:.4} over {} folds of the training classes.",
            best.number,
            best.mean().unwrap_or(f64::NAN),
            study.space.folds
        ),
        None => "No trial has all folds yet.".to_owned(),
    };
    if let Some(mean) = study.baseline().and_then(Trial::mean) {
        summary += &format!(" The run file itself: {mean:.4}.");
    }
    let failures = study.trials.iter().filter_map(|trial| {
        let reason = trial.failure.as_ref()?;
        let text = reason.lines().find(|line| line.starts_with("error:")).or(reason.lines().last())?;
        Some(format!("Trial {} failed: {text}", trial.number))
    });
    let mut sections = Vec::new();
    let title = "Trials in their order".to_owned();
    sections.push(StudySection { title, figures: vec![history(study)], ..StudySection::default() });
    let importance = study.importance();
    if !importance.is_empty() {
        let all: Vec<Bar> = importance
            .iter()
            .map(|of| Bar { name: of.parameter.clone(), value: of.explained, mark: Some(of.chance) })
            .collect();
        let note = "Share of the variance between trials that a key explains (correlation ratio). The line is the value \
                    that chance stays below in 95 of 100 cases: a key whose bar ends before it has no demonstrated effect.";
        let figure = bars("Importance", note, "share of the variance, %", &all);
        let title = "Importance of each key".into();
        sections.push(StudySection { title, figures: vec![figure], ..StudySection::default() });
    }
    let title = "Slices".into();
    sections.push(StudySection { title, figures: vec![slices(study)], ..StudySection::default() });
    let note = "The metric is the mean over the folds that were run, ± their standard deviation. A trial with fewer folds \
                was stopped early by halving.";
    let table = StudyTable { header: study.header(), rows: study.rows(), note: Some(note.into()) };
    sections.push(StudySection { title: "All trials".into(), table: Some(table), ..StudySection::default() });
    let seconds: f64 = study.trials.iter().map(|trial| trial.seconds).sum();
    let mut files = vec![("space.toml".to_owned(), study.space.to_toml())];
    if let Some(best) = study.best() {
        let values = best.values.iter().map(|(key, value)| format!("{key} = {}\n", inline(value)));
        files.insert(0, (format!("values of the best trial, {}", best.number), values.collect()));
    }
    StudyPage {
        title: format!("Tuning of {}", study.name),
        summary: Some(summary),
        notices: failures.take(5).collect(),
        facts: vec![
            ("metric".into(), metric.clone()),
            ("folds of the training classes".into(), study.space.folds.to_string()),
            ("trials".into(), study.trials.len().to_string()),
            ("complete".into(), count("complete").to_string()),
            ("stopped early".into(), count("stopped early").to_string()),
            ("failed".into(), count("failed").to_string()),
            ("training time, all runs".into(), format!("{seconds:.0} s")),
        ],
        sections,
        files,
    }
}

fn kinds() -> [(MarkKind, String); 3] {
    [
        (MarkKind::Full, "all folds".into()),
        (MarkKind::Partial, "stopped early, estimated".into()),
        (MarkKind::Best, "best".into()),
    ]
}

/// How a trial is drawn, and its value.
fn drawn(study: &Study) -> Vec<(&Trial, MarkKind, f64)> {
    let best = study.best().map(|trial| trial.number);
    let kind = |trial: &Trial| match study.is_complete(trial) {
        _ if Some(trial.number) == best => MarkKind::Best,
        true => MarkKind::Full,
        false => MarkKind::Partial,
    };
    let estimates = study.estimates();
    study
        .trials
        .iter()
        .zip(estimates)
        .filter_map(|(trial, value)| Some((trial, kind(trial), value?)))
        .collect()
}

fn history(study: &Study) -> Figure {
    let all = drawn(study);
    let mut line = Vec::new();
    let mut highest = f64::NEG_INFINITY;
    for (trial, kind, value) in &all {
        if *kind != MarkKind::Partial {
            highest = highest.max(*value);
        }
        if highest.is_finite() {
            line.push((trial.number as f64, highest));
        }
    }
    let marks = all.iter().map(|&(trial, kind, y)| Mark { x: trial.number as f64, y, kind }).collect();
    let panel = Scatter { name: "trial".into(), marks, line, ..Scatter::default() };
    let title = format!("{}, mean over the folds, %", study.space.metric);
    let note = format!(
        "The line is the best complete trial so far. The first {} trials {}; later ones follow the results.",
        study.space.random_trials(),
        if study.has_baseline { "are the run file itself and random ones" } else { "are random" }
    );
    scatter(&title, &note, &kinds(), &[panel])
}

fn slices(study: &Study) -> Figure {
    let all = drawn(study);
    let panel = |(key, values): &(&str, Values)| {
        let choices: Vec<String> = match values {
            Values::Choices(choices) => choices.iter().map(label).collect(),
            _ => Vec::new(),
        };
        let x = |trial: &Trial| {
            let value = trial.values.get(*key)?;
            if choices.is_empty() { as_number(value) } else { values.coordinate(value) }
        };
        let marks = all.iter().filter_map(|&(trial, kind, y)| Some(Mark { x: x(trial)?, y, kind })).collect();
        Scatter {
            name: (*key).into(),
            log: values.is_log(),
            marks,
            choices: choices.clone(),
            line: Vec::new(),
        }
    };
    let panels: Vec<Scatter> = study.space.parameters().iter().map(panel).collect();
    let title = format!("{} by the value of each key, %", study.space.metric);
    scatter(&title, "Each mark is a trial; the other keys differ from mark to mark.", &kinds(), &panels)
}

/// A choice in a figure: of a section, the name.
fn label(choice: &toml::Value) -> String {
    let named = |key: &str| choice.get(key).and_then(toml::Value::as_str);
    match choice {
        toml::Value::Table(_) => named("name").or(named("kind")).map_or_else(|| plain(choice), str::to_owned),
        other => plain(other),
    }
}
