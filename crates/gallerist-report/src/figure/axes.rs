//! A rectangle with axes, and the legend above it.

use super::font::{fitted, width};
use super::scene::{Anchor, At, Scene, Segment, Stroke, Tone, rectangle};
use crate::chart::{Axis, DASHES, dash};

pub(super) const LETTERS: f64 = 12.0;
pub(super) const TITLE: f64 = 15.0;
/// The distance between two lines of text.
pub(super) const LINE: f64 = 17.0;

/// The stroke of a chart's line: its colour and its dash pattern.
pub(super) fn line_of(series: usize) -> Stroke {
    const PATTERNS: [&[f64]; DASHES] =
        [&[], &[7.0, 5.0], &[1.0, 5.0], &[9.0, 5.0, 1.0, 5.0], &[12.0, 5.0], &[4.0, 4.0, 1.0, 4.0]];
    Stroke { dash: PATTERNS[dash(series)], ..Stroke::new(Tone::Series(series), 1.75) }
}

/// A rectangle with an axis on two sides.
pub(super) struct Frame<'a> {
    pub(super) at: At,
    pub(super) size: At,
    pub(super) x: &'a Axis,
    pub(super) y: &'a Axis,
}

impl Frame<'_> {
    /// Where a pair of values is drawn.
    pub(super) fn place(&self, x: f64, y: f64) -> At {
        (self.at.0 + self.size.0 * self.x.place(x), self.at.1 + self.size.1 * (1.0 - self.y.place(y)))
    }

    /// Grid, marks and the name of the horizontal axis.
    pub(super) fn draw(&self, scene: &mut Scene, x_name: &str) {
        let (left, bottom) = (self.at.0, self.at.1 + self.size.1);
        let across = |at: f64| {
            let y = bottom - self.size.1 * at;
            [Segment::Move((left, y)), Segment::Line((left + self.size.0, y))]
        };
        scene.stroke(
            self.y.ticks.iter().flat_map(|tick| across(tick.at)).collect(),
            Stroke::new(Tone::Rule, 1.0),
        );
        for tick in &self.y.ticks {
            let at = (left - 7.0, bottom - self.size.1 * tick.at + 4.0);
            scene.text(at, LETTERS, Anchor::End, Tone::Soft, &tick.text);
        }
        let mut free = f64::NEG_INFINITY;
        for tick in &self.x.ticks {
            let (centre, half) = (left + self.size.0 * tick.at, width(&tick.text, LETTERS) / 2.0);
            // Neighbouring marks do not touch.
            if centre - half > free + 6.0 {
                free = centre + half;
                scene.text((centre, bottom + 17.0), LETTERS, Anchor::Middle, Tone::Soft, &tick.text);
            }
        }
        let middle = (left + self.size.0 / 2.0, bottom + 34.0);
        scene.text(middle, LETTERS, Anchor::Middle, Tone::Soft, x_name);
    }

    /// The width of the texts of the vertical axis.
    pub(super) fn left_of(y: &Axis) -> f64 {
        y.ticks.iter().map(|tick| width(&tick.text, LETTERS)).fold(0.0, f64::max) + 12.0
    }
}

/// How a legend shows an entry.
#[derive(Clone, Copy)]
pub(super) enum Swatch {
    Line(Stroke),
    Area(Tone),
    Dot(Tone),
}

/// The entries in lines of width at most `most` below `at`; returns the height.
pub(super) fn legend(scene: &mut Scene, at: At, most: f64, entries: &[(Swatch, String)]) -> f64 {
    const SWATCH: f64 = 26.0;
    let (mut x, mut lines) = (0.0, 1.0);
    for (swatch, name) in entries {
        let name = fitted(name, LETTERS, most - SWATCH - 6.0);
        let taken = SWATCH + 6.0 + width(&name, LETTERS) * 1.04;
        if x > 0.0 && x + taken > most {
            x = 0.0;
            lines += 1.0;
        }
        let baseline = at.1 + lines * LINE - 4.0;
        let (left, middle) = (at.0 + x, baseline - 4.0);
        match *swatch {
            Swatch::Line(stroke) => {
                scene.stroke(
                    vec![Segment::Move((left, middle)), Segment::Line((left + SWATCH, middle))],
                    stroke,
                );
            }
            Swatch::Area(tone) => {
                let area = rectangle((left + 8.0, middle - 5.0), (SWATCH - 8.0, 10.0));
                scene.fill(area.clone(), tone, 0.35);
                scene.stroke(area, Stroke::new(tone, 1.5));
            }
            Swatch::Dot(tone) => scene.dots([(left + SWATCH - 8.0, middle)], Stroke::new(tone, 8.0)),
        }
        scene.text((left + SWATCH + 6.0, baseline), LETTERS, Anchor::Start, Tone::Ink, name);
        x += taken + 16.0;
    }
    if entries.is_empty() { 0.0 } else { lines * LINE }
}
