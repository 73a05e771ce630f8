//! The interface of samplers, and of their configurations.

use std::sync::Arc;

use gallerist_util::registry::Part;

use super::class_means::ClassMeans;
use crate::error::Error;
use crate::source::ImageSet;

/// Forms the batches of an epoch.
///
/// A sampler is a pure function of the labels of its set, the seed and the epoch; the hard samplers also depend on
/// the [class means](ClassMeans) that they were last given. All batches have the same size. Images that do not fill
/// a batch at the end of an epoch are left out of that epoch.
///
/// See [`SamplerFactory`] for a sampler of your own.
pub trait BatchSampler: Send + Sync {
    /// The batches of an epoch, as indices of images.
    ///
    /// The same arguments give the same batches, in any order and on any thread. Training refuses an epoch without
    /// batches, batches of another size, and indices beyond the set
    /// ([`checked_epoch`](crate::checked_epoch)).
    fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>>;

    /// Images in every batch.
    fn batch_size(&self) -> usize;

    /// Classes that never appear because they have too few images.
    fn left_out_classes(&self) -> usize {
        0
    }

    /// How often, and from how many images, the class means are computed again; `None` for a sampler that
    /// does not use them.
    fn refresh(&self) -> Option<Refresh> {
        None
    }

    /// The sampler with these class means; `None` for one that does not use them.
    fn with_means(&self, means: Arc<ClassMeans>) -> Option<Arc<dyn BatchSampler>> {
        let _ = means;
        None
    }
}

/// When a sampler needs new class means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Steps between two computations; the first is before the first step.
    pub every: usize,
    /// Images of a class, at most, that its mean is taken over.
    pub images_per_class: usize,
}

/// The configuration of a sampler: `[sampler]` of a run file, which builds the sampler for a set.
///
/// Implement it for a sampler of your own; [`SamplerConfig::register`](crate::SamplerConfig::register) gives it a
/// name that run files can use (`kind = "…"`).
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use gallerist_data::{BatchSampler, Error, ImageSet, Named, Random, SamplerConfig, SamplerFactory};
/// use serde::{Deserialize, Serialize};
///
/// /// Batches of consecutive images, which start at a random one.
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// #[serde(deny_unknown_fields, default)]
/// struct Runs {
///     batch_size: usize,
/// }
///
/// impl Default for Runs {
///     fn default() -> Self {
///         Runs { batch_size: 32 }
///     }
/// }
///
/// impl Named for Runs {
///     const NAME: &'static str = "runs";
/// }
///
/// impl SamplerFactory for Runs {
///     fn batch_size(&self) -> usize {
///         self.batch_size
///     }
///
///     fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error> {
///         if self.batch_size == 0 || self.batch_size > set.len() {
///             return Err(Error::Batches {
///                 wanted: format!("{} images", self.batch_size),
///                 path: set.name().into(),
///                 found: format!("it has {} images", set.len()),
///                 hint: Some(format!("set sampler.batch_size to a number from 1 to {}", set.len())),
///             });
///         }
///         Ok(Arc::new(RunsSampler { images: set.len() as u32, size: self.batch_size }))
///     }
/// }
///
/// struct RunsSampler {
///     images: u32,
///     size: usize,
/// }
///
/// impl BatchSampler for RunsSampler {
///     fn epoch(&self, seed: u64, epoch: u64) -> Vec<Vec<u32>> {
///         let start = Random::new(seed, "runs", epoch, 0).below(self.images as usize) as u32;
///         let order: Vec<u32> = (0..self.images).map(|i| (start + i) % self.images).collect();
///         order.chunks_exact(self.size).map(<[u32]>::to_vec).collect()
///     }
///
///     fn batch_size(&self) -> usize {
///         self.size
///     }
/// }
///
/// SamplerConfig::register::<Runs>().unwrap();
/// let config: SamplerConfig = toml::from_str("kind = \"runs\"\nbatch_size = 8").unwrap();
/// assert_eq!(config.batch_size(), 8);
/// ```
pub trait SamplerFactory: Part {
    /// Images in every batch.
    fn batch_size(&self) -> usize;

    /// The keys of the run file whose product is [`batch_size`](Self::batch_size), for messages.
    fn batch_size_keys(&self) -> &'static str {
        "sampler.batch_size"
    }

    /// Whether the sampler uses class means ([`BatchSampler::refresh`]). Then its batches depend on how embeddings are made
    /// (`evaluation.heads`, `combine` and `metric`), and jobs that differ there do not share a training. Where this is
    /// `false`, they do.
    fn uses_class_means(&self) -> bool {
        true
    }

    /// The sampler for a set.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a value out of its range, [`Error::NoLabels`] where classes are
    /// needed and the set has none, [`Error::Batches`] when not even one batch
    /// can be formed.
    fn build(&self, set: &ImageSet) -> Result<Arc<dyn BatchSampler>, Error>;
}
