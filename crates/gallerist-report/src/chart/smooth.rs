//! A mean that runs along a noisy series.

/// The number of values averaged for a series of `len` values: odd, so that it
/// is centred, a fortieth of the series and at least 5. `None` for a series that
/// is too short to gain from it.
pub(super) fn window(len: usize) -> Option<usize> {
    (len >= 30).then(|| (len / 40).max(5) | 1)
}

/// The mean of the finite values in the `window` values centred on each value.
/// The window is cut off at both ends of the series. NaN where it holds no
/// finite value.
///
/// Centred rather than exponential: an exponential mean lags behind the curve,
/// and two runs with different lags cannot be compared step by step.
pub(super) fn centred_mean(values: &[f64], window: usize) -> Vec<f64> {
    let (len, half) = (values.len(), window / 2);
    let window = 2 * half + 1;
    // Sum and number of the finite values from the start of each value's block
    // up to it, and from it to the end of its block, in blocks of one window. A
    // window then is the end of one block and the start of the next: linear
    // time, and nothing is subtracted, so that a spike leaves no rounding error
    // in the means after it.
    let single = |value: f64| if value.is_finite() { (value, 1.0) } else { (0.0, 0.0) };
    let add = |a: (f64, f64), b: (f64, f64)| (a.0 + b.0, a.1 + b.1);
    let mut from_start: Vec<(f64, f64)> = values.iter().map(|&v| single(v)).collect();
    let mut to_end = from_start.clone();
    for i in 1..len {
        if i % window != 0 {
            from_start[i] = add(from_start[i - 1], from_start[i]);
        }
        let back = len - 1 - i;
        if (back + 1) % window != 0 {
            to_end[back] = add(to_end[back + 1], to_end[back]);
        }
    }
    (0..len)
        .map(|i| {
            let (first, last) = (i.saturating_sub(half), (i + half).min(len - 1));
            let (sum, number) = if first / window != last / window {
                add(to_end[first], from_start[last])
            } else if first % window == 0 {
                from_start[last]
            } else {
                // The series ends inside this block.
                to_end[first]
            };
            sum / number
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_are_odd_and_grow_with_the_series() {
        let cases = [(0, None), (29, None), (30, Some(5)), (240, Some(7)), (4000, Some(101))];
        for (len, wanted) in cases {
            assert_eq!(window(len), wanted);
        }
    }

    #[test]
    fn means_skip_what_is_not_finite_and_stop_at_the_ends() {
        let values = [1.0, f64::NAN, 3.0, 8.0, f64::INFINITY];
        assert_eq!(centred_mean(&values, 3), [1.0, 2.0, 5.5, 5.5, 8.0]);
        let none = centred_mean(&[f64::NAN, f64::NAN], 5);
        assert!(none.iter().all(|v| v.is_nan()));
    }

    proptest! {
        #[test]
        fn means_are_those_of_each_window_alone(
            values in prop::collection::vec(prop_oneof![8 => -9.0..9.0, 1 => Just(f64::NAN)], 0..80),
            half in 0..20_usize,
        ) {
            let means = centred_mean(&values, 2 * half + 1);
            prop_assert_eq!(means.len(), values.len());
            for (i, mean) in means.iter().enumerate() {
                let (mut sum, mut number) = (0.0, 0);
                for (j, value) in values.iter().enumerate() {
                    if i.abs_diff(j) <= half && value.is_finite() {
                        sum += value;
                        number += 1;
                    }
                }
                // 40 additions of numbers below 9 lose less than 40 * 360 * 2^-53.
                let close = (mean - sum / f64::from(number)).abs() < 1e-11;
                prop_assert!(close || number == 0 && mean.is_nan(), "{i}: {mean}");
            }
        }
    }

    #[test]
    fn a_spike_leaves_no_error_behind() {
        let mut values = vec![0.1; 60];
        values[20] = 1e30;
        let means = centred_mean(&values, 5);
        assert!(means[..18].iter().chain(&means[23..]).all(|m| (m - 0.1).abs() < 1e-15));
    }

    #[test]
    fn a_straight_line_is_its_own_mean_away_from_the_ends() {
        let line: Vec<f64> = (0..100).map(|i| i as f64).collect();
        let mean = centred_mean(&line, 7);
        assert_eq!(mean[3..97], line[3..97]);
    }
}
