//! Worker threads that decode and transform ahead of the consumer.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::canvas::{self, Piece};
use crate::error::{Broken, Error};
use crate::image::Image;
use crate::store::ImageStore;
use gallerist_util::random::Random;

/// One batch to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// The epoch; with the position it fixes the random changes of an image.
    pub epoch: u64,
    /// Position of the batch's first image within the epoch.
    pub first: u64,
    /// Indices of images.
    pub items: Vec<u32>,
}

impl BatchPlan {
    /// The batches of one epoch, as a sampler forms them.
    ///
    /// A run that resumes in the middle of an epoch skips the batches it has
    /// seen, and the others come out as if it had never stopped.
    pub fn epoch(epoch: u64, batches: Vec<Vec<u32>>) -> impl Iterator<Item = BatchPlan> + Send {
        let mut next = 0;
        batches.into_iter().map(move |items| {
            let first = next;
            next += items.len() as u64;
            BatchPlan { epoch, first, items }
        })
    }

    /// All images of a set in their order, in blocks of `size`; the last may be shorter.
    ///
    /// # Panics
    ///
    /// If `size` is 0.
    pub fn in_order(images: usize, size: usize) -> impl Iterator<Item = BatchPlan> + Send {
        assert!(size > 0, "blocks of 0 images");
        (0..images).step_by(size).map(move |first| BatchPlan {
            epoch: 0,
            first: first as u64,
            items: (first as u32..images.min(first + size) as u32).collect(),
        })
    }
}

/// What becomes of an image that cannot be read or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBroken {
    /// Another image of its class takes its place, the same in every run; the
    /// broken one is reported once per [`ImageStore`]. Batches keep their size.
    /// If the whole class is broken, the loader ends with
    /// [`Error::BrokenClass`].
    Replace,
    /// It is left out of its batch and reported, every time.
    Exclude,
    /// The loader ends with its error.
    Fail,
}

/// How a [`Loader`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Batches in the making or waiting for the consumer, at least 1. Bounds the
    /// memory: so many batches, and no more.
    pub prefetch: usize,
    /// What becomes of broken images.
    pub on_broken: OnBroken,
    /// Seed of the random changes and replacements.
    pub seed: u64,
}

impl LoaderOptions {
    /// Broken images are replaced; twice as many batches ahead as threads.
    pub fn training(seed: u64, threads: usize) -> LoaderOptions {
        let prefetch = 2 * threads.max(1);
        LoaderOptions { threads, prefetch, on_broken: OnBroken::Replace, seed }
    }

    /// Broken images are left out and reported.
    pub fn evaluation(threads: usize) -> LoaderOptions {
        LoaderOptions { on_broken: OnBroken::Exclude, ..LoaderOptions::training(0, threads) }
    }
}

/// A batch, ready for the network.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Position in the plan, from 0.
    pub index: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Tensors `[n, views, c, h, w]`.
    pub images: Vec<f32>,
    /// Tensors of each image, see [`Transform::views`](crate::Transform::views); 1 in training.
    pub views: usize,
    /// Channels, height and width.
    pub image_shape: [usize; 3],
    /// The image in each of the `n` places, stand-ins included.
    pub items: Vec<u32>,
    /// The class of each; empty for a set without labels.
    pub labels: Vec<u32>,
    /// Broken images found, see [`OnBroken`]. Their order is that of the plan.
    pub broken: Vec<Broken>,
    /// Places taken by a stand-in for a broken image.
    pub replaced: usize,
    /// How long the consumer waited for this batch.
    pub waited: Duration,
}

impl Batch {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when every image of the plan was broken and excluded.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// `[n * views, c, h, w]`.
    pub fn shape(&self) -> [usize; 4] {
        let [c, h, w] = self.image_shape;
        [self.len() * self.views, c, h, w]
    }
}

/// Yields the batches of a plan strictly in order, made ahead by worker threads.
///
/// What comes out depends on the plan, the set, the transform and the seed, and
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

type Plan = Box<dyn Iterator<Item = BatchPlan> + Send>;

struct Shared {
    store: Arc<ImageStore>,
    options: LoaderOptions,
    state: Mutex<State>,
    /// There may be work: a batch was taken, or everything shall stop.
    work: Condvar,
    /// The front batch may be ready.
    ready: Condvar,
}

struct State {
    plan: Plan,
    /// Index of the next batch to be pulled from the plan.
    next: u64,
    exhausted: bool,
    stop: bool,
    /// Batches in order; the front one is the consumer's next.
    window: VecDeque<Slot>,
    /// Workers that have not left their loop.
    alive: usize,
}

struct Slot {
    index: u64,
    plan: Arc<BatchPlan>,
    /// First position that no worker has taken.
    untaken: usize,
    /// Where the parts' images go, until a worker takes it.
    pieces: Vec<Option<Piece>>,
    /// Finished parts in the order of the batch; `None` while in the making.
    parts: Vec<Option<Result<Part, Error>>>,
    missing: usize,
}

/// A run of places of one batch.
struct Part {
    /// The images of `items`, and behind them the room of those that were left out.
    images: Piece,
    items: Vec<u32>,
    broken: Vec<Broken>,
    replaced: usize,
}

struct Task {
    index: u64,
    part: usize,
    places: Range<usize>,
    plan: Arc<BatchPlan>,
    images: Piece,
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
        let shared = Arc::new(Shared {
            store,
            options,
            state: Mutex::new(State {
                plan: Box::new(plan.into_iter()),
                next: 0,
                exhausted: false,
                stop: false,
                window: VecDeque::new(),
                alive: 0,
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut loader = Loader { shared, workers: Vec::new(), started: None, waited: Duration::ZERO };
        for number in 0..options.threads {
            let shared = loader.shared.clone();
            loader.shared.lock().alive += 1;
            let worker =
                std::thread::Builder::new().name(format!("loader-{number}")).spawn(move || shared.work());
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

    /// Share of the time since the first batch was asked for that the consumer
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
            image_shape: store.transform().shape(),
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lock is only poisoned if the plan's iterator panicked; the state
        // itself is consistent then, and the loader ends.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn name(&self) -> String {
        self.store.set().name().to_owned()
    }

    /// Values of one image's tensors.
    fn image_length(&self) -> usize {
        self.store.transform().views() * self.store.transform().tensor_len()
    }

    fn work(&self) {
        while let Some(task) = self.next_task() {
            let (index, number) = (task.index, task.part);
            let made = catch_unwind(AssertUnwindSafe(|| self.make(task)));
            let part = made
                .unwrap_or_else(|panic| Err(Error::Panic { batch: index, message: panic_message(&*panic) }));
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
            if let Some(slot) = state.window.iter_mut().find(|s| s.untaken < s.plan.items.len()) {
                return Some(slot.take(self.options.threads));
            }
            if state.exhausted {
                return None;
            }
            if state.window.len() < self.options.prefetch {
                match catch_unwind(AssertUnwindSafe(|| state.plan.next())) {
                    Ok(None) => {
                        state.exhausted = true;
                        self.ready.notify_all();
                        self.work.notify_all();
                    }
                    Ok(Some(plan)) => {
                        let index = state.next;
                        state.next += 1;
                        state.window.push_back(Slot::new(
                            index,
                            plan,
                            self.options.threads,
                            self.image_length(),
                        ));
                        self.work.notify_all();
                        // A plan without items is finished as it comes.
                        self.ready.notify_all();
                    }
                    Err(panic) => {
                        let (index, message) = (state.next, panic_message(&*panic));
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
        let transform = self.store.transform();
        let length = self.image_length();
        let items = Vec::with_capacity(task.places.len());
        let mut part = Part { images: task.images, items, broken: Vec::new(), replaced: 0 };
        for place in task.places {
            let item = task.plan.items[place];
            let position = task.plan.first + place as u64;
            let (item, image) = match self.store.get(item as usize) {
                Ok(image) => (item, image),
                Err(error) => {
                    part.broken.push(Broken { item, error: error.clone() });
                    match self.options.on_broken {
                        OnBroken::Fail => return Err(Error::Shared(error)),
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
            transform.apply(&image, &mut random, &mut part.images.values()[at..at + length]);
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
    ) -> Result<(u32, Arc<Image>), Error> {
        let class = self.store.classmates(item as usize);
        let start = Random::new(self.options.seed, "stand-in", plan.epoch, position).below(class.len());
        let around = || class[start..].iter().chain(&class[..start]).copied();
        let fresh = around().filter(|i| !plan.items.contains(i));
        let used = around().filter(|i| plan.items.contains(i) && *i != item);
        for candidate in fresh.chain(used) {
            match self.store.get(candidate as usize) {
                Ok(image) => return Ok((candidate, image)),
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

impl Slot {
    fn new(index: u64, plan: BatchPlan, threads: usize, image_length: usize) -> Slot {
        let (total, size) = (plan.items.len(), part_size(plan.items.len(), threads));
        let lengths = (0..total).step_by(size).map(|start| size.min(total - start) * image_length);
        let pieces: Vec<_> = canvas::cut(lengths).into_iter().map(Some).collect();
        Slot {
            index,
            plan: Arc::new(plan),
            untaken: 0,
            parts: pieces.iter().map(|_| None).collect(),
            missing: pieces.len(),
            pieces,
        }
    }

    fn failed(index: u64, message: String) -> Slot {
        let plan = BatchPlan { epoch: 0, first: 0, items: Vec::new() };
        let parts = vec![Some(Err(Error::Panic { batch: index, message }))];
        Slot { index, plan: Arc::new(plan), untaken: 0, pieces: Vec::new(), parts, missing: 0 }
    }

    fn take(&mut self, threads: usize) -> Task {
        let (start, total) = (self.untaken, self.plan.items.len());
        let size = part_size(total, threads);
        self.untaken = total.min(start + size);
        let part = start / size;
        Task {
            index: self.index,
            part,
            places: start..self.untaken,
            plan: self.plan.clone(),
            images: self.pieces[part].take().expect("a part is taken once"),
        }
    }
}

/// Places in one task: a batch is cut into one part per thread, so that the
/// first batch comes as fast as all threads can make it.
fn part_size(items: usize, threads: usize) -> usize {
    items.div_ceil(threads).max(1)
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
