//! A program with a loss of its own, which run files name `name = "hinge"`. It has all commands of `gallerist`.
//!
//! ```text
//! cargo run --release --example own_loss -- train run.toml
//! cargo run --release --example own_loss -- loss --loss hinge --embeddings rows.npy --labels labels.txt
//! ```

use gallerist::burn;
use gallerist::burn::module::Module;
use gallerist::burn::tensor::{Device, Tensor, TensorData, activation::relu};
use gallerist::loss::{AnyLoss, Lists, LossShape, PairLoss, Queries};
use gallerist::prelude::*;
use serde::{Deserialize, Serialize};

/// The distance of each positive pair, and what each negative pair is nearer than the margin; the mean over all pairs.
#[derive(Module, Debug)]
struct Hinge {
    #[module(skip)]
    config: HingeConfig,
}

impl PairLoss for Hinge {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let [n, m] = lists.dims();
        let distances = lists.distances();
        let mask = |related: bool| {
            let holds = |i: usize, j: usize| i != j && lists.related(i, j) == related;
            let values: Vec<f32> = (0..n * m).map(|at| f32::from(u8::from(holds(at / m, at % m)))).collect();
            Tensor::<2>::from_data(TensorData::new(values, [n, m]), &distances.device())
        };
        let (positives, negatives) = (mask(true), mask(false));
        let near = relu(distances.clone().neg().add_scalar(self.config.margin));
        let terms = distances * positives.clone() + near * negatives.clone();
        let value = terms.clone().sum().div_scalar((n * (m - 1)) as f64);

        // What the log and the command `loss` show of each query.
        let per_query = |values: Tensor<2>| -> Vec<f32> {
            values.sum_dim(1).into_data().try_into_vec().expect("the loss computes in f32")
        };
        let count = |mask| per_query(mask).into_iter().map(|value| value as u32).collect::<Vec<_>>();
        let (positives, negatives) = (count(positives), count(negatives));
        let queries = Queries {
            loss: per_query(terms).into_iter().map(|sum| sum / (m - 1) as f32).collect(),
            mined_positives: positives.clone(),
            mined_negatives: negatives.clone(),
            positives,
            negatives,
            ..Queries::default()
        };
        LossOutput { value, queries }
    }
}

/// The keys of `[loss]`, with their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HingeConfig {
    margin: f64,
}

impl Default for HingeConfig {
    fn default() -> Self {
        HingeConfig { margin: 0.5 }
    }
}

impl Named for HingeConfig {
    const NAME: &'static str = "hinge";
}

impl LossSpec for HingeConfig {
    fn build(&self, _shape: LossShape, _seed: u64, _device: &Device) -> AnyLoss {
        Hinge { config: self.clone() }.boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }
}

/// The registry with the loss.
pub fn registry() -> Registry {
    Registry::default().loss::<HingeConfig>()
}

fn main() -> std::process::ExitCode {
    gallerist::cli::run(&registry())
}
