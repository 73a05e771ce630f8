//! How the images of an epoch are grouped into batches.
//!
//! A sampler is a pure function of (labels, seed, epoch), and some of how the network sees the
//! classes ([`ClassMeans`]). All batches have the
//! same size; what does not fill a batch at the end of an epoch is left out of
//! that epoch, and because every epoch has its own order, something else is
//! left out of the next.

pub(crate) mod classes_images;
pub(crate) mod hard;
pub(crate) mod n_group;
pub(crate) mod random;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::random::Random;
use crate::source::ImageSet;
use classes_images::{ClassesImages, ClassesImagesConfig};
use hard::{HardClasses, HardClassesConfig, HardIdentities, HardIdentitiesConfig};
use n_group::{NGroup, NGroupConfig};
use random::{RandomBatches, RandomBatchesConfig};

/// Forms the batches of an epoch.
pub trait BatchSampler: Send + Sync {
    /// The batches of an epoch, as indices of images.
    ///
    /// The same arguments give the same batches, in whatever order and on
    /// whatever thread they are asked for.
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>>;

    /// Images in every batch.
    fn batch_size(&self) -> usize;

    /// Classes that never appear because they have too few images.
    fn left_out_classes(&self) -> usize {
        0
    }

    /// How often, and from how many images, the class means want to be computed anew; nothing for a
    /// sampler that needs none.
    fn refresh(&self) -> Option<Refresh> {
        None
    }

    /// The sampler with these class means; nothing for one that needs none.
    fn with_means(&self, _means: Arc<ClassMeans>) -> Option<Arc<dyn BatchSampler>> {
        None
    }
}

/// When a sampler wants the class means anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Steps between two computations; the first is before the first step.
    pub every: usize,
    /// Images of a class, at most, that its mean is taken over.
    pub images_per_class: usize,
}

/// The mean embedding of every class, as the network sees it now.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassMeans {
    dimensions: usize,
    values: Vec<f32>,
}

impl ClassMeans {
    /// `values` holds one row of `dimensions` numbers per class, in the order of the class numbers.
    ///
    /// # Panics
    ///
    /// If `values` does not hold whole rows.
    pub fn new(dimensions: usize, values: Vec<f32>) -> Self {
        assert!(
            dimensions > 0 && values.len().is_multiple_of(dimensions),
            "{} values, {dimensions} a row",
            values.len()
        );
        ClassMeans { dimensions, values }
    }

    /// Length of a row.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// All rows, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The mean of a class.
    fn row(&self, class: u32) -> &[f32] {
        &self.values[class as usize * self.dimensions..][..self.dimensions]
    }
}

/// The sampler of a run file, chosen by its `kind`.
///
/// ```
/// use gallerist_data::SamplerConfig;
///
/// let text = "kind = \"classes_images\"\nclasses_per_batch = 32\nimages_per_class = 4";
/// let config: SamplerConfig = toml::from_str(text).unwrap();
/// assert!(matches!(config, SamplerConfig::ClassesImages(c) if c.images_per_class == 4));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SamplerConfig {
    /// P classes with K images each.
    ClassesImages(ClassesImagesConfig),
    /// Uniform n-group sampling: small classes make room for further classes.
    NGroup(NGroupConfig),
    /// Images in random order, whatever their class.
    Random(RandomBatchesConfig),
    /// Hard identity mining: half of a batch's classes are hard to tell from its first.
    HardIdentities(HardIdentitiesConfig),
    /// Hard class mining of N-pair: every class is the nearest to one chosen before.
    HardClasses(HardClassesConfig),
}

impl SamplerConfig {
    /// The sampler for a set.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a size of 0, [`Error::NoLabels`] where classes are
    /// needed and the set has none, [`Error::Batches`] when not even one batch
    /// can be formed.
    pub fn build(&self, set: &ImageSet) -> Result<Box<dyn BatchSampler>, Error> {
        let labels = || {
            let labels = set.labels().ok_or_else(|| set.no_labels("the sampler"))?;
            Ok(Labels { labels, class_names: set.class_names(), source: set.name() })
        };
        Ok(match self {
            SamplerConfig::ClassesImages(c) => Box::new(ClassesImages::new(c, labels()?)?),
            SamplerConfig::NGroup(c) => Box::new(NGroup::new(c, labels()?)?),
            SamplerConfig::Random(c) => Box::new(RandomBatches::new(c, set.len(), set.name())?),
            SamplerConfig::HardIdentities(c) => Box::new(HardIdentities::new(c, labels()?)?),
            SamplerConfig::HardClasses(c) => Box::new(HardClasses::new(c, labels()?)?),
        })
    }
}

/// What a sampler knows of a set.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// One class number per image, each below the number of classes.
    pub labels: &'a [u32],
    /// Names of the classes.
    pub class_names: &'a [String],
    /// Where the images come from, for messages.
    pub source: &'a str,
}

impl Labels<'_> {
    /// The images of each class, in their order.
    ///
    /// # Panics
    ///
    /// If a label has no class name.
    fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.class_names.len()];
        for (i, &label) in self.labels.iter().enumerate() {
            members[label as usize].push(i as u32);
        }
        members
    }

    /// Size of the smallest class and its name: the first of several.
    fn smallest<'a>(&'a self, members: &[Vec<u32>]) -> Option<(usize, &'a str)> {
        let smallest = (0..members.len()).min_by_key(|&c| members[c].len())?;
        Some((members[smallest].len(), &self.class_names[smallest]))
    }
}

/// What to do with a class that has fewer images than a batch wants of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmallClasses {
    /// Its images are repeated until there are enough.
    #[default]
    Repeat,
    /// It takes no part; [`BatchSampler::left_out_classes`] counts it.
    LeaveOut,
}

/// At least 1, or an error that names the field.
fn at_least_one(field: &'static str, value: usize) -> Result<(), Error> {
    match value {
        0 => Err(Error::Config { field, wanted: "at least 1", found: "0".to_owned() }),
        _ => Ok(()),
    }
}

/// The `number`-th draw of `count` images from a class.
///
/// With enough images a draw never repeats one, and draws 0, 1, 2, … together
/// walk through one permutation of the class after the other. Where a draw
/// straddles two permutations, the images it has from the first are moved out
/// of its part of the second. `count / gcd` permutations are `size / gcd` whole
/// draws (gcd of size and count), after which all starts anew: so any draw is
/// had without its predecessors' history.
///
/// With too few images, a permutation of the class is repeated.
fn draw(members: &[u32], class: u32, count: usize, seed: u64, number: u64) -> Vec<u32> {
    let size = members.len();
    let shuffled = |round: u64| {
        let mut order = members.to_vec();
        Random::new(seed, "class images", round, class.into()).shuffle(&mut order);
        order
    };
    if size <= count {
        return shuffled(number).into_iter().cycle().take(count).collect();
    }
    let gcd = gcd(size, count);
    let (draws, rounds) = ((size / gcd) as u64, (count / gcd) as u64);
    let (cycle, start) = (number / draws, (number % draws) as usize * count);
    let mut order = Vec::new();
    let mut picked = Vec::with_capacity(count);
    for round in 0..rounds {
        // Images that the draw begun in the last round already has.
        let begun = (round as usize * size) % count;
        let tail = order.split_off(order.len().saturating_sub(begun));
        order = shuffled(cycle * rounds + round);
        if begun > 0 {
            // The first images not in the tail come first; the rest keeps its order.
            let mut wanted = count - begun;
            let (mut first, mut rest) = (Vec::with_capacity(size), Vec::new());
            for image in order {
                if wanted > 0 && !tail.contains(&image) {
                    wanted -= 1;
                    first.push(image);
                } else {
                    rest.push(image);
                }
            }
            first.append(&mut rest);
            order = first;
        }
        let offset = round as usize * size;
        let from = start.max(offset);
        let to = (start + count).min(offset + size);
        if from < to {
            picked.extend_from_slice(&order[from - offset..to - offset]);
        }
        if picked.len() == count {
            break;
        }
    }
    picked
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn draws_repeat_nothing_and_show_every_image_equally_often(
            size in 1usize..40, count in 1usize..40, seed in any::<u64>(), cycle in 0u64..3,
        ) {
            prop_assume!(count <= size);
            let members: Vec<u32> = (100..100 + size as u32).collect();
            let draws = (size / gcd(size, count)) as u64;
            let mut times = vec![0; size];
            for number in cycle * draws..(cycle + 1) * draws {
                let mut images = draw(&members, 3, count, seed, number);
                prop_assert_eq!(images.len(), count);
                for &image in &images {
                    times[image as usize - 100] += 1;
                }
                images.sort_unstable();
                images.dedup();
                prop_assert_eq!(images.len(), count);
            }
            prop_assert!(times.iter().all(|&t| t == count / gcd(size, count)));
        }

        #[test]
        fn consecutive_draws_walk_through_permutations(
            size in 2usize..20, count in 1usize..20, seed in any::<u64>(),
        ) {
            prop_assume!(count < size);
            let members: Vec<u32> = (0..size as u32).collect();
            let stream: Vec<u32> =
                (0..size as u64).flat_map(|n| draw(&members, 0, count, seed, n)).collect();
            for permutation in stream.chunks_exact(size) {
                let mut sorted = permutation.to_vec();
                sorted.sort_unstable();
                prop_assert_eq!(&sorted, &members);
            }
        }

        #[test]
        fn a_small_class_is_repeated_evenly(size in 1usize..9, count in 1usize..40, seed in any::<u64>()) {
            prop_assume!(size < count);
            let members: Vec<u32> = (0..size as u32).collect();
            let images = draw(&members, 0, count, seed, 5);
            prop_assert_eq!(images.len(), count);
            for m in members {
                let times = images.iter().filter(|&&i| i == m).count();
                prop_assert!(times == count / size || times == count.div_ceil(size));
            }
        }
    }
}
