//! Validation and checkpoints.

use std::collections::BTreeMap;

use burn::module::Module;
use gallerist_retrieval::eval::Evaluation;
use gallerist_tensor::params;

use super::state::Trainer;
use super::warnings::VALIDATION;
use crate::broken::BrokenImage;
use crate::checkpoint::{self, Best, Checkpoint, Header};
use crate::config::CheckpointKind;
use crate::log::Record;
use crate::model::{Model, description};
use crate::nonfinite::{OnNonfinite, Place};
use crate::observer::{Observer, Phase};
use crate::timing::Timing;
use crate::validation::Validation;
use crate::{Error, Result, means, ranks};

const VALIDATING: &str = "validating";

impl Trainer {
    /// Measures the validation classes and keeps the best checkpoint.
    pub(super) fn validate(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(store) = &self.validation else { return Ok(()) };
        let model = self.model().among(self.ranks.clone());
        let mut progress = |done, total| {
            observer.phase(&Phase { what: VALIDATING, done, total });
            Ok(())
        };
        let store = store.clone();
        let embedded = model.embed_with_items(&store, self.config.train.loader_threads, &mut progress);
        let (embedded, items) = match embedded {
            // The weights are finite, and the run continues; this validation chooses no checkpoint.
            Err(error @ Error::NonfiniteEmbeddings { .. })
                if self.config.train.on_nonfinite == OnNonfinite::Skip =>
            {
                let message = format!("{error}; this validation is left out");
                observer.warning(&message);
                return self.log.write(&Record::Warning { step: self.state.step, message });
            }
            other => other?,
        };
        self.report_broken(VALIDATION, &embedded.broken, observer)?;
        let metric = &self.config.validation.metric;
        let evaluation = match self.ranks.rank() {
            0 => Some(Validation::new(&self.config, store.set())?.measure(embedded.set, &items)?),
            _ => None,
        };
        // Without a query that has a match, the metric is 0 and chooses nothing.
        let is_measured = |of: &Evaluation| of.queries_without_match < of.queries;
        let value = evaluation.as_ref().filter(|of| is_measured(of)).map(|of| of.metrics[metric.as_str()]);
        let value = ranks::broadcast(&*self.ranks, value.unwrap_or(f64::NAN))?;
        let best = !value.is_nan() && self.state.best.as_ref().is_none_or(|best| value > best.value);
        if best {
            self.state.best = Some(Best { metric: metric.clone(), value, step: self.state.step });
            self.save(CheckpointKind::Best)?;
        }
        let Some(evaluation) = evaluation else { return Ok(()) };
        let metrics = evaluation.metrics.iter().map(|(name, value)| (name.to_string(), value)).collect();
        self.log.write(&Record::Validation {
            step: self.state.step,
            protocol: evaluation.protocol.clone(),
            metrics,
        })?;
        observer.validation(self.state.step, &evaluation, best);
        Ok(())
    }

    /// The current network, ready to embed: the average of the weights, with `train.average_decay`.
    pub fn model(&self) -> Model {
        let network = match &self.average {
            Some(average) => average.network(&self.network),
            None => self.network.valid(),
        };
        Model::new(self.config.clone(), self.input, network)
            .with_heads(self.config.evaluation.head_choice())
            .expect("the run file was checked")
    }

    /// Writes a checkpoint.
    pub(super) fn save(&mut self, which: CheckpointKind) -> Result<()> {
        let mut remembered = BTreeMap::new();
        if let Some(name) = self.first_nonfinite() {
            return Err(self.nonfinite_error(self.state.step, &Place::Weights(name), None));
        }
        let network = params::collect(&self.network);
        let network = match &self.average {
            Some(average) => average.save(network, &mut remembered),
            None => network,
        };
        let fingerprint = checkpoint::fingerprint(&network, &description(&self.config, self.input));
        let loss = params::collect(&self.objective);
        if self.ranks.size() > 1 {
            let all = format!("{fingerprint} {}", checkpoint::fingerprint(&loss, ""));
            self.ranks.agree(all.as_bytes(), "other parameters")?;
        }
        if self.ranks.rank() != 0 {
            return Ok(());
        }
        let state = self.optimizer.state();
        let header = Header {
            step: self.state.step,
            config: self.config.to_toml(),
            fingerprint,
            input: [self.input.channels, self.input.height, self.input.width],
            best: self.state.best.clone(),
            optimizer_counters: state.counters,
            optimizer_ranks: state.ranks,
            device: self.devices.opened.kind().into(),
            loss_scale: self.loss_scale,
            rank_watch: self.warnings.rank_watch.clone(),
            collapse_watch: self.warnings.collapse_watch.clone(),
            data: self.data.clone(),
            broken: self.warnings.broken.clone(),
            skipped: self.state.skipped,
            ..Header::default()
        };
        if let Some(class_means) = &self.batches.means {
            means::save(class_means, &mut remembered);
        }
        self.memories.save(&mut remembered);
        self.log.sync()?;
        Checkpoint { header, network, loss, optimizer: state.tensors, state: remembered }
            .save(&self.directory.checkpoint(which))?;
        let (step, training_seconds) = (self.state.step, self.state.seconds);
        Timing { step, training_seconds, ..Timing::default() }.save(&self.directory.timing())?;
        BrokenImage::save(&self.warnings.broken, &self.directory.broken_images())
    }
}
