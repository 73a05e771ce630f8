//! A warning when the embeddings lose most of their effective dimensions.

use serde::{Deserialize, Serialize};

use super::RunConfig;

/// Number of first batches; their mean participation ratio is the start value.
const FIRST: usize = 3;

/// Number of last batches; their mean participation ratio is compared with the start value.
const RECENT: usize = 10;

/// Below this share of the start value there is a warning.
const SHARE: f64 = 0.25;

/// Below this many dimensions there is a warning, too,
const FEWEST: f64 = 3.0;

/// if the ratio has also fallen below this share of the start value: a ratio near 3.1 that varies has not fallen.
const FALLEN: f64 = 0.75;

/// A ratio above this share of the largest ratio of well separated classes causes no warning, for any
/// start value.
const ALLOWED: f64 = 1.0 / 3.0;

/// The participation ratios of the batches that decide about the warning. A checkpoint contains them, so
/// that a resumed run warns as one without a break.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankWatch {
    /// Of the first batches.
    first: Vec<f32>,
    /// Of the last batches, the newest at the end.
    recent: Vec<f32>,
    /// Whether the warning was given.
    warned: bool,
}

/// The content of the warning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LostRank {
    /// The mean participation ratio of the first batches.
    first: f64,
    /// That of the last batches.
    recent: f64,
}

impl LostRank {
    /// What happened, the likely cause, and what to change in the run file.
    pub(super) fn message(&self, config: &RunConfig) -> String {
        let LostRank { first, recent } = self;
        let rate = config.optimizer.learning_rate;
        // The ratio is that of the embeddings of the first loss.
        let term = &config.loss.0[0];
        let name = term.loss.name();
        let scale = term.loss.scale_parameter();
        let cause = match (term.normalizes(config.train.normalize), scale) {
            (false, Some(key)) => format!(
                "the likely cause: the distances at the start do not suit `{name}`, which sees rows that are not \
                 normalised; set network.head_distance (mean distance at the start), loss.{key}, or a lower \
                 optimizer.learning_rate (it is {rate})"
            ),
            (true, Some(key)) => format!(
                "the likely cause: the learning rate is too high, or loss.{key} does not suit these images; lower \
                 optimizer.learning_rate (it is {rate}), or change loss.{key}"
            ),
            (_, None) => format!(
                "the likely cause: the learning rate is too high; lower optimizer.learning_rate (it is {rate})"
            ),
        };
        format!(
            "the embeddings of a batch fill {recent:.1} dimensions, at the start {first:.1} (participation ratio, mean \
             of {RECENT} batches); {cause}"
        )
    }
}

impl RankWatch {
    /// Takes the participation ratio of the next batch. Returns the warning, once.
    ///
    /// `possible` is the participation ratio of perfect embeddings: the classes of a batch
    /// less one, each class at one point, or the dimensions where these are fewer.
    pub(super) fn step(&mut self, rank: f32, possible: usize) -> Option<LostRank> {
        if self.first.len() < FIRST {
            self.first.push(rank);
        }
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(rank);
        let mean = |of: &[f32]| of.iter().map(|&rank| f64::from(rank)).sum::<f64>() / of.len() as f64;
        let (first, recent) = (mean(&self.first), mean(&self.recent));
        let bound = (first * SHARE).max(FEWEST.min(first * FALLEN)).min(possible as f64 * ALLOWED);
        let lost = !self.warned && self.recent.len() == RECENT && recent < bound;
        self.warned |= lost;
        lost.then_some(LostRank { first, recent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps, from 1, at which a run with these ratios is warned of.
    fn warned(ranks: impl IntoIterator<Item = f32>, possible: usize) -> Vec<usize> {
        let mut watch = RankWatch::default();
        let steps = ranks.into_iter().enumerate();
        steps.filter_map(|(at, rank)| watch.step(rank, possible).map(|_| at + 1)).collect()
    }

    /// `from` at first, `to` from step 21 on.
    fn falling(from: f32, to: f32) -> impl Iterator<Item = f32> {
        (0..200).map(move |step| if step < 20 { from } else { to })
    }

    #[test]
    fn a_ratio_below_a_quarter_of_its_start_is_warned_of_once() {
        assert_eq!(warned(falling(40.0, 9.0), 100), [30]);
        assert_eq!(warned(falling(40.0, 11.0), 100), [0usize; 0]);
        let again = falling(40.0, 2.0).chain(falling(40.0, 2.0));
        assert_eq!(warned(again, 100).len(), 1);
    }

    #[test]
    fn a_ratio_that_falls_below_three_is_warned_of() {
        assert_eq!(warned(falling(6.0, 2.9), 100).len(), 1);
        assert_eq!(warned(falling(6.0, 3.1), 100), [0usize; 0]);
        assert_eq!(warned(falling(3.1, 2.9), 100), [0usize; 0], "it varies");
        assert_eq!(warned(falling(1.4, 1.3), 100), [0usize; 0], "it began so");
        assert_eq!(warned((0..200).map(|step| 1.5 + step as f32), 100), [0usize; 0], "it rises");
    }

    #[test]
    fn single_batches_decide_nothing() {
        let noisy = (0..500).map(|step| if step % 3 == 2 { 2.0 } else { 30.0 });
        assert_eq!(warned(noisy, 100), [0usize; 0]);
        assert_eq!(
            warned([40.0, 40.0, 40.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 100),
            [0usize; 0],
            "a run of nine batches"
        );
    }

    #[test]
    fn few_dimensions_or_classes_are_no_loss() {
        assert_eq!(warned(falling(2.0, 1.0), 2), [0usize; 0], "two dimensions");
        assert_eq!(warned(falling(2.9, 2.0), 3), [0usize; 0], "three dimensions");
        // Seven classes, each at one point, fill six dimensions.
        assert_eq!(warned(falling(37.0, 2.1), 6), [0usize; 0]);
        assert_eq!(warned(falling(37.0, 1.9), 6).len(), 1);
    }

    #[test]
    fn a_watch_from_a_checkpoint_goes_on_as_before() {
        let ranks: Vec<f32> = falling(40.0 / 3.0, 2.1).collect();
        for stopped in [0, 2, 15, 25, 29, 30, 31, 100] {
            let mut watch = RankWatch::default();
            let mut steps = Vec::new();
            for (at, &rank) in ranks.iter().enumerate() {
                if at == stopped {
                    watch = serde_json::from_str(&serde_json::to_string(&watch).unwrap()).unwrap();
                }
                steps.extend(watch.step(rank, 100).map(|_| at + 1));
            }
            assert_eq!(steps, warned(ranks.clone(), 100), "stopped after {stopped} steps");
        }
    }
}
