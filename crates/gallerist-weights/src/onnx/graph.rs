//! The parts of an ONNX model: nodes, attributes, constants.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::TensorData;
use gallerist_nn::Rotary;
use gallerist_util::protobuf::Message;

use crate::tensors::values;

/// The types of tensors.
pub(super) const FLOAT: i64 = 1;
const INT64: i64 = 7;

/// An attribute of an operation.
pub(super) enum Attribute<'a> {
    Int(&'a str, i64),
    Ints(&'a str, Vec<i64>),
    Float(&'a str, f64),
}

impl Attribute<'_> {
    fn message(self) -> Message {
        let named = |name: &str, kind: i64| Message::default().text(1, name).int(20, kind);
        match self {
            Attribute::Float(name, value) => named(name, 1).float(2, value as f32),
            Attribute::Int(name, value) => named(name, 2).int(3, value),
            Attribute::Ints(name, all) => named(name, 7).all(all, |message, value| message.int(8, value)),
        }
    }
}

/// Square windows, with zeros before and after the rows, before and after the columns.
pub(super) fn windows(
    size: usize,
    stride: usize,
    [rows, columns]: [(usize, usize); 2],
) -> Vec<Attribute<'static>> {
    vec![
        Attribute::Ints("kernel_shape", vec![size as i64; 2]),
        Attribute::Ints("strides", vec![stride as i64; 2]),
        Attribute::Ints("pads", [rows.0, columns.0, rows.1, columns.1].map(|zeros| zeros as i64).to_vec()),
    ]
}

/// Nodes and constants as they are written, and the parameters that are not written yet.
pub(super) struct Graph {
    pub(super) nodes: Vec<Message>,
    pub(super) constants: Vec<Message>,
    pub(super) tensors: BTreeMap<String, TensorData>,
    /// Rotary positions, and the constants of their cosines and sines: all attentions of a network share them.
    pub(super) turns: Option<(Arc<Rotary>, [String; 2])>,
}

impl Graph {
    /// No nodes yet.
    pub(super) fn new(tensors: BTreeMap<String, TensorData>) -> Self {
        Graph { nodes: vec![], constants: vec![], tensors, turns: None }
    }

    pub(super) fn node(
        &mut self,
        kind: &str,
        inputs: &[&str],
        output: &str,
        attributes: Vec<Attribute<'_>>,
    ) -> String {
        let message = Message::default()
            .all(inputs, |message, input| message.text(1, input))
            .text(2, output)
            .text(3, output)
            .text(4, kind)
            .all(attributes, |message, attribute| message.message(5, attribute.message()));
        self.nodes.push(message);
        output.to_string()
    }

    pub(super) fn constant(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = Message::default()
            .all(shape, |message, &side| message.int(1, side as i64))
            .int(2, FLOAT)
            .text(8, name)
            .bytes(9, &raw);
        self.constants.push(tensor);
        name.to_string()
    }

    pub(super) fn integers(&mut self, name: &str, shape: &[usize], values: &[i64]) -> String {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = Message::default()
            .all(shape, |message, &side| message.int(1, side as i64))
            .int(2, INT64)
            .text(8, name)
            .bytes(9, &raw);
        self.constants.push(tensor);
        name.to_string()
    }

    /// A parameter of the network as a constant of its name.
    pub(super) fn parameter(&mut self, layer: &str, field: &str) -> String {
        let name = if layer.is_empty() { field.into() } else { format!("{layer}.{field}") };
        let data = self.tensors.remove(&name).expect("the step has the parameter");
        self.constant(&name, &data.shape().to_vec(), values(&data))
    }
}
