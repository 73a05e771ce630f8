//! The objective of a run: `[loss]`, or the weighted sum of several `[[loss]]`, each on one head of the
//! network or on every head.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};

use crate::Result;
use crate::config::RunConfig;
use gallerist_loss::cross_batch::CrossBatchMemory;
use gallerist_loss::{AnyLoss, Labels, LossShape, Progress, Queries};
use gallerist_nn::place;
use gallerist_tensor::pairwise::{host, l2_normalize};
use gallerist_tensor::params;

/// The losses of a run with their learned parameters. A module, for the optimiser.
#[derive(Module, Debug)]
pub(super) struct Objective {
    losses: Vec<AnyLoss>,
    #[module(skip)]
    terms: Vec<Term>,
}

/// Head, weight and steps of a loss in the sum.
#[derive(Clone, Debug)]
struct Term {
    /// The loss in the run file.
    name: &'static str,
    head: usize,
    weight: f64,
    steps: RangeInclusive<usize>,
    normalize: bool,
    takes_memory: bool,
}

/// The value of the objective on a batch.
pub(super) struct ObjectiveOutput {
    /// The weighted sum, connected to the network's outputs.
    pub(super) value: Tensor<1>,
    /// The value of each loss, not weighted, whether it counts in this step or not.
    pub(super) values: Vec<f32>,
    /// The statistics of each loss that counts.
    pub(super) queries: Vec<Queries>,
    /// The embeddings of each loss, as it gets them.
    pub(super) embeddings: Vec<Tensor<2>>,
}

/// Prefix of the memories in the state of a checkpoint.
const MEMORY: &str = "memory.";

/// The cross-batch memories of a run, one for each loss that takes one.
#[derive(Clone, Debug)]
pub(super) struct Memories(Vec<Option<CrossBatchMemory>>);

impl Memories {
    /// Empty memories for the losses of `objective`.
    pub(super) fn new(config: &RunConfig, objective: &Objective) -> Self {
        let heads = config.network.heads();
        let memory = |term: &Term| {
            let xbm = config.xbm.as_ref().filter(|_| term.takes_memory)?;
            Some(CrossBatchMemory::new(xbm, heads[term.head].dimensions))
        };
        Memories(objective.terms.iter().map(memory).collect())
    }

    /// Stores the embeddings of the batch of the step after `step` steps.
    pub(super) fn push(&mut self, step: usize, embeddings: &[Tensor<2>], labels: Labels<'_>) {
        for (memory, embeddings) in self.0.iter_mut().zip(embeddings) {
            if let Some(memory) = memory {
                memory.push(step, embeddings, labels);
            }
        }
    }

    /// Adds the memories to a checkpoint's state.
    pub(super) fn save(&self, state: &mut BTreeMap<String, TensorData>) {
        for (i, memory) in self.0.iter().enumerate() {
            let tensors = memory.iter().flat_map(CrossBatchMemory::state);
            state.extend(tensors.map(|(name, data)| (format!("{MEMORY}{i}.{name}"), data)));
        }
    }

    /// Drops the memories of a checkpoint's state, and says whether there were any.
    pub(super) fn forget(state: &mut BTreeMap<String, TensorData>) -> bool {
        state.extract_if(.., |name, _| name.starts_with(MEMORY)).count() > 0
    }

    /// Takes the memories out of a checkpoint's state.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub(super) fn restore(
        &mut self,
        state: &mut BTreeMap<String, TensorData>,
        device: &Device,
    ) -> std::result::Result<(), String> {
        for (i, memory) in self.0.iter_mut().enumerate() {
            let prefix = format!("{MEMORY}{i}.");
            let of_memory = state.extract_if(.., |name, _| name.starts_with(&prefix));
            let of_memory = of_memory.map(|(name, data)| (name[prefix.len()..].to_string(), data)).collect();
            if let Some(memory) = memory {
                memory.restore(of_memory, device).map_err(|reason| format!("memory {i}: {reason}"))?;
            }
        }
        Ok(())
    }
}

impl Objective {
    pub(super) fn new(config: &RunConfig, classes: usize, device: &Device) -> Result<Self> {
        let heads = config.network.heads();
        let mut objective = Objective { losses: Vec::new(), terms: Vec::new() };
        for term in &config.loss.0 {
            let places = match &term.head {
                Some(name) => vec![place(name, &heads, "loss.head")?],
                None => (0..heads.len()).collect(),
            };
            for head in places {
                let shape = LossShape { classes, dimensions: heads[head].dimensions };
                // Two losses of a kind must not start from the same proxies.
                let seed = config.train.seed.wrapping_add(objective.losses.len() as u64);
                device.seed(seed);
                let loss = term.loss.init(shape, seed, device);
                params::initialize(&loss);
                objective.losses.push(loss);
                objective.terms.push(Term {
                    name: term.loss.name(),
                    head,
                    weight: term.weight,
                    steps: term.steps(),
                    normalize: term.normalizes(config.train.normalize),
                    takes_memory: term.loss.takes_memory(),
                });
            }
        }
        Ok(objective)
    }

    /// The weighted sum over the network's `outputs`, one per head, with `memories` after the batch.
    ///
    /// # Errors
    ///
    /// [`Conflict`](gallerist_tensor::Error::Conflict) where the value of a loss is not one number.
    pub(super) fn forward(
        &self,
        outputs: &[Tensor<2>],
        labels: Labels<'_>,
        memories: &Memories,
        progress: Progress,
    ) -> Result<ObjectiveOutput> {
        let mut normalized: Vec<Option<Tensor<2>>> = vec![None; outputs.len()];
        let mut sum: Option<Tensor<1>> = None;
        let (mut values, mut queries, mut seen) = (Vec::new(), Vec::new(), Vec::new());
        for ((loss, term), memory) in self.losses.iter().zip(&self.terms).zip(&memories.0) {
            let embeddings = match term.normalize {
                true => normalized[term.head]
                    .get_or_insert_with(|| l2_normalize(outputs[term.head].clone()))
                    .clone(),
                false => outputs[term.head].clone(),
            };
            seen.push(embeddings.clone());
            let memory = memory.as_ref().and_then(CrossBatchMemory::gallery);
            let counts = term.steps.contains(&(progress.step + 1));
            let embeddings = if counts { embeddings } else { embeddings.detach() };
            let output = loss.forward_against(embeddings, labels, memory, progress);
            let shape = output.value.dims();
            if shape != [1] {
                return Err(gallerist_tensor::Error::Conflict {
                    message: format!(
                        "the value of the loss `{}` has the shape {shape:?}, not [1]",
                        term.name
                    ),
                    hint: "return one number for the batch, such as the mean over its queries".into(),
                }
                .into());
            }
            values.push(host(&output.value)[0] as f32);
            if !counts {
                continue;
            }
            queries.push(output.queries);
            // The value of a single loss is unchanged, bit for bit.
            let weighted = match term.weight == 1.0 {
                true => output.value,
                false => output.value.mul_scalar(term.weight),
            };
            sum = Some(match sum {
                Some(sum) => sum + weighted,
                None => weighted,
            });
        }
        let value = sum.expect("a run file has a loss for every step");
        Ok(ObjectiveOutput { value, values, queries, embeddings: seen })
    }
}
