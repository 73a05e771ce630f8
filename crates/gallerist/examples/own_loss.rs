//! A program with a loss of its own, which run files name `name = "hinge"`. It has all commands of `gallerist`.
//!
//! ```text
//! cargo run --release --example own_loss -- train run.toml
//! cargo run --release --example own_loss -- loss --loss hinge --embeddings rows.npy --labels labels.txt
//! ```

use gallerist::burn::tensor::Device;
use gallerist::loss::engine::{Counts, List, ListValue, Measure, Real, lanes};
use gallerist::loss::{AnyLoss, ListLoss, Listed, LossShape};
use gallerist::prelude::*;
use serde::{Deserialize, Serialize};

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

/// The distance of each positive pair, and by how much each negative pair is nearer than the margin; the mean over all
/// pairs. One function of one query's list, with its derivatives.
impl ListLoss for HingeConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.pairs.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let margin = F::of(self.margin);
        let far = lanes::map_sum(list.positives, list.by_positives, |d| (F::ONE, d));
        let near = lanes::map_sum(list.negatives, list.by_negatives, |d| {
            if d < margin { (-F::ONE, margin - d) } else { (F::ZERO, F::ZERO) }
        });
        let pairs = list.pairs().max(1) as f64;
        ListValue {
            loss: (far.wide() + near.wide()) / pairs,
            weight: pairs,
            mined_positives: list.positives.len() as u32,
            mined_negatives: lanes::count(list.negatives, |d| d < margin),
            ..ListValue::default()
        }
    }
}

impl LossSpec for HingeConfig {
    fn build(&self, _shape: LossShape, _seed: u64, _device: &Device) -> AnyLoss {
        Listed::new(self.clone()).boxed()
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
