//! Curves of a run: named series of numbers against the step.
//!
//! A chart is drawn as SVG written here, not by a plotting library: libraries
//! write fixed colours and letter sizes into the picture, while these charts
//! take their colours from the page (light and dark), keep lines and letters at
//! their size on a phone, and hold their values for the reader to point at.

mod draw;
mod scale;
mod smooth;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub(crate) use draw::{Against, Line, drawable, figure, remarks, thinned};
pub(crate) use scale::Axis;

/// How the values of a chart are laid out and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Even steps.
    #[default]
    Linear,
    /// Even ratios. Values that are not positive cannot be drawn and are counted below the chart.
    Log,
    /// Even steps; values are shares and written in per cent.
    Share,
}

/// One value of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The training step, or K in a Recall@K chart.
    pub step: u64,
    /// The epoch of that step, if there are epochs.
    pub epoch: Option<u64>,
    /// The value. One that is not finite leaves a gap and is pointed out.
    pub value: f64,
}

impl From<(u64, f64)> for Point {
    fn from((step, value): (u64, f64)) -> Self {
        Self { step, epoch: None, value }
    }
}

/// Named values against the step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The values, in any order. Of two with the same step the later one counts.
    pub points: Vec<Point>,
}

impl Series {
    /// A series from its points; pairs of step and value will do.
    pub fn new<P: Into<Point>>(name: impl Into<String>, points: impl IntoIterator<Item = P>) -> Self {
        Self { name: name.into(), points: points.into_iter().map(Into::into).collect() }
    }
}

/// Series that share their axes.
///
/// ```
/// use gallerist_report::{Chart, Scale, Series};
///
/// let chart = Chart {
///     title: "Share of non-trivial pairs".into(),
///     scale: Scale::Share,
///     series: vec![
///         Series::new("positives", [(1, 0.99), (2, 0.97)]),
///         Series::new("negatives", [(1, 0.85), (2, 0.66)]),
///     ],
///     ..Chart::default()
/// };
/// assert_eq!(chart.series[1].points[0].value, 0.85);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// A sentence below the heading.
    pub note: Option<String>,
    /// How values are laid out.
    pub scale: Scale,
    /// Draws, over the values of each series, the mean of the values around each
    /// (a fortieth of the series, at least 5 values). Series of fewer than 30
    /// values are left as they are.
    pub smooth: bool,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// One line of a training log: named numbers at a step.
///
/// It reads a JSON object with `step`, `epoch` (may be absent) and any other
/// fields: numbers are kept, `null` stands for a number that was not finite,
/// and what is neither is left out.
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

/// Which columns of a training log make one chart.
#[derive(Clone, Debug, Default)]
pub struct Panel<'a> {
    /// The heading of the chart.
    pub title: &'a str,
    /// A sentence below the heading.
    pub note: Option<&'a str>,
    /// How values are laid out.
    pub scale: Scale,
    /// See [`Chart::smooth`].
    pub smooth: bool,
    /// Column of the log and name in the legend.
    pub columns: &'a [(&'a str, &'a str)],
}

/// The charts of a training log: those that `panels` describes, in that order,
/// then one for each column that no panel names, so that whatever is logged is
/// drawn. Columns without a record, and panels without a column, are left out.
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
