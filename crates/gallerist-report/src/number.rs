//! How numbers are written on the pages.

/// `value` with `digits` significant digits: `0.1234`, `12.34`, `1.234e-5`.
///
/// Exponents are used below 1e-4 and from 1e6 on. Numbers that are not finite
/// read `NaN`, `∞` and `-∞`.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent after rounding: 9.99996 has the exponent of 10.00.
    let scientific = format!("{value:.*e}", digits - 1);
    let exponent: i32 = scientific
        .rsplit_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .expect("the `e` format ends in a whole exponent");
    if !(-4..6).contains(&exponent) {
        return scientific;
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    format!("{value:.decimals$}")
}

/// A share in 0..=1 as a percentage with `decimals` decimals, without the sign `%`.
pub(crate) fn percent(share: f64, decimals: usize) -> String {
    if !share.is_finite() {
        return significant(share, 4);
    }
    let text = format!("{:.decimals$}", share * 100.0);
    // Rounding a tiny negative number leaves a sign without a number.
    match text.strip_prefix('-') {
        Some(rest) if rest.bytes().all(|b| matches!(b, b'0' | b'.')) => rest.to_owned(),
        _ => text,
    }
}

/// A count with a comma between thousands: `13,180`.
pub(crate) fn count(value: u64) -> String {
    gallerist_util::text::grouped(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_are_kept_through_rounding() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1.000"),
            (0.123456, "0.1235"),
            (9.99996, "10.00"),
            (-12.3456, "-12.35"),
            (123456.0, "123456"),
            (999_999.9, "1.000e6"),
            (1e-4, "0.0001000"),
            (9.9e-5, "9.900e-5"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "∞"),
            (f64::NEG_INFINITY, "-∞"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value, 4), text);
        }
    }

    #[test]
    fn percentages_have_no_negative_zero() {
        assert_eq!(percent(0.86424, 2), "86.42");
        assert_eq!(percent(1.0, 2), "100.00");
        assert_eq!(percent(-1e-9, 2), "0.00");
        assert_eq!(percent(-0.012, 1), "-1.2");
        assert_eq!(percent(f64::NAN, 1), "NaN");
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (13_180, "13,180")];
        for (value, text) in cases {
            assert_eq!(count(value), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }
}
