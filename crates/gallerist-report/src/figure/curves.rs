//! Training curves: a chart per measured thing, a line per run.

use super::axes::{Frame, LETTERS, LINE, Swatch, TITLE, legend, line_of};
use super::scene::{Anchor, At, Scene, Segment, Stroke, Tone, polyline};
use super::{Figure, INNER, MARGIN, font, paragraph};
use crate::Scale;
use crate::chart::{Chart, DOTTED, Line, Lines, drawable, remarks, thinned};

const COLUMNS: usize = 2;
const GAP: f64 = 36.0;
const PLOT_HEIGHT: f64 = 170.0;

/// The charts, two side by side. Charts without a value are left out.
pub fn curves(title: &str, charts: &[Chart]) -> Figure {
    let (mut figure, mut top) = Figure::new(title, None);
    let width = (INNER - GAP) / COLUMNS as f64;
    let drawn: Vec<(&Chart, Lines<'_>)> =
        charts.iter().filter_map(|chart| Some((chart, Lines::of(chart)?))).collect();
    for row in drawn.chunks(COLUMNS) {
        let bottoms = row.iter().enumerate().map(|(column, (chart, drawn))| {
            panel(&mut figure.scene, (MARGIN + column as f64 * (width + GAP), top), width, chart, drawn)
        });
        top = bottoms.fold(top, f64::max) + 28.0;
    }
    figure.finish(top - 28.0)
}

/// One chart below `at`; returns where it ends.
fn panel(scene: &mut Scene, at: At, width: f64, chart: &Chart, drawn: &Lines<'_>) -> f64 {
    let percent = if chart.scale == Scale::Share { ", %" } else { "" };
    let title = font::fitted(&format!("{}{percent}", chart.title), TITLE, width);
    scene.text((at.0, at.1 + TITLE), TITLE, Anchor::Start, Tone::Ink, title);
    let mut top = at.1 + TITLE + 6.0;
    if let Some(note) = &chart.note {
        top = paragraph(scene, (at.0, top), width, note);
    }
    let named = drawn.lines.iter().filter(|line| !line.points.is_empty());
    let entries: Vec<(Swatch, String)> =
        named.map(|line| (Swatch::Line(line_of(line.index)), line.name.to_owned())).collect();
    if entries.len() > 1 {
        top += legend(scene, (at.0, top), width, &entries);
    }
    top += 12.0;

    let x = drawn.step_axis();
    let mut bottom = top + PLOT_HEIGHT + 40.0;
    if let Some(y) = &drawn.y {
        let left = Frame::left_of(y);
        let frame = Frame { at: (at.0 + left, top), size: (width - left - 8.0, PLOT_HEIGHT), x: &x, y };
        frame.draw(scene, "step");
        for line in &drawn.lines {
            strokes(scene, &frame, line, chart.scale);
        }
    }
    for remark in remarks(chart, &drawn.lines) {
        bottom += LINE;
        scene.text(
            (at.0, bottom - 4.0),
            LETTERS,
            Anchor::Start,
            Tone::Soft,
            font::fitted(&remark, LETTERS, width),
        );
    }
    bottom
}

fn strokes(scene: &mut Scene, frame: &Frame<'_>, line: &Line<'_>, scale: Scale) {
    let path = |values: &mut dyn Iterator<Item = f64>| {
        let places: Vec<Option<At>> = (line.points.iter().zip(values))
            .map(|(point, value)| drawable(value, scale).then(|| frame.place(point.step as f64, value)))
            .collect();
        thinned(&places)
    };
    let stroke = line_of(line.index);
    let raw = path(&mut line.points.iter().map(|point| point.value));
    match &line.mean {
        Some(mean) => {
            scene.stroke(polyline(&raw), Stroke { width: 1.0, opacity: 0.3, dash: &[], ..stroke });
            scene.stroke(polyline(&path(&mut mean.iter().copied())), stroke);
        }
        None => {
            if line.points.len() <= DOTTED {
                scene.dots(raw.iter().copied().flatten(), Stroke::new(stroke.tone, 5.0));
            }
            scene.stroke(polyline(&raw), stroke);
        }
    }
    let bottom = frame.at.1 + frame.size.1;
    let mut faults: Vec<i64> = (line.points.iter())
        .filter(|point| !drawable(point.value, scale))
        .map(|point| frame.place(point.step as f64, 0.0).0.round() as i64)
        .collect();
    faults.dedup();
    let mark = |x: i64| [Segment::Move((x as f64, bottom)), Segment::Line((x as f64, bottom - 10.0))];
    scene.stroke(faults.into_iter().flat_map(mark).collect(), Stroke::new(Tone::Wrong, 2.0));
}
