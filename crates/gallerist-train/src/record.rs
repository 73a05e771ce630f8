//! The records of a run's log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::BrokenImage;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Record {
    /// One optimiser step.
    Step(Step),
    /// A validation.
    Validation {
        /// Steps done.
        step: usize,
        /// Which images were compared with which; empty in logs of earlier versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        protocol: String,
        /// Metrics by name.
        metrics: BTreeMap<String, f64>,
    },
    /// An image that could not be read; each is logged once.
    BrokenImage {
        /// Steps done.
        step: usize,
        /// The image, and why.
        #[serde(flatten)]
        image: BrokenImage,
    },
    /// A warning to the user; each is logged once.
    Warning {
        /// Steps done.
        step: usize,
        /// The warning, and what to change.
        message: String,
    },
    /// The run was resumed here.
    Resumed {
        /// Steps done before.
        step: usize,
    },
}

impl Record {
    /// Steps done when the record was written.
    pub fn step(&self) -> usize {
        match self {
            Record::Step(step) => step.step,
            Record::Validation { step, .. }
            | Record::BrokenImage { step, .. }
            | Record::Warning { step, .. }
            | Record::Resumed { step } => *step,
        }
    }
}

/// The record of one optimiser step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The step, from 1.
    pub step: usize,
    /// The sampler's epoch, from 0.
    pub epoch: usize,
    /// The loss before the step: the weighted sum, where there are several.
    #[serde(deserialize_with = "or_nan")]
    pub loss: f32,
    /// Of several losses the value of each, not weighted; empty where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "each_or_nan")]
    pub losses: Vec<f32>,
    /// Share of positive pairs that are non-trivial.
    #[serde(deserialize_with = "or_nan")]
    pub positive_share: f32,
    /// Share of negative pairs that are non-trivial.
    #[serde(deserialize_with = "or_nan")]
    pub negative_share: f32,
    /// Non-trivial positives per query.
    #[serde(deserialize_with = "or_nan")]
    pub mined_positives: f32,
    /// Non-trivial negatives per query.
    #[serde(deserialize_with = "or_nan")]
    pub mined_negatives: f32,
    /// Share of the terms of the loss that are positive and have no gradient; 0 for losses without these terms.
    #[serde(default, deserialize_with = "or_nan")]
    pub dead_share: f32,
    /// Mean Euclidean distance of the batch's positive pairs, as the loss sees them; of several heads, the
    /// first loss's.
    #[serde(default, deserialize_with = "or_nan")]
    pub positive_distance: f32,
    /// The same for the negative pairs.
    #[serde(default, deserialize_with = "or_nan")]
    pub negative_distance: f32,
    /// Effective dimensions of the batch's embeddings: the participation ratio of their covariance, from 1
    /// to d.
    #[serde(default, deserialize_with = "or_nan")]
    pub rank: f32,
    /// Norm of the network's gradient, before clipping; 0 where the step was left out.
    #[serde(deserialize_with = "or_nan")]
    pub gradient_norm: f32,
    /// Whether the step was skipped because its gradients were not finite in f16 ([`crate::LossScale`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// Where the loss, the gradient or the weights of the step were not finite: it was skipped
    /// ([`OnNonfinite::Skip`](crate::OnNonfinite)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Mean norm of the embeddings before normalisation.
    #[serde(deserialize_with = "or_nan")]
    pub embedding_norm: f32,
    /// Learning rate of the network's body.
    pub learning_rate: f64,
    /// Seconds of the whole step, waiting included.
    pub seconds: f64,
    /// Seconds the step waited for its images.
    pub waited: f64,
}

/// A number that is not finite is `null` in JSON.
fn or_nan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    Ok(Option::<f32>::deserialize(deserializer)?.unwrap_or(f32::NAN))
}

/// [`or_nan`] of each number.
fn each_or_nan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    let values = Vec::<Option<f32>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|value| value.unwrap_or(f32::NAN)).collect())
}

impl Step {
    /// The record of a step of several batches: the means of their statistics, and the sum of their waiting times.
    pub(crate) fn mean(batches: &[Step]) -> Step {
        let mean = |of: fn(&Step) -> f32| batches.iter().map(of).sum::<f32>() / batches.len() as f32;
        let mut step = batches.last().cloned().unwrap_or_default();
        for (i, loss) in step.losses.iter_mut().enumerate() {
            *loss = batches.iter().map(|batch| batch.losses[i]).sum::<f32>() / batches.len() as f32;
        }
        Step {
            loss: mean(|s| s.loss),
            positive_share: mean(|s| s.positive_share),
            negative_share: mean(|s| s.negative_share),
            mined_positives: mean(|s| s.mined_positives),
            mined_negatives: mean(|s| s.mined_negatives),
            dead_share: mean(|s| s.dead_share),
            positive_distance: mean(|s| s.positive_distance),
            negative_distance: mean(|s| s.negative_distance),
            rank: mean(|s| s.rank),
            embedding_norm: mean(|s| s.embedding_norm),
            waited: batches.iter().map(|batch| batch.waited).sum(),
            ..step
        }
    }
}
