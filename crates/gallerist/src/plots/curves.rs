//! Training curves.

use std::path::Path;

use gallerist_report::figure::{self, Figure};
use gallerist_report::{Chart, Series};
use gallerist_train::Result;
use gallerist_train::RunDirectory;
use gallerist_train::log::{self, Record};

use super::charts::{VALIDATION, charts};
use super::text::{fault, joined, names_of};

/// The training curves of one run, or of several runs in the same charts.
///
/// # Errors
///
/// When a run cannot be read, or its log is empty.
pub fn curves(runs: &[&Path]) -> Result<Figure> {
    let mut logs = Vec::new();
    for (path, name) in runs.iter().zip(names_of(runs)) {
        let run = RunDirectory::open(path)?;
        let records = if run.log().exists() { log::read(&run.log())? } else { Vec::new() };
        if records.is_empty() {
            return Err(fault(
                "curves",
                format!("need a step, and `{}` has logged none", path.display()),
                None,
            ));
        }
        logs.push((name, records));
    }
    let names: Vec<&str> = logs.iter().map(|(name, _)| name.as_str()).collect();
    Ok(figure::curves(&format!("Training curves: {}", names.join(", ")), &charts_of_runs(&logs)))
}

/// The charts of one run, or of several runs with one line per run.
pub(crate) fn charts_of_runs(logs: &[(String, Vec<Record>)]) -> Vec<Chart> {
    // Charts of one title, each with the name of its run.
    let mut all: Vec<Vec<(&str, Chart)>> = Vec::new();
    for (run, records) in logs {
        for chart in charts(records) {
            match all.iter_mut().find(|same| same[0].1.title == chart.title) {
                Some(same) => same.push((run.as_str(), chart)),
                None => all.push(vec![(run.as_str(), chart)]),
            }
        }
    }
    all.into_iter().map(|same| merged(same, logs.len() > 1)).collect()
}

/// One chart of charts of one title. With `several` runs in all, its lines have the names of their runs.
fn merged(of_runs: Vec<(&str, Chart)>, several: bool) -> Chart {
    let only_series = |chart: &Chart| match chart.series.as_slice() {
        [one] => Some(one.name.clone()),
        _ => None,
    };
    let first = &of_runs[0].1;
    // What is drawn, if it is the same for every run: the lines need no other name than that of their run.
    let common = only_series(first)
        .filter(|name| of_runs.iter().all(|(_, chart)| only_series(chart).as_ref() == Some(name)));
    let title = match &common {
        Some(metric) if first.title == VALIDATION => format!("{VALIDATION}: {metric}"),
        _ => first.title.clone(),
    };
    let note =
        |chart: &Chart| chart.note.as_ref().map_or("protocol unknown.".to_owned(), |note| format!("{note}."));
    let notes: Vec<(String, String)> =
        of_runs.iter().map(|(run, chart)| ((*run).to_owned(), note(chart))).collect();
    let has_note = of_runs.iter().any(|(_, chart)| chart.note.is_some());
    let mut merged = Chart { title, note: has_note.then(|| joined(&notes)), series: Vec::new(), ..*first };
    for (run, chart) in of_runs {
        for series in chart.series {
            let name = match common {
                _ if !several => series.name.clone(),
                Some(_) => run.to_owned(),
                None => format!("{run}, {}", series.name),
            };
            merged.series.push(Series { name, ..series });
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of a run that validated these metrics.
    fn log(run: &str, protocol: &str, metrics: &[&str]) -> (String, Vec<Record>) {
        let record = |step: usize| Record::Validation {
            step,
            protocol: protocol.into(),
            metrics: metrics.iter().map(|&name| (name.into(), 0.5)).collect(),
        };
        (run.into(), vec![record(10), record(20)])
    }

    type Drawn = (String, String, Vec<String>);

    fn drawn(title: &str, note: &str, lines: &[&str]) -> Drawn {
        (title.to_owned(), note.to_owned(), lines.iter().map(|&line| line.to_owned()).collect())
    }

    /// Title, note and names of the lines of the charts of the validation.
    fn validations(logs: &[(String, Vec<Record>)]) -> Vec<Drawn> {
        let charts = charts_of_runs(logs).into_iter().filter(|chart| chart.title.starts_with(VALIDATION));
        let names = |chart: &Chart| chart.series.iter().map(|series| series.name.clone()).collect();
        charts.map(|chart| (chart.title.clone(), chart.note.clone().unwrap(), names(&chart))).collect()
    }

    #[test]
    fn lines_of_different_metrics_and_protocols_say_so() {
        let a = log("a", "all others", &["recall@1"]);
        assert_eq!(
            validations(&[a.clone(), log("b", "other cameras", &["recall@5"])]),
            [drawn("Validation", "a: all others. b: other cameras.", &["a, recall@1", "b, recall@5"])]
        );
        assert_eq!(
            validations(&[a.clone(), log("c", "all others", &["recall@1"])]),
            [drawn("Validation: recall@1", "all others.", &["a", "c"])]
        );
        assert_eq!(
            validations(&[a.clone(), log("d", "", &["recall@1"])]),
            [drawn("Validation: recall@1", "a: all others. d: protocol unknown.", &["a", "d"])]
        );
        assert_eq!(validations(&[a]), [drawn("Validation: recall@1", "all others.", &["recall@1"])]);
    }

    #[test]
    fn charts_of_one_line_name_the_run() {
        let charts = charts_of_runs(&[log("a", "", &["map"]), log("b", "", &["map"])]);
        let loss = charts.iter().find(|chart| chart.title == "Loss").unwrap();
        assert_eq!(loss.series.iter().map(|series| series.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(charts.iter().all(|chart| chart.note.is_none()));
    }
}
