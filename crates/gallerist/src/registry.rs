//! The parts that a program adds to those of the library.

use std::fmt;

use gallerist_data::{
    AddressedSource, Augmentation, AugmentationConfig, Named, Preparation, PreparationConfig, SamplerConfig,
    SamplerFactory, register_source,
};
use gallerist_loss::miner::{Miner, MinerConfig};
use gallerist_loss::{LossConfig, LossSpec};
use gallerist_nn::{Architecture, NetworkSpec};
use gallerist_retrieval::eval::{Measure, RankMetric};

use crate::Result;

/// The losses, miners, networks, samplers, transforms, image sources and metrics that a program adds, with their names. Run
/// files and the command line then accept these names like the built-in ones.
///
/// A program gives the registry to [`cli::run`](crate::cli::run), or calls [`install`](Self::install) before it reads a
/// run file.
///
/// # Example
///
/// ```
/// use gallerist::Registry;
/// use gallerist::retrieval::eval::{Cutoff, RankMetric, RelevantRanks};
///
/// /// Whether all relevant items are among the first K.
/// struct Complete;
///
/// impl RankMetric for Complete {
///     fn name(&self) -> &'static str {
///         "complete"
///     }
///
///     fn cutoff(&self) -> Cutoff {
///         Cutoff::Always
///     }
///
///     fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64 {
///         f64::from(u8::from(ranks.hits_within(k.unwrap_or(0)) == ranks.relevant()))
///     }
/// }
///
/// Registry::default().metric(&Complete).install()?;
/// assert!("complete@10".parse::<gallerist::retrieval::eval::Measure>().is_ok());
/// # Ok::<(), gallerist::Error>(())
/// ```
#[derive(Default)]
pub struct Registry {
    parts: Vec<fn() -> Result<()>>,
    metrics: Vec<&'static dyn RankMetric>,
}

impl Registry {
    /// Adds a loss: a `name` of `[loss]`.
    #[must_use]
    pub fn loss<C: Named + LossSpec>(self) -> Self {
        self.part(|| Ok(LossConfig::register::<C>()?))
    }

    /// Adds a miner: a `name` of `[loss.miner]`.
    #[must_use]
    pub fn miner<C: Named + Miner>(self) -> Self {
        self.part(|| Ok(MinerConfig::register::<C>()?))
    }

    /// Adds a network: a `kind` of `[network]`.
    #[must_use]
    pub fn network<C: Named + NetworkSpec>(self) -> Self {
        self.part(|| Ok(Architecture::register::<C>()?))
    }

    /// Adds a sampler: a `kind` of `[sampler]`.
    #[must_use]
    pub fn sampler<C: Named + SamplerFactory>(self) -> Self {
        self.part(|| Ok(SamplerConfig::register::<C>()?))
    }

    /// Adds a step of preparation: a `kind` of `prepare` in `[image]`.
    #[must_use]
    pub fn preparation<C: Named + Preparation>(self) -> Self {
        self.part(|| Ok(PreparationConfig::register::<C>()?))
    }

    /// Adds a step of augmentation: a `kind` of `steps` in `[augment]`.
    #[must_use]
    pub fn augmentation<C: Named + Augmentation>(self) -> Self {
        self.part(|| Ok(AugmentationConfig::register::<C>()?))
    }

    /// Adds an image source, which is opened by an address such as `cells://plate-7`.
    #[must_use]
    pub fn source<S: AddressedSource>(self) -> Self {
        self.part(|| Ok(register_source::<S>()?))
    }

    /// Adds a metric of ranked lists.
    #[must_use]
    pub fn metric(mut self, metric: &'static dyn RankMetric) -> Self {
        self.metrics.push(metric);
        self
    }

    fn part(mut self, register: fn() -> Result<()>) -> Self {
        self.parts.push(register);
        self
    }

    /// Makes the parts known to the process. To install them twice has no effect.
    ///
    /// # Errors
    ///
    /// When a name belongs to another part.
    pub fn install(&self) -> Result<()> {
        self.parts.iter().try_for_each(|register| register())?;
        self.metrics.iter().try_for_each(|metric| Ok(Measure::register(*metric)?))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics: Vec<&str> = self.metrics.iter().map(|metric| metric.name()).collect();
        f.debug_struct("Registry").field("parts", &self.parts.len()).field("metrics", &metrics).finish()
    }
}
