//! Convolutions by cuDNN, channels last.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;

use burn::tensor::DType;
use burn::tensor::ops::ConvOptions;
use cudarc::cudnn::sys as dnn;

use super::library::{Declined, Library, MAX_WORKSPACE, Outcome, checked};
use super::notes::note;

/// Which of the three products of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Product {
    Forward,
    InputGradient,
    WeightGradient,
}

/// The sizes of a convolution; `x` and `y` are `[batch, channels, height, width]`, `weight` is
/// `[channels_out, channels_in / groups, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    pub(super) dtype: DType,
    pub(super) x: [usize; 4],
    pub(super) weight: [usize; 4],
    pub(super) y: [usize; 4],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) groups: usize,
}

impl Sizes {
    /// The sizes, if cuDNN has such convolutions.
    pub(super) fn new(
        dtype: DType,
        x: [usize; 4],
        weight: [usize; 4],
        options: &ConvOptions<2>,
    ) -> Option<Self> {
        let even = options.padding.iter().all(|(begin, end)| begin == end);
        let padding = options.padding.map(|(begin, _)| begin);
        let (stride, dilation) = (options.stride, options.dilation);
        let side = |axis: usize| {
            let window = dilation[axis] * (weight[2 + axis] - 1) + 1;
            let padded = x[2 + axis] + 2 * padding[axis];
            (padded >= window).then(|| (padded - window) / stride[axis] + 1)
        };
        let fits = even
            && matches!(dtype, DType::F32 | DType::BF16 | DType::F16)
            && x.iter().chain(&weight).all(|&side| side > 0 && c_int::try_from(side).is_ok());
        let y = [x[0], weight[0], side(0)?, side(1)?];
        fits.then_some(Sizes { dtype, x, weight, y, stride, padding, dilation, groups: options.groups })
    }
}

/// How a convolution of given sizes is computed; `None` where cuDNN declines.
#[derive(Default)]
struct Plans(HashMap<(Product, Sizes), Option<Plan>>);

#[derive(Clone, Copy)]
struct Plan {
    x: dnn::cudnnTensorDescriptor_t,
    y: dnn::cudnnTensorDescriptor_t,
    weight: dnn::cudnnFilterDescriptor_t,
    convolution: dnn::cudnnConvolutionDescriptor_t,
    algorithm: Algorithm,
    workspace: usize,
}

#[derive(Clone, Copy)]
enum Algorithm {
    Forward(dnn::cudnnConvolutionFwdAlgo_t),
    InputGradient(dnn::cudnnConvolutionBwdDataAlgo_t),
    WeightGradient(dnn::cudnnConvolutionBwdFilterAlgo_t),
}

/// Addresses on the GPU of the maps, the weight and the result of one of the products: two are read, one is written.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) x: u64,
    pub(super) weight: u64,
    pub(super) y: u64,
}

/// Computes one of the products of a convolution; the first time at given sizes all algorithms are timed.
pub(super) fn convolve(
    library: &mut Library,
    product: Product,
    sizes: &Sizes,
    operands: Operands,
) -> Outcome<()> {
    let key = (product, *sizes);
    let known = library.kept::<Plans>().0.get(&key).copied();
    let plan = known.unwrap_or_else(|| {
        let plan = library.between(|library| plan(library, product, sizes, operands));
        if let Err(Declined(reason)) = &plan {
            note(&format!("{product:?} of {sizes:?}: {reason}"));
        }
        let plan = plan.ok();
        library.kept::<Plans>().0.insert(key, plan);
        plan
    });
    let plan = plan.ok_or_else(|| Declined("no algorithm".into()))?;
    let Plan { x, y, weight, convolution, algorithm, workspace: size } = plan;
    library.between(|library| {
        let workspace = library.workspace(size)?;
        let (one, zero) = (1.0f32, 0.0f32);
        let (one, zero) = (ptr::from_ref(&one).cast::<c_void>(), ptr::from_ref(&zero).cast::<c_void>());
        let Operands { x: at_x, weight: at_weight, y: at_y } = operands;
        let handle = library.handle;
        // SAFETY: the descriptors are those of the plan and describe the operands, whose memory the caller holds; the workspace
        // has the size that the algorithm asked for.
        let status = unsafe {
            match algorithm {
                Algorithm::Forward(algorithm) => dnn::cudnnConvolutionForward(
                    handle,
                    one,
                    x,
                    at_x as *const _,
                    weight,
                    at_weight as *const _,
                    convolution,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    y,
                    at_y as *mut _,
                ),
                Algorithm::InputGradient(algorithm) => dnn::cudnnConvolutionBackwardData(
                    handle,
                    one,
                    weight,
                    at_weight as *const _,
                    y,
                    at_y as *const _,
                    convolution,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    x,
                    at_x as *mut _,
                ),
                Algorithm::WeightGradient(algorithm) => dnn::cudnnConvolutionBackwardFilter(
                    handle,
                    one,
                    x,
                    at_x as *const _,
                    y,
                    at_y as *const _,
                    convolution,
                    algorithm,
                    workspace,
                    size,
                    zero,
                    weight,
                    at_weight as *mut _,
                ),
            }
        };
        checked("convolution", status)
    })
}

fn int(size: usize) -> c_int {
    // `Sizes::new` has checked the sides; strides and the rest are not larger.
    size as c_int
}

fn maps(data: dnn::cudnnDataType_t, sides: [usize; 4]) -> Outcome<dnn::cudnnTensorDescriptor_t> {
    let mut descriptor = ptr::null_mut();
    let [n, c, h, w] = sides.map(int);
    // SAFETY: `descriptor` is a place for a descriptor, which the second call fills.
    unsafe {
        checked("cudnnCreateTensorDescriptor", dnn::cudnnCreateTensorDescriptor(&mut descriptor))?;
        let layout = dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
        let status = dnn::cudnnSetTensor4dDescriptor(descriptor, layout, data, n, c, h, w);
        checked("cudnnSetTensor4dDescriptor", status)?;
    }
    Ok(descriptor)
}

/// Times all algorithms on the operands. What is written is the result.
fn plan(library: &mut Library, product: Product, sizes: &Sizes, operands: Operands) -> Outcome<Plan> {
    use dnn::cudnnMathType_t::{CUDNN_DEFAULT_MATH, CUDNN_TENSOR_OP_MATH};
    let (data, math) = match sizes.dtype {
        DType::F32 => (dnn::cudnnDataType_t::CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH),
        DType::BF16 => (dnn::cudnnDataType_t::CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_OP_MATH),
        _ => (dnn::cudnnDataType_t::CUDNN_DATA_HALF, CUDNN_TENSOR_OP_MATH),
    };
    let (x, y) = (maps(data, sizes.x)?, maps(data, sizes.y)?);
    let (mut weight, mut convolution) = (ptr::null_mut(), ptr::null_mut());
    let [k, c, r, s] = sizes.weight.map(int);
    let ([ph, pw], [u, v], [dh, dw]) =
        (sizes.padding.map(int), sizes.stride.map(int), sizes.dilation.map(int));
    // SAFETY: both are places for descriptors, which the calls after their creation fill.
    unsafe {
        checked("cudnnCreateFilterDescriptor", dnn::cudnnCreateFilterDescriptor(&mut weight))?;
        let layout = dnn::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
        let status = dnn::cudnnSetFilter4dDescriptor(weight, data, layout, k, c, r, s);
        checked("cudnnSetFilter4dDescriptor", status)?;
        let status = dnn::cudnnCreateConvolutionDescriptor(&mut convolution);
        checked("cudnnCreateConvolutionDescriptor", status)?;
        let (mode, sums) =
            (dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION, dnn::cudnnDataType_t::CUDNN_DATA_FLOAT);
        let status = dnn::cudnnSetConvolution2dDescriptor(convolution, ph, pw, u, v, dh, dw, mode, sums);
        checked("cudnnSetConvolution2dDescriptor", status)?;
        let status = dnn::cudnnSetConvolutionGroupCount(convolution, int(sizes.groups));
        checked("cudnnSetConvolutionGroupCount", status)?;
        checked("cudnnSetConvolutionMathType", dnn::cudnnSetConvolutionMathType(convolution, math))?;
    }
    let room = library.workspace(MAX_WORKSPACE)?;
    let Operands { x: at_x, weight: at_weight, y: at_y } = operands;
    let handle = library.handle;
    // A macro, because the three calls and the types of their results differ only in name.
    macro_rules! fastest {
        ($call:ident, $found:ident, $kind:expr, $($operand:expr),*) => {{
            const MOST: usize = 12;
            let mut found = [const { std::mem::MaybeUninit::<dnn::$found>::zeroed() }; MOST];
            let mut count = 0;
            // SAFETY: the descriptors were made above and describe the operands, whose memory the caller holds; `found` has
            // room for as many results as are asked for, and zeros are valid where none is written.
            let status = unsafe {
                dnn::$call(
                    handle, $($operand),*, MOST as c_int, &mut count, found.as_mut_ptr().cast(), room,
                    MAX_WORKSPACE,
                )
            };
            checked(stringify!($call), status)?;
            let best = found[..(count as usize).min(MOST)]
                .iter()
                // SAFETY: cuDNN has written the first `count` results.
                .map(|found| unsafe { found.assume_init() })
                .find(|found| found.status == dnn::cudnnStatus_t::CUDNN_STATUS_SUCCESS)
                .ok_or_else(|| Declined("no algorithm fits".into()))?;
            ($kind(best.algo), best.memory, best.mathType)
        }};
    }
    let (algorithm, workspace, math) = match product {
        Product::Forward => fastest!(
            cudnnFindConvolutionForwardAlgorithmEx,
            cudnnConvolutionFwdAlgoPerf_t,
            Algorithm::Forward,
            x,
            at_x as *const _,
            weight,
            at_weight as *const _,
            convolution,
            y,
            at_y as *mut _
        ),
        Product::InputGradient => fastest!(
            cudnnFindConvolutionBackwardDataAlgorithmEx,
            cudnnConvolutionBwdDataAlgoPerf_t,
            Algorithm::InputGradient,
            weight,
            at_weight as *const _,
            y,
            at_y as *const _,
            convolution,
            x,
            at_x as *mut _
        ),
        Product::WeightGradient => fastest!(
            cudnnFindConvolutionBackwardFilterAlgorithmEx,
            cudnnConvolutionBwdFilterAlgoPerf_t,
            Algorithm::WeightGradient,
            x,
            at_x as *const _,
            y,
            at_y as *const _,
            convolution,
            weight,
            at_weight as *mut _
        ),
    };
    // SAFETY: the descriptor was made above.
    let status = unsafe { dnn::cudnnSetConvolutionMathType(convolution, math) };
    checked("cudnnSetConvolutionMathType", status)?;
    Ok(Plan { x, y, weight, convolution, algorithm, workspace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_definition() {
        let sizes = |padding, dilation| {
            let options = ConvOptions::new([2, 1], padding, dilation, 1);
            Sizes::new(DType::F32, [3, 4, 9, 8], [5, 4, 3, 3], &options).map(|sizes| sizes.y)
        };
        assert_eq!(sizes([1, 0], [1, 1]), Some([3, 5, 5, 6]));
        assert_eq!(sizes([0, 1], [2, 2]), Some([3, 5, 3, 6]));
        assert_eq!(sizes([0, 0], [5, 1]), None, "the window is larger than the map");
        let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
        assert!(Sizes::new(DType::F64, [3, 4, 9, 8], [5, 4, 3, 3], &options).is_none());
    }
}
