//! Images at reduced size for pages and figures.

use gallerist_data::{Image, ImageSet};
use gallerist_report::{Item, Picture};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::file::Sources;
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
    /// Rows whose images are found by source and path. Whether an image of a source that was moved is found by a path alone is
    /// for `is_only_path` to say.
    pub(crate) fn of_rows(
        labels: Option<&'a [String]>,
        paths: Option<&'a [String]>,
        sources: Option<&'a Sources>,
        images: Option<&'a SourceImages>,
        is_only_path: impl Fn(&str) -> bool + Send + Sync + 'a,
    ) -> Self {
        let images = images.map(|images| {
            let several =
                sources.is_some_and(|sources| sources.list().len() > 1) || images.set().sources() > 1;
            let place: Place<'a> = Box::new(move |row| {
                let path = paths?[row].as_str();
                let source = sources.and_then(|sources| sources.get(row)).filter(|_| several);
                let source = source.map(|source| source.name.as_str());
                Some(images.find(source, path, || is_only_path(path))? as usize)
            });
            (images.set(), place)
        });
        Pictures { labels, paths, images, columns: None }
    }

    /// The rows of a set, with their further columns. The images are found by source and path.
    pub(crate) fn of_set(set: &'a EmbeddingSet, images: Option<&'a SourceImages>) -> Self {
        let (labels, paths) = (set.labels.as_deref(), set.paths.as_deref());
        // Not all rows of the gallery are here: another one may have the same path.
        let pictures = Self::of_rows(labels, paths, set.sources.as_ref(), images, |_| false);
        Pictures { columns: Some(&set.columns), ..pictures }
    }

    /// Rows of which the first have these images, in that order; the others have none.
    pub(crate) fn of_items(
        labels: Option<&'a [String]>,
        paths: Option<&'a [String]>,
        images: Option<&'a ImageSet>,
    ) -> Self {
        let images = images.map(|images| {
            let place: Place<'a> = Box::new(move |row| (row < images.len()).then_some(row));
            (images, place)
        });
        Pictures { labels, paths, images, columns: None }
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
pub(crate) mod tests {
    use std::path::{Path, PathBuf};

    use gallerist_data::OpenOptions;
    use gallerist_retrieval::Matrix;
    use gallerist_retrieval::file::Source;
    use tempfile::TempDir;

    use super::*;

    /// A row for the image `1.bmp` of each of two folders: the first is dark, the other one bright.
    pub(crate) fn equal_paths() -> (TempDir, [PathBuf; 2], EmbeddingSet) {
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
        let sources = places.iter().map(|place| Source::at(place)).collect();
        let set = EmbeddingSet {
            paths: Some(vec!["1.bmp".to_owned(); 2]),
            sources: Some(Sources::new(sources, [Some(0), Some(1)]).unwrap()),
            ..Matrix::new(2, 1, vec![1.0, 2.0]).unwrap().into()
        };
        (dir, places, set)
    }

    pub(crate) fn open(places: &[PathBuf]) -> ImageSet {
        ImageSet::open_with(places, &OpenOptions { allow_repeats: true, ..OpenOptions::default() }).unwrap()
    }

    /// The brightness of the picture of each of two rows.
    pub(crate) fn shown(pictures: &Pictures<'_>) -> [Option<u8>; 2] {
        [0, 1].map(|row| Some(pictures.read(row, 8)?.pixels()[0]))
    }

    #[test]
    fn a_row_has_the_picture_of_its_own_source() {
        let (_dir, places, set) = equal_paths();
        let sources = set.sources.as_ref().unwrap().list().to_vec();
        let of_set = |set: &EmbeddingSet, places: &[PathBuf]| {
            let images = SourceImages::new(open(places)).of_sources(&sources);
            shown(&Pictures::of_set(set, Some(&images)))
        };
        assert_eq!(of_set(&set, &places), [Some(10), Some(200)]);
        assert_eq!(of_set(&set, &places[1..]), [None, Some(200)]);
        // Of one source the path is enough: its images may have been moved.
        let one =
            EmbeddingSet { sources: Some(Sources::one(Source::at(Path::new("/gone")), 2)), ..set.clone() };
        assert_eq!(of_set(&one, &places[1..]), [Some(200), Some(200)]);
        // But not if two folders are open, of which it may be either.
        assert_eq!(of_set(&one, &places), [None, None]);
        assert_eq!(of_set(&EmbeddingSet { sources: None, ..set.clone() }, &places), [None, None]);
        assert_eq!(of_set(&set.select(&[1, 1]), &places), [Some(200), Some(200)]);
    }

    #[test]
    fn the_first_rows_have_the_images_of_a_list_whatever_their_paths() {
        let (_dir, places, set) = equal_paths();
        let of_items =
            |images: &ImageSet| shown(&Pictures::of_items(None, set.paths.as_deref(), Some(images)));
        assert_eq!(of_items(&open(&places)), [Some(10), Some(200)]);
        assert_eq!(of_items(&open(&places[1..])), [Some(200), None]);
        let twice = [places[1].clone(), places[0].join("1.bmp")];
        assert_eq!(of_items(&open(&twice)), [Some(200), Some(10)]);
    }
}
