//! Batch norm of maps that are channels last, with the activation in the same pass: starts the kernels of `norm.cu`.

use std::ffi::c_int;

use burn::tensor::DType;

use super::kernels::{Launch, Source, THREADS, launch, values_of};
use super::library::{Library, Outcome};
use crate::norm::Activation;

/// Maps of a batch norm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) dtype: DType,
    /// Pixels of all images.
    pub(super) rows: usize,
    pub(super) channels: usize,
}

impl Layout {
    /// The name of the type and how many values a thread reads at once.
    fn values(&self) -> Outcome<(&'static str, usize)> {
        let name = values_of(self.dtype)?;
        let most = if self.dtype == DType::F32 { 4 } else { 8 };
        Ok((name, if self.channels.is_multiple_of(most) { most } else { 1 }))
    }
}

/// How the maps are divided among threads.
struct Division {
    lanes: usize,
    blocks: usize,
    slabs: usize,
    shared: usize,
}

impl Division {
    fn new(layout: &Layout, vector: usize) -> Self {
        let groups = layout.channels.div_ceil(vector);
        let lanes = groups.next_power_of_two().min(64);
        let blocks = groups.div_ceil(lanes);
        let height = THREADS / lanes;
        // Enough blocks for a large GPU, and enough rows for each thread.
        let slabs = (2112 / blocks).clamp(1, 1056).min(layout.rows.div_ceil(height * 4)).max(1);
        Division { lanes, blocks, slabs, shared: THREADS * 2 * vector * size_of::<f32>() }
    }

    /// Bytes of the partial sums: two for each slab and channel.
    fn partials(&self, layout: &Layout) -> usize {
        self.slabs * layout.channels * 2 * size_of::<f32>()
    }
}

/// A kernel of `norm.cu`.
fn kernel_of(values: &'static str, kernel: String, grid: (usize, usize), shared: usize) -> Launch {
    Launch { source: Source::Norm, values, kernel, grid, shared }
}

/// Blocks of a kernel with a warp for each channel.
fn per_channel(layout: &Layout) -> (usize, usize) {
    (layout.channels.div_ceil(THREADS / 32), 1)
}

fn code(activation: Activation) -> u8 {
    match activation {
        Activation::None => 0,
        Activation::Relu => 1,
        Activation::Relu6 => 2,
        Activation::Silu | Activation::HardSwish => unreachable!("these follow the kernel"),
    }
}

/// Addresses on the GPU of the maps of a forward pass.
#[derive(Clone, Copy)]
pub(super) struct Forward {
    pub(super) x: u64,
    /// Added before the activation.
    pub(super) added: Option<u64>,
    pub(super) gamma: u64,
    pub(super) beta: u64,
    pub(super) y: u64,
    /// `[4, channels]`: mean, variance, factor, summand.
    pub(super) moments: u64,
}

/// Normalises by the statistics of the batch.
pub(super) fn forward(
    library: &mut Library,
    layout: Layout,
    at: Forward,
    epsilon: f64,
    activation: Activation,
) -> Outcome<()> {
    let (name, vector) = layout.values()?;
    let division = Division::new(&layout, vector);
    let (rows, channels) = (layout.rows as u64, layout.channels as c_int);
    let [mean, variance, factor, summand] = rows_of(at.moments, layout.channels);
    let added = at.added.is_some() as u8;
    library.between("batch norm", |library| {
        let partial = library.workspace(division.partials(&layout))? as u64;
        let (lanes, slabs) = (division.lanes as c_int, division.slabs as c_int);
        let kernel = format!("moments_{name}x{vector}");
        let kernel = kernel_of(name, kernel, (division.blocks, division.slabs), division.shared);
        launch!(library, kernel, [at.x, partial, rows, channels, lanes]);
        let kernel = kernel_of(name, format!("affine_{name}"), per_channel(&layout), 0);
        let (gamma, beta) = (at.gamma, at.beta);
        launch!(
            library,
            kernel,
            [at.x, partial, slabs, rows, channels, gamma, beta, epsilon, mean, variance, factor, summand]
        );
        let kernel = format!("apply_{name}x{vector}_{}_{added}", code(activation));
        let kernel = kernel_of(name, kernel, (division.blocks, division.slabs), 0);
        let more = at.added.unwrap_or(at.x);
        launch!(library, kernel, [at.x, more, factor, summand, at.y, rows, channels, lanes]);
        Ok(())
    })
}

/// Addresses on the GPU of the maps of a backward pass.
#[derive(Clone, Copy)]
pub(super) struct Backward {
    pub(super) x: u64,
    pub(super) dy: u64,
    /// The result of the forward pass and the gradient of what was added.
    pub(super) added: Option<[u64; 2]>,
    pub(super) gamma: u64,
    /// As of the forward pass.
    pub(super) moments: u64,
    pub(super) dx: u64,
    /// `[2, channels]`: the gradients of gamma and beta.
    pub(super) parameters: u64,
}

/// The gradients of [`forward`].
pub(super) fn backward(
    library: &mut Library,
    layout: Layout,
    at: Backward,
    epsilon: f64,
    activation: Activation,
) -> Outcome<()> {
    let (name, vector) = layout.values()?;
    let division = Division::new(&layout, vector);
    let (rows, channels) = (layout.rows as u64, layout.channels as c_int);
    let [mean, variance, factor, summand] = rows_of(at.moments, layout.channels);
    let [dgamma, dbeta] = rows_of(at.parameters, layout.channels);
    let [y, dadded] = at.added.unwrap_or([at.x, at.dx]);
    let added = at.added.is_some() as u8;
    library.between("batch norm: gradient", |library| {
        let partials = division.partials(&layout);
        let partial = library.workspace(partials + 3 * layout.channels * size_of::<f32>())? as u64;
        let coefficients = partial + partials as u64;
        let (lanes, slabs) = (division.lanes as c_int, division.slabs as c_int);
        let code = code(activation);
        let kernel = format!("sums_{name}x{vector}_{code}_{added}");
        let kernel = kernel_of(name, kernel, (division.blocks, division.slabs), division.shared);
        launch!(library, kernel, [at.x, at.dy, y, mean, factor, summand, partial, rows, channels, lanes]);
        let kernel = kernel_of(name, "gradient_affine".to_string(), per_channel(&layout), 0);
        let gamma = at.gamma;
        launch!(
            library,
            kernel,
            [partial, slabs, rows, channels, gamma, variance, epsilon, dgamma, dbeta, coefficients]
        );
        let kernel = format!("input_{name}x{vector}_{code}_{added}");
        let kernel = kernel_of(name, kernel, (division.blocks, division.slabs), 0);
        launch!(
            library,
            kernel,
            [at.x, at.dy, y, mean, factor, summand, coefficients, at.dx, dadded, rows, channels, lanes]
        );
        Ok(())
    })
}

/// Addresses of the rows of a matrix of floats.
fn rows_of<const N: usize>(start: u64, columns: usize) -> [u64; N] {
    std::array::from_fn(|row| start + (row * columns * size_of::<f32>()) as u64)
}
