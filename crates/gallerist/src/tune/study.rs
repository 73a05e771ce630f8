//! The trials of a search and their results.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::Value;

use super::importance::{Importance, importance, parts};
use super::sampler::{Dimension, Point};
use super::space::{Space, Values, inline};

/// One choice of values and its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// From 1, in the order in which they were chosen.
    pub number: usize,
    /// The metric on each fold that was run, from the first.
    pub folds: Vec<f64>,
    /// Why the trial has no further folds, if a run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Seconds of training, over all folds.
    #[serde(default)]
    pub seconds: f64,
    /// The values of the tuned keys.
    pub values: BTreeMap<String, Value>,
}

impl Trial {
    /// The mean over the folds that were run; `None` before the first.
    pub fn mean(&self) -> Option<f64> {
        let count = self.folds.len() as f64;
        (count > 0.0).then(|| self.folds.iter().sum::<f64>() / count)
    }

    /// The standard deviation over the folds; `None` with fewer than two.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean().filter(|_| self.folds.len() > 1)?;
        let squares: f64 = self.folds.iter().map(|value| (value - mean).powi(2)).sum();
        Some((squares / (self.folds.len() - 1) as f64).sqrt())
    }

    /// The values as `key=value`, with spaces between.
    pub fn described(&self) -> String {
        self.values
            .iter()
            .map(|(key, value)| format!("{key}={}", inline(value)))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A search: its space, its trials.
#[derive(Clone, Debug)]
pub struct Study {
    /// The name of the run file.
    pub name: String,
    /// The folder with its files.
    pub directory: PathBuf,
    /// The space file.
    pub space: Space,
    /// The trials, in their order.
    pub trials: Vec<Trial>,
    /// Whether trial 1 has the values of the run file.
    pub has_baseline: bool,
}

impl Study {
    /// Whether a trial was measured on every fold.
    pub fn is_complete(&self, trial: &Trial) -> bool {
        trial.failure.is_none() && trial.folds.len() == self.space.folds
    }

    /// The trial with the values of the run file, if it was measured on every fold.
    pub fn baseline(&self) -> Option<&Trial> {
        self.trials.first().filter(|trial| self.has_baseline && self.is_complete(trial))
    }

    /// The trial with the highest mean over all folds; of equal ones the first.
    pub fn best(&self) -> Option<&Trial> {
        let complete = self.trials.iter().filter(|trial| self.is_complete(trial));
        complete.fold(None, |best: Option<&Trial>, trial| match best {
            Some(best) if best.mean() >= trial.mean() => Some(best),
            _ => Some(trial),
        })
    }

    /// For each trial its mean over all folds, estimated where halving has ended it early; `None` for a trial without a
    /// result.
    ///
    /// Folds differ in difficulty. The difficulty of a fold is the mean difference to the first fold, over the trials that
    /// have both. A fold that a trial lacks is counted with the mean of the trial on its folds, each corrected by the
    /// difficulty.
    pub fn estimates(&self) -> Vec<Option<f64>> {
        let usable = || self.trials.iter().filter(|trial| trial.failure.is_none());
        let mut harder = Vec::new();
        for fold in 0..self.space.folds {
            let differences: Vec<f64> =
                usable().filter_map(|trial| Some(trial.folds.get(fold)? - trial.folds[0])).collect();
            if differences.is_empty() {
                break;
            }
            harder.push(differences.iter().sum::<f64>() / differences.len() as f64);
        }
        let all = harder.iter().sum::<f64>() / harder.len().max(1) as f64;
        let estimate = |trial: &Trial| {
            if trial.failure.is_some() || trial.folds.is_empty() {
                return None;
            }
            let own: f64 = trial.folds.iter().zip(&harder).map(|(value, harder)| value - harder).sum();
            Some(own / trial.folds.len() as f64 + all)
        };
        self.trials.iter().map(estimate).collect()
    }

    /// How much each tuned key explains of the differences between the trials, largest first. Keys with one value only
    /// are left out; empty with fewer than 8 trials.
    pub fn importance(&self) -> Vec<Importance> {
        let measured: Vec<(Point, f64)> = self.told(self.trials.len(), None);
        let values: Vec<f64> = measured.iter().map(|(_, value)| *value).collect();
        let mut all: Vec<Importance> = (self.space.parameters().iter().enumerate())
            .filter_map(|(place, (key, of))| {
                let coordinates: Vec<f64> = measured.iter().map(|(point, _)| point[place]).collect();
                let parts = parts(&coordinates, matches!(of, Values::Choices(_)))?;
                importance(key, &parts, &values, self.space.seed)
            })
            .collect();
        all.sort_by(|a, b| b.explained.total_cmp(&a.explained));
        all
    }

    /// The first trials as points with their estimates; failed trials have the value `failed`, or are left out.
    pub(super) fn told(&self, first: usize, failed: Option<f64>) -> Vec<(Point, f64)> {
        let estimates = self.estimates();
        let value = |i: usize| match (&self.trials[i].failure, estimates[i]) {
            (Some(_), _) => failed,
            (None, estimate) => estimate,
        };
        (0..first).filter_map(|i| Some((self.point(&self.trials[i])?, value(i)?))).collect()
    }

    /// The coordinates of a trial.
    pub(super) fn point(&self, trial: &Trial) -> Option<Point> {
        self.space.parameters().iter().map(|(key, of)| of.coordinate(trial.values.get(*key)?)).collect()
    }

    /// The values at a point.
    pub(super) fn values(&self, point: &[f64]) -> BTreeMap<String, Value> {
        let parameters = self.space.parameters();
        parameters.iter().zip(point).map(|((key, of), &at)| ((*key).to_string(), of.value(at))).collect()
    }

    pub(super) fn dimensions(&self) -> Vec<Dimension> {
        self.space.parameters().iter().map(|(_, of)| of.dimension()).collect()
    }

    /// The trials of a round that continue after `folds` folds: those among the best share of all trials so far that have
    /// these folds. The first trial always continues if it is the run file itself.
    pub(super) fn promoted(&self, round: std::ops::Range<usize>, folds: usize) -> Vec<usize> {
        let score = |trial: &Trial| {
            let measured = trial.failure.is_none() && trial.folds.len() >= folds;
            measured.then(|| trial.folds[..folds].iter().sum::<f64>() / folds as f64)
        };
        let mut scores: Vec<f64> = self.trials[..round.end].iter().filter_map(score).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        let kept = (self.space.keep * scores.len() as f64).ceil() as usize;
        let Some(&least) = kept.checked_sub(1).and_then(|last| scores.get(last)) else { return Vec::new() };
        let goes_on = |i: &usize| {
            let baseline = *i == 0 && self.has_baseline;
            score(&self.trials[*i]).is_some_and(|score| baseline || score >= least)
        };
        round.filter(goes_on).collect()
    }
}

/// The numbers of folds after which trials are compared: 1, 2, 4, … and all.
pub(super) fn rungs(folds: usize) -> Vec<usize> {
    let mut rungs: Vec<usize> =
        std::iter::successors(Some(1), |rung| Some(rung * 2)).take_while(|rung| *rung < folds).collect();
    rungs.push(folds);
    rungs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(folds: &[&[f64]]) -> Study {
        let space = Space::parse("[space]\nkey = { low = 0, high = 1 }", "a test").unwrap();
        let trial = |(i, folds): (usize, &&[f64])| Trial {
            number: i + 1,
            folds: folds.to_vec(),
            values: [("key".to_string(), Value::Float(0.1 * i as f64))].into(),
            ..Trial::default()
        };
        Study {
            name: "test".into(),
            directory: PathBuf::new(),
            space,
            trials: folds.iter().enumerate().map(trial).collect(),
            has_baseline: false,
        }
    }

    #[test]
    fn trials_are_compared_after_one_two_four_and_all_folds() {
        assert_eq!(rungs(2), [1, 2]);
        assert_eq!(rungs(4), [1, 2, 4]);
        assert_eq!(rungs(6), [1, 2, 4, 6]);
    }

    #[test]
    fn the_better_half_of_all_trials_so_far_goes_on() {
        let mut study = study(&[&[0.5], &[0.7], &[0.6], &[0.4], &[0.55], &[0.65]]);
        assert_eq!(study.promoted(0..4, 1), [1, 2]);
        assert_eq!(study.promoted(4..6, 1), [5], "0.7, 0.65 and 0.6 are the better half of six");
        study.has_baseline = true;
        assert_eq!(study.promoted(0..4, 1), [0, 1, 2]);
        study.trials[1].failure = Some("diverged".into());
        assert_eq!(study.promoted(0..4, 1), [0, 2]);
        study.space.keep = 1.0;
        assert_eq!(study.promoted(0..4, 1), [0, 2, 3]);
        assert!(study.promoted(0..4, 2).is_empty(), "no trial has two folds");
    }

    #[test]
    fn the_estimate_of_a_trial_with_few_folds_allows_for_their_difficulty() {
        // The second fold is 0.1 harder.
        let study = study(&[&[0.6, 0.5], &[0.7], &[0.4, 0.3]]);
        let estimates: Vec<f64> = study.estimates().into_iter().flatten().collect();
        for (estimate, wanted) in estimates.iter().zip([0.55, 0.65, 0.35]) {
            assert!((estimate - wanted).abs() < 1e-12, "{estimates:?}");
        }
    }

    #[test]
    fn the_best_trial_has_all_folds() {
        let study = study(&[&[0.9], &[0.5, 0.5, 0.5, 0.5], &[0.6, 0.4, 0.6, 0.5], &[0.6, 0.5, 0.5, 0.5]]);
        assert_eq!(study.best().unwrap().number, 3);
        assert!((study.best().unwrap().deviation().unwrap() - 0.0957).abs() < 1e-4);
    }
}
