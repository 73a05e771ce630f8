//! Reading a file of weights, whatever its format.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use burn::tensor::{DType, TensorData};
use gallerist_retrieval::file::{open_regular, read_regular};
use safetensors::{Dtype, SafeTensors};

use super::pytorch;
use super::tensors::{Weights, bad, floats};
use crate::{Error, Result};
use gallerist_tensor::params;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Safetensors,
    PyTorchZip,
    PyTorchLegacy,
}

const ONNX: &str = "an ONNX model is no weights of a network here; it is used as it is: network.kind = \"onnx\", \
     network.file = \"model.onnx\"";
const KNOWN: &str = "safetensors (.safetensors) and PyTorch files (.pth, .pt) are read";

/// Reads the tensors of a file: safetensors, PyTorch's zip or older format, or one of our checkpoints. The format is
/// detected from the content.
///
/// Floating-point tensors of 16, 32 and 64 bits become f32. Nothing in a PyTorch file is executed: a
/// file that contains anything but tensors and containers is refused.
///
/// # Errors
///
/// [`Error::Io`] where the file cannot be read; [`Error::Weights`] where it is of another format, cut short,
/// damaged, or wants code to be run, which it names.
pub fn read(path: &Path) -> Result<Weights> {
    let io = |source| Error::Io { action: "read", path: path.into(), source };
    let mut start = [0; 16];
    let mut file = open_regular(path).map_err(io)?;
    let count = file.read(&mut start).map_err(io)?;
    match format(&start[..count]) {
        Some(Format::PyTorchZip) => pytorch::read_zip(path, file),
        Some(Format::PyTorchLegacy) => pytorch::read_legacy(path, &read_regular(path).map_err(io)?),
        Some(Format::Safetensors) => read_safetensors(path),
        None => {
            let onnx = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"));
            let hint = if onnx { ONNX } else { KNOWN };
            Err(bad(path, "it is of no format that is read".into(), Some(hint.into())))
        }
    }
}

/// The format that a file's first 16 bytes speak of.
fn format(start: &[u8]) -> Option<Format> {
    match start {
        [b'P', b'K', 3, 4, ..] => Some(Format::PyTorchZip),
        // Eight bytes of length, then JSON. Before pickles, with whose first bytes a length may begin.
        [_, _, _, _, _, _, _, _, b'{', ..] => Some(Format::Safetensors),
        // A pickle, protocol 2 to 5; PyTorch's magic number follows.
        [0x80, 2..=5, ..] => Some(Format::PyTorchLegacy),
        _ => None,
    }
}

fn read_safetensors(path: &Path) -> Result<Weights> {
    let bytes =
        read_regular(path).map_err(|source| Error::Io { action: "read", path: path.into(), source })?;
    // `deserialize` checks every offset and shape against the bytes that are there.
    let damaged = |e: safetensors::SafeTensorError| {
        bad(
            path,
            format!("it is no whole safetensors file: {e}"),
            Some("fetch or write the file again".into()),
        )
    };
    let file = SafeTensors::deserialize(&bytes).map_err(damaged)?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(damaged)?;
    if metadata.metadata().as_ref().is_some_and(|metadata| metadata.contains_key("gallerist")) {
        let tensors = network_of_checkpoint(path, &file, &metadata)?;
        return Ok(Weights { path: path.into(), tensors, ours: true, ..Default::default() });
    }
    let mut weights = Weights { path: path.into(), ..Default::default() };
    for (name, view) in file.iter() {
        let dtype = match view.dtype() {
            Dtype::F64 => Some(DType::F64),
            Dtype::F32 => Some(DType::F32),
            Dtype::F16 => Some(DType::F16),
            Dtype::BF16 => Some(DType::BF16),
            _ => None,
        };
        let shape = view.shape().to_vec();
        match dtype {
            Some(dtype) => {
                weights.tensors.insert(name.into(), floats(view.data().to_vec(), shape, dtype));
            }
            None => weights.others.push((name.into(), view.dtype().to_string(), shape)),
        }
    }
    Ok(weights)
}

/// The `format` in the metadata of our checkpoints.
pub const CHECKPOINT_FORMAT: &str = "gallerist-checkpoint-1";

/// The network's tensors of one of our checkpoints: those whose names begin with `network.`.
fn network_of_checkpoint(
    path: &Path,
    file: &SafeTensors<'_>,
    metadata: &safetensors::tensor::Metadata,
) -> Result<BTreeMap<String, TensorData>> {
    let header = metadata.metadata().as_ref().and_then(|metadata| metadata.get("gallerist"));
    let header: Option<serde_json::Value> = header.and_then(|json| serde_json::from_str(json).ok());
    let format = header.as_ref().and_then(|header| header.get("format")?.as_str());
    if format != Some(CHECKPOINT_FORMAT) {
        let found = format.unwrap_or("unknown");
        let reason = format!("its format is `{found}`, this program reads `{CHECKPOINT_FORMAT}`");
        return Err(bad(path, reason, Some("use the version of the program that wrote it".into())));
    }
    let of_network = file.iter().filter_map(|(name, view)| Some((name.strip_prefix("network.")?, view)));
    of_network
        .map(|(name, view)| {
            let data = params::values(name, &view).map_err(|reason| bad(path, reason, None))?;
            Ok((name.to_string(), data))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_safetensors_file_whose_length_begins_like_a_pickle_is_one() {
        for header in [640u64, 896, 1152, 1408, 66176] {
            let mut start = header.to_le_bytes().to_vec();
            start.extend(b"{\"tensor");
            assert_eq!(format(&start), Some(Format::Safetensors), "{header}");
        }
        let pickle = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80";
        assert_eq!(format(pickle), Some(Format::PyTorchLegacy));
    }
}
