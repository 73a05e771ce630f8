//! The interface of random changes of training images.

use gallerist_util::random::Random;
use gallerist_util::registry::Part;

use crate::error::Error;
use crate::size::Size;

/// A random change of training images, after the geometric ones.
///
/// Implement it for a change of your own: a function of the image, of the values of the configuration and of the
/// random numbers, which depend on (seed, epoch, position in the epoch) only.
/// [`AugmentationConfig::register`](crate::AugmentationConfig::register) gives it a name for `steps` in `[augment]`.
///
/// # Example
///
/// ```
/// use gallerist_data::{
///     AugmentConfig, Augmentation, AugmentationConfig, Image, ImageConfig, Named, Planes, Random, Transform,
/// };
/// use serde::{Deserialize, Serialize};
///
/// /// Inverts all values above a threshold, with a probability.
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields, default)]
/// struct Solarize {
///     threshold: f32,
///     probability: f64,
/// }
///
/// impl Default for Solarize {
///     fn default() -> Self {
///         Solarize { threshold: 0.5, probability: 0.5 }
///     }
/// }
///
/// impl Named for Solarize {
///     const NAME: &'static str = "solarize";
/// }
///
/// impl Augmentation for Solarize {
///     fn apply(&self, image: &mut Planes<'_>, random: &mut Random) {
///         if random.chance(self.probability) {
///             image.values().iter_mut().filter(|v| **v > self.threshold).for_each(|v| *v = 1.0 - *v);
///         }
///     }
/// }
///
/// AugmentationConfig::register::<Solarize>().unwrap();
/// let augment: AugmentConfig = toml::from_str("steps = [{ kind = \"solarize\", probability = 1.0 }]").unwrap();
/// let transform = Transform::training(&ImageConfig::new(1, 1), &augment)?;
/// let mut tensor = [0.0];
/// transform.apply(&Image::new(1, 1, 1, vec![255]), &mut Random::new(1, "augment", 0, 0), &mut tensor);
/// assert_eq!(tensor, [0.0]);
/// # Ok::<(), gallerist_data::Error>(())
/// ```
pub trait Augmentation: Part {
    /// Changes the image in place.
    fn apply(&self, image: &mut Planes<'_>, random: &mut Random);

    /// When the step takes place; default: [`AugmentationStage::Colors`].
    fn stage(&self) -> AugmentationStage {
        AugmentationStage::Colors
    }

    /// Refuses values out of their range; default: none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] with the field.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Which values an [`Augmentation`] gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AugmentationStage {
    /// Colours from 0 (black) to 1 (white), before normalisation.
    Colors,
    /// The values of the network's input, after normalisation.
    Normalized,
}

/// A training image as an [`Augmentation`] sees it: one plane of values per channel, at the size of the network's
/// input.
pub struct Planes<'a> {
    values: &'a mut [f32],
    size: Size,
    bgr: bool,
}

impl<'a> Planes<'a> {
    /// `values` are `[channels, height, width]`.
    pub(super) fn new(values: &'a mut [f32], size: Size, bgr: bool) -> Planes<'a> {
        Planes { values, size, bgr }
    }

    /// Height and width.
    pub fn size(&self) -> Size {
        self.size
    }

    /// 1 (grey) or 3.
    pub fn channels(&self) -> usize {
        self.values.len() / self.size.area()
    }

    /// All values, `[channels, height, width]`.
    pub fn values(&mut self) -> &mut [f32] {
        self.values
    }

    /// The planes, in the order of the network's channels.
    pub fn planes(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.values.chunks_exact_mut(self.size.area())
    }

    /// The planes of red, green and blue, whatever their order; `None` for a grey image.
    pub fn rgb(&mut self) -> Option<[&mut [f32]; 3]> {
        let [first, green, third] = self.values.get_disjoint_mut(thirds(self.size.area())).ok()?;
        Some(if self.bgr { [third, green, first] } else { [first, green, third] })
    }
}

/// The places of three planes.
fn thirds(area: usize) -> [std::ops::Range<usize>; 3] {
    [0..area, area..2 * area, 2 * area..3 * area]
}
