//! What follows the sums of a convolution.

use super::scale::Scale;

/// `bounds(sum * factor + term + added byte * step)` for each column, in the unit of the result: as bytes of the next layer, or
/// as values.
pub(crate) struct Ending {
    /// In the order of the vectors of the sums, whole vectors; the last ones are 0 where there is no column.
    factors: Vec<f32>,
    terms: Vec<f32>,
    /// For each step of an added byte.
    added: f32,
    low: f32,
    high: f32,
}

/// The parts of an ending that all columns share.
#[derive(Clone, Copy)]
pub(crate) struct Scales {
    /// Of the input.
    pub(crate) x: Scale,
    /// Of the maps that are added.
    pub(crate) add: Option<Scale>,
    /// Of the result; without it, the result is in f32.
    pub(crate) y: Option<Scale>,
    /// The least and the largest value.
    pub(crate) bounds: [f32; 2],
}

/// The weights of an output channel.
pub(super) struct Column {
    bytes: Vec<i8>,
    /// Of the bytes.
    step: f32,
    bias: f64,
}

impl Column {
    /// Rounds weights to signed bytes. What rounding adds to the sum for the values that are `expected` at each weight is taken off
    /// the bias (Nagel et al. 2019, section 4.2).
    pub(super) fn new(weights: &[f32], expected: &[f32], bias: f32) -> Self {
        let largest = weights.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
        let step = if largest < f32::MIN_POSITIVE { 1.0 } else { largest / 127.0 };
        let bytes: Vec<i8> = weights.iter().map(|weight| (weight / step).round_ties_even() as i8).collect();
        let added = |(weight, (byte, expected)): (&f32, (&i8, &f32))| {
            (f64::from(*byte) * f64::from(step) - f64::from(*weight)) * f64::from(*expected)
        };
        let added: f64 = weights.iter().zip(bytes.iter().zip(expected)).map(added).sum();
        Self { bytes, step, bias: f64::from(bias) - added }
    }

    pub(super) fn bytes(&self) -> &[i8] {
        &self.bytes
    }
}

impl Ending {
    /// `order` says which column a lane of a vector holds, for whole vectors.
    pub(super) fn new(columns: &[Column], order: impl Iterator<Item = usize>, scales: Scales) -> Self {
        let Scales { x, add, y, bounds } = scales;
        let unit = y.map_or(1.0, |y| f64::from(y.step));
        let zero = y.map_or(0.0, |y| f64::from(y.zero));
        let added = add.map_or(0.0, |add| f64::from(add.step) / unit);
        let of = |column: usize| {
            let Column { bytes, step, bias } = columns.get(column)?;
            let sum: i32 = bytes.iter().map(|&byte| i32::from(byte)).sum();
            let factor = f64::from(x.step) * f64::from(*step) / unit;
            // The input's zero is part of the term, and so is that of the maps that are added.
            let zeros = f64::from(x.zero) * f64::from(sum) * factor
                + add.map_or(0.0, |add| f64::from(add.zero) * added);
            Some((factor as f32, (bias / unit + zero - zeros) as f32))
        };
        let both: Vec<(f32, f32)> = order.map(|column| of(column).unwrap_or_default()).collect();
        let [low, high] = match y {
            Some(y) => bounds.map(|bound| y.position(bound).round_ties_even().clamp(0.0, 255.0)),
            None => bounds,
        };
        Self {
            factors: both.iter().map(|both| both.0).collect(),
            terms: both.iter().map(|both| both.1).collect(),
            added: added as f32,
            low,
            high,
        }
    }

    /// The ends of the columns from that of index `first` in the order of the vectors.
    pub(super) fn starting_at(&self, first: usize) -> Ends<'_> {
        let Self { factors, terms, added, low, high } = self;
        Ends { factors: &factors[first..], terms: &terms[first..], added: *added, low: *low, high: *high }
    }
}

/// An [`Ending`] from one of its vectors on.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) factors: &'a [f32],
    pub(super) terms: &'a [f32],
    pub(super) added: f32,
    pub(super) low: f32,
    pub(super) high: f32,
}

impl Ends<'_> {
    /// The end of one column.
    #[inline(always)]
    pub(super) fn value(&self, index: usize, sum: i32, added: u8) -> f32 {
        let value = (sum as f32).mul_add(self.factors[index], self.terms[index]);
        let value = f32::from(added).mul_add(self.added, value);
        let value = if value > self.low { value } else { self.low };
        if value < self.high { value } else { self.high }
    }
}
