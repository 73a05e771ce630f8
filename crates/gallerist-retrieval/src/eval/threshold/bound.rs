//! A confidence bound for a false match rate that is valid over identities.
//!
//! # The statistic
//!
//! A threshold accepts the share `h(I, J)` of the image pairs of two identities, a number from 0 to 1. The false match
//! rate is its expectation `theta` over two different random identities. Pairs that share an identity are dependent, so
//! the number of pairs is no sample size: an identity that matches everything spoils all pairs it is part of. The mean
//! `U` over all pairs of `K` identities is a U-statistic of order 2, and Hoeffding (1963, section 5) writes it as the
//! mean, over all orders of the identities, of `W`: the mean of `m = K / 2` (rounded down) disjoint pairs, which are
//! independent. For a convex function f, Jensen's inequality and Hoeffding's lemma for values from 0 to 1 give
//!
//! ```text
//! E f(U) <= E f(W) <= E f(B / m),   B binomial with m draws of probability theta.
//! ```
//!
//! The convex functions `f(x) = max(c - x, 0)` and Markov's inequality bound the probability of a mean as small as the
//! one that was measured (Bentkus, On Hoeffding's inequalities, Annals of Probability 32, 2004):
//!
//! ```text
//! P(U <= u) <= p(u; theta) = min over c > u of  E max(c - B / m, 0) / (c - u).
//! ```
//!
//! The upper bound at confidence `1 - delta` is the largest theta with `p(u; theta) > delta`. For `u = 0` it is the bound
//! of Clopper and Pearson (Biometrika 26, 1934) for 0 false matches in m draws, `1 - delta^(1 / m)`, and no bound that
//! holds for every population is much smaller: if a share p of the identities matches everything, theta is about 2 p,
//! and K identities contain none of them with probability `(1 - p)^K`.
//!
//! A mean over single identities (searches against a fixed gallery) is bounded in the same way with `m = K`.
//!
//! # Choosing the threshold from the same data
//!
//! The false match rate falls as the threshold gets stricter. The most permissive threshold whose bound is at most the
//! target therefore keeps the confidence, without a correction for the number of thresholds (Bates, Angelopoulos, Lei,
//! Malik, Jordan: Distribution-free, risk-controlling prediction sets, J. ACM 68, 2021, theorem 1).

/// Independent units: the sample size of a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Confidence {
    /// Disjoint pairs of identities, or identities.
    pub(super) units: usize,
    /// The probability with which the bound may fail.
    pub(super) delta: f64,
}

impl Confidence {
    /// The smallest rate that can be guaranteed: the bound of a measured rate of 0.
    pub(super) fn smallest(self) -> f64 {
        -(self.delta.ln() / self.units as f64).exp_m1()
    }

    /// The units with which a rate of `target` can be guaranteed at all.
    pub(super) fn units_for(target: f64, delta: f64) -> usize {
        (delta.ln() / (-target).ln_1p()).ceil() as usize
    }

    /// The upper bound of the rate of which `measured` was observed.
    pub(super) fn upper(self, measured: f64) -> f64 {
        bisect(measured, 1.0, |theta| self.tail(measured, theta) > self.delta).1
    }

    /// The largest measured rate whose bound is at most `target`; `None` where even 0 has a larger one.
    pub(super) fn largest_measured(self, target: f64) -> Option<f64> {
        if self.tail(0.0, target) > self.delta {
            return None;
        }
        Some(bisect(0.0, target, |measured| self.tail(measured, target) <= self.delta).0)
    }

    /// `p(u; theta)`. Between two multiples of 1 / m the quotient is monotone in c, so the minimum is at a multiple.
    fn tail(self, measured: f64, theta: f64) -> f64 {
        let m = self.units as f64;
        let Some(mut pmf) = Some((m * (-theta).ln_1p()).exp()).filter(|pmf| *pmf > 1e-280) else {
            return self.tail_in_logarithms(measured, theta);
        };
        // `hinge` is the expectation of max(j - B, 0), the sum of the distribution function below j.
        let (mut below, mut hinge, mut least) = (0.0, 0.0, 1.0f64);
        for j in 1..=self.units {
            below += pmf;
            hinge += below;
            let excess = j as f64 - measured * m;
            if excess > 0.0 {
                least = least.min(hinge / excess);
            }
            pmf *= (m - j as f64 + 1.0) / j as f64 * (theta / (1.0 - theta));
        }
        least.min(1.0)
    }

    /// The same where the probability of 0 is below the smallest f64.
    fn tail_in_logarithms(self, measured: f64, theta: f64) -> f64 {
        if theta >= 1.0 {
            return 0.0;
        }
        let m = self.units as f64;
        let odds = (theta / (1.0 - theta)).ln();
        let mut log_pmf = m * (-theta).ln_1p();
        let (mut below, mut hinge, mut least) = (0.0, 0.0, 1.0f64);
        for j in 1..=self.units {
            below += log_pmf.exp();
            hinge += below;
            let excess = j as f64 - measured * m;
            if excess > 0.0 {
                least = least.min(hinge / excess);
            }
            log_pmf += ((m - j as f64 + 1.0) / j as f64).ln() + odds;
        }
        least.min(1.0)
    }
}

/// Neighbouring numbers between `low`, where `holds` is true, and `high`, where it is false.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if holds(middle) { low = middle } else { high = middle }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{generator, unit};

    /// `p(u; theta)` from the definition: binomial probabilities as products, and c on a fine grid.
    fn tail_by_grid(m: usize, measured: f64, theta: f64) -> f64 {
        let choose = |k: usize| (0..k).map(|i| (m - i) as f64 / (i + 1) as f64).product::<f64>();
        let pmf: Vec<f64> =
            (0..=m).map(|k| choose(k) * theta.powi(k as i32) * (1.0 - theta).powi((m - k) as i32)).collect();
        let steps = 64 * m;
        (1..=steps)
            .map(|step| step as f64 / steps as f64)
            .filter(|&c| c > measured)
            .map(|c| {
                let mean: f64 =
                    pmf.iter().enumerate().map(|(k, p)| p * (c - k as f64 / m as f64).max(0.0)).sum();
                mean / (c - measured)
            })
            .fold(1.0, f64::min)
    }

    #[test]
    fn the_tail_is_that_of_the_definition() {
        for m in [1, 2, 7, 30] {
            for measured in [0.0, 0.01, 0.1, 0.37] {
                for theta in [0.02, 0.2, 0.5, 0.9] {
                    let found = Confidence { units: m, delta: 0.05 }.tail(measured, theta);
                    let wanted = tail_by_grid(m, measured, theta);
                    assert!((found - wanted).abs() < 1e-12, "{m} {measured} {theta}: {found}, {wanted}");
                }
            }
        }
    }

    #[test]
    fn the_tail_in_logarithms_is_the_same() {
        for (m, measured, theta) in [(5, 0.1, 0.3), (200, 0.02, 0.05), (900, 0.0, 0.003)] {
            let of = Confidence { units: m, delta: 0.05 };
            let (a, b) = (of.tail(measured, theta), of.tail_in_logarithms(measured, theta));
            assert!((a - b).abs() <= 1e-10 * a, "{a} {b}");
        }
        // (1 - 0.5)^4000 is below the smallest f64.
        let many = Confidence { units: 4_000, delta: 0.05 };
        assert!((0.5..0.54).contains(&many.upper(0.5)), "{}", many.upper(0.5));
    }

    #[test]
    fn without_a_false_match_the_bound_is_that_of_clopper_and_pearson() {
        for units in [1, 10, 329, 3_000] {
            let of = Confidence { units, delta: 0.05 };
            let wanted = 1.0 - 0.05f64.powf(1.0 / units as f64);
            assert!((of.upper(0.0) - wanted).abs() < 1e-12);
            assert!((of.smallest() - wanted).abs() < 1e-12);
        }
        assert_eq!(Confidence::units_for(0.001, 0.05), 2_995);
        let enough = Confidence { units: 2_995, delta: 0.05 };
        assert!(enough.largest_measured(0.001).is_some());
        assert!(Confidence { units: 2_994, delta: 0.05 }.largest_measured(0.001).is_none());
    }

    #[test]
    fn the_largest_measured_rate_has_the_target_as_its_bound() {
        for (units, target) in [(50, 0.1), (400, 0.02), (5_000, 0.001)] {
            let of = Confidence { units, delta: 0.05 };
            let measured = of.largest_measured(target).unwrap();
            assert!(measured > 0.0 && measured < target);
            assert!((of.upper(measured) - target).abs() < 1e-9);
        }
    }

    /// A population in which a share `p` of the identities matches every other: all pairs of such an identity are
    /// false matches at once. The number of wolves is simulated; rate and measured mean are counted by hand.
    #[test]
    fn the_bound_holds_for_identities_that_match_everything_and_the_bound_over_pairs_does_not() {
        let (identities, delta, runs) = (80, 0.1, 4_000);
        for p in [0.01, 0.03, 0.1] {
            let theta = 1.0 - (1.0 - p) * (1.0 - p);
            let pairs = identities * (identities - 1) / 2;
            let [mut over_identities, mut over_pairs] = [0, 0];
            let by_identities = Confidence { units: identities / 2, delta };
            let by_pairs = Confidence { units: pairs, delta };
            let mut random = generator(11, (p * 1000.0) as u64);
            let mut bounds: std::collections::HashMap<usize, (f64, f64)> = std::collections::HashMap::new();
            for _ in 0..runs {
                let wolves = (0..identities).filter(|_| unit(&mut random) < p).count();
                let others = identities - wolves;
                let measured = 1.0 - (others * (others - 1) / 2) as f64 / pairs as f64;
                let bound = || (by_identities.upper(measured), by_pairs.upper(measured));
                let &mut (valid, naive) = bounds.entry(wolves).or_insert_with(bound);
                over_identities += usize::from(valid < theta);
                over_pairs += usize::from(naive < theta);
            }
            // Three standard errors above 10 %.
            let limit = runs as f64 * (delta + 3.0 * (delta * (1.0 - delta) / runs as f64).sqrt());
            assert!((over_identities as f64) < limit, "{p}: {over_identities} of {runs}");
            assert!(over_pairs as f64 > 2.0 * limit, "{p}: {over_pairs} of {runs}");
        }
    }
}
