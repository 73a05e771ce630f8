//! Where the operations of a pass are started.

use crate::bf16::Factors;

/// Runs `work`, such as a forward pass, on a thread of rayon's pool, and waits for it.
///
/// Every operation divides its work among these threads. One that is started by another thread has to wake one of them
/// first, and that thread is woken at its end; a network makes hundreds of operations in a step. With
/// [`with_bf16_products`](crate::with_bf16_products) around it products are rounded in `work`, too.
///
/// For passes that follow each other, as in training. Of many at once, as a server has them, a thread that waits for a part of
/// one may take up another, and the first is late.
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
    let factors = Factors::current();
    rayon::scope(|_| factors.scope(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bf16::Unit;

    #[test]
    fn products_are_rounded_as_outside() {
        let inside = || Factors::Bf16(Unit::Plain).scope(|| on_worker(Factors::current));
        assert!(matches!(inside(), Factors::Bf16(Unit::Plain)));
        assert!(matches!(on_worker(Factors::current), Factors::F32));
    }

    #[test]
    fn work_runs_where_loops_run() {
        assert!(on_worker(rayon::current_thread_index).is_some());
        assert!(on_worker(|| on_worker(rayon::current_thread_index)).is_some());
    }
}
