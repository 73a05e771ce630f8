//! How much of the differences between trials a parameter explains.
//!
//! The measure is the correlation ratio: the trials are divided by the value of one parameter, and the variance of the
//! means of the parts is divided by the variance of all trials. It is 0 where the parameter does not matter and 1 where it
//! decides alone. Choices, and numbers of up to four different values, are divided by their value; other numbers into up
//! to four parts of equal size in their order.
//!
//! A few trials have a correlation ratio above 0 by chance. `chance` is the value that 95 % of 1,000 random orders of
//! the results stay below; a parameter matters if its share is clearly above that. Trials that follow the results are
//! not spread evenly, so the shares describe the trials that were made, not the whole space.

use gallerist_util::random::Random;
use serde::Serialize;

/// The fewest trials from which importance is computed.
const LEAST: usize = 8;
/// Trials of one part at least.
const PART: usize = 4;
const PARTS: usize = 4;
const ORDERS: usize = 1000;

/// The importance of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Importance {
    /// The key of the run file.
    pub parameter: String,
    /// Share of the variance between trials that the parameter explains, 0 to 1.
    pub explained: f64,
    /// The value that chance stays below in 95 of 100 cases.
    pub chance: f64,
}

/// The parts of the trials by their coordinates; `None` where there are too few trials or only one part.
pub(super) fn parts(coordinates: &[f64], is_choice: bool) -> Option<Vec<usize>> {
    if coordinates.len() < LEAST {
        return None;
    }
    let mut sorted = coordinates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let parts: Vec<usize> = if is_choice {
        coordinates.iter().map(|&choice| choice as usize).collect()
    } else {
        let mut different = sorted.clone();
        different.dedup();
        let count = (coordinates.len() / PART).min(PARTS);
        // Equal values are in one part, by the middle of their ranks.
        let place = |value: f64| match different.len() <= PARTS {
            true => different.partition_point(|&other| other < value),
            false => {
                let ranks =
                    [sorted.partition_point(|&other| other < value), sorted.partition_point(|&o| o <= value)];
                (ranks[0] + ranks[1] - 1) * count / (2 * sorted.len())
            }
        };
        coordinates.iter().map(|&value| place(value)).collect()
    };
    (parts.iter().any(|part| *part != parts[0])).then_some(parts)
}

/// The importance of a parameter; `None` as for [`parts`], and where all values are equal.
pub(super) fn importance(parameter: &str, parts: &[usize], values: &[f64], seed: u64) -> Option<Importance> {
    let explained = correlation_ratio(parts, values)?;
    let mut random = Random::new(seed, "importance", 0, 0);
    let mut shuffled = values.to_vec();
    let mut by_chance: Vec<f64> = (0..ORDERS)
        .filter_map(|_| {
            random.shuffle(&mut shuffled);
            correlation_ratio(parts, &shuffled)
        })
        .collect();
    by_chance.sort_by(f64::total_cmp);
    let chance = by_chance.get(ORDERS * 95 / 100).copied().unwrap_or(1.0);
    Some(Importance { parameter: parameter.into(), explained, chance })
}

fn correlation_ratio(parts: &[usize], values: &[f64]) -> Option<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let total: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if total <= f64::EPSILON * values.len() as f64 {
        return None;
    }
    let mut sums = vec![(0.0, 0.0); parts.iter().max()? + 1];
    for (&part, value) in parts.iter().zip(values) {
        sums[part].0 += value - mean;
        sums[part].1 += 1.0;
    }
    let between: f64 =
        sums.iter().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum * sum / count).sum();
    Some(between / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_decides_explains_all_and_one_that_does_not_stays_below_chance() {
        let mut random = Random::new(1, "test", 0, 0);
        let noise: Vec<f64> = (0..40).map(|_| random.unit()).collect();
        let choice: Vec<f64> = (0..40).map(|i| f64::from(i % 3)).collect();
        let values: Vec<f64> = choice.iter().map(|choice| choice * choice).collect();
        let of = |coordinates: &[f64], is_choice| {
            importance("p", &parts(coordinates, is_choice).unwrap(), &values, 1).unwrap()
        };
        let decisive = of(&choice, true);
        assert!((decisive.explained - 1.0).abs() < 1e-12 && decisive.chance < 0.3, "{decisive:?}");
        let idle = of(&noise, false);
        assert!(idle.explained < idle.chance, "{idle:?}");
        assert_eq!(of(&noise, false), idle);
    }

    #[test]
    fn the_ratio_of_two_parts_is_as_calculated_by_hand() {
        // Means 2 and 5, mean of all 3.2.
        let values = [1.0, 2.0, 3.0, 4.0, 6.0];
        let ratio = correlation_ratio(&[0, 0, 0, 1, 1], &values).unwrap();
        let total: f64 = [2.2, 1.2, 0.2, 0.8, 2.8].iter().map(|d: &f64| d * d).sum();
        assert!((ratio - (3.0 * 1.44 + 2.0 * 3.24) / total).abs() < 1e-12, "{ratio}");
    }

    #[test]
    fn too_few_trials_or_equal_values_give_none() {
        assert!(parts(&[0.1; 7], false).is_none());
        assert!(parts(&[0.1; 20], false).is_none());
        let spread: Vec<f64> = (0..20).map(f64::from).collect();
        assert!(importance("p", &parts(&spread, false).unwrap(), &[0.5; 20], 1).is_none());
        let sizes = parts(&spread, false).unwrap().iter().fold([0; 4], |mut sizes, &part| {
            sizes[part] += 1;
            sizes
        });
        assert_eq!(sizes, [5; 4]);
        let few: Vec<f64> = [0.1, 0.3, 0.3, 0.3, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9].into();
        assert_eq!(parts(&few, false).unwrap(), [0, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
        let ties: Vec<f64> = [0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 0.9, 0.9, 0.9, 0.9].into();
        assert_eq!(parts(&ties, false).unwrap(), [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    }
}
