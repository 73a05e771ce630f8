//! What the samplers of confusable classes share.
//!
//! They choose classes by the distances between class means, which the trainer computes again after a number of steps
//! ([`refresh`](super::BatchSampler::refresh), [`with_means`](super::BatchSampler::with_means)). With the
//! means they are pure functions of (labels, seed, epoch) like every other sampler. Without means they
//! form the batches of [`ClassesImages`].

use super::class_labels::{ClassLabels, at_least_one};
use super::classes_images::{ClassesImages, ClassesImagesConfig};
use super::draw::draw;
use crate::error::Error;

/// The sampler whose classes are chosen from.
pub(super) fn base_of(
    config: &ClassesImagesConfig,
    refresh_every: usize,
    images_per_mean: usize,
    labels: ClassLabels<'_>,
) -> Result<ClassesImages, Error> {
    at_least_one("refresh_every", refresh_every)?;
    at_least_one("images_per_mean", images_per_mean)?;
    ClassesImages::new(config, labels)
}

pub(super) fn squared_distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The images of a batch: `count` of each of the classes at `places`, their `number`-th draw.
pub(super) fn images(base: &ClassesImages, places: &[usize], seed: u64, number: u64) -> Vec<u32> {
    let count = base.config().images_per_class;
    let of = |&place: &usize| {
        let (class, images) = &base.classes()[place];
        draw(images, *class, count, seed, number)
    };
    places.iter().flat_map(of).collect()
}

/// Default of `images_per_mean`.
pub(super) fn eight() -> usize {
    8
}

/// Default of `refresh_every`.
pub(super) fn five_hundred() -> usize {
    500
}

#[cfg(test)]
pub(super) mod test_classes {
    use std::sync::Arc;

    use crate::sampler::class_means::ClassMeans;

    /// Classes `0..count` of three images each, whose means lie on a line at `count`, `count - 1`, …
    pub(in crate::sampler) fn labels(count: usize) -> (Vec<u32>, Vec<String>, Arc<ClassMeans>) {
        let labels = (0..count as u32).flat_map(|class| [class; 3]).collect();
        let names = (0..count).map(|class| format!("class{class}")).collect();
        let values = (0..count).map(|class| (count - class) as f32).collect();
        (labels, names, Arc::new(ClassMeans::new(1, values)))
    }

    pub(in crate::sampler) fn classes_of(batch: &[u32], images: usize) -> Vec<i64> {
        assert!(batch.chunks_exact(images).all(|group| group.iter().all(|image| image / 3 == group[0] / 3)));
        batch.chunks_exact(images).map(|group| i64::from(group[0] / 3)).collect()
    }
}
