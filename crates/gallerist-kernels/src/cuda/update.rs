//! Steps of optimisers, one kernel for a parameter: starts the kernels of `update.cu`.

use std::ffi::c_int;

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Dispatch, backend_extension};
use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::kernels::{Launch, Source, blocks_of, launch};
use super::library::{Library, Outcome};
use super::operations::{empty_like, start};
use super::{alike, supported};
use crate::update_rules::{Adam, Momentum};

/// A step of Adam.
#[derive(Clone, Copy)]
pub(crate) struct AdamStep {
    rule: Adam,
    /// There are no moments yet.
    first: bool,
}

/// Steps of parameters `[n]`; all values are f32.
#[backend_extension(Cube, Fusion)]
pub(super) trait CudaUpdates: Backend {
    /// The weights and the velocity after a step.
    #[fusion(meta = |weights: &TensorSpec, _gradient: &TensorSpec, _velocity: &TensorSpec, _rule: &Momentum| (weights.clone(), weights.clone()))]
    fn cuda_sgd(
        weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        velocity: FloatTensor<Self>,
        rule: Momentum,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The weights and both moments after a step.
    #[fusion(meta = |weights: &TensorSpec, _gradient: &TensorSpec, _first: &TensorSpec, _second: &TensorSpec, _rule: &AdamStep| (weights.clone(), weights.clone(), weights.clone()))]
    fn cuda_adam(
        weights: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        rule: AdamStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl CudaUpdates for CubeBackend {
    fn cuda_sgd(
        weights: CubeTensor,
        gradient: CubeTensor,
        velocity: CubeTensor,
        rule: Momentum,
    ) -> (CubeTensor, CubeTensor) {
        let [weights, gradient, velocity] = [weights, gradient, velocity].map(into_contiguous);
        let [moved, kept] = [0, 1].map(|_| empty_like(&weights));
        let values = weights.meta.shape().num_elements();
        let tensors = [&weights, &gradient, &velocity, &moved, &kept];
        start(tensors, move |library, at| sgd(library, values, at, rule));
        (moved, kept)
    }

    fn cuda_adam(
        weights: CubeTensor,
        gradient: CubeTensor,
        first: CubeTensor,
        second: CubeTensor,
        rule: AdamStep,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        let tensors = [weights, gradient, first, second].map(into_contiguous);
        let [weights, gradient, first, second] = &tensors;
        let [moved, new_first, new_second] = [0, 1, 2].map(|_| empty_like(weights));
        let values = weights.meta.shape().num_elements();
        let tensors = [weights, gradient, first, second, &moved, &new_first, &new_second];
        start(tensors, move |library, at| adam(library, values, at, rule));
        (moved, new_first, new_second)
    }
}

fn kernel_of(kernel: &str, values: usize) -> Launch {
    let kernel = kernel.to_string();
    Launch { source: Source::Update, values: "f32", kernel, grid: (blocks_of(values, 1), 1), shared: 0 }
}

fn sgd(
    library: &mut Library,
    values: usize,
    [weights, gradient, velocity, moved, kept]: [u64; 5],
    Momentum { rate, decay, momentum, nesterov, first }: Momentum,
) -> Outcome<()> {
    let (kernel, number) = (kernel_of("sgd", values), values as u64);
    let (nesterov, first) = (c_int::from(nesterov), c_int::from(first));
    library.between("optimiser", |library| {
        launch!(
            library,
            kernel,
            [weights, gradient, velocity, moved, kept, number, rate, decay, momentum, nesterov, first]
        );
        Ok(())
    })
}

fn adam(
    library: &mut Library,
    values: usize,
    [weights, gradient, first, second, moved, new_first, new_second]: [u64; 7],
    AdamStep { rule, first: fresh }: AdamStep,
) -> Outcome<()> {
    let (kernel, number, fresh) = (kernel_of("adam", values), values as u64, c_int::from(fresh));
    let Adam { betas: [beta_1, beta_2], factors: [factor_1, factor_2], epsilon, rate, kept, .. } = rule;
    let [correction_1, correction_2] = rule.corrections;
    library.between("optimiser", |library| {
        launch!(
            library,
            kernel,
            [
                weights,
                gradient,
                first,
                second,
                moved,
                new_first,
                new_second,
                number,
                beta_1,
                beta_2,
                factor_1,
                factor_2,
                correction_1,
                correction_2,
                epsilon,
                rate,
                kept,
                fresh
            ]
        );
        Ok(())
    })
}

/// Whether all tensors are f32 and on the NVIDIA GPU of the first, and as long.
fn fit(weights: &Tensor<1>, others: &[&Tensor<1>]) -> bool {
    weights.dtype() == DType::F32
        && others.iter().all(|other| alike(weights, other) && other.dims() == weights.dims())
        && supported(weights)
}

/// The weights and the velocity after a step of SGD with momentum, if it can be computed here.
pub(crate) fn sgd_step(
    weights: &Tensor<1>,
    gradient: &Tensor<1>,
    velocity: Option<&Tensor<1>>,
    rule: Momentum,
) -> Option<[Tensor<1>; 2]> {
    let velocity = velocity.unwrap_or(gradient);
    if !fit(weights, &[gradient, velocity]) {
        return None;
    }
    let [weights, gradient, velocity] =
        [weights, gradient, velocity].map(|tensor| tensor.clone().into_dispatch());
    let (moved, kept) = Dispatch::cuda_sgd(weights, gradient, velocity, rule);
    Some([moved, kept].map(Tensor::from_dispatch))
}

/// The weights and the moments after a step of Adam, if it can be computed here.
pub(crate) fn adam_step(
    weights: &Tensor<1>,
    gradient: &Tensor<1>,
    moments: Option<&[Tensor<1>; 2]>,
    rule: Adam,
) -> Option<(Tensor<1>, [Tensor<1>; 2])> {
    let rule = AdamStep { rule, first: moments.is_none() };
    let [first, second] = moments.map_or([gradient, gradient], |[first, second]| [first, second]);
    if !fit(weights, &[gradient, first, second]) {
        return None;
    }
    let [weights, gradient, first, second] =
        [weights, gradient, first, second].map(|tensor| tensor.clone().into_dispatch());
    let (moved, first, second) = Dispatch::cuda_adam(weights, gradient, first, second, rule);
    Some((Tensor::from_dispatch(moved), [first, second].map(Tensor::from_dispatch)))
}
