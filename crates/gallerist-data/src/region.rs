//! A rectangle of an image that is embedded instead of the whole image.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::image::Image;
use crate::size::Size;

/// How far a rectangle may reach beyond the image by rounding, as a fraction of a side.
const ROUNDING: f64 = 1e-6;

/// A rectangle of the upright image (EXIF orientation applied): left, top, width and height, in fractions of its width and
/// height, or in pixels.
///
/// As text, the four numbers have commas between them. A number alone is a fraction, `%` is percent, `px` is pixels; all
/// four have the same unit.
///
/// ```
/// use gallerist_data::{Image, Region};
///
/// let image = Image::new(4, 2, 1, (0..8).collect());
/// for text in ["0.5,0,0.5,1", "50%,0%,50%,100%", "2px,0px,2px,2px"] {
///     let region: Region = text.parse()?;
///     assert_eq!(region.of(&image)?.pixels(), [2, 3, 6, 7]);
/// }
/// assert!("0.5,0,0.6,1".parse::<Region>().unwrap_err().contains("beyond the image"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "[f64; 4]")]
pub struct Region {
    /// Left, top, width, height.
    edges: [f64; 4],
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Fraction,
    Percent,
    Pixel,
}

impl Unit {
    const ALL: [Self; 3] = [Self::Pixel, Self::Percent, Self::Fraction];

    /// What is written after a number.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Fraction => "",
            Self::Percent => "%",
            Self::Pixel => "px",
        }
    }

    /// A number and its unit.
    fn split(text: &str) -> (&str, Self) {
        let with_unit = |unit: Self| Some((text.strip_suffix(unit.suffix())?, unit));
        Self::ALL.into_iter().find_map(with_unit).expect("a fraction has no suffix")
    }
}

/// What a region is, for messages.
pub const REGION_FORM: &str = "give left, top, width and height of a part of the upright image as fractions, such as \
                               0.25,0.1,0.5,0.5, in percent (25%,10%,50%,50%), or in pixels (120px,40px,240px,200px)";

impl TryFrom<[f64; 4]> for Region {
    type Error = String;

    /// A region in fractions.
    fn try_from(edges: [f64; 4]) -> Result<Self, String> {
        Self::new(edges, Unit::Fraction)
    }
}

impl FromStr for Region {
    type Err = String;

    /// Reads `left,top,width,height`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<(&str, Unit)> = text.split(',').map(|part| Unit::split(part.trim())).collect();
        let values = parts.iter().map(|(number, _)| number.trim().parse());
        let values: Vec<f64> =
            values.collect::<Result<_, _>>().map_err(|_| format!("`{text}` is no region; {REGION_FORM}"))?;
        let values: [f64; 4] = values.try_into().map_err(|values: Vec<f64>| {
            format!("`{text}` has {} values, a region has 4; {REGION_FORM}", values.len())
        })?;
        let unit = parts[0].1;
        if parts.iter().any(|&(_, other)| other != unit) {
            return Err(format!("the region `{text}` has values of several units; {REGION_FORM}"));
        }
        Self::new(values, unit)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = self.unit.suffix();
        let [left, top, width, height] = self.edges;
        write!(f, "{left}{suffix},{top}{suffix},{width}{suffix},{height}{suffix}")
    }
}

impl Region {
    fn new(edges: [f64; 4], unit: Unit) -> Result<Self, String> {
        let region = Self { edges, unit };
        let [_, _, width, height] = edges;
        if !edges.into_iter().all(f64::is_finite) {
            return Err(format!("the region `{region}` has a value that is not finite; {REGION_FORM}"));
        }
        if width <= 0.0 || height <= 0.0 {
            return Err(format!(
                "the region `{region}` is empty: width and height must be above 0; {REGION_FORM}"
            ));
        }
        match unit {
            // Their size decides.
            Unit::Pixel if edges[0] < 0.0 || edges[1] < 0.0 => {
                Err(format!("the region `{region}` begins outside of the image; {REGION_FORM}"))
            }
            Unit::Pixel => Ok(region),
            Unit::Percent | Unit::Fraction => region.fractions(Size::square(1)).map(|_| region),
        }
    }

    /// The edges in fractions of an image of this size.
    fn fractions(self, size: Size) -> Result<[f64; 4], String> {
        let [left, top, width, height] = self.edges;
        let (unit_x, unit_y, whole) = match self.unit {
            Unit::Fraction => (1.0, 1.0, "which is from 0 to 1".to_owned()),
            Unit::Percent => (100.0, 100.0, "which is from 0% to 100%".to_owned()),
            Unit::Pixel => (
                size.width as f64,
                size.height as f64,
                format!("which is {} pixels wide and {} high", size.width, size.height),
            ),
        };
        let edges = [left / unit_x, top / unit_y, width / unit_x, height / unit_y];
        let inside = |from: f64, size: f64| from >= -ROUNDING && from + size <= 1.0 + ROUNDING;
        if !inside(edges[0], edges[2]) || !inside(edges[1], edges[3]) {
            return Err(format!("the region `{self}` reaches beyond the image, {whole}; {REGION_FORM}"));
        }
        Ok(edges)
    }

    /// The pixels of the region at the full resolution of `image`, at least one. Pixels that it covers in part are
    /// included.
    ///
    /// # Errors
    /// When a region in pixels reaches beyond the image.
    pub fn of(self, image: &Image) -> Result<Image, String> {
        let [left, top, width, height] = self.fractions(image.size())?;
        let span = |from: f64, size: f64, pixels: usize| {
            // A region that a page computed from pixels must give the same pixels: ignore errors of rounding.
            let at = |fraction: f64| fraction * pixels as f64;
            let begin = (at(from) + 1e-3).floor().clamp(0.0, (pixels - 1) as f64) as usize;
            let end = (at(from + size) - 1e-3).ceil().clamp(1.0, pixels as f64) as usize;
            (begin, end.max(begin + 1) - begin)
        };
        let (left, width) = span(left, width, image.width());
        let (top, height) = span(top, height, image.height());
        Ok(image.crop(left, top, Size { width, height }))
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
            let part = text.parse::<Region>().unwrap().of(&image).unwrap();
            (part.width(), part.height(), part.into_pixels())
        };
        assert_eq!(pixels("0,0,1,1"), (4, 3, (0..12).collect()));
        assert_eq!(pixels("0.5,0,0.5,0.3333333"), (2, 1, vec![2, 3]));
        assert_eq!(pixels("0.3,0.4,0.3,0.2"), (2, 1, vec![5, 6]));
        assert_eq!(pixels("30%,40%,30%,20%"), pixels("0.3,0.4,0.3,0.2"));
        assert_eq!(pixels("1px,1px,2px,1px"), (2, 1, vec![5, 6]));
        assert_eq!(pixels(" 1.5px, 1px, 1px, 0.5px "), (2, 1, vec![5, 6]));
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
            ("60%,0%,50%,100%", "beyond the image, which is from 0% to 100%"),
            ("10px,0px,5,5", "several units"),
            ("-1px,0px,5px,5px", "begins outside"),
            ("1px,0px,0px,5px", "is empty"),
        ] {
            assert!(refused(text).contains(problem), "{text}");
        }
        let image = Image::new(4, 3, 1, vec![0; 12]);
        let error = "1px,1px,4px,1px".parse::<Region>().unwrap().of(&image).unwrap_err();
        assert!(
            error.contains("`1px,1px,4px,1px` reaches beyond the image, which is 4 pixels wide and 3 high"),
            "{error}"
        );
    }
}
