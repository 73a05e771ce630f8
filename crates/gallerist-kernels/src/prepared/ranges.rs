//! The ranges of the values of a network's layers, measured on images.

use serde::{Deserialize, Serialize};

/// Intervals of a histogram.
const BINS: usize = 4096;

/// The parts of the largest range among which the one with the smallest error is chosen.
const PARTS: std::ops::RangeInclusive<usize> = 20..=100;

/// For every layer of a network, in order, the least and the largest of its values that int8 can hold, and mean and largest
/// value of each channel.
///
/// They belong to one network with its weights and one size of images. Made by [`Measurement`](super::Measurement), read by
/// [`Builder::finish_int8`](super::Builder::finish_int8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ranges(pub(super) Vec<LayerValues>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayerValues {
    pub(super) range: [f32; 2],
    /// Of each channel.
    pub(super) means: Vec<f32>,
    /// The largest value of each channel, 0 where it is negative.
    pub(super) highs: Vec<f32>,
}

impl LayerValues {
    /// Whether they are those of a layer with so many channels.
    fn fit(&self, channels: usize) -> bool {
        let Self { range: [low, high], means, highs } = self;
        let finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        [means.len(), highs.len()] == [channels; 2]
            && finite(&[*low, *high])
            && low <= high
            && finite(means)
            && finite(highs)
    }
}

impl Ranges {
    /// Whether they are those of layers with so many channels.
    pub(super) fn fit(&self, channels: impl ExactSizeIterator<Item = usize>) -> bool {
        self.0.len() == channels.len() && self.0.iter().zip(channels).all(|(values, of)| values.fit(of))
    }
}

/// The values of a layer.
#[derive(Default)]
pub(super) struct Values {
    histogram: Histogram,
    /// Of each channel.
    sums: Vec<f64>,
    highs: Vec<f32>,
    positions: usize,
}

impl Values {
    /// Of so many channels.
    pub(super) fn new(channels: usize) -> Self {
        Self { sums: vec![0.0; channels], highs: vec![0.0; channels], ..Self::default() }
    }

    /// Adds the values of some positions.
    pub(super) fn add(&mut self, values: &[f32]) {
        for position in values.chunks_exact(self.sums.len()) {
            self.positions += 1;
            for ((sum, high), &value) in self.sums.iter_mut().zip(&mut self.highs).zip(position) {
                *sum += f64::from(value);
                *high = if value > *high { value } else { *high };
                self.histogram.add(value);
            }
        }
    }

    pub(super) fn finish(&self) -> Option<LayerValues> {
        let means = self.sums.iter().map(|sum| (sum / self.positions as f64) as f32).collect();
        Some(LayerValues { range: self.histogram.best()?, means, highs: self.highs.clone() })
    }
}

/// How many values there are in equal intervals from `-reach` to `reach`, a power of 2.
struct Histogram {
    reach: f32,
    counts: Vec<u64>,
    low: f32,
    high: f32,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { reach: 2f32.powi(-10), counts: vec![0; BINS], low: f32::INFINITY, high: f32::NEG_INFINITY }
    }
}

impl Histogram {
    fn add(&mut self, value: f32) {
        if !value.is_finite() {
            (self.low, self.high) = (f32::NAN, f32::NAN);
            return;
        }
        while value.abs() >= self.reach {
            self.widen();
        }
        // NaN stays, once it is there.
        self.low = if value < self.low { value } else { self.low };
        self.high = if value > self.high { value } else { self.high };
        let bin = (value + self.reach) * (BINS as f32 / (2.0 * self.reach));
        self.counts[(bin as usize).min(BINS - 1)] += 1;
    }

    /// Twice the reach: two intervals become one.
    fn widen(&mut self) {
        let mut counts = vec![0; BINS];
        for (bin, count) in self.counts.iter().enumerate() {
            counts[BINS / 4 + bin / 2] += count;
        }
        self.counts = counts;
        self.reach *= 2.0;
    }

    /// The range with the smallest error.
    fn best(&self) -> Option<[f32; 2]> {
        // NaN, or no value yet.
        if self.low.is_nan() || self.low > self.high {
            return None;
        }
        let (low, high) = (self.low.min(0.0), self.high.max(0.0));
        let width = 2.0 * f64::from(self.reach) / BINS as f64;
        let values: Vec<(f64, f64)> = (0..BINS)
            .filter(|&bin| self.counts[bin] > 0)
            .map(|bin| ((bin as f64 + 0.5) * width - f64::from(self.reach), self.counts[bin] as f64))
            .collect();
        let error = |part: usize| {
            let [low, high] = [low, high].map(|end| f64::from(end) * part as f64 / *PARTS.end() as f64);
            let step = (high - low) / 255.0;
            // Within the range, errors are evenly distributed.
            let of = |&(value, count): &(f64, f64)| {
                let outside = (low - value).max(value - high).max(0.0);
                count * if outside > 0.0 { outside * outside } else { step * step / 12.0 }
            };
            values.iter().map(of).sum::<f64>()
        };
        let best = PARTS.rev().min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
        Some([low, high].map(|end| end * (best as f32 / *PARTS.end() as f32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = f32>) -> Option<[f32; 2]> {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.add(value));
        histogram.best()
    }

    #[test]
    #[cfg_attr(miri, ignore = "40,000 values; the module has no unsafe code")]
    fn even_values_take_the_whole_range_and_one_outlier_does_not() {
        let even = || (0..=10_000).map(|i| i as f32 / 1000.0 - 2.0);
        assert_eq!(of(even()), Some([-2.0, 8.0]));
        let [low, high] = of(even().chain(even()).chain(even()).chain([20.0])).unwrap();
        assert!(low <= -1.0 && high < 20.0, "{low} to {high}");
        assert_eq!(of([0.0; 5]), Some([0.0, 0.0]));
        assert_eq!(of([3.0, 6.0]).unwrap()[0], 0.0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a histogram of many intervals; the module has no unsafe code")]
    fn values_that_are_no_numbers_give_no_range() {
        assert_eq!(of([1.0, f32::NAN, 2.0]), None);
        assert_eq!(of([1.0, f32::INFINITY]), None);
        assert_eq!(of([]), None);
    }
}
