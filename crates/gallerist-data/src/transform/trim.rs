//! White borders, cut off.

use serde::{Deserialize, Serialize};

use super::preparation::Preparation;
use crate::image::Image;
use crate::size::Size;
use gallerist_util::registry::Named;

/// White borders cut off before an image is fitted, for pictures of products on white.
///
/// Rows and columns at the edges in which every channel of every pixel is at least `threshold` are
/// border; `padding` pixels of it stay on each side, where there are so many. An image that is all
/// border stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrimConfig {
    /// Least brightness of a border pixel, 0 to 255; default 250.
    pub threshold: u8,
    /// Pixels of border that stay; default 0.
    pub padding: usize,
}

impl Default for TrimConfig {
    fn default() -> Self {
        TrimConfig { threshold: 250, padding: 0 }
    }
}

impl Named for TrimConfig {
    const NAME: &'static str = "trim";
}

impl Preparation for TrimConfig {
    fn apply(&self, image: Image) -> Image {
        let (width, height, channels) = (image.width(), image.height(), image.channels());
        let dark = |pixel: &[u8]| pixel.iter().any(|&v| v < self.threshold);
        let row = |y: usize| &image.pixels()[y * width * channels..(y + 1) * width * channels];
        let Some(top) = (0..height).find(|&y| dark(row(y))) else { return image };
        let bottom = (top..height).rev().find(|&y| dark(row(y))).expect("row `top` is one");
        let (mut left, mut right) = (width, 0);
        for y in top..=bottom {
            let mut pixels = row(y).chunks_exact(channels);
            left = pixels.clone().take(left).position(dark).unwrap_or(left);
            if let Some(last) = pixels.rposition(dark) {
                right = right.max(last);
            }
        }
        let start = |v: usize| v.saturating_sub(self.padding);
        let end = |v: usize, side: usize| (v + 1).saturating_add(self.padding).min(side);
        let (left, right) = (start(left), end(right, width));
        let (top, bottom) = (start(top), end(bottom, height));
        image.crop(left, top, Size { height: bottom - top, width: right - left })
    }
}
