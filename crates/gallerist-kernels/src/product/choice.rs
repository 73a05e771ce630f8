//! How products are computed, chosen per thread.

use std::cell::Cell;

use super::unit::{Precision, fastest};

gallerist_util::named_values! {
    /// How convolutions and linear layers compute their products, on the CPU.
    #[derive(Default)]
    pub enum Products {
        /// In f32; 3 x 3 convolutions of stride 1 and their gradients by Winograd's algorithm, F(4 x 4, 3 x 3) of Lavin and Gray
        /// (2016), with a quarter of the multiplications. Its rounding errors are larger: below 5e-5 of the root mean square
        /// of a convolution's results, and 1e-4 of its gradients'.
        #[default]
        F32 = "f32", "3 x 3 convolutions by Winograd's algorithm";
        /// In f32, without Winograd's algorithm, which also takes less memory.
        F32Direct = "f32-direct", "without Winograd's algorithm: smaller rounding errors";
        /// Operands rounded to bf16 (8 significant bits), sums in f32, where the CPU has instructions for it
        /// ([`bf16_unit`](crate::bf16_unit)), else as `F32`. Depthwise convolutions, attention and layers of rows, such as
        /// the last one, stay f32.
        Bf16 = "bf16", "operands rounded to bf16, on CPUs with AMX or AVX-512 BF16";
        /// Of networks that only embed: the maps between the convolutions are bytes, in the ranges measured on some images
        /// ([`Builder::finish_int8`](crate::prepared::Builder::finish_int8)). Elsewhere, and where the CPU has no instructions for it
        /// ([`int8_unit`](crate::int8_unit)), as `F32`.
        Int8 = "int8", "maps between convolutions in int8, in the ranges of `gallerist model calibrate`, on CPUs with AVX-512 VNNI";
    }
}

impl Products {
    /// The choice for a layer of maps or tokens, or of rows.
    pub(crate) fn choice(self, of_rows: bool) -> Choice {
        let precision = match (self, of_rows) {
            (Products::Bf16, false) => fastest().map_or(Precision::F32, Precision::Bf16),
            _ => Precision::F32,
        };
        Choice { precision, winograd: self != Products::F32Direct && precision == Precision::F32 }
    }
}

/// What a thread has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) precision: Precision,
    /// Whether Winograd's algorithm is permitted.
    pub(crate) winograd: bool,
}

thread_local! {
    static CURRENT: Cell<Choice> = const { Cell::new(Choice { precision: Precision::F32, winograd: false }) };
}

impl Choice {
    pub(crate) fn current() -> Self {
        CURRENT.get()
    }

    /// Runs `work`; every product that it starts on this thread is computed so.
    pub(crate) fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        struct Restore(Choice);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(self));
        work()
    }
}

/// Runs `work` with these products: those of convolutions and linear layers that `work` starts on the calling thread, and of
/// their gradients. Without it, products are [`Products::F32Direct`].
///
/// Feature maps, weights and gradients stay `f32`. Depthwise convolutions, which are limited by memory bandwidth, are not
/// affected. With [`Products::F32`], whether a convolution is computed by Winograd's algorithm depends on the number of images, too, so
/// that the result for an image may depend on its batch, by rounding.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor, ops::ConvOptions};
/// use gallerist_kernels::{Products, bf16_unit, conv2d, with_products};
///
/// let device = Device::flex();
/// let x = Tensor::<4>::full([1, 32, 4, 4], 1.001, &device);
/// let weight = Tensor::<4>::ones([16, 32, 1, 1], &device);
/// let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
/// let y = with_products(Products::Bf16, || conv2d(x, weight, None, options));
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// // 1.001 becomes 1.
/// let wanted = if bf16_unit().is_some() { 32.0 } else { 32.0 * 1.001 };
/// assert!((y[0] - wanted).abs() < 1e-5);
/// ```
pub fn with_products<R>(products: Products, work: impl FnOnce() -> R) -> R {
    products.choice(false).scope(work)
}
