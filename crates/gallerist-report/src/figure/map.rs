//! Maps of embeddings: a dot for each, coloured by class, with thumbnails where they fit.

use super::axes::{Frame, LETTERS, Swatch, legend};
use super::scene::{Anchor, At, HUES, Scene, Shape, Stroke, Tone, rectangle};
use super::{Figure, INNER, MARGIN, font};
use crate::chart::Axis;
use crate::number::count;
use crate::{Picture, Scale};

const THUMBNAIL: f64 = 30.0;
/// The margin around the outermost dots.
const PAD: f64 = 8.0;
/// The most thumbnails on a map, so that its file stays small.
const MOST_THUMBNAILS: usize = 400;
/// Classes up to this number have their names on the map.
const NAMED: usize = 30;

/// The content of a map.
#[derive(Clone, Debug, Default)]
pub struct MapFigure {
    /// The heading.
    pub title: String,
    /// The method and the data, in a sentence.
    pub note: String,
    /// A point for each embedding.
    pub points: Vec<[f32; 2]>,
    /// The class of each, an index into `names`; empty where classes are not known.
    pub classes: Vec<u32>,
    /// The names of the classes.
    pub names: Vec<String>,
    /// Whether the axes have a scale, for embeddings of two dimensions.
    pub scaled: bool,
}

/// A map. `thumbnail` returns the picture of an embedding; it is called only where a thumbnail fits.
pub fn map(map: &MapFigure, thumbnail: &mut dyn FnMut(usize) -> Option<Picture>) -> Figure {
    let mut note = map.note.clone();
    if map.names.len() > HUES {
        note.push_str(&format!(" {} classes share {HUES} colours.", count(map.names.len() as u64)));
    }
    let (mut figure, mut top) = Figure::new(&map.title, Some(&note));
    let scene = &mut figure.scene;
    if (2..=HUES).contains(&map.names.len()) {
        let entries: Vec<(Swatch, String)> =
            map.names.iter().enumerate().map(|(i, name)| (Swatch::Dot(Tone::Hue(i)), name.clone())).collect();
        top += legend(scene, (MARGIN, top), INNER, &entries) + 8.0;
    }

    let range = |axis: usize| {
        let values = || map.points.iter().map(|point| f64::from(point[axis]));
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if low <= high { (low, high) } else { (0.0, 1.0) }
    };
    let (x, y) = (range(0), range(1));
    let (x, y, left) = if map.scaled {
        let (x, y) = (Axis::of_values(x.0, x.1, Scale::Linear), Axis::of_values(y.0, y.1, Scale::Linear));
        let left = Frame::left_of(&y);
        (x, y, left)
    } else {
        (Axis::plain(x.0, x.1), Axis::plain(y.0, y.1), 0.0)
    };
    // The same length in both directions, but no map is a strip.
    let most = INNER - left - 2.0 * PAD;
    let height = (most * y.span() / x.span().max(f64::MIN_POSITIVE)).clamp(0.4 * most, 1.1 * most);
    let width = (height * x.span() / y.span().max(f64::MIN_POSITIVE)).clamp(0.4 * most, most);
    let frame = Frame { at: (MARGIN + left + PAD, top + PAD), size: (width, height), x: &x, y: &y };
    if map.scaled {
        frame.draw(scene, "");
    }
    let places: Vec<At> =
        map.points.iter().map(|point| frame.place(f64::from(point[0]), f64::from(point[1]))).collect();

    dots(scene, map, &places);
    thumbnails(scene, map, &places, &frame, thumbnail);
    if (2..=NAMED).contains(&map.names.len()) {
        names(scene, map, &places, &frame);
    }
    let letters = if map.scaled { 18.0 } else { 0.0 };
    figure.finish(top + height + 2.0 * PAD + letters)
}

fn tone(map: &MapFigure, i: usize) -> Tone {
    map.classes.get(i).map_or(Tone::Series(0), |&class| Tone::Hue(class as usize))
}

/// The dots, smaller the more there are, a path for each colour.
fn dots(scene: &mut Scene, map: &MapFigure, places: &[At]) {
    let size = (220.0 / (places.len().max(1) as f64).sqrt()).clamp(2.2, 7.0);
    for hue in 0..HUES.min(map.names.len().max(1)) {
        let of_hue = |i: &usize| map.classes.get(*i).is_none_or(|&class| class as usize % HUES == hue);
        let at = (0..places.len()).filter(of_hue).map(|i| places[i]);
        let tone = if map.classes.is_empty() { Tone::Series(0) } else { Tone::Hue(hue) };
        scene.dots(at, Stroke { opacity: 0.75, ..Stroke::new(tone, size) });
    }
}

/// Thumbnails from the first point on, wherever no other thumbnail is.
fn thumbnails(
    scene: &mut Scene,
    map: &MapFigure,
    places: &[At],
    frame: &Frame<'_>,
    thumbnail: &mut dyn FnMut(usize) -> Option<Picture>,
) {
    // A cell is half a thumbnail's place: two of them touch only if their cells do.
    let cell = THUMBNAIL + 5.0;
    let mut taken = std::collections::HashMap::<(i64, i64), Vec<At>>::new();
    let mut drawn = 0;
    // A stride that visits every point: consecutive points are of one class.
    let stride = coprime_stride(places.len());
    for step in 0..places.len() {
        let i = step * stride % places.len();
        let (x, y) = places[i];
        let inside = x - THUMBNAIL / 2.0 >= frame.at.0 - PAD
            && x + THUMBNAIL / 2.0 <= frame.at.0 + frame.size.0 + PAD
            && y - THUMBNAIL / 2.0 >= frame.at.1 - PAD
            && y + THUMBNAIL / 2.0 <= frame.at.1 + frame.size.1 + PAD;
        let (column, row) = ((x / cell).floor() as i64, (y / cell).floor() as i64);
        let near = (-1..=1).flat_map(|a| (-1..=1).map(move |b| (column + a, row + b)));
        let is_free = near
            .filter_map(|key| taken.get(&key))
            .flatten()
            .all(|at| (at.0 - x).abs() >= cell || (at.1 - y).abs() >= cell);
        if !inside || !is_free || drawn == MOST_THUMBNAILS {
            continue;
        }
        let Some(picture) = thumbnail(i) else { continue };
        drawn += 1;
        taken.entry((column, row)).or_default().push((x, y));
        let corner = (x - THUMBNAIL / 2.0, y - THUMBNAIL / 2.0);
        scene.picture(corner, THUMBNAIL, Some(&picture));
        scene.stroke(rectangle(corner, (THUMBNAIL, THUMBNAIL)), Stroke::new(tone(map, i), 2.0));
    }
}

/// A number without a common divisor with `len`, near the golden share of it.
fn coprime_stride(len: usize) -> usize {
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (len as f64 * 0.618) as usize;
    (start.max(1)..).find(|&stride| divisor(stride, len) == 1 || len <= 1).unwrap_or(1)
}

/// Each class's name at its middle, largest class first, where no other name is.
fn names(scene: &mut Scene, map: &MapFigure, places: &[At], frame: &Frame<'_>) {
    let mut members: Vec<Vec<At>> = vec![Vec::new(); map.names.len()];
    for (&class, &place) in map.classes.iter().zip(places) {
        members[class as usize].push(place);
    }
    let mut order: Vec<usize> = (0..members.len()).filter(|&class| !members[class].is_empty()).collect();
    order.sort_by_key(|&class| (std::cmp::Reverse(members[class].len()), class));
    let mut taken: Vec<(At, At)> = Vec::new();
    for class in order {
        let middle = |axis: fn(&At) -> f64| {
            let mut values: Vec<f64> = members[class].iter().map(axis).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let text = font::fitted(&map.names[class], LETTERS + 1.0, 160.0);
        let half = font::width(&text, LETTERS + 1.0) / 2.0 + 3.0;
        let (left, right) = (frame.at.0 + half, frame.at.0 + frame.size.0 - half);
        let (x, y) = (middle(|at| at.0).clamp(left.min(right), right.max(left)), middle(|at| at.1));
        let (from, to) = ((x - half, y - 9.0), (x + half, y + 9.0));
        let touches = |other: &(At, At)| {
            from.0 < other.1.0 && other.0.0 < to.0 && from.1 < other.1.1 && other.0.1 < to.1
        };
        if taken.iter().any(touches) {
            continue;
        }
        taken.push((from, to));
        scene.shapes.push(Shape::Text {
            at: (x, y + 4.0),
            size: LETTERS + 1.0,
            anchor: Anchor::Middle,
            tone: Tone::Ink,
            halo: true,
            text,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_visits_every_point_once() {
        for len in [1, 2, 3, 10, 97, 13_180] {
            let stride = coprime_stride(len);
            let mut seen: Vec<usize> = (0..len).map(|step| step * stride % len).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>());
        }
    }
}
