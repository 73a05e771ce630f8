//! The sampler and the class means that it needs.

use std::sync::Arc;
use std::time::Instant;

use gallerist_data::{BatchPlan, ClassMeans, checked_epoch};

use super::state::Trainer;
use super::warnings::TRAIN;
use crate::observer::{Observer, Phase};
use crate::{Result, means};

const MEANS: &str = "computing the class means";

impl Trainer {
    /// Computes the class means again if the sampler needs them now, and returns the step up to which its
    /// batches are known.
    pub(super) fn refresh_sampler(&mut self, observer: &mut dyn Observer) -> Result<usize> {
        let steps = self.config.train.steps;
        let Some(refresh) = self.batches.sampler.refresh() else { return Ok(steps) };
        if self.batches.means.is_none() || self.state.step.is_multiple_of(refresh.every) {
            let start = Instant::now();
            let model = self.model().among(self.ranks.clone());
            let store = self.store.clone();
            let found = means::compute(
                &model,
                &store,
                &self.config,
                refresh.images_per_class,
                self.state.step,
                &mut |done, total| {
                    observer.phase(&Phase { what: MEANS, done, total });
                    Ok(())
                },
            )?;
            let (found, broken) = found;
            self.take_means(found);
            self.report_broken(TRAIN, &broken, observer)?;
            self.state.seconds += start.elapsed().as_secs_f64();
        }
        Ok((self.state.step / refresh.every + 1).saturating_mul(refresh.every).min(steps))
    }

    pub(super) fn take_means(&mut self, class_means: ClassMeans) {
        let class_means = Arc::new(class_means);
        if let Some(sampler) = self.batches.sampler.with_means(class_means.clone()) {
            self.batches.sampler = sampler;
        }
        self.batches.means = Some(class_means);
    }

    /// The batches of the steps from the next one to the `end`-th; fewer where the sampler forms wrong ones
    /// ([`Refused`]).
    pub(super) fn plan(&self, end: usize) -> impl Iterator<Item = BatchPlan> + Send + 'static {
        let (sampler, seed) = (self.batches.sampler.clone(), self.config.train.seed);
        let (name, images) = (self.config.sampler.name(), self.training_set().len());
        let refused = self.batches.refused.clone();
        let epochs = (0u64..).map_while(move |epoch| {
            let batches = checked_epoch(&*sampler, name, images, seed, epoch);
            batches.map(|batches| BatchPlan::epoch(epoch, batches)).map_err(|error| refused.keep(error)).ok()
        });
        let batches = epochs.flatten();
        let accumulate = self.config.train.accumulate;
        batches.take(end * accumulate).skip(self.state.step * accumulate)
    }
}
