//! A limit on concurrent CPU-bound work.

use gallerist_util::sync::Arc;
use gallerist_util::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

use crate::http::Refusal;
use crate::sync::spawn_blocking;

/// Runs a limited number of tasks at the same time, lets a limited number wait, and refuses others. Clones share
/// the limits.
#[derive(Clone)]
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    most: usize,
}

impl Gate {
    pub(crate) fn new(at_once: usize, waiting: usize) -> Self {
        let permits = Arc::new(Semaphore::new(at_once));
        Self { permits, inside: Arc::default(), most: at_once + waiting }
    }

    /// The number of tasks that run or wait.
    pub(crate) fn inside(&self) -> usize {
        self.inside.load(Ordering::Relaxed)
    }

    /// Whether it refuses the next task.
    pub(crate) fn is_full(&self) -> bool {
        self.inside() >= self.most
    }

    /// A place for a task of several parts.
    pub(crate) fn enter(&self) -> Result<Place, Refusal> {
        let counted = Counted::enter(&self.inside, self.most).ok_or_else(Refusal::busy)?;
        Ok(Place { gate: self.clone(), counted: Arc::new(counted) })
    }

    /// Runs `work` on a blocking thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.enter()?.run(work).await
    }
}

/// The place of a task that has entered a gate. It counts until the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Place {
    gate: Gate,
    counted: Arc<Counted>,
}

impl Place {
    /// Runs a part of the task on a blocking thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let permits = Arc::clone(&self.gate.permits);
        let permit = permits.acquire_owned().await.map_err(|_| Refusal::busy())?;
        let counted = Arc::clone(&self.counted);
        // A cancelled request does not end its work, which keeps its permit until it is done.
        let work = move || {
            let _held = (counted, permit);
            work()
        };
        spawn_blocking(work).await.map_err(|_| Refusal::internal("the work broke off"))
    }
}

/// Counts one task, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn enter(inside: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // One step: a task that is refused never counts, or another one would be refused because of it.
        let one_more = |tasks| (tasks < most).then_some(tasks + 1);
        inside.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(inside)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
