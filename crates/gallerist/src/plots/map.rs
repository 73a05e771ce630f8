//! Maps of the embedding space.

use std::num::NonZeroUsize;

use gallerist_data::Random;
use gallerist_map::{MapError, MapMethod, Tsne, layout};
use gallerist_report::Atlas;
use gallerist_report::figure::{self, Figure, MapFigure};
use gallerist_train::{Error, Result};
use gallerist_util::interrupt;

use super::source::{Point, Points, Source};
use super::sprite::sprite;
use super::text::fault;

/// Side of a thumbnail in pixels: two per unit of the drawing.
const THUMBNAIL: usize = 60;

/// Maximum number of embeddings on the map of a page; a random sample of larger sets is shown.
const ON_PAGE: usize = 20_000;

/// Sides of the thumbnails on a page in pixels; the largest that fits into [`SPRITE_BYTES`] is used.
const TILES: [usize; 4] = [36, 28, 20, 14];
const SPRITE_BYTES: usize = 5 << 20;

/// A map of the embeddings of a source, coloured by class, and notes about options that were adjusted.
/// Two-dimensional embeddings are plotted without projection, with their scale.
///
/// # Errors
///
/// Too few rows for the method, or an option outside its range.
pub fn map(
    source: &Source,
    method: &MapMethod,
    thumbnails: bool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Figure, Vec<String>)> {
    let points = source.points(Points::All)?;
    let (map, notes) = laid_out(source, &points, method, progress)?;
    Ok((drawn(source, &points, &map, thumbnails), notes))
}

/// The map of a page.
pub(crate) struct PageMap<'a> {
    source: &'a Source,
    points: Vec<Point>,
    map: MapFigure,
}

impl<'a> PageMap<'a> {
    /// The images of the first `classes` classes by name, or of all: t-SNE, or the principal components of very few rows.
    pub(crate) fn new(source: &'a Source, seed: u64, classes: Option<NonZeroUsize>) -> Result<Self> {
        const LEAST: usize = 10;
        let mut points = source.points(Points::All)?;
        let mut sample = String::new();
        if let Some(classes) = classes.map(usize::from)
            && let Some(encoded) = source.classes_of(&points)
            && encoded.names.len() > classes
        {
            let mut names: Vec<&String> = encoded.names.iter().collect();
            names.sort();
            names.truncate(classes);
            let mut ids = encoded.ids.iter();
            points.retain(|_| ids.next().is_some_and(|&id| names.contains(&&encoded.names[id as usize])));
            sample = format!(" The first of {} classes by name.", encoded.names.len());
        }
        let n = points.len();
        if n > ON_PAGE {
            let mut order: Vec<usize> = (0..n).collect();
            Random::new(seed, "report/map", 0, 0).shuffle(&mut order);
            order.truncate(ON_PAGE);
            order.sort_unstable();
            points = order.iter().map(|&i| points[i]).collect();
            sample += &format!(" Drawn at random from {n}.");
        }
        let method = if n < LEAST { MapMethod::Pca } else { MapMethod::Tsne(Tsne::default()) };
        let (mut map, notes) = laid_out(source, &points, &method, &mut |_, _| ())?;
        map.note.push_str(&sample);
        notes.iter().for_each(|note| map.note.push_str(&format!(" With {note}.")));
        Ok(Self { source, points, map })
    }

    /// As a drawing.
    pub(crate) fn figure(&self) -> Figure {
        drawn(self.source, &self.points, &self.map, true)
    }

    /// With the thumbnails of all points.
    pub(crate) fn atlas(self) -> Atlas {
        let sprite = (TILES.iter())
            .filter_map(|&side| sprite(self.source, &self.points, side))
            .find(|sprite| sprite.picture.bytes().len() <= SPRITE_BYTES);
        Atlas { map: self.map, sprite }
    }
}

fn drawn(source: &Source, points: &[Point], map: &MapFigure, thumbnails: bool) -> Figure {
    let (of_queries, of_items) = (source.queries.pictures(), source.items().pictures());
    figure::map(map, &mut |at: usize| {
        let Point { gallery, row } = points[at];
        thumbnails.then(|| if gallery { &of_items } else { &of_queries }.thumbnail(row, THUMBNAIL)).flatten()
    })
}

/// Some points of a source on a map, and the notes of the layout.
fn laid_out(
    source: &Source,
    points: &[Point],
    method: &MapMethod,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(MapFigure, Vec<String>)> {
    // As they are compared, except two-dimensional embeddings, which stay unchanged.
    let scaled = source.items().rows.embeddings.cols() <= 2;
    let progress = &mut |done, all| {
        interrupt::point();
        progress(done, all);
    };
    let layout = layout(&source.rows_of(points, !scaled), method, progress).map_err(|error| match error {
        MapError::Rows(error) => Error::Retrieval(error),
        other => fault("a map:", other.to_string(), other.hint().as_deref()),
    })?;
    let encoded = source.classes_of(points);
    let (classes, names) = encoded.map(|encoded| (encoded.ids, encoded.names)).unwrap_or_default();
    let of_classes = if names.is_empty() { String::new() } else { format!(" of {} classes", names.len()) };
    let of_gallery = points.iter().filter(|point| point.gallery).count();
    let which = match source.gallery {
        None => format!("{} embeddings", points.len()),
        Some(_) => {
            format!("{} queries and {of_gallery} gallery images, no junk,", points.len() - of_gallery)
        }
    };
    let map = MapFigure {
        title: format!("Map of {}", source.name),
        note: format!("{which}{of_classes}: {}.{}", layout.method, source.part()),
        scaled,
        points: layout.points,
        classes,
        names,
    };
    Ok((map, layout.notes))
}
