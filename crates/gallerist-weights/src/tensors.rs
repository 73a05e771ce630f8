//! Tensors of a file by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use gallerist_nn::Network;
use gallerist_nn::graph::Op;
use gallerist_tensor::params;

use crate::error::Error;

/// The tensors of a file.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// Where they come from.
    pub path: PathBuf,
    /// Floating-point tensors by name, in f32.
    pub tensors: BTreeMap<String, TensorData>,
    /// Other tensors (counters): name, type and shape.
    pub others: Vec<(String, String, Vec<usize>)>,
    /// Whether they are of our own checkpoint, with our own names.
    pub ours: bool,
}

pub(crate) fn bad(path: &Path, reason: String, hint: Option<String>) -> Error {
    Error::Weights { path: path.into(), reason, hint }
}

/// The values of a tensor of weights.
pub(crate) fn values(data: &TensorData) -> &[f32] {
    data.as_slice::<f32>().expect("weights are f32")
}

/// The tensors of a network; a bias that stays 0 is 0.
pub(crate) fn of_network(network: &Network) -> BTreeMap<String, TensorData> {
    let mut tensors = params::collect(network);
    for step in &network.steps {
        if let Op::Linear(linear) = &step.op
            && let Some(bias) = linear.whole_bias()
        {
            tensors.insert(format!("{}.bias", step.name), bias.into_data());
        }
    }
    tensors
}

/// `[rows, columns]` to `[columns, rows]`.
pub(crate) fn transposed(data: &TensorData, rows: usize, columns: usize) -> TensorData {
    let from = values(data);
    let to: Vec<f32> = (0..rows * columns).map(|i| from[i % rows * columns + i / rows]).collect();
    TensorData::new(to, [columns, rows])
}

/// Little-endian values of a floating-point type as f32.
pub(super) fn floats(mut bytes: Vec<u8>, shape: Vec<usize>, dtype: DType) -> TensorData {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    TensorData::from_bytes_vec(bytes, shape, dtype).convert_dtype(DType::F32)
}
