//! Training curves.

use std::path::Path;

use gallerist_report::Chart;
use gallerist_report::figure::{self, Figure};
use gallerist_train::Result;
use gallerist_train::RunDirectory;
use gallerist_train::log::{self, Record};

use super::charts::charts;
use super::text::{fault, name_of};

/// The training curves of one run, or of several runs in the same charts.
///
/// # Errors
///
/// When a run cannot be read, or its log is empty.
pub fn curves(runs: &[&Path]) -> Result<Figure> {
    let mut logs = Vec::new();
    for path in runs {
        let run = RunDirectory::open(path)?;
        let records = if run.log().exists() { log::read(&run.log())? } else { Vec::new() };
        if records.is_empty() {
            return Err(fault(
                "curves",
                format!("need a step, and `{}` has logged none", path.display()),
                None,
            ));
        }
        logs.push((name_of(path), records));
    }
    let names: Vec<&str> = logs.iter().map(|(name, _)| name.as_str()).collect();
    Ok(figure::curves(&format!("Training curves: {}", names.join(", ")), &charts_of_runs(&logs)))
}

/// The charts of one run, or of several runs with one line per run.
pub(crate) fn charts_of_runs(logs: &[(String, Vec<Record>)]) -> Vec<Chart> {
    let mut all: Vec<Chart> = Vec::new();
    for (run, records) in logs {
        for mut chart in charts(records) {
            if logs.len() > 1 {
                let alone = chart.series.len() == 1;
                for series in &mut chart.series {
                    series.name = if alone { run.clone() } else { format!("{run}, {}", series.name) };
                }
            }
            match all.iter_mut().find(|known| known.title == chart.title) {
                Some(known) => known.series.append(&mut chart.series),
                None => all.push(chart),
            }
        }
    }
    all
}
