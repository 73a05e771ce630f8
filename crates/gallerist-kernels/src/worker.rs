//! The thread that starts the operations of a pass.

use gallerist_collective::Shared;

use crate::product::Choice;

/// Runs `work`, such as a forward pass, on a thread of rayon's pool, and waits for it.
///
/// Every operation divides its work among these threads. An operation that another thread starts wakes one of them at
/// its start and is woken at its end; a network runs hundreds of operations in a step. The products of
/// [`with_products`](crate::with_products) and the ranks of [`Shared::within`] apply to `work`.
///
/// Use it for passes that run one after the other, as in training. Do not use it for concurrent passes, as in a server: a
/// thread that waits for a part of one pass may start another one, which delays the first.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor, ops::ConvOptions};
///
/// let device = Device::flex();
/// let x = Tensor::<4>::ones([1, 3, 4, 4], &device);
/// let weight = Tensor::<4>::ones([8, 3, 3, 3], &device);
/// let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
/// let y = gallerist_kernels::on_worker(|| gallerist_kernels::conv2d(x, weight, None, options));
/// assert_eq!(y.dims(), [1, 8, 4, 4]);
/// ```
pub fn on_worker<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let (choice, ranks) = (Choice::current(), Shared::current());
    rayon::scope(|_| choice.scope(|| Shared::scope(ranks, work)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::{Precision, Unit};

    #[test]
    fn the_choice_of_products_is_inherited() {
        let choice = Choice { precision: Precision::Bf16(Unit::PORTABLE), winograd: true };
        assert_eq!(choice.scope(|| on_worker(Choice::current)), choice);
        assert!(!on_worker(Choice::current).winograd);
    }

    #[test]
    fn work_runs_where_loops_run() {
        assert!(on_worker(rayon::current_thread_index).is_some());
        assert!(on_worker(|| on_worker(rayon::current_thread_index)).is_some());
    }
}
