//! Batches of classes that the network confuses now.
//!
//! Both samplers choose classes by the distances between class means, which the trainer computes
//! anew every so many steps ([`BatchSampler::refresh`], [`BatchSampler::with_means`]). Given the
//! means they are pure functions of (labels, seed, epoch) like every other. Before they have any, they
//! form the batches of [`ClassesImages`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::classes_images::{ClassesImages, ClassesImagesConfig};
use super::{BatchSampler, ClassMeans, Labels, Refresh, SmallClasses, at_least_one, draw};
use crate::error::Error;
use crate::random::Random;

/// Configuration of [`HardIdentities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardIdentitiesConfig {
    /// Classes in a batch.
    pub classes_per_batch: usize,
    /// Images of each of them.
    pub images_per_class: usize,
    /// What becomes of a class with fewer images; default `repeat`.
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

/// Configuration of [`HardClasses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardClassesConfig {
    /// Classes in a batch.
    pub classes_per_batch: usize,
    /// Images of each of them; default 2 (N-pair).
    #[serde(default = "two")]
    pub images_per_class: usize,
    /// What becomes of a class with fewer images; default `repeat`.
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

fn eight() -> usize {
    8
}

fn fifty() -> usize {
    50
}

fn five_hundred() -> usize {
    500
}

/// Hard identity mining (Ristani & Tomasi, "Features for Multi-Target Multi-Camera Tracking and
/// Re-Identification", CVPR 2018).
///
/// A batch begins with an identity; each of the others comes, with equal probability, from the pool
/// of the identities whose means are nearest to the first one's, or from all the rest. An epoch is a
/// permutation of the classes, of which every `classes_per_batch`-th begins a batch.
#[derive(Clone, Debug)]
pub struct HardIdentities {
    config: HardIdentitiesConfig,
    base: ClassesImages,
    means: Option<Arc<ClassMeans>>,
}

/// Hard class mining of N-pair (Sohn, "Improved Deep Metric Learning with Multi-class N-pair Loss
/// Objective", NIPS 2016, section 3.2.1).
///
/// A batch begins with a random class; then the class is added, again and again, that violates the
/// triplet constraint most with respect to those chosen already: whose mean is nearest to one of
/// theirs. Ties go to the class that was drawn first.
#[derive(Clone, Debug)]
pub struct HardClasses {
    config: HardClassesConfig,
    base: ClassesImages,
    means: Option<Arc<ClassMeans>>,
}

impl HardIdentities {
    /// The sampler for these labels, without means.
    ///
    /// # Errors
    ///
    /// As for [`ClassesImages::new`]; [`Error::Config`] for a pool or an interval of 0.
    pub fn new(config: &HardIdentitiesConfig, labels: Labels<'_>) -> Result<Self, Error> {
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

impl HardClasses {
    /// The sampler for these labels, without means.
    ///
    /// # Errors
    ///
    /// As for [`ClassesImages::new`]; [`Error::Config`] for an interval of 0 and for fewer candidates
    /// than classes in a batch.
    pub fn new(config: &HardClassesConfig, labels: Labels<'_>) -> Result<Self, Error> {
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

fn base_of(
    config: &ClassesImagesConfig,
    refresh_every: usize,
    images_per_mean: usize,
    labels: Labels<'_>,
) -> Result<ClassesImages, Error> {
    at_least_one("refresh_every", refresh_every)?;
    at_least_one("images_per_mean", images_per_mean)?;
    ClassesImages::new(config, labels)
}

fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The images of a batch: `count` of each of the classes at `places`, their `number`-th draw.
fn images(base: &ClassesImages, places: &[usize], seed: u64, number: u64) -> Vec<u32> {
    let count = base.config().images_per_class;
    let of = |&place: &usize| {
        let (class, images) = &base.classes()[place];
        draw(images, *class, count, seed, number)
    };
    places.iter().flat_map(of).collect()
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
    use super::*;

    /// Classes `0..count` of three images each, whose means lie on a line at `count`, `count - 1`, …
    fn labels(count: usize) -> (Vec<u32>, Vec<String>, Arc<ClassMeans>) {
        let labels = (0..count as u32).flat_map(|class| [class; 3]).collect();
        let names = (0..count).map(|class| format!("class{class}")).collect();
        let values = (0..count).map(|class| (count - class) as f32).collect();
        (labels, names, Arc::new(ClassMeans::new(1, values)))
    }

    fn classes_of(batch: &[u32], images: usize) -> Vec<i64> {
        assert!(batch.chunks_exact(images).all(|group| group.iter().all(|image| image / 3 == group[0] / 3)));
        batch.chunks_exact(images).map(|group| i64::from(group[0] / 3)).collect()
    }

    #[test]
    fn half_of_the_identities_come_from_the_pool_of_the_first() {
        let (labels, names, means) = labels(100);
        let config = "classes_per_batch = 10\nimages_per_class = 2\npool = 20";
        let config: HardIdentitiesConfig = toml::from_str(config).unwrap();
        let set = Labels { labels: &labels, class_names: &names, source: "x" };
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

    #[test]
    fn n_pair_batches_are_chains_of_nearest_classes() {
        let (labels, names, means) = labels(50);
        let config: HardClassesConfig = toml::from_str("classes_per_batch = 8").unwrap();
        let set = Labels { labels: &labels, class_names: &names, source: "x" };
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
        let set = Labels { labels: &labels, class_names: &names, source: "x" };
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
        let set = Labels { labels: &labels, class_names: &names, source: "x" };
        let config: HardClassesConfig = toml::from_str("classes_per_batch = 9").unwrap();
        let sampler = HardClasses::new(&config, set).unwrap().with_means(means).unwrap();
        let mut classes = classes_of(&sampler.epoch(1, 1)[0], 2);
        classes.sort_unstable();
        assert_eq!(classes, (0..9).collect::<Vec<i64>>());
    }
}
