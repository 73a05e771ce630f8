//! Batches of classes, each of which the network confuses with one before it.

use std::sync::Arc;

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::batch_sampler::{BatchSampler, Refresh, SamplerFactory};
use super::class_labels::{ClassLabels, SmallClasses};
use super::class_means::ClassMeans;
use super::classes_images::{BATCH_SIZE_KEYS, ClassesImages, ClassesImagesConfig};
use super::confusable::{base_of, eight, five_hundred, images, squared_distance};
use crate::error::Error;
use crate::source::ImageSet;
use gallerist_util::random::Random;

/// Configuration of [`HardClasses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardClassesConfig {
    /// Classes in a batch.
    pub classes_per_batch: usize,
    /// Images of each of them; default 2 (N-pair).
    #[serde(default = "two")]
    pub images_per_class: usize,
    /// How a class with fewer images is treated; default `repeat`.
    #[serde(default)]
    pub small_classes: SmallClasses,
    /// Classes drawn at random from which a batch chooses its own; 0, the default: all.
    #[serde(default)]
    pub candidates: usize,
    /// Steps between two computations of the class means; default 500.
    #[serde(default = "five_hundred")]
    pub refresh_every: usize,
    /// Images of a class that its mean is taken over, at most; default 8 (the paper takes 1 or 2).
    #[serde(default = "eight")]
    pub images_per_mean: usize,
}

fn two() -> usize {
    2
}

impl Default for HardClassesConfig {
    /// 32 classes with 2 images each, the rest as in the fields.
    fn default() -> Self {
        HardClassesConfig {
            classes_per_batch: 32,
            images_per_class: two(),
            small_classes: SmallClasses::Repeat,
            candidates: 0,
            refresh_every: five_hundred(),
            images_per_mean: eight(),
        }
    }
}

impl Named for HardClassesConfig {
    const NAME: &'static str = "hard_classes";
}

impl SamplerFactory for HardClassesConfig {
    fn batch_size(&self) -> usize {
        self.classes_per_batch.saturating_mul(self.images_per_class)
    }

    fn batch_size_keys(&self) -> &'static str {
        BATCH_SIZE_KEYS
    }

    fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error> {
        Ok(Arc::new(HardClasses::new(self, ClassLabels::of(set)?)?))
    }
}

/// Hard class mining of N-pair (Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
/// Objective", NIPS 2016, section 3.2.1).
///
/// A batch begins with a random class. Each further class is the one that most violates the
/// triplet constraint with the chosen ones: its mean is nearest to one of
/// theirs. Ties go to the class that was drawn first.
#[derive(Clone, Debug)]
pub struct HardClasses {
    config: HardClassesConfig,
    base: ClassesImages,
    means: Option<Arc<ClassMeans>>,
}

impl HardClasses {
    /// The sampler for these labels, without means.
    ///
    /// # Errors
    ///
    /// As for [`ClassesImages::new`]; [`Error::Config`] for an interval of 0 and for fewer candidates
    /// than classes in a batch.
    pub fn new(config: &HardClassesConfig, labels: ClassLabels<'_>) -> Result<Self, Error> {
        let &HardClassesConfig { classes_per_batch, images_per_class, small_classes, candidates, .. } =
            config;
        if candidates > 0 && candidates < classes_per_batch {
            let wanted = "0 or at least sampler.classes_per_batch";
            return Err(Error::Config { field: "candidates", wanted, found: candidates.to_string() });
        }
        let base = ClassesImagesConfig { classes_per_batch, images_per_class, small_classes };
        let base = base_of(&base, config.refresh_every, config.images_per_mean, labels)?;
        Ok(HardClasses { config: *config, base, means: None })
    }

    /// The places of the classes of a batch that chooses among `candidates` and begins with the first.
    fn choose(&self, candidates: &[u32], means: &ClassMeans) -> Vec<usize> {
        let classes = self.base.classes();
        let of = |place: u32| means.row(classes[place as usize].0);
        let mut nearest = vec![f32::INFINITY; candidates.len()];
        let mut chosen = Vec::with_capacity(self.config.classes_per_batch);
        let mut next = 0;
        loop {
            chosen.push(candidates[next] as usize);
            nearest[next] = f32::NAN;
            if chosen.len() == self.config.classes_per_batch {
                return chosen;
            }
            let newest = of(candidates[next]);
            let mut best = (f32::INFINITY, None);
            for (place, (distance, &candidate)) in nearest.iter_mut().zip(candidates).enumerate() {
                if distance.is_nan() {
                    continue;
                }
                *distance = distance.min(squared_distance(newest, of(candidate)));
                if best.1.is_none() || *distance < best.0 {
                    best = (*distance, Some(place));
                }
            }
            next = best.1.expect("there are as many candidates as classes in a batch");
        }
    }
}

impl BatchSampler for HardClasses {
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
        let Some(means) = &self.means else { return self.base.epoch(seed, epoch) };
        let classes = self.base.classes().len();
        let batches = (classes / self.config.classes_per_batch) as u64;
        (0..batches)
            .map(|batch| {
                let mut drawn = Random::new(seed, "hard classes", epoch, batch).permutation(classes);
                if self.config.candidates > 0 {
                    drawn.truncate(self.config.candidates);
                }
                images(&self.base, &self.choose(&drawn, means), seed, epoch * batches + batch)
            })
            .collect()
    }

    fn batch_size(&self) -> usize {
        self.base.batch_size()
    }

    fn left_out_classes(&self) -> usize {
        self.base.left_out_classes()
    }

    fn refresh(&self) -> Option<Refresh> {
        Some(Refresh { every: self.config.refresh_every, images_per_class: self.config.images_per_mean })
    }

    fn with_means(&self, means: Arc<ClassMeans>) -> Option<Arc<dyn BatchSampler>> {
        Some(Arc::new(HardClasses { means: Some(means), ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::confusable::test_classes::{classes_of, labels};
    use super::*;

    #[test]
    fn n_pair_batches_are_chains_of_nearest_classes() {
        let (labels, names, means) = labels(50);
        let config: HardClassesConfig = toml::from_str("classes_per_batch = 8").unwrap();
        let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
        let sampler = HardClasses::new(&config, set).unwrap().with_means(means).unwrap();
        for batch in sampler.epoch(3, 4) {
            let mut classes = classes_of(&batch, 2);
            classes.sort_unstable();
            assert_eq!(classes[7] - classes[0], 7, "eight neighbours on the line: {classes:?}");
        }
    }

    #[test]
    fn candidates_limit_what_a_batch_chooses_from() {
        let (labels, names, means) = labels(50);
        let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
        let config = |candidates: usize| -> HardClassesConfig {
            toml::from_str(&format!("classes_per_batch = 8\ncandidates = {candidates}")).unwrap()
        };
        let all = HardClasses::new(&config(8), set).unwrap().with_means(means).unwrap();
        // As many candidates as classes: all of them, whatever the distances.
        assert!(all.epoch(3, 0).iter().any(|batch| {
            let classes = classes_of(batch, 2);
            classes.iter().max().unwrap() - classes.iter().min().unwrap() > 20
        }));
        let error = HardClasses::new(&config(7), set).unwrap_err();
        assert_eq!(error.to_string(), "`candidates` must be 0 or at least sampler.classes_per_batch, not 7");
    }

    #[test]
    fn equal_means_are_no_obstacle() {
        let (labels, names, _) = labels(9);
        let means = Arc::new(ClassMeans::new(2, vec![0.5; 18]));
        let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
        let config: HardClassesConfig = toml::from_str("classes_per_batch = 9").unwrap();
        let sampler = HardClasses::new(&config, set).unwrap().with_means(means).unwrap();
        let mut classes = classes_of(&sampler.epoch(1, 1)[0], 2);
        classes.sort_unstable();
        assert_eq!(classes, (0..9).collect::<Vec<i64>>());
    }
}
