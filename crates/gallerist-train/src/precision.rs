//! Mixed precision: the dtype of a network, and the loss scale that prevents underflow of small gradients.
//!
//! Weights, their updates, batch norm, the pooling before the heads, and the losses are always
//! f32. On a GPU, convolutions and the layers between them use the smaller dtype (Micikevicius et al. 2018,
//! "Mixed Precision Training"). On the CPU, only the operands of the products in convolutions are rounded.

use burn::tensor::DType;
use gallerist_kernels::{Products, bf16_unit, with_products};
use serde::{Deserialize, Serialize};

use crate::Result;
use gallerist_tensor::device::{OpenDevice, on_device};

/// `train.precision`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits. NVIDIA GPUs may round the operands of products to 19 bits (TF32). On CPUs, 3 x 3 convolutions and their
    /// gradients are computed by Winograd's algorithm where it is faster ([`Products::F32`]).
    #[default]
    F32,
    /// The same without Winograd's algorithm: smaller rounding errors.
    F32Direct,
    /// 16 bits with the exponents of f32. On CPUs with AMX or AVX-512 BF16, the operands of convolutions and of their
    /// gradients are rounded to it; sums accumulate in f32, and activations stay f32.
    Bf16,
    /// 16 bits with a smaller range and loss scaling ([`LossScale`]). GPUs only.
    F16,
}

impl Precision {
    /// Its name in the run file.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::F32Direct => "f32-direct",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    /// The engine's name for it.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::F32Direct => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }

    /// Returns an error for a dtype that a device does not support or that is slower than f32.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](gallerist_tensor::Error::Value) naming the device.
    pub fn check(self, device: &OpenDevice) -> Result<()> {
        let (there, wanted) = match (self, device.is_cpu()) {
            (Precision::F32 | Precision::F32Direct, _) => return Ok(()),
            (Precision::Bf16, true) => {
                let without = format!("f32 on {device}, which has neither AMX nor AVX-512 BF16");
                (bf16_unit().is_some(), without)
            }
            (Precision::F16, true) if bf16_unit().is_some() => (false, format!("f32 or bf16 on {device}")),
            (Precision::F16, true) => (false, format!("f32 on {device}")),
            (_, false) => (device.device().supports_dtype(self.dtype()), format!("f32 on {device}")),
        };
        if there {
            return Ok(());
        }
        Err(gallerist_tensor::Error::Value {
            key: "train.precision".into(),
            wanted,
            found: self.name().into(),
        }
        .into())
    }

    /// The dtype of images, and therefore of the outputs of a network, on `device`.
    pub(super) fn of_maps(self, device: &OpenDevice) -> DType {
        if device.is_cpu() { DType::F32 } else { self.dtype() }
    }

    /// Runs a forward or backward pass of a network on `device`.
    pub(super) fn run<R: Send>(self, device: &OpenDevice, pass: impl FnOnce() -> R + Send) -> R {
        let products = match self {
            Precision::F32 => Products::F32,
            Precision::Bf16 if device.is_cpu() => Products::Bf16,
            _ => Products::F32Direct,
        };
        with_products(products, || on_device(device.device(), pass))
    }

    /// A note about the instructions on `device`, if there is one: `products in bf16 by AMX`.
    pub fn described(self, device: &OpenDevice) -> Option<String> {
        match (self, device.is_cpu()) {
            (Precision::F32 | Precision::F32Direct, _) => None,
            (_, true) => Some(format!("products in {} by {}", self.name(), bf16_unit()?)),
            (_, false) => Some(self.name().into()),
        }
    }
}

/// Dynamic loss scaling (Micikevicius et al. 2018, section 3.2): gradients are computed of the loss times a scale, so
/// that small ones do not vanish in f16, and divided by it afterwards.
///
/// The scale doubles after [`GROWTH`](Self::GROWTH) steps whose gradients are finite. Where they are not, the step is
/// left out (`left_out` in the log) and the scale is halved. Only at the scale 1, or where the loss itself or the weights
/// are not finite, [`OnNonfinite`](crate::OnNonfinite) decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossScale {
    /// The exponent of the scale, a power of two: multiplying by it rounds nothing.
    exponent: u32,
    /// Steps since the scale last changed.
    steady: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        LossScale { exponent: 16, steady: 0 }
    }
}

impl LossScale {
    /// Steps with finite gradients until the scale doubles.
    pub const GROWTH: u32 = 2000;
    /// The largest scale is 2 to this.
    const LARGEST: u32 = 24;

    /// The scale.
    pub fn factor(self) -> f64 {
        f64::from(self.exponent).exp2()
    }

    /// Updates the scale after a step with or without finite gradients.
    ///
    /// Returns false if they were not finite and the scale is at its minimum: the scale is not the cause.
    #[must_use]
    pub fn update(&mut self, finite: bool) -> bool {
        match finite {
            true if self.steady + 1 == Self::GROWTH => {
                *self = LossScale { exponent: (self.exponent + 1).min(Self::LARGEST), steady: 0 };
            }
            true => self.steady += 1,
            false if self.exponent == 0 => return false,
            false => *self = LossScale { exponent: self.exponent - 1, steady: 0 },
        }
        true
    }

    /// Whether the value is one that [`update`](Self::update) can produce: the file of a checkpoint may be damaged.
    pub(super) fn is_valid(self) -> bool {
        self.exponent <= Self::LARGEST && self.steady < Self::GROWTH
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use gallerist_tensor::device::DeviceChoice;

    #[test]
    fn on_the_processor_16_bits_are_refused_unless_it_multiplies_them() {
        let cpu = DeviceChoice::Cpu.open().unwrap();
        assert!(Precision::F32.check(&cpu).is_ok() && Precision::F32Direct.check(&cpu).is_ok());
        assert_eq!(Precision::Bf16.check(&cpu).is_ok(), bf16_unit().is_some());
        let error = Precision::F16.check(&cpu).unwrap_err().to_string();
        assert!(error.contains("train.precision") && error.contains("f16"), "{error}");
        assert_eq!(Precision::Bf16.described(&cpu).is_some(), bf16_unit().is_some());
        assert_eq!(Precision::F32.described(&cpu), None);
    }

    #[test]
    fn an_overflow_halves_the_scale_and_starts_the_count_again() {
        let mut scale = LossScale::default();
        for _ in 1..LossScale::GROWTH {
            assert!(scale.update(true));
        }
        assert_eq!(scale.factor(), 65536.0);
        assert!(scale.update(false));
        assert_eq!(scale, LossScale { exponent: 15, steady: 0 });
    }

    #[test]
    fn the_scale_doubles_after_as_many_good_steps_and_not_beyond_its_largest() {
        let mut scale = LossScale::default();
        for _ in 0..LossScale::GROWTH {
            assert!(scale.update(true));
        }
        assert_eq!(scale.factor(), 131072.0);
        for _ in 0..LossScale::GROWTH * 20 {
            assert!(scale.update(true));
        }
        assert_eq!(scale.factor(), f64::from(LossScale::LARGEST).exp2());
    }

    #[test]
    fn overflow_at_scale_one_is_no_matter_of_the_scale() {
        let mut scale = LossScale::default();
        for _ in 0..16 {
            assert!(scale.update(false));
        }
        assert_eq!(scale.factor(), 1.0);
        assert!(!scale.update(false));
    }

    proptest! {
        #[test]
        fn a_scale_from_a_checkpoint_goes_on_as_the_one_that_was_saved(
            before in proptest::collection::vec(proptest::bool::weighted(0.99), 0..5000),
            after in proptest::collection::vec(proptest::bool::weighted(0.99), 0..3000),
        ) {
            let mut scale = LossScale::default();
            let run = |scale: &mut LossScale, steps: &[bool]| steps.iter().all(|&finite| scale.update(finite));
            prop_assume!(run(&mut scale, &before));
            prop_assert!(scale.is_valid());
            let text = serde_json::to_string(&scale).unwrap();
            let mut restored: LossScale = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(run(&mut scale, &after), run(&mut restored, &after));
            prop_assert_eq!(scale, restored);
        }
    }
}
