//! An exponential moving average of the network's weights.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::TensorData;

use gallerist_nn::AnyEmbedder;
use gallerist_tensor::params;

/// Prefix of the trained weights in the state of a checkpoint; its network has the average.
const TRAINED: &str = "trained.";

/// The average of the weights over the steps, running statistics of batch norm included.
///
/// After step `s` (from 1) every number is `a average + (1 - a) weight`, with `a` the smaller of the
/// decay and `(1 + s) / (10 + s)`, so that the weights of the first steps soon lose their influence.
#[derive(Debug)]
pub(super) struct Average {
    decay: f64,
    weights: BTreeMap<String, TensorData>,
}

impl Average {
    /// Starts with the current weights.
    pub(super) fn new(decay: f64, network: &AnyEmbedder) -> Self {
        Average { decay, weights: params::collect(network) }
    }

    /// Updates the average with the weights after step `step`, counted from 1.
    pub(super) fn update(&mut self, step: usize, network: &AnyEmbedder) {
        let keep = self.decay.min((1.0 + step as f64) / (10.0 + step as f64)) as f32;
        params::approach(&mut self.weights, &params::collect(network), 1.0 - keep);
    }

    /// `network` with the average as its weights.
    pub(super) fn network(&self, network: &AnyEmbedder) -> AnyEmbedder {
        params::load(network.valid(), self.weights.clone()).0
    }

    /// The average, for a checkpoint's network; the weights that are trained go to its `state`.
    pub(super) fn save(
        &self,
        trained: BTreeMap<String, TensorData>,
        state: &mut BTreeMap<String, TensorData>,
    ) -> BTreeMap<String, TensorData> {
        state.extend(trained.into_iter().map(|(name, data)| (format!("{TRAINED}{name}"), data)));
        self.weights.clone()
    }

    /// Takes the average from a checkpoint's `network` and puts the trained weights from its `state` there. `None` if the
    /// network has the trained weights: there was no average.
    pub(super) fn take(
        network: &mut BTreeMap<String, TensorData>,
        state: &mut BTreeMap<String, TensorData>,
    ) -> Option<BTreeMap<String, TensorData>> {
        let trained: BTreeMap<String, TensorData> = state
            .extract_if(.., |name, _| name.starts_with(TRAINED))
            .map(|(name, data)| (name[TRAINED.len()..].to_string(), data))
            .collect();
        (!trained.is_empty()).then(|| std::mem::replace(network, trained))
    }

    /// Continues with this average.
    pub(super) fn restore(&mut self, weights: BTreeMap<String, TensorData>) {
        self.weights = weights;
    }
}
