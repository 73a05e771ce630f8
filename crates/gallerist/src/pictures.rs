//! Images at reduced size for pages and figures.

use std::collections::HashMap;

use gallerist_data::{Image, ImageSet};
use gallerist_report::{Item, Picture};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::columns::Columns;
use gallerist_serve::SourceImages;

/// Longer side of a picture on a page, in pixels.
const PICTURE_SIDE: usize = 128;

/// The number of the image of a row.
type Place<'a> = Box<dyn Fn(usize) -> Option<usize> + Send + Sync + 'a>;

/// The pictures of embedding rows.
pub(crate) struct Pictures<'a> {
    labels: Option<&'a [String]>,
    paths: Option<&'a [String]>,
    images: Option<(&'a ImageSet, Place<'a>)>,
    columns: Option<&'a Columns>,
}

impl<'a> Pictures<'a> {
    pub(crate) fn new(
        labels: Option<&'a [String]>,
        paths: Option<&'a [String]>,
        images: Option<&'a ImageSet>,
    ) -> Self {
        let images = images.map(|images| {
            let places: HashMap<&str, usize> = (0..images.len()).map(|i| (images.path(i), i)).collect();
            let place: Place<'a> = Box::new(move |row| places.get(paths?[row].as_str()).copied());
            (images, place)
        });
        Pictures { labels, paths, images, columns: None }
    }

    /// The rows of a set, with their further columns. The images are found by source and path.
    pub(crate) fn of_set(set: &'a EmbeddingSet, images: Option<&'a SourceImages>) -> Self {
        let several = set.sources.as_ref().is_some_and(|sources| sources.list().len() > 1);
        let images = images.map(|images| {
            let place: Place<'a> = Box::new(move |row| {
                let source = set.source_of(row).filter(|_| several);
                // Not all rows of the gallery are here: another one may have the same path.
                Some(images.find(source, &set.paths.as_ref()?[row], || false)? as usize)
            });
            (images.set(), place)
        });
        let (labels, paths) = (set.labels.as_deref(), set.paths.as_deref());
        Pictures { labels, paths, images, columns: Some(&set.columns) }
    }

    /// Whether the image of a row is among the images.
    pub(crate) fn has(&self, row: usize) -> bool {
        self.find(row).is_some()
    }

    /// A row with its picture for a page.
    pub(crate) fn item(&self, row: usize) -> Item {
        self.with_picture(row, self.find(row).and_then(|(images, i)| picture(images, i)))
    }

    /// A row with its picture as pixels, at most `side` wide and high, for figures.
    pub(crate) fn drawn(&self, row: usize, side: usize) -> Item {
        self.with_picture(row, self.thumbnail(row, side))
    }

    /// The picture as pixels.
    pub(crate) fn thumbnail(&self, row: usize, side: usize) -> Option<Picture> {
        let (images, i) = self.find(row)?;
        pixels(images, i, side)
    }

    /// The image of a row.
    pub(crate) fn read(&self, row: usize, side: usize) -> Option<Image> {
        let (images, i) = self.find(row)?;
        Some(images.decode(i).ok()?.shrink_to(side))
    }

    fn with_picture(&self, row: usize, picture: Option<Picture>) -> Item {
        let label = self.labels.map(|labels| labels[row].clone());
        // Rows without a path are identified by their number.
        let path = self.paths.map_or_else(|| format!("row {row}"), |paths| paths[row].clone());
        let details = self.columns.map_or(vec![], |columns| columns.row(row));
        let details = details.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
        Item { picture, label, path: Some(path), details }
    }

    fn find(&self, row: usize) -> Option<(&ImageSet, usize)> {
        let (images, place) = self.images.as_ref()?;
        Some((images, place(row)?))
    }
}

/// An image scaled down for a page; `None` if it cannot be read.
fn picture(images: &ImageSet, i: usize) -> Option<Picture> {
    const SMALL_FILE: usize = 4096;
    let bytes = images.read(i).ok()?;
    if bytes.len() <= SMALL_FILE
        && images.quarter_turns(i) == 0
        && !images.is_cropped(i)
        && let Ok(picture) = Picture::from_encoded(bytes)
    {
        return Some(picture);
    }
    pixels(images, i, PICTURE_SIDE)
}

fn pixels(images: &ImageSet, i: usize, side: usize) -> Option<Picture> {
    let image = images.decode(i).ok()?.shrink_to(side);
    Picture::from_pixels(image.width() as u32, image.height() as u32, image.channels() as u8, image.pixels())
        .ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gallerist_retrieval::Matrix;
    use gallerist_retrieval::file::{Source, Sources};

    use super::*;

    #[test]
    fn a_row_has_the_picture_of_its_own_source() {
        let dir = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| dir.path().join(name));
        let bitmap = |brightness: u8| {
            let mut file = b"BM".to_vec();
            for word in [58u32, 0, 54, 40, 1, 1, 24 << 16 | 1, 0, 4, 0, 0, 0, 0] {
                file.extend(word.to_le_bytes());
            }
            file.extend([brightness, brightness, brightness, 0]);
            file
        };
        for (place, brightness) in places.iter().zip([10, 200]) {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("1.bmp"), bitmap(brightness)).unwrap();
        }
        let sources: Vec<Source> = places.iter().map(|place| Source::at(place)).collect();
        let set = EmbeddingSet {
            paths: Some(vec!["1.bmp".to_owned(); 2]),
            sources: Some(Sources::new(sources.clone(), [Some(0), Some(1)]).unwrap()),
            ..Matrix::new(2, 1, vec![1.0, 2.0]).unwrap().into()
        };
        let open = |places: &[std::path::PathBuf]| {
            let options = gallerist_data::OpenOptions { allow_repeats: true, ..Default::default() };
            SourceImages::new(ImageSet::open_with(places, &options).unwrap()).of_sources(&sources)
        };
        let shown = |set: &EmbeddingSet, images: &SourceImages| {
            let pictures = Pictures::of_set(set, Some(images));
            (0..2).map(|row| Some(pictures.read(row, 8)?.pixels()[0])).collect::<Vec<_>>()
        };
        assert_eq!(shown(&set, &open(&places)), [Some(10), Some(200)]);
        assert_eq!(shown(&set, &open(&places[1..])), [None, Some(200)]);
        // Of one source the path is enough: its images may have been moved.
        let one = EmbeddingSet { sources: Some(Sources::one(Source::at(Path::new("/gone")), 2)), ..set };
        assert_eq!(shown(&one, &open(&places[1..])), [Some(200), Some(200)]);
    }
}
