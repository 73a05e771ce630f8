//! From an image to the planar `f32` tensor a network reads.
//!
//! Two steps, so that the first can be kept in memory: *fit* brings an image of
//! any size to the stored size and the number of channels; *apply* makes the
//! tensor, for training with a random crop and warp, for evaluation always the
//! same way.

mod config;
mod crop;
mod erase;
mod jitter;
mod planes;
mod trim;
mod warp;

use crate::error::Error;
use crate::image::Image;
use crate::size::Size;
pub use config::{AugmentConfig, Border, Fit, ImageConfig, View};
use config::{in_order, require, shown};
pub use crop::CropConfig;
use crop::draw_window;
pub use erase::{EraseConfig, EraseFill};
use gallerist_util::random::Random;
use gallerist_util::vectorized;
pub use jitter::JitterConfig;
use planes::separate;
pub use trim::TrimConfig;
use warp::{Map, warp};

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
            View::CenterCrop | View::TenCrop => config.stored(),
        };
        Ok(Transform::new(config, None, stored))
    }

    fn new(config: &ImageConfig, augment: Option<AugmentConfig>, stored: Size) -> Transform {
        let normal = (0..config.channels)
            .map(|c| {
                let of = |v: &[f32]| f64::from(v[if v.len() == 1 { 0 } else { c }]);
                let (mean, std) = (of(&config.mean), of(&config.std));
                // v/255 or 1 - v/255, in f64 so that each constant is rounded once.
                let range = f64::from(config.range);
                let (factor, offset) =
                    if config.invert { (-range / 255.0, range) } else { (range / 255.0, 0.0) };
                ((factor / std) as f32, ((offset - mean) / std) as f32)
            })
            .collect();
        Transform { config: config.clone(), augment, stored, normal }
    }

    /// Channels, height and width of a tensor.
    pub fn shape(&self) -> [usize; 3] {
        [self.config.channels, self.config.size.height, self.config.size.width]
    }

    /// Tensors made of one image: more than 1 where evaluation averages over views.
    pub fn views(&self) -> usize {
        match (&self.augment, self.config.view) {
            (Some(_), _) => 1,
            (None, View::TenCrop) => 10,
            (None, _) => 1 + usize::from(self.config.flip_average),
        }
    }

    /// Values in a tensor.
    pub fn tensor_len(&self) -> usize {
        self.config.channels * self.config.size.area()
    }

    /// Size at which images are kept between the two steps.
    pub fn stored_size(&self) -> Size {
        self.stored
    }

    /// Channels of a tensor and of a stored image.
    pub(crate) fn channels(&self) -> usize {
        self.config.channels
    }

    /// The side, in both directions, from which on an image may be decoded at a reduced size before it is
    /// fitted; `None` where every pixel counts.
    pub(crate) fn least_side(&self) -> Option<usize> {
        let Size { height, width } = self.stored;
        self.config.trim.is_none().then(|| 2 * height.max(width))
    }

    /// Bytes that say all that a stored image depends on besides its file.
    pub(crate) fn stored_form(&self) -> Vec<u8> {
        let ImageConfig { channels, bgr, fit, trim, .. } = &self.config;
        let Size { height, width } = self.stored;
        let mut form = vec![*channels as u8, u8::from(*bgr), *fit as u8, u8::from(trim.is_some())];
        let TrimConfig { threshold, padding } = trim.unwrap_or_default();
        form.push(threshold);
        for number in [height, width, padding] {
            form.extend((number as u64).to_le_bytes());
        }
        form
    }

    /// Whether tensors depend on the random generator.
    pub fn is_random(&self) -> bool {
        self.augment.is_some()
    }

    /// First step: an image of any size at the stored size, with the channels wanted.
    pub fn fit(&self, image: Image) -> Image {
        // Fewer channels first: less to scale.
        let image = if self.config.channels == 1 { image.to_gray() } else { image };
        let image = match &self.config.trim {
            Some(trim) => trim.apply(image),
            None => image,
        };
        let [left, top, width, height] = image.extent();
        let stored = self.stored;
        let scaled = match self.config.fit {
            Fit::Warp => image.resize(stored),
            Fit::Crop => {
                let scale = (width / stored.width as f64).min(height / stored.height as f64);
                let (w, h) = (stored.width as f64 * scale, stored.height as f64 * scale);
                let (w, h) = (w.min(width), h.min(height));
                image.resize_window(left + (width - w) / 2.0, top + (height - h) / 2.0, w, h, stored)
            }
        };
        let image = scaled.to_channels(self.config.channels);
        if self.config.bgr { image.swap_red_and_blue() } else { image }
    }

    /// Second step: the tensor `[views, c, h, w]` of a stored image, into `out`.
    ///
    /// `random` is used only for training.
    ///
    /// # Panics
    ///
    /// If `stored` is not of the stored size and channels, or `out` not of
    /// [`Transform::views`] times [`Transform::tensor_len`].
    pub fn apply(&self, stored: &Image, random: &mut Random, out: &mut [f32]) {
        assert!(
            stored.size() == self.stored && stored.channels() == self.config.channels,
            "a stored image of {} x {} channels where {} x {} were promised",
            stored.size(),
            stored.channels(),
            self.stored,
            self.config.channels
        );
        assert_eq!(out.len(), self.views() * self.tensor_len(), "length of the output tensor");
        match &self.augment {
            None => self.evaluate(stored, out),
            Some(augment) => {
                let map = self.draw_map(augment, random);
                let border = augment.border.unwrap_or(match self.config.channels {
                    1 => Border::Value(1.0),
                    _ => Border::Replicate,
                });
                let size = self.config.size;
                let plain = [(1.0 / 255.0, 0.0); 3];
                let channels = self.config.channels;
                let normal = if augment.jitter.is_some() { &plain[..channels] } else { &self.normal };
                warp(stored, &map, border, size, normal, out);
                if let Some(jitter) = &augment.jitter {
                    jitter.draw(random).apply(out, channels, self.config.bgr);
                    for (plane, (factor, offset)) in out.chunks_exact_mut(size.area()).zip(&self.normal) {
                        plane.iter_mut().for_each(|v| *v = *v * (factor * 255.0) + offset);
                    }
                }
                if let Some(erase) = &augment.erase {
                    erase.apply(out, size, random);
                }
            }
        }
    }

    /// All views, one after the other; mirror images last.
    fn evaluate(&self, stored: &Image, out: &mut [f32]) {
        let size = self.config.size;
        let (right, bottom) = (self.stored.width - size.width, self.stored.height - size.height);
        let middle = (right / 2, bottom / 2);
        let corners = [middle, (0, 0), (right, 0), (0, bottom), (right, bottom)];
        let places = if self.config.view == View::TenCrop { &corners[..] } else { &corners[..1] };
        let mut tensors = out.chunks_exact_mut(self.tensor_len());
        for mirrored in [false, true] {
            for &(left, top) in places {
                // There are as many tensors as views.
                let Some(out) = tensors.next() else { return };
                let crop = (stored.size() != size).then(|| stored.crop(left, top, size));
                let seen = crop.as_ref().unwrap_or(stored);
                match mirrored {
                    false => self.normalize(seen, out),
                    true => self.normalize(&seen.flip_horizontal(), out),
                }
            }
        }
    }

    /// Bytes, interleaved, to normalised floats, planar.
    fn normalize(&self, image: &Image, out: &mut [f32]) {
        match self.config.channels {
            1 => normalize_planes::<1>(&self.normal, image.pixels(), out),
            _ => normalize_planes::<3>(&self.normal, image.pixels(), out),
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

vectorized! {
    fn normalize_planes<'a, const C: usize>(
        normal: &'a [(f32, f32)],
        pixels: &'a [u8],
        out: &'a mut [f32],
    ) -> () {
        let pixels = pixels.as_chunks::<C>().0;
        separate(pixels, normal, (pixels.len(), 0), out);
    }
}
