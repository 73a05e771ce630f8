//! A warning when the embeddings collapse: all images come close to one point, also relative to each other.

use gallerist_loss::BatchStatistics;
use gallerist_nn::FreezeBatchNorm;
use serde::{Deserialize, Serialize};

use super::RunConfig;

/// Number of first batches; their mean distance of negative pairs is the start value.
const FIRST: usize = 3;

/// Number of last batches whose mean distances are compared with the start value.
const RECENT: usize = 10;

/// Below this share of the start value, negative pairs have come close.
const SHARE: f64 = 0.1;

/// Above this share of the distance of negative pairs, positive pairs are no closer: the classes are not separated.
const MIXED: f64 = 0.5;

/// The distances of the batches that decide about the warning. A checkpoint contains them, so that a resumed run warns as
/// one without a break.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CollapseWatch {
    /// Mean distances of negative pairs, of the first batches.
    first: Vec<f32>,
    /// Mean distances of positive and negative pairs, of the last batches, the newest at the end.
    recent: Vec<[f32; 2]>,
    /// Whether the warning was given.
    warned: bool,
}

impl CollapseWatch {
    /// Whether a warning was given.
    pub(super) fn warned(&self) -> bool {
        self.warned
    }

    /// Takes the statistics of the next batch. Returns the warning, once.
    pub(super) fn step(&mut self, seen: &BatchStatistics, config: &RunConfig) -> Option<String> {
        if self.first.len() < FIRST {
            self.first.push(seen.negative_distance);
        }
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push([seen.positive_distance, seen.negative_distance]);
        if self.warned {
            return None;
        }
        // Images of one class may be one point.
        let found = if seen.collapsed() && seen.possible_rank > 0 {
            "all embeddings of a batch are (nearly) the same point".to_owned()
        } else {
            let mean = |of: &dyn Fn(&[f32; 2]) -> f32| {
                self.recent.iter().map(|pair| f64::from(of(pair))).sum::<f64>() / self.recent.len() as f64
            };
            let (positive, negative) = (mean(&|pair| pair[0]), mean(&|pair| pair[1]));
            let first = self.first.iter().copied().map(f64::from).sum::<f64>() / self.first.len() as f64;
            let close = self.recent.len() == RECENT && negative < SHARE * first;
            if !close || positive < MIXED * negative {
                return None;
            }
            format!(
                "the embeddings collapse: negative pairs of a batch have the mean distance {negative:.3}, at the start \
                 {first:.3}, and positive pairs are no closer ({positive:.3})"
            )
        };
        self.warned = true;
        // The scale of the first distances matters to losses that see rows as the network returns them.
        let normalizes = config.loss.0[0].normalizes(config.train.normalize);
        let scale = match (normalizes, config.network.freeze_batch_norm) {
            (true, _) => "",
            (false, FreezeBatchNorm::None) => "set network.head_distance, ",
            // Layers whose batch norms are frozen can shrink together (docs/results/srt-market.md).
            (false, _) => "set network.freeze_batch_norm = \"none\" or network.head_distance, ",
        };
        Some(format!(
            "{found}; lower optimizer.learning_rate (it is {}), use a longer warm-up (schedule.warmup_steps), {scale}or \
             begin with a loss or a miner that does not look at the hardest pairs only ([[loss]] with until_step)",
            config.optimizer.learning_rate
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(positive_distance: f32, negative_distance: f32) -> BatchStatistics {
        BatchStatistics { spread: 0.5, positive_distance, negative_distance, ..Default::default() }
    }

    /// The batches, from 1, at which a run with these distances is warned of; it is resumed after `stopped`.
    fn warned(distances: &[(f32, f32)], stopped: usize) -> Vec<usize> {
        let config = RunConfig::default();
        let mut watch = CollapseWatch::default();
        let mut batches = Vec::new();
        for (number, &(positive, negative)) in distances.iter().enumerate() {
            if number == stopped {
                watch = serde_json::from_str(&serde_json::to_string(&watch).unwrap()).unwrap();
            }
            batches.extend(watch.step(&at(positive, negative), &config).map(|_| number + 1));
        }
        batches
    }

    /// All rows of a batch of three classes are one point.
    fn one_point() -> BatchStatistics {
        BatchStatistics { possible_rank: 2, ..Default::default() }
    }

    /// Geometrically from 5.6 to `to` in 50 batches, and 30 more there; positive pairs have `share` of it.
    fn falling(to: f32, share: f32) -> Vec<(f32, f32)> {
        let negative = |i: usize| 5.6 * (to / 5.6f32).powf(i.min(50) as f32 / 50.0);
        (0..80).map(|i| (share * negative(i), negative(i))).collect()
    }

    #[test]
    fn distances_that_vanish_are_warned_of_once_and_at_the_same_batch_after_a_resume() {
        let found = warned(&falling(0.035, 0.98), usize::MAX);
        assert_eq!(found.len(), 1);
        for stopped in [1, 4, found[0] - 1, found[0], found[0] + 3] {
            assert_eq!(warned(&falling(0.035, 0.98), stopped), found, "resumed after {stopped}");
        }
    }

    #[test]
    fn classes_that_are_separated_and_distances_that_only_shrink_are_not_warned_of() {
        assert_eq!(warned(&falling(0.035, 0.1), usize::MAX), [0usize; 0], "positive pairs are closer");
        assert_eq!(warned(&falling(1.0, 0.98), usize::MAX), [0usize; 0], "a fifth of the start");
        let one_batch: Vec<_> = (0..80).map(|i| if i == 40 { (0.01, 0.01) } else { (5.0, 5.6) }).collect();
        assert_eq!(warned(&one_batch, usize::MAX), [0usize; 0], "a single batch");
    }

    #[test]
    fn one_point_is_warned_of_at_once_with_a_hint() {
        let message = CollapseWatch::default().step(&one_point(), &RunConfig::default()).unwrap();
        assert!(message.starts_with("all embeddings of a batch are (nearly) the same point"), "{message}");
        assert!(message.contains("optimizer.learning_rate"), "{message}");
        let of_one_class = BatchStatistics { possible_rank: 0, ..one_point() };
        assert_eq!(CollapseWatch::default().step(&of_one_class, &RunConfig::default()), None);
    }

    #[test]
    fn the_hint_knows_what_lets_rows_shrink() {
        let hint = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
            let config = RunConfig::parse("", "a test", &settings).unwrap();
            CollapseWatch::default().step(&one_point(), &config).unwrap()
        };
        let frozen = ["network.kind=mobilenet_v2", "network.freeze_batch_norm=statistics"];
        let [frozen_raw, free_raw, normalized] = [
            hint(&[&frozen[..], &["loss={name=\"triplet_batch_hard\"}"]].concat()),
            hint(&["loss={name=\"triplet_batch_hard\"}"]),
            hint(&frozen),
        ];
        assert!(
            frozen_raw.contains("network.freeze_batch_norm = \"none\" or network.head_distance"),
            "{frozen_raw}"
        );
        assert!(free_raw.contains("head_distance") && !free_raw.contains("freeze"), "{free_raw}");
        assert!(!normalized.contains("head_distance") && !normalized.contains("freeze"), "{normalized}");
    }
}
