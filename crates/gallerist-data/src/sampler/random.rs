//! Images in random order, independent of their classes.

use std::sync::Arc;

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::batch_sampler::{BatchSampler, SamplerFactory};
use super::class_labels::at_least_one;
use crate::error::Error;
use crate::source::ImageSet;
use crate::text::counted;
use gallerist_util::random::Random;

/// Configuration of [`RandomBatches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomBatchesConfig {
    /// Images in a batch.
    pub batch_size: usize,
}

impl Default for RandomBatchesConfig {
    /// 128 images.
    fn default() -> Self {
        RandomBatchesConfig { batch_size: 128 }
    }
}

impl Named for RandomBatchesConfig {
    const NAME: &'static str = "random";
}

impl SamplerFactory for RandomBatchesConfig {
    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn uses_class_means(&self) -> bool {
        false
    }

    fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error> {
        Ok(Arc::new(RandomBatches::new(self, set.len(), set.name())?))
    }
}

/// Batches cut from a permutation of all images.
///
/// The last `images % batch_size` of the permutation wait for a later epoch.
#[derive(Clone, Debug)]
pub struct RandomBatches {
    config: RandomBatchesConfig,
    images: usize,
}

impl RandomBatches {
    /// The sampler for so many images from `source` (a name for messages).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a size of 0, [`Error::Batches`] for a size larger
    /// than the set.
    pub fn new(config: &RandomBatchesConfig, images: usize, source: &str) -> Result<Self, Error> {
        at_least_one("batch_size", config.batch_size)?;
        if images < config.batch_size {
            return Err(Error::Batches {
                wanted: counted(config.batch_size, "image", "images"),
                path: source.to_owned(),
                found: format!("it has {}", counted(images, "image", "images")),
                hint: (images > 0).then(|| format!("set sampler.batch_size = {images}")),
            });
        }
        Ok(RandomBatches { config: *config, images })
    }
}

impl BatchSampler for RandomBatches {
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
        Random::new(seed, "images", epoch, 0)
            .permutation(self.images)
            .chunks_exact(self.config.batch_size)
            .map(<[u32]>::to_vec)
            .collect()
    }

    fn batch_size(&self) -> usize {
        self.config.batch_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_shows_no_image_twice_and_drops_the_remainder() {
        let sampler = RandomBatches::new(&RandomBatchesConfig { batch_size: 4 }, 11, "x").unwrap();
        let first = sampler.epoch(3, 0);
        assert_eq!(first.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        let mut images = first.concat();
        images.sort_unstable();
        images.dedup();
        assert_eq!(images.len(), 8);
        assert_eq!(first, sampler.epoch(3, 0));
        assert_ne!(first, sampler.epoch(3, 1));
        assert_ne!(first, sampler.epoch(4, 0));
    }

    #[test]
    fn a_batch_larger_than_the_set_is_refused() {
        let error = RandomBatches::new(&RandomBatchesConfig { batch_size: 4 }, 3, "x").unwrap_err();
        assert_eq!(error.to_string(), "cannot form batches of 4 images from `x`\n  it has 3 images");
        assert_eq!(error.hint().unwrap(), "set sampler.batch_size = 3");
    }
}
