//! `[image]` and `[augment]` of a run file.

use serde::{Deserialize, Serialize};

use super::augmentation::Augmentation;
use super::border::Border;
use super::check::{in_order, require, shown};
use super::crop::CropConfig;
use super::erase::EraseConfig;
use super::jitter::JitterConfig;
use super::preparation::Preparation;
use super::steps::{AugmentationConfig, PreparationConfig};
use super::trim::TrimConfig;
use crate::error::Error;
use crate::size::Size;

/// Most [further views](ImageConfig::further_views): each needs the memory and the time of an image.
const MAX_VIEWS: usize = 64;

/// How an image of another aspect ratio is brought to the stored size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Both sides are scaled on their own; the whole image stays.
    #[default]
    Warp,
    /// The aspect ratio stays; what sticks out is cut off on both sides.
    Crop,
}

/// What of the stored image is seen in evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// All of it, scaled to the network's input.
    #[default]
    Whole,
    /// The window of the network's input in its middle, unscaled.
    CenterCrop,
    /// Ten windows of the network's input, unscaled: the middle and the four corners, and their mirror
    /// images. The network's outputs are averaged.
    TenCrop,
}

/// One more view of an image in evaluation: that of [`ImageConfig::view`], turned and magnified about its middle.
///
/// Beyond the image it shows white for 1 channel, and the edge's own pixels for 3.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FurtherView {
    /// Rotation, clockwise, from -180 to 180; default 0.
    pub rotation_degrees: f32,
    /// Magnification, from 0.1 to 10; default 1. Above 1 the border is cut off.
    pub scale: f32,
}

impl Default for FurtherView {
    fn default() -> Self {
        FurtherView { rotation_degrees: 0.0, scale: 1.0 }
    }
}

/// The images a network reads.
///
/// A pixel `v` of 0..255 becomes `(range * v / 255 - mean) / std`, with `1 - v / 255` in
/// place of `v / 255` where `invert` is set. Networks from Caffe read `bgr = true` and
/// `range = 255`; the `mean` of BN-Inception is in `gallerist weights list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageConfig {
    /// Height and width of the network's input.
    pub size: Size,
    /// 1 (grey) or 3 (RGB); default 3.
    #[serde(default = "three")]
    pub channels: usize,
    /// Subtracted from each channel: one value for all, or one per channel; default 0.
    #[serde(default = "zero")]
    pub mean: Vec<f32>,
    /// Divides each channel: one value for all, or one per channel; default 1.
    #[serde(default = "one")]
    pub std: Vec<f32>,
    /// Value of a white pixel before `mean` and `std`; default 1.
    #[serde(default = "unit", skip_serializing_if = "is_unit")]
    pub range: f32,
    /// Blue first, red last; `mean` and `std` in the same order; default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bgr: bool,
    /// Black becomes 1 and white 0, for drawings on white paper; default false.
    #[serde(default)]
    pub invert: bool,
    /// Size at which decoded images are kept and from which training crops and
    /// warps sample; default `size`. Twice `size` keeps a warp sharp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_size: Option<Size>,
    /// How the stored size is reached; default `warp`.
    #[serde(default)]
    pub fit: Fit,
    /// What evaluation sees; default `whole`.
    #[serde(default)]
    pub view: View,
    /// Evaluation sees the mirror image as well, and the network's outputs are averaged; default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flip_average: bool,
    /// Evaluation sees these views as well, and the network's outputs are averaged; default none, at most 64.
    /// With [`flip_average`](Self::flip_average) it sees the mirror image of each, too. All views, also the plain one, are
    /// then made of the image at the stored size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_views: Vec<FurtherView>,
    /// White borders cut off before anything else; default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<TrimConfig>,
    /// Further steps before an image is fitted, in this order, in training and evaluation; default none. See
    /// [`Preparation`](crate::Preparation).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<PreparationConfig>,
}

fn three() -> usize {
    3
}

fn unit() -> f32 {
    1.0
}

fn is_unit(v: &f32) -> bool {
    *v == 1.0
}

fn zero() -> Vec<f32> {
    vec![0.0]
}

fn one() -> Vec<f32> {
    vec![1.0]
}

impl ImageConfig {
    /// Square images of so many channels, everything else at its default.
    pub fn new(side: usize, channels: usize) -> ImageConfig {
        ImageConfig {
            size: Size::square(side),
            channels,
            mean: zero(),
            std: one(),
            range: 1.0,
            bgr: false,
            invert: false,
            stored_size: None,
            fit: Fit::default(),
            view: View::default(),
            flip_average: false,
            further_views: Vec::new(),
            trim: None,
            prepare: Vec::new(),
        }
    }

    /// The stored size, given or by default.
    pub fn stored(&self) -> Size {
        self.stored_size.unwrap_or(self.size)
    }

    /// All steps before an image is fitted.
    pub(super) fn preparations(&self) -> impl Iterator<Item = &dyn Preparation> {
        let trim = self.trim.iter().map(|step| step as &dyn Preparation);
        trim.chain(self.prepare.iter().map(|step| &**step))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for step in self.preparations() {
            step.check()?;
        }
        let sides_ok = |s: Size| {
            let side = 1..=crate::decode::MAX_SIDE;
            side.contains(&s.height) && side.contains(&s.width)
        };
        let wanted = "between 1 and 16384 pixels a side";
        require(sides_ok(self.size), "size", wanted, self.size)?;
        require(sides_ok(self.stored()), "stored_size", wanted, self.stored())?;
        require(self.channels == 1 || self.channels == 3, "channels", "1 or 3", self.channels)?;
        let one_or_each = |v: &[f32]| v.len() == 1 || v.len() == self.channels;
        for (field, values) in [("mean", &self.mean), ("std", &self.std)] {
            require(one_or_each(values), field, "one value, or one per channel", values.len())?;
            if let Some(v) = values.iter().find(|v| !v.is_finite()) {
                return require(false, field, "finite", v);
            }
        }
        if let Some(v) = self.std.iter().find(|&&v| v <= 0.0) {
            return require(false, "std", "above 0", v);
        }
        let range = self.range;
        require(range.is_finite() && range > 0.0, "range", "above 0", range)?;
        require(!self.bgr || self.channels == 3, "channels", "3 for `bgr`", self.channels)?;
        let views = &self.further_views;
        require(views.len() <= MAX_VIEWS, "further_views", "at most 64 views", views.len())?;
        let one_place = self.view != View::TenCrop || views.is_empty();
        require(one_place, "further_views", "none with `view = \"ten_crop\"`", views.len())?;
        for FurtherView { rotation_degrees: turn, scale } in views {
            let wanted = "views of a rotation_degrees from -180 to 180";
            require((-180.0..=180.0).contains(turn), "further_views", wanted, turn)?;
            require((0.1..=10.0).contains(scale), "further_views", "views of a scale from 0.1 to 10", scale)?;
        }
        let fits = self.stored().height >= self.size.height && self.stored().width >= self.size.width;
        require(self.view == View::Whole || fits, "stored_size", "at least `size` for crops", self.stored())
    }
}

/// Random changes of training images; the default changes nothing.
///
/// The geometric changes are one affine map, sampled once: window of the stored image,
/// then scale, shear, rotation, mirror image and shift about its centre. Where
/// the map shrinks, several samples are averaged for a pixel. Changes of colours follow,
/// then normalisation, then erasing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentConfig {
    /// Rotation uniform in plus or minus this; default 0, at most 180.
    pub rotation_degrees: f32,
    /// Magnification uniform between these; default `[1, 1]`.
    pub scale: [f32; 2],
    /// Shear angle, horizontally and vertically, each uniform in plus or minus
    /// this; default 0, below 45.
    pub shear_degrees: f32,
    /// Shift, as a fraction of the side, horizontally and vertically, each
    /// uniform in plus or minus this; default 0, at most 1.
    pub shift: f32,
    /// Probability of the mirror image (left and right exchanged); default 0.
    pub flip: f32,
    /// The window that is seen; default all.
    pub crop: CropConfig,
    /// What is shown beyond the edge; default white for 1 channel (drawings on
    /// paper), the edge's own pixels for 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub border: Option<Border>,
    /// Random brightness, contrast, saturation and hue; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterConfig>,
    /// A random rectangle erased; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase: Option<EraseConfig>,
    /// Further random changes, in this order, each after those above of the same
    /// [stage](crate::AugmentationStage); default none. See [`Augmentation`](crate::Augmentation).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<AugmentationConfig>,
}

impl Default for AugmentConfig {
    fn default() -> Self {
        AugmentConfig {
            rotation_degrees: 0.0,
            scale: [1.0, 1.0],
            shear_degrees: 0.0,
            shift: 0.0,
            flip: 0.0,
            crop: CropConfig::None,
            border: None,
            jitter: None,
            erase: None,
            steps: Vec::new(),
        }
    }
}

impl AugmentConfig {
    /// All changes after the warp: jitter and erasing, then the further steps.
    pub(super) fn augmentations(&self) -> impl Iterator<Item = &dyn Augmentation> {
        let jitter = self.jitter.iter().map(|step| step as &dyn Augmentation);
        let erase = self.erase.iter().map(|step| step as &dyn Augmentation);
        jitter.chain(erase).chain(self.steps.iter().map(|step| &**step))
    }

    pub(super) fn check(&self, image: &ImageConfig) -> Result<(), Error> {
        let within = |v: f32, high: f32| (0.0..=high).contains(&v);
        let r = self.rotation_degrees;
        require(within(r, 180.0), "rotation_degrees", "between 0 and 180", r)?;
        let s = self.shear_degrees;
        require(within(s, 44.0), "shear_degrees", "between 0 and 44", s)?;
        require(within(self.shift, 1.0), "shift", "between 0 and 1", self.shift)?;
        require(within(self.flip, 1.0), "flip", "a probability", self.flip)?;
        let wanted = "two values in order, from 0.1 to 10";
        require(in_order(self.scale, 0.1, 10.0), "scale", wanted, shown(self.scale))?;
        if let Some(Border::Value(v)) = self.border {
            require(within(v, 1.0), "border", "between 0 (black) and 1 (white)", v)?;
        }
        for step in self.augmentations() {
            step.check()?;
        }
        self.crop.check(image.stored(), image.size)
    }
}
