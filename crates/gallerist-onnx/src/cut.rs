//! Models of which this program computes a part.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use rten_onnx::onnx::{
    DataLocation, DataType, ModelProto, StringStringEntryProto, TensorProto, TypeProto, TypeProtoTensor,
    ValueInfoProto,
};

use crate::cubic::Cubic;

/// A model without its cubic resizing: results of it are inputs, and what it needs are outputs.
pub(crate) struct Cut {
    /// The model as a file.
    pub(crate) model: Vec<u8>,
    /// The files of weights that this file names: one per tensor that the model has in a file of its own.
    pub(crate) weights: Vec<(String, Vec<u8>)>,
    /// What was taken out, in the order of the computation.
    pub(crate) nodes: Vec<CutNode>,
}

/// A node that was taken out. Its result is an input of what is left: these inputs come after those of the model, in the order of
/// the nodes.
pub(crate) struct CutNode {
    pub(crate) rule: Cubic,
    /// The place of its tensor among the outputs.
    pub(crate) x: usize,
    /// The place of its sizes or scales among the outputs.
    pub(crate) target: usize,
}

impl Cut {
    /// The model at `path` without the nodes that [`Cubic`] computes; `None` if it has none.
    ///
    /// # Errors
    ///
    /// The reason why a file of weights cannot be read, or the model not be written.
    pub(crate) fn of(mut model: ModelProto, path: &Path) -> Result<Option<Self>, String> {
        let Some(graph) = model.graph.as_mut() else { return Ok(None) };
        let named = |value: &ValueInfoProto| value.name.clone();
        let mut outputs: BTreeMap<String, usize> = graph
            .output
            .iter()
            .enumerate()
            .filter_map(|(place, value)| Some((named(value)?, place)))
            .collect();
        let (mut nodes, mut kept) = (Vec::new(), Vec::new());
        for node in std::mem::take(&mut graph.node) {
            let Some(rule) = Cubic::of(&node) else {
                kept.push(node);
                continue;
            };
            let mut place = |name: &String| {
                *outputs.entry(name.clone()).or_insert_with(|| {
                    graph.output.push(ValueInfoProto { name: Some(name.clone()), ..Default::default() });
                    graph.output.len() - 1
                })
            };
            let [x, .., target] = &node.input[..] else { unreachable!("`Cubic` has inputs") };
            let (x, target) = (place(x), place(target));
            let numbers = TypeProtoTensor { elem_type: Some(DataType::FLOAT), ..Default::default() };
            graph.input.push(ValueInfoProto {
                name: Some(node.output[0].clone()),
                r#type: Some(TypeProto { tensor_type: Some(numbers), ..Default::default() }),
            });
            nodes.push(CutNode { rule, x, target });
        }
        graph.node = kept;
        if nodes.is_empty() {
            return Ok(None);
        }
        let mut weights = Vec::new();
        for tensor in graph.initializer.iter_mut() {
            if tensor.data_location == Some(DataLocation::EXTERNAL) {
                // One file for each: rten wants the numbers of a tensor to begin at a multiple of their size.
                let name = format!("{}.data", weights.len());
                let bytes = numbers_outside(tensor, path)?;
                let entries =
                    [("location", name.clone()), ("offset", "0".into()), ("length", bytes.len().to_string())];
                let entry = |(key, value): (&str, String)| StringStringEntryProto {
                    key: Some(key.into()),
                    value: Some(value),
                };
                tensor.external_data = entries.map(entry).into();
                weights.push((name, bytes));
            }
        }
        let model = model.write_buf().map_err(|error| error.to_string())?;
        Ok(Some(Self { model, weights, nodes }))
    }
}

/// The bytes of a tensor that are in a file of weights next to the model at `path`.
fn numbers_outside(tensor: &TensorProto, path: &Path) -> Result<Vec<u8>, String> {
    let entry = |key: &str| {
        let found = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(key))?;
        found.value.as_deref()
    };
    let name = entry("location").unwrap_or_default();
    let extension = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
    let is_file_of_weights = extension.starts_with("data") || extension.starts_with("onnx_data");
    // A model is not to read other files.
    if Path::new(name).file_name() != Some(OsStr::new(name)) || !is_file_of_weights {
        return Err(format!(
            "its file of weights `{name}` is not a file in its folder that ends in .data or .onnx_data"
        ));
    }
    let number = |key: &str| entry(key).map(|text| text.parse::<u64>()).transpose();
    let range = number("offset").and_then(|offset| Ok((offset.unwrap_or(0), number("length")?)));
    let (offset, length) = range.map_err(|error| format!("a place in `{name}`: {error}"))?;
    let read = || {
        let mut file = File::open(path.with_file_name(name))?;
        let rest = file.metadata()?.len().saturating_sub(offset);
        let length = length.unwrap_or(rest);
        if length > rest {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| std::io::ErrorKind::OutOfMemory)?];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| format!("cannot read its weights in `{name}`: {error}"))
}
