//! The results of an experiment: measured next to printed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::file::{About, Experiment, Scale};
use super::interval::Estimate;
use super::maps::RowMap;
use super::plan::{Plan, PlannedRun};
use crate::Result;
use crate::jobs::{Fingerprints, JobFolder, Numbers};

/// The metric that every part has in addition to those that the paper prints.
const FURTHER: &str = "map@r";

/// The table of an experiment: what the paper prints, and what the runs that are done have measured.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The experiment.
    pub about: About,
    /// The scale of the runs.
    pub scale: Scale,
    /// The seeds of each cell, if all runs are done.
    pub seeds: Vec<u64>,
    /// Data, network and steps of each part, protocol, and how printed and measured numbers compare.
    pub head: Vec<String>,
    /// The columns.
    pub columns: Vec<TableColumn>,
    /// The rows.
    pub rows: Vec<TableRow>,
    /// Maps of the embeddings, if the experiment asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<RowMap>,
}

/// A column: a metric on a part.
#[derive(Clone, Debug, Serialize)]
pub struct TableColumn {
    /// The data set of the paper.
    pub part: String,
    /// The name of the metric.
    pub metric: String,
}

impl TableColumn {
    /// The metric, with the part if `columns` are of several.
    pub(super) fn title(&self, columns: &[TableColumn]) -> String {
        match columns.iter().any(|column| column.part != self.part) {
            true => format!("{} {}", self.part, self.metric),
            false => self.metric.clone(),
        }
    }
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct TableRow {
    /// Its name.
    pub name: String,
    /// Empty for the printed setting, else for example `released code`.
    pub variant: String,
    /// The curve it belongs to.
    pub curve: String,
    /// The value of the parameter on the axis.
    pub x: Option<f64>,
    /// Why it is only printed.
    pub not_run: Option<String>,
    /// Runs that are done.
    pub done: usize,
    /// Runs of the row.
    pub runs: usize,
    /// Why runs failed.
    pub failures: Vec<String>,
    /// Images of a run that could not be read, the most of the runs.
    pub broken_images: usize,
    /// Seconds of a step, the mean of the runs.
    pub seconds_per_step: Option<f64>,
    /// Largest resident memory of a run, MiB.
    pub peak_memory_mib: Option<f64>,
    /// One cell for each column.
    pub cells: Vec<Cell>,
}

/// A cell. Numbers are shares in per cent, as the papers print them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// The printed number.
    pub printed: Option<f64>,
    /// The measured numbers.
    pub measured: Option<Estimate>,
    /// What the estimate is of: seeds and values of the runs that are done.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<u64, f64>,
}

impl Table {
    /// Collects the results of a plan from a store. Runs that are not done are left out and counted.
    ///
    /// # Errors
    ///
    /// When a map cannot be drawn. A run whose files cannot be read, or whose images or weights have changed since, counts as
    /// failed.
    pub fn new(experiment: &Experiment, plan: &Plan, store: &Path) -> Result<Table> {
        let scale = plan.selection.scale;
        let mut results: Vec<(&PlannedRun, Numbers)> = Vec::new();
        let mut rows: Vec<TableRow> = experiment
            .rows
            .iter()
            .map(|row| TableRow {
                name: row.name.clone(),
                variant: row.variant.clone(),
                curve: row.curve.clone(),
                x: row.x,
                not_run: row.reason(scale).map(str::to_owned),
                done: 0,
                runs: 0,
                failures: Vec::new(),
                broken_images: 0,
                seconds_per_step: None,
                peak_memory_mib: None,
                cells: Vec::new(),
            })
            .collect();
        let mut originals = Fingerprints::default();
        for run in &plan.runs {
            let folder = JobFolder::of(store, &run.job);
            let row = &mut rows[run.row];
            row.runs += 1;
            let reason = match folder.numbers() {
                Ok(Some(numbers)) => {
                    let reason = originals.change(&folder, &run.job.config);
                    if reason.is_none() {
                        row.done += 1;
                        row.broken_images = row.broken_images.max(numbers.broken_images);
                        results.push((run, numbers));
                    }
                    reason
                }
                Ok(None) => folder.failure(),
                Err(error) => Some(error.with_hint()),
            };
            row.failures.extend(reason.map(|reason| format!("{}: {reason}", run.job.name)));
        }
        let mut columns = Vec::new();
        for (p, part) in experiment.parts.iter().enumerate() {
            let is_measured =
                results.iter().any(|(run, numbers)| run.part == p && numbers.metrics.contains_key(FURTHER));
            let further =
                (is_measured && !part.metrics.iter().any(|metric| metric == FURTHER)).then_some(FURTHER);
            for (m, metric) in part.metrics.iter().map(String::as_str).chain(further).enumerate() {
                columns.push(TableColumn { part: part.name.clone(), metric: metric.to_owned() });
                for (r, row) in rows.iter_mut().enumerate() {
                    let of_cell = results.iter().filter(|(run, _)| (run.row, run.part) == (r, p));
                    let values: BTreeMap<u64, f64> = of_cell
                        .filter_map(|(run, numbers)| Some((run.seed, 100.0 * numbers.metrics.get(metric)?)))
                        .collect();
                    let printed = experiment.rows[r].printed(&part.name, m);
                    let of_runs: Vec<f64> = values.values().copied().collect();
                    row.cells.push(Cell { printed, measured: Estimate::of(&of_runs), values });
                }
            }
        }
        for (r, row) in rows.iter_mut().enumerate() {
            let of_row = || results.iter().filter(|(run, _)| run.row == r).map(|(_, numbers)| numbers);
            let seconds: Vec<f64> = of_row().filter_map(|numbers| numbers.seconds_per_step).collect();
            row.seconds_per_step = Estimate::of(&seconds).map(|estimate| estimate.mean);
            row.peak_memory_mib = of_row().filter_map(|numbers| numbers.peak_memory_mib).reduce(f64::max);
        }
        let head = head(experiment, plan).into_iter().chain(not_measured(&columns, &rows)).collect();
        let maps = RowMap::of_runs(experiment, plan, results.iter().map(|(run, _)| *run), store)?;
        let about = experiment.about.clone();
        let seeds = plan.selection.seeds.clone().collect();
        Ok(Table { about, scale, seeds, head, columns, rows, maps })
    }

    /// Whether some run of the plan is not done.
    pub fn is_incomplete(&self) -> bool {
        self.rows.iter().any(|row| row.done < row.runs)
    }

    /// Whether a column has printed numbers, and whether it has measured ones.
    pub(super) fn content(&self, column: usize) -> (bool, bool) {
        let any = |of: fn(&Cell) -> bool| self.rows.iter().any(|row| of(&row.cells[column]));
        (any(|cell| cell.printed.is_some()), any(|cell| cell.measured.is_some()))
    }

    /// Why a row has no numbers, or not all of them, and how many images could not be read; empty if there is nothing to
    /// say.
    pub(super) fn status(row: &TableRow) -> String {
        let broken = (row.broken_images > 0).then(|| crate::text::count(row.broken_images, "broken image"));
        let state = Some(Self::state(row)).filter(|state| !state.is_empty());
        state.into_iter().chain(broken).collect::<Vec<_>>().join("; ")
    }

    fn state(row: &TableRow) -> String {
        match (&row.not_run, row.failures.len()) {
            (Some(reason), _) => format!("not run: {reason}"),
            (None, 0) if row.runs == 0 => "not run at this scale".into(),
            (None, 0) if row.done == 0 => "not run yet".into(),
            (None, 0) if row.done < row.runs => format!("{} of {} runs done", row.done, row.runs),
            (None, 0) => String::new(),
            (None, failed) => format!("{failed} of {} runs failed", row.runs),
        }
    }
}

/// The sentences above the table.
fn head(experiment: &Experiment, plan: &Plan) -> Vec<String> {
    let scale = plan.selection.scale;
    let mut head = vec![match scale {
        Scale::Full => "Scale full: the data, network and steps of the paper.".to_owned(),
        Scale::Small => {
            "Scale small: other data, another network and fewer steps than in the paper. The printed numbers \
             are for another data set and network; compare the order and the shape, not the values."
                .to_owned()
        }
        Scale::Smoke => {
            "Scale smoke: a check that everything works. The measured numbers say nothing about the method."
                .to_owned()
        }
    }];
    // Parts with the same base are named together.
    let mut conditions: Vec<(Vec<&str>, &str)> = Vec::new();
    for (part, about) in &plan.conditions {
        match conditions.iter_mut().find(|(_, known)| known == about) {
            Some((parts, _)) => parts.push(part),
            None => conditions.push((vec![part], about)),
        }
    }
    for (parts, about) in conditions {
        head.push(format!("{}: {about}.", parts.join(", ")));
    }
    if let Some(run) = plan.runs.first() {
        let (config, seeds) = (&run.job.config, &plan.selection.seeds);
        let protocol = match (&config.evaluation.protocol, config.data.query.is_empty()) {
            (Some(protocol), _) => protocol,
            (None, true) => {
                "of the data set (queries against the gallery, or every image against the others)"
            }
            (None, false) => "queries against the gallery",
        };
        head.push(format!(
            "{} steps, batches of {} images, protocol {protocol}, {}.",
            crate::text::grouped(config.train.steps),
            config.sampler.batch_size(),
            match (seeds.start(), seeds.end()) {
                (first, last) if first == last => format!("seed {first}, no interval"),
                (first, last) => format!("seeds {first} to {last}, mean ± half the 95 % interval (Student)"),
            }
        ));
        head.push(
            "Steps, batches and protocol are those of the first row on the first part; `gallerist experiment show` has \
             those of every row."
                .to_owned(),
        );
    }
    let parts: Vec<&str> = (experiment.parts.iter())
        .filter(|part| part.at(scale).is_none())
        .map(|part| part.name.as_str())
        .collect();
    if !parts.is_empty() {
        head.push(format!("Not run at this scale: {}.", parts.join(", ")));
    }
    head.push("Numbers are in per cent.".into());
    head
}

/// The metrics of parts that no run has measured, though some are done.
fn not_measured(columns: &[TableColumn], rows: &[TableRow]) -> Option<String> {
    let is_missing = |column: &usize| rows.iter().all(|row| row.cells[*column].measured.is_none());
    let done = rows.iter().any(|row| row.done > 0);
    let missing: Vec<String> =
        (0..columns.len()).filter(is_missing).map(|column| columns[column].title(columns)).collect();
    (done && !missing.is_empty())
        .then(|| format!("Not measured by the runs that are done: {}.", missing.join(", ")))
}
