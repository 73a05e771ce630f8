//! Batches whose classes the network confuses with the first one.

use std::sync::Arc;

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::batch_sampler::{BatchSampler, Refresh, SamplerFactory};
use super::class_labels::{ClassLabels, SmallClasses, at_least_one};
use super::class_means::ClassMeans;
use super::classes_images::{BATCH_SIZE_KEYS, ClassesImages, ClassesImagesConfig};
use super::confusable::{base_of, eight, five_hundred, images, squared_distance};
use crate::error::Error;
use crate::source::ImageSet;
use gallerist_util::random::Random;

/// Configuration of [`HardIdentities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardIdentitiesConfig {
    /// Classes in a batch.
    pub classes_per_batch: usize,
    /// Images of each of them.
    pub images_per_class: usize,
    /// How a class with fewer images is treated; default `repeat`.
    #[serde(default)]
    pub small_classes: SmallClasses,
    /// Classes in the pool of the most confusable ones; default 50 (SRT).
    #[serde(default = "fifty")]
    pub pool: usize,
    /// Steps between two computations of the class means; default 500.
    #[serde(default = "five_hundred")]
    pub refresh_every: usize,
    /// Images of a class that its mean is taken over, at most; default 8.
    #[serde(default = "eight")]
    pub images_per_mean: usize,
}

fn fifty() -> usize {
    50
}

impl Default for HardIdentitiesConfig {
    /// 32 classes with 4 images each, the rest as in the fields.
    fn default() -> Self {
        HardIdentitiesConfig {
            classes_per_batch: 32,
            images_per_class: 4,
            small_classes: SmallClasses::Repeat,
            pool: fifty(),
            refresh_every: five_hundred(),
            images_per_mean: eight(),
        }
    }
}

impl Named for HardIdentitiesConfig {
    const NAME: &'static str = "hard_identities";
}

impl SamplerFactory for HardIdentitiesConfig {
    fn batch_size(&self) -> usize {
        self.classes_per_batch.saturating_mul(self.images_per_class)
    }

    fn batch_size_keys(&self) -> &'static str {
        BATCH_SIZE_KEYS
    }

    fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error> {
        Ok(Arc::new(HardIdentities::new(self, ClassLabels::of(set)?)?))
    }
}

/// Hard identity mining (Ristani & Tomasi, "Features for Multi-Target Multi-Camera Tracking and
/// Re-Identification", CVPR 2018).
///
/// A batch begins with an identity. Each of the others comes, with equal probability, from the pool
/// of the identities with means nearest to the mean of the first one, or from all the rest. An epoch is a
/// permutation of the classes, of which every `classes_per_batch`-th begins a batch.
#[derive(Clone, Debug)]
pub struct HardIdentities {
    config: HardIdentitiesConfig,
    base: ClassesImages,
    means: Option<Arc<ClassMeans>>,
}

impl HardIdentities {
    /// The sampler for these labels, without means.
    ///
    /// # Errors
    ///
    /// As for [`ClassesImages::new`]; [`Error::Config`] for a pool or an interval of 0.
    pub fn new(config: &HardIdentitiesConfig, labels: ClassLabels<'_>) -> Result<Self, Error> {
        at_least_one("pool", config.pool)?;
        let &HardIdentitiesConfig { classes_per_batch, images_per_class, small_classes, .. } = config;
        let base = ClassesImagesConfig { classes_per_batch, images_per_class, small_classes };
        let base = base_of(&base, config.refresh_every, config.images_per_mean, labels)?;
        Ok(HardIdentities { config: *config, base, means: None })
    }

    /// The places of the classes of the batch that the class at `anchor` begins.
    fn choose(&self, anchor: usize, means: &ClassMeans, random: &mut Random) -> Vec<usize> {
        let classes = self.base.classes();
        let of = |place: usize| means.row(classes[place].0);
        let mut others: Vec<(f32, usize)> = (0..classes.len())
            .filter(|&place| place != anchor)
            .map(|place| (squared_distance(of(anchor), of(place)), place))
            .collect();
        others.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut pool: Vec<usize> = others.iter().map(|&(_, place)| place).collect();
        let mut rest = pool.split_off(self.config.pool.min(pool.len()));
        random.shuffle(&mut pool);
        random.shuffle(&mut rest);
        let mut chosen = vec![anchor];
        while chosen.len() < self.config.classes_per_batch {
            let hard = random.chance(0.5);
            let (first, second) = if hard { (&mut pool, &mut rest) } else { (&mut rest, &mut pool) };
            chosen.push(first.pop().or_else(|| second.pop()).expect("there are classes_per_batch classes"));
        }
        chosen
    }
}

impl BatchSampler for HardIdentities {
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
        let Some(means) = &self.means else { return self.base.epoch(seed, epoch) };
        let anchors = Random::new(seed, "classes", epoch, 0).permutation(self.base.classes().len());
        let batches = anchors.chunks_exact(self.config.classes_per_batch).len() as u64;
        (0..batches)
            .map(|batch| {
                let mut random = Random::new(seed, "hard identities", epoch, batch);
                let places = self.choose(anchors[batch as usize] as usize, means, &mut random);
                images(&self.base, &places, seed, epoch * batches + batch)
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
        Some(Arc::new(HardIdentities { means: Some(means), ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::confusable::test_classes::{classes_of, labels};
    use super::*;

    #[test]
    fn half_of_the_identities_come_from_the_pool_of_the_first() {
        let (labels, names, means) = labels(100);
        let config = "classes_per_batch = 10\nimages_per_class = 2\npool = 20";
        let config: HardIdentitiesConfig = toml::from_str(config).unwrap();
        let set = ClassLabels { labels: &labels, class_names: &names, source: "x" };
        let sampler = HardIdentities::new(&config, set).unwrap();
        assert_eq!(sampler.epoch(1, 0), sampler.base.epoch(1, 0), "without means as classes x images");
        let sampler = sampler.with_means(means).unwrap();
        let (mut near, mut all) = (0, 0);
        for epoch in 0..20 {
            let batches = sampler.epoch(7, epoch);
            assert_eq!(batches, sampler.epoch(7, epoch));
            assert_eq!(batches.len(), 10);
            for batch in batches {
                let classes = classes_of(&batch, 2);
                let mut different = classes.clone();
                different.sort_unstable();
                different.dedup();
                assert_eq!(different.len(), 10, "no class twice");
                let mut distances: Vec<i64> = (0..100).map(|c: i64| (c - classes[0]).abs()).collect();
                distances.sort_unstable();
                near += classes[1..].iter().filter(|&&c| (c - classes[0]).abs() <= distances[20]).count();
                all += 9;
            }
        }
        let share = near as f64 / all as f64;
        // Half, and what a tie at the pool's edge adds. 1,800 draws: three standard errors are .035.
        assert!((0.46..0.56).contains(&share), "{share}");
    }
}
