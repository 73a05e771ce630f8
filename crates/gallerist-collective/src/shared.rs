//! Exchanges within operations that cannot return an error.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;

use crate::{Collective, Error, Result, bytes_of, numbers_of};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// The ranks that share the work of a scope. Batch norm takes its statistics from the images of all of them, and each
/// computes its part of the lists of a large batch.
///
/// Such operations find the ranks by [`Shared::current`]. They cannot return an error: after a failed exchange their
/// results mean nothing, and [`check`](Self::check) returns the error. Every rank runs the same operations in the same
/// order.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use gallerist_collective::{Shared, Single};
///
/// let shared = Shared::new(Arc::new(Single));
/// let of_ranks = shared.within(|| {
///     let ranks = Shared::current().expect("this is the scope");
///     ranks.gather(vec![1.0, 2.0])
/// });
/// shared.check()?;
/// assert_eq!(of_ranks, [[1.0, 2.0]]);
/// # Ok::<(), gallerist_collective::Error>(())
/// ```
#[derive(Debug)]
pub struct Shared {
    ranks: Arc<dyn Collective>,
    /// Why an exchange failed.
    failed: Mutex<Option<Error>>,
}

impl Shared {
    /// For these ranks.
    pub fn new(ranks: Arc<dyn Collective>) -> Arc<Self> {
        Arc::new(Shared { ranks, failed: Mutex::new(None) })
    }

    /// Runs `work` with these ranks as those of the calling thread.
    pub fn within<R>(self: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        Self::scope(Some(self.clone()), work)
    }

    /// [`within`](Self::within), or, with `None`, without ranks.
    pub fn scope<R>(ranks: Option<Arc<Self>>, work: impl FnOnce() -> R) -> R {
        struct Restore(Option<Arc<Shared>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(ranks));
        work()
    }

    /// The ranks of the innermost scope on this thread.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Whether all exchanges so far have worked.
    ///
    /// # Errors
    ///
    /// The first error.
    pub fn check(&self) -> Result<()> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Takes note that an operation cannot use all ranks.
    pub fn refuse(&self, operation: &'static str) {
        self.fail(Error::Unsupported { operation });
    }

    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.ranks.size()
    }

    /// The result of an exchange; nothing if it or an earlier one has failed.
    pub fn exchange<T>(&self, exchange: impl FnOnce(&dyn Collective) -> Result<T>) -> Option<T> {
        self.check().ok()?;
        exchange(&*self.ranks).map_err(|error| self.fail(error)).ok()
    }

    /// The numbers of every rank, which has as many as this one; `own` alone after an error.
    pub fn gather<T: Pod>(&self, own: Vec<T>) -> Vec<Vec<T>> {
        let bytes = bytes_of(&own);
        let lengths = vec![bytes.len(); self.size()];
        match self.exchange(|ranks| ranks.all_gather(bytes, &lengths)) {
            Some(all) => all.chunks_exact(bytes.len()).map(numbers_of).collect(),
            None => vec![own],
        }
    }
}
