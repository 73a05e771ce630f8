//! The operations and their implementation on tensors of the GPU.

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::ops::{FloatTensorOps, ModuleOps};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::{permute_nchw_to_nhwc, permute_nhwc_to_nchw};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;

use super::convolution::{ALIGNMENT, Operands, Product, Sizes, convolve, is_planned, plan_known};
use super::library::{Declined, Library, Outcome, library, lock};
use super::norm::{self, Layout};
use super::product::{Matrices, Sides, multiply};
use super::queue;
use super::tokens::{self, Attention, Rows};
use crate::norm::Activation;
use crate::tokens::Gelu;

/// The operations. [`crate::ops`] calls them only for tensors on an NVIDIA GPU, of sizes that fit together.
#[backend_extension(Autodiff, Cube, Fusion)]
pub(crate) trait CudaOps: Backend {
    /// Convolution without bias.
    #[fusion(meta = forward_spec)]
    fn cuda_conv2d(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// Products of matrices, `[.., m, k] x [.., k, n]`, with the same sides before the last two.
    #[fusion(meta = product_spec)]
    fn cuda_matmul(left: FloatTensor<Self>, right: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Batch norm by the statistics of the batch and an activation: the result, and mean, variance, factor and summand,
    /// `[4, channels]`.
    #[fusion(meta = norm_spec)]
    fn cuda_batch_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// As [`cuda_batch_norm`](CudaOps::cuda_batch_norm), with maps that are added before the activation.
    #[fusion(meta = |x: &TensorSpec, _added: &TensorSpec, gamma: &TensorSpec, beta: &TensorSpec, epsilon: &f64, activation: &Activation| norm_spec(x, gamma, beta, epsilon, activation))]
    fn cuda_batch_norm_add(
        x: FloatTensor<Self>,
        added: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Layer norm over the last dimension: the result, and mean and reciprocal deviation of every row, `[rows, 2]`.
    #[fusion(meta = |x: &TensorSpec, _weight: &TensorSpec, _bias: &TensorSpec, _epsilon: &f64| (x.clone(), TensorSpec::new(Shape::from([rows_of(&x.shape).0, 2]), DType::F32)))]
    fn cuda_layer_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Self-attention of queries, keys and values, `[batch, tokens, 3 width]`: the result, and the softmax of the scores,
    /// `[heads, batch, tokens, tokens]`.
    #[fusion(meta = attention_spec)]
    fn cuda_attention(qkv: FloatTensor<Self>, heads: usize) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The activation of an MLP.
    #[fusion(meta = |x: &TensorSpec, _kind: &Gelu| x.clone())]
    fn cuda_gelu(x: FloatTensor<Self>, kind: Gelu) -> FloatTensor<Self>;

    /// A matrix with `bias` added to every row.
    #[fusion(meta = |x: &TensorSpec, _bias: &TensorSpec| x.clone())]
    fn cuda_add_bias(x: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// The gradients of the operations, which have none themselves.
#[backend_extension(Cube, Fusion)]
pub(super) trait CudaGradients: Backend {
    /// The gradient of a convolution with respect to its input of size `x`.
    #[fusion(meta = |_weight: &TensorSpec, dy: &TensorSpec, x: &[usize; 4], _options: &ConvOptions<2>| TensorSpec::new(Shape::from(*x), dy.dtype))]
    fn cuda_conv2d_input(
        weight: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        x: [usize; 4],
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// The gradient of a convolution with respect to its weight of size `weight`.
    #[fusion(meta = |x: &TensorSpec, _dy: &TensorSpec, weight: &[usize; 4], _options: &ConvOptions<2>| TensorSpec::new(Shape::from(*weight), x.dtype))]
    fn cuda_conv2d_weight(
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        weight: [usize; 4],
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// The gradients of [`cuda_batch_norm`](CudaOps::cuda_batch_norm): of `x`, and of gamma and beta, `[2, channels]`.
    #[fusion(meta = norm_gradient_spec)]
    fn cuda_batch_norm_gradient(
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        epsilon: f64,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of [`cuda_batch_norm_add`](CudaOps::cuda_batch_norm_add): of `x`, of what was added, and of gamma and
    /// beta, `[2, channels]`.
    #[fusion(meta = norm_add_gradient_spec)]
    fn cuda_batch_norm_add_gradient(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        epsilon: f64,
        activation: Activation,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of [`cuda_layer_norm`](CudaOps::cuda_layer_norm): of `x`, and of weight and bias, `[2, width]`.
    #[fusion(meta = |x: &TensorSpec, _dy: &TensorSpec, _weight: &TensorSpec, _moments: &TensorSpec| (x.clone(), TensorSpec::new(Shape::from([2, rows_of(&x.shape).1]), DType::F32)))]
    fn cuda_layer_norm_gradient(
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        moments: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradient of [`cuda_attention`](CudaOps::cuda_attention).
    #[fusion(meta = |qkv: &TensorSpec, _weights: &TensorSpec, _dy: &TensorSpec, _heads: &usize| qkv.clone())]
    fn cuda_attention_gradient(
        qkv: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        heads: usize,
    ) -> FloatTensor<Self>;

    /// The gradient of [`cuda_gelu`](CudaOps::cuda_gelu).
    #[fusion(meta = |x: &TensorSpec, _dy: &TensorSpec, _kind: &Gelu| x.clone())]
    fn cuda_gelu_gradient(x: FloatTensor<Self>, dy: FloatTensor<Self>, kind: Gelu) -> FloatTensor<Self>;

    /// The sums over all rows of a matrix, `[width]`.
    #[fusion(meta = |x: &TensorSpec| TensorSpec::new(Shape::from([x.shape[1]]), x.dtype))]
    fn cuda_column_sums(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// Rows and width of a tensor whose last dimension is the width.
fn rows_of(shape: &Shape) -> (usize, usize) {
    let width = shape[shape.num_dims() - 1];
    (shape.num_elements() / width, width)
}

fn attention_spec(qkv: &TensorSpec, heads: &usize) -> (TensorSpec, TensorSpec) {
    let [batch, tokens, triple] = qkv.shape.dims();
    let weights = Shape::from([*heads, batch, tokens, tokens]);
    (
        TensorSpec::new(Shape::from([batch, tokens, triple / 3]), qkv.dtype),
        TensorSpec::new(weights, qkv.dtype),
    )
}

fn product_spec(left: &TensorSpec, right: &TensorSpec) -> TensorSpec {
    TensorSpec::new(product_shape(&left.shape, &right.shape), left.dtype)
}

fn product_shape(left: &Shape, right: &Shape) -> Shape {
    let mut sides: Vec<usize> = left.iter().copied().collect();
    let last = sides.len() - 1;
    sides[last] = right[last];
    Shape::from(sides)
}

fn norm_spec(
    x: &TensorSpec,
    _gamma: &TensorSpec,
    _beta: &TensorSpec,
    _epsilon: &f64,
    _activation: &Activation,
) -> (TensorSpec, TensorSpec) {
    (x.clone(), TensorSpec::new(Shape::from([4, x.shape[1]]), DType::F32))
}

fn norm_gradient_spec(
    x: &TensorSpec,
    _dy: &TensorSpec,
    _gamma: &TensorSpec,
    _moments: &TensorSpec,
    _epsilon: &f64,
    _activation: &Activation,
) -> (TensorSpec, TensorSpec) {
    (x.clone(), TensorSpec::new(Shape::from([2, x.shape[1]]), DType::F32))
}

fn norm_add_gradient_spec(
    x: &TensorSpec,
    _y: &TensorSpec,
    dy: &TensorSpec,
    gamma: &TensorSpec,
    moments: &TensorSpec,
    epsilon: &f64,
    activation: &Activation,
) -> (TensorSpec, TensorSpec, TensorSpec) {
    let (dx, parameters) = norm_gradient_spec(x, dy, gamma, moments, epsilon, activation);
    (dx.clone(), dx, parameters)
}

fn forward_spec(x: &TensorSpec, weight: &TensorSpec, options: &ConvOptions<2>) -> TensorSpec {
    let y = Sizes::new(x.dtype, x.shape.dims(), weight.shape.dims(), options)
        .expect("the caller of the operation has checked the sizes")
        .y;
    TensorSpec::new(Shape::from(y), x.dtype)
}

/// Calls `work` with the library and the addresses of tensors, whose memory stays in place until it returns.
fn with_addresses<const N: usize>(
    tensors: [&CubeTensor; N],
    work: impl FnOnce(&mut Library, [u64; N]) -> Outcome<()>,
) -> Outcome<()> {
    let CubeDevice::Cuda(device) = &tensors[0].device else {
        return Err(Declined("not on an NVIDIA GPU".into()));
    };
    let library = library(device.index).map_err(Declined)?;
    let mut resources = Vec::with_capacity(N);
    for tensor in tensors {
        let resource = tensor.client.get_resource::<<CudaRuntime as Runtime>::Server>(tensor.handle.clone());
        resources.push(resource.map_err(|error| Declined(format!("{error:?}")))?);
    }
    let addresses = std::array::from_fn(|at| resources[at].resource().ptr);
    work(&mut lock(&library), addresses)
}

/// Starts `work` with the library and the addresses of tensors, on the engine's thread and in its turn; see [`queue`].
pub(super) fn start<const N: usize>(
    tensors: [&CubeTensor; N],
    work: impl FnOnce(&mut Library, [u64; N]) -> Outcome<()> + Send + 'static,
) {
    queue::check();
    let tensors = tensors.map(CubeTensor::clone);
    let client = tensors[0].client.clone();
    queue::hand_over(&client, move || {
        if let Err(Declined(reason)) = with_addresses(tensors.each_ref(), work) {
            queue::fail(reason);
        }
    });
}

/// Maps `[batch, channels, height, width]` as the engine keeps them after a convolution: channels last in memory, without
/// gaps.
fn channels_last(maps: CubeTensor) -> CubeTensor {
    into_contiguous(permute_nchw_to_nhwc(maps))
}

/// New memory for values of this shape and dtype.
pub(super) fn empty(like: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    let shape = shape.into();
    let handle = like.client.empty(shape.num_elements() * dtype.size());
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// New memory for as many values of the same dtype, contiguous.
pub(super) fn empty_like(tensor: &CubeTensor) -> CubeTensor {
    empty(tensor, tensor.meta.shape().clone(), tensor.dtype)
}

/// New memory for maps of this size, channels last.
fn empty_maps(like: &CubeTensor, [n, c, h, w]: [usize; 4]) -> CubeTensor {
    empty(like, [n, h, w, c], like.dtype)
}

/// One of the products of a convolution, by cuDNN: of `left` and `right` in the order of `product`'s operands. `None` if cuDNN has
/// none of these sizes.
fn product(product: Product, left: CubeTensor, right: CubeTensor, sizes: &Sizes) -> Option<CubeTensor> {
    let CubeDevice::Cuda(device) = &left.device else { return None };
    let (gpu, sizes) = (device.index, *sizes);
    let planned = is_planned(gpu, product, &sizes);
    if planned == Some(false) {
        return None;
    }
    let (left, right) = (channels_last(left), channels_last(right));
    let result = match product {
        Product::Forward => sizes.y,
        Product::InputGradient => sizes.x,
        Product::WeightGradient => sizes.weight,
    };
    let result = empty_maps(&left, result);
    let work = move |library: &mut Library, [left, right, result]: [u64; 3]| {
        let operands = match product {
            Product::Forward => Operands { x: left, weight: right, y: result },
            Product::InputGradient => Operands { weight: left, y: right, x: result },
            Product::WeightGradient => Operands { x: left, y: right, weight: result },
        };
        convolve(library, product, &sizes, operands)
    };
    let tensors = [&left, &right, &result];
    if !tensors.iter().all(|tensor| is_aligned(tensor)) {
        return None;
    }
    if planned.is_some() {
        start(tensors, work);
    } else {
        // Waited for: whether cuDNN can is known afterwards.
        let client = left.client.clone();
        let done = client.exclusive(|| with_addresses(tensors, work));
        let done = done.unwrap_or_else(|error| panic!("the engine's thread of the GPU: {error:?}"));
        plan_known(gpu, product, &sizes, done.is_ok());
        done.ok()?;
    }
    Some(permute_nhwc_to_nchw(result))
}

/// Whether the values begin where cuDNN's fastest kernels can read them.
fn is_aligned(tensor: &CubeTensor) -> bool {
    tensor.handle.offset_start.unwrap_or(0).is_multiple_of(ALIGNMENT)
}

/// The operand of a product and how its matrices lie in memory.
fn matrices(tensor: CubeTensor) -> (CubeTensor, Matrices) {
    let layout = |tensor: &CubeTensor| {
        let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
        let rank = shape.num_dims();
        let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
        let (by_row, by_column) = (strides[rank - 2], strides[rank - 1]);
        // The matrices must be evenly spaced.
        let (mut stride, mut count) = (0, 1);
        for axis in (0..rank - 2).rev() {
            if shape[axis] == 1 {
                continue;
            }
            if count == 1 {
                stride = strides[axis];
            } else if strides[axis] != stride * count {
                return None;
            }
            count *= shape[axis];
        }
        let (transposed, leading) = match (by_row, by_column) {
            (leading, 1) if leading >= columns => (false, leading),
            (1, leading) if leading >= rows => (true, leading),
            _ if columns == 1 && by_row >= 1 => (false, by_row),
            _ => return None,
        };
        Some(Matrices { at: 0, transposed, leading, stride })
    };
    match layout(&tensor) {
        Some(found) => (tensor, found),
        None => {
            let tensor = into_contiguous(tensor);
            let (rank, shape) = (tensor.meta.shape().num_dims(), tensor.meta.shape());
            let (rows, columns) = (shape[rank - 2], shape[rank - 1]);
            let found = Matrices { at: 0, transposed: false, leading: columns, stride: rows * columns };
            (tensor, found)
        }
    }
}

/// The products by cuBLAS; `None` if it has none of these sizes.
fn matmul(left: CubeTensor, right: CubeTensor) -> Option<CubeTensor> {
    let shape = product_shape(left.meta.shape(), right.meta.shape());
    let rank = shape.num_dims();
    let sides = Sides {
        dtype: left.dtype,
        batch: shape.iter().take(rank - 2).product(),
        m: shape[rank - 2],
        n: shape[rank - 1],
        k: left.meta.shape()[rank - 1],
    };
    let ((left, of_left), (right, of_right)) = (matrices(left), matrices(right));
    if !sides.fit(&[of_left, of_right]) {
        return None;
    }
    let result = empty(&left, shape, left.dtype);
    start([&left, &right, &result], move |library, [left, right, result]| {
        let (left, right) = (Matrices { at: left, ..of_left }, Matrices { at: right, ..of_right });
        multiply(library, sides, left, right, result)
    });
    Some(result)
}

fn layout(x: &CubeTensor) -> Layout {
    let [n, c, h, w] = dims(x);
    Layout { dtype: x.dtype, rows: n * h * w, channels: c }
}

fn normalise(
    x: CubeTensor,
    added: Option<CubeTensor>,
    gamma: CubeTensor,
    beta: CubeTensor,
    epsilon: f64,
    activation: Activation,
) -> (CubeTensor, CubeTensor) {
    let (layout, sides) = (layout(&x), dims(&x));
    let x = channels_last(x);
    let with_added = added.is_some();
    let more = added.map_or_else(|| x.clone(), channels_last);
    let (gamma, beta) = (into_contiguous(gamma), into_contiguous(beta));
    let (y, moments) = (empty_maps(&x, sides), empty(&x, [4, layout.channels], DType::F32));
    start([&x, &more, &gamma, &beta, &y, &moments], move |library, at| {
        let [x, more, gamma, beta, y, moments] = at;
        let at = norm::Forward { x, added: with_added.then_some(more), gamma, beta, y, moments };
        norm::forward(library, layout, at, epsilon, activation)
    });
    (permute_nhwc_to_nchw(y), moments)
}

/// `dx`, the gradient of what was added if `y` is given, and the gradients of gamma and beta.
fn norm_gradient(
    x: CubeTensor,
    y: Option<CubeTensor>,
    dy: CubeTensor,
    gamma: CubeTensor,
    moments: CubeTensor,
    epsilon: f64,
    activation: Activation,
) -> (CubeTensor, Option<CubeTensor>, CubeTensor) {
    let (layout, sides) = (layout(&x), dims(&x));
    let (x, dy, gamma, moments) =
        (channels_last(x), channels_last(dy), into_contiguous(gamma), into_contiguous(moments));
    let with_added = y.is_some();
    let y = y.map_or_else(|| x.clone(), channels_last);
    let (dx, parameters) = (empty_maps(&x, sides), empty(&x, [2, layout.channels], DType::F32));
    let dadded = if with_added { empty_maps(&x, sides) } else { dx.clone() };
    start([&x, &y, &dy, &gamma, &moments, &dx, &dadded, &parameters], move |library, at| {
        let [x, y, dy, gamma, moments, dx, dadded, parameters] = at;
        let added = with_added.then_some([y, dadded]);
        let at = norm::Backward { x, dy, added, gamma, moments, dx, parameters };
        norm::backward(library, layout, at, epsilon, activation)
    });
    (permute_nhwc_to_nchw(dx), with_added.then(|| permute_nhwc_to_nchw(dadded)), parameters)
}

fn dims(tensor: &CubeTensor) -> [usize; 4] {
    tensor.meta.shape().dims()
}

fn sizes_of(x: [usize; 4], weight: [usize; 4], tensor: &CubeTensor, options: &ConvOptions<2>) -> Sizes {
    Sizes::new(tensor.dtype, x, weight, options).expect("the caller of the operation has checked the sizes")
}

impl CudaOps for CubeBackend {
    fn cuda_conv2d(x: CubeTensor, weight: CubeTensor, options: ConvOptions<2>) -> CubeTensor {
        let sizes = sizes_of(dims(&x), dims(&weight), &x, &options);
        product(Product::Forward, x.clone(), weight.clone(), &sizes)
            .unwrap_or_else(|| CubeBackend::conv2d(x, weight, None, options))
    }

    fn cuda_matmul(left: CubeTensor, right: CubeTensor) -> CubeTensor {
        matmul(left.clone(), right.clone()).unwrap_or_else(|| CubeBackend::float_matmul(left, right))
    }

    fn cuda_batch_norm(
        x: CubeTensor,
        gamma: CubeTensor,
        beta: CubeTensor,
        epsilon: f64,
        activation: Activation,
    ) -> (CubeTensor, CubeTensor) {
        normalise(x, None, gamma, beta, epsilon, activation)
    }

    fn cuda_batch_norm_add(
        x: CubeTensor,
        added: CubeTensor,
        gamma: CubeTensor,
        beta: CubeTensor,
        epsilon: f64,
        activation: Activation,
    ) -> (CubeTensor, CubeTensor) {
        normalise(x, Some(added), gamma, beta, epsilon, activation)
    }

    fn cuda_layer_norm(
        x: CubeTensor,
        weight: CubeTensor,
        bias: CubeTensor,
        epsilon: f64,
    ) -> (CubeTensor, CubeTensor) {
        let ((x, x_row), [weight, bias]) = (in_rows(x), [weight, bias].map(into_contiguous));
        let sizes = token_rows(&x, x_row, 0);
        let y = empty_like(&x);
        let moments = empty(&x, [sizes.rows, 2], DType::F32);
        let tensors = [&x, &weight, &bias, &y, &moments];
        start(tensors, move |library, at| tokens::layer_norm(library, sizes, at, epsilon));
        (y, moments)
    }

    fn cuda_attention(qkv: CubeTensor, heads: usize) -> (CubeTensor, CubeTensor) {
        let qkv = into_contiguous(qkv);
        let sizes = attention_of(&qkv, heads);
        let y = empty(&qkv, [sizes.batch, sizes.tokens, sizes.heads * sizes.channels], qkv.dtype);
        let weights = empty(&qkv, [heads, sizes.batch, sizes.tokens, sizes.tokens], qkv.dtype);
        let tensors = [&qkv, &y, &weights];
        start(tensors, move |library, at| tokens::attention(library, sizes, at));
        (y, weights)
    }

    fn cuda_add_bias(x: CubeTensor, bias: CubeTensor) -> CubeTensor {
        let ((x, x_row), bias) = (in_rows(x), into_contiguous(bias));
        let y = empty_like(&x);
        let sizes = token_rows(&x, x_row, 0);
        start([&x, &bias, &y], move |library, at| tokens::add_bias(library, sizes, at));
        y
    }

    fn cuda_gelu(x: CubeTensor, kind: Gelu) -> CubeTensor {
        let x = into_contiguous(x);
        let y = empty_like(&x);
        let (dtype, count) = (x.dtype, x.meta.shape().num_elements());
        start([&x, &y], move |library, at| tokens::gelu(library, dtype, count, at, kind));
        y
    }
}

impl CudaGradients for CubeBackend {
    fn cuda_conv2d_input(
        weight: CubeTensor,
        dy: CubeTensor,
        x: [usize; 4],
        options: ConvOptions<2>,
    ) -> CubeTensor {
        let sizes = sizes_of(x, dims(&weight), &dy, &options);
        product(Product::InputGradient, weight.clone(), dy.clone(), &sizes).unwrap_or_else(|| {
            // The engine takes the size of `x` from a tensor and reads nothing of it.
            let x = permute_nhwc_to_nchw(empty_maps(&dy, x));
            CubeBackend::conv2d_x_backward(x, weight, dy, options)
        })
    }

    fn cuda_conv2d_weight(
        x: CubeTensor,
        dy: CubeTensor,
        weight: [usize; 4],
        options: ConvOptions<2>,
    ) -> CubeTensor {
        let sizes = sizes_of(dims(&x), weight, &x, &options);
        product(Product::WeightGradient, x.clone(), dy.clone(), &sizes).unwrap_or_else(|| {
            let weight = permute_nhwc_to_nchw(empty_maps(&x, weight));
            CubeBackend::conv2d_weight_backward(x, weight, dy, options)
        })
    }

    fn cuda_batch_norm_gradient(
        x: CubeTensor,
        dy: CubeTensor,
        gamma: CubeTensor,
        moments: CubeTensor,
        epsilon: f64,
        activation: Activation,
    ) -> (CubeTensor, CubeTensor) {
        let (dx, _, parameters) = norm_gradient(x, None, dy, gamma, moments, epsilon, activation);
        (dx, parameters)
    }

    fn cuda_batch_norm_add_gradient(
        x: CubeTensor,
        y: CubeTensor,
        dy: CubeTensor,
        gamma: CubeTensor,
        moments: CubeTensor,
        epsilon: f64,
        activation: Activation,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        let (dx, dadded, parameters) = norm_gradient(x, Some(y), dy, gamma, moments, epsilon, activation);
        (dx, dadded.expect("there is what was added"), parameters)
    }

    fn cuda_layer_norm_gradient(
        x: CubeTensor,
        dy: CubeTensor,
        weight: CubeTensor,
        moments: CubeTensor,
    ) -> (CubeTensor, CubeTensor) {
        let ((x, x_row), (dy, dy_row)) = (in_rows(x), in_rows(dy));
        let [weight, moments] = [weight, moments].map(into_contiguous);
        let sizes = token_rows(&x, x_row, dy_row);
        let dx = empty_like(&x);
        let parameters = empty(&x, [2, sizes.width], DType::F32);
        let tensors = [&x, &dy, &weight, &moments, &dx, &parameters];
        start(tensors, move |library, at| tokens::layer_norm_gradient(library, sizes, at));
        (dx, parameters)
    }

    fn cuda_attention_gradient(
        qkv: CubeTensor,
        weights: CubeTensor,
        dy: CubeTensor,
        heads: usize,
    ) -> CubeTensor {
        let [qkv, weights, dy] = [qkv, weights, dy].map(into_contiguous);
        let sizes = attention_of(&qkv, heads);
        let dqkv = empty_like(&qkv);
        let tensors = [&qkv, &weights, &dy, &dqkv];
        start(tensors, move |library, at| tokens::attention_gradient(library, sizes, at));
        dqkv
    }

    fn cuda_gelu_gradient(x: CubeTensor, dy: CubeTensor, kind: Gelu) -> CubeTensor {
        let [x, dy] = [x, dy].map(into_contiguous);
        let dx = empty_like(&x);
        let (dtype, count) = (x.dtype, x.meta.shape().num_elements());
        start([&x, &dy, &dx], move |library, at| tokens::gelu_gradient(library, dtype, count, at, kind));
        dx
    }

    fn cuda_column_sums(x: CubeTensor) -> CubeTensor {
        let (x, row) = in_rows(x);
        let sizes = token_rows(&x, 0, row);
        let sums = empty(&x, [sizes.width], x.dtype);
        start([&x, &sums], move |library, at| tokens::column_sums(library, sizes, at));
        sums
    }
}

/// A tensor whose last dimension is contiguous and whose other dimensions are evenly spaced, and values from one row to the next.
fn in_rows(x: CubeTensor) -> (CubeTensor, usize) {
    let (shape, strides) = (x.meta.shape(), x.meta.strides());
    let last = shape.num_dims() - 1;
    let (mut row, mut count, mut even) = (shape[last], 1, strides[last] == 1);
    for axis in (0..last).rev().filter(|&axis| shape[axis] > 1) {
        if count == 1 {
            row = strides[axis];
        }
        even &= strides[axis] == row * count;
        count *= shape[axis];
    }
    if even && row >= shape[last] {
        return (x, row);
    }
    let width = shape[last];
    (into_contiguous(x), width)
}

fn token_rows(x: &CubeTensor, x_row: usize, dy_row: usize) -> Rows {
    let (rows, width) = rows_of(x.meta.shape());
    Rows { dtype: x.dtype, rows, width, x_row, dy_row }
}

fn attention_of(qkv: &CubeTensor, heads: usize) -> Attention {
    let [batch, tokens, triple] = qkv.meta.shape().dims();
    Attention { dtype: qkv.dtype, batch, tokens, heads, channels: triple / 3 / heads }
}
