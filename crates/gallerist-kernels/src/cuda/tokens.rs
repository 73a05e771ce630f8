//! Layers of transformers: starts the kernels of `tokens.cu`.

use std::ffi::c_int;

use burn::tensor::DType;
use cudarc::cublas::sys::cudaDataType_t;

use super::kernels::{Launch, Source, THREADS, blocks_of, launch, values_of};
use super::library::{Library, Outcome};
use super::product::{Matrices, Sides, data_of, multiply_into};
use crate::tokens::Gelu;

/// Rows of values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) dtype: DType,
    pub(super) rows: usize,
    pub(super) width: usize,
    /// Values from one row of `x` to the next, and of `dy`: the engine pads its rows.
    pub(super) x_row: usize,
    pub(super) dy_row: usize,
}

impl Rows {
    /// How many blocks share the rows of a sum over rows.
    fn slabs(&self) -> usize {
        let columns = self.width.div_ceil(32);
        (1024 / columns).clamp(1, 256).min(self.rows.div_ceil(32)).max(1)
    }

    fn partials(&self) -> usize {
        self.slabs() * self.width * 2 * size_of::<f32>()
    }
}

const NOWHERE: u64 = 0;

/// Blocks of a kernel with a warp for each of `count` rows or columns.
fn warps(count: usize) -> usize {
    count.div_ceil(THREADS / 32)
}

/// A kernel of `tokens.cu`.
fn kernel_of(values: &'static str, kernel: &str, grid: (usize, usize)) -> Launch {
    Launch { source: Source::Tokens, values, kernel: kernel.to_string(), grid, shared: 0 }
}

/// Layer norm; `moments` are mean and reciprocal deviation of every row.
pub(super) fn layer_norm(
    library: &mut Library,
    sizes: Rows,
    [x, weight, bias, y, moments]: [u64; 5],
    epsilon: f64,
) -> Outcome<()> {
    let values = values_of(sizes.dtype)?;
    let (rows, width, x_row) = (sizes.rows as u64, sizes.width as c_int, sizes.x_row as u64);
    library.between("layer norm", |library| {
        let kernel = kernel_of(values, "layer_norm", (warps(sizes.rows), 1));
        launch!(library, kernel, [x, weight, bias, y, moments, rows, width, epsilon, x_row]);
        Ok(())
    })
}

/// The gradients of [`layer_norm`]; `parameters` are those of the weight and the bias, `[2, width]`.
pub(super) fn layer_norm_gradient(
    library: &mut Library,
    sizes: Rows,
    [x, dy, weight, moments, dx, parameters]: [u64; 6],
) -> Outcome<()> {
    let (values, rows, width) = (values_of(sizes.dtype)?, sizes.rows as u64, sizes.width as c_int);
    library.between("layer norm: gradient", |library| {
        let kernel = kernel_of(values, "layer_norm_input", (warps(sizes.rows), 1));
        let (x_row, dy_row) = (sizes.x_row as u64, sizes.dy_row as u64);
        launch!(library, kernel, [x, dy, weight, moments, dx, rows, width, x_row, dy_row]);
        let of_bias = parameters + (sizes.width * size_of::<f32>()) as u64;
        sums(library, sizes, values, [x, dy, moments], [parameters, of_bias, NOWHERE])
    })
}

/// The sums over all rows of `dy`, in its dtype.
pub(super) fn column_sums(library: &mut Library, sizes: Rows, [dy, result]: [u64; 2]) -> Outcome<()> {
    let values = values_of(sizes.dtype)?;
    library.between("sums over rows", |library| {
        sums(library, sizes, values, [NOWHERE, dy, NOWHERE], [NOWHERE, NOWHERE, result])
    })
}

fn sums(
    library: &mut Library,
    sizes: Rows,
    values: &'static str,
    [x, dy, moments]: [u64; 3],
    [products, gradients, narrowed]: [u64; 3],
) -> Outcome<()> {
    let partial = library.workspace(sizes.partials())? as u64;
    let (rows, width, slabs) = (sizes.rows as u64, sizes.width as c_int, sizes.slabs());
    let kernel = kernel_of(values, "row_sums", (sizes.width.div_ceil(32), slabs));
    let (x_row, dy_row) = (sizes.x_row as u64, sizes.dy_row as u64);
    launch!(library, kernel, [x, dy, moments, partial, rows, width, x_row, dy_row]);
    let kernel = kernel_of(values, "finish_sums", (warps(sizes.width), 1));
    let slabs = slabs as c_int;
    launch!(library, kernel, [partial, slabs, width, products, gradients, narrowed]);
    Ok(())
}

/// `x` with the bias added to every row.
pub(super) fn add_bias(library: &mut Library, sizes: Rows, [x, bias, y]: [u64; 3]) -> Outcome<()> {
    let values = values_of(sizes.dtype)?;
    let wide = [sizes.width, sizes.x_row].iter().all(|length| length.is_multiple_of(4));
    let (vector, kernel) = if wide { (4, "add_bias_4") } else { (1, "add_bias_1") };
    let lanes = sizes.width.div_ceil(vector).next_power_of_two().min(THREADS);
    let across = sizes.width.div_ceil(vector * lanes);
    let down = sizes.rows.div_ceil(4 * (THREADS / lanes)).clamp(1, 4096);
    let (rows, width, x_row, lanes) =
        (sizes.rows as u64, sizes.width as c_int, sizes.x_row as u64, lanes as c_int);
    library.between("bias", |library| {
        launch!(library, kernel_of(values, kernel, (across, down)), [x, bias, y, rows, width, x_row, lanes]);
        Ok(())
    })
}

fn code(kind: Gelu) -> c_int {
    match kind {
        Gelu::Exact => 0,
        Gelu::Tanh => 1,
        Gelu::Quick => 2,
    }
}

/// The activation of every value.
pub(super) fn gelu(
    library: &mut Library,
    dtype: DType,
    count: usize,
    [x, y]: [u64; 2],
    kind: Gelu,
) -> Outcome<()> {
    let (values, number, code) = (values_of(dtype)?, count as u64, code(kind));
    library.between("GELU", |library| {
        let kernel = kernel_of(values, "gelu", (blocks_of(count, 1), 1));
        launch!(library, kernel, [x, y, number, code]);
        Ok(())
    })
}

/// The gradient of [`gelu`].
pub(super) fn gelu_gradient(
    library: &mut Library,
    dtype: DType,
    count: usize,
    [x, dy, dx]: [u64; 3],
    kind: Gelu,
) -> Outcome<()> {
    let (values, number, code) = (values_of(dtype)?, count as u64, code(kind));
    library.between("GELU: gradient", |library| {
        let kernel = kernel_of(values, "gelu_gradient", (blocks_of(count, 1), 1));
        launch!(library, kernel, [x, dy, dx, number, code]);
        Ok(())
    })
}

/// The sizes of a self-attention: queries, keys and values are `[batch, tokens, 3 heads channels]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) dtype: DType,
    pub(super) batch: usize,
    pub(super) tokens: usize,
    pub(super) heads: usize,
    pub(super) channels: usize,
}

impl Attention {
    /// Scores of all heads, `[heads, batch, tokens, tokens]`.
    pub(super) fn scores(&self) -> usize {
        self.heads * self.batch * self.tokens * self.tokens
    }

    fn width(&self) -> usize {
        self.heads * self.channels
    }

    /// Queries (0), keys (1) or values (2) of a head.
    fn part(&self, qkv: u64, part: usize, head: usize) -> Matrices {
        let leading = 3 * self.width();
        let offset = part * self.width() + head * self.channels;
        self.matrices(qkv, offset, leading)
    }

    /// A head's channels of the result.
    fn of_result(&self, y: u64, head: usize) -> Matrices {
        self.matrices(y, head * self.channels, self.width())
    }

    fn matrices(&self, at: u64, offset: usize, leading: usize) -> Matrices {
        let at = at + (offset * self.dtype.size()) as u64;
        Matrices { at, transposed: false, leading, stride: self.tokens * leading }
    }

    /// The scores of a head.
    fn of_scores(&self, scores: u64, head: usize, size: usize) -> Matrices {
        let each = self.tokens * self.tokens;
        let at = scores + (head * self.batch * each * size) as u64;
        Matrices { at, transposed: false, leading: self.tokens, stride: each }
    }

    fn sides(&self, m: usize, n: usize, k: usize) -> Sides {
        Sides { dtype: self.dtype, batch: self.batch, m, n, k }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.channels as f32).sqrt()
    }
}

fn turned(matrices: Matrices) -> Matrices {
    Matrices { transposed: !matrices.transposed, ..matrices }
}

const F32: cudaDataType_t = cudaDataType_t::CUDA_R_32F;

/// Self-attention. `weights` are the softmax of the scores, for the backward pass.
pub(super) fn attention(library: &mut Library, sizes: Attention, [qkv, y, weights]: [u64; 3]) -> Outcome<()> {
    let (values, data) = (values_of(sizes.dtype)?, data_of(sizes.dtype)?);
    let (tokens, channels) = (sizes.tokens, sizes.channels);
    library.between("attention", |library| {
        let scores = library.workspace(sizes.scores() * size_of::<f32>())? as u64;
        for head in 0..sizes.heads {
            let [query, key] = [0, 1].map(|part| sizes.part(qkv, part, head));
            let to = sizes.of_scores(scores, head, size_of::<f32>());
            multiply_into(library, sizes.sides(tokens, tokens, channels), query, turned(key), to, F32)?;
        }
        let rows = sizes.scores() / tokens;
        let kernel = kernel_of(values, "softmax", (warps(rows), 1));
        let (number, width, scale) = (rows as u64, tokens as c_int, sizes.scale());
        launch!(library, kernel, [scores, weights, number, width, scale]);
        for head in 0..sizes.heads {
            let weights = sizes.of_scores(weights, head, sizes.dtype.size());
            let (value, to) = (sizes.part(qkv, 2, head), sizes.of_result(y, head));
            multiply_into(library, sizes.sides(tokens, channels, tokens), weights, value, to, data)?;
        }
        Ok(())
    })
}

/// The gradient of [`attention`] with respect to queries, keys and values.
pub(super) fn attention_gradient(
    library: &mut Library,
    sizes: Attention,
    [qkv, weights, dy, dqkv]: [u64; 4],
) -> Outcome<()> {
    let (values, data) = (values_of(sizes.dtype)?, data_of(sizes.dtype)?);
    let (tokens, channels) = (sizes.tokens, sizes.channels);
    library.between("attention: gradient", |library| {
        let of_weights = sizes.scores() * size_of::<f32>();
        let room = library.workspace(of_weights + sizes.scores() * sizes.dtype.size())? as u64;
        let (dweights, dscores) = (room, room + of_weights as u64);
        for head in 0..sizes.heads {
            let (dy, value) = (sizes.of_result(dy, head), sizes.part(qkv, 2, head));
            let to = sizes.of_scores(dweights, head, size_of::<f32>());
            multiply_into(library, sizes.sides(tokens, tokens, channels), dy, turned(value), to, F32)?;
            let weights = sizes.of_scores(weights, head, sizes.dtype.size());
            let to = sizes.part(dqkv, 2, head);
            multiply_into(library, sizes.sides(tokens, channels, tokens), turned(weights), dy, to, data)?;
        }
        let rows = sizes.scores() / tokens;
        let kernel = kernel_of(values, "softmax_gradient", (warps(rows), 1));
        let (number, width, scale) = (rows as u64, tokens as c_int, sizes.scale());
        launch!(library, kernel, [weights, dweights, dscores, number, width, scale]);
        for head in 0..sizes.heads {
            let dscores = sizes.of_scores(dscores, head, sizes.dtype.size());
            let [query, key] = [0, 1].map(|part| sizes.part(qkv, part, head));
            let [dquery, dkey] = [0, 1].map(|part| sizes.part(dqkv, part, head));
            let sides = sizes.sides(tokens, channels, tokens);
            multiply_into(library, sides, dscores, key, dquery, data)?;
            multiply_into(library, sides, turned(dscores), query, dkey, data)?;
        }
        Ok(())
    })
}
