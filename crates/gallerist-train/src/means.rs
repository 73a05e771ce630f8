//! The mean embedding of every training class, for the hard samplers.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::TensorData;
use gallerist_data::{Broken, ClassMeans, ImageStore, Random, Transform};

use super::RunConfig;
use crate::Result;
use crate::model::Model;

/// Name of the means in the state of a checkpoint.
const NAME: &str = "sampler.class_means";

/// The means over at most `images_per_class` images of each class, drawn anew for every `step`, and the images that cannot
/// be read.
///
/// These are left out; a class without any has a mean of zeros.
pub(super) fn compute(
    model: &Model,
    images: &ImageStore,
    config: &RunConfig,
    images_per_class: usize,
    step: usize,
    progress: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<(ClassMeans, Vec<Broken>)> {
    let set = images.set();
    let labels = set.labels().expect("a sampler by classes has labels");
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); set.class_names().len()];
    for (image, &class) in labels.iter().enumerate() {
        members[class as usize].push(image as u32);
    }
    let mut drawn = Vec::new();
    for (class, images) in members.iter_mut().enumerate() {
        Random::new(config.train.seed, "class means", step as u64, class as u64).shuffle(images);
        drawn.extend(images.iter().take(images_per_class));
    }
    let classes: Vec<u32> = drawn.iter().map(|&image| labels[image as usize]).collect();
    let store = images.subset(&drawn, Transform::evaluation(&config.image)?);
    let embedded = model.embed_items(&Arc::new(store), config.train.loader_threads, progress)?;
    let d = embedded.embeddings.cols();
    let mut sums = vec![0f64; members.len() * d];
    let mut counts = vec![0u32; members.len()];
    for (row, &item) in embedded.items.iter().enumerate() {
        let class = classes[item as usize] as usize;
        counts[class] += 1;
        let sum = &mut sums[class * d..][..d];
        sum.iter_mut().zip(embedded.embeddings.row(row)).for_each(|(s, &v)| *s += f64::from(v));
    }
    let mean = |(i, sum): (usize, &f64)| (sum / f64::from(counts[i / d].max(1))) as f32;
    let of_set = |one: Broken| Broken { item: drawn[one.item as usize], ..one };
    let broken = embedded.broken.into_iter().map(of_set).collect();
    Ok((ClassMeans::new(d, sums.iter().enumerate().map(mean).collect()), broken))
}

/// The means as a checkpoint holds them.
pub(super) fn save(means: &ClassMeans, state: &mut BTreeMap<String, TensorData>) {
    let d = means.dimensions();
    let data = TensorData::new(means.values().to_vec(), [means.values().len() / d, d]);
    state.insert(NAME.into(), data);
}

/// Drops the means of a checkpoint: they are computed again.
pub(super) fn forget(state: &mut BTreeMap<String, TensorData>) {
    state.remove(NAME);
}

/// The means of a checkpoint for `classes` classes, if it has such.
pub(super) fn restore(state: &mut BTreeMap<String, TensorData>, classes: usize) -> Option<ClassMeans> {
    let data = state.remove(NAME)?;
    let &[rows, d] = &data.shape()[..] else { return None };
    if rows != classes || d == 0 {
        return None;
    }
    Some(ClassMeans::new(d, data.try_into_vec::<f32>().ok()?))
}
