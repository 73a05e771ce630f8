//! Clusters as contact sheets.

use super::axes::TITLE;
use super::scene::{Anchor, Tone};
use super::{Figure, INNER, MARGIN, font, paragraph};
use crate::Picture;

const TILE: f64 = 52.0;
const GAP: f64 = 13.0;

/// One cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The heading.
    pub title: String,
    /// Its content, in a sentence.
    pub note: String,
    /// Its pictures, the most typical first, and whether each is of the cluster's most frequent class.
    pub pictures: Vec<(Option<Picture>, Option<bool>)>,
}

/// The clusters below one another, each with its first `rows` rows of pictures.
pub fn clusters(title: &str, note: &str, all: &[Cluster], rows: usize) -> Figure {
    let (mut figure, mut top) = Figure::new(title, Some(note));
    let columns = ((INNER + GAP) / (TILE + GAP)) as usize;
    for cluster in all {
        top += 12.0;
        let heading = font::fitted(&cluster.title, TITLE, INNER);
        figure.scene.text((MARGIN, top + TITLE), TITLE, Anchor::Start, Tone::Ink, heading);
        top = paragraph(&mut figure.scene, (MARGIN, top + TITLE + 4.0), INNER, &cluster.note) + 12.0;
        for row in cluster.pictures.chunks(columns).take(rows) {
            for (column, (picture, right)) in row.iter().enumerate() {
                let at = (MARGIN + column as f64 * (TILE + GAP), top);
                figure.scene.framed(at, TILE, picture.as_ref(), *right);
            }
            top += TILE + GAP + 4.0;
        }
    }
    figure.finish(top)
}
