//! Convolutions by cuDNN, channels last.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use burn::tensor::DType;
use burn::tensor::ops::ConvOptions;
use cudarc::cudnn::sys as dnn;
use dnn::cudnnBackendAttributeName_t as Name;
use dnn::cudnnBackendDescriptorType_t as Kind;

use super::graph::{Descriptor, Note};
use super::library::{Declined, Library, MAX_WORKSPACE, Outcome};
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
struct Plans(HashMap<(Product, Sizes), Option<Rc<Plan>>>);

/// An execution plan of cuDNN and what it was made of.
struct Plan {
    execution: Descriptor,
    /// Bytes of scratch memory.
    workspace: usize,
    _parts: Vec<Descriptor>,
}

/// Addresses on the GPU of the maps, the weight and the result of one of the products: two are read, one is written.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) x: u64,
    pub(super) weight: u64,
    pub(super) y: u64,
}

/// The names of the operands in a plan.
const X: i64 = 1;
const WEIGHT: i64 = 2;
const Y: i64 = 3;

/// What addresses are multiples of, in bytes. The engine's memory is; cuDNN's fastest kernels require it.
pub(super) const ALIGNMENT: u64 = 16;

/// Products that have been computed on a GPU, by its number: whether cuDNN could. [`Plans`] know it, too, but behind the lock of the
/// library, which the engine's thread holds while it starts work.
type Known = HashMap<(usize, Product, Sizes), bool>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is a plan for a product on a GPU; `None` if it was never computed there.
pub(super) fn is_planned(gpu: usize, product: Product, sizes: &Sizes) -> Option<bool> {
    known().get(&(gpu, product, *sizes)).copied()
}

/// Keeps whether there is a plan.
pub(super) fn plan_known(gpu: usize, product: Product, sizes: &Sizes, there: bool) {
    known().insert((gpu, product, *sizes), there);
}

/// Plans that are timed for one product.
const TIMED: usize = 8;

/// Computes one of the products of a convolution; the first time at given sizes several plans are timed.
pub(super) fn convolve(
    library: &mut Library,
    product: Product,
    sizes: &Sizes,
    operands: Operands,
) -> Outcome<()> {
    let Operands { x, weight, y } = operands;
    if ![x, weight, y].iter().all(|address| address.is_multiple_of(ALIGNMENT)) {
        return Err(Declined("an address is not aligned".into()));
    }
    let key = (product, *sizes);
    if !library.kept::<Plans>().0.contains_key(&key) {
        let plan =
            library.between("cuDNN: timing of plans", |library| fastest(library, product, sizes, operands));
        if let Err(Declined(reason)) = &plan {
            note(&format!("{product:?} of {sizes:?}: {reason}"));
        }
        library.kept::<Plans>().0.insert(key, plan.ok().map(Rc::new));
    }
    let plan = library.kept::<Plans>().0[&key].clone().ok_or_else(|| Declined("no plan".into()))?;
    library.between(product.name(), |library| execute(library, &plan.execution, plan.workspace, operands))
}

impl Product {
    fn name(self) -> &'static str {
        match self {
            Product::Forward => "cuDNN: convolution",
            Product::InputGradient => "cuDNN: gradient of maps",
            Product::WeightGradient => "cuDNN: gradient of weights",
        }
    }
}

/// Starts a plan that needs `workspace` bytes.
fn execute(
    library: &mut Library,
    execution: &Descriptor,
    workspace: usize,
    operands: Operands,
) -> Outcome<()> {
    let scratch = library.workspace(workspace)?;
    let addresses = [operands.x, operands.weight, operands.y].map(|address| address as *mut c_void);
    let operands = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &[X, WEIGHT, Y])?
        .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?
        .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[scratch])?
        .finished()?;
    // SAFETY: the plan was made for these sizes, whose memory the caller of `convolve` holds, and `workspace` is what it asked for.
    unsafe { execution.execute(library.handle, &operands) }
}

/// Maps or weights of these sides, channels last in memory.
fn tensor(name: i64, data: dnn::cudnnDataType_t, sides: [usize; 4]) -> Outcome<Descriptor> {
    let [n, c, h, w] = sides.map(int);
    Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[data])?
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[name])?
        .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT as i64])?
        .finished()
}

fn int(size: usize) -> i64 {
    // `Sizes::new` has checked the sides; strides and the rest are not larger.
    size as i64
}

/// The product as an operation of cuDNN, and the descriptors that it refers to.
fn operation(product: Product, sizes: &Sizes) -> Outcome<(Descriptor, Vec<Descriptor>)> {
    use Name::*;
    let data = match sizes.dtype {
        DType::F32 => dnn::cudnnDataType_t::CUDNN_DATA_FLOAT,
        DType::BF16 => dnn::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        _ => dnn::cudnnDataType_t::CUDNN_DATA_HALF,
    };
    let (x, weight, y) =
        (tensor(X, data, sizes.x)?, tensor(WEIGHT, data, sizes.weight)?, tensor(Y, data, sizes.y)?);
    let padding = sizes.padding.map(int);
    let convolution = Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .with(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[dnn::cudnnDataType_t::CUDNN_DATA_FLOAT])?
        .with(CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[dnn::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION])?
        .with(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2i64])?
        .with(CUDNN_ATTR_CONVOLUTION_DILATIONS, &sizes.dilation.map(int))?
        .with(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &sizes.stride.map(int))?
        .with(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?
        .with(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?
        .finished()?;
    let (kind, [alpha, beta, of_convolution, of_x, of_weight, of_y]) = match product {
        Product::Forward => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            ],
        ),
        Product::InputGradient => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
            ],
        ),
        Product::WeightGradient => (
            Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            ],
        ),
    };
    let operation = Descriptor::new(kind)?
        .with(alpha, &[1f32])?
        .with(beta, &[0f32])?
        .with_parts(of_convolution, &[&convolution])?
        .with_parts(of_x, &[&x])?
        .with_parts(of_weight, &[&weight])?
        .with_parts(of_y, &[&y])?
        .finished()?;
    Ok((operation, vec![x, weight, y, convolution]))
}

/// The fastest of cuDNN's first plans on these operands. What is written is the result.
fn fastest(library: &mut Library, product: Product, sizes: &Sizes, operands: Operands) -> Outcome<Plan> {
    let (operation, mut parts) = operation(product, sizes)?;
    let graph = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[library.handle])?
        .with_parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &[&operation])?
        .finished()?;
    let mut best: Option<(f32, Plan)> = None;
    use dnn::cudnnBackendHeurMode_t::{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for mode in [CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK] {
        let mut timed = 0;
        for configuration in configurations(&graph, mode)? {
            if timed == TIMED {
                break;
            }
            let Ok((milliseconds, plan)) = timed_plan(library, configuration, operands) else { continue };
            timed += 1;
            if best.as_ref().is_none_or(|(least, _)| milliseconds < *least) {
                best = Some((milliseconds, plan));
            }
        }
        if best.is_some() {
            break;
        }
    }
    let (_, mut plan) = best.ok_or_else(|| Declined("no plan of cuDNN fits".into()))?;
    parts.extend([operation, graph]);
    plan._parts.append(&mut parts);
    Ok(plan)
}

/// What cuDNN proposes, the best first, without engines that compile their kernels now.
fn configurations(graph: &Descriptor, mode: dnn::cudnnBackendHeurMode_t) -> Outcome<Vec<Descriptor>> {
    /// cuDNN proposes about a dozen.
    const MOST: usize = 32;
    let proposals = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with_parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?
        .finished()?;
    let kind = Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    let mut found = proposals.parts(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, MOST)?;
    found.retain(|configuration| {
        let kind = Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR;
        let engine = configuration.parts(Name::CUDNN_ATTR_ENGINECFG_ENGINE, kind, 1);
        let notes = engine.and_then(|engine| match engine.first() {
            Some(engine) => engine.values::<Note>(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 16),
            None => Ok(Vec::new()),
        });
        notes.is_ok_and(|notes| !notes.contains(&Note::RUNTIME_COMPILATION))
    });
    Ok(found)
}

/// The plan of a configuration and its time in milliseconds: the second and the third run.
fn timed_plan(library: &mut Library, configuration: Descriptor, operands: Operands) -> Outcome<(f32, Plan)> {
    let execution = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[library.handle])?
        .with_parts(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&configuration])?
        .finished()?;
    let sizes = execution.values::<i64>(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 1)?;
    let workspace = sizes.first().and_then(|&size| usize::try_from(size).ok());
    let workspace = workspace
        .filter(|&size| size <= MAX_WORKSPACE)
        .ok_or_else(|| Declined("the plan needs too much scratch memory".into()))?;
    execute(library, &execution, workspace, operands)?;
    let milliseconds = library
        .milliseconds(|library| (0..2).try_for_each(|_| execute(library, &execution, workspace, operands)))?;
    Ok((milliseconds, Plan { execution, workspace, _parts: vec![configuration] }))
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

    /// Where cuDNN and the driver are; descriptors need no GPU.
    #[test]
    fn products_are_operations_of_cudnn() {
        // SAFETY: opening the vendor's libraries runs their initialisers.
        if !unsafe { dnn::is_culib_present() && cudarc::driver::sys::is_culib_present() } {
            eprintln!("not tested: libcudnn or libcuda is not here");
            return;
        }
        let options = ConvOptions::new([2, 1], [1, 0], [1, 2], 2);
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let sizes = Sizes::new(dtype, [3, 4, 9, 8], [6, 2, 3, 3], &options).unwrap();
            for product in [Product::Forward, Product::InputGradient, Product::WeightGradient] {
                let (_, parts) = operation(product, &sizes).unwrap();
                let sides = parts[0].values::<i64>(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, 4).unwrap();
                assert_eq!(sides, [3, 4, 9, 8]);
            }
        }
    }
}
