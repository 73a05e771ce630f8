//! Axes: the visible range, the positions of the tick marks and their texts.

use super::data::Scale;

/// The largest number of intervals between tick marks. Rounding results in two to this many, and one more if the ends
/// are rounded outwards.
const STRETCHES: f64 = 5.5;

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Its position: 0 at the start of the axis, 1 at its end.
    pub(crate) at: f64,
    /// Its text.
    pub(crate) text: String,
}

/// An axis from the value `low` (0) to the value `high` (1).
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    pub(crate) ticks: Vec<Tick>,
}

/// A round number: `mantissa * 10^exponent`, exact where a float is not.
#[derive(Clone, Copy)]
struct Round {
    mantissa: i64,
    exponent: i32,
}

impl Round {
    fn value(self) -> f64 {
        // The nearest float to the decimal, which a product is not always.
        format!("{}e{}", self.mantissa, self.exponent)
            .parse()
            .expect("an integer with an exponent is a float")
    }

    fn times(self, factor: i64) -> Self {
        Self { mantissa: self.mantissa * factor, ..self }
    }

    /// The smallest of 1, 2, 5 times a power of ten that is at least `value`.
    fn at_least(value: f64) -> Self {
        let exponent = value.log10().floor() as i32;
        [(1, exponent), (2, exponent), (5, exponent)]
            .into_iter()
            .map(|(mantissa, exponent)| Self { mantissa, exponent })
            // The tolerance takes 0.30000000000000004 for 0.3.
            .find(|round| round.value() >= value * (1.0 - 1e-9))
            .unwrap_or(Self { mantissa: 1, exponent: exponent + 1 })
    }
}

impl Axis {
    /// An axis for values from `low` to `high`, both finite, `low <= high`, and
    /// positive on a logarithmic scale. It begins and ends at a mark.
    pub(crate) fn of_values(low: f64, high: f64, scale: Scale) -> Self {
        match scale {
            Scale::Log => Self::logarithmic(low, high),
            Scale::Linear | Scale::Share => Self::linear(low, high, scale == Scale::Share),
        }
    }

    fn linear(mut low: f64, mut high: f64, percent: bool) -> Self {
        if low == high {
            // One value: shown against zero, or zero against one.
            (low, high) = (low.min(0.0), high.max(0.0));
            if low == high {
                high = 1.0;
            }
        }
        // Includes zero if that takes little of the height.
        if low > 0.0 && low < 0.3 * high {
            low = 0.0;
        }
        if high < 0.0 && high > 0.3 * low {
            high = 0.0;
        }
        if !(high - low).is_finite() {
            return Self::bare(low, high, false, percent);
        }
        let step = Round::at_least(((high - low) / STRETCHES).max(f64::MIN_POSITIVE));
        let size = step.value();
        // Far from zero, neighbouring floats can be further apart than marks.
        let is_lost = (low / size).abs().max((high / size).abs()) > 1e12;
        if is_lost || !size.is_normal() {
            return Self::bare(low, high, false, percent);
        }
        let first = (low / size + 1e-9).floor() as i64;
        let last = (high / size - 1e-9).ceil() as i64;
        let ends = (step.times(first).value(), step.times(last).value());
        if first == last || !(ends.0.is_finite() && ends.1.is_finite()) {
            return Self::bare(low, high, false, percent);
        }
        let (low, high) = ends;
        let largest = low.abs().max(high.abs());
        let ticks = (first..=last)
            .map(|factor| Tick {
                at: (factor - first) as f64 / (last - first) as f64,
                text: label(step.times(factor), step, largest, percent),
            })
            .collect();
        Self { low, high, log: false, ticks }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let floor = |value: f64| value.log10().floor() as i32;
        let decades = floor(high) - floor(low);
        let mantissas: &[i64] = if decades <= 1 { &[1, 2, 5] } else { &[1] };
        let marks: Vec<Round> = (floor(low)..=floor(high) + 1)
            .flat_map(|exponent| mantissas.iter().map(move |&mantissa| Round { mantissa, exponent }))
            .collect();
        let first = (marks.iter()).rposition(|mark| mark.value() <= low).unwrap_or(0);
        let last =
            (marks.iter()).position(|mark| mark.value() >= high).unwrap_or(marks.len() - 1).max(first + 1);
        let marks = &marks[first..=last];
        if marks[0].value() == 0.0 || marks[marks.len() - 1].value().is_infinite() {
            return Self::bare(low, high, true, false);
        }
        let mut axis = Self {
            low: marks[0].value(),
            high: marks[marks.len() - 1].value(),
            log: true,
            ticks: Vec::new(),
        };
        let stride = (marks.len() - 1).div_ceil(5);
        axis.ticks = marks
            .iter()
            .step_by(stride)
            .map(|mark| Tick { at: axis.place(mark.value()), text: label(*mark, *mark, mark.value(), false) })
            .collect();
        axis
    }

    /// An axis of values that floats hardly distinguish: only its ends are marked.
    fn bare(low: f64, high: f64, log: bool, percent: bool) -> Self {
        let unit = if percent { 100.0 } else { 1.0 };
        let ticks =
            [(0.0, low), (1.0, high)].map(|(at, value)| Tick { at, text: format!("{:e}", value * unit) });
        Self { low, high, log, ticks: ticks.into() }
    }

    /// An axis from the step `low` to the step `high` without a margin.
    pub(crate) fn of_steps(low: u64, high: u64) -> Self {
        let mut axis = Self { low: low as f64, high: high as f64, log: false, ticks: Vec::new() };
        if low == high {
            axis.ticks.push(Tick { at: 0.5, text: low.to_string() });
            return axis;
        }
        let step = Round::at_least(((high - low) as f64 / STRETCHES).max(1.0)).value() as u64;
        let first = low.div_ceil(step);
        axis.ticks = (first..=high / step)
            .map(|factor| Tick { at: axis.place((factor * step) as f64), text: (factor * step).to_string() })
            .collect();
        axis
    }

    /// An axis with a mark at each of `ks` (ascending), even in their ratios.
    pub(crate) fn of_ks(ks: &[u64]) -> Self {
        let mut axis = Self {
            low: ks.first().map_or(1.0, |&k| k.max(1) as f64),
            high: ks.last().map_or(1.0, |&k| k.max(1) as f64),
            log: true,
            ticks: Vec::new(),
        };
        let mut free_from = f64::NEG_INFINITY;
        for &k in ks {
            let at = axis.place(k as f64);
            // The texts of neighbouring marks must not touch on a phone.
            if at >= free_from {
                free_from = at + 0.07;
                axis.ticks.push(Tick { at, text: k.to_string() });
            }
        }
        axis
    }

    /// An axis from 0 to the number of names, with each name in the middle of its unit.
    pub(crate) fn of_names(names: &[String]) -> Self {
        let count = names.len() as f64;
        let tick = |(i, name): (usize, &String)| Tick { at: (i as f64 + 0.5) / count, text: name.clone() };
        Self { low: 0.0, high: count, log: false, ticks: names.iter().enumerate().map(tick).collect() }
    }

    /// An axis from `low` to `high` without marks.
    pub(crate) fn plain(low: f64, high: f64) -> Self {
        Self { low, high, log: false, ticks: Vec::new() }
    }

    /// The length of the axis, in its own values.
    pub(crate) fn span(&self) -> f64 {
        self.high - self.low
    }

    /// The position of `value`: 0 at the start, 1 at the end, one half if both are equal.
    pub(crate) fn place(&self, value: f64) -> f64 {
        const SMALLEST: f64 = f64::from_bits(1);
        let map = |v: f64| {
            if self.log {
                v.max(SMALLEST).ln()
            } else {
                // Half, so that the width of the widest range is finite.
                v / 2.0
            }
        };
        let (low, high) = (map(self.low), map(self.high));
        if low == high { 0.5 } else { (map(value) - low) / (high - low) }
    }

    /// Whether places are even in the ratios of values.
    pub(crate) fn is_log(&self) -> bool {
        self.log
    }
}

/// The text of a mark: as many decimals as the step between marks has.
fn label(mark: Round, step: Round, largest: f64, percent: bool) -> String {
    if mark.mantissa == 0 {
        return "0".to_owned();
    }
    if percent {
        let shift = |round: Round| Round { exponent: round.exponent + 2, ..round };
        return label(shift(mark), shift(step), largest * 100.0, false);
    }
    if !(1e-3..1e6).contains(&largest) {
        return format!("{:e}", mark.value());
    }
    let decimals = (-step.exponent).max(0) as usize;
    format!("{:.decimals$}", mark.value())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.text.as_str()).collect()
    }

    #[test]
    fn marks_are_round() {
        let cases: [(f64, f64, Scale, &str); 9] = [
            (0.0, 0.3, Scale::Linear, "0 0.1 0.2 0.3"),
            (0.71, 0.96, Scale::Share, "70 75 80 85 90 95 100"),
            (0.995, 0.998, Scale::Share, "99.5 99.6 99.7 99.8"),
            (1e-3, 1e-3, Scale::Linear, "0 0.0002 0.0004 0.0006 0.0008 0.0010"),
            (3e-5, 3e-4, Scale::Linear, "0 1e-4 2e-4 3e-4"),
            (0.0, 0.0, Scale::Linear, "0 0.2 0.4 0.6 0.8 1.0"),
            (-4.0, 9.0, Scale::Linear, "-5 0 5 10"),
            (2e-5, 0.4, Scale::Log, "1e-5 1e-4 0.001 0.01 0.1 1"),
            (0.3, 0.4, Scale::Log, "0.2 0.5"),
        ];
        for (low, high, scale, wanted) in cases {
            let axis = Axis::of_values(low, high, scale);
            assert_eq!(texts(&axis).join(" "), wanted, "{low}..{high}");
        }
    }

    #[test]
    fn steps_have_whole_marks_inside() {
        assert_eq!(texts(&Axis::of_steps(1, 4820)), ["1000", "2000", "3000", "4000"]);
        assert_eq!(texts(&Axis::of_steps(3, 4)), ["3", "4"]);
        assert_eq!(texts(&Axis::of_steps(7, 7)), ["7"]);
        assert_eq!(Axis::of_steps(7, 7).place(7.0), 0.5);
    }

    #[test]
    fn ks_are_even_in_their_ratios() {
        let axis = Axis::of_ks(&[1, 10, 100, 1000]);
        assert_eq!(texts(&axis), ["1", "10", "100", "1000"]);
        assert!((axis.place(10.0) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(Axis::of_ks(&[5]).place(5.0), 0.5);
        assert_eq!(texts(&Axis::of_ks(&[1, 100, 101, 102])), ["1", "100"]);
    }

    /// Two values: of any size, subnormal ones too; of the size of losses and
    /// shares; or next to each other.
    fn pairs() -> impl Strategy<Value = (f64, f64)> {
        let any = || any::<f64>().prop_filter("finite", |v| v.is_finite());
        prop_oneof![
            (any(), any()),
            (-10.0..10.0, -10.0..10.0),
            (0.0..1.0, 1e-9..1e-2).prop_map(|(a, width)| (a, a + width)),
        ]
    }

    fn positive(value: f64) -> f64 {
        if value == 0.0 { 1.0 } else { value.abs() }
    }

    proptest! {
        #[test]
        fn values_lie_on_their_axis_and_marks_say_where_they_are(
            (a, b) in pairs(),
            scale in prop::sample::select(vec![Scale::Linear, Scale::Log, Scale::Share]),
        ) {
            let (a, b) = match scale {
                Scale::Log => (positive(a), positive(b)),
                Scale::Linear => (a, b),
                // A hundred times the largest float is none.
                Scale::Share => (a.clamp(-1e300, 1e300), b.clamp(-1e300, 1e300)),
            };
            let axis = Axis::of_values(a.min(b), a.max(b), scale);
            for value in [a, b] {
                let at = axis.place(value);
                prop_assert!((-1e-9..=1.0 + 1e-9).contains(&at), "{value} is at {at} of {axis:?}");
            }
            prop_assert!((2..=8).contains(&axis.ticks.len()), "{axis:?}");
            for tick in &axis.ticks {
                let said: f64 = tick.text.parse().unwrap();
                let said = if scale == Scale::Share { said / 100.0 } else { said };
                // Half of the last digit of a range of 1e-12 of its values.
                prop_assert!((axis.place(said) - tick.at).abs() < 1e-3, "{tick:?} of {axis:?}");
            }
        }

        #[test]
        fn marks_of_steps_are_steps(low in 0..u64::MAX / 4, width in 0..1_000_000_u64) {
            let axis = Axis::of_steps(low, low + width);
            for tick in &axis.ticks {
                let step: u64 = tick.text.parse().unwrap();
                prop_assert!((low..=low + width).contains(&step));
            }
            prop_assert!(axis.ticks.len() <= 6);
        }
    }
}
