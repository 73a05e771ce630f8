//! The threads that decode and transform.

use std::collections::VecDeque;

use gallerist_util::panics::caught;
use gallerist_util::random::Random;
use gallerist_util::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::batch::BatchPlan;
use super::options::{LoaderOptions, OnBroken};
use super::slot::{Part, Slot, Task};
use crate::error::{Broken, Error};
use crate::store::{ImageStore, Prepared};

type Plan = Box<dyn Iterator<Item = BatchPlan> + Send>;

/// What the consumer and the workers share.
pub(super) struct Shared {
    pub(super) store: Arc<ImageStore>,
    pub(super) options: LoaderOptions,
    pub(super) state: Mutex<State>,
    /// There may be work: a batch was taken, or everything shall stop.
    pub(super) work: Condvar,
    /// The front batch may be ready.
    pub(super) ready: Condvar,
}

/// The batches between the plan and the consumer.
pub(super) struct State {
    pub(super) plan: Plan,
    /// Index of the next batch to be pulled from the plan.
    pub(super) next: u64,
    pub(super) exhausted: bool,
    pub(super) stop: bool,
    /// Batches in order; the front one is the consumer's next.
    pub(super) window: VecDeque<Slot>,
    /// Workers that have not left their loop.
    pub(super) alive: usize,
}

impl Shared {
    pub(super) fn new(store: Arc<ImageStore>, options: LoaderOptions, plan: Plan) -> Shared {
        Shared {
            store,
            options,
            state: Mutex::new(State {
                plan,
                next: 0,
                exhausted: false,
                stop: false,
                window: VecDeque::new(),
                alive: 0,
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // The lock is only poisoned if the plan's iterator panicked; the state
        // itself is consistent then, and the loader ends.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn name(&self) -> String {
        self.store.set().name().to_owned()
    }

    /// Values of one image's tensors.
    pub(super) fn image_length(&self) -> usize {
        self.store.tensor_length()
    }

    pub(super) fn work(&self) {
        while let Some(task) = self.next_task() {
            let (index, number) = (task.index, task.part);
            let part = caught(|| self.make(task))
                .unwrap_or_else(|message| Err(Error::Panic { batch: index, message }));
            self.deliver(index, number, part);
        }
        self.lock().alive -= 1;
        self.ready.notify_all();
    }

    /// The next run of places to work on; `None` when there will be no more.
    fn next_task(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(slot) = state.window.iter_mut().find(|s| s.has_work()) {
                return Some(slot.take(self.options.threads));
            }
            if state.exhausted {
                return None;
            }
            if state.window.len() < self.options.prefetch {
                match caught(|| state.plan.next()) {
                    Ok(None) => {
                        state.exhausted = true;
                        self.ready.notify_all();
                        self.work.notify_all();
                    }
                    Ok(Some(plan)) => {
                        let index = state.next;
                        state.next += 1;
                        state.window.push_back(Slot::new(index, plan, &self.options, self.image_length()));
                        self.work.notify_all();
                        // A plan without items is finished as it comes.
                        self.ready.notify_all();
                    }
                    Err(message) => {
                        let index = state.next;
                        state.exhausted = true;
                        state.window.push_back(Slot::failed(index, message));
                        self.ready.notify_all();
                        self.work.notify_all();
                    }
                }
                continue;
            }
            state = self.work.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    fn deliver(&self, index: u64, number: usize, part: Result<Part, Error>) {
        let mut state = self.lock();
        // The front of the window moves on only when its batch is whole, so the
        // batch of an unfinished task is still there.
        let front = state.window.front().map_or(index, |slot| slot.index);
        let place = (index - front) as usize;
        if let Some(slot) = state.window.get_mut(place) {
            slot.parts[number] = Some(part);
            slot.missing -= 1;
            if place == 0 && slot.missing == 0 {
                self.ready.notify_all();
            }
        }
    }

    fn make(&self, task: Task) -> Result<Part, Error> {
        let length = self.image_length();
        let items = Vec::with_capacity(task.places.len());
        let mut part = Part { images: task.images, items, broken: Vec::new(), replaced: 0 };
        for place in task.places {
            let item = task.plan.items[place];
            let position = task.plan.first + place as u64;
            let (item, prepared) = match self.store.prepared(item as usize) {
                Ok(prepared) => (item, prepared),
                Err(error) => {
                    part.broken.push(Broken { item, error: error.clone() });
                    match self.options.on_broken {
                        OnBroken::Fail => return Err(Error::Shared(error)),
                        // Every image would be broken while the network is.
                        _ if matches!(*error, Error::Store(_)) => return Err(Error::Shared(error)),
                        OnBroken::Exclude => continue,
                        OnBroken::Replace => {
                            part.replaced += 1;
                            self.stand_in(item, error, position, &task.plan, &mut part.broken)?
                        }
                    }
                }
            };
            let at = part.items.len() * length;
            let mut random = Random::new(self.options.seed, "augment", task.plan.epoch, position);
            self.store.fill(&prepared, &mut random, &mut part.images.values()[at..at + length]);
            part.items.push(item);
        }
        Ok(part)
    }

    /// Another image of the class of `item`: from a random start around the
    /// class, first those that are not in the batch, then the others.
    fn stand_in(
        &self,
        item: u32,
        first: Arc<Error>,
        position: u64,
        plan: &BatchPlan,
        broken: &mut Vec<Broken>,
    ) -> Result<(u32, Prepared), Error> {
        let class = self.store.classmates(item as usize);
        let start = Random::new(self.options.seed, "stand-in", plan.epoch, position).below(class.len());
        let around = || class[start..].iter().chain(&class[..start]).copied();
        let fresh = around().filter(|i| !plan.items.contains(i));
        let used = around().filter(|i| plan.items.contains(i) && *i != item);
        for candidate in fresh.chain(used) {
            match self.store.prepared(candidate as usize) {
                Ok(prepared) => return Ok((candidate, prepared)),
                Err(error) => broken.push(Broken { item: candidate, error }),
            }
        }
        let set = self.store.set();
        let label = set.labels().map(|l| l[item as usize] as usize);
        Err(Error::BrokenClass {
            count: class.len(),
            class: label.map_or_else(|| "(all)".to_owned(), |l| set.class_names()[l].clone()),
            path: self.name(),
            first,
        })
    }
}
