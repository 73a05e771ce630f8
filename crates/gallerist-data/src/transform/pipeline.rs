//! The way of an image through all steps.

use gallerist_util::random::Random;
use gallerist_util::vectorized;

use super::affine::AffineMap;
use super::augmentation::{AugmentationStage, Planes};
use super::border::Border;
use super::config::{AugmentConfig, Fit, FurtherView, ImageConfig, View};
use super::crop::Window;
use super::planes::separate;
use super::trim::TrimConfig;
use super::warp::warp;
use crate::error::Error;
use crate::image::Image;
use crate::size::Size;

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
        Ok(Transform::new(config, Some(augment.clone()), config.stored()))
    }

    /// Without: the same tensor for the same image, always.
    ///
    /// With [`View::Whole`] and without further views, an image is scaled once, straight to the network's input; the
    /// stored size plays no part.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a value out of its range.
    pub fn evaluation(config: &ImageConfig) -> Result<Transform, Error> {
        config.check()?;
        let stored = match config.view {
            View::Whole if config.further_views.is_empty() => config.size,
            View::Whole | View::CenterCrop | View::TenCrop => config.stored(),
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
            (None, _) => (1 + self.config.further_views.len()) * (1 + usize::from(self.config.flip_average)),
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
        (!self.config.preparations().any(|step| step.needs_whole_image())).then(|| 2 * height.max(width))
    }

    /// Bytes that differ where stored images of the same file differ.
    pub(crate) fn stored_form(&self) -> Vec<u8> {
        let ImageConfig { channels, bgr, fit, trim, prepare, .. } = &self.config;
        let Size { height, width } = self.stored;
        let mut form = vec![*channels as u8, u8::from(*bgr), *fit as u8, u8::from(trim.is_some())];
        let TrimConfig { threshold, padding } = trim.unwrap_or_default();
        form.push(threshold);
        for number in [height, width, padding] {
            form.extend((number as u64).to_le_bytes());
        }
        for step in prepare {
            let text = toml::to_string(step).expect("a configuration is plain data");
            form.extend((text.len() as u64).to_le_bytes());
            form.extend(text.as_bytes());
        }
        form
    }

    /// Bytes that differ where tensors for evaluation of the same file differ.
    pub(crate) fn tensor_form(&self) -> Vec<u8> {
        let text = toml::to_string(&self.config).expect("a configuration is plain data");
        [self.stored_form(), text.into_bytes()].concat()
    }

    /// Whether tensors depend on the random generator.
    pub fn is_random(&self) -> bool {
        self.augment.is_some()
    }

    /// First step: an image of any size at the stored size, with the channels wanted.
    pub fn fit(&self, image: Image) -> Image {
        // Fewer channels first: less to scale.
        let image = if self.config.channels == 1 { image.to_gray() } else { image };
        let image = self.config.preparations().fold(image, |image, step| step.apply(image));
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
            None if !self.config.further_views.is_empty() => self.evaluate_further(stored, out),
            None => self.evaluate(stored, out),
            Some(augment) => self.augment(augment, stored, random, out),
        }
    }

    /// The tensor of a training image.
    fn augment(&self, augment: &AugmentConfig, stored: &Image, random: &mut Random, out: &mut [f32]) {
        let size = self.config.size;
        // Each step of the user's own has its own numbers, so that one does not change the effect of another.
        let mut streams: Vec<Random> = (1..).take(augment.steps.len()).map(|n| random.stream(n)).collect();
        let map = AffineMap::draw(augment, self.stored, size, random);
        let border = augment.border.unwrap_or(Border::of_channels(self.config.channels));
        let plain = [(1.0 / 255.0, 0.0); 3];
        let has_colors = augment.augmentations().any(|step| step.stage() == AugmentationStage::Colors);
        let normal = if has_colors { &plain[..self.config.channels] } else { &self.normal };
        warp(stored, &map, border, size, normal, out);
        if has_colors {
            self.run_steps(augment, AugmentationStage::Colors, random, &mut streams, out);
            for (plane, (factor, offset)) in out.chunks_exact_mut(size.area()).zip(&self.normal) {
                plane.iter_mut().for_each(|v| *v = *v * (factor * 255.0) + offset);
            }
        }
        self.run_steps(augment, AugmentationStage::Normalized, random, &mut streams, out);
    }

    /// Applies the steps of a stage: the built-in ones, which draw from `random`, then those with `streams`.
    fn run_steps(
        &self,
        augment: &AugmentConfig,
        stage: AugmentationStage,
        random: &mut Random,
        streams: &mut [Random],
        out: &mut [f32],
    ) {
        let mut image = Planes::new(out, self.config.size, self.config.bgr);
        let built_in = augment.augmentations().count() - streams.len();
        for (place, step) in augment.augmentations().enumerate().filter(|(_, step)| step.stage() == stage) {
            match place.checked_sub(built_in) {
                None => step.apply(&mut image, random),
                Some(own) => step.apply(&mut image, &mut streams[own]),
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

    /// The view and the further ones, then their mirror images.
    fn evaluate_further(&self, stored: &Image, out: &mut [f32]) {
        let size = self.config.size;
        let seen = if self.config.view == View::Whole { self.stored } else { size };
        let (right, bottom) = (self.stored.width - seen.width, self.stored.height - seen.height);
        let border = Border::of_channels(self.config.channels);
        let views = [FurtherView::default()].into_iter().chain(self.config.further_views.iter().copied());
        let mirrored = self.config.flip_average.then(|| stored.flip_horizontal());
        let mut tensors = out.chunks_exact_mut(self.tensor_len());
        for (image, left) in [(Some(stored), right / 2), (mirrored.as_ref(), right - right / 2)] {
            let Some(image) = image else { return };
            let window = Window { left: left as f64, top: (bottom / 2) as f64, ..Window::whole(seen) };
            // There are as many tensors as views.
            for (view, out) in views.clone().zip(&mut tensors) {
                warp(image, &AffineMap::of_view(&view, &window, size), border, size, &self.normal, out);
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
