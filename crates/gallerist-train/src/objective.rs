//! What a run minimises: `[loss]`, or the weighted sum of several `[[loss]]`, each on one head of the
//! network or on every head.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{RunConfig, TrainConfig};
use crate::Result;
use gallerist_loss::memory::{CrossBatchMemory, XbmConfig};
use gallerist_loss::{Labels, Loss, LossConfig, LossShape, Progress, Queries, RankingLoss};
use gallerist_nn::{Head, place};
use gallerist_tensor::pairwise::{host, l2_normalize};

/// One `[loss]`: a loss, its weight in the sum, and the head whose embeddings it sees.
///
/// # Example
///
/// ```
/// use gallerist_train::RunConfig;
///
/// let text = "[[loss]]\nname = \"rll\"\n[[loss]]\nname = \"softmax\"\nweight = 0.5";
/// let config = RunConfig::parse(text, "example", &["loss.1.weight=0.25".into()]).unwrap();
/// assert_eq!(config.loss.to_string(), "rll + 0.25 softmax");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossTerm {
    /// Factor on its value; 1 unless given.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: f64,
    /// The network's head whose embeddings it sees; absent: every head, each with a loss of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The loss and its parameters.
    #[serde(flatten)]
    pub loss: LossConfig,
}

fn one() -> f64 {
    1.0
}

fn is_one(weight: &f64) -> bool {
    *weight == 1.0
}

impl LossTerm {
    /// Whether the loss sees rows of length 1: `train.normalize`, or what its paper does.
    pub(super) fn normalizes(&self, train: &TrainConfig) -> bool {
        train.normalize.unwrap_or(self.loss.normalized())
    }
}

impl From<LossConfig> for LossTerm {
    fn from(loss: LossConfig) -> Self {
        LossTerm { weight: 1.0, head: None, loss }
    }
}

/// The losses whose weighted sum a run minimises: one table `[loss]`, or several `[[loss]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LossTerms(pub Vec<LossTerm>);

impl Default for LossTerms {
    fn default() -> Self {
        LossTerms(vec![LossConfig::default().into()])
    }
}

impl std::fmt::Display for LossTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, LossTerm { weight, head, loss }) in self.0.iter().enumerate() {
            let plus = if i == 0 { "" } else { " + " };
            let weight = if *weight == 1.0 { String::new() } else { format!("{weight} ") };
            let head = head.as_ref().map_or(String::new(), |head| format!(" on {head}"));
            write!(f, "{plus}{weight}{}{head}", loss.name())?;
        }
        Ok(())
    }
}

impl Serialize for LossTerms {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LossTerms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct TableOrTables;
        impl<'de> serde::de::Visitor<'de> for TableOrTables {
            type Value = LossTerms;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("[loss], or [[loss]] for each of several losses")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                map: A,
            ) -> std::result::Result<LossTerms, A::Error> {
                Ok(LossTerms(vec![LossTerm::deserialize(MapAccessDeserializer::new(map))?]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                seq: A,
            ) -> std::result::Result<LossTerms, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(LossTerms)
            }
        }
        deserializer.deserialize_any(TableOrTables)
    }
}

impl LossTerms {
    /// Checks weights, heads and the losses' parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] naming the key; no loss at all is refused, too. [`Error::NoMemory`] where `xbm` is
    /// given and none of the losses takes a memory.
    pub fn validate(&self, heads: &[Head], xbm: Option<&XbmConfig>) -> Result<()> {
        if self.0.is_empty() {
            return Err(gallerist_tensor::Error::Value {
                key: "loss".into(),
                wanted: "one loss or more".into(),
                found: "an empty list".into(),
            }
            .into());
        }
        for term in &self.0 {
            gallerist_tensor::Error::require(
                "loss.weight".into(),
                term.weight,
                term.weight > 0.0,
                "above 0",
            )?;
            if let Some(head) = &term.head {
                place(head, heads, "loss.head")?;
            }
            term.loss.validate()?;
        }
        if let Some(xbm) = xbm {
            let takes = self.0.iter().find(|term| term.loss.takes_memory());
            xbm.validate(&takes.unwrap_or(&self.0[0]).loss)?;
        }
        Ok(())
    }
}

/// The losses of a run with what they have learnt. A module, for the optimiser.
#[derive(Module, Debug)]
pub(super) struct Objective {
    losses: Vec<Loss>,
    #[module(skip)]
    terms: Vec<Term>,
}

/// Where a loss stands in the sum.
#[derive(Clone, Debug)]
struct Term {
    head: usize,
    weight: f64,
    normalize: bool,
    takes_memory: bool,
}

/// The objective on a batch.
pub(super) struct Outcome {
    /// The weighted sum, connected to the network's outputs.
    pub(super) value: Tensor<1>,
    /// Per loss its value before it is weighted.
    pub(super) values: Vec<f32>,
    /// Per loss what it saw.
    pub(super) queries: Vec<Queries>,
    /// Per loss the embeddings as it sees them.
    pub(super) embeddings: Vec<Tensor<2>>,
}

/// The cross-batch memories of a run, one for each loss that takes one.
#[derive(Debug)]
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

    /// Keeps what the losses saw of the batch of the step after `step` steps.
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
            state.extend(tensors.map(|(name, data)| (format!("memory.{i}.{name}"), data)));
        }
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
            let prefix = format!("memory.{i}.");
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
                objective.losses.push(term.loss.init(shape, seed, device));
                objective.terms.push(Term {
                    head,
                    weight: term.weight,
                    normalize: term.normalizes(&config.train),
                    takes_memory: term.loss.takes_memory(),
                });
            }
        }
        Ok(objective)
    }

    /// The weighted sum over the network's `outputs`, one per head, with `memories` behind the batch.
    pub(super) fn forward(
        &self,
        outputs: &[Tensor<2>],
        labels: Labels<'_>,
        memories: &Memories,
        progress: Progress,
    ) -> Outcome {
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
            let output = loss.forward_against(embeddings, labels, memory, progress);
            values.push(host(&output.value)[0] as f32);
            queries.push(output.queries);
            // The value of a single loss goes on as it is, to the last bit.
            let weighted = match term.weight == 1.0 {
                true => output.value,
                false => output.value.mul_scalar(term.weight),
            };
            sum = Some(match sum {
                Some(sum) => sum + weighted,
                None => weighted,
            });
        }
        let value = sum.expect("a run file has one loss or more");
        Outcome { value, values, queries, embeddings: seen }
    }
}
