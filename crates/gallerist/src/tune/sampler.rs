//! The next point of a search: a tree-structured Parzen estimator (TPE).
//!
//! Bergstra, Bardenet, Bengio and Kégl, Algorithms for hyper-parameter optimization (2011): the trials so far are divided
//! into the good ones, the best share [`GOOD`], and the others. Each part gives a density of points, `l` and `g`. Of
//! [`CANDIDATES`] points that are drawn from `l`, the next trial is the one with the highest `l / g`.
//!
//! A density is a mixture with one kernel for each trial and a wide one, the prior. A kernel covers all dimensions, so
//! the densities express that two parameters are good together (as `multivariate = true` in Optuna, whose bandwidth is
//! used here, too: `0.2 n^(-1/(d + 4))` of the range).
//!
//! Hand-written, because the published crates do not fit: `tpe` needs a feature of `rand` that would have the tensor engine
//! compiled a second time, and has a density per parameter only; `optimizer` holds its random state, so a search could
//! not be continued from its trials. With [`Random`] a point is a function of the seed, the trials and the number of the
//! trial.

use gallerist_util::random::Random;

/// Share of the trials that count as good.
const GOOD: f64 = 0.15;
/// Points that are drawn for one trial.
const CANDIDATES: usize = 24;

/// The values of one coordinate of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Dimension {
    /// From 0 to below 1.
    Interval,
    /// A whole number below this one, without order.
    Choice(usize),
}

/// A point: a coordinate for each dimension.
pub(super) type Point = Vec<f64>;

/// A point drawn evenly.
pub(super) fn uniform(dimensions: &[Dimension], random: &mut Random) -> Point {
    let one = |dimension: &Dimension| match *dimension {
        Dimension::Interval => random.unit(),
        Dimension::Choice(count) => random.below(count) as f64,
    };
    dimensions.iter().map(one).collect()
}

/// Points for the next trial, the most promising first. `told` has the points so far with their values, larger is
/// better; the value of a failed trial is negative infinity.
pub(super) fn suggest(dimensions: &[Dimension], told: &[(Point, f64)], random: &mut Random) -> Vec<Point> {
    let mut order: Vec<usize> = (0..told.len()).collect();
    // The order of equal values is that of the trials.
    order.sort_by(|&a, &b| told[b].1.total_cmp(&told[a].1));
    let good = (GOOD * told.len() as f64).ceil() as usize;
    let part = |of: &[usize]| Density::new(dimensions, of.iter().map(|&i| told[i].0.as_slice()).collect());
    let (good, others) = (part(&order[..good]), part(&order[good..]));
    let mut candidates: Vec<(Point, f64)> = (0..CANDIDATES)
        .map(|_| {
            let point = good.draw(random);
            let gain = good.log(&point) - others.log(&point);
            (point, gain)
        })
        .collect();
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1));
    candidates.into_iter().map(|(point, _)| point).collect()
}

/// A mixture of one kernel for each point, and the prior.
struct Density<'a> {
    dimensions: &'a [Dimension],
    points: Vec<&'a [f64]>,
    /// Standard deviation of the kernels in an interval.
    width: f64,
}

impl<'a> Density<'a> {
    fn new(dimensions: &'a [Dimension], points: Vec<&'a [f64]>) -> Self {
        let kernels = points.len() as f64 + 1.0;
        let width = 0.2 * kernels.powf(-1.0 / (dimensions.len() as f64 + 4.0));
        Density { dimensions, width: width.max(1.0 / kernels.min(100.0)).min(1.0), points }
    }

    /// Mean and standard deviation of a kernel in an interval; the prior is wide and in the middle.
    fn normal(&self, kernel: usize, dimension: usize) -> (f64, f64) {
        self.points.get(kernel).map_or((0.5, 1.0), |point| (point[dimension], self.width))
    }

    /// Probability of a choice under a kernel.
    fn share(&self, kernel: usize, dimension: usize, count: usize, choice: f64) -> f64 {
        let even = 1.0 / (self.points.len() + 1) as f64;
        match self.points.get(kernel) {
            Some(point) => (f64::from(point[dimension] == choice) + even) / (1.0 + count as f64 * even),
            None => 1.0 / count as f64,
        }
    }

    fn draw(&self, random: &mut Random) -> Point {
        let kernel = random.below(self.points.len() + 1);
        let one = |(place, dimension): (usize, &Dimension)| match *dimension {
            Dimension::Interval => {
                let (mean, deviation) = self.normal(kernel, place);
                loop {
                    // Box and Muller; `1 - unit` is never 0.
                    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
                    let value = mean + deviation * radius * (std::f64::consts::TAU * random.unit()).cos();
                    if (0.0..1.0).contains(&value) {
                        return value;
                    }
                }
            }
            Dimension::Choice(count) => {
                let mut left = random.unit();
                for choice in 0..count {
                    left -= self.share(kernel, place, count, choice as f64);
                    if left < 0.0 {
                        return choice as f64;
                    }
                }
                (count - 1) as f64
            }
        };
        self.dimensions.iter().enumerate().map(one).collect()
    }

    /// Logarithm of the density at a point.
    fn log(&self, point: &[f64]) -> f64 {
        let of_kernel = |kernel: usize| -> f64 {
            let one = |(place, dimension): (usize, &Dimension)| match *dimension {
                Dimension::Interval => {
                    let (mean, deviation) = self.normal(kernel, place);
                    let inside = cumulative((1.0 - mean) / deviation) - cumulative(-mean / deviation);
                    let distance = (point[place] - mean) / deviation;
                    -0.5 * distance * distance - (deviation * inside * std::f64::consts::TAU.sqrt()).ln()
                }
                Dimension::Choice(count) => self.share(kernel, place, count, point[place]).ln(),
            };
            self.dimensions.iter().enumerate().map(one).sum()
        };
        let logs: Vec<f64> = (0..=self.points.len()).map(of_kernel).collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logs.iter().map(|log| (log - largest).exp()).sum();
        largest + sum.ln() - (logs.len() as f64).ln()
    }
}

/// The cumulative distribution of the standard normal, to 1e-7 (Abramowitz and Stegun 7.1.26).
fn cumulative(x: f64) -> f64 {
    const A: [f64; 5] = [0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429];
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let series = A.iter().rev().fold(0.0, |sum, a| (sum + a) * t);
    let erf = 1.0 - series * (-z * z).exp();
    0.5 * (1.0 + erf.copysign(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: [Dimension; 3] = [Dimension::Interval, Dimension::Interval, Dimension::Choice(3)];

    /// Best at (0.2, 0.7) with choice 1.
    fn objective(point: &[f64]) -> f64 {
        -(point[0] - 0.2).powi(2) - (point[1] - 0.7).powi(2) - f64::from(point[2] != 1.0)
    }

    fn search(seed: u64, trials: usize, follow: bool) -> Vec<(Point, f64)> {
        let mut told: Vec<(Point, f64)> = Vec::new();
        for trial in 0..trials {
            let mut random = Random::new(seed, "test", 0, trial as u64);
            let point = match follow && trial >= 10 {
                true => suggest(&SPACE, &told, &mut random).swap_remove(0),
                false => uniform(&SPACE, &mut random),
            };
            let value = objective(&point);
            told.push((point, value));
        }
        told
    }

    #[test]
    fn trials_that_follow_the_results_are_better_than_random_ones() {
        let mean = |follow| {
            let late = |seed| search(seed, 50, follow)[40..].iter().map(|told| told.1).sum::<f64>() / 10.0;
            (0..5).map(late).sum::<f64>() / 5.0
        };
        let (followed, random) = (mean(true), mean(false));
        assert!(
            followed > 0.5 * random,
            "mean of trials 41 to 50: {followed} after results, {random} at random"
        );
    }

    #[test]
    fn a_point_is_a_function_of_seed_and_trials_and_lies_in_the_space() {
        assert_eq!(search(3, 30, true), search(3, 30, true));
        assert_ne!(search(3, 30, true), search(4, 30, true));
        for (point, _) in search(3, 60, true) {
            assert!((0.0..1.0).contains(&point[0]) && (0.0..1.0).contains(&point[1]), "{point:?}");
            assert!([0.0, 1.0, 2.0].contains(&point[2]), "{point:?}");
        }
    }

    #[test]
    fn a_density_integrates_to_one() {
        let points = [vec![0.01, 0.0], vec![0.5, 2.0], vec![0.97, 2.0]];
        let space = [Dimension::Interval, Dimension::Choice(3)];
        let density = Density::new(&space, points.iter().map(Vec::as_slice).collect());
        const CELLS: usize = 2000;
        let mut integral = 0.0;
        for cell in 0..CELLS {
            for choice in 0..3 {
                let at = [(cell as f64 + 0.5) / CELLS as f64, f64::from(choice)];
                integral += density.log(&at).exp() / CELLS as f64;
            }
        }
        assert!((integral - 1.0).abs() < 1e-5, "{integral}");
    }

    #[test]
    fn failed_trials_and_few_trials_are_no_fault() {
        let mut random = Random::new(1, "test", 0, 0);
        let failed = vec![(vec![0.5, 0.5, 0.0], f64::NEG_INFINITY); 2];
        assert_eq!(suggest(&SPACE, &failed, &mut random)[0].len(), 3);
        assert_eq!(suggest(&SPACE, &[], &mut random)[0].len(), 3);
    }
}
