//! A rectangle of an image that is searched with instead of the whole image.

use std::str::FromStr;

use gallerist_data::{Image, Size};
use serde::Deserialize;

/// How far a rectangle may reach beyond the image by rounding, as a fraction of a side.
const ROUNDING: f64 = 1e-6;

/// A rectangle of the upright image (EXIF orientation applied), in fractions of its width and height.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "[f64; 4]")]
pub(crate) struct Region {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// What a region is, for messages.
pub(crate) const FORM: &str =
    "give left, top, width and height as fractions of the upright image, such as 0.25,0.1,0.5,0.5";

impl TryFrom<[f64; 4]> for Region {
    type Error = String;

    fn try_from([left, top, width, height]: [f64; 4]) -> Result<Self, String> {
        let found = format!("{left},{top},{width},{height}");
        if ![left, top, width, height].into_iter().all(f64::is_finite) {
            return Err(format!("the region `{found}` has a value that is not finite; {FORM}"));
        }
        if width <= 0.0 || height <= 0.0 {
            return Err(format!("the region `{found}` is empty: width and height must be above 0; {FORM}"));
        }
        let inside = |from: f64, size: f64| from >= -ROUNDING && from + size <= 1.0 + ROUNDING;
        if !inside(left, width) || !inside(top, height) {
            return Err(format!(
                "the region `{found}` reaches beyond the image, which is from 0 to 1; {FORM}"
            ));
        }
        Ok(Self { left, top, width, height })
    }
}

impl FromStr for Region {
    type Err = String;

    /// Reads `left,top,width,height`.
    fn from_str(text: &str) -> Result<Self, String> {
        let values = text.split(',').map(|value| value.trim().parse());
        let values: Vec<f64> =
            values.collect::<Result<_, _>>().map_err(|_| format!("`{text}` is no region; {FORM}"))?;
        let values: [f64; 4] = values.try_into().map_err(|values: Vec<f64>| {
            format!("`{text}` has {} values, a region has 4; {FORM}", values.len())
        })?;
        Self::try_from(values)
    }
}

impl Region {
    /// The pixels of the region at the full resolution of `image`, at least one. Pixels that it covers in part are
    /// included.
    pub(crate) fn of(self, image: &Image) -> Image {
        let span = |from: f64, size: f64, pixels: usize| {
            // A region that a page computed from pixels must give the same pixels: ignore errors of rounding.
            let at = |fraction: f64| fraction * pixels as f64;
            let begin = (at(from) + 1e-3).floor().clamp(0.0, (pixels - 1) as f64) as usize;
            let end = (at(from + size) - 1e-3).ceil().clamp(1.0, pixels as f64) as usize;
            (begin, end.max(begin + 1) - begin)
        };
        let (left, width) = span(self.left, self.width, image.width());
        let (top, height) = span(self.top, self.height, image.height());
        image.crop(left, top, Size { width, height })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_gives_the_pixels_it_covers() {
        // The value of a pixel is its number.
        let image = Image::new(4, 3, 1, (0..12).collect());
        let pixels = |text: &str| {
            let part = text.parse::<Region>().unwrap().of(&image);
            (part.width(), part.height(), part.into_pixels())
        };
        assert_eq!(pixels("0,0,1,1"), (4, 3, (0..12).collect()));
        assert_eq!(pixels("0.5,0,0.5,0.3333333"), (2, 1, vec![2, 3]));
        assert_eq!(pixels("0.3,0.4,0.3,0.2"), (2, 1, vec![5, 6]));
        // Less than a pixel, and one that ends beyond the image by rounding.
        assert_eq!(pixels("0.99999,0.99999,0.00001,0.00001"), (1, 1, vec![11]));
        assert_eq!(pixels("0.5,0.5,0.5000001,0.5000001"), (2, 2, vec![6, 7, 10, 11]));
    }

    #[test]
    fn what_is_no_region_is_refused_with_its_form() {
        let refused = |text: &str| {
            let error = text.parse::<Region>().unwrap_err();
            assert!(error.contains("left, top, width and height"), "{error}");
            error
        };
        for (text, problem) in [
            ("a,b", "is no region"),
            ("", "is no region"),
            ("0,0,1", "has 3 values"),
            ("0,0,NaN,1", "not finite"),
            ("0,0,inf,1", "not finite"),
            ("0.2,0.2,0,0.5", "is empty"),
            ("0.2,0.2,0.5,-0.1", "is empty"),
            ("0.6,0,0.5,1", "beyond the image"),
            ("-0.1,0,0.5,1", "beyond the image"),
        ] {
            assert!(refused(text).contains(problem), "{text}");
        }
    }
}
