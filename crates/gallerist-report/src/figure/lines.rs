//! One plot of several named lines, each in its colour and dash.

use super::axes::{Frame, Swatch, legend, line_of};
use super::scene::{At, Stroke, polyline};
use super::{Figure, INNER, MARGIN};
use crate::chart::Axis;

const PLOT_HEIGHT: f64 = 340.0;

/// A named line through places.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) points: Vec<At>,
}

/// The lines on shared axes, a dot for a line of one point; points outside an axis are the caller's fault.
pub(super) fn plot(title: &str, note: &str, lines: &[Named], (x, x_name): (&Axis, &str), y: &Axis) -> Figure {
    let (mut figure, mut top) = Figure::new(title, Some(note));
    let entries: Vec<(Swatch, String)> =
        lines.iter().enumerate().map(|(i, line)| (Swatch::Line(line_of(i)), line.name.clone())).collect();
    top += legend(&mut figure.scene, (MARGIN, top), INNER, &entries) + 14.0;
    let left = Frame::left_of(y);
    let frame = Frame { at: (MARGIN + left, top), size: (INNER - left - 8.0, PLOT_HEIGHT), x, y };
    frame.draw(&mut figure.scene, x_name);
    for (i, line) in lines.iter().enumerate() {
        let places: Vec<Option<At>> = line.points.iter().map(|&(x, y)| Some(frame.place(x, y))).collect();
        match places.as_slice() {
            // One place has no line.
            [Some(only)] => figure.scene.dots([*only], Stroke::new(line_of(i).tone, 5.0)),
            _ => figure.scene.stroke(polyline(&places), line_of(i)),
        }
    }
    figure.finish(top + PLOT_HEIGHT + 38.0)
}
