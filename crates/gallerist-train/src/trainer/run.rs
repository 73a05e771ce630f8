//! The loop over the steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use gallerist_data::{Loader, LoaderOptions};

use super::state::Trainer;
use super::warnings::TRAIN;
use crate::config::CheckpointKind;
use crate::log::Record;
use crate::observer::Observer;
use crate::profile::Profile;
use crate::{Result, ranks};

/// How a call of [`Trainer::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All steps are done.
    Finished,
    /// The stop flag was raised; a checkpoint was written, from which [`Trainer::resume`] continues.
    Interrupted,
}

impl Trainer {
    /// Trains until all steps are done or `stop` is raised.
    ///
    /// # Errors
    ///
    /// [`Error::Nonfinite`](crate::Error::Nonfinite) when the loss, the gradient or the weights stop being finite; the
    /// checkpoints stay as they were. Errors of reading images and writing files, and of a sampler, a network or a loss
    /// that breaks the contract of its trait.
    pub fn run(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<RunEnd> {
        if !self.config.log.profile {
            return self.steps(observer, stop);
        }
        let (step, before) = (self.state.step, self.state.seconds);
        self.state.waited = 0.0;
        gallerist_kernels::profile::start();
        let ended = self.steps(observer, stop);
        let timings = gallerist_kernels::profile::stop();
        let outcome = ended?;
        let profile =
            Profile::new(timings, self.state.step - step, self.state.seconds - before, self.state.waited);
        if self.ranks.rank() == 0 {
            profile.write(&self.directory.profile())?;
        }
        self.profile = Some(profile);
        Ok(outcome)
    }

    fn steps(&mut self, observer: &mut dyn Observer, stop: &AtomicBool) -> Result<RunEnd> {
        let options = self.loader_options()?;
        if !self.is_finished() && self.ranks.rank() == 0 {
            // They are of fewer steps.
            self.directory.remove_results()?;
        }
        while self.state.step < self.config.train.steps {
            let end = self.refresh_sampler(observer)?;
            // The loader works ahead; up to `end` it knows what the batches will be.
            let mut loader = Loader::new(self.store.clone(), self.plan(end), options)?;
            while self.state.step < end {
                if self.ranks.any(stop.load(Ordering::Relaxed))? {
                    self.save(CheckpointKind::Last)?;
                    return Ok(RunEnd::Interrupted);
                }
                self.one_step(&mut loader, observer)?;
            }
        }
        // No validation has chosen one: there was none, or none that could be measured.
        if self.state.best.is_none() {
            self.save(CheckpointKind::Best)?;
        }
        Ok(RunEnd::Finished)
    }

    /// How the training images are loaded.
    pub(super) fn loader_options(&self) -> Result<LoaderOptions> {
        let options = LoaderOptions::training(
            self.config.train.seed,
            ranks::loader_threads(&*self.ranks, self.config.train.loader_threads)?,
        );
        let (rank, ranks) = (self.ranks.rank(), self.ranks.size());
        let options = LoaderOptions { prefetch: self.config.train.prefetch, rank, ranks, ..options };
        Ok(options.strict(self.config.data.strict))
    }

    /// One step with all that follows it: the log, a validation, a checkpoint.
    fn one_step(&mut self, loader: &mut Loader, observer: &mut dyn Observer) -> Result<()> {
        let start = Instant::now();
        let mut broken = Vec::new();
        let refused = self.batches.refused.clone();
        let mut record = self.train_on(
            &mut || {
                let Some(batch) = loader.next() else {
                    return Err(refused.take().expect("the plan has batches for every step").into());
                };
                let mut batch = batch?;
                broken.append(&mut batch.broken);
                Ok(batch)
            },
            observer,
        )?;
        record.seconds = start.elapsed().as_secs_f64();
        self.state.seconds += record.seconds;
        self.state.waited += record.waited;
        self.state.step = record.step;
        observer.step(&record);
        self.log.write(&Record::Step(record))?;
        let broken = ranks::gather_broken(&*self.ranks, broken)?;
        self.report_broken(TRAIN, &broken, observer)?;

        let last = self.state.step == self.config.train.steps;
        if self.validation.is_some() && (last || self.state.step.is_multiple_of(self.config.validation.every))
        {
            // What follows a step is not measured with it.
            let measured = gallerist_kernels::profile::pause();
            self.validate(observer)?;
            drop(measured);
        }
        let every = self.config.train.checkpoint_every;
        if last || (every > 0 && self.state.step.is_multiple_of(every)) {
            self.save(CheckpointKind::Last)?;
        }
        Ok(())
    }
}
