//! Kernels for NVIDIA GPUs, as operations of the tensor engine (feature `cuda`).
//!
//! `operations` are the operations on the engine's tensors and `autodiff` their gradients. `convolution` (with `graph`), `product`,
//! `norm`, `tokens`, `update` and `upload` start the work. `library` opens NVIDIA's libraries and orders their work with the
//! engine's, `queue` hands work over to the engine's thread, and `times` measures it.
//!
//! Convolutions by cuDNN, products of matrices by cuBLAS, batch norm with what follows it by kernels of our own (`norm.cu`);
//! maps are channels last in memory. Where the libraries are missing or decline, the engine's kernels compute.

mod autodiff;
mod convolution;
mod graph;
mod kernels;
mod library;
mod norm;
mod notes;
mod operations;
mod product;
mod queue;
mod times;
mod tokens;
mod update;
mod upload;

use burn::backend::{CubeDevice, Dispatch, DispatchDevice};
use burn::tensor::module::BatchNormTrainOutput;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Device, Tensor};

use self::convolution::Sizes;
use self::operations::CudaOps;
use self::upload::{CudaUpload, Staged};
use crate::norm::Activation;
use crate::tokens::Gelu;

pub use self::times::{start_times, stop_times};
pub(crate) use self::update::{adam_step, sgd_step};

/// Why this module cannot compute on NVIDIA GPU number `gpu`: cuDNN or cuBLAS is missing, say. The engine's own kernels are
/// several times as slow.
pub fn unavailable(gpu: usize) -> Option<String> {
    library::library(gpu).err()
}

/// The number of an NVIDIA GPU whose libraries are there.
fn gpu_of(device: &Device) -> Option<usize> {
    let device = match device.as_dispatch() {
        DispatchDevice::Autodiff(device) => device.clone().inner(),
        device => device.clone(),
    };
    let DispatchDevice::Cube(CubeDevice::Cuda(gpu)) = device else { return None };
    library::library(gpu.index).is_ok().then_some(gpu.index)
}

/// Whether this module can compute with such a tensor: on an NVIDIA GPU whose libraries are there.
pub(crate) fn supported<const D: usize>(tensor: &Tensor<D>) -> bool {
    matches!(tensor.dtype(), DType::F32 | DType::BF16 | DType::F16)
        && tensor.dims().iter().all(|side| *side > 0)
        && gpu_of(&tensor.device()).is_some()
}

/// Values that are worth the way through page-locked memory.
const UPLOADED: usize = 1 << 18;

/// Many values as a tensor on an NVIDIA GPU, `[values.len()]`, if that can be done here. All threads copy them into page-locked
/// memory, and the GPU copies them from there; the host does not wait for that.
pub fn upload(values: &[f32], device: &Device) -> Option<Tensor<1>> {
    let gpu = gpu_of(device).filter(|_| values.len() >= UPLOADED)?;
    let values = Staged::new(gpu, values).ok()?;
    let place = Tensor::<1>::empty([1], &device.clone().inner());
    let uploaded = Tensor::<1>::from_dispatch(Dispatch::cuda_upload(place.into_dispatch(), values));
    Some(match device.as_dispatch() {
        DispatchDevice::Autodiff(_) => Tensor::from_inner(uploaded),
        _ => uploaded,
    })
}

/// Whether a tensor has the dtype and the device of `x`, and values.
fn alike<const D: usize, const E: usize>(x: &Tensor<D>, other: &Tensor<E>) -> bool {
    x.dtype() == other.dtype() && x.device() == other.device() && other.dims().iter().all(|side| *side > 0)
}

/// Convolution without bias, if it can be computed here.
pub(crate) fn conv2d(x: &Tensor<4>, weight: &Tensor<4>, options: &ConvOptions<2>) -> Option<Tensor<4>> {
    if !supported(x) || !alike(x, weight) {
        return None;
    }
    Sizes::new(x.dtype(), x.dims(), weight.dims(), options)?;
    let (x, weight) = (x.clone().into_dispatch(), weight.clone().into_dispatch());
    Some(Tensor::from_dispatch(Dispatch::cuda_conv2d(x, weight, options.clone())))
}

/// Products of matrices, `[.., m, k] x [.., k, n]`, if they can be computed here.
pub(crate) fn matmul<const D: usize>(left: &Tensor<D>, right: &Tensor<D>) -> Option<Tensor<D>> {
    let (of_left, of_right) = (left.dims(), right.dims());
    let fits = D >= 2 && of_left[..D - 2] == of_right[..D - 2] && of_left[D - 1] == of_right[D - 2];
    if !fits || !supported(left) || !alike(left, right) {
        return None;
    }
    let (left, right) = (left.clone().into_dispatch(), right.clone().into_dispatch());
    Some(Tensor::from_dispatch(Dispatch::cuda_matmul(left, right)))
}

/// Batch norm by the statistics of the batch, then `added` and the activation, if it can be computed here. The parameters are
/// f32, `x` may be bf16 or f16: sums are f32.
pub(crate) fn batch_norm(
    x: &Tensor<4>,
    added: Option<&Tensor<4>>,
    [gamma, beta]: [&Tensor<1>; 2],
    epsilon: f64,
    activation: Activation,
) -> Option<BatchNormTrainOutput<4>> {
    let channels = x.dims()[1];
    let vectors = [gamma, beta].iter().all(|vector| is_vector(x, vector, channels));
    if !supported(x) || !vectors || added.is_some_and(|added| !alike(x, added) || added.dims() != x.dims()) {
        return None;
    }
    // The kernels have no gates: these follow on their own.
    let (activation, after) = match activation.gate() {
        None => (activation, Activation::None),
        Some(_) => (Activation::None, activation),
    };
    let x = x.clone().into_dispatch();
    let [gamma, beta] = [gamma, beta].map(|vector| vector.clone().into_dispatch());
    let (y, moments) = match added {
        Some(added) => {
            Dispatch::cuda_batch_norm_add(x, added.clone().into_dispatch(), gamma, beta, epsilon, activation)
        }
        None => Dispatch::cuda_batch_norm(x, gamma, beta, epsilon, activation),
    };
    let moments = Tensor::<2>::from_dispatch(moments).detach();
    let row = |row: usize| moments.clone().narrow(0, row, 1).squeeze_dim::<1>(0);
    let output = after.apply(Tensor::from_dispatch(y));
    Some(BatchNormTrainOutput { output, mean: row(0), variance: row(1) })
}

/// Whether a parameter has `length` values in f32, on the device of `x`.
fn is_vector<const D: usize>(x: &Tensor<D>, parameter: &Tensor<1>, length: usize) -> bool {
    parameter.dtype() == DType::F32 && parameter.dims() == [length] && parameter.device() == x.device()
}

/// Layer norm over the last dimension, if it can be computed here; `x` may be bf16 or f16.
pub(crate) fn layer_norm<const D: usize>(
    x: &Tensor<D>,
    [weight, bias]: [&Tensor<1>; 2],
    epsilon: f64,
) -> Option<Tensor<D>> {
    let width = x.dims()[D - 1];
    if !supported(x) || ![weight, bias].iter().all(|vector| is_vector(x, vector, width)) {
        return None;
    }
    let [weight, bias] = [weight, bias].map(|vector| vector.clone().into_dispatch());
    let (y, _) = Dispatch::cuda_layer_norm(x.clone().into_dispatch(), weight, bias, epsilon);
    Some(Tensor::from_dispatch(y))
}

/// Self-attention of queries, keys and values, `[batch, tokens, 3 width]`, if it can be computed here.
pub(crate) fn self_attention(x: &Tensor<3>, heads: usize) -> Option<Tensor<3>> {
    if !supported(x) {
        return None;
    }
    let (y, _) = Dispatch::cuda_attention(x.clone().into_dispatch(), heads);
    Some(Tensor::from_dispatch(y))
}

/// The activation of an MLP, if it can be computed here.
pub(crate) fn gelu<const D: usize>(x: &Tensor<D>, kind: Gelu) -> Option<Tensor<D>> {
    supported(x).then(|| Tensor::from_dispatch(Dispatch::cuda_gelu(x.clone().into_dispatch(), kind)))
}

/// A matrix with `bias` added to every row, if the gradient of the bias can be computed here.
pub(crate) fn add_bias(x: &Tensor<2>, bias: &Tensor<1>) -> Option<Tensor<2>> {
    if !supported(x) || !alike(x, bias) || bias.dims() != [x.dims()[1]] {
        return None;
    }
    let (x, bias) = (x.clone().into_dispatch(), bias.clone().into_dispatch());
    Some(Tensor::from_dispatch(Dispatch::cuda_add_bias(x, bias)))
}
