//! What a run in training consists of.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use gallerist_collective::{Collective, Shared};
use gallerist_data::{BatchSampler, ClassMeans, ImageSet, ImageStore};
use gallerist_nn::{AnyEmbedder, InputShape};
use gallerist_weights as weights;

use super::refused::Refused;
use crate::average::Average;
use crate::broken::BrokenImage;
use crate::checkpoint::Best;
use crate::collapse_watch::CollapseWatch;
use crate::config::RunConfig;
use crate::directory::RunDirectory;
use crate::gradient_sums::Order;
use crate::log::Log;
use crate::nonfinite::SkippedSteps;
use crate::objective::{Memories, Objective};
use crate::optim::Optimizer;
use crate::precision::LossScale;
use crate::profile::Profile;
use crate::rank_watch::RankWatch;
use gallerist_tensor::device::OpenDevice;

/// A run in training.
///
/// # Example
///
/// ```no_run
/// use std::{path::Path, sync::atomic::AtomicBool};
/// use gallerist_train::{RunConfig, Trainer};
///
/// let config = RunConfig::load(Path::new("configs/omniglot.toml"), &[])?;
/// let mut trainer = Trainer::start(&config, Path::new("runs/first"))?;
/// trainer.run(&mut (), &AtomicBool::new(false))?;
/// # Ok::<(), gallerist_train::Error>(())
/// ```
pub struct Trainer {
    pub(super) config: RunConfig,
    pub(super) directory: RunDirectory,
    /// The processes that train together.
    pub(super) ranks: Arc<dyn Collective>,
    /// The ranks, if there are several, that share the loss of a batch, and the statistics of batch norm where the run file
    /// says so.
    pub(super) shared: Option<Arc<Shared>>,
    pub(super) gradient_order: Order,
    pub(super) devices: Devices,
    pub(super) input: InputShape,
    pub(super) store: Arc<ImageStore>,
    pub(super) validation: Option<Arc<ImageStore>>,
    pub(super) batches: Batches,
    pub(super) network: AnyEmbedder,
    pub(super) average: Option<Average>,
    pub(super) objective: Objective,
    pub(super) memories: Memories,
    pub(super) optimizer: Optimizer,
    pub(super) loss_scale: Option<LossScale>,
    /// The fingerprint of the images and their labels.
    pub(super) data: String,
    pub(super) log: Log,
    pub(super) state: Counters,
    pub(super) warnings: Warnings,
    pub(super) started: Started,
    pub(super) profile: Option<Profile>,
}

/// Where a run computes.
pub(super) struct Devices {
    /// The device of the run file.
    pub(super) opened: OpenDevice,
    /// Where the network is, with gradients.
    pub(super) network: Device,
    /// Where the objective is, with gradients.
    pub(super) host: Device,
}

/// How batches are put together.
pub(super) struct Batches {
    pub(super) sampler: Arc<dyn BatchSampler>,
    /// The class means that the sampler has now.
    pub(super) means: Option<Arc<ClassMeans>>,
    /// The error of an epoch that the sampler has formed.
    pub(super) refused: Refused,
}

/// How far training has come.
#[derive(Default)]
pub(super) struct Counters {
    /// Steps done.
    pub(super) step: usize,
    /// The best validation.
    pub(super) best: Option<Best>,
    /// Seconds of training, validations left out.
    pub(super) seconds: f64,
    /// Of the seconds, those spent waiting for images since the call of [`run`](Trainer::run).
    pub(super) waited: f64,
    /// Steps that were skipped.
    pub(super) skipped: SkippedSteps,
}

/// What has been warned of, and what decides about the next warning.
#[derive(Default)]
pub(super) struct Warnings {
    /// Images that could not be read.
    pub(super) broken: Vec<BrokenImage>,
    pub(super) rank_watch: RankWatch,
    pub(super) collapse_watch: CollapseWatch,
    pub(super) trivial_steps: usize,
    pub(super) trivial: bool,
    pub(super) note: bool,
    pub(super) cache: bool,
}

/// What there is to say of the start of a run, or of its resumption.
#[derive(Default)]
pub(super) struct Started {
    pub(super) pretrained: Option<weights::LoadReport>,
    pub(super) test_notes: Vec<String>,
    pub(super) head_seconds: Option<f64>,
    pub(super) moved_from: Option<String>,
}

impl Trainer {
    /// The processes that train together.
    pub fn ranks(&self) -> &Arc<dyn Collective> {
        &self.ranks
    }

    /// Steps done.
    pub fn step(&self) -> usize {
        self.state.step
    }

    /// Seconds of training so far, validations left out.
    pub fn seconds(&self) -> f64 {
        self.state.seconds
    }

    /// Of these, the seconds that computing the first heads took ([`HeadInit`](gallerist_nn::HeadInit)), where the run was started just now.
    pub fn head_seconds(&self) -> Option<f64> {
        self.started.head_seconds
    }

    /// Whether all steps are done.
    pub fn is_finished(&self) -> bool {
        self.state.step >= self.config.train.steps
    }

    /// The best validation so far.
    pub fn best(&self) -> Option<&Best> {
        self.state.best.as_ref()
    }

    /// Steps that were skipped because their loss, gradient or weights were not finite
    /// ([`OnNonfinite::Skip`](crate::OnNonfinite)).
    pub fn skipped_steps(&self) -> usize {
        self.state.skipped.all
    }

    /// Images of training and validation that could not be read, each once.
    pub fn broken(&self) -> &[BrokenImage] {
        &self.warnings.broken
    }

    /// What became of the tensors of `network.weights`, where the run was started from them just now.
    pub fn pretrained(&self) -> Option<&weights::LoadReport> {
        self.started.pretrained.as_ref()
    }

    /// What the user should know about the test images, where the run was started just now.
    pub fn test_notes(&self) -> &[String] {
        &self.started.test_notes
    }

    /// Where the time went, of the last call of [`run`](Self::run), with `log.profile`.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// The device that the network computes on.
    pub fn device(&self) -> &OpenDevice {
        &self.devices.opened
    }

    /// The kind of device that trained so far, where the run was taken up on another: its steps are not the same to
    /// the last bit.
    pub fn moved_from(&self) -> Option<&str> {
        self.started.moved_from.as_deref()
    }

    /// The run's directory.
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// The run file.
    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    /// The training set, validation classes taken out.
    pub fn training_set(&self) -> &ImageSet {
        self.store.set()
    }

    /// How batches are put together.
    pub fn sampler(&self) -> &dyn BatchSampler {
        &*self.batches.sampler
    }

    /// Images that one step sees.
    pub fn images_per_step(&self) -> usize {
        self.batches.sampler.batch_size() * self.config.train.accumulate
    }

    /// Trainable numbers of the network, running statistics of batch norm included.
    pub fn parameter_count(&self) -> usize {
        self.network.num_params()
    }
}
