//! The trials as a table: Markdown, CSV, JSON, and the cells for page and terminal.

use serde::Serialize;
use toml::Value;

use super::importance::Importance;
use super::space::plain;
use super::study::{Study, Trial};
use crate::text::csv_line;

/// The content of `result.json`.
#[derive(Debug, Serialize)]
pub struct TuneSummary<'a> {
    /// The metric that is maximised.
    pub metric: &'a str,
    /// Folds of a complete trial.
    pub folds: usize,
    /// The number of the best trial.
    pub best: Option<usize>,
    /// Its mean over the folds.
    pub best_mean: Option<f64>,
    /// The mean of the run file's own values, where they are in the space.
    pub baseline_mean: Option<f64>,
    /// How much each key explains.
    pub importance: Vec<Importance>,
    /// Every trial.
    pub trials: Vec<TrialSummary<'a>>,
}

/// A trial in `result.json`.
#[derive(Debug, Serialize)]
pub struct TrialSummary<'a> {
    /// From 1.
    pub number: usize,
    /// `complete`, `stopped early`, `failed` or `unfinished`.
    pub state: &'static str,
    /// The mean over the folds that were run.
    pub mean: Option<f64>,
    /// The mean over all folds, estimated for a trial that was stopped early.
    pub estimate: Option<f64>,
    /// The metric on each fold.
    pub folds: &'a [f64],
    /// Seconds of training.
    pub seconds: f64,
    /// The values of the tuned keys.
    pub values: &'a std::collections::BTreeMap<String, Value>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<&'a str>,
}

impl Study {
    /// The result in numbers.
    pub fn summary(&self) -> TuneSummary<'_> {
        let estimates = self.estimates();
        let trials = self.trials.iter().zip(estimates);
        TuneSummary {
            metric: &self.space.metric,
            folds: self.space.folds,
            best: self.best().map(|trial| trial.number),
            best_mean: self.best().and_then(Trial::mean),
            baseline_mean: self.baseline().and_then(Trial::mean),
            importance: self.importance(),
            trials: trials.map(|(trial, estimate)| self.summary_of(trial, estimate)).collect(),
        }
    }

    fn summary_of<'a>(&self, trial: &'a Trial, estimate: Option<f64>) -> TrialSummary<'a> {
        TrialSummary {
            number: trial.number,
            state: self.state(trial),
            mean: trial.mean(),
            estimate,
            folds: &trial.folds,
            seconds: trial.seconds,
            values: &trial.values,
            failure: trial.failure.as_deref(),
        }
    }

    /// `complete`, `stopped early`, `failed` or `unfinished`.
    pub fn state(&self, trial: &Trial) -> &'static str {
        match trial {
            Trial { failure: Some(_), .. } => "failed",
            _ if self.is_complete(trial) => "complete",
            Trial { folds, .. } if folds.is_empty() => "unfinished",
            _ => "stopped early",
        }
    }

    /// The names of the columns: trial, metric, deviation, folds, then the tuned keys.
    pub fn header(&self) -> Vec<String> {
        let fixed = ["trial", &self.space.metric, "±", "folds"];
        fixed.into_iter().map(str::to_owned).chain(self.space.space.keys().cloned()).collect()
    }

    /// The cells of each trial, those with all folds first, the best first.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut order: Vec<&Trial> = self.trials.iter().collect();
        let rank = |trial: &Trial| (trial.failure.is_none(), trial.folds.len());
        let mean = |trial: &Trial| trial.mean().unwrap_or(f64::NEG_INFINITY);
        order.sort_by(|a, b| rank(b).cmp(&rank(a)).then(mean(b).total_cmp(&mean(a))));
        order.into_iter().map(|trial| self.cells(trial)).collect()
    }

    fn cells(&self, trial: &Trial) -> Vec<String> {
        let own = if trial.number == 1 && self.has_baseline { " (run file)" } else { "" };
        let folds = match &trial.failure {
            Some(_) => "failed".to_owned(),
            None => format!("{} of {}", trial.folds.len(), self.space.folds),
        };
        let mut cells = vec![
            format!("{}{own}", trial.number),
            trial.mean().map_or("–".into(), |mean| format!("{mean:.4}")),
            trial.deviation().map_or("–".into(), |deviation| format!("{deviation:.4}")),
            folds,
        ];
        let value = |key: &String| trial.values.get(key).map_or("–".into(), plain);
        cells.extend(self.space.space.keys().map(value));
        cells
    }

    /// The table as Markdown.
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(self.header());
        text += &line(vec!["---".into(); self.header().len()]);
        text.extend(self.rows().into_iter().map(line));
        text
    }

    /// The table as CSV, with a column for each fold.
    pub fn to_csv(&self) -> String {
        let folds = 1..=self.space.folds;
        let mut header = vec!["trial".into(), "state".into(), "mean".into(), "estimate".into()];
        header.extend(folds.map(|fold| format!("fold {fold}")));
        header.push("seconds".into());
        header.extend(self.space.space.keys().cloned());
        let mut text = csv_line(header);
        for (trial, estimate) in self.trials.iter().zip(self.estimates()) {
            let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let state = self.state(trial).to_owned();
            let mut cells = vec![trial.number.to_string(), state, number(trial.mean()), number(estimate)];
            cells.extend((0..self.space.folds).map(|fold| number(trial.folds.get(fold).copied())));
            cells.push(format!("{:.1}", trial.seconds));
            let value = |key: &String| trial.values.get(key).map_or(String::new(), plain);
            cells.extend(self.space.space.keys().map(value));
            text += &csv_line(cells);
        }
        text
    }
}
