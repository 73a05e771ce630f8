//! Cross-batch memory: embeddings of the last batches, kept as constants, that lengthen the ranked lists of
//! a loss.
//!
//! Wang, Zhang, Huang, Scott, "Cross-Batch Memory for Embedding Learning", CVPR 2020 (XBM). While a network
//! is trained its embeddings drift slowly, so that those of some hundred steps ago still serve as positives
//! and negatives: a batch of 64 finds hard negatives among thousands. Early in training they drift too fast;
//! the memory is kept from `start_step` on.
//!
//! The paper's batch is compared with itself by one loss and with the memory, which holds the batch already,
//! by another. Here one list contains the batch and then the memory ([`CrossBatchRows`]), so the batch is stored
//! after its loss is computed.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::config::LossConfig;
use crate::labels::Labels;
use crate::lists::CrossBatchRows;
use crate::{Error, Result};

/// Parameters of a [`CrossBatchMemory`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct XbmConfig {
    /// Embeddings kept, the latest ones. 8,192, as in the authors' released defaults; theirs for SOP is
    /// 55,000, which is nearly its training set.
    pub size: usize,
    /// Steps done before the first batch is kept. 1,000, as in the authors' configuration for SOP.
    pub start_step: usize,
}

impl Default for XbmConfig {
    fn default() -> Self {
        XbmConfig { size: 8192, start_step: 1000 }
    }
}

impl XbmConfig {
    /// Checks the size, and that `loss` takes a memory.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for a size of 0, [`Error::Conflict`] for a loss that compares no pairs.
    pub fn validate(&self, loss: &LossConfig) -> Result<()> {
        Error::require("xbm.size".into(), self.size as f64, self.size > 0, "1 or more")?;
        loss.require_memory()
    }
}

/// The latest embeddings of a training, oldest overwritten first.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{ContrastiveConfig, Labels, Progress, RankingLoss};
/// use gallerist_loss::cross_batch::{CrossBatchMemory, XbmConfig};
///
/// let device = Device::flex().autodiff();
/// let loss = ContrastiveConfig::default().init();
/// let mut memory = CrossBatchMemory::new(&XbmConfig { size: 64, start_step: 1 }, 8);
/// for step in 0..3 {
///     let embeddings = Tensor::<2>::random([4, 8], Distribution::Default, &device).require_grad();
///     let labels = Labels::Classes(&[0, 0, 1, 1]);
///     let progress = Progress { step, steps: 3 };
///     let output = loss.forward_against(embeddings.clone(), labels, memory.gallery(), progress);
///     let gradients = output.value.backward(); // … and the optimiser's step
///     memory.push(step, &embeddings, labels);
///     assert!(embeddings.grad(&gradients).is_some());
/// }
/// assert_eq!(memory.len(), 8); // of steps 1 and 2
/// ```
#[derive(Clone, Debug)]
pub struct CrossBatchMemory {
    config: XbmConfig,
    dimensions: usize,
    /// `[len, dimensions]`, f32.
    rows: Option<Tensor<2>>,
    labels: Kept,
    /// The position of the next row: after the last one, or in place of the oldest.
    next: usize,
}

/// The labels of the rows.
#[derive(Clone, Debug)]
enum Kept {
    Classes(Vec<u32>),
    Sets(Vec<Vec<u32>>),
}

impl Kept {
    /// Writes the labels of samples `from..from + count` to the places from `at` on.
    fn put(&mut self, at: usize, labels: Labels<'_>, from: usize, count: usize) {
        fn put<T: Clone>(to: &mut Vec<T>, at: usize, from: &[T]) {
            to.splice(at..(at + from.len()).min(to.len()), from.iter().cloned());
        }
        match (self, labels) {
            (Kept::Classes(kept), Labels::Classes(classes)) => put(kept, at, &classes[from..from + count]),
            (Kept::Sets(kept), Labels::Sets(sets)) => put(kept, at, &sets[from..from + count]),
            _ => panic!("one class per sample and sets of labels in one memory"),
        }
    }
}

impl CrossBatchMemory {
    /// An empty memory for embeddings of `dimensions` values.
    ///
    /// # Panics
    ///
    /// If the size is 0.
    pub fn new(config: &XbmConfig, dimensions: usize) -> Self {
        assert!(config.size > 0, "a memory of size 0");
        CrossBatchMemory {
            config: config.clone(),
            dimensions,
            rows: None,
            labels: Kept::Classes(Vec::new()),
            next: 0,
        }
    }

    /// Number of rows kept.
    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.dims()[0])
    }

    /// Whether nothing is kept yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_none()
    }

    /// Keeps the embeddings of a batch, as the loss got them, in the place of the oldest; only the last
    /// `size` of a batch that is larger. Does nothing while `step`, the number of steps done before this
    /// batch, is below the start step.
    ///
    /// # Shapes
    ///
    /// `embeddings` `[n, dimensions]`, `labels` of `n` samples, all pushes of one kind. The rows are kept
    /// without a gradient, in f32.
    ///
    /// # Panics
    ///
    /// If the shapes are others, or if classes and sets are mixed.
    pub fn push(&mut self, step: usize, embeddings: &Tensor<2>, labels: Labels<'_>) {
        let [n, d] = embeddings.dims();
        assert_eq!(n, labels.len(), "{n} embeddings and {} labels", labels.len());
        assert_eq!(d, self.dimensions, "embeddings of {d} values for a memory of {}", self.dimensions);
        if step < self.config.start_step || n == 0 {
            return;
        }
        if let (true, Labels::Sets(_)) = (self.is_empty(), labels) {
            self.labels = Kept::Sets(Vec::new());
        }
        let size = self.config.size;
        let rows = embeddings.clone().without_autodiff().cast(DType::F32);
        let mut from = n.saturating_sub(size);
        // Up to the end of the ring, then from its start.
        while from < n {
            let count = (n - from).min(size - self.next);
            self.labels.put(self.next, labels, from, count);
            self.put(rows.clone().slice([from..from + count, 0..d]));
            from += count;
        }
    }

    /// Writes rows that fit before the end of the ring.
    fn put(&mut self, rows: Tensor<2>) {
        let [count, d] = rows.dims();
        let end = self.next + count;
        self.rows = Some(match self.rows.take() {
            None => rows,
            // Taken out of `self`, so that a memory nobody else holds is written in place.
            Some(kept) if self.next < kept.dims()[0] => kept.slice_assign([self.next..end, 0..d], rows),
            Some(kept) => Tensor::cat(vec![kept, rows], 0),
        });
        self.next = end % self.config.size;
    }

    /// What lengthens the next batch's lists; nothing while it is empty.
    pub fn gallery(&self) -> Option<CrossBatchRows<'_>> {
        let embeddings = self.rows.clone()?;
        let labels = match &self.labels {
            Kept::Classes(classes) => Labels::Classes(classes),
            Kept::Sets(sets) => Labels::Sets(sets),
        };
        Some(CrossBatchRows { embeddings, labels })
    }

    /// The memory as f32 tensors by name, for a checkpoint; none while it is empty.
    ///
    /// `embeddings` `[len, dimensions]`; `next` `[1, 2]` and `labels` `[k, 2]`, each number as its upper and
    /// lower 16 bits, which f32 holds exactly; with label sets also `counts` `[len, 2]`, the number of labels
    /// of each row.
    pub fn state(&self) -> BTreeMap<String, TensorData> {
        let Some(rows) = &self.rows else { return BTreeMap::new() };
        let mut state = BTreeMap::from([
            ("embeddings".to_string(), rows.clone().into_data()),
            ("next".to_string(), halves([self.next as u32])),
        ]);
        match &self.labels {
            Kept::Classes(classes) => {
                state.insert("labels".into(), halves(classes.iter().copied()));
            }
            Kept::Sets(sets) => {
                state.insert("labels".into(), halves(sets.iter().flatten().copied()));
                state.insert("counts".into(), halves(sets.iter().map(|set| set.len() as u32)));
            }
        }
        state
    }

    /// Takes over a [`CrossBatchMemory::state`], on `device`: the next loss has the same bits as before.
    ///
    /// # Errors
    ///
    /// What is wrong with the state, where it is not one of a memory of this size and dimension; the memory
    /// is then unchanged.
    pub fn restore(
        &mut self,
        mut state: BTreeMap<String, TensorData>,
        device: &Device,
    ) -> std::result::Result<(), String> {
        let mut restored = CrossBatchMemory::new(&self.config, self.dimensions);
        if !state.is_empty() {
            let rows = state.remove("embeddings").ok_or("`embeddings` is missing")?;
            let shape = rows.shape().to_vec();
            let &[len, d] = &shape[..] else { return Err(format!("`embeddings` has the shape {shape:?}")) };
            let fits = (1..=self.config.size).contains(&len) && d == self.dimensions;
            if !fits || rows.dtype() != DType::F32 {
                let (size, dimensions) = (self.config.size, self.dimensions);
                return Err(format!("{len} x {d} embeddings for a memory of up to {size} x {dimensions}"));
            }
            let mut numbers = |name: &str| state.remove(name).map(|data| whole(name, &data)).transpose();
            let next = numbers("next")?.ok_or("`next` is missing")?;
            let labels = numbers("labels")?.ok_or("`labels` is missing")?;
            let counts = numbers("counts")?;
            restored.next = match next[..] {
                [next] if next as usize == len % self.config.size || len == self.config.size => next as usize,
                _ => return Err(format!("the next row is {next:?}, of {len}")),
            };
            if restored.next >= self.config.size {
                return Err(format!("the next row is {}, of {len}", restored.next));
            }
            let labelled = counts.as_ref().map_or(labels.len(), Vec::len);
            let in_sets = counts.iter().flatten().map(|&count| count as usize).sum::<usize>();
            if labelled != len || counts.is_some() && in_sets != labels.len() {
                return Err(format!("{} labels for {len} rows", labels.len()));
            }
            restored.labels = match counts {
                None => Kept::Classes(labels),
                Some(counts) => {
                    let mut labels = labels.into_iter();
                    Kept::Sets(counts.iter().map(|&c| labels.by_ref().take(c as usize).collect()).collect())
                }
            };
            restored.rows = Some(Tensor::from_data(rows, &device.clone().without_autodiff()));
        }
        *self = restored;
        Ok(())
    }
}

/// Numbers as `[k, 2]` of their upper and lower 16 bits.
fn halves(numbers: impl IntoIterator<Item = u32>) -> TensorData {
    let halves: Vec<f32> =
        numbers.into_iter().flat_map(|n| [(n >> 16) as f32, (n & 0xffff) as f32]).collect();
    let shape = [halves.len() / 2, 2];
    TensorData::new(halves, shape)
}

/// The numbers of [`halves`].
fn whole(name: &str, data: &TensorData) -> std::result::Result<Vec<u32>, String> {
    let values = match (data.as_slice::<f32>(), &data.shape()[..]) {
        (Ok(values), [_, 2]) => values,
        _ => return Err(format!("`{name}` is no list of whole numbers")),
    };
    let half = |value: f32| ((0.0..65536.0).contains(&value) && value.fract() == 0.0).then_some(value as u32);
    let number = |pair: &[f32]| Some(half(pair[0])? << 16 | half(pair[1])?);
    let numbers: Option<Vec<u32>> = values.chunks_exact(2).map(number).collect();
    numbers.ok_or_else(|| format!("`{name}` is no list of whole numbers"))
}
