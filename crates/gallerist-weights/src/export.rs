//! A network's tensors with PyTorch's names.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::tensor::TensorData;

use super::names::Names;
use super::tensors::{of_network, transposed};
use super::vit;
use gallerist_nn::{AnyEmbedder, Network};
use gallerist_tensor::params;

use crate::Result;

/// All tensors of a network with PyTorch's names and shapes, for `load_state_dict`.
///
/// Linear weights are `[outputs, inputs]`. The running variance is the biased one.
pub fn to_pytorch(network: &Network) -> BTreeMap<String, TensorData> {
    let mut tensors = of_network(network);
    let slots = network.slots();
    let named = slots.iter().map(|slot| {
        let data = tensors.remove(&slot.path()).expect("slots and parameters have the same names");
        let data = match slot.shape[..] {
            [inputs, outputs] if slot.linear => transposed(&data, inputs, outputs),
            _ => data,
        };
        (Names::PyTorch.of(slot), data)
    });
    let mut named = named.collect();
    vit::rename_for_timm(network, &mut named);
    named
}

/// Writes a network as safetensors with PyTorch's names (a module without a
/// [graph](gallerist_nn::Embedder::graph): with its own); `metadata` goes into the file's header.
///
/// # Errors
///
/// When the file cannot be written; an older one is then untouched.
pub fn save_safetensors(
    network: &AnyEmbedder,
    path: &Path,
    metadata: BTreeMap<String, String>,
) -> Result<()> {
    let tensors = network.graph().map_or_else(|| params::collect(network), to_pytorch);
    let metadata: HashMap<String, String> = metadata.into_iter().collect();
    Ok(params::write_with(path, &tensors, (!metadata.is_empty()).then_some(metadata))?)
}
