//! Is it a match? The threshold that keeps a wanted false match rate, with a bound that holds over identities.

mod bound;
mod open_set;
mod pairs;
mod rule;
mod searches;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use self::bound::Confidence;
use self::pairs::{Pairs, Rows};
use self::searches::{Expected, Searches, Weighed, miss_rates, search};
use super::allowed;
use super::classes::RowClasses;
use super::task::Task;
use crate::random::{different, generator};
use crate::search::{Metric, score_of};
use crate::{Error, Result};

pub use open_set::{Identification, OpenSet, OpenSetOptions, open_set};
pub use rule::{Decision, FalseRate, MatchRule};

/// How [`calibrate`] chooses a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThresholdOptions {
    /// What the target is a rate of.
    pub rate: FalseRate,
    /// The wanted rate, above 0, at most 0.5; 0.001 by default.
    pub target: f64,
    /// The confidence of the bound, from 0.5 to below 1; 0.95 by default.
    pub confidence: f64,
    /// Choose the threshold whose bound, and not whose measured rate, is at most the target.
    pub guarantee: bool,
    /// How often the identities are divided into halves to measure the rate on the half that the threshold was not
    /// calibrated on; 10 by default.
    pub splits: usize,
    /// Decides the halves, and per search which identities are unknown.
    pub seed: u64,
}

impl Default for ThresholdOptions {
    fn default() -> Self {
        Self {
            rate: FalseRate::Comparison,
            target: 0.001,
            confidence: 0.95,
            guarantee: false,
            splits: 10,
            seed: 0,
        }
    }
}

/// A calibrated threshold, the data it comes from, and the rates on data that it does not come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The threshold with its rates.
    #[serde(flatten)]
    pub rule: MatchRule,
    /// Identities of the impostor pairs, or of the searches of unknown identities.
    pub identities: usize,
    /// Images of these identities.
    pub images: usize,
    /// Pairs of images of two identities, or searches of unknown identities.
    pub impostors: u64,
    /// Pairs of images of one identity, or searches of known ones.
    pub genuine: u64,
    /// Identities of the genuine pairs or searches.
    pub genuine_identities: usize,
    /// The smallest rate that these identities can guarantee with this confidence, even without one false match.
    pub smallest_guaranteed: f64,
    /// Identities that are needed to guarantee the target at all: the bound of 0 false matches is the target.
    pub identities_needed: usize,
    /// The rates on identities that the threshold was not calibrated on; `None` where half of the identities are too few.
    pub held_out: Option<HeldOut>,
    /// Remarks about what the data cannot say.
    pub notes: Vec<String>,
}

/// Rates on identities that the threshold was not calibrated on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// The seed of the halves.
    pub seed: u64,
    /// The false match rate of each split, on the half of the identities that was not used.
    pub rates: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// The miss rate on the same halves, the mean; per search: of all searches of known identities.
    pub miss_rate: Option<f64>,
}

/// Calibrates the threshold at which a pair of images, or the result of a search, is a match.
///
/// Every identity has the same weight, and so has every pair of identities: the rates are those of random images of
/// random identities, and do not depend on how many images an identity has.
///
/// - [`FalseRate::Comparison`] uses all pairs of a task of one set. The false match rate is the mean, over all pairs of
///   identities, of the share of their image pairs that are accepted; the miss rate is the mean, over identities, of the
///   share of their image pairs that are refused. Pairs of one identity and camera do not count.
/// - [`FalseRate::Search`] searches a gallery with images of unknown identities: those queries of a split task that have no
///   image of their label in the gallery, or, where there are none, half of the identities, which are taken out of the
///   gallery. The rate is the mean, over unknown identities, of the share of their searches that return a match (FPIR of
///   ISO/IEC 19795-1). It is that of this gallery; a larger one has more false matches.
///
/// The threshold is the most permissive one whose measured rate is at most the target, or, with
/// [`guarantee`](ThresholdOptions::guarantee), whose bound is. In both cases [`MatchRule::bound`] holds with the given
/// confidence for identities drawn as these were, and for every distribution of scores; the proof is in `bound.rs`.
///
/// Time is that of all scores of the task, three times, and `splits * 3 / 4` times as long again; memory that of a
/// packed copy of the rows. Everything is exact, and the same for any number of threads.
///
/// ```
/// use gallerist_retrieval::eval::{Side, Task, ThresholdOptions, calibrate};
/// use gallerist_retrieval::{Matrix, search::Metric};
///
/// // 200 identities on a line, 2 images each.
/// let rows: Vec<f32> = (0..400).map(|row| (row / 2) as f32 + 0.25 * (row % 2) as f32).collect();
/// let labels: Vec<u32> = (0..400).map(|row| row / 2).collect();
/// let rows = Matrix::new(400, 1, rows)?;
/// let task = Task::every_row(Side::classes(&rows, &labels));
/// let options = ThresholdOptions { target: 0.05, ..ThresholdOptions::default() };
/// let found = calibrate(&task, Metric::Euclidean, &options)?;
/// assert!(found.rule.measured <= 0.05 && found.rule.bound > 0.05);
/// assert_eq!(found.rule.miss_rate, Some(0.0));
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`] for an option outside its range and for label sets; [`Error::Protocol`] where there are too few
/// identities or pairs for the target, and for a comparison of two sets; and as [`Task::measure`].
pub fn calibrate(task: &Task, metric: Metric, options: &ThresholdOptions) -> Result<Calibration> {
    options.check()?;
    task.check(&super::EvalOptions { metric, measures: Vec::new() })?;
    let Some(problem) = task.classed(task.is_one_set())? else {
        return Err(Error::Option {
            option: "labels",
            wanted: "one class per row to calibrate a threshold",
            found: "label sets".to_owned(),
        });
    };
    match options.rate {
        FalseRate::Comparison if !problem.same => Err(Error::Protocol {
            what: "a threshold per comparison".to_owned(),
            problem: "is calibrated on the pairs of one set, and there are queries and a gallery".to_owned(),
            hint: Some("give one file of embeddings, or calibrate per search".to_owned()),
        }),
        FalseRate::Comparison => {
            let side = &problem.queries;
            let rows =
                Rows { embeddings: side.embeddings, classes: side.labels, cameras: side.cameras, metric };
            let counts = |class: u32| Some(class) != problem.junk;
            let all = Pairs::new(rows, counts)?;
            let data = Data {
                sizes: Sizes::of_pairs(all.identities(), all.impostors()),
                images: all.images(),
                genuine: all.genuine(),
                genuine_identities: all.identities_with_pairs(),
                gallery: None,
            };
            let classes = distinct(side.labels.iter().copied().filter(|&class| counts(class)));
            options.run(&all, &classes, &data, metric, |half| Pairs::new(rows, |class| half.contains(&class)))
        }
        FalseRate::Search => {
            let searches = search(&problem, metric, options.seed)?;
            let all = OfSearches { weighed: Weighed::new(&searches, |_| true), searches: &searches };
            let of = |known: bool| searches.queries.iter().filter(move |search| search.known == known);
            let unknown = distinct(of(false).map(|search| search.identity));
            let data = Data {
                sizes: Sizes::of_searches(unknown.len(), all.weighed.len()),
                images: all.weighed.len(),
                genuine: of(true).count() as u64,
                genuine_identities: distinct(of(true).map(|search| search.identity)).len(),
                gallery: Some(searches.gallery),
            };
            let mut found = options.run(&all, &unknown, &data, metric, |half| {
                let weighed = Weighed::new(&searches, |identity| half.contains(&identity));
                Ok(OfSearches { weighed, searches: &searches })
            })?;
            if searches.taken_out > 0 {
                found.notes.insert(
                    0,
                    format!(
                        "{} identities were taken out of the gallery to be unknown; {} images are left in it",
                        searches.taken_out, searches.gallery
                    ),
                );
            }
            Ok(found)
        }
    }
}

fn distinct(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Scores of some identities.
trait Sample {
    /// For each rate the lowest key at which the false match rate is at most this one.
    fn keys_at(&self, rates: &[f64]) -> Vec<u32>;

    /// The false match rate and the miss rate at each key.
    fn rates(&self, keys: &[u32]) -> Vec<(f64, Option<f64>)>;
}

impl Sample for Pairs {
    fn keys_at(&self, rates: &[f64]) -> Vec<u32> {
        self.keys_at(rates)
    }

    fn rates(&self, keys: &[u32]) -> Vec<(f64, Option<f64>)> {
        let (accepted, all) = self.accepted(keys);
        accepted.into_iter().map(|of| of.rates(all)).collect()
    }
}

struct OfSearches<'a> {
    weighed: Weighed,
    searches: &'a Searches,
}

impl Sample for OfSearches<'_> {
    fn keys_at(&self, rates: &[f64]) -> Vec<u32> {
        self.weighed.keys_at(rates)
    }

    fn rates(&self, keys: &[u32]) -> Vec<(f64, Option<f64>)> {
        self.weighed.rates(keys).into_iter().zip(miss_rates(self.searches, keys)).collect()
    }
}

/// What there is to calibrate on.
struct Data {
    sizes: Sizes,
    images: usize,
    genuine: u64,
    genuine_identities: usize,
    gallery: Option<usize>,
}

/// What the false match rate is measured on.
struct Sizes {
    identities: usize,
    impostors: u64,
    /// Independent units among so many identities, and the reverse.
    units: fn(usize) -> usize,
    identities_of: fn(usize) -> usize,
}

impl Sizes {
    /// Pairs of images of different identities.
    fn of_pairs(identities: usize, impostors: u64) -> Self {
        Self { identities, impostors, units: |identities| identities / 2, identities_of: |units| 2 * units }
    }

    /// Searches for unknown identities.
    fn of_searches(identities: usize, searches: usize) -> Self {
        let same = |count| count;
        Self { identities, impostors: searches as u64, units: same, identities_of: same }
    }
}

/// False matches that an estimate needs: with 30 errors, the true rate is within 30 % of the measured one with a
/// confidence of 90 % if they are independent (Doddington's rule of 30; ISO/IEC 19795-1, annex B).
const ENOUGH_ERRORS: f64 = 30.0;

/// The rate of a near result, as a multiple of the target, and its limit.
const NEAR: (f64, f64) = (10.0, 0.5);

impl ThresholdOptions {
    /// # Errors
    /// [`Error::Option`] for a value outside its range.
    pub fn check(&self) -> Result<()> {
        let refuse =
            |option, wanted, found: f64| Err(Error::Option { option, wanted, found: found.to_string() });
        if !(self.target > 0.0 && self.target <= 0.5) {
            return refuse("the false match rate", "above 0 and at most 0.5", self.target);
        }
        if !(0.5..1.0).contains(&self.confidence) {
            return refuse("the confidence", "from 0.5 to below 1", self.confidence);
        }
        if self.splits > 10_000 {
            return refuse("the number of splits", "at most 10000", self.splits as f64);
        }
        Ok(())
    }

    /// Whether there are enough identities for the target, before their images are embedded.
    ///
    /// # Errors
    /// [`Error::Option`] and [`Error::Protocol`] as [`calibrate`].
    pub fn check_rows(&self, rows: &RowClasses) -> Result<()> {
        self.check()?;
        let sizes = match self.rate {
            FalseRate::Comparison => {
                let sorted = rows.sorted();
                let square = |images: usize| (images as u64).pow(2);
                let alike: u64 = sorted.chunk_by(|a, b| a == b).map(|class| square(class.len())).sum();
                let impostors = (square(sorted.len()) - alike) / 2;
                Sizes::of_pairs(distinct(sorted.into_iter()).len(), impostors)
            }
            FalseRate::Search => {
                let expected = Expected::new(rows, self.seed);
                Sizes::of_searches(expected.unknown_identities, expected.unknown)
            }
        };
        self.accepted_rate(&sizes).map(drop)
    }

    /// The identities that guarantee the target if there is no false match.
    fn identities_needed(&self, sizes: &Sizes) -> usize {
        (sizes.identities_of)(Confidence::units_for(self.target, 1.0 - self.confidence))
    }

    fn confidence(&self, sizes: &Sizes, identities: usize) -> Confidence {
        Confidence { units: (sizes.units)(identities), delta: 1.0 - self.confidence }
    }

    /// The rate that is measured at the threshold; `None` where so many identities cannot guarantee the target.
    fn measured_target(&self, sizes: &Sizes, identities: usize) -> Option<f64> {
        if self.guarantee {
            self.confidence(sizes, identities).largest_measured(self.target)
        } else {
            Some(self.target)
        }
    }

    fn run<S: Sample>(
        &self,
        all: &S,
        identities: &[u32],
        data: &Data,
        metric: Metric,
        of_half: impl Fn(&HashSet<u32>) -> Result<S>,
    ) -> Result<Calibration> {
        let sizes = &data.sizes;
        let needed = self.identities_needed(sizes);
        let wanted = self.accepted_rate(sizes)?;
        let near = (NEAR.0 * self.target).min(NEAR.1);
        let keys = all.keys_at(&[wanted, near]);
        let (measured, miss_rate) = all.rates(&keys[..1])[0];
        let confidence = self.confidence(sizes, sizes.identities);
        let rule = MatchRule {
            metric,
            threshold: score_at(metric, keys[0]),
            near: score_at(metric, keys[1].min(keys[0])),
            rate: self.rate,
            target: self.target,
            measured,
            // The threshold was chosen by `wanted`, which does not depend on the scores: its bound is valid.
            bound: if self.guarantee { self.target } else { confidence.upper(wanted) },
            confidence: self.confidence,
            miss_rate,
            gallery: data.gallery,
            model: None,
        };
        let held_out = self.held_out(identities, data, of_half)?;
        Ok(Calibration {
            notes: self.notes(data, &rule, held_out.as_ref(), needed),
            rule,
            identities: sizes.identities,
            images: data.images,
            impostors: sizes.impostors,
            genuine: data.genuine,
            genuine_identities: data.genuine_identities,
            smallest_guaranteed: confidence.smallest(),
            identities_needed: needed,
            held_out,
        })
    }

    /// The rate that is to be measured, or what is missing for it.
    fn accepted_rate(&self, sizes: &Sizes) -> Result<f64> {
        let what = format!("a {} of {}", self.rate.long_name(), self.target);
        let refuse = |problem: String, hint: String| {
            Err(Error::Protocol { what: what.clone(), problem, hint: Some(hint) })
        };
        let found = sizes.identities;
        if (sizes.units)(found) < 2 {
            return refuse(
                format!("cannot be calibrated on {found} identities"),
                "give embeddings of at least four identities that the network was not trained on".to_owned(),
            );
        }
        let smallest = self.confidence(sizes, found).smallest();
        let Some(wanted) = self.measured_target(sizes, found) else {
            let needed = self.identities_needed(sizes);
            return refuse(
                format!(
                    "cannot be guaranteed with confidence {}: {found} identities guarantee {} at best, {needed} are \
                     needed",
                    self.confidence,
                    shown(smallest)
                ),
                format!("give more identities, --far {}, or leave out --guarantee", shown(smallest)),
            );
        };
        if allowed(self.target, sizes.impostors as f64) < 1.0 {
            let unit =
                if self.rate == FalseRate::Comparison { "pairs of two identities" } else { "searches" };
            return refuse(
                format!(
                    "cannot be measured on {} {unit}: less than one of them may be accepted",
                    sizes.impostors
                ),
                format!("give more identities, or at least --far {}", shown(1.0 / sizes.impostors as f64)),
            );
        }
        Ok(wanted)
    }

    fn held_out<S: Sample>(
        &self,
        identities: &[u32],
        data: &Data,
        of_half: impl Fn(&HashSet<u32>) -> Result<S>,
    ) -> Result<Option<HeldOut>> {
        let half = identities.len() / 2;
        // A quarter of the pairs, or half of the searches.
        let share = if self.rate == FalseRate::Comparison { 4.0 } else { 2.0 };
        let sizes = &data.sizes;
        let enough = allowed(self.target, sizes.impostors as f64 / share) >= 1.0;
        let Some(wanted) = self.measured_target(sizes, half).filter(|_| enough && (sizes.units)(half) > 0)
        else {
            return Ok(None);
        };
        let (mut rates, mut misses) = (Vec::with_capacity(self.splits), Vec::new());
        for split in 0..self.splits {
            let drawn = different(identities.len(), half, &mut generator(self.seed, split as u64));
            let used: HashSet<u32> = drawn.into_iter().map(|at| identities[at]).collect();
            let rest: HashSet<u32> = identities.iter().copied().filter(|of| !used.contains(of)).collect();
            let keys = of_half(&used)?.keys_at(&[wanted]);
            let (rate, miss) = of_half(&rest)?.rates(&keys)[0];
            rates.push(rate);
            misses.extend(miss);
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        Ok((!rates.is_empty()).then(|| HeldOut {
            seed: self.seed,
            mean: mean(&rates),
            miss_rate: (!misses.is_empty()).then(|| mean(&misses)),
            rates,
        }))
    }

    fn notes(&self, data: &Data, rule: &MatchRule, held_out: Option<&HeldOut>, needed: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let errors = rule.measured * data.sizes.impostors as f64;
        if errors < ENOUGH_ERRORS {
            notes.push(format!(
                "about {errors:.0} false matches decide the threshold; {ENOUGH_ERRORS} are needed for an estimate within \
                 30 %"
            ));
        }
        if rule.bound > self.target {
            let smallest = self.confidence(&data.sizes, data.sizes.identities).smallest();
            notes.push(format!(
                "{} is an estimate: with confidence {} it is at most {}. {} identities can guarantee {} at best; {needed} are \
                 needed to guarantee {}",
                self.target,
                self.confidence,
                shown(rule.bound),
                data.sizes.identities,
                shown(smallest),
                self.target
            ));
        }
        if held_out.is_none() && self.splits > 0 {
            notes.push("half of the identities are too few to calibrate on: no held-out rate".to_owned());
        }
        notes
    }
}

impl FalseRate {
    /// `false match rate` or `false positive identification rate`.
    pub const fn long_name(self) -> &'static str {
        match self {
            Self::Comparison => "false match rate",
            Self::Search => "false positive identification rate",
        }
    }
}

/// Two significant digits, rounded up: a rate that is printed is one that can be asked for.
fn shown(rate: f64) -> String {
    let digits = (1 - rate.log10().floor() as i32).max(0) as usize;
    let scale = 10f64.powi(digits as i32);
    format!("{:.digits$}", (rate * scale).ceil() / scale)
}

/// The similarity or distance of a key.
fn score_at(metric: Metric, key: u32) -> f32 {
    metric.present(score_of(u64::from(key) << 32))
}

#[cfg(test)]
mod tests;
