//! The distances of a search as a histogram, and a range of distances as a filter.

use serde::Serialize;
use utoipa::ToSchema;

use super::error::{Answer, Refusal};

/// The most bars of a histogram.
const BARS: usize = 200;

/// The distances of a query to the items that the filters admit.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Histogram {
    /// The smallest distance: the left end of the first bar.
    low: f32,
    /// The largest distance: the right end of the last bar.
    high: f32,
    /// The number of items in each bar. All bars have the same width.
    counts: Vec<usize>,
    /// The number of these that have the class of the query; null without one class of the queries.
    right: Option<Vec<usize>>,
    /// The number of items.
    total: usize,
    /// Whether these are all items. Of an index, and of a large compact file, only the nearest ones are counted.
    complete: bool,
}

impl Histogram {
    /// The histogram of (distance, whether it has the class of the query), `bars` bars.
    pub(super) fn new(bars: usize, complete: bool, distances: &[(f32, Option<bool>)]) -> Self {
        let ends = distances.iter().map(|(distance, _)| *distance);
        let low = ends.clone().reduce(f32::min).unwrap_or(0.0);
        let high = ends.reduce(f32::max).unwrap_or(0.0);
        let width = f64::from(high) - f64::from(low);
        let bar = |distance: f32| match width > 0.0 {
            true => (((f64::from(distance) - f64::from(low)) / width * bars as f64) as usize).min(bars - 1),
            false => 0,
        };
        let (mut counts, mut right) = (vec![0; bars], vec![0; bars]);
        for &(distance, is_right) in distances {
            counts[bar(distance)] += 1;
            right[bar(distance)] += usize::from(is_right == Some(true));
        }
        let known = distances.iter().any(|(_, is_right)| is_right.is_some());
        Self { low, high, counts, right: known.then_some(right), total: distances.len(), complete }
    }
}

/// The wishes of a search about distances.
#[derive(Clone, Copy, Default)]
pub(super) struct Distances {
    /// The bars of the histogram; `None`: no histogram.
    pub(super) bars: Option<usize>,
    min: Option<f32>,
    max: Option<f32>,
}

impl Distances {
    pub(super) fn new(bars: Option<usize>, min: Option<f32>, max: Option<f32>) -> Answer<Self> {
        if let Some(bars) = bars.filter(|bars| !(1..=BARS).contains(bars)) {
            return Err(Refusal::bad(format!("histogram must be from 1 to {BARS} bars, not {bars}")));
        }
        for (name, value) in [("min_distance", min), ("max_distance", max)] {
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                return Err(Refusal::bad(format!("{name} must be a finite number, not {value}")));
            }
        }
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            return Err(Refusal::bad(format!("min_distance {min} is above max_distance {max}"))
                .hint("exchange the two"));
        }
        Ok(Self { bars, min, max })
    }

    /// Whether all distances are needed, and not only those of the nearest items.
    pub(super) fn needs_all(self) -> bool {
        self.bars.is_some() || self.min.is_some()
    }

    /// Whether a result passes.
    pub(super) fn admits(self, distance: f32) -> bool {
        self.min.is_none_or(|min| distance >= min) && self.max.is_none_or(|max| distance <= max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_is_in_one_bar() {
        let known = |distances: &[f32]| distances.iter().map(|&d| (d, Some(d < 0.5))).collect::<Vec<_>>();
        let found = Histogram::new(4, true, &known(&[0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.0]));
        assert_eq!((found.low, found.high, found.total), (0.0, 1.0, 7));
        assert_eq!(found.counts, [2, 1, 1, 3]);
        assert_eq!(found.right, Some(vec![2, 1, 0, 0]));
        // One distance, and none.
        assert_eq!(Histogram::new(3, true, &[(0.5, None); 2]).counts, [2, 0, 0]);
        let none = Histogram::new(2, false, &[]);
        assert_eq!((none.counts, none.right, none.total), (vec![0, 0], None, 0));
    }
}
