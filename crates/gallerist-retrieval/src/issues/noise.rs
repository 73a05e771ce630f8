//! The noise of labels: a label is random with a probability that is estimated from the labels themselves.
//!
//! With D(i, c) the distance of image i to class c, the label y of image i has the probability
//!
//! ```text
//! p(y | i) = (1 - e) s(y | i) + e / C,    s(c | i) = exp(-D(i, c) / T) / sum over c' of exp(-D(i, c') / T)
//! ```
//!
//! of C classes: with probability e the label is drawn at random (the symmetric label noise of Mnih and Hinton, ICML
//! 2012). The distance to the image's own class leaves the image out, so this is a leave-one-out likelihood. T maximizes
//! the mean of ln s over the images, without the 5 % that have the lowest (a trimmed likelihood: Hadi and Luceno,
//! Computational Statistics and Data Analysis 1997), so that wrong labels do not raise it; of temperatures that are as
//! good to 0.001, the highest. e maximizes the likelihood of all labels at that T. The probability that the label of image i
//! is random follows by Bayes' rule: (e / C) / p(y | i).
//!
//! Confident learning (Northcutt, Jiang and Chuang, JAIR 2021) counts the images whose probability of another class is
//! above the mean of that class. Where a network confuses classes it counts these confusions as errors;
//! `docs/clean-data.md` compares both on the same embeddings.

use rayon::prelude::*;

/// The distances of an image to its own class and to others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClassDistances {
    /// To its own class.
    pub own: f32,
    /// To the nearest of the other classes, rising: class and distance.
    pub others: Vec<(u32, f32)>,
}

/// The fitted noise of labels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Noise {
    /// T.
    pub temperature: f64,
    /// e.
    pub rate: f64,
}

impl Noise {
    /// The temperature of the trimmed likelihood, and the rate at it.
    pub(super) fn fit(images: &[&ClassDistances], classes: usize) -> Self {
        let mut nearest: Vec<f64> = images.iter().map(|image| f64::from(image.nearest())).collect();
        let scale = if nearest.is_empty() { 0.0 } else { super::neighbours::median(&mut nearest) };
        if scale == 0.0 || classes < 2 {
            return Self { temperature: 1.0, rate: 0.0 };
        }
        let temperatures = (0..=GRID).map(|i| scale * 2f64.powf(f64::from(i) / 4.0 - 10.0));
        let tried: Vec<(f64, f64)> = temperatures.map(|t| (t, trimmed_likelihood(images, t))).collect();
        let best = tried.iter().map(|&(_, likelihood)| likelihood).fold(f64::NEG_INFINITY, f64::max);
        let as_good = tried.iter().rfind(|&&(_, likelihood)| likelihood >= best - TOLERANCE);
        let temperature = as_good.expect("the best is as good as itself").0;
        Self { temperature, rate: rate(&log_shares(images, temperature), classes) }
    }

    /// The probability that the label of an image is random.
    pub(super) fn probability(&self, log_share: f64, classes: usize) -> f64 {
        let random = self.rate / classes as f64;
        if random == 0.0 { 0.0 } else { random / ((1.0 - self.rate) * log_share.exp() + random) }
    }
}

/// Points of the grid of temperatures, a quarter of a power of two apart: up to twice the median distance to the
/// nearest class.
const GRID: u8 = 44;
/// Difference of mean log likelihoods that does not count.
const TOLERANCE: f64 = 0.001;
/// One in so many images is left out of the trimmed likelihood.
const TRIMMED: usize = 20;
/// Most rounds of expectation maximization.
const ROUNDS: usize = 500;

fn log_shares(images: &[&ClassDistances], temperature: f64) -> Vec<f64> {
    images.par_iter().map(|image| image.log_share(temperature)).collect()
}

/// The mean of ln s(y | i) without the lowest.
fn trimmed_likelihood(images: &[&ClassDistances], temperature: f64) -> f64 {
    let mut shares = log_shares(images, temperature);
    shares.sort_unstable_by(f64::total_cmp);
    let kept = &shares[shares.len() / TRIMMED..];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// The rate of the highest likelihood, the fixed point of expectation maximization; the likelihood is concave in it.
fn rate(log_shares: &[f64], classes: usize) -> f64 {
    let shares: Vec<f64> = log_shares.iter().map(|share| share.exp()).collect();
    let random = 1.0 / classes as f64;
    let mut rate = 0.05;
    for _ in 0..ROUNDS {
        let of = |share: &f64| rate * random / ((1.0 - rate) * share + rate * random);
        let next = shares.iter().map(of).sum::<f64>() / shares.len() as f64;
        // Not 0: the share of a label far from its class may underflow.
        let change = (next - rate).abs();
        rate = next.clamp(1e-12, 1.0);
        if change < 1e-9 {
            break;
        }
    }
    rate
}

impl ClassDistances {
    /// The smallest distance to any class.
    fn nearest(&self) -> f32 {
        self.others.first().map_or(self.own, |&(_, distance)| distance.min(self.own))
    }

    /// ln s(y | i).
    pub(super) fn log_share(&self, temperature: f64) -> f64 {
        let nearest = f64::from(self.nearest());
        let term = |distance: f32| (nearest - f64::from(distance)) / temperature;
        let sum: f64 = self.others.iter().map(|&(_, distance)| term(distance).exp()).sum();
        term(self.own) - (sum + term(self.own).exp()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log likelihoods of the labels, rising, by the equations of the module.
    fn likelihoods(images: &[ClassDistances], temperature: f64, rate: f64) -> Vec<f64> {
        let of = |image: &ClassDistances| {
            let e = |d: f32| (-f64::from(d) / temperature).exp();
            let sum = e(image.own) + image.others.iter().map(|o| e(o.1)).sum::<f64>();
            ((1.0 - rate) * e(image.own) / sum + rate / 5.0).ln()
        };
        let mut all: Vec<f64> = images.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn images() -> Vec<ClassDistances> {
        (0..60)
            .map(|i| {
                let own = 0.3 + 0.01 * (i * 37 % 23) as f32 + if i % 10 == 0 { 0.8 } else { 0.0 };
                let mut others: Vec<(u32, f32)> =
                    (1..5).map(|c| (c, 0.45 + 0.02 * ((i * 13 + c * 7) % 29) as f32)).collect();
                others.sort_by(|a, b| a.1.total_cmp(&b.1));
                ClassDistances { own, others }
            })
            .collect()
    }

    #[test]
    fn the_fit_is_at_the_maximum_of_the_likelihoods() {
        let images = images();
        let fit = Noise::fit(&images.iter().collect::<Vec<_>>(), 5);
        // 60 images, the lowest 3 trimmed.
        let trimmed = |t: f64| likelihoods(&images, t, 0.0)[3..].iter().sum::<f64>() / 57.0;
        let all = |rate: f64| likelihoods(&images, fit.temperature, rate).iter().sum::<f64>() / 60.0;
        for i in 1..200 {
            // A quarter of a power of two from the maximum costs less than 0.01 here.
            let t = 0.002 * f64::from(i);
            assert!(trimmed(t) <= trimmed(fit.temperature) + 0.01, "T {t}, fit {fit:?}");
            let rate = 0.005 * f64::from(i - 1);
            assert!(all(rate) <= all(fit.rate) + 1e-7, "e {rate}, fit {fit:?}");
        }
        // One label in ten is far from its class.
        assert!((0.05..0.2).contains(&fit.rate), "{fit:?}");
    }

    #[test]
    fn labels_without_noise_have_no_noise_rate() {
        let clean: Vec<ClassDistances> =
            images().into_iter().map(|image| ClassDistances { own: 0.1, ..image }).collect();
        let fit = Noise::fit(&clean.iter().collect::<Vec<_>>(), 5);
        assert!(fit.rate < 1e-3, "{fit:?}");
        assert_eq!(Noise::fit(&[], 5).rate, 0.0);
    }

    #[test]
    fn shares_of_far_labels_do_not_underflow() {
        let image = ClassDistances { own: 50.0, others: vec![(1, 0.0)] };
        assert!((image.log_share(0.01) + 5000.0).abs() < 1e-9);
    }
}
