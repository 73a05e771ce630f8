//! The largest sizes and counts a run file may ask for.
//!
//! Two rules give the limits of memory: a network has at most [`MAX_PARAMETERS`] parameters, and no single tensor
//! (the images of a batch, one layer's feature maps of a batch, the cross-batch memory, a table of proxies) has more
//! than [`MAX_NUMBERS`] numbers. Counts that are not sizes of tensors have limits far above any use, so that a
//! mistyped number is an error message and not a process that starts a million threads.

use super::RunConfig;
use crate::Result;
use gallerist_loss::LossConfig;
use gallerist_nn::{Network, numbers_in_words};

/// The largest number of values of one tensor: 16 GiB in f32.
pub const MAX_NUMBERS: usize = 1 << 32;

/// Compute threads, and threads that decode images.
pub const MAX_THREADS: usize = 1024;

/// Images of a batch, in training and in embedding.
pub const MAX_BATCH: usize = 65_536;

/// Resamples of a bootstrap, and episodes of few-shot retrieval.
pub const MAX_REPEATS: usize = 1_000_000;

/// Refuses a count of a run file that is above its limit.
pub(super) fn check(config: &RunConfig) -> Result<()> {
    let (train, evaluation) = (&config.train, &config.evaluation);
    let few_shot = evaluation.few_shot.as_ref();
    let counts = [
        ("train.steps", train.steps, 1_000_000_000),
        ("train.threads", train.threads, MAX_THREADS),
        ("train.loader_threads", train.loader_threads, MAX_THREADS),
        ("train.prefetch", train.prefetch, 1024),
        ("train.accumulate", train.accumulate, 65_536),
        ("data.cache_mib", config.data.cache_mib, 1 << 30),
        ("evaluation.batch_size", evaluation.batch_size, MAX_BATCH),
        ("evaluation.bootstrap.resamples", evaluation.bootstrap.map_or(0, |of| of.resamples), MAX_REPEATS),
        ("evaluation.few_shot.episodes", few_shot.map_or(0, |of| of.episodes), MAX_REPEATS),
        ("report.queries", config.report.queries, 10_000),
        ("report.failures", config.report.failures, 10_000),
        ("report.results", config.report.results, 1000),
    ];
    for (key, found, limit) in counts {
        at_most(key, found, limit)?;
    }
    let (key, images) = (config.sampler.batch_size_keys(), config.sampler.batch_size());
    at_most(key, images, MAX_BATCH)?;
    let size = config.image.size;
    tensor("the images of a batch", key, &[images, config.image.channels, size.height, size.width])?;
    if let Some(xbm) = &config.xbm {
        tensor("the cross-batch memory", "xbm.size", &[xbm.size, config.network.dimensions()])?;
        tensor("the similarities of a batch and the memory", "xbm.size", &[xbm.size, images])?;
    }
    for term in &config.loss.0 {
        match &term.loss {
            LossConfig::SoftTriple(of) => {
                tensor("the centres", "loss.centers", &[of.centers, config.network.dimensions()])?;
            }
            LossConfig::StructClust(of) => at_most("loss.refinements", of.refinements, 1000)?,
            _ => {}
        }
    }
    Ok(())
}

/// Refuses batches whose feature maps are too large.
pub(super) fn check_maps(network: &Network, images: usize) -> Result<()> {
    tensor("the largest feature maps of a batch", "image.size", &[images, network.largest_maps()])
}

fn at_most(key: &str, found: usize, limit: usize) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(gallerist_tensor::Error::Value {
        key: key.into(),
        wanted: format!("at most {limit}"),
        found: found.to_string(),
    }
    .into())
}

/// Refuses a tensor above [`MAX_NUMBERS`].
pub(crate) fn tensor(what: &str, key: &str, sides: &[usize]) -> Result<()> {
    let numbers = sides.iter().fold(1u128, |product, &side| product.saturating_mul(side as u128));
    if numbers <= MAX_NUMBERS as u128 {
        return Ok(());
    }
    let shape: Vec<String> = sides.iter().map(ToString::to_string).collect();
    Err(gallerist_tensor::Error::Value {
        key: key.into(),
        wanted: format!(
            "so small that {what} have at most {} numbers",
            numbers_in_words(MAX_NUMBERS as u128)
        ),
        found: format!("{} = {}", shape.join(" x "), numbers_in_words(numbers)),
    }
    .into())
}
