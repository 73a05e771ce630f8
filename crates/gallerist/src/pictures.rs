//! Images at reduced size for pages and figures.

use std::collections::HashMap;

use gallerist_data::{Image, ImageSet};
use gallerist_report::{Item, Picture};
use gallerist_retrieval::columns::Columns;

/// Longer side of a picture on a page, in pixels.
const PICTURE_SIDE: usize = 128;

/// The pictures of embedding rows.
pub(crate) struct Pictures<'a> {
    labels: Option<&'a [String]>,
    paths: Option<&'a [String]>,
    images: Option<(&'a ImageSet, HashMap<&'a str, usize>)>,
    columns: Option<&'a Columns>,
}

impl<'a> Pictures<'a> {
    pub(crate) fn new(
        labels: Option<&'a [String]>,
        paths: Option<&'a [String]>,
        images: Option<&'a ImageSet>,
    ) -> Self {
        let images = images.map(|images| {
            let places = (0..images.len()).map(|i| (images.path(i), i)).collect();
            (images, places)
        });
        Pictures { labels, paths, images, columns: None }
    }

    /// With the further columns of the rows.
    pub(crate) fn with_columns(self, columns: &'a Columns) -> Self {
        Self { columns: Some(columns), ..self }
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
        let (images, places) = self.images.as_ref()?;
        Some((images, *places.get(self.paths?[row].as_str())?))
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
