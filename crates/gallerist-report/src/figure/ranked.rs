//! Ranked lists: the query on the left, its results in their order, right and wrong framed.

use super::axes::{LETTERS, TITLE};
use super::scene::{Anchor, At, Scene, Tone};
use super::{Figure, INNER, MARGIN, font, paragraph};
use crate::number::significant;
use crate::{Hit, RankedList, RankedSection};

const QUERY: f64 = 84.0;
const QUERY_COLUMN: f64 = 178.0;
const GAP: f64 = 14.0;
/// Results are drawn no larger than this.
const LARGEST: f64 = 84.0;
/// Results in a line.
const MOST: usize = 12;

/// The sections below one another, after a note on what was compared with what.
pub fn ranked(title: &str, note: Option<&str>, sections: &[RankedSection]) -> Figure {
    let measure = sections.first().map_or("", |section| &section.measure);
    let before = note.map_or(String::new(), |note| format!("{note} "));
    let note = format!(
        "{before}Query on the left, nearest first. Tick: same class as the query; cross: another class, named \
         below. The number is the {measure}."
    );
    let (mut figure, mut top) = Figure::new(title, Some(&note));
    for section in sections {
        top += 14.0;
        let heading = font::fitted(&section.title, TITLE, INNER);
        figure.scene.text((MARGIN, top + TITLE), TITLE, Anchor::Start, Tone::Ink, heading);
        top += TITLE + 6.0;
        if let Some(note) = &section.note {
            top = paragraph(&mut figure.scene, (MARGIN, top), INNER, note);
        }
        top += 12.0;
        for list in &section.lists {
            top = draw(&mut figure.scene, top, list) + 20.0;
        }
    }
    figure.finish(top - 20.0)
}

/// One list below `top`; returns where it ends.
fn draw(scene: &mut Scene, top: f64, list: &RankedList) -> f64 {
    let query = &list.query;
    scene.framed((MARGIN, top + 3.0), QUERY, query.picture.as_ref(), None);
    let mut bottom = top + QUERY + 19.0;
    let mut line = |tone, text: &str| {
        let text = font::fitted_label(text, LETTERS, QUERY_COLUMN - GAP);
        scene.text((MARGIN, bottom), LETTERS, Anchor::Start, tone, text);
        bottom += 15.0;
    };
    let name = query.label.as_deref().or(query.path.as_deref()).unwrap_or("without a label");
    line(Tone::Ink, name);
    for score in &list.scores {
        line(Tone::Soft, &format!("{} {}", score.name, score.text_with_unit()));
    }
    if let Some(note) = &list.note {
        line(Tone::Soft, note);
    }

    let columns = list.results.len().clamp(1, MOST);
    let size = ((INNER - QUERY_COLUMN + GAP) / columns as f64 - GAP).min(LARGEST);
    let mut below = top;
    for row in list.results.chunks(MOST) {
        let start = below;
        for (column, hit) in row.iter().enumerate() {
            let at = (MARGIN + QUERY_COLUMN + column as f64 * (size + GAP), start + 3.0);
            below = below.max(result(scene, at, size, hit, query.label.as_deref()));
        }
        below += 10.0;
    }
    bottom.max(below - 10.0)
}

/// One result; returns where it ends.
fn result(scene: &mut Scene, at: At, size: f64, hit: &Hit, of_query: Option<&str>) -> f64 {
    scene.framed(at, size, hit.item.picture.as_ref(), hit.correct);
    let mut baseline = at.1 + size + 18.0;
    let most = size + GAP - 4.0;
    let distance = font::fitted(&significant(hit.distance, 4), LETTERS, most);
    scene.text((at.0, baseline), LETTERS, Anchor::Start, Tone::Ink, distance);
    let label = hit.item.label.as_deref().filter(|&label| Some(label) != of_query);
    if let Some(label) = label {
        baseline += 15.0;
        scene.text(
            (at.0, baseline),
            LETTERS,
            Anchor::Start,
            Tone::Soft,
            font::fitted_label(label, LETTERS, most),
        );
    }
    baseline + 4.0
}
