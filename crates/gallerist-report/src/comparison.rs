//! The page of an experiment: measured numbers next to printed ones, as a table and as plots.

use std::path::Path;

use maud::{Markup, PreEscaped, html};

use crate::ReportError;
use crate::atlas::{Atlas, atlas};
use crate::chart::{Axis, COLOURS, Scale};
use crate::page::{facts, head, page};
use crate::write::write_whole;

/// The content of the page of an experiment.
///
/// ```
/// use gallerist_report::{Comparison, ComparisonPlot, PlotPoint, PlotSeries};
///
/// let point = |name: &str, x, printed, mean| PlotPoint {
///     name: name.into(),
///     x: Some(x),
///     printed: Some(printed),
///     measured: Some((mean, Some(0.4))),
/// };
/// let page = Comparison {
///     title: "The margin".into(),
///     plots: vec![ComparisonPlot {
///         title: "recall@1".into(),
///         axis: Some("margin".into()),
///         series: vec![PlotSeries {
///             name: String::new(),
///             points: vec![point("m = 0", 0.0, 76.1, 80.2), point("m = 0.4", 0.4, 79.8, 85.1)],
///         }],
///     }],
///     ..Comparison::default()
/// };
/// assert!(page.to_html().contains("recall@1"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// The heading, also the title of the window.
    pub title: String,
    /// A sentence below the heading.
    pub summary: Option<String>,
    /// Important notices, such as runs that failed.
    pub notices: Vec<String>,
    /// Sentences above the table: scale, data, protocol.
    pub conditions: Vec<String>,
    /// Name and value pairs below the table, such as what a paper says.
    pub facts: Vec<(String, String)>,
    /// The metrics, and the kinds of numbers of each: printed, measured.
    pub columns: Vec<(String, Vec<&'static str>)>,
    /// The rows, each with a cell for every kind of every column.
    pub rows: Vec<ComparisonRow>,
    /// One plot for each metric. Plots without values are left out.
    pub plots: Vec<ComparisonPlot>,
    /// Maps of embeddings.
    pub maps: Vec<Atlas>,
}

/// A row of the table.
#[derive(Clone, Debug, Default)]
pub struct ComparisonRow {
    /// Its name.
    pub name: String,
    /// Its numbers as they are written, one for each kind of each column.
    pub cells: Vec<String>,
    /// How many runs are done, or why there are none.
    pub note: String,
}

/// A plot of one metric.
#[derive(Clone, Debug, Default)]
pub struct ComparisonPlot {
    /// The metric.
    pub title: String,
    /// The name of the x axis; without one the plot has bars.
    pub axis: Option<String>,
    /// The curves; of bars the first names the groups.
    pub series: Vec<PlotSeries>,
}

/// Points that are connected.
#[derive(Clone, Debug, Default)]
pub struct PlotSeries {
    /// The name in the legend; empty if there is only one.
    pub name: String,
    /// The points in the order of the rows.
    pub points: Vec<PlotPoint>,
}

/// A row in a plot.
#[derive(Clone, Debug, Default)]
pub struct PlotPoint {
    /// The name of the row.
    pub name: String,
    /// Its place on the axis. A row without one is not part of a curve and is drawn as a level.
    pub x: Option<f64>,
    /// The printed value.
    pub printed: Option<f64>,
    /// The measured mean, and half the width of its interval.
    pub measured: Option<(f64, Option<f64>)>,
}

impl Comparison {
    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let plots: Vec<Markup> = self.plots.iter().filter_map(ComparisonPlot::figures).collect();
        let mut sections = vec![("numbers", "Numbers")];
        sections.extend((!plots.is_empty()).then_some(("plots", "Plots")));
        sections.extend((!self.maps.is_empty()).then_some(("maps", "Maps")));
        let body = html! {
            (head(&self.title, self.summary.as_deref(), &sections, &self.notices))
            main {
                section id="numbers" {
                    h2 { "Numbers" }
                    ul style="margin-bottom:1.25rem" { @for line in &self.conditions { li { (line) } } }
                    @if !self.rows.is_empty() { (self.table()) }
                    @if !self.facts.is_empty() { div style="margin-top:2rem" { (facts(&self.facts)) } }
                }
                @if !plots.is_empty() {
                    section id="plots" {
                        h2 { "Plots" }
                        p.caption { "Whiskers: 95 % interval. Printed numbers: dashed lines and diamonds." }
                        @for plot in plots { (plot) }
                    }
                }
                @if !self.maps.is_empty() {
                    section id="maps" {
                        h2 { "Maps" }
                        @for map in &self.maps { (atlas(map)) }
                    }
                }
            }
        };
        page(&self.title, &body)
    }

    /// Writes the page; a file at `path` is replaced atomically.
    ///
    /// # Errors
    /// [`ReportError::Write`] with the error of the system.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        write_whole(path.as_ref(), self.to_html().as_bytes())
    }

    fn table(&self) -> Markup {
        html! {
            div.scroll tabindex="0" role="region" aria-label="Numbers" {
                table.metrics {
                    thead {
                        tr {
                            th scope="col" { span.visually-hidden { "row" } }
                            @for (column, kinds) in &self.columns { th scope="col" colspan=(kinds.len()) { (column) } }
                            th scope="col" { "runs" }
                        }
                        tr {
                            th scope="col" { span.visually-hidden { "row" } }
                            @for kind in self.columns.iter().flat_map(|(_, kinds)| kinds) { th scope="col" { (kind) } }
                            th scope="col" { span.visually-hidden { "runs" } }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                th scope="row" style="min-width:11rem" { (row.name) }
                                @for cell in &row.cells { td { (cell) } }
                                td.words { (row.note) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One value of a drawing: its place, value, half interval and name.
struct Mark<'a> {
    name: &'a str,
    x: Option<f64>,
    value: f64,
    half: Option<f64>,
}

/// The marks of a series, and its name.
type Marks<'a> = Vec<(&'a str, Vec<Mark<'a>>)>;

impl ComparisonPlot {
    /// Printed and measured values have plots of their own, because their ranges differ at other scales than the paper's.
    fn figures(&self) -> Option<Markup> {
        let measured = self.marks(|point| point.measured);
        let printed = self.marks(|point| point.printed.map(|value| (value, None)));
        let drawn: Vec<(&str, bool, Marks)> = [("measured", false, measured), ("printed", true, printed)]
            .into_iter()
            .filter(|(_, _, marks)| marks.iter().any(|(_, marks)| !marks.is_empty()))
            .collect();
        if drawn.is_empty() {
            return None;
        }
        Some(html! {
            h3 style="margin-top:2rem" { (self.title) }
            div.charts {
                @for (what, is_printed, marks) in drawn {
                    figure {
                        figcaption { (what) ", %" }
                        @match &self.axis {
                            Some(axis) => (PreEscaped(curves(&marks, axis, is_printed, &format!("{}, {what}", self.title)))),
                            None => (PreEscaped(bars(&marks, is_printed, &format!("{}, {what}", self.title)))),
                        }
                    }
                }
            }
        })
    }

    fn marks(&self, of: impl Fn(&PlotPoint) -> Option<(f64, Option<f64>)>) -> Marks<'_> {
        let mark = |point: &'_ PlotPoint| of(point).filter(|(value, _)| value.is_finite());
        (self.series.iter())
            .map(|series| {
                let marks = series.points.iter().filter_map(|point| {
                    let (value, half) = mark(point)?;
                    Some(Mark { name: &point.name, x: point.x, value, half })
                });
                (series.name.as_str(), marks.collect())
            })
            .collect()
    }
}

/// Width of a drawing in its own units; letters have a height of 12.
const WIDTH: f64 = 560.0;

fn escaped(text: &str) -> String {
    html! { (text) }.into_string()
}

/// The range of the values with their intervals.
fn range(marks: &Marks) -> (f64, f64) {
    let ends = marks.iter().flat_map(|(_, marks)| marks).flat_map(|mark| {
        let half = mark.half.unwrap_or(0.0);
        [mark.value - half, mark.value + half]
    });
    ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

fn svg(height: f64, label: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\" font-size=\"12\" \
         style=\"width:100%;height:auto;fill:var(--ink);font-family:system-ui,sans-serif\">{body}</svg>",
        escaped(label)
    )
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(content))
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, style: &str) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" style=\"{style}\"/>")
}

const RULE: &str = "stroke:var(--rule)";

/// What a mark shows when the reader points at it.
fn told(mark: &Mark) -> String {
    let half = mark.half.map_or(String::new(), |half| format!(" ± {half:.2}"));
    format!("<title>{}: {:.2}{half}</title>", escaped(mark.name), mark.value)
}

/// A dot for a measured value, a diamond for a printed one.
fn dot(x: f64, y: f64, style: &str, is_printed: bool, mark: &Mark) -> String {
    match is_printed {
        true => format!(
            "<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" style=\"{style}\">{}</path>",
            y - 5.0,
            told(mark)
        ),
        false => {
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" style=\"{style}\">{}</circle>", told(mark))
        }
    }
}

/// Curves over the values of a parameter.
fn curves(series: &Marks, axis: &str, is_printed: bool, label: &str) -> String {
    const HEIGHT: f64 = 300.0;
    let (left, right, top, bottom) = (48.0, WIDTH - 14.0, 14.0, HEIGHT - 46.0);
    let (low, high) = range(series);
    let values = Axis::of_values(low, high, Scale::Linear);
    let places: Vec<f64> = series.iter().flat_map(|(_, marks)| marks).filter_map(|mark| mark.x).collect();
    let (first, last) =
        places.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
    let x_of = |x: f64| match last > first {
        true => left + 12.0 + (x - first) / (last - first) * (right - left - 24.0),
        false => (left + right) / 2.0,
    };
    let y_of = |value: f64| bottom - values.place(value) * (bottom - top);
    let mut body = String::new();
    for tick in &values.ticks {
        let y = bottom - tick.at * (bottom - top);
        body += &(line(left, y, right, y, RULE) + &text(left - 6.0, y + 4.0, "end", &tick.text));
    }
    let mut shown: Vec<f64> = places;
    shown.sort_by(f64::total_cmp);
    shown.dedup();
    let mut free = f64::NEG_INFINITY;
    for x in shown {
        if x_of(x) >= free {
            body += &text(x_of(x), bottom + 16.0, "middle", &x.to_string());
            free = x_of(x) + 9.0 * x.to_string().len() as f64;
        }
    }
    body += &text((left + right) / 2.0, HEIGHT - 8.0, "middle", axis);
    let mut legend = Vec::new();
    for (i, (name, marks)) in series.iter().enumerate() {
        let colour = format!("var(--s{})", i % COLOURS);
        let dashes = if is_printed { ";stroke-dasharray:5 4" } else { "" };
        let stroke = format!("fill:none;stroke:{colour};stroke-width:2{dashes}");
        // The marks of the next six curves, whose colours repeat, are hollow.
        let marked = match i / COLOURS % 2 {
            0 => format!("fill:{colour}"),
            _ => format!("fill:var(--page);stroke:{colour};stroke-width:2"),
        };
        let mut placed: Vec<(f64, &Mark)> = marks.iter().filter_map(|mark| Some((mark.x?, mark))).collect();
        placed.sort_by(|a, b| a.0.total_cmp(&b.0));
        let points: Vec<String> =
            placed.iter().map(|(x, mark)| format!("{:.1},{:.1}", x_of(*x), y_of(mark.value))).collect();
        body += &format!("<polyline points=\"{}\" style=\"{stroke}\"/>", points.join(" "));
        for (x, mark) in &placed {
            let x = x_of(*x);
            if let Some(half) = mark.half {
                let whisker = format!("stroke:{colour};stroke-width:1.5");
                body += &line(x, y_of(mark.value - half), x, y_of(mark.value + half), &whisker);
            }
            body += &dot(x, y_of(mark.value), &marked, is_printed, mark);
        }
        // A row without a place on the axis is a level over all of it.
        for mark in marks.iter().filter(|mark| mark.x.is_none()) {
            let y = y_of(mark.value);
            body +=
                &line(left, y, right, y, &format!("stroke:{colour};stroke-width:1.5;stroke-dasharray:2 3"));
            body += &text(right, y - 4.0, "end", mark.name);
        }
        if !name.is_empty() && !placed.is_empty() {
            legend.push((*name, marked));
        }
    }
    let mut x = left + 8.0;
    for (name, style) in legend {
        body += &format!("<rect x=\"{x:.1}\" y=\"2\" width=\"10\" height=\"10\" style=\"{style}\"/>");
        body += &text(x + 14.0, 11.0, "start", name);
        x += 30.0 + 7.0 * name.chars().count() as f64;
    }
    svg(HEIGHT, label, &body)
}

/// A bar for each row.
fn bars(series: &Marks, is_printed: bool, label: &str) -> String {
    const BAR: f64 = 22.0;
    let marks: Vec<&Mark> = series.iter().flat_map(|(_, marks)| marks).collect();
    let longest = marks.iter().map(|mark| mark.name.chars().count()).max().unwrap_or(0).min(34);
    let (left, right) = (14.0 + 6.6 * longest as f64, WIDTH - 52.0);
    let (low, high) = range(series);
    // Bars begin at zero.
    let values = Axis::of_values(low.min(0.0), high.max(0.0), Scale::Linear);
    let x_of = |value: f64| left + values.place(value) * (right - left);
    let bottom = BAR * marks.len() as f64;
    let mut body = String::new();
    for tick in &values.ticks {
        let x = left + tick.at * (right - left);
        body += &(line(x, 0.0, x, bottom, RULE) + &text(x, bottom + 16.0, "middle", &tick.text));
    }
    for (i, mark) in marks.iter().enumerate() {
        let y = BAR * i as f64;
        let name: String = match mark.name.chars().count() > longest {
            true => mark.name.chars().take(longest - 1).chain(['…']).collect(),
            false => mark.name.to_owned(),
        };
        body += &text(left - 8.0, y + 15.0, "end", &name);
        let (from, to) = (x_of(0.0).min(x_of(mark.value)), x_of(0.0).max(x_of(mark.value)));
        let colour = if is_printed { "var(--s1)" } else { "var(--s0)" };
        body += &format!(
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" style=\"fill:{colour}\">{}</rect>",
            y + 4.0,
            to - from,
            BAR - 8.0,
            told(mark)
        );
        let mut end = to;
        if let Some(half) = mark.half {
            let (a, b) = (x_of(mark.value - half), x_of(mark.value + half));
            body += &line(a, y + BAR / 2.0, b, y + BAR / 2.0, "stroke:var(--ink);stroke-width:1.5");
            end = end.max(b);
        }
        body += &text(end + 6.0, y + 15.0, "start", &format!("{:.1}", mark.value));
    }
    svg(bottom + 24.0, label, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(axis: Option<&str>, x: [Option<f64>; 2]) -> Comparison {
        let point = |name: &str, x, value: f64| PlotPoint {
            name: name.into(),
            x,
            printed: None,
            measured: Some((value, Some(0.5))),
        };
        let points = vec![point("<a>", x[0], 70.0), point("b", x[1], 75.0)];
        let series = vec![PlotSeries { name: String::new(), points }];
        let plot = ComparisonPlot { title: "recall@1".into(), axis: axis.map(str::to_owned), series };
        Comparison { title: "t".into(), plots: vec![plot], ..Comparison::default() }
    }

    #[test]
    fn names_are_escaped_and_every_value_is_told() {
        for axis in [None, Some("margin")] {
            let page = plot(axis, [Some(0.1), Some(0.2)]).to_html();
            assert!(page.contains("<title>&lt;a&gt;: 70.00 ± 0.50</title>"), "{page}");
            assert!(!page.contains("<a>") && !page.contains("NaN"));
        }
    }

    #[test]
    fn one_place_on_the_axis_and_a_level_are_drawn() {
        let page = plot(Some("margin"), [Some(0.1), None]).to_html();
        assert!(page.contains("<circle") && page.contains("stroke-dasharray:2 3") && !page.contains("NaN"));
    }

    #[test]
    fn curves_of_one_colour_have_different_marks() {
        let mut page = plot(Some("margin"), [Some(0.1), Some(0.2)]);
        let first = page.plots[0].series[0].clone();
        let curve = |i: usize| PlotSeries { name: i.to_string(), ..first.clone() };
        page.plots[0].series = (0..7).map(curve).collect();
        let page = page.to_html();
        assert_eq!(page.matches("r=\"4\" style=\"fill:var(--s0)\"").count(), 2);
        assert_eq!(page.matches("r=\"4\" style=\"fill:var(--page);stroke:var(--s0)").count(), 2);
    }

    #[test]
    fn a_plot_without_values_is_left_out() {
        let mut page = plot(None, [None, None]);
        page.plots[0].series[0].points.iter_mut().for_each(|point| point.measured = None);
        assert!(!page.to_html().contains("<svg"));
    }
}
