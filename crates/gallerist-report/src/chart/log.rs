//! Charts of a training log.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::data::{Chart, Point, Scale, Series};

/// One line of a training log: named numbers at a step.
///
/// It is read from a JSON object with `step`, `epoch` (optional) and any other fields. Numbers are kept, `null` is a
/// number that was not finite, other values are ignored.
///
/// ```
/// use gallerist_report::Record;
///
/// let line = r#"{"step": 40, "epoch": 2, "loss": 0.25, "grad_norm": null, "kind": "step"}"#;
/// let record: Record = serde_json::from_str(line)?;
/// assert_eq!(record.values["loss"], 0.25);
/// assert!(record.values["grad_norm"].is_nan());
/// assert!(!record.values.contains_key("kind"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Record {
    /// The training step.
    pub step: u64,
    /// The epoch of that step.
    #[serde(default)]
    pub epoch: Option<u64>,
    /// The numbers by name.
    #[serde(flatten, deserialize_with = "numbers")]
    pub values: BTreeMap<String, f64>,
}

fn numbers<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let fields = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    Ok(fields
        .into_iter()
        .filter_map(|(name, value)| match value {
            serde_json::Value::Null => Some((name, f64::NAN)),
            value => value.as_f64().map(|number| (name, number)),
        })
        .collect())
}

/// A chart of some columns of a training log.
#[derive(Clone, Debug, Default)]
pub struct Panel<'a> {
    /// The heading of the chart.
    pub title: &'a str,
    /// A sentence below the heading.
    pub note: Option<&'a str>,
    /// The scale of the values.
    pub scale: Scale,
    /// See [`Chart::smooth`].
    pub smooth: bool,
    /// Column of the log and name in the legend.
    pub columns: &'a [(&'a str, &'a str)],
}

/// The charts of a training log: those of `panels`, in that order, then one for each column that no panel names.
/// Columns without a record and panels without a column are left out.
///
/// ```
/// use gallerist_report::{Panel, Record, charts_of};
///
/// let records: Vec<Record> = (1..=3)
///     .map(|step| Record {
///         step,
///         epoch: Some(0),
///         values: [("loss".into(), 1.0), ("images_per_second".into(), 900.0)].into(),
///     })
///     .collect();
/// let loss = Panel { title: "Loss", columns: &[("loss", "loss")], ..Panel::default() };
/// let charts = charts_of(&records, &[loss]);
/// assert_eq!(charts[0].title, "Loss");
/// assert_eq!(charts[1].title, "Images per second");
/// ```
pub fn charts_of(records: &[Record], panels: &[Panel<'_>]) -> Vec<Chart> {
    let mut left: BTreeSet<&str> =
        records.iter().flat_map(|record| record.values.keys().map(String::as_str)).collect();
    let mut charts = Vec::new();
    for panel in panels {
        let series: Vec<Series> = (panel.columns.iter())
            .filter(|(column, _)| left.remove(column))
            .map(|(column, name)| column_of(records, column, name))
            .collect();
        if !series.is_empty() {
            charts.push(Chart {
                title: panel.title.to_owned(),
                note: panel.note.map(str::to_owned),
                scale: panel.scale,
                smooth: panel.smooth,
                series,
            });
        }
    }
    charts.extend(left.into_iter().map(|column| {
        let name = column.replace('_', " ");
        let mut title = name.clone();
        if let Some(first) = title.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        Chart { title, smooth: true, series: vec![column_of(records, column, &name)], ..Chart::default() }
    }));
    charts
}

fn column_of(records: &[Record], column: &str, name: &str) -> Series {
    Series::new(
        name,
        records.iter().filter_map(|record| {
            Some(Point { step: record.step, epoch: record.epoch, value: *record.values.get(column)? })
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64, values: &[(&str, f64)]) -> Record {
        Record { step, epoch: None, values: values.iter().map(|&(n, v)| (n.to_owned(), v)).collect() }
    }

    #[test]
    fn every_column_is_in_exactly_one_chart() {
        let records = [
            record(1, &[("loss", 2.0), ("positives", 0.9), ("norm", 1.0)]),
            record(2, &[("loss", 1.0), ("é", 0.5)]),
        ];
        let panels = [
            Panel {
                title: "Pairs",
                columns: &[("positives", "pos"), ("negatives", "neg"), ("loss", "loss")],
                ..Panel::default()
            },
            Panel { title: "Absent", columns: &[("map@r", "MAP@R")], ..Panel::default() },
            Panel { title: "Again", columns: &[("loss", "loss")], ..Panel::default() },
        ];
        let charts = charts_of(&records, &panels);
        let names: Vec<_> = (charts.iter())
            .map(|c| {
                let series: Vec<_> = c.series.iter().map(|s| s.name.as_str()).collect();
                (c.title.as_str(), series)
            })
            .collect();
        assert_eq!(names, [("Pairs", vec!["pos", "loss"]), ("Norm", vec!["norm"]), ("é", vec!["é"]),]);
        assert_eq!(charts[0].series[1].points.len(), 2);
        assert_eq!(charts[1].series[0].points.len(), 1);
    }

    #[test]
    fn a_log_without_records_has_no_charts() {
        assert_eq!(charts_of(&[], &[Panel::default()]), []);
    }
}
