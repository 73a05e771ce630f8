//! rten, in Rust.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use gallerist_util::panics::caught;
use rten::{
    DataType, Dimension, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueType,
};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

use super::interface::{Computed, Dtype, Session, Side, Slot, Values};
use crate::cubic::Target;
use crate::cut::{Cut, CutNode};

struct Rten {
    model: rten::Model,
    /// Those of the file, without those of `cut`.
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    /// The nodes that this program computes.
    cut: Vec<CutNode>,
}

/// The model of a file, or, where this program computes a part of it, what is left of it.
pub(super) fn open(path: &Path, cut: Option<Cut>) -> Result<Box<dyn Session>, String> {
    let mut options = ModelOptions::with_all_ops();
    options.prepack_weights(true);
    let (model, cut) = match cut {
        None => (options.load_file(path), Vec::new()),
        Some(Cut { model, weights, nodes }) => {
            for (file, bytes) in weights {
                options.external_data(&file, bytes);
            }
            (options.load(model), nodes)
        }
    };
    let model = model.map_err(|error| error.to_string())?;
    let slots = |ids: &[NodeId]| ids.iter().map(|&id| slot(&model, id)).collect::<Vec<_>>();
    let (mut inputs, outputs) = (slots(model.input_ids()), slots(model.output_ids()));
    inputs.truncate(inputs.len() - cut.len());
    Ok(Box::new(Rten { model, inputs, outputs, cut }))
}

pub(super) fn lacks_operator(bytes: Vec<u8>) -> bool {
    let loaded = ModelOptions::with_all_ops().enable_optimization(false).load(bytes);
    loaded.is_err_and(|error| error.to_string().contains("not supported"))
}

impl Session for Rten {
    fn inputs(&self) -> &[Slot] {
        &self.inputs
    }

    fn outputs(&self) -> &[Slot] {
        &self.outputs
    }

    fn run(&self, inputs: Vec<(usize, Values)>, output: usize) -> Result<Option<Computed>, String> {
        let given = inputs.into_iter().map(|(at, values)| {
            let value = match values {
                Values::F32(shape, values) => Tensor::from_data(&shape, values).into(),
                // rten has no 64-bit integers: it reads inputs of them as 32-bit ones.
                Values::Integers(shape, values) => Tensor::from_data(&shape, values).into(),
            };
            (self.model.input_ids()[at], value)
        });
        let mut given: Vec<(NodeId, Value)> = given.collect();
        for (node, &result) in self.cut.iter().zip(&self.model.input_ids()[self.inputs.len()..]) {
            let value = self.resized(node, &given)?;
            given.push((result, value));
        }
        let given = given.into_iter().map(|(id, value)| (id, value.into())).collect();
        let mut outputs = self.computed(given, &[self.model.output_ids()[output]])?;
        let output: Option<Tensor<f32>> = outputs.pop().and_then(|output| output.try_into().ok());
        Ok(output.map(|output| Computed { shape: output.shape().to_vec(), values: output.into_data() }))
    }
}

impl Rten {
    fn computed(&self, given: Vec<(NodeId, ValueOrView)>, outputs: &[NodeId]) -> Result<Vec<Value>, String> {
        caught(|| self.model.run(given, outputs, Some(options())))?.map_err(|error| error.to_string())
    }

    /// The result of a node that was taken out of the model.
    fn resized(&self, node: &CutNode, given: &[(NodeId, Value)]) -> Result<Value, String> {
        let outputs = [node.x, node.target].map(|place| self.model.output_ids()[place]);
        let given = given.iter().map(|(id, value)| (*id, value.as_view().into())).collect();
        let found = self.computed(given, &outputs)?;
        let Ok([x, target]) = <[Value; 2]>::try_from(found) else {
            return Err("Resize has no input".to_owned());
        };
        let x: Tensor<f32> = x.try_into().map_err(|_| "Resize of other numbers than f32")?;
        let target = match target {
            Value::Int32Tensor(sizes) => Target::Sizes(sizes.to_vec()),
            Value::FloatTensor(scales) => Target::Scales(scales.to_vec()),
            _ => return Err("Resize has no sizes".to_owned()),
        };
        let (shape, values) = node.rule.apply(x.shape(), x.to_vec(), &target)?;
        Ok(Tensor::from_data(&shape, values).into())
    }
}

/// The engine's threads: as many as the process uses elsewhere.
fn options() -> RunOptions {
    static POOL: OnceLock<Arc<ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Arc::new(ThreadPool::with_num_threads(rayon::current_num_threads())));
    RunOptions::default().with_thread_pool(Some(pool.clone()))
}

fn slot(model: &rten::Model, id: NodeId) -> Slot {
    let info = model.node_info(id);
    let side = |dimension: &Dimension| match dimension {
        Dimension::Fixed(side) => Side::Fixed(*side),
        Dimension::Symbolic(name) => Side::Free(name.clone()),
    };
    let dtype = info.as_ref().and_then(|info| info.dtype()).map(|dtype| match dtype {
        ValueType::Tensor(DataType::Float) => Dtype::F32,
        ValueType::Tensor(DataType::Int32) => Dtype::Integer,
        _ => Dtype::Other,
    });
    let shape = info.as_ref().and_then(|info| info.shape());
    Slot {
        name: info.as_ref().and_then(|info| info.name()).unwrap_or_default().to_owned(),
        dtype,
        shape: shape.map(|shape| shape.iter().map(side).collect()),
    }
}
