//! Histograms of the distances of pairs of the same class and of pairs of different classes.

use super::axes::{Frame, LINE, Swatch, TITLE, legend};
use super::scene::{Anchor, At, Scene, Segment, Stroke, Tone};
use super::{Figure, INNER, MARGIN, font};
use crate::Scale;
use crate::chart::Axis;
use crate::number::{count, percent};

/// Positives are blue and drawn through, negatives orange and dashed.
const POSITIVE: Tone = Tone::Series(0);
const NEGATIVE: Tone = Tone::Series(1);

const PLOT_HEIGHT: f64 = 190.0;

/// The two histograms of one run, over the same bins.
#[derive(Clone, Debug, Default)]
pub struct Distances {
    /// The run.
    pub name: String,
    /// The distance at which the last bin ends; the first begins at 0.
    pub most: f64,
    /// Pairs of one class in each bin.
    pub positives: Vec<u64>,
    /// Pairs of different classes in each bin.
    pub negatives: Vec<u64>,
}

impl Distances {
    /// Histograms of `bins` bins from 0 to the largest distance there is.
    ///
    /// ```
    /// use gallerist_report::figure::Distances;
    ///
    /// let run = Distances::of("run", &[0.1, 0.1, 0.3], &[0.3, 0.4, 0.4], 4);
    /// assert_eq!(run.positives, [0, 2, 0, 1]);
    /// assert_eq!(run.negatives, [0, 0, 0, 3]);
    /// assert!((run.overlap() - 1.0 / 3.0).abs() < 1e-12);
    /// ```
    pub fn of(name: impl Into<String>, positives: &[f32], negatives: &[f32], bins: usize) -> Self {
        let most = positives.iter().chain(negatives).copied().fold(0.0, f32::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let histogram = |distances: &[f32]| {
            let mut counts = vec![0; bins.max(1)];
            let last = counts.len() - 1;
            for distance in distances {
                counts[((distance / most * bins as f32) as usize).min(last)] += 1;
            }
            counts
        };
        Self {
            name: name.into(),
            most: f64::from(most),
            positives: histogram(positives),
            negatives: histogram(negatives),
        }
    }

    /// The area that the two histograms share when each has the area 1: 0 where no bin holds both, 1
    /// where they are the same.
    pub fn overlap(&self) -> f64 {
        let (positives, negatives) = (shares(&self.positives), shares(&self.negatives));
        positives.iter().zip(&negatives).map(|(a, b)| a.min(*b)).sum()
    }
}

fn shares(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1) as f64;
    counts.iter().map(|&count| count as f64 / all).collect()
}

/// The histograms of each run below one another, on one scale of distances.
pub fn distances(title: &str, note: &str, runs: &[Distances]) -> Figure {
    let (mut figure, mut top) = Figure::new(title, Some(note));
    let most = runs.iter().map(|run| run.most).fold(0.0, f64::max);
    for run in runs {
        top = panel(&mut figure.scene, top, run, most) + 24.0;
    }
    figure.finish(top - 24.0)
}

fn panel(scene: &mut Scene, mut top: f64, run: &Distances, most: f64) -> f64 {
    let name = font::fitted(&run.name, TITLE, INNER - 180.0);
    scene.text((MARGIN, top + TITLE), TITLE, Anchor::Start, Tone::Ink, name);
    let overlap = format!("overlap {} %", percent(run.overlap(), 1));
    scene.text((MARGIN + INNER, top + TITLE), TITLE, Anchor::End, Tone::Ink, overlap);
    top += TITLE + 6.0;
    let pairs = |counts: &[u64]| count(counts.iter().sum());
    let entries = [
        (Swatch::Area(POSITIVE), format!("same class, {} pairs", pairs(&run.positives))),
        (Swatch::Area(NEGATIVE), format!("different classes, {} pairs", pairs(&run.negatives))),
    ];
    top += legend(scene, (MARGIN, top), INNER, &entries) + 10.0;

    let (positives, negatives) = (shares(&run.positives), shares(&run.negatives));
    let high = positives.iter().chain(&negatives).copied().fold(0.0, f64::max);
    let (x, y) = (Axis::of_values(0.0, most, Scale::Linear), Axis::of_values(0.0, high, Scale::Share));
    let left = Frame::left_of(&y);
    let frame = Frame { at: (MARGIN + left, top), size: (INNER - left - 8.0, PLOT_HEIGHT), x: &x, y: &y };
    frame.draw(scene, "distance; % of the pairs of each kind");
    for (tone, dash, shares) in [(NEGATIVE, &[7.0, 5.0][..], &negatives), (POSITIVE, &[][..], &positives)] {
        let outline = steps(&frame, shares, run.most);
        let mut area = outline.clone();
        area.push(Segment::Close);
        scene.fill(area, tone, 0.3);
        scene.stroke(outline, Stroke { dash, ..Stroke::new(tone, 1.5) });
    }
    top + PLOT_HEIGHT + 36.0 + LINE / 2.0
}

/// The outline of a histogram, from the ground to the ground.
fn steps(frame: &Frame<'_>, shares: &[f64], most: f64) -> Vec<Segment> {
    let width = most / shares.len() as f64;
    let mut places: Vec<At> = vec![(0.0, 0.0)];
    for (bin, &share) in shares.iter().enumerate() {
        places.extend([(bin as f64 * width, share), ((bin + 1) as f64 * width, share)]);
    }
    places.push((most, 0.0));
    let place = |&(x, y): &At| frame.place(x, y);
    let mut path: Vec<Segment> = places.iter().map(|at| Segment::Line(place(at))).collect();
    path[0] = Segment::Move(place(&places[0]));
    path
}
