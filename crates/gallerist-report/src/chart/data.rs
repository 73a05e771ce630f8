//! Named series of numbers that share their axes.

use serde::{Deserialize, Serialize};

/// The scale of the values of a chart, and their format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// A linear scale.
    #[default]
    Linear,
    /// A logarithmic scale. Values that are not positive are not drawn; their number is written below the chart.
    Log,
    /// A linear scale of shares, written in per cent.
    Share,
}

/// One value of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The training step, or K in a Recall@K chart.
    pub step: u64,
    /// The epoch of that step, if there are epochs.
    pub epoch: Option<u64>,
    /// The value. One that is not finite leaves a gap with a mark.
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
    /// A series from its points, or from pairs of step and value.
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
    /// The scale of the values.
    pub scale: Scale,
    /// Draws the moving mean of each series over its values. The window is a fortieth of the series, at least 5 values.
    /// Series of fewer than 30 values have no moving mean.
    pub smooth: bool,
    /// The series.
    pub series: Vec<Series>,
}
