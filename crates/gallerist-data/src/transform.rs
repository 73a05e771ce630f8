//! From an image to the planar `f32` tensor a network reads.
//!
//! Two steps, so that the first can be kept in memory: *fit* brings an image of
//! any size to the stored size and the number of channels; *apply* makes the
//! tensor, for training with a random crop and warp, for evaluation always the
//! same way.

use std::cell::RefCell;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::image::Image;
use crate::random::Random;

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
}

/// The images a network reads.
///
/// A pixel `v` of 0..255 becomes `(v / 255 - mean) / std`, with `1 - v / 255` in
/// place of `v / 255` where `invert` is set.
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
}

fn three() -> usize {
    3
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
            invert: false,
            stored_size: None,
            fit: Fit::default(),
            view: View::default(),
        }
    }

    /// The stored size, given or by default.
    pub fn stored(&self) -> Size {
        self.stored_size.unwrap_or(self.size)
    }

    fn check(&self) -> Result<(), Error> {
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
        let fits = self.stored().height >= self.size.height && self.stored().width >= self.size.width;
        require(
            self.view == View::Whole || fits,
            "stored_size",
            "at least `size` for a centre crop",
            self.stored(),
        )
    }
}

/// What lies beyond the edge of a warped image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Border {
    /// The nearest pixel of the edge.
    Replicate,
    /// One brightness, from 0 (black) to 1 (white), before inversion.
    Value(f32),
}

/// Which window of the stored image training sees, before the warp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum CropConfig {
    /// All of it, scaled to the network's input.
    #[default]
    None,
    /// A window of the network's input, unscaled, at a random place.
    Window,
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

/// Random changes of training images; the default changes nothing.
///
/// All of them are one affine map, sampled once: window of the stored image,
/// then scale, shear, rotation, mirror image and shift about its centre. Where
/// the map shrinks, several samples are averaged for a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
    /// What lies beyond the edge; default white for 1 channel (drawings on
    /// paper), the edge's own pixels for 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub border: Option<Border>,
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
        }
    }
}

impl AugmentConfig {
    fn check(&self, image: &ImageConfig) -> Result<(), Error> {
        let within = |v: f32, high: f32| (0.0..=high).contains(&v);
        let r = self.rotation_degrees;
        require(within(r, 180.0), "rotation_degrees", "between 0 and 180", r)?;
        let s = self.shear_degrees;
        require(within(s, 44.0), "shear_degrees", "between 0 and 44", s)?;
        require(within(self.shift, 1.0), "shift", "between 0 and 1", self.shift)?;
        require(within(self.flip, 1.0), "flip", "a probability", self.flip)?;
        let range =
            |[low, high]: [f32; 2], least: f32, most: f32| least <= low && low <= high && high <= most;
        let show = |[low, high]: [f32; 2]| format!("[{low}, {high}]");
        let wanted = "two values in order, from 0.1 to 10";
        require(range(self.scale, 0.1, 10.0), "scale", wanted, show(self.scale))?;
        if let Some(Border::Value(v)) = self.border {
            require(within(v, 1.0), "border", "between 0 (black) and 1 (white)", v)?;
        }
        match self.crop {
            CropConfig::None => Ok(()),
            CropConfig::Window => {
                let (stored, size) = (image.stored(), image.size);
                let fits = stored.height >= size.height && stored.width >= size.width;
                require(fits, "stored_size", "at least `size` for a window", stored)
            }
            CropConfig::Side { scale, ratio } | CropConfig::Area { scale, ratio } => {
                let wanted = "two values in order, from 0.01 to 1";
                require(range(scale, 0.01, 1.0), "crop.scale", wanted, show(scale))?;
                let wanted = "two values in order, from 0.1 to 10";
                require(range(ratio, 0.1, 10.0), "crop.ratio", wanted, show(ratio))
            }
        }
    }
}

fn require(ok: bool, field: &'static str, wanted: &'static str, found: impl ToString) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(Error::Config { field, wanted, found: found.to_string() }) }
}

/// Makes tensors of images, for training or for evaluation.
#[derive(Clone, Debug)]
pub struct Transform {
    config: ImageConfig,
    augment: Option<AugmentConfig>,
    stored: Size,
    /// Per channel: pixel `v` of 0..255 becomes `v * factor + offset`.
    normal: Vec<(f32, f32)>,
}

impl Transform {
    /// With random changes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a value out of its range.
    pub fn training(config: &ImageConfig, augment: &AugmentConfig) -> Result<Transform, Error> {
        config.check()?;
        augment.check(config)?;
        Ok(Transform::new(config, Some(*augment), config.stored()))
    }

    /// Without: the same tensor for the same image, always.
    ///
    /// With [`View::Whole`] an image is scaled once, straight to the network's
    /// input; the stored size plays no part.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a value out of its range.
    pub fn evaluation(config: &ImageConfig) -> Result<Transform, Error> {
        config.check()?;
        let stored = match config.view {
            View::Whole => config.size,
            View::CenterCrop => config.stored(),
        };
        Ok(Transform::new(config, None, stored))
    }

    fn new(config: &ImageConfig, augment: Option<AugmentConfig>, stored: Size) -> Transform {
        let normal = (0..config.channels)
            .map(|c| {
                let of = |v: &[f32]| f64::from(v[if v.len() == 1 { 0 } else { c }]);
                let (mean, std) = (of(&config.mean), of(&config.std));
                // v/255 or 1 - v/255, in f64 so that each constant is rounded once.
                let (factor, offset) = if config.invert { (-1.0 / 255.0, 1.0) } else { (1.0 / 255.0, 0.0) };
                ((factor / std) as f32, ((offset - mean) / std) as f32)
            })
            .collect();
        Transform { config: config.clone(), augment, stored, normal }
    }

    /// Channels, height and width of a tensor.
    pub fn shape(&self) -> [usize; 3] {
        [self.config.channels, self.config.size.height, self.config.size.width]
    }

    /// Values in a tensor.
    pub fn tensor_len(&self) -> usize {
        self.config.channels * self.config.size.area()
    }

    /// Size at which images are kept between the two steps.
    pub fn stored_size(&self) -> Size {
        self.stored
    }

    /// Whether tensors depend on the random generator.
    pub fn is_random(&self) -> bool {
        self.augment.is_some()
    }

    /// First step: an image of any size at the stored size, with the channels wanted.
    pub fn fit(&self, image: Image) -> Image {
        // Fewer channels first: less to scale.
        let image = if self.config.channels == 1 { image.to_gray() } else { image };
        let (width, height) = (image.width() as f64, image.height() as f64);
        let stored = self.stored;
        let scaled = match self.config.fit {
            Fit::Warp => image.resize(stored),
            Fit::Crop => {
                let scale = (width / stored.width as f64).min(height / stored.height as f64);
                let (w, h) = (stored.width as f64 * scale, stored.height as f64 * scale);
                let (w, h) = (w.min(width), h.min(height));
                image.resize_window((width - w) / 2.0, (height - h) / 2.0, w, h, stored)
            }
        };
        scaled.to_channels(self.config.channels)
    }

    /// Second step: the tensor `[c, h, w]` of a stored image, into `out`.
    ///
    /// `random` is used only for training.
    ///
    /// # Panics
    ///
    /// If `stored` is not of the stored size and channels, or `out` not of
    /// [`Transform::tensor_len`].
    pub fn apply(&self, stored: &Image, random: &mut Random, out: &mut [f32]) {
        assert!(
            stored.size() == self.stored && stored.channels() == self.config.channels,
            "a stored image of {} x {} channels where {} x {} were promised",
            stored.size(),
            stored.channels(),
            self.stored,
            self.config.channels
        );
        assert_eq!(out.len(), self.tensor_len(), "length of the output tensor");
        match &self.augment {
            None => self.evaluate(stored, out),
            Some(augment) => {
                let map = self.draw_map(augment, random);
                let border = augment.border.unwrap_or(match self.config.channels {
                    1 => Border::Value(1.0),
                    _ => Border::Replicate,
                });
                match self.config.channels {
                    1 => warp::<1>(stored, &map, border, self.config.size, &self.normal, out),
                    _ => warp::<3>(stored, &map, border, self.config.size, &self.normal, out),
                }
            }
        }
    }

    fn evaluate(&self, stored: &Image, out: &mut [f32]) {
        let size = self.config.size;
        if stored.size() == size {
            return self.normalize(stored, out);
        }
        let left = (self.stored.width - size.width) / 2;
        let top = (self.stored.height - size.height) / 2;
        self.normalize(&stored.crop(left, top, size), out);
    }

    /// Bytes, interleaved, to normalised floats, planar.
    fn normalize(&self, image: &Image, out: &mut [f32]) {
        match self.config.channels {
            1 => self.normalize_planes::<1>(image, out),
            _ => self.normalize_planes::<3>(image, out),
        }
    }

    fn normalize_planes<const C: usize>(&self, image: &Image, out: &mut [f32]) {
        let pixels = image.pixels().as_chunks::<C>().0;
        let planes = out.chunks_exact_mut(pixels.len());
        for (c, (plane, &(factor, offset))) in planes.zip(&self.normal).enumerate() {
            for (value, pixel) in plane.iter_mut().zip(pixels) {
                *value = f32::from(pixel[c]) * factor + offset;
            }
        }
    }

    /// Draws the map from the network's input to the stored image. Every number
    /// is drawn whether it is used or not, so that one setting does not change
    /// what another does.
    fn draw_map(&self, augment: &AugmentConfig, random: &mut Random) -> Map {
        let size = self.config.size;
        let mut symmetric = |limit: f32| random.between(-f64::from(limit), f64::from(limit));
        let angle = symmetric(augment.rotation_degrees).to_radians();
        let shear_x = symmetric(augment.shear_degrees).to_radians().tan();
        let shear_y = symmetric(augment.shear_degrees).to_radians().tan();
        let shift_x = symmetric(augment.shift) * size.width as f64;
        let shift_y = symmetric(augment.shift) * size.height as f64;
        let scale = random.between(augment.scale[0].into(), augment.scale[1].into());
        let mirror = if random.chance(augment.flip.into()) { -1.0 } else { 1.0 };
        let window = draw_window(&augment.crop, self.stored, size, random);

        // Forward, about the centre, in pixels of the output:
        // scale, then shear [1 sx; sy 1], then mirror, then rotate.
        let (sin, cos) = angle.sin_cos();
        let shear = [[scale, scale * shear_x], [scale * shear_y, scale]];
        let [[a, b], [c, d]] = [
            [cos * mirror * shear[0][0] - sin * shear[1][0], cos * mirror * shear[0][1] - sin * shear[1][1]],
            [sin * mirror * shear[0][0] + cos * shear[1][0], sin * mirror * shear[0][1] + cos * shear[1][1]],
        ];
        // Its inverse leads from the output to the window. The determinant is
        // scale^2 (1 - sx sy), which the permitted shear keeps above 0.06 scale^2.
        let det = a * d - b * c;
        let (zoom_x, zoom_y) = (window.width / size.width as f64, window.height / size.height as f64);
        let dx = [zoom_x * d / det, zoom_x * -b / det];
        let dy = [zoom_y * -c / det, zoom_y * a / det];
        // Output position 0 is half a pixel inside the first pixel's corner.
        let u = 0.5 - size.width as f64 / 2.0 - shift_x;
        let v = 0.5 - size.height as f64 / 2.0 - shift_y;
        Map {
            x: window.left + window.width / 2.0 + dx[0] * u + dx[1] * v - 0.5,
            y: window.top + window.height / 2.0 + dy[0] * u + dy[1] * v - 0.5,
            dx,
            dy,
        }
    }
}

/// Pixel (column, row) of the output looks at `x + dx . (column, row)`,
/// `y + dy . (column, row)` of the stored image, where whole numbers are the
/// centres of pixels.
struct Map {
    x: f64,
    y: f64,
    dx: [f64; 2],
    dy: [f64; 2],
}

/// A part of the stored image, in pixels.
struct Window {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

fn draw_window(crop: &CropConfig, stored: Size, size: Size, random: &mut Random) -> Window {
    let (full_w, full_h) = (stored.width, stored.height);
    let place = |width: usize, height: usize, random: &mut Random| Window {
        left: random.below(full_w - width + 1) as f64,
        top: random.below(full_h - height + 1) as f64,
        width: width as f64,
        height: height as f64,
    };
    let pixels = |v: f64, full: usize| (v as usize).clamp(1, full);
    match *crop {
        CropConfig::None => Window { left: 0.0, top: 0.0, width: full_w as f64, height: full_h as f64 },
        CropConfig::Window => place(size.width, size.height, random),
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

thread_local! {
    /// Buffers kept between calls.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

#[derive(Default)]
struct Scratch {
    /// The stored image as floats with its border.
    padded: Vec<f32>,
    /// One row of samples.
    row: Vec<Sample>,
    /// One row of sums over the samples of a pixel, channels interleaved.
    sums: Vec<f32>,
}

/// Where a sample lies: offset of its upper left pixel in the frame, and how
/// far it is on the way to the next, across and down.
#[derive(Clone, Copy, Default)]
struct Sample {
    at: u32,
    across: f32,
    down: f32,
}

/// Samples a stored image of `C` channels through a map.
///
/// The image is copied into a frame of one border pixel on each side (two at
/// the far end, so that the right neighbour of the last position exists).
/// Positions are clamped to the frame: everything beyond it is border, the edge
/// is blended with it, and the loop has no case distinctions.
fn warp<const C: usize>(
    stored: &Image,
    map: &Map,
    border: Border,
    size: Size,
    normal: &[(f32, f32)],
    out: &mut [f32],
) {
    let (width, height) = (stored.width(), stored.height());
    let stride = ((width + 3) * C) as u32;
    let (max_x, max_y) = ((width + 1) as f32, (height + 1) as f32);
    // A sample reaches one pixel to each side, so that samples up to 4/3 of a
    // pixel apart miss nothing that matters.
    let count = |step: f64| ((step * 0.75).ceil() as usize).clamp(1, 16);
    let across = count(map.dx[0].hypot(map.dy[0]));
    let down = count(map.dx[1].hypot(map.dy[1]));
    let share = 1.0 / (across * down) as f32;
    let (dx, dy) = (map.dx[0] as f32, map.dy[0] as f32);
    let area = size.area();
    SCRATCH.with_borrow_mut(|Scratch { padded, row, sums }| {
        pad::<C>(stored, border, padded);
        row.resize(size.width, Sample::default());
        sums.resize(size.width * C, 0.0);
        for y in 0..size.height {
            sums.fill(0.0);
            // The samples of a pixel are spread evenly over it.
            for sample in 0..across * down {
                let u = ((sample % across) as f64 + 0.5) / across as f64 - 0.5;
                let v = y as f64 + ((sample / across) as f64 + 0.5) / down as f64 - 0.5;
                // +1 for the frame. The start of a row in f64, the rest in f32:
                // an error of 1e-4 pixels at most for a side of 1,000.
                let x0 = (map.x + map.dx[0] * u + map.dx[1] * v + 1.0) as f32;
                let y0 = (map.y + map.dy[0] * u + map.dy[1] * v + 1.0) as f32;
                for (column, place) in row.iter_mut().enumerate() {
                    let column = column as u32 as f32;
                    let sx = (x0 + dx * column).clamp(0.0, max_x);
                    let sy = (y0 + dy * column).clamp(0.0, max_y);
                    let (ix, iy) = (sx as u32, sy as u32);
                    // The frame has at most 16,387^2 x 3 values, which is below 2^32.
                    let at = iy.wrapping_mul(stride).wrapping_add(ix.wrapping_mul(C as u32));
                    *place = Sample { at, across: sx - ix as f32, down: sy - iy as f32 };
                }
                for (place, sum) in row.iter().zip(sums.as_chunks_mut::<C>().0) {
                    let upper = &padded[place.at as usize..][..2 * C];
                    let lower = &padded[place.at.wrapping_add(stride) as usize..][..2 * C];
                    for c in 0..C {
                        let top = upper[c] + place.across * (upper[C + c] - upper[c]);
                        let bottom = lower[c] + place.across * (lower[C + c] - lower[c]);
                        sum[c] += top + place.down * (bottom - top);
                    }
                }
            }
            for (c, &(factor, offset)) in normal.iter().enumerate() {
                let start = c * area + y * size.width;
                let line = &mut out[start..start + size.width];
                for (value, sum) in line.iter_mut().zip(sums.as_chunks::<C>().0) {
                    *value = sum[c] * (factor * share) + offset;
                }
            }
        }
    });
}

/// The image as floats, one border pixel before and two after each side.
fn pad<const C: usize>(stored: &Image, border: Border, padded: &mut Vec<f32>) {
    let (width, height) = (stored.width(), stored.height());
    let stride = (width + 3) * C;
    padded.clear();
    let fill = match border {
        Border::Value(v) => v * 255.0,
        Border::Replicate => 0.0,
    };
    padded.resize(stride * (height + 3), fill);
    let rows = stored.pixels().chunks_exact(width * C);
    for (row, padded) in rows.zip(padded[stride..].chunks_exact_mut(stride)) {
        for (value, &v) in padded[C..].iter_mut().zip(row) {
            *value = f32::from(v);
        }
        if border == Border::Replicate {
            for c in 0..C {
                let last = padded[width * C + c];
                padded[c] = padded[C + c];
                padded[(width + 1) * C + c] = last;
                padded[(width + 2) * C + c] = last;
            }
        }
    }
    if border == Border::Replicate {
        padded.copy_within(stride..2 * stride, 0);
        padded.copy_within(height * stride..(height + 1) * stride, (height + 1) * stride);
        padded.copy_within(height * stride..(height + 1) * stride, (height + 2) * stride);
    }
}
