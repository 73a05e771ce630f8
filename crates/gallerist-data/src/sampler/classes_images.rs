//! P x K batches: so many classes, so many images of each.

use std::sync::Arc;

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::batch_sampler::{BatchSampler, SamplerFactory};
use super::class_labels::{ClassLabels, SmallClasses, at_least_one};
use super::draw::draw;
use crate::error::Error;
use crate::source::ImageSet;
use crate::text::counted;
use gallerist_util::random::Random;

/// The settings whose product is the batch size.
pub(super) const BATCH_SIZE_KEYS: &str = "sampler.classes_per_batch x sampler.images_per_class";

/// Configuration of [`ClassesImages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassesImagesConfig {
    /// Classes in a batch.
    pub classes_per_batch: usize,
    /// Images of each of them.
    pub images_per_class: usize,
    /// How a class with fewer images is treated; default `repeat`.
    #[serde(default)]
    pub small_classes: SmallClasses,
}

impl Default for ClassesImagesConfig {
    /// 32 classes with 4 images each.
    fn default() -> Self {
        ClassesImagesConfig {
            classes_per_batch: 32,
            images_per_class: 4,
            small_classes: SmallClasses::Repeat,
        }
    }
}

impl Named for ClassesImagesConfig {
    const NAME: &'static str = "classes_images";
}

impl SamplerFactory for ClassesImagesConfig {
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
        Ok(Arc::new(ClassesImages::new(self, ClassLabels::of(set)?)?))
    }
}

/// Batches of `classes_per_batch` classes with `images_per_class` images each,
/// the images of a class next to each other.
///
/// An epoch is one pass over a permutation of the classes; the last
/// `classes % classes_per_batch` of the permutation wait for a later epoch.
/// In epoch `e` a class gives its `e`-th draw: no image twice in a batch, and
/// every image of the class once before one comes again (epochs in which the
/// class waits skip a draw). A class with too few images repeats its images
/// or is left out, see [`SmallClasses`].
#[derive(Clone, Debug)]
pub struct ClassesImages {
    config: ClassesImagesConfig,
    /// Class number and images of the classes that take part.
    classes: Vec<(u32, Vec<u32>)>,
    left_out: usize,
}

impl ClassesImages {
    /// The sampler for these labels.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a size of 0, [`Error::Batches`] when fewer than
    /// `classes_per_batch` classes have enough images.
    pub fn new(config: &ClassesImagesConfig, labels: ClassLabels<'_>) -> Result<Self, Error> {
        let (p, k) = (config.classes_per_batch, config.images_per_class);
        at_least_one("classes_per_batch", p)?;
        at_least_one("images_per_class", k)?;
        let members = labels.members();
        let needed = match config.small_classes {
            SmallClasses::LeaveOut => k,
            SmallClasses::Repeat => 1,
        };
        let enough = |n: usize| members.iter().filter(|m| m.len() >= n).count();
        if enough(needed) < p {
            let have = enough(needed);
            let smallest = match labels.smallest(&members) {
                Some((n, name)) => format!("; the smallest is `{name}` with {n}"),
                None => String::new(),
            };
            let mut ways = Vec::new();
            if have > 0 {
                ways.push(format!("sampler.classes_per_batch = {have}"));
            }
            // The most images that enough classes have.
            if let Some(fewer) = (1..k).rev().find(|&n| enough(n) >= p) {
                ways.push(format!("sampler.images_per_class = {fewer}"));
            }
            return Err(Error::Batches {
                wanted: format!("{} x {}", counted(p, "class", "classes"), counted(k, "image", "images")),
                path: labels.source.to_owned(),
                found: format!(
                    "{} at least {}{smallest}",
                    if have == 1 { "1 class has".to_owned() } else { format!("{have} classes have") },
                    counted(needed, "image", "images"),
                ),
                hint: (!ways.is_empty()).then(|| format!("set {}", ways.join(", or "))),
            });
        }
        let all = members.len();
        let classes: Vec<_> = (0u32..).zip(members).filter(|(_, images)| images.len() >= needed).collect();
        Ok(ClassesImages { config: *config, left_out: all - classes.len(), classes })
    }

    /// Class number and images of the classes that take part.
    pub(super) fn classes(&self) -> &[(u32, Vec<u32>)] {
        &self.classes
    }

    pub(super) fn config(&self) -> &ClassesImagesConfig {
        &self.config
    }
}

impl BatchSampler for ClassesImages {
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
        let k = self.config.images_per_class;
        Random::new(seed, "classes", epoch, 0)
            .permutation(self.classes.len())
            .chunks_exact(self.config.classes_per_batch)
            .map(|group| {
                let mut batch = Vec::with_capacity(self.batch_size());
                for &place in group {
                    let (class, images) = &self.classes[place as usize];
                    batch.extend(draw(images, *class, k, seed, epoch));
                }
                batch
            })
            .collect()
    }

    fn batch_size(&self) -> usize {
        self.config.classes_per_batch * self.config.images_per_class
    }

    fn left_out_classes(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(n: usize) -> Vec<String> {
        (0..n).map(|i| format!("class{i}")).collect()
    }

    /// Labels for classes of these sizes, mixed.
    fn labels(sizes: &[usize]) -> Vec<u32> {
        let mut labels: Vec<u32> = sizes.iter().enumerate().flat_map(|(c, &n)| vec![c as u32; n]).collect();
        Random::new(0, "test", 0, 0).shuffle(&mut labels);
        labels
    }

    fn config(p: usize, k: usize, small_classes: SmallClasses) -> ClassesImagesConfig {
        ClassesImagesConfig { classes_per_batch: p, images_per_class: k, small_classes }
    }

    proptest! {
        #[test]
        fn every_batch_has_p_classes_with_k_different_images(
            sizes in prop::collection::vec(1usize..12, 1..30),
            p in 1usize..8, k in 1usize..6, seed in any::<u64>(), epoch in 0u64..50,
        ) {
            let labels = labels(&sizes);
            let names = names(sizes.len());
            let large = sizes.iter().filter(|&&n| n >= k).count();
            let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
            let sampler = ClassesImages::new(&config(p, k, SmallClasses::LeaveOut), set);
            prop_assert_eq!(sampler.is_ok(), large >= p);
            let Ok(sampler) = sampler else { return Ok(()) };
            prop_assert_eq!(sampler.left_out_classes(), sizes.len() - large);
            let batches = sampler.epoch(seed, epoch);
            prop_assert_eq!(batches.len(), large / p);
            prop_assert_eq!(&batches, &sampler.epoch(seed, epoch));
            let mut seen = Vec::new();
            for batch in &batches {
                prop_assert_eq!(batch.len(), p * k);
                for group in batch.chunks_exact(k) {
                    let class = labels[group[0] as usize];
                    prop_assert!(group.iter().all(|&i| labels[i as usize] == class));
                    let mut images = group.to_vec();
                    images.sort_unstable();
                    images.dedup();
                    prop_assert_eq!(images.len(), k);
                    seen.push(class);
                }
            }
            // One pass over the classes: none comes twice.
            let n = seen.len();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), n);
        }
    }

    #[test]
    fn the_error_names_counts_the_smallest_class_and_what_would_work() {
        let mut sizes = vec![4; 19];
        sizes.extend(vec![2; 20]);
        sizes.push(1);
        let labels = labels(&sizes);
        let mut names = names(40);
        names[39] = "heron".to_owned();
        let set = ClassLabels { labels: &labels, class_names: &names, source: "data/train" };
        let error = ClassesImages::new(&config(32, 4, SmallClasses::LeaveOut), set).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot form batches of 32 classes x 4 images from `data/train`\n  \
             19 classes have at least 4 images; the smallest is `heron` with 1"
        );
        assert_eq!(
            error.hint().unwrap(),
            "set sampler.classes_per_batch = 19, or sampler.images_per_class = 2"
        );
        let repeated = ClassesImages::new(&config(32, 4, SmallClasses::Repeat), set).unwrap();
        assert_eq!(repeated.left_out_classes(), 0);
        assert!(repeated.epoch(1, 0).iter().all(|b| b.len() == 128));
        let error = ClassesImages::new(&config(41, 4, SmallClasses::Repeat), set).unwrap_err();
        assert_eq!(error.hint().unwrap(), "set sampler.classes_per_batch = 40");
    }

    #[test]
    fn a_size_of_zero_is_refused() {
        let names = names(1);
        let set = ClassLabels { labels: &[0], class_names: &names, source: "x" };
        let error = ClassesImages::new(&config(1, 0, SmallClasses::LeaveOut), set).unwrap_err();
        assert_eq!(error.to_string(), "`images_per_class` must be at least 1, not 0");
    }
}
