//! Uniform n-group sampling (Schall et al., 2019, section 4).

use std::sync::Arc;

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::batch_sampler::{BatchSampler, SamplerFactory};
use super::class_labels::{ClassLabels, at_least_one};
use super::classes_images::BATCH_SIZE_KEYS;
use super::draw::draw;
use crate::error::Error;
use crate::source::ImageSet;
use crate::text::counted;
use gallerist_util::random::Random;

/// Configuration of [`NGroup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NGroupConfig {
    /// Classes in a batch when all have enough images.
    pub classes_per_batch: usize,
    /// Images of each class, at most.
    pub images_per_class: usize,
}

impl Default for NGroupConfig {
    /// 32 classes with 4 images each.
    fn default() -> Self {
        NGroupConfig { classes_per_batch: 32, images_per_class: 4 }
    }
}

impl Named for NGroupConfig {
    const NAME: &'static str = "n_group";
}

impl SamplerFactory for NGroupConfig {
    fn batch_size(&self) -> usize {
        self.classes_per_batch.saturating_mul(self.images_per_class)
    }

    fn batch_size_keys(&self) -> &'static str {
        BATCH_SIZE_KEYS
    }

    fn uses_class_means(&self) -> bool {
        false
    }

    fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error> {
        Ok(Arc::new(NGroup::new(self, ClassLabels::of(set)?)?))
    }
}

/// Batches of `classes_per_batch * images_per_class` images. A class gives
/// `images_per_class` of its images, or all it has.
///
/// Where a class has too few, further classes fill the batch; the last of them
/// gives only as many as are missing. An epoch is one pass over a
/// permutation of the classes, and a batch that is not full at its end is left
/// out. No image comes twice in a batch, and every image of a class comes once
/// before one comes again, as in
/// [`ClassesImages`](super::classes_images::ClassesImages).
#[derive(Clone, Debug)]
pub struct NGroup {
    config: NGroupConfig,
    classes: Vec<Vec<u32>>,
}

impl NGroup {
    /// The sampler for these labels.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a size of 0, [`Error::Batches`] when all classes
    /// together do not fill a batch.
    pub fn new(config: &NGroupConfig, labels: ClassLabels<'_>) -> Result<Self, Error> {
        let (k, n) = (config.classes_per_batch, config.images_per_class);
        at_least_one("classes_per_batch", k)?;
        at_least_one("images_per_class", n)?;
        let classes = labels.members();
        let available: usize = classes.iter().map(|images| images.len().min(n)).sum();
        if available < k * n {
            let smallest = match labels.smallest(&classes) {
                Some((size, name)) => format!("; the smallest is `{name}` with {size}"),
                None => String::new(),
            };
            let fitting = available / n;
            return Err(Error::Batches {
                wanted: format!("{} x {}", counted(k, "class", "classes"), counted(n, "image", "images")),
                path: labels.source.to_owned(),
                found: format!(
                    "{} give {} of the {} at {n} each at most{smallest}",
                    counted(classes.len(), "class", "classes"),
                    counted(available, "image", "images"),
                    k * n,
                ),
                hint: (fitting > 0).then(|| format!("set sampler.classes_per_batch = {fitting}")),
            });
        }
        Ok(NGroup { config: *config, classes })
    }
}

impl BatchSampler for NGroup {
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
        let size = self.batch_size();
        let mut batches = Vec::new();
        let mut batch = Vec::with_capacity(size);
        for class in Random::new(seed, "classes", epoch, 0).permutation(self.classes.len()) {
            let images = &self.classes[class as usize];
            if images.is_empty() {
                continue;
            }
            let count = self.config.images_per_class.min(images.len());
            let room = size - batch.len();
            batch.extend(draw(images, class, count, seed, epoch).into_iter().take(room));
            if batch.len() == size {
                batches.push(std::mem::replace(&mut batch, Vec::with_capacity(size)));
            }
        }
        batches
    }

    fn batch_size(&self) -> usize {
        self.config.classes_per_batch * self.config.images_per_class
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_are_full_and_repeat_no_image(
            sizes in prop::collection::vec(1usize..10, 1..40),
            k in 1usize..6, n in 1usize..6, seed in any::<u64>(), epoch in 0u64..20,
        ) {
            let labels: Vec<u32> =
                sizes.iter().enumerate().flat_map(|(c, &s)| vec![c as u32; s]).collect();
            let names: Vec<String> = (0..sizes.len()).map(|i| i.to_string()).collect();
            let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
            let available: usize = sizes.iter().map(|&s| s.min(n)).sum();
            let sampler = NGroup::new(&NGroupConfig { classes_per_batch: k, images_per_class: n }, set);
            prop_assert_eq!(sampler.is_ok(), available >= k * n);
            let Ok(sampler) = sampler else { return Ok(()) };
            let batches = sampler.epoch(seed, epoch);
            prop_assert!(!batches.is_empty());
            let mut images: Vec<u32> = Vec::new();
            for batch in &batches {
                prop_assert_eq!(batch.len(), k * n);
                // Only the class that closes a batch may give less than it could.
                let mut groups: Vec<(u32, usize)> = Vec::new();
                for &i in batch {
                    let class = labels[i as usize];
                    match groups.last_mut() {
                        Some((c, count)) if *c == class => *count += 1,
                        _ => groups.push((class, 1)),
                    }
                }
                for (c, count) in &groups[..groups.len() - 1] {
                    prop_assert_eq!(*count, sizes[*c as usize].min(n));
                }
                images.extend(batch);
            }
            let total = images.len();
            images.sort_unstable();
            images.dedup();
            prop_assert_eq!(images.len(), total);
        }
    }

    #[test]
    fn with_large_classes_it_is_k_classes_of_n_images() {
        let labels: Vec<u32> = (0..60).map(|i| i % 6).collect();
        let names: Vec<String> = (0..6).map(|i| i.to_string()).collect();
        let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
        let config = NGroupConfig { classes_per_batch: 3, images_per_class: 4 };
        let batches = NGroup::new(&config, set).unwrap().epoch(9, 2);
        assert_eq!(batches.len(), 2);
        for group in batches.iter().flat_map(|b| b.chunks_exact(4)) {
            assert!(group.iter().all(|&i| i % 6 == group[0] % 6));
        }
    }

    #[test]
    fn the_error_says_how_many_images_there_are() {
        let names = ["a".to_owned(), "b".to_owned()];
        let set = ClassLabels { labels: &[0, 0, 0, 1], class_names: &names, source: "data" };
        let config = NGroupConfig { classes_per_batch: 3, images_per_class: 2 };
        let error = NGroup::new(&config, set).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot form batches of 3 classes x 2 images from `data`\n  \
             2 classes give 3 images of the 6 at 2 each at most; the smallest is `b` with 1"
        );
        assert_eq!(error.hint().unwrap(), "set sampler.classes_per_batch = 1");
    }
}
