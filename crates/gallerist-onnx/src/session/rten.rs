//! rten, in Rust.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rten::{DataType, Dimension, ModelOptions, NodeId, RunOptions, ThreadPool, ValueType};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

use super::interface::{Computed, Dtype, Session, Side, Slot, Values};
use crate::caught::caught;

struct Rten {
    model: rten::Model,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
}

pub(super) fn open(path: &Path) -> Result<Box<dyn Session>, String> {
    let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(path);
    let model = model.map_err(|error| error.to_string())?;
    let slots = |ids: &[NodeId]| ids.iter().map(|&id| slot(&model, id)).collect();
    let (inputs, outputs) = (slots(model.input_ids()), slots(model.output_ids()));
    Ok(Box::new(Rten { model, inputs, outputs }))
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
        let (given, output) = (given.collect(), [self.model.output_ids()[output]]);
        let found = caught(|| self.model.run(given, &output, Some(options())))?;
        let mut outputs = found.map_err(|error| error.to_string())?;
        let output: Option<Tensor<f32>> = outputs.pop().and_then(|output| output.try_into().ok());
        Ok(output.map(|output| Computed { shape: output.shape().to_vec(), values: output.into_data() }))
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
