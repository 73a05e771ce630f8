//! Random erasing (Zhong et al., Random Erasing Data Augmentation, AAAI 2020).

use serde::{Deserialize, Serialize};

use super::augmentation::{Augmentation, AugmentationStage, Planes};
use super::check::{in_order, require, shown};
use crate::error::Error;
use crate::size::Size;
use gallerist_util::random::Random;
use gallerist_util::registry::Named;

/// A rectangle of the training image is erased, as torchvision's `RandomErasing` after normalisation.
///
/// Its area is uniform in `scale` times the image's, the logarithm of its height over its width
/// uniform in the logarithms of `ratio`, its place uniform; a rectangle that is not smaller than the
/// image in both directions is drawn anew, up to ten times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EraseConfig {
    /// How often; default 0.5.
    pub probability: f32,
    /// Least and largest share of the area; default 0.02 to 0.33.
    pub scale: [f32; 2],
    /// Least and largest ratio of height to width; default 0.3 to 3.3.
    pub ratio: [f32; 2],
    /// The values of the erased area; default `mean`.
    pub fill: EraseFill,
}

/// What an erased rectangle shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseFill {
    /// 0 after normalisation: the colour `mean` of the run file.
    #[default]
    Mean,
    /// This value after normalisation.
    Value(f32),
    /// Normally distributed values of variance 1, each its own.
    Noise,
}

impl Default for EraseConfig {
    fn default() -> Self {
        EraseConfig { probability: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], fill: EraseFill::Mean }
    }
}

impl Named for EraseConfig {
    const NAME: &'static str = "erase";
}

impl Augmentation for EraseConfig {
    fn stage(&self) -> AugmentationStage {
        AugmentationStage::Normalized
    }

    fn check(&self) -> Result<(), Error> {
        let p = self.probability;
        require((0.0..=1.0).contains(&p), "erase.probability", "a probability", p)?;
        let wanted = "two values in order, from 0 to 1";
        require(in_order(self.scale, 0.0, 1.0), "erase.scale", wanted, shown(self.scale))?;
        let wanted = "two values in order, from 0.01 to 100";
        require(in_order(self.ratio, 0.01, 100.0), "erase.ratio", wanted, shown(self.ratio))?;
        match self.fill {
            EraseFill::Value(v) => require(v.is_finite(), "erase.fill", "finite", v),
            _ => Ok(()),
        }
    }

    fn apply(&self, image: &mut Planes<'_>, random: &mut Random) {
        let size = image.size();
        if !random.chance(self.probability.into()) {
            return;
        }
        let Some((left, top, erased)) = self.draw(size, random) else { return };
        for plane in image.planes() {
            for y in top..top + erased.height {
                let start = y * size.width + left;
                for value in &mut plane[start..start + erased.width] {
                    *value = match self.fill {
                        EraseFill::Mean => 0.0,
                        EraseFill::Value(v) => v,
                        EraseFill::Noise => normal(random),
                    };
                }
            }
        }
    }
}

impl EraseConfig {
    fn draw(&self, size: Size, random: &mut Random) -> Option<(usize, usize, Size)> {
        let (low, high) = (f64::from(self.ratio[0]).ln(), f64::from(self.ratio[1]).ln());
        for _ in 0..10 {
            let area = size.area() as f64 * random.between(self.scale[0].into(), self.scale[1].into());
            let ratio = random.between(low, high).exp();
            let height = (area * ratio).sqrt().round() as usize;
            let width = (area / ratio).sqrt().round() as usize;
            if height < size.height && width < size.width {
                let top = random.below(size.height - height + 1);
                let left = random.below(size.width - width + 1);
                return Some((left, top, Size { height, width }));
            }
        }
        None
    }
}

/// A number of the standard normal distribution (Box and Muller's cosine).
fn normal(random: &mut Random) -> f32 {
    // 1 - unit is in (0, 1]: its logarithm is finite.
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    (radius * (std::f64::consts::TAU * random.unit()).cos()) as f32
}
