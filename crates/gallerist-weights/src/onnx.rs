//! A network as an ONNX model (operator set 13), for any program that runs such models.
//!
//! Input `images`, `[batch, channels, height, width]`, prepared as the run file's `[image]` says; output
//! `embedding`, `[batch, dimensions]`. Batch norm works with its running statistics.

use std::collections::BTreeMap;
use std::path::Path;

use gallerist_retrieval::file::write_atomically;

use gallerist_nn::graph::{FixedKind, Op, Step};
use gallerist_nn::layers::{Activation, Gate, Gem, Pool};
use gallerist_nn::{AnyEmbedder, Combine, HeadChoice, InputShape, Network};
use gallerist_util::protobuf::Message;

use crate::tensors::of_network;
use crate::{Error, Result};

mod graph;
mod tokens;

use graph::{Attribute, FLOAT, Graph, windows};
use tokens::token_width;

const OPERATORS: i64 = 13;
/// The version of the file format that came with these operators.
const FORMAT: i64 = 7;

/// The outputs of an ONNX model, and its metadata.
#[derive(Clone, Debug)]
pub struct OnnxOptions {
    /// Size of the images it is made for.
    pub input: InputShape,
    /// How the heads become one row.
    pub heads: HeadChoice,
    /// Their places among the network's ([`HeadChoice::places`]).
    pub places: Vec<usize>,
    /// Whether rows are scaled to length 1.
    pub normalize: bool,
    /// Entries of the model's metadata.
    pub metadata: BTreeMap<String, String>,
}

/// Writes a network as an ONNX model.
///
/// # Errors
///
/// When the file cannot be written; an older one is then untouched. [`Error::NoGraph`] for a module without a
/// [graph](gallerist_nn::Embedder::graph).
///
/// # Example
///
/// ```
/// use burn::tensor::Device;
/// use gallerist_nn::{HeadChoice, InputShape, NetworkConfig, ResNetConfig};
/// use gallerist_weights::{OnnxOptions, save_onnx};
///
/// let config = NetworkConfig::from(ResNetConfig { depth: 18, ..Default::default() });
/// let input = InputShape { channels: 3, height: 64, width: 64 };
/// let network = config.init(input, 1, &Device::flex())?;
/// let heads = HeadChoice::default();
/// let places = heads.places(&config.heads())?;
/// let options = OnnxOptions { input, heads, places, normalize: true, metadata: Default::default() };
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.onnx");
/// save_onnx(&network, &path, &options)?;
/// # Ok::<(), gallerist_weights::Error>(())
/// ```
pub fn save_onnx(network: &AnyEmbedder, path: &Path, options: &OnnxOptions) -> Result<()> {
    let graph = network.graph().ok_or_else(|| Error::NoGraph { path: path.into() })?;
    let bytes = model(graph, options).into_bytes();
    write_atomically(path, |file| file.write_all(&bytes))?;
    Ok(())
}

impl Graph {
    fn activation(&mut self, kind: Activation, x: &str, output: &str) -> String {
        match kind {
            Activation::None => x.to_string(),
            Activation::Relu => self.node("Relu", &[x], output, vec![]),
            Activation::Relu6 => {
                let low = self.constant(&format!("{output}.low"), &[], &[0.0]);
                let high = self.constant(&format!("{output}.high"), &[], &[6.0]);
                self.node("Clip", &[x, &low, &high], output, vec![])
            }
            Activation::Silu => self.gated(Gate::Sigmoid, [x, x], output),
            Activation::HardSwish => self.gated(Gate::HardSigmoid, [x, x], output),
        }
    }

    /// `x gate(by)`.
    fn gated(&mut self, gate: Gate, [x, by]: [&str; 2], output: &str) -> String {
        let (operation, attributes) = match gate {
            Gate::Sigmoid => ("Sigmoid", vec![]),
            Gate::HardSigmoid => {
                ("HardSigmoid", vec![Attribute::Float("alpha", 1.0 / 6.0), Attribute::Float("beta", 0.5)])
            }
        };
        let factor = self.node(operation, &[by], &format!("{output}.gate"), attributes);
        self.node("Mul", &[x, &factor], output, vec![])
    }

    fn max_pool(&mut self, pool: Pool, x: &str, output: &str) -> String {
        let mut attributes = windows(pool.size, pool.stride, [(pool.padding, pool.padding); 2]);
        attributes.push(Attribute::Int("ceil_mode", pool.ceil.into()));
        self.node("MaxPool", &[x], output, attributes)
    }

    fn average_pool(&mut self, pool: Pool, x: &str, output: &str) -> String {
        let mut attributes = windows(pool.size, pool.stride, [(pool.padding, pool.padding); 2]);
        attributes.push(Attribute::Int("ceil_mode", pool.ceil.into()));
        // Zeros of the padding count; positions outside of the padding do not. Without padding, this is the same as
        // counting only the positions inside, which all programs do in the same way.
        attributes.push(Attribute::Int("count_include_pad", (pool.padding > 0).into()));
        self.node("AveragePool", &[x], output, attributes)
    }

    fn flat(&mut self, x: &str, output: &str) -> String {
        self.node("Flatten", &[x], output, vec![Attribute::Int("axis", 1)])
    }

    /// The nodes of a step with these inputs, of which the first is tokens of length `width`, if it is tokens; returns
    /// the name of its output.
    fn step(&mut self, step: &Step, name: String, inputs: &[String], width: Option<usize>) -> String {
        let x = inputs.first().map_or("", String::as_str);
        if let Some(output) = self.token_step(step, &name, x, width) {
            return output;
        }
        match &step.op {
            Op::Conv(conv) => {
                let mut attributes = windows(conv.weight.dims()[2], conv.stride, conv.padding);
                attributes.push(Attribute::Int("group", conv.groups as i64));
                self.weighted("Conv", step, conv.bias.is_some(), x, &name, attributes)
            }
            Op::Norm(norm) => {
                let fields = ["gamma", "beta", "running_mean", "running_var"];
                let [gamma, beta, mean, variance] = fields.map(|field| self.parameter(&step.name, field));
                let parts = [x, &gamma, &beta, &mean, &variance];
                let epsilon = vec![Attribute::Float("epsilon", norm.epsilon)];
                let before = format!("{name}.before");
                let first = if norm.then == Activation::None { &name } else { &before };
                let y = self.node("BatchNormalization", &parts, first, epsilon);
                let last = if norm.max_pool2 { format!("{name}.maps") } else { name.clone() };
                let y = self.activation(norm.then, &y, &last);
                if norm.max_pool2 { self.max_pool(Pool::new(2, 2), &y, &name) } else { y }
            }
            Op::Linear(linear) => self.weighted("Gemm", step, linear.bias.is_some(), x, &name, vec![]),
            Op::Gem(_) => {
                let p = self.parameter(&step.name, "p");
                let one = self.constant(&format!("{name}.one"), &[1], &[1.0]);
                let least = self.constant(&format!("{name}.least"), &[], &[Gem::LEAST as f32]);
                let y = self.node("Clip", &[x, &least], &format!("{name}.clipped"), vec![]);
                let y = self.node("Pow", &[&y, &p], &format!("{name}.powers"), vec![]);
                let y = self.node("GlobalAveragePool", &[&y], &format!("{name}.mean"), vec![]);
                let y = self.flat(&y, &format!("{name}.row"));
                let root = self.node("Div", &[&one, &p], &format!("{name}.root"), vec![]);
                self.node("Pow", &[&y, &root], &name, vec![])
            }
            Op::Fixed(fixed) => self.fixed(fixed.kind, name, inputs),
            Op::Extractor(_) => unreachable!("a network with a frozen model shows no graph"),
            Op::Tokens(_)
            | Op::LayerNorm(_)
            | Op::LayerScale(_)
            | Op::SelfAttention(_)
            | Op::AttentionPool(_) => unreachable!("`token_step` writes the steps of transformers"),
        }
    }

    /// An operation with a weight and optionally a bias.
    fn weighted(
        &mut self,
        operation: &str,
        step: &Step,
        bias: bool,
        x: &str,
        name: &str,
        attributes: Vec<Attribute<'_>>,
    ) -> String {
        let mut parts = vec![x.to_string(), self.parameter(&step.name, "weight")];
        if bias {
            parts.push(self.parameter(&step.name, "bias"));
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.node(operation, &parts, name, attributes)
    }

    /// An operation without parameters.
    fn fixed(&mut self, kind: FixedKind, name: String, inputs: &[String]) -> String {
        let x = inputs.first().map_or("", String::as_str);
        let before = format!("{name}.before");
        match kind {
            FixedKind::Input => name,
            FixedKind::Activation(kind) => self.activation(kind, x, &name),
            FixedKind::MaxPool(pool) => self.max_pool(pool, x, &name),
            FixedKind::AveragePool(pool) => self.average_pool(pool, x, &name),
            FixedKind::GlobalAverage => {
                let y = self.node("GlobalAveragePool", &[x], &before, vec![]);
                self.flat(&y, &name)
            }
            FixedKind::GlobalMax => {
                let y = self.node("GlobalMaxPool", &[x], &before, vec![]);
                self.flat(&y, &name)
            }
            FixedKind::Squeeze => self.node("GlobalAveragePool", &[x], &name, vec![]),
            FixedKind::Excite(gate) => self.gated(gate, [x, &inputs[1]], &name),
            FixedKind::Add => self.node("Add", &[x, &inputs[1]], &name, vec![]),
            FixedKind::Concat => {
                let parts: Vec<&str> = inputs.iter().map(String::as_str).collect();
                self.node("Concat", &parts, &name, vec![Attribute::Int("axis", 1)])
            }
            FixedKind::Flatten => self.flat(x, &name),
            FixedKind::Gelu(_)
            | FixedKind::GatedSilu
            | FixedKind::DropPath { .. }
            | FixedKind::ClassToken
            | FixedKind::MeanOfPatches { .. } => {
                unreachable!("`token_step` writes the steps of transformers")
            }
        }
    }
}

fn model(network: &Network, options: &OnnxOptions) -> Message {
    let mut graph = Graph::new(of_network(network));
    let mut outputs: Vec<String> = Vec::with_capacity(network.steps.len());
    let mut widths: Vec<Option<usize>> = Vec::with_capacity(network.steps.len());
    for (i, step) in network.steps.iter().enumerate() {
        let width = step.inputs.first().and_then(|&j| widths[j]);
        widths.push(token_width(step, width));
        let inputs: Vec<String> = step.inputs.iter().map(|&j| outputs[j].clone()).collect();
        let name = if step.name.is_empty() { format!("step{i}") } else { step.name.clone() };
        outputs.push(graph.step(step, name, &inputs, width));
    }
    let heads: Vec<String> = options.places.iter().map(|&i| outputs[network.heads[i]].clone()).collect();
    embedding(&mut graph, heads, options);
    let InputShape { channels, height, width } = options.input;
    let graph = Message::default()
        .all(graph.nodes, |message, node| message.message(1, node))
        .text(2, "gallerist")
        .all(graph.constants, |message, constant| message.message(5, constant))
        .message(11, described("images", &[channels, height, width]))
        .message(12, described("embedding", &[dimensions(network, options)]));
    Message::default()
        .int(1, FORMAT)
        .text(2, "gallerist")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(7, graph)
        .message(8, Message::default().text(1, "").int(2, OPERATORS))
        .all(&options.metadata, |message, (key, value)| {
            message.message(14, Message::default().text(1, key).text(2, value))
        })
}

/// One row `embedding` of the heads' outputs.
fn embedding(graph: &mut Graph, mut heads: Vec<String>, options: &OnnxOptions) {
    let unit = || vec![Attribute::Int("axis", 1), Attribute::Int("p", 2)];
    if options.normalize && options.heads.combine == Combine::NormalizeThenConcat {
        for head in &mut heads {
            *head = graph.node("LpNormalization", &[head], &format!("{head}.unit"), unit());
        }
    }
    let row = match &heads[..] {
        [head] => head.clone(),
        _ => {
            let parts: Vec<&str> = heads.iter().map(String::as_str).collect();
            graph.node("Concat", &parts, "heads", vec![Attribute::Int("axis", 1)])
        }
    };
    match options.normalize {
        true => graph.node("LpNormalization", &[&row], "embedding", unit()),
        false => graph.node("Identity", &[&row], "embedding", vec![]),
    };
}

/// Length of the rows.
fn dimensions(network: &Network, options: &OnnxOptions) -> usize {
    options.places.iter().map(|&i| network.dimensions[i]).sum()
}

/// A tensor of floats with its name and the sides of one image; the first side is `batch`.
fn described(name: &str, sides: &[usize]) -> Message {
    let batch = Message::default().text(2, "batch");
    let shape = Message::default()
        .message(1, batch)
        .all(sides, |message, &side| message.message(1, Message::default().int(1, side as i64)));
    let tensor = Message::default().int(1, FLOAT).message(2, shape);
    Message::default().text(1, name).message(2, Message::default().message(1, tensor))
}
