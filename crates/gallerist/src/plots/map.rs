//! Maps of the embedding space.

use gallerist_data::Random;
use gallerist_learn::{Error, Result};
use gallerist_map::{MapError, MapMethod, Tsne, layout};
use gallerist_report::Atlas;
use gallerist_report::figure::{self, Figure, Map};
use gallerist_retrieval::labels;

use super::{Source, fault};
use crate::pictures::Pictures;

/// Pixels of a thumbnail: two for each unit of the drawing.
const THUMBNAIL: usize = 60;

/// The most embeddings on the map of a page, drawn at random where there are more.
const ON_PAGE: usize = 20_000;

/// Pixels of the thumbnails on a page, the largest that fit into [`SPRITE_BYTES`].
const TILES: [usize; 4] = [36, 28, 20, 14];
const SPRITE_BYTES: usize = 5 << 20;

/// A map of a source's embeddings, coloured by class, and what was done differently from what was
/// asked. Embeddings of two dimensions are drawn as they are, with their scale.
///
/// # Errors
///
/// Too few rows for the method, or an option out of its range.
pub fn map(
    source: &Source,
    method: &MapMethod,
    thumbnails: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Figure, Vec<String>)> {
    let rows: Vec<usize> = (0..source.rows.rows()).collect();
    let (map, notes) = laid_out(source, &rows, method, progress)?;
    let pictures = Pictures::new(&source.set, source.images.as_ref());
    let mut thumbnail = |row| thumbnails.then(|| pictures.thumbnail(row, THUMBNAIL)).flatten();
    Ok((figure::map(&map, &mut thumbnail), notes))
}

/// The map of a page with its thumbnails: t-SNE, or the principal components of very few rows.
pub(crate) fn atlas(source: &Source, seed: u64) -> Result<Atlas> {
    const LEAST: usize = 10;
    let n = source.rows.rows();
    let mut rows: Vec<usize> = (0..n).collect();
    if n > ON_PAGE {
        Random::new(seed, "report/map", 0, 0).shuffle(&mut rows);
        rows.truncate(ON_PAGE);
        rows.sort_unstable();
    }
    let method = if n < LEAST { MapMethod::Pca } else { MapMethod::Tsne(Tsne::default()) };
    let (mut map, notes) = laid_out(source, &rows, &method, &mut |_, _| ())?;
    if rows.len() < n {
        map.note.push_str(&format!(" Drawn at random from {n}."));
    }
    notes.iter().for_each(|note| map.note.push_str(&format!(" With {note}.")));
    let pictures = Pictures::new(&source.set, source.images.as_ref());
    let sprite = (TILES.iter())
        .filter_map(|&side| pictures.sprite(&rows, side))
        .find(|sprite| sprite.picture.bytes().len() <= SPRITE_BYTES);
    Ok(Atlas { map, sprite })
}

/// Some rows of a source on a map, and the notes of the layout.
fn laid_out(
    source: &Source,
    rows: &[usize],
    method: &MapMethod,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Map, Vec<String>)> {
    // Of length 1, but those of two dimensions as they are.
    let scaled = source.rows.cols() <= 2;
    let embeddings = if scaled { &source.set.embeddings } else { &source.rows };
    let layout = layout(&embeddings.select(rows), method, progress).map_err(|error| match error {
        MapError::Rows(error) => Error::Retrieval(error),
        other => fault("a map:", other.to_string(), other.hint().as_deref()),
    })?;
    let encoded =
        source.set.labels.as_ref().map(|labels| {
            labels::encode(&rows.iter().map(|&row| labels[row].clone()).collect::<Vec<String>>())
        });
    let (classes, names) = encoded.map(|encoded| (encoded.ids, encoded.names)).unwrap_or_default();
    let of_classes = if names.is_empty() { String::new() } else { format!(" of {} classes", names.len()) };
    let map = Map {
        title: format!("Map of {}", source.name),
        note: format!("{} embeddings{of_classes}: {}.", rows.len(), layout.method),
        scaled,
        points: layout.points,
        classes,
        names,
    };
    Ok((map, layout.notes))
}
