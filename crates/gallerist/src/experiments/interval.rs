//! Mean and confidence interval over seeds.

use serde::Serialize;

/// The mean of the runs of a cell, and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; `None` for one run.
    pub half_width: Option<f64>,
    /// The number of runs.
    pub runs: usize,
}

impl Estimate {
    /// The estimate from the values of the runs; `None` without any. The interval is Student's: mean ± t s / sqrt(n),
    /// with the standard deviation s of n - 1 degrees of freedom.
    ///
    /// ```
    /// use gallerist::experiments::Estimate;
    /// let estimate = Estimate::of(&[1.0, 2.0, 3.0]).unwrap();
    /// assert_eq!(estimate.mean, 2.0);
    /// // t = 4.302653 for 2 degrees of freedom, s = 1.
    /// assert!((estimate.half_width.unwrap() - 4.302653 / 3f64.sqrt()).abs() < 1e-6);
    /// ```
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let runs = values.len();
        if runs == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / runs as f64;
        let half_width = (runs > 1).then(|| {
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (runs - 1) as f64;
            quantile(runs - 1) * (variance / runs as f64).sqrt()
        });
        Some(Estimate { mean, half_width, runs })
    }
}

/// The 0.975 quantile of Student's distribution.
fn quantile(degrees: usize) -> f64 {
    const FIRST: [f64; 10] =
        [12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139];
    let df = degrees as f64;
    // Beyond the table: the expansion about the normal quantile, right to three decimals.
    FIRST
        .get(degrees - 1)
        .copied()
        .unwrap_or(1.959_964 + 2.372_3 / df + 2.822_5 / (df * df) + 2.556 / df.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_published_tables() {
        for (degrees, published) in
            [(1, 12.706), (4, 2.776), (10, 2.228), (11, 2.201), (20, 2.086), (120, 1.980)]
        {
            assert!((quantile(degrees) - published).abs() < 6e-4, "{degrees}: {}", quantile(degrees));
        }
    }

    #[test]
    fn one_run_has_no_interval_and_no_run_no_estimate() {
        assert_eq!(Estimate::of(&[0.5]), Some(Estimate { mean: 0.5, half_width: None, runs: 1 }));
        assert_eq!(Estimate::of(&[]), None);
    }
}
