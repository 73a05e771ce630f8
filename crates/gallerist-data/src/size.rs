//! The size of an image.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Height and width in pixels. In a run file: `28`, or `[256, 128]` (height, width).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "SizeText", into = "SizeText")]
pub struct Size {
    /// Rows.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a side in pixels, or [height, width]")]
enum SizeText {
    Square(usize),
    Sides([usize; 2]),
}

impl From<SizeText> for Size {
    fn from(text: SizeText) -> Size {
        match text {
            SizeText::Square(side) => Size::square(side),
            SizeText::Sides([height, width]) => Size { height, width },
        }
    }
}

impl From<Size> for SizeText {
    fn from(size: Size) -> SizeText {
        if size.height == size.width {
            SizeText::Square(size.height)
        } else {
            SizeText::Sides([size.height, size.width])
        }
    }
}

impl Size {
    /// Equal sides.
    pub const fn square(side: usize) -> Size {
        Size { height: side, width: side }
    }

    /// Pixels.
    pub const fn area(self) -> usize {
        self.height * self.width
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.height, self.width)
    }
}
