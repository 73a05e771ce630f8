//! A chart on a page: text as HTML, lines as SVG that is stretched to the available size.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::data::{Chart, Point, Scale};
use super::lines::{DOTTED, Line, Lines, drawable, remarks, thinned};
use super::scale::Axis;
use crate::number::{percent, significant};

/// The size of the drawing in its own units; the page stretches it.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 400.0;

/// The largest number of values per series that the reader can point at.
const POINTED: usize = 400;

/// The number of rows of the table below a chart.
const ROWS: usize = 12;

/// The quantity on the horizontal axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// The training step.
    Step,
    /// The K of Recall@K.
    K,
}

/// The figure of `chart`, or nothing if no series has a value.
pub(crate) fn figure(chart: &Chart, against: Against) -> Markup {
    let Some(drawn) = Lines::of(chart) else {
        return html! {};
    };
    let x = match against {
        Against::Step => drawn.step_axis(),
        Against::K => Axis::of_ks(&drawn.steps),
    };
    let Lines { lines, steps, y } = drawn;
    let (scale, first, last) = (chart.scale, steps[0], steps[steps.len() - 1]);
    let shown = match against {
        Against::Step => last,
        Against::K => first,
    };
    let letters =
        (y.iter().flat_map(|axis| &axis.ticks)).map(|tick| tick.text.chars().count()).max().unwrap_or(0);
    let x_name = match against {
        Against::Step => "step",
        Against::K => "K",
    };

    html! {
        figure.chart {
            figcaption {
                div.title {
                    h3 { (chart.title) @if scale == Scale::Share { span.unit { " %" } } }
                    p.at aria-live="polite" { (x_name) (if against == Against::K { " = " } else { " " }) b { (shown) } span.epoch { (epoch_text(&lines, shown)) } }
                }
                @if let Some(note) = &chart.note { p.note { (note) } }
            }
            ul.legend aria-live="polite" {
                @for line in &lines {
                    (legend(line, shown, scale))
                }
            }
            div.plot tabindex="0" role="group"
                aria-label={ (chart.title) " against " (x_name) ". The left and right arrow keys read its values." }
                data-from=(first) data-to=(last) data-log[x.is_log()]
                style={ "--letters:" (letters) "ch" }
            {
                @if let Some(y) = &y {
                    div.y aria-hidden="true" {
                        @for tick in &y.ticks {
                            span style={ "bottom:" (css(tick.at)) } { (tick.text) }
                        }
                    }
                }
                div.area {
                    svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                        @if let Some(y) = &y {
                            path.grid d=(grid(y)) {}
                            @for line in &lines { (strokes(line, &x, y, scale)) }
                        } @else {
                            path.grid d={ "M0 " (HEIGHT) "H" (WIDTH) } {}
                        }
                        @for line in &lines { (faults(line, &x, scale)) }
                    }
                    div.cursor hidden {}
                }
                div.x aria-hidden="true" {
                    @for tick in &x.ticks {
                        span style={ "left:" (css(tick.at)) } { (tick.text) }
                    }
                }
            }
            @let remarks = remarks(chart, &lines);
            @if !remarks.is_empty() {
                ul.remarks { @for remark in remarks { li { (remark) } } }
            }
            (table(&chart.title, &lines, &steps, scale, x_name))
        }
    }
}

fn text(value: f64, scale: Scale) -> String {
    match scale {
        Scale::Share => percent(value, 2),
        Scale::Linear | Scale::Log => significant(value, 4),
    }
}

fn css(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

fn epoch_text(lines: &[Line<'_>], step: u64) -> String {
    lines
        .iter()
        .find_map(|line| line.points[line.at(step)?].epoch)
        .map(|epoch| format!(", epoch {epoch}"))
        .unwrap_or_default()
}

/// The name of a series with its value at `step`. The script replaces this value by others from `data-points`.
fn legend(line: &Line<'_>, step: u64, scale: Scale) -> Markup {
    let at = line.at(step);
    let value = at.map_or("–".to_owned(), |i| text(line.points[i].value, scale));
    let mean = (line.mean.as_ref()).map(|mean| at.map_or("–".to_owned(), |i| text(mean[i], scale)));
    html! {
        li data-points=(pointed(line, scale)) {
            svg.swatch.(line.class) viewBox="0 0 24 8" aria-hidden="true" { path.line d="M1 4H23" {} }
            (line.name) " " b.value { (value) }
            @if let Some(mean) = mean { ", mean " b.mean { (mean) } }
        }
    }
}

/// `step,epoch,value,mean` of up to [`POINTED`] values, formatted.
fn pointed(line: &Line<'_>, scale: Scale) -> String {
    let mut all = String::new();
    for index in spread(line.points.len(), POINTED) {
        let point = line.points[index];
        if !all.is_empty() {
            all.push(';');
        }
        let epoch = point.epoch.map(|e| e.to_string()).unwrap_or_default();
        write!(all, "{},{epoch},{}", point.step, text(point.value, scale))
            .expect("a string takes every write");
        if let Some(mean) = &line.mean {
            all.push(',');
            all.push_str(&text(mean[index], scale));
        }
    }
    all
}

/// Up to `most` indices below `len`, evenly spread, with the first and the last.
fn spread(len: usize, most: usize) -> impl Iterator<Item = usize> {
    let picked = len.min(most);
    (0..picked).map(move |i| match picked {
        1 => len - 1,
        _ => i * (len - 1) / (picked - 1),
    })
}

fn grid(y: &Axis) -> String {
    let mut path = String::new();
    for tick in &y.ticks {
        write!(path, "M0 {:.1}H{WIDTH}", HEIGHT * (1.0 - tick.at)).expect("a string takes every write");
    }
    path
}

/// The strokes of one series: its values, pale if a mean is drawn over them.
fn strokes(line: &Line<'_>, x: &Axis, y: &Axis, scale: Scale) -> Markup {
    let place = |point: &Point, value: f64| {
        drawable(value, scale).then(|| (WIDTH * x.place(point.step as f64), HEIGHT * (1.0 - y.place(value))))
    };
    let places: Vec<_> = line.points.iter().map(|p| place(p, p.value)).collect();
    let mean: Option<Vec<_>> =
        (line.mean.as_ref()).map(|mean| line.points.iter().zip(mean).map(|(p, &m)| place(p, m)).collect());
    html! {
        g.(line.class) {
            path.line.raw[mean.is_some()] d=(path(&places)) {}
            @if let Some(mean) = mean {
                path.line d=(path(&mean)) {}
            } @else if places.len() <= DOTTED {
                path.dots d=(dots(&places)) {}
            }
        }
    }
}

/// A path through `places`, with a gap at each `None`.
fn path(places: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    let mut pen_is_down = false;
    for place in thinned(places) {
        if let Some((x, y)) = place {
            let command = if pen_is_down { 'L' } else { 'M' };
            write!(path, "{command}{x:.1} {y:.1}").expect("a string takes every write");
        }
        pen_is_down = place.is_some();
    }
    path
}

/// A dot at each place, as a line of length 0 with round ends: it stays round when the drawing is stretched.
fn dots(places: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    for (x, y) in places.iter().flatten() {
        write!(path, "M{x:.1} {y:.1}h0").expect("a string takes every write");
    }
    path
}

/// Short marks at the bottom where values could not be drawn.
fn faults(line: &Line<'_>, x: &Axis, scale: Scale) -> Markup {
    let mut places: Vec<u32> = (line.points.iter())
        .filter(|point| !drawable(point.value, scale))
        .map(|point| (WIDTH * x.place(point.step as f64)).round() as u32)
        .collect();
    places.dedup();
    let mut path = String::new();
    for place in &places {
        write!(path, "M{place} {HEIGHT}v-24").expect("a string takes every write");
    }
    html! { @if !places.is_empty() { path.fault d=(path) {} } }
}

/// The values as a table, for readers who use neither pointer nor sight.
fn table(title: &str, lines: &[Line<'_>], steps: &[u64], scale: Scale, x_name: &str) -> Markup {
    let with_epochs = lines.iter().any(|l| l.points.iter().any(|p| p.epoch.is_some()));
    html! {
        details.values {
            summary { "Values" }
            div.scroll tabindex="0" role="region" aria-label={ "Values of " (title) } {
                table {
                    thead {
                        tr {
                            th scope="col" { (x_name) }
                            @if with_epochs { th scope="col" { "epoch" } }
                            @for line in lines { th scope="col" { (line.name) } }
                        }
                    }
                    tbody {
                        @for step in spread(steps.len(), ROWS).map(|index| steps[index]) {
                            tr {
                                th scope="row" { (step) }
                                @if with_epochs {
                                    td { (epoch_text(lines, step).trim_start_matches(", epoch ")) }
                                }
                                @for line in lines {
                                    td { (line.at(step).map_or("–".to_owned(), |i| text(line.points[i].value, scale))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::Series;
    use super::*;

    fn chart(points: Vec<(u64, f64)>) -> Chart {
        Chart { title: "Loss".into(), series: vec![Series::new("loss", points)], ..Chart::default() }
    }

    fn drawn(chart: &Chart) -> String {
        figure(chart, Against::Step).into_string()
    }

    #[test]
    fn a_chart_without_a_value_is_not_drawn() {
        assert_eq!(drawn(&Chart::default()), "");
        assert_eq!(drawn(&chart(vec![])), "");
    }

    #[test]
    fn the_ends_of_a_line_are_the_corners_of_its_range() {
        let drawn = drawn(&chart(vec![(0, 0.0), (5, 1.0), (10, 2.0)]));
        assert!(drawn.contains(r#"d="M0.0 400.0L500.0 200.0L1000.0 0.0""#), "{drawn}");
        assert!(drawn.contains("0,,0;5,,1.000;10,,2.000"));
    }

    #[test]
    fn lines_of_one_colour_have_different_patterns() {
        let line = |i: u32| Series::new(i.to_string(), [(0, 0.0), (1, f64::from(i))]);
        let drawn = drawn(&Chart { series: (0..36).map(line).collect(), ..Chart::default() });
        let classes: Vec<&str> =
            drawn.split("<g class=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(classes[..8], ["s0 d0", "s1 d1", "s2 d2", "s3 d3", "s4 d4", "s5 d5", "s0 d1", "s1 d2"]);
        let different: std::collections::BTreeSet<&str> = classes.iter().copied().collect();
        assert_eq!(different.len(), 36);
    }

    #[test]
    fn one_step_is_a_dot_in_the_middle() {
        let drawn = drawn(&chart(vec![(7, 3.0)]));
        assert!(drawn.contains("M500.0 0.0h0"), "{drawn}");
    }

    #[test]
    fn values_that_are_not_finite_break_the_line_and_are_counted() {
        let values = [1.0, 0.5, f64::NAN, 0.2, f64::INFINITY];
        let drawn = drawn(&chart((0..).zip(values).collect()));
        let line = drawn.split("path class=\"line\" d=\"").last().unwrap();
        let line = line.split('"').next().unwrap();
        assert_eq!(line.matches('M').count(), 2, "{line}");
        assert!(!drawn.contains("NaN "), "no NaN among coordinates: {drawn}");
        assert!(drawn.contains("loss: not finite in 2 of 5 values, first at step 2."));
        assert!(drawn.contains("2,,NaN"));
        assert_eq!(drawn.matches("class=\"fault\"").count(), 1);
    }

    #[test]
    fn a_series_of_nothing_but_nan_is_still_named() {
        let drawn = drawn(&chart(vec![(1, f64::NAN), (2, f64::NAN)]));
        assert!(drawn.contains("loss: not finite in 2 of 2 values, first at step 1."));
        assert!(!drawn.contains("class=\"line raw\""));
    }

    #[test]
    fn values_that_are_not_positive_are_counted_on_a_logarithmic_scale() {
        let mut chart = chart(vec![(1, 0.0), (2, 0.1), (3, -1.0), (4, 10.0)]);
        chart.scale = Scale::Log;
        let drawn = drawn(&chart);
        assert!(drawn.contains("not on this scale, in 2 of 4 values"));
    }

    #[test]
    fn the_later_of_two_values_of_a_step_counts() {
        let drawn = drawn(&chart(vec![(2, 5.0), (1, 1.0), (2, 3.0)]));
        assert!(drawn.contains("1,,1.000;2,,3.000"));
        assert!(drawn.contains("steps logged more than once: 1;"));
    }

    #[test]
    fn a_long_line_keeps_its_extremes_and_its_ends() {
        let mut points: Vec<(u64, f64)> = (0..50_000).map(|i| (i, 1.0)).collect();
        points[30_001].1 = 9.0;
        points[30_002].1 = 0.0;
        let mut chart = chart(points);
        chart.smooth = true;
        let drawn = drawn(&chart);
        assert!(drawn.len() < 40_000, "{} bytes", drawn.len());
        let raw = drawn.split("line raw\" d=\"").nth(1).unwrap();
        let raw = raw.split('"').next().unwrap();
        assert!(raw.contains("L600.0 40.0"), "the spike");
        assert!(raw.contains("L600.1 400.0"), "the dip");
        assert!(drawn.contains("the mean of 1251 around each"));
        assert!(drawn.contains(";49999,,1.000,1.000"));
    }

    #[test]
    fn spread_indices_hold_both_ends() {
        let cases: [(usize, usize, &[usize]); 5] =
            [(0, 3, &[]), (1, 3, &[0]), (3, 3, &[0, 1, 2]), (9, 3, &[0, 4, 8]), (5, 1, &[4])];
        for (len, most, wanted) in cases {
            assert_eq!(spread(len, most).collect::<Vec<_>>(), wanted);
        }
    }
}
