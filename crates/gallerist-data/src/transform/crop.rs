//! Windows of the stored image that training sees.

use serde::{Deserialize, Serialize};

use super::check::{in_order, require, shown};
use crate::error::Error;
use crate::size::Size;
use gallerist_util::random::Random;

/// Which window of the stored image training sees, before the warp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CropConfig {
    /// All of it, scaled to the network's input.
    #[default]
    None,
    /// A window of the network's input, unscaled, at a random place.
    Window,
    /// The same, in the image with a border of `padding` pixels all around (torchvision's
    /// `RandomCrop` with padding; re-identification: 10).
    Padded {
        /// Width of the border in pixels of the stored image; `augment.border` sets its values.
        padding: usize,
    },
    /// Scales the *side*: width = `s` times the stored width, height = `s * r`
    /// times the stored height, cut at one pixel less than it, with `s` uniform
    /// in `scale` and `r` uniform in `ratio`. (Ranked list loss, journal
    /// version: scale 0.5 to 1, ratio 3/4 to 4/3.)
    Side {
        /// Least and largest scale of the side, within (0, 1].
        #[serde(default = "half_to_one")]
        scale: [f32; 2],
        /// Least and largest ratio of height to width.
        #[serde(default = "three_quarters")]
        ratio: [f32; 2],
    },
    /// Scales the *area*, as torchvision's `RandomResizedCrop`: area uniform in
    /// `scale` times the stored area, logarithm of the ratio of width to height
    /// uniform in `ratio`; after ten windows that do not fit, the largest
    /// centred one of a permitted ratio.
    Area {
        /// Least and largest share of the area, within (0, 1]; torchvision's
        /// default is 0.08 to 1.
        #[serde(default = "eight_percent")]
        scale: [f32; 2],
        /// Least and largest ratio of width to height.
        #[serde(default = "three_quarters")]
        ratio: [f32; 2],
    },
}

fn half_to_one() -> [f32; 2] {
    [0.5, 1.0]
}

fn eight_percent() -> [f32; 2] {
    [0.08, 1.0]
}

fn three_quarters() -> [f32; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

impl CropConfig {
    pub(super) fn check(&self, stored: Size, size: Size) -> Result<(), Error> {
        match *self {
            CropConfig::None => Ok(()),
            CropConfig::Window => {
                let fits = stored.height >= size.height && stored.width >= size.width;
                require(fits, "stored_size", "at least `size` for a window", stored)
            }
            CropConfig::Padded { padding } => {
                let reach = 2 * padding.min(crate::decode::MAX_SIDE);
                let fits = stored.height + reach >= size.height && stored.width + reach >= size.width;
                require(
                    padding <= crate::decode::MAX_SIDE && fits,
                    "crop.padding",
                    "enough for `size`",
                    padding,
                )
            }
            CropConfig::Side { scale, ratio } | CropConfig::Area { scale, ratio } => {
                let wanted = "two values in order, from 0.01 to 1";
                require(in_order(scale, 0.01, 1.0), "crop.scale", wanted, shown(scale))?;
                let wanted = "two values in order, from 0.1 to 10";
                require(in_order(ratio, 0.1, 10.0), "crop.ratio", wanted, shown(ratio))
            }
        }
    }
}

/// A part of the stored image, in pixels.
pub(super) struct Window {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Window {
    /// All of an image.
    pub(super) fn whole(size: Size) -> Window {
        Window { left: 0.0, top: 0.0, width: size.width as f64, height: size.height as f64 }
    }
}

pub(super) fn draw_window(crop: &CropConfig, stored: Size, size: Size, random: &mut Random) -> Window {
    let (full_w, full_h) = (stored.width, stored.height);
    let place = |width: usize, height: usize, random: &mut Random| Window {
        left: random.below(full_w - width + 1) as f64,
        top: random.below(full_h - height + 1) as f64,
        width: width as f64,
        height: height as f64,
    };
    let pixels = |v: f64, full: usize| (v as usize).clamp(1, full);
    match *crop {
        CropConfig::None => Window::whole(stored),
        CropConfig::Window => place(size.width, size.height, random),
        CropConfig::Padded { padding } => Window {
            left: random.below(full_w + 2 * padding - size.width + 1) as f64 - padding as f64,
            top: random.below(full_h + 2 * padding - size.height + 1) as f64 - padding as f64,
            width: size.width as f64,
            height: size.height as f64,
        },
        CropConfig::Side { scale, ratio } => {
            let scale = random.between(scale[0].into(), scale[1].into());
            let ratio = random.between(ratio[0].into(), ratio[1].into());
            let width = pixels(full_w as f64 * scale, full_w);
            let height = pixels(full_h as f64 * scale * ratio, (full_h - 1).max(1));
            place(width, height, random)
        }
        CropConfig::Area { scale, ratio } => {
            let (low, high) = (f64::from(ratio[0]), f64::from(ratio[1]));
            for _ in 0..10 {
                let area = stored.area() as f64 * random.between(scale[0].into(), scale[1].into());
                let ratio = random.between(low.ln(), high.ln()).exp();
                let width = (area * ratio).sqrt().round() as usize;
                let height = (area / ratio).sqrt().round() as usize;
                if (1..=full_w).contains(&width) && (1..=full_h).contains(&height) {
                    return place(width, height, random);
                }
            }
            let (w, h) = (full_w as f64, full_h as f64);
            let (width, height) = if w / h < low {
                (w, (w / low).round())
            } else if w / h > high {
                ((h * high).round(), h)
            } else {
                (w, h)
            };
            let (width, height) = (width.clamp(1.0, w), height.clamp(1.0, h));
            Window { left: ((w - width) / 2.0).floor(), top: ((h - height) / 2.0).floor(), width, height }
        }
    }
}
