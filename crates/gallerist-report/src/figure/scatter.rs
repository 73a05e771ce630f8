//! Points in one or several panels with a common vertical axis.

use super::axes::{Frame, LETTERS, LINE, Swatch, TITLE, legend};
use super::scene::{At, Scene, Stroke, Tone, polyline};
use super::{Figure, INNER, MARGIN, font};
use crate::Scale;
use crate::chart::Axis;

/// A mark in a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// The value on the horizontal axis; with choices, the place of a choice from 0.
    pub x: f64,
    /// The value on the vertical axis, a share.
    pub y: f64,
    /// How it is drawn.
    pub kind: MarkKind,
}

/// How a mark is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A large dot.
    Full,
    /// A small pale dot.
    Partial,
    /// A ring, in another colour.
    Best,
}

/// One panel.
#[derive(Clone, Debug, Default)]
pub struct Scatter {
    /// The name of the horizontal axis.
    pub name: String,
    /// Whether the horizontal axis is logarithmic.
    pub log: bool,
    /// The names of the values; empty for numbers.
    pub choices: Vec<String>,
    /// The marks.
    pub marks: Vec<Mark>,
    /// A line, such as the best value so far.
    pub line: Vec<(f64, f64)>,
}

/// Panels in two columns, or one panel over the whole width. `kinds` are the entries of the legend.
///
/// ```
/// use gallerist_report::figure::{Mark, MarkKind, Scatter, scatter};
///
/// let mark = |x, y| Mark { x, y, kind: MarkKind::Full };
/// let panel = Scatter { name: "margin".into(), marks: vec![mark(0.1, 0.5), mark(0.4, 0.6)], ..Scatter::default() };
/// let figure = scatter("Margin", "MAP@R, %", &[(MarkKind::Full, "all folds".into())], &[panel]);
/// assert!(figure.to_svg(None).contains("margin"));
/// ```
pub fn scatter(title: &str, note: &str, kinds: &[(MarkKind, String)], panels: &[Scatter]) -> Figure {
    let (mut figure, mut top) = Figure::new(title, Some(note));
    let entries: Vec<(Swatch, String)> =
        kinds.iter().map(|(kind, name)| (Swatch::Dot(stroke(*kind).tone), name.clone())).collect();
    top += legend(&mut figure.scene, (MARGIN, top), INNER, &entries) + 14.0;
    let values =
        || panels.iter().flat_map(|panel| panel.marks.iter().map(|mark| mark.y)).filter(|y| y.is_finite());
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return figure.finish(top);
    }
    let y = Axis::of_values(low, high, Scale::Share);
    let columns = if panels.len() > 1 { 2 } else { 1 };
    let gap = 28.0;
    let width = (INNER - gap * (columns - 1) as f64) / columns as f64;
    let height = if columns > 1 { 170.0 } else { 240.0 };
    let mut bottom = top;
    for (i, of) in panels.iter().enumerate() {
        let at = (MARGIN + (width + gap) * (i % columns) as f64, top);
        bottom = panel(&mut figure.scene, at, (width, height), of, &y);
        if i % columns == columns - 1 {
            top = bottom + 22.0;
        }
    }
    figure.finish(bottom)
}

fn stroke(kind: MarkKind) -> Stroke {
    match kind {
        MarkKind::Full => Stroke { opacity: 0.8, ..Stroke::new(Tone::Series(0), 8.0) },
        MarkKind::Partial => Stroke { opacity: 0.75, ..Stroke::new(Tone::Soft, 5.0) },
        MarkKind::Best => Stroke::new(Tone::Series(1), 12.0),
    }
}

fn panel(scene: &mut Scene, at: At, size: At, of: &Scatter, y: &Axis) -> f64 {
    let left = Frame::left_of(y);
    let inner = (size.0 - left - 8.0, size.1);
    let x = if of.choices.is_empty() {
        let xs = || of.marks.iter().map(|mark| mark.x).chain(of.line.iter().map(|point| point.0));
        let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        let scale = if of.log && low > 0.0 { Scale::Log } else { Scale::Linear };
        if low > high { Axis::plain(0.0, 1.0) } else { Axis::of_values(low, high, scale) }
    } else {
        let most = inner.0 / of.choices.len() as f64 - 8.0;
        Axis::of_names(&of.choices.iter().map(|name| font::fitted(name, LETTERS, most)).collect::<Vec<_>>())
    };
    let frame = Frame { at: (at.0 + left, at.1 + 8.0), size: inner, x: &x, y };
    frame.draw(scene, &font::fitted(&of.name, TITLE, inner.0));
    let line: Vec<Option<At>> = of.line.iter().map(|&(x, y)| Some(frame.place(x, y))).collect();
    scene.stroke(polyline(&line), Stroke { opacity: 0.8, ..Stroke::new(Tone::Series(1), 1.75) });
    for kind in [MarkKind::Partial, MarkKind::Full, MarkKind::Best] {
        let marks = of.marks.iter().enumerate().filter(|(_, mark)| mark.kind == kind && mark.y.is_finite());
        let places = marks.map(|(i, mark)| {
            // Marks of one choice are spread over its width, so that they do not cover each other.
            let spread =
                if of.choices.is_empty() { 0.0 } else { 0.5 + 0.5 * ((i as f64 * 0.618_034) % 1.0 - 0.5) };
            frame.place(mark.x + spread, mark.y)
        });
        let places: Vec<At> = places.collect();
        scene.dots(places.iter().copied(), stroke(kind));
        if kind == MarkKind::Best {
            scene.dots(places, Stroke::new(Tone::Page, 5.0));
        }
    }
    at.1 + 8.0 + size.1 + 36.0 + LINE / 2.0
}
