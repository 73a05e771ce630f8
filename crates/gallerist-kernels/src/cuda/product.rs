//! Products of matrices by cuBLAS.

use std::ffi::{c_int, c_void};
use std::ptr;

use burn::tensor::DType;
use cudarc::cublas::sys as blas;

use super::library::{Declined, Library, Outcome, blas_checked};

/// One operand: matrices in the order of rows or of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrices {
    /// Address on the GPU.
    pub(super) at: u64,
    /// The columns are contiguous, not the rows.
    pub(super) transposed: bool,
    /// Values from one row (transposed: column) to the next.
    pub(super) leading: usize,
    /// Values from one matrix to the next.
    pub(super) stride: usize,
}

/// `batch` products `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    pub(super) dtype: DType,
    pub(super) batch: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl Sides {
    /// Whether cuBLAS has products of these sizes: its sides are 32-bit numbers.
    pub(super) fn fit(&self, operands: &[Matrices]) -> bool {
        let sides = [self.batch, self.m, self.n, self.k];
        let all = sides.into_iter().chain(operands.iter().map(|matrices| matrices.leading));
        data_of(self.dtype).is_ok() && all.into_iter().all(|side| c_int::try_from(side).is_ok())
    }
}

/// cuBLAS's name of a dtype.
pub(super) fn data_of(dtype: DType) -> Outcome<blas::cudaDataType_t> {
    match dtype {
        DType::F32 => Ok(blas::cudaDataType_t::CUDA_R_32F),
        DType::BF16 => Ok(blas::cudaDataType_t::CUDA_R_16BF),
        DType::F16 => Ok(blas::cudaDataType_t::CUDA_R_16F),
        other => Err(Declined(format!("products of {other:?}"))),
    }
}

/// The products; `result` is `[batch, m, n]`, contiguous.
pub(super) fn multiply(
    library: &mut Library,
    sides: Sides,
    left: Matrices,
    right: Matrices,
    result: u64,
) -> Outcome<()> {
    let to = Matrices { at: result, transposed: false, leading: sides.n, stride: sides.m * sides.n };
    let data = data_of(sides.dtype)?;
    library.between("cuBLAS: product", |library| multiply_into(library, sides, left, right, to, data))
}

/// The products, written in the order of rows to `result` as values of the type `data`; within
/// [`Library::between`].
pub(super) fn multiply_into(
    library: &mut Library,
    sides: Sides,
    left: Matrices,
    right: Matrices,
    result: Matrices,
    data: blas::cudaDataType_t,
) -> Outcome<()> {
    use blas::cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T};
    let of_operands = data_of(sides.dtype)?;
    let sums = match sides.dtype {
        DType::F32 => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };
    let int = |side: usize| c_int::try_from(side).map_err(|_| Declined(format!("a side of {side}")));
    let (m, n, k, batch) = (int(sides.m)?, int(sides.n)?, int(sides.k)?, int(sides.batch)?);
    let (of_left, of_right, of_result) = (int(left.leading)?, int(right.leading)?, int(result.leading)?);
    let order = |matrices: Matrices| if matrices.transposed { CUBLAS_OP_T } else { CUBLAS_OP_N };
    let (one, zero) = (1.0f32, 0.0f32);
    let (one, zero) = (ptr::from_ref(&one).cast::<c_void>(), ptr::from_ref(&zero).cast::<c_void>());
    let handle = library.blas()?;
    // cuBLAS reads columns first, where a matrix of ours is its transpose: the transposed product is the product of the transposed
    // operands in the other order.
    // SAFETY: the caller holds the memory of the operands and of the result, of the sizes given.
    let status = unsafe {
        blas::cublasGemmStridedBatchedEx(
            handle,
            order(right),
            order(left),
            n,
            m,
            k,
            one,
            right.at as *const c_void,
            of_operands,
            of_right,
            right.stride as i64,
            left.at as *const c_void,
            of_operands,
            of_left,
            left.stride as i64,
            zero,
            result.at as *mut c_void,
            data,
            of_result,
            result.stride as i64,
            batch,
            sums,
            blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
        )
    };
    blas_checked("cublasGemmStridedBatchedEx", status)
}
