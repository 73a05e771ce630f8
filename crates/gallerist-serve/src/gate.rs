//! Work that takes a processor's time, a few pieces at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::http::Refusal;

/// Lets so many pieces of work through at a time, lets so many more wait, and refuses the others.
pub(crate) struct Gate {
    permits: Semaphore,
    inside: AtomicUsize,
    most: usize,
}

impl Gate {
    pub(crate) fn new(at_once: usize, waiting: usize) -> Self {
        Self { permits: Semaphore::new(at_once), inside: AtomicUsize::new(0), most: at_once + waiting }
    }

    /// Runs `work` on a thread for such work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let _counted = Counted::enter(&self.inside, self.most).ok_or_else(Refusal::busy)?;
        let _permit = self.permits.acquire().await.map_err(|_| Refusal::busy())?;
        tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::internal("the work broke off"))
    }
}

/// One more inside, until it is dropped: also when the request is given up.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn enter(inside: &'a AtomicUsize, most: usize) -> Option<Self> {
        let counted = Self(inside);
        (inside.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
