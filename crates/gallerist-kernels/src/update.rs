//! Optimiser steps in one parallel pass over memory.
//!
//! The engine's optimisers make one pass over memory, on one thread, for every operation of the formula. These functions
//! compute the same operations in the same order.

use burn::backend::flex::FlexTensor;
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Tensor};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::nhwc::{contiguous_tensor, stored};
use crate::ops::is_enabled;
use crate::profile;
use crate::update_rules::Adam;
use gallerist_util::vectorized;

/// Elements of a task.
const TASK: usize = 16 * 1024;

/// A step of stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub rate: f64,
    /// Decay of the velocity, without dampening; with 0 there is no velocity.
    pub momentum: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// Multiple of the weights that is added to the gradient.
    pub weight_decay: f64,
}

impl Sgd {
    /// Returns the weights and the velocity after a step; `velocity` is `None` in the first step.
    ///
    /// With `g` the gradient plus the decay: `v = momentum * v + g` (`v = g` at first), `w -= rate * v`, in Nesterov's form
    /// `w -= rate * (g + momentum * v)`.
    ///
    /// # Shapes
    ///
    /// `[n]` everywhere.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use gallerist_kernels::Sgd;
    ///
    /// let device = Device::flex();
    /// let (w, g) = (Tensor::<1>::ones([2], &device), Tensor::<1>::ones([2], &device));
    /// let rule = Sgd { rate: 0.1, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    /// let (w, v) = rule.step(w, g.clone(), None);
    /// let (w, _) = rule.step(w, g, v);
    /// let w: Vec<f32> = w.into_data().try_into_vec().unwrap();
    /// assert!((w[0] - (1.0 - 0.1 - 0.19)).abs() < 1e-6);
    /// ```
    pub fn step(
        &self,
        weights: Tensor<1>,
        gradient: Tensor<1>,
        velocity: Option<Tensor<1>>,
    ) -> (Tensor<1>, Option<Tensor<1>>) {
        let [momentum, decay, rate] = [self.momentum, self.weight_decay, self.rate].map(|x| x as f32);
        if !(on_cpu(&weights) && on_cpu(&gradient) && velocity.as_ref().is_none_or(on_cpu)) {
            #[cfg(feature = "cuda")]
            if momentum > 0.0 && is_enabled() {
                let (nesterov, first) = (self.nesterov, velocity.is_none());
                let rule = crate::update_rules::Momentum { rate, decay, momentum, nesterov, first };
                if let Some([weights, velocity]) =
                    crate::cuda::sgd_step(&weights, &gradient, velocity.as_ref(), rule)
                {
                    return (weights, Some(velocity));
                }
            }
            let mut gradient = gradient;
            if decay > 0.0 {
                gradient = weights.clone().mul_scalar(decay).add(gradient);
            }
            if momentum == 0.0 {
                return (weights - gradient.mul_scalar(rate), None);
            }
            let velocity = match velocity {
                Some(velocity) => gradient.clone().add(velocity.mul_scalar(momentum)),
                None => gradient.clone(),
            };
            let direction = match self.nesterov {
                true => velocity.clone().mul_scalar(momentum).add(gradient),
                false => velocity.clone(),
            };
            return (weights - direction.mul_scalar(rate), Some(velocity));
        }
        let _measured = profile::scope("optimiser");
        let (weights, gradient) = (flex(weights), flex(gradient));
        if momentum == 0.0 {
            let none = vec![(); gradient.layout().num_elements().div_ceil(TASK)];
            let moved = each(&weights, &gradient, none, |w, g, (), to| sgd_rows(w, g, to, rate, decay));
            return (moved, None);
        }
        let first = velocity.is_none();
        let mut velocity = State::of(velocity, &gradient);
        let nesterov = self.nesterov;
        let moved = each(&weights, &gradient, velocity.tasks(), |w, g, v, to| {
            momentum_rows(w, g, v, to, [rate, decay, momentum], first, nesterov);
        });
        (moved, Some(velocity.into_tensor()))
    }
}

/// A step of Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub rate: f64,
    /// Decay rates of the two moments.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Multiple of the weights, times the learning rate, that is subtracted from them.
    pub weight_decay: f64,
}

impl AdamW {
    /// Returns the weights and the two moments after step `time` (from 1); `moments` is `None` in the first step.
    ///
    /// # Shapes
    ///
    /// `[n]` everywhere.
    pub fn step(
        &self,
        weights: Tensor<1>,
        gradient: Tensor<1>,
        moments: Option<[Tensor<1>; 2]>,
        time: u32,
    ) -> (Tensor<1>, [Tensor<1>; 2]) {
        let [beta_1, beta_2] = self.betas.map(|beta| beta as f32);
        let power = time as i32;
        let rule = Adam {
            betas: [beta_1, beta_2],
            factors: [1.0 - beta_1, 1.0 - beta_2],
            corrections: [1.0 - beta_1.powi(power), 1.0 - beta_2.powi(power)],
            epsilon: self.epsilon as f32,
            rate: self.rate as f32,
            kept: (1.0 - self.rate * f64::from(self.weight_decay as f32)) as f32,
        };
        let of_moments = moments.as_ref().is_none_or(|moments| moments.iter().all(on_cpu));
        if !(on_cpu(&weights) && on_cpu(&gradient) && of_moments) {
            #[cfg(feature = "cuda")]
            if is_enabled()
                && let Some(stepped) = crate::cuda::adam_step(&weights, &gradient, moments.as_ref(), rule)
            {
                return stepped;
            }
            return rule.by_the_engine(weights, gradient, moments);
        }
        let _measured = profile::scope("optimiser");
        let (weights, gradient) = (flex(weights), flex(gradient));
        let first = moments.is_none();
        let mut moments = moments.map_or([None, None], |moments| moments.map(Some));
        let mut moments = [0, 1].map(|i| State::of(moments[i].take(), &gradient));
        let [of_first, of_second] = moments.each_mut().map(State::tasks);
        let tasks = of_first.into_iter().zip(of_second).collect();
        let moved = each(&weights, &gradient, tasks, |w, g, (m, v), to| {
            adam_rows(w, g, m, v, to, rule, first);
        });
        (moved, moments.map(State::into_tensor))
    }
}

impl Adam {
    fn by_the_engine(
        &self,
        weights: Tensor<1>,
        gradient: Tensor<1>,
        moments: Option<[Tensor<1>; 2]>,
    ) -> (Tensor<1>, [Tensor<1>; 2]) {
        let new = [gradient.clone(), gradient.square()];
        let new = [0, 1].map(|i| new[i].clone().mul_scalar(self.factors[i]));
        let moments = match moments {
            Some(old) => [0, 1].map(|i| old[i].clone().mul_scalar(self.betas[i]).add(new[i].clone())),
            None => new,
        };
        let [first, second] = [0, 1].map(|i| moments[i].clone().div_scalar(self.corrections[i]));
        let direction = first.div(second.sqrt().add_scalar(self.epsilon));
        (weights.mul_scalar(self.kept) - direction.mul_scalar(self.rate), moments)
    }
}

/// The sum of the squares of all elements, as a tensor of one.
pub fn square_sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    if !on_cpu(&x) {
        return x.square().sum();
    }
    let _measured = profile::scope("norm of the gradient");
    let device = x.device();
    let x = flex(x);
    let x = stored(&x);
    // One sum per task, so that the bits do not depend on the number of threads.
    let parts: Vec<f64> = x.par_chunks(TASK).map(square_sum_of).collect();
    Tensor::from_floats([parts.iter().sum::<f64>() as f32], &device)
}

/// A tensor of one: 0 if all elements are finite, else NaN. A program that marks many tensors reads the marks together, so
/// that it waits for a GPU once.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gallerist_kernels::finite_mark;
///
/// let device = Device::flex();
/// let mark = |x: [f32; 2]| finite_mark(Tensor::<1>::from_floats(x, &device)).into_scalar::<f32>();
/// assert_eq!(mark([1.0, f32::MAX]), 0.0);
/// assert!(mark([1.0, f32::INFINITY]).is_nan());
/// ```
pub fn finite_mark<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    if !on_cpu(&x) {
        return x.clone().sub(x).sum();
    }
    let device = x.device();
    let x = flex(x);
    let finite = is_finite(stored(&x));
    Tensor::from_floats([if finite { 0.0 } else { f32::NAN }], &device)
}

/// Whether all values are finite.
pub fn is_finite(values: &[f32]) -> bool {
    values.par_chunks(TASK).all(are_finite)
}

/// Calls `update(weights, gradient, state, result)` for every task and returns the result.
fn each<T: Send>(
    weights: &FlexTensor,
    gradient: &FlexTensor,
    state: Vec<T>,
    update: impl Fn(&[f32], &[f32], T, &mut [f32]) + Sync,
) -> Tensor<1> {
    let (weights, gradient) = (stored(weights), stored(gradient));
    assert_eq!(weights.len(), gradient.len(), "a gradient of another size than its weights");
    let mut moved = Buffer::new(weights.len());
    let tasks = moved.par_chunks_mut(TASK).zip(weights.par_chunks(TASK)).zip(gradient.par_chunks(TASK));
    tasks.zip(state).for_each(|(((moved, weights), gradient), state)| {
        update(weights, gradient, state, moved);
    });
    State::New(moved).into_tensor()
}

vectorized! {
    fn sgd_rows<'a>(w: &'a [f32], g: &'a [f32], to: &'a mut [f32], rate: f32, decay: f32) -> () {
        for ((w, g), to) in w.iter().zip(g).zip(to) {
            let g = if decay > 0.0 { w * decay + g } else { *g };
            *to = w - g * rate;
        }
    }
}

vectorized! {
    fn momentum_rows<'a>(
        w: &'a [f32],
        g: &'a [f32],
        v: &'a mut [f32],
        to: &'a mut [f32],
        numbers: [f32; 3],
        first: bool,
        nesterov: bool,
    ) -> () {
        let [rate, decay, momentum] = numbers;
        for (((w, g), v), to) in w.iter().zip(g).zip(v).zip(to) {
            let g = if decay > 0.0 { w * decay + g } else { *g };
            *v = if first { g } else { g + *v * momentum };
            let direction = if nesterov { *v * momentum + g } else { *v };
            *to = w - direction * rate;
        }
    }
}

vectorized! {
    fn adam_rows<'a>(
        w: &'a [f32],
        g: &'a [f32],
        m: &'a mut [f32],
        v: &'a mut [f32],
        to: &'a mut [f32],
        rule: Adam,
        first: bool,
    ) -> () {
        for ((((w, g), m), v), to) in w.iter().zip(g).zip(m).zip(v).zip(to) {
            let [of_first, of_second] = [g * rule.factors[0], g * g * rule.factors[1]];
            *m = if first { of_first } else { *m * rule.betas[0] + of_first };
            *v = if first { of_second } else { *v * rule.betas[1] + of_second };
            let direction = *m / rule.corrections[0] / ((*v / rule.corrections[1]).sqrt() + rule.epsilon);
            *to = w * rule.kept - direction * rule.rate;
        }
    }
}

vectorized! {
    fn square_sum_of<'a>(x: &'a [f32]) -> f64 {
        const LANES: usize = 16;
        let mut sums = [0f64; LANES];
        let (whole, rest) = x.as_chunks::<LANES>();
        for x in whole {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum += f64::from(*x) * f64::from(*x);
            }
        }
        for (sum, x) in sums.iter_mut().zip(rest) {
            *sum += f64::from(*x) * f64::from(*x);
        }
        sums.iter().sum()
    }
}

vectorized! {
    fn are_finite<'a>(x: &'a [f32]) -> bool {
        const EXPONENT: u32 = 0x7f80_0000;
        let mut found = 0;
        for x in x {
            found |= u32::from(x.to_bits() & EXPONENT == EXPONENT);
        }
        found == 0
    }
}

/// Whether the kernels support a tensor: `f32` on the CPU backend, without gradients.
fn on_cpu<const D: usize>(x: &Tensor<D>) -> bool {
    use burn::backend::DispatchDevice;
    let device = x.device();
    is_enabled() && matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && x.dtype() == DType::F32
}

fn flex<const D: usize>(x: Tensor<D>) -> FlexTensor {
    match x.into_dispatch().kind {
        DispatchTensorKind::Flex(BackendTensor::Float(x)) => x.to_contiguous(),
        _ => unreachable!("checked by `on_cpu`"),
    }
}

/// The state of an optimiser, updated in place.
enum State {
    /// A tensor that shares its memory with no other.
    Tensor(FlexTensor),
    New(Buffer),
}

impl State {
    /// The memory of `x`, or a copy if `x` shares it; unspecified values if there is no state yet.
    fn of(x: Option<Tensor<1>>, gradient: &FlexTensor) -> Self {
        let Some(x) = x.map(flex) else { return Self::New(Buffer::new(gradient.layout().num_elements())) };
        assert_eq!(x.layout().num_elements(), gradient.layout().num_elements(), "state of another size");
        if x.is_unique() {
            return Self::Tensor(x);
        }
        let mut copy = Buffer::new(x.layout().num_elements());
        copy.copy_from_slice(stored(&x));
        Self::New(copy)
    }

    fn tasks(&mut self) -> Vec<&mut [f32]> {
        let values = match self {
            Self::Tensor(x) => {
                let (start, len) = (x.layout().start_offset(), x.layout().num_elements());
                &mut x.storage_mut::<f32>()[start..start + len]
            }
            Self::New(values) => values,
        };
        values.chunks_mut(TASK).collect()
    }

    fn into_tensor(self) -> Tensor<1> {
        let x = match self {
            Self::Tensor(x) => x,
            Self::New(values) => {
                let len = values.len();
                contiguous_tensor(values, [len])
            }
        };
        let kind = DispatchTensorKind::Flex(BackendTensor::Float(x));
        Tensor::from_dispatch(DispatchTensor { kind, autodiff: DispatchAutodiffContext::Disabled })
    }
}
