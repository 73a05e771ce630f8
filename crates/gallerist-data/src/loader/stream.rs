//! The loader as its consumer sees it.

use std::time::{Duration, Instant};

use gallerist_util::sync::Arc;
use gallerist_util::sync::thread::{self, JoinHandle};

use super::batch::{Batch, BatchPlan};
use super::options::{LoaderOptions, OnBroken};
use super::slot::Slot;
use super::worker::Shared;
use crate::canvas;
use crate::error::Error;
use crate::store::ImageStore;

/// Yields the batches of a plan strictly in order, prepared in advance by worker threads.
///
/// The batches depend on the plan, the set, the transform and the seed, and
/// on nothing else: any number of threads gives the same bits. After an error
/// the loader ends. Dropping it stops the workers and waits for them; each
/// finishes the image it is at.
///
/// The workers are plain threads of their own, so that a long decode never
/// holds up the tensor engine's pool.
pub struct Loader {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    started: Option<Instant>,
    waited: Duration,
}

impl Loader {
    /// Starts the workers.
    ///
    /// The plan is pulled as batches are needed, so that it may be endless.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system gives no thread.
    ///
    /// # Panics
    ///
    /// In a worker, turned into [`Error::Panic`]: if the plan names an image
    /// beyond the set.
    pub fn new(
        store: Arc<ImageStore>,
        plan: impl IntoIterator<Item = BatchPlan, IntoIter: Send + 'static>,
        options: LoaderOptions,
    ) -> Result<Loader, Error> {
        let options =
            LoaderOptions { threads: options.threads.max(1), prefetch: options.prefetch.max(1), ..options };
        let shared = Arc::new(Shared::new(store, options, Box::new(plan.into_iter())));
        let mut loader = Loader { shared, workers: Vec::new(), started: None, waited: Duration::ZERO };
        for number in 0..options.threads {
            let shared = loader.shared.clone();
            loader.shared.lock().alive += 1;
            let worker = thread::Builder::new().name(format!("loader-{number}")).spawn(move || shared.work());
            match worker {
                Ok(worker) => loader.workers.push(worker),
                Err(e) => {
                    loader.shared.lock().alive -= 1;
                    return Err(Error::io("start a thread for", loader.shared.name(), e));
                }
            }
        }
        Ok(loader)
    }

    /// Time the consumer has waited for batches.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Share of the time since the first request for a batch that the consumer
    /// has spent waiting, from 0 to 1: high when loading is the bottleneck.
    pub fn waited_share(&self) -> f64 {
        match self.started {
            None => 0.0,
            Some(start) => {
                let elapsed = start.elapsed().as_secs_f64();
                if elapsed > 0.0 { (self.waited.as_secs_f64() / elapsed).min(1.0) } else { 0.0 }
            }
        }
    }

    /// The front batch's parts, once all are there.
    fn take_front(&self) -> Option<Slot> {
        let mut state = self.shared.lock();
        loop {
            if state.stop {
                return None;
            }
            match state.window.front() {
                Some(slot) if slot.missing == 0 => {
                    let slot = state.window.pop_front();
                    drop(state);
                    self.shared.work.notify_all();
                    return slot;
                }
                None if state.exhausted => return None,
                // Cannot happen while workers turn panics into errors; waiting
                // for nobody would be worse than ending.
                _ if state.alive == 0 => return None,
                _ => state = self.shared.ready.wait(state).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }

    fn assemble(&self, slot: Slot, waited: Duration) -> Result<Batch, Error> {
        let store = &self.shared.store;
        let length = self.shared.image_length();
        let (mut pieces, mut items) = (Vec::with_capacity(slot.parts.len()), Vec::new());
        let (mut broken, mut replaced) = (Vec::new(), 0);
        // Runs of images in the buffer: where they start, and their number.
        let mut runs = Vec::with_capacity(slot.parts.len());
        let mut place = 0;
        for part in slot.parts {
            let mut part = part.expect("no part is missing")?;
            runs.push((place, part.items.len()));
            place += part.images.values().len() / length;
            pieces.push(part.images);
            items.append(&mut part.items);
            broken.append(&mut part.broken);
            replaced += part.replaced;
        }
        let mut images = canvas::join(pieces);
        let mut end = 0;
        for (start, count) in runs {
            if start > end {
                images.copy_within(start * length..(start + count) * length, end * length);
            }
            end += count;
        }
        images.truncate(end * length);
        if self.shared.options.on_broken == OnBroken::Replace {
            store.keep_unreported(&mut broken);
        }
        let labels = store.set().labels();
        Ok(Batch {
            index: slot.index,
            epoch: slot.plan.epoch,
            images,
            views: store.transform().views(),
            image_shape: store.tensor_shape(),
            labels: labels.map_or(Vec::new(), |labels| items.iter().map(|&i| labels[i as usize]).collect()),
            items,
            broken,
            replaced,
            waited,
        })
    }

    fn shut_down(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // Workers turn panics into errors; there is nothing left to report.
            let _ = worker.join();
        }
    }
}

impl Iterator for Loader {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let asked = Instant::now();
        self.started.get_or_insert(asked);
        let slot = self.take_front()?;
        let waited = asked.elapsed();
        self.waited += waited;
        let batch = self.assemble(slot, waited);
        if batch.is_err() {
            self.shut_down();
        }
        Some(batch)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shut_down();
    }
}
