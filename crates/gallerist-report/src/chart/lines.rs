//! The series of a chart, ready to draw on a page or in a figure.

use super::data::{Chart, Point, Scale, Series};
use super::scale::Axis;
use super::smooth;
use crate::number::count;

/// A line of more values than this is drawn as the smallest and the largest value of each of [`BUCKETS`] intervals,
/// which looks the same at this size.
const DRAWN: usize = 1000;
const BUCKETS: usize = 400;

/// Series up to this length have a dot at every value.
pub(crate) const DOTTED: usize = 40;

/// The number of colours before they repeat.
pub(crate) const COLOURS: usize = 6;

/// The number of dash patterns of lines.
pub(crate) const DASHES: usize = 6;

/// The dash pattern of a series, below [`DASHES`]. Each time the colours repeat, the patterns begin one later, so that the
/// first 36 series differ in colour or pattern.
pub(crate) fn dash(series: usize) -> usize {
    (series / COLOURS + series % COLOURS) % DASHES
}

/// A series in ascending steps with its moving mean.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<Point>,
    pub(crate) mean: Option<Vec<f64>>,
    /// Its index among the series of the chart, which determines its colour and its dash pattern.
    pub(crate) index: usize,
    /// Its CSS classes, which determine its colour and its dash pattern on a page.
    pub(super) class: String,
}

impl<'a> Line<'a> {
    fn new(series: &'a Series, index: usize, smooth: bool) -> Self {
        let mut points: Vec<Point> = Vec::with_capacity(series.points.len());
        let mut sorted = series.points.clone();
        sorted.sort_by_key(|point| point.step);
        for point in sorted {
            match points.last_mut() {
                Some(last) if last.step == point.step => *last = point,
                _ => points.push(point),
            }
        }
        let mean = smooth.then(|| smooth::window(points.len())).flatten().map(|window| {
            let values: Vec<f64> = points.iter().map(|point| point.value).collect();
            smooth::centred_mean(&values, window)
        });
        let class = format!("s{} d{}", index % COLOURS, dash(index));
        Self { name: &series.name, points, mean, index, class }
    }

    pub(super) fn at(&self, step: u64) -> Option<usize> {
        self.points.binary_search_by_key(&step, |point| point.step).ok()
    }
}

/// The lines of a chart, and the ranges that its axes show.
pub(crate) struct Lines<'a> {
    /// One line for each series, in their order.
    pub(crate) lines: Vec<Line<'a>>,
    /// The steps of all points, ascending and distinct; at least one.
    pub(crate) steps: Vec<u64>,
    /// The vertical axis; `None` where no value can be drawn.
    pub(crate) y: Option<Axis>,
}

impl<'a> Lines<'a> {
    /// The lines of `chart`; `None` if no series has a point.
    pub(crate) fn of(chart: &'a Chart) -> Option<Self> {
        let lines: Vec<Line<'a>> = (chart.series.iter().enumerate())
            .map(|(index, series)| Line::new(series, index, chart.smooth))
            .collect();
        let points = || lines.iter().flat_map(|line| &line.points);
        let mut steps: Vec<u64> = points().map(|point| point.step).collect();
        steps.sort_unstable();
        steps.dedup();
        let (low, high) = points()
            .map(|point| point.value)
            .filter(|&value| drawable(value, chart.scale))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let y = (low <= high).then(|| Axis::of_values(low, high, chart.scale));
        (!steps.is_empty()).then_some(Self { lines, steps, y })
    }

    /// The horizontal axis of training steps.
    pub(crate) fn step_axis(&self) -> Axis {
        Axis::of_steps(self.steps[0], self.steps[self.steps.len() - 1])
    }
}

/// Whether a value has a place on an axis of this scale.
pub(crate) fn drawable(value: f64, scale: Scale) -> bool {
    value.is_finite() && (scale != Scale::Log || value > 0.0)
}

/// All places; of more than [`DRAWN`] only the highest and the lowest of each interval.
pub(crate) fn thinned(places: &[Option<(f64, f64)>]) -> Vec<Option<(f64, f64)>> {
    if places.len() <= DRAWN {
        return places.to_vec();
    }
    let mut thinned = Vec::with_capacity(2 * BUCKETS);
    for bucket in 0..BUCKETS {
        let stretch = &places[bucket * places.len() / BUCKETS..(bucket + 1) * places.len() / BUCKETS];
        let heights = || (stretch.iter().enumerate()).filter_map(|(i, place)| place.map(|(_, y)| (i, y)));
        let lowest = heights().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i);
        let highest = heights().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i);
        match (lowest, highest) {
            (Some(a), Some(b)) if a != b => thinned.extend([stretch[a.min(b)], stretch[a.max(b)]]),
            (Some(a), _) => thinned.push(stretch[a]),
            (None, _) => thinned.push(None),
        }
    }
    thinned
}

/// Remarks below a chart: the moving mean, values that are not drawn, repeated steps.
pub(crate) fn remarks(chart: &Chart, lines: &[Line<'_>]) -> Vec<String> {
    let mut remarks = Vec::new();
    let windows: Vec<usize> = (lines.iter())
        .filter(|line| line.mean.is_some())
        .filter_map(|line| smooth::window(line.points.len()))
        .collect();
    if let (Some(&least), Some(&most)) = (windows.iter().min(), windows.iter().max()) {
        let width = if least == most { most.to_string() } else { format!("{least} to {most}") };
        remarks.push(format!("Pale: all values. Strong: the mean of {width} around each."));
    }
    for (line, series) in lines.iter().zip(&chart.series) {
        let mut remark = |what: &str, is_fault: &dyn Fn(f64) -> bool| {
            let mut faults = line.points.iter().filter(|point| is_fault(point.value));
            let Some(first) = faults.next() else { return };
            remarks.push(format!(
                "{}: {what} in {} of {} values, first at step {}.",
                line.name,
                count(1 + faults.count() as u64),
                count(line.points.len() as u64),
                first.step,
            ));
        };
        remark("not finite", &|value| !value.is_finite());
        if chart.scale == Scale::Log {
            remark("not positive, so not on this scale,", &|value| value.is_finite() && value <= 0.0);
        }
        let repeated = series.points.len() - line.points.len();
        if repeated > 0 {
            remarks.push(format!(
                "{}: steps logged more than once: {}; the last value of each is drawn.",
                line.name,
                count(repeated as u64),
            ));
        }
    }
    remarks
}
