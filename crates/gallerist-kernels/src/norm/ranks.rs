//! Statistics of the batches of several ranks.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use gallerist_collective::{Collective, Error, Result, bytes_of, numbers_of};

thread_local! {
    static CURRENT: RefCell<Option<Arc<SharedStatistics>>> = const { RefCell::new(None) };
}

/// The ranks of a distributed run, for batch norm by the statistics of all their images ("synchronised batch norm").
///
/// Each rank normalises its part of a batch by mean and variance of the whole batch; in the backward pass, the sums over
/// the batch are those of all ranks, too. Gradients with respect to scale and shift are those of the rank's images: the
/// sums over the ranks are the gradients of the whole batch, as for every other parameter.
///
/// A layer has one exchange in the forward pass, and one in the backward pass. Every rank runs the same layers in the
/// same order.
#[derive(Debug)]
pub struct SharedStatistics {
    ranks: Arc<dyn Collective>,
    /// Why an exchange failed. Operations on tensors cannot return it.
    failed: Mutex<Option<Error>>,
}

impl SharedStatistics {
    /// For these ranks.
    pub fn new(ranks: Arc<dyn Collective>) -> Arc<Self> {
        Arc::new(SharedStatistics { ranks, failed: Mutex::new(None) })
    }

    /// Runs `work`. The batch norms by statistics of the batch that it starts on the calling thread, and their gradients,
    /// use the statistics of the batches of all ranks.
    ///
    /// # Example
    ///
    /// ```
    /// use std::sync::Arc;
    /// use burn::tensor::{Device, Tensor};
    /// use gallerist_collective::Single;
    /// use gallerist_kernels::{Activation, SharedStatistics, batch_norm};
    ///
    /// let device = Device::flex();
    /// let (one, x) = (Tensor::<1>::ones([2], &device), Tensor::<4>::ones([1, 2, 3, 3], &device));
    /// let shared = SharedStatistics::new(Arc::new(Single));
    /// let y = shared.within(|| batch_norm(x, one.clone(), one, 1e-5, Activation::None));
    /// shared.check()?;
    /// assert_eq!(y.output.dims(), [1, 2, 3, 3]);
    /// # Ok::<(), gallerist_collective::Error>(())
    /// ```
    pub fn within<R>(self: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        scope(Some(self.clone()), work)
    }

    /// Whether all exchanges so far have worked. After one that has not, the values of batch norms are those of one rank.
    ///
    /// # Errors
    ///
    /// The first error.
    pub fn check(&self) -> Result<()> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Takes note that an operation cannot use the statistics of all ranks.
    pub(crate) fn refuse(&self, operation: &'static str) {
        self.fail(Error::Unsupported { operation });
    }

    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The values of every rank; `own` alone after an error.
    pub(super) fn gather(&self, own: Vec<f64>) -> Vec<Vec<f64>> {
        if self.check().is_err() {
            return vec![own];
        }
        let bytes = bytes_of(&own);
        let all = match self.ranks.all_gather(bytes, &vec![bytes.len(); self.ranks.size()]) {
            Ok(all) => all,
            Err(error) => {
                self.fail(error);
                return vec![own];
            }
        };
        all.chunks_exact(bytes.len()).map(numbers_of).collect()
    }
}

/// The ranks of the innermost [`SharedStatistics::within`] on this thread.
pub(crate) fn current() -> Option<Arc<SharedStatistics>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `work` with these ranks.
pub(crate) fn scope<R>(ranks: Option<Arc<SharedStatistics>>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<SharedStatistics>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(ranks));
    work()
}
