//! The constants of a step of an optimiser, for the kernels of the CPU and those of GPUs.

/// The constants of a step of SGD with momentum.
#[cfg(feature = "cuda")]
#[derive(Clone, Copy)]
pub(crate) struct Momentum {
    pub(crate) rate: f32,
    pub(crate) decay: f32,
    pub(crate) momentum: f32,
    pub(crate) nesterov: bool,
    /// There is no velocity yet.
    pub(crate) first: bool,
}

/// The constants of a step of [`AdamW`](crate::AdamW).
#[derive(Clone, Copy)]
pub(crate) struct Adam {
    pub(crate) betas: [f32; 2],
    /// 1 - beta.
    pub(crate) factors: [f32; 2],
    /// 1 - beta^time.
    pub(crate) corrections: [f32; 2],
    pub(crate) epsilon: f32,
    pub(crate) rate: f32,
    /// The factor of the weights after decay.
    pub(crate) kept: f32,
}
