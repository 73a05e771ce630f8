//! Distance-weighted sampling: negatives drawn so that all distances are met equally often.
//!
//! Wu, Manmatha, Smola, Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017 (section
//! 4.1). For every query `a` and each of its positives one negative `n` is drawn with a probability
//! proportional to `1 / q(max(d_an, near_cutoff))`, where
//!
//! ```text
//! q(d) ~ d^(D-2) (1 - d^2 / 4)^((D-3)/2)
//! ```
//!
//! is the density of the distance between random points of the unit sphere in `D` dimensions. Negatives
//! beyond `far_cutoff` are not drawn; where all are beyond it, each is drawn equally often.
//!
//! The draw of a query is a function of (`seed`, the step, the query's row), so that a run repeats bit
//! for bit whatever the number of threads. The densities are compared as logarithms: in 512 dimensions
//! they span hundreds of orders of magnitude. A query without a positive or without a negative has no
//! selected pair. Made for embeddings of length 1.

use gallerist_util::random::Random;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::rule::{Candidates, Choice, Miner, in_range};
use crate::Result;

/// Parameters of the miner `distance_weighted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DistanceWeightedConfig {
    /// Distance below which negatives are not drawn more often still. 0.5 in the paper.
    pub near_cutoff: f64,
    /// Distance beyond which negatives are not drawn. 1.4 in the paper.
    pub far_cutoff: f64,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for DistanceWeightedConfig {
    fn default() -> Self {
        DistanceWeightedConfig { near_cutoff: 0.5, far_cutoff: 1.4, seed: 0 }
    }
}

impl DistanceWeightedConfig {
    /// Running sums of the weights `1 / q(d)`, scaled so that the largest weight is 1.
    fn cumulative_weights(&self, distances: impl Iterator<Item = f64>, dimensions: usize) -> Vec<f64> {
        let d = dimensions as f64;
        let exponents: Vec<f64> = distances
            .map(|distance| {
                if distance > self.far_cutoff {
                    return f64::NEG_INFINITY;
                }
                let distance = distance.max(self.near_cutoff);
                -((d - 2.0) * distance.ln() + 0.5 * (d - 3.0) * (1.0 - 0.25 * distance * distance).ln())
            })
            .collect();
        let largest = exponents.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let weight = |e: f64| if largest == f64::NEG_INFINITY { 1.0 } else { (e - largest).exp() };
        let sums = exponents.iter().scan(0.0, |sum, &e| {
            *sum += weight(e);
            Some(*sum)
        });
        sums.collect()
    }
}

impl Named for DistanceWeightedConfig {
    const NAME: &'static str = "distance_weighted";
}

impl Miner for DistanceWeightedConfig {
    fn gives_triplets(&self) -> bool {
        true
    }

    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        if !candidates.has_both() {
            return Choice::nothing();
        }
        let Candidates { negatives, values, .. } = candidates;
        let cumulative = self.cumulative_weights(negatives.iter().map(|&j| values[j]), candidates.dimensions);
        let last = negatives.len() - 1;
        let (step, query) = (candidates.step as u64, candidates.query as u64);
        let mut random = Random::new(self.seed, "miner/distance_weighted", step, query);
        let mut draw = || {
            let at = random.unit() * cumulative[last];
            negatives[cumulative.partition_point(|&sum| sum <= at).min(last)]
        };
        Choice::Triplets(candidates.positives.iter().map(|&p| (p, draw())).collect())
    }

    fn validate(&self) -> Result<()> {
        in_range("near_cutoff", self.near_cutoff, self.near_cutoff > 0.0, "above 0")?;
        let far = self.far_cutoff;
        in_range("far_cutoff", far, far > self.near_cutoff && far < 2.0, "above near_cutoff and below 2")
    }
}
