//! The largest sizes and counts in a run file.
//!
//! Two rules give the limits of memory: a network has at most [`MAX_PARAMETERS`](gallerist_nn::MAX_PARAMETERS) parameters, and no single tensor
//! (the images of a batch, one layer's feature maps of a batch, the cross-batch memory, a table of proxies) has more
//! than [`MAX_NUMBERS`] numbers. Counts that are not sizes of tensors have limits far above any use, so that a
//! mistyped number is an error message and not a process that starts a million threads.

use crate::Result;
use gallerist_nn::{Embedder, numbers_in_words};

/// The largest number of values of one tensor: 16 GiB in f32.
pub const MAX_NUMBERS: usize = 1 << 32;

/// Compute threads, and threads that decode images.
pub const MAX_THREADS: usize = 1024;

/// Images of a batch, in training and in embedding.
pub const MAX_BATCH: usize = 65_536;

/// Resamples of a bootstrap, and episodes of few-shot retrieval.
pub const MAX_REPEATS: usize = 1_000_000;

/// Refuses batches whose feature maps are too large.
pub(super) fn check_maps(network: &dyn Embedder, images: usize) -> Result<()> {
    let Some(largest) = network.largest_maps() else { return Ok(()) };
    tensor("the largest feature maps of a batch", "image.size", &[images, largest])
}

pub(crate) fn at_most(key: &str, found: usize, limit: usize) -> Result<()> {
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
