//! The look of the images of a set: sizes, colours, grounds, white borders.

use serde::Serialize;

use crate::image::Image;
use crate::parallel::each_in_parallel;
use crate::size::Size;
use crate::source::ImageSet;
use crate::transform::{Preparation, TrimConfig};

/// The look of some images of a set, see [`survey`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survey {
    /// Images that were decoded.
    pub decoded: usize,
    /// Images that cannot be read or decoded, and why.
    pub broken: Vec<String>,
    /// The sizes with the smallest, the median and the largest number of pixels; `None` if all images are broken.
    pub sizes: Option<[Size; 3]>,
    /// Median of height divided by width; 1 if all images are broken.
    pub height_to_width: f64,
    /// Images in colour; the others are grey.
    pub coloured: usize,
    /// Grey images of which most pixels are nearly white: ink on paper.
    pub on_white: usize,
    /// Grey images of which most pixels are nearly black.
    pub on_black: usize,
    /// Images at least a tenth of which is white border.
    pub white_borders: usize,
}

/// What one image looks like.
struct Look {
    size: Size,
    coloured: bool,
    on_white: bool,
    on_black: bool,
    bordered: bool,
}

impl Look {
    fn of(image: Image) -> Self {
        let (size, coloured) = (image.size(), image.is_coloured());
        let inside = TrimConfig::default().apply(image.clone()).size();
        let grey = image.to_gray();
        // Most of the pixels: sixty in a hundred.
        let most =
            |of: fn(&u8) -> bool| 100 * grey.pixels().iter().filter(|v| of(v)).count() > 60 * size.area();
        Look {
            size,
            coloured,
            on_white: !coloured && most(|&v| v >= 230),
            on_black: !coloured && most(|&v| v <= 25),
            bordered: 10 * inside.area() <= 9 * size.area(),
        }
    }
}

/// Decodes at most `most` images, evenly spaced in the order of the set, on `threads` threads (0 counts as 1).
/// `progress` gets the number of images done.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # for name in ["1.png", "2.png"] { std::fs::write(folder.path().join(name), "no picture").unwrap(); }
/// let set = gallerist_data::ImageSet::open(&folder)?;
/// let look = gallerist_data::survey(&set, 256, 2, &|_| ());
/// assert_eq!((look.decoded, look.broken.len()), (0, 2));
/// # Ok::<(), gallerist_data::Error>(())
/// ```
pub fn survey(set: &ImageSet, most: usize, threads: usize, progress: &(dyn Fn(usize) + Sync)) -> Survey {
    let count = set.len().min(most);
    let looks = each_in_parallel(count, threads, progress, |i| {
        let image = set.decode(i * set.len() / count);
        image.map(Look::of).map_err(|error| error.to_string())
    });
    let (looks, broken): (Vec<_>, Vec<_>) = looks.into_iter().partition(Result::is_ok);
    let looks: Vec<Look> = looks.into_iter().filter_map(Result::ok).collect();
    let many = |of: fn(&Look) -> bool| looks.iter().filter(|look| of(look)).count();
    let mut sizes: Vec<Size> = looks.iter().map(|look| look.size).collect();
    sizes.sort_by_key(|size| (size.area(), size.height));
    let mut ratios: Vec<f64> = sizes.iter().map(|size| size.height as f64 / size.width as f64).collect();
    ratios.sort_by(f64::total_cmp);
    Survey {
        decoded: looks.len(),
        broken: broken.into_iter().filter_map(Result::err).collect(),
        sizes: (!sizes.is_empty()).then(|| [sizes[0], sizes[sizes.len() / 2], sizes[sizes.len() - 1]]),
        height_to_width: ratios.get(ratios.len() / 2).copied().unwrap_or(1.0),
        coloured: many(|look| look.coloured),
        on_white: many(|look| look.on_white),
        on_black: many(|look| look.on_black),
        white_borders: many(|look| look.bordered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A square of 10 x 10 with an inner square of 6 x 6 of another colour.
    fn framed(frame: [u8; 3], inner: [u8; 3]) -> Image {
        let inside = |i: usize| (2..8).contains(&(i % 10)) && (2..8).contains(&(i / 10));
        let pixels = (0..100).flat_map(|i| if inside(i) { inner } else { frame }).collect();
        Image::new(10, 10, 3, pixels)
    }

    #[test]
    fn colours_grounds_and_borders_are_told_apart() {
        let look = |frame, inner| {
            let Look { coloured, on_white, on_black, bordered, .. } = Look::of(framed(frame, inner));
            [coloured, on_white, on_black, bordered]
        };
        let (white, black, red) = ([255; 3], [0; 3], [200, 30, 20]);
        assert_eq!(look(white, black), [false, true, false, true]);
        assert_eq!(look(white, red), [true, false, false, true]);
        assert_eq!(look(black, white), [false, false, true, false]);
        assert_eq!(look(red, white), [true, false, false, false]);
        // An image that is all border has none.
        assert_eq!(look(white, white), [false, true, false, false]);
    }
}
