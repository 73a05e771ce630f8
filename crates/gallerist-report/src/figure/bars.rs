//! Horizontal bars of shares.

use super::axes::{Frame, LETTERS, LINE};
use super::scene::{Anchor, Segment, Stroke, Tone, rectangle};
use super::{Figure, INNER, MARGIN, font};
use crate::Scale;
use crate::chart::Axis;
use crate::number::percent;

/// One bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its length, a share from 0 to 1.
    pub value: f64,
    /// A value to compare with, drawn as a line across the bar.
    pub mark: Option<f64>,
}

/// Bars below one another, in the given order; `axis` is the name of the values.
///
/// ```
/// use gallerist_report::figure::{Bar, bars};
///
/// let bar = Bar { name: "margin".into(), value: 0.7, mark: Some(0.2) };
/// assert!(bars("Importance", "", "share of the variance, %", &[bar]).to_svg(None).contains("70"));
/// ```
pub fn bars(title: &str, note: &str, axis: &str, all: &[Bar]) -> Figure {
    const ROW: f64 = 30.0;
    let (mut figure, top) = Figure::new(title, Some(note));
    let names = all.iter().map(|bar| font::width(&bar.name, LETTERS)).fold(0.0, f64::max);
    let left = (names * 1.05 + 12.0).min(INNER * 0.4);
    let highest = all.iter().flat_map(|bar| [Some(bar.value), bar.mark]).flatten().fold(0.0, f64::max);
    let x = Axis::of_values(0.0, highest, Scale::Share);
    let y = Axis::plain(0.0, 1.0);
    let height = ROW * all.len() as f64;
    let frame = Frame { at: (MARGIN + left, top), size: (INNER - left - 60.0, height), x: &x, y: &y };
    frame.draw(&mut figure.scene, axis);
    for (i, bar) in all.iter().enumerate() {
        let middle = top + ROW * (i as f64 + 0.5);
        let name = font::fitted(&bar.name, LETTERS, left - 12.0);
        let scene = &mut figure.scene;
        scene.text((MARGIN + left - 8.0, middle + 4.0), LETTERS, Anchor::End, Tone::Ink, name);
        let (start, _) = frame.place(0.0, 0.0);
        let (end, _) = frame.place(bar.value.max(0.0), 0.0);
        scene.fill(rectangle((start, middle - 8.0), (end - start, 16.0)), Tone::Series(0), 0.75);
        // The text is after the bar, or after the mark where that is in its way.
        let near = |at: &f64| (end - 8.0..end + 48.0).contains(at);
        let far = bar.mark.map(|mark| frame.place(mark, 0.0).0).filter(near).map_or(end, |at| at.max(end));
        if let Some(mark) = bar.mark {
            let (at, _) = frame.place(mark, 0.0);
            let line = vec![Segment::Move((at, middle - 11.0)), Segment::Line((at, middle + 11.0))];
            scene.stroke(line, Stroke::new(Tone::Series(1), 2.0));
        }
        let text = format!("{} %", percent(bar.value, 0));
        scene.text((far + 8.0, middle + 4.0), LETTERS, Anchor::Start, Tone::Ink, text);
    }
    figure.finish(top + height + 36.0 + LINE / 2.0)
}
