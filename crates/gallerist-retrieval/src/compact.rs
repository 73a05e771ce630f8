//! Embeddings in bf16 or int8: half or a quarter of the memory of f32.

use std::borrow::Cow;
use std::fmt;

use rayon::prelude::*;

use crate::{Error, Matrix, MatrixView, Result};

gallerist_util::named_values! {
    /// How the values of a [`CompactMatrix`] are stored.
    pub enum Code {
        /// The upper half of an f32, rounded to the nearest, ties to even: 8 bits of precision, the
        /// range of f32. Subnormal values become 0.
        Bf16 = "bf16", "2 bytes per value: 8 bits of precision (.safetensors only)";
        /// Integers from -127 to 127 and one f32 per row, by which they are multiplied: the
        /// largest magnitude of the row divided by 127.
        Int8 = "int8", "1 byte per value: 255 steps between plus and minus the largest magnitude of the row (.safetensors only)";
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A row-major matrix of bf16 or int8 with one embedding per row; it owns its values or borrows
/// them, from a mapped file for one.
///
/// ```
/// use gallerist_retrieval::{Code, CompactMatrix, Matrix};
///
/// let rows = Matrix::new(1, 2, vec![0.5, -1.27])?;
/// let int8 = CompactMatrix::encode(&rows, Code::Int8)?;
/// assert_eq!(int8.decode().row(0), [0.5, -1.27]);
/// let bf16 = CompactMatrix::encode(&rows, Code::Bf16)?;
/// assert_eq!(bf16.decode().row(0), [0.5, -1.2734375]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CompactMatrix<'a> {
    values: Values<'a>,
    rows: usize,
    cols: usize,
}

/// The stored values, row after row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values<'a> {
    Bf16(Cow<'a, [u16]>),
    Int8 { values: Cow<'a, [i8]>, scales: Cow<'a, [f32]> },
}

/// The widest int8 rows whose products, at most 128 x 127 each, add up within an i32.
const MAX_INT8_COLS: usize = 1 << 17;

impl<'a> CompactMatrix<'a> {
    pub(crate) fn new(rows: usize, cols: usize, values: Values<'a>) -> Result<Self> {
        let found = match &values {
            Values::Bf16(values) => values.len(),
            Values::Int8 { values, scales } => {
                if scales.len() != rows {
                    let (wanted, found) = (rows, scales.len());
                    return Err(Error::Count { what: "scales", rows: "embeddings", wanted, found });
                }
                if cols > MAX_INT8_COLS {
                    return Err(Error::Option {
                        option: "the dimension of int8 rows",
                        wanted: "at most 131072",
                        found: cols.to_string(),
                    });
                }
                values.len()
            }
        };
        if rows.checked_mul(cols) != Some(found) {
            return Err(Error::Shape { rows, cols, found });
        }
        Ok(Self { values, rows, cols })
    }

    /// The rows of `matrix`, rounded.
    ///
    /// # Errors
    /// [`Error::NonFinite`], and [`Error::Option`] for int8 rows of more than 131,072 values.
    pub fn encode<'m>(matrix: impl Into<MatrixView<'m>>, code: Code) -> Result<CompactMatrix<'static>> {
        let matrix = matrix.into();
        matrix.check_finite("embeddings")?;
        encode_rows(matrix.rows(), matrix.cols(), code, |i, row| row.copy_from_slice(matrix.row(i)))
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: the dimension of the embeddings.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// How the values are stored.
    pub fn code(&self) -> Code {
        match self.values {
            Values::Bf16(_) => Code::Bf16,
            Values::Int8 { .. } => Code::Int8,
        }
    }

    pub(crate) fn values(&self) -> &Values<'a> {
        &self.values
    }

    /// The same values, borrowed.
    pub fn view(&self) -> CompactMatrix<'_> {
        let values = match &self.values {
            Values::Bf16(values) => Values::Bf16(Cow::Borrowed(values)),
            Values::Int8 { values, scales } => {
                Values::Int8 { values: Cow::Borrowed(values), scales: Cow::Borrowed(scales) }
            }
        };
        CompactMatrix { values, ..*self }
    }

    /// The same values, owned: copied if they were borrowed.
    pub fn into_owned(self) -> CompactMatrix<'static> {
        let Self { values, rows, cols } = self;
        let values = match values {
            Values::Bf16(values) => Values::Bf16(Cow::Owned(values.into_owned())),
            Values::Int8 { values, scales } => Values::Int8 {
                values: Cow::Owned(values.into_owned()),
                scales: Cow::Owned(scales.into_owned()),
            },
        };
        CompactMatrix { values, rows, cols }
    }

    /// Writes the values of row `i` in f32 to `to`: the stored values, without further rounding for
    /// bf16; for int8 the product of whole number and scale, rounded to f32.
    ///
    /// # Panics
    /// When there is no row `i`, or `to` is not [`cols`](Self::cols) long.
    pub fn decode_row(&self, i: usize, to: &mut [f32]) {
        assert!(i < self.rows, "row {i} of a matrix of {} rows", self.rows);
        assert_eq!(to.len(), self.cols, "a row of {} values read into {}", self.cols, to.len());
        let span = i * self.cols..(i + 1) * self.cols;
        match &self.values {
            Values::Bf16(values) => {
                for (to, &value) in to.iter_mut().zip(&values[span]) {
                    *to = from_bf16(value);
                }
            }
            Values::Int8 { values, scales } => {
                for (to, &value) in to.iter_mut().zip(&values[span]) {
                    *to = f32::from(value) * scales[i];
                }
            }
        }
    }

    /// What the stored values of row `i` are multiplied by: 1 for bf16.
    pub(crate) fn scale(&self, i: usize) -> f32 {
        match &self.values {
            Values::Bf16(_) => 1.0,
            Values::Int8 { scales, .. } => scales[i],
        }
    }

    /// The distance of `row` from `factor` times the stored values of row `i`.
    pub(crate) fn distance(&self, i: usize, factor: f32, row: &[f32]) -> f64 {
        let span = i * self.cols..(i + 1) * self.cols;
        let squared = |(&value, stored): (&f32, f64)| (f64::from(value) - f64::from(factor) * stored).powi(2);
        let squares: f64 = match &self.values {
            Values::Bf16(values) => {
                let stored = values[span].iter().map(|&value| f64::from(from_bf16(value)));
                row.iter().zip(stored).map(squared).sum()
            }
            Values::Int8 { values, .. } => {
                row.iter().zip(values[span].iter().map(|&value| f64::from(value))).map(squared).sum()
            }
        };
        squares.sqrt()
    }

    /// All rows in f32, as [`decode_row`](Self::decode_row) gives them.
    pub fn decode(&self) -> Matrix {
        let mut data = vec![0.0; self.rows * self.cols];
        if self.cols > 0 {
            data.par_chunks_mut(self.cols).enumerate().for_each(|(i, row)| self.decode_row(i, row));
        }
        Matrix::new(self.rows, self.cols, data).expect("rows x columns values")
    }
}

/// Rounds `rows` rows of finite values; `read` fills row `i`.
pub(crate) fn encode_rows(
    rows: usize,
    cols: usize,
    code: Code,
    read: impl Fn(usize, &mut [f32]) + Sync,
) -> Result<CompactMatrix<'static>> {
    let values = match code {
        Code::Bf16 => {
            let mut values = vec![0; rows * cols];
            if cols > 0 {
                values.par_chunks_mut(cols).enumerate().for_each_init(
                    || vec![0.0; cols],
                    |row, (i, to)| {
                        read(i, row);
                        encode_bf16(row, to);
                    },
                );
            }
            Values::Bf16(Cow::Owned(values))
        }
        Code::Int8 => {
            let (mut values, mut scales) = (vec![0; rows * cols], vec![0.0; rows]);
            if cols > 0 {
                values.par_chunks_mut(cols).zip(&mut scales).enumerate().for_each_init(
                    || vec![0.0; cols],
                    |row, (i, (to, scale))| {
                        read(i, row);
                        *scale = encode_int8(row, to);
                    },
                );
            }
            Values::Int8 { values: Cow::Owned(values), scales: Cow::Owned(scales) }
        }
    };
    CompactMatrix::new(rows, cols, values)
}

fn encode_bf16(row: &[f32], to: &mut [u16]) {
    for (to, &value) in to.iter_mut().zip(row) {
        *to = to_bf16(value);
    }
}

/// Writes the whole numbers of a row of finite values and returns its scale.
fn encode_int8(row: &[f32], to: &mut [i8]) -> f32 {
    let largest = row.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let mut scale = largest / 127.0;
    if (127.0 * scale).is_infinite() {
        scale = scale.next_down();
    }
    for (to, &value) in to.iter_mut().zip(row) {
        // A scale that underflows to 0 gives 0/0; a cast turns that into 0 and saturates else.
        *to = (value / scale).round_ties_even().clamp(-127.0, 127.0) as i8;
    }
    scale
}

pub(crate) fn from_bf16(value: u16) -> f32 {
    f32::from_bits(u32::from(value) << 16)
}

/// The nearest bf16 of a finite value, ties to even; the largest finite one instead of an
/// infinity, 0 instead of a subnormal one.
fn to_bf16(value: f32) -> u16 {
    const LARGEST: u32 = 0x7f7f;
    let (sign, magnitude) = (value.to_bits() >> 31, value.to_bits() & 0x7fff_ffff);
    let rounded = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
    let rounded = if rounded < 0x80 { 0 } else { rounded.min(LARGEST) };
    (sign << 15 | rounded) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bf16_rounds_to_the_nearest_and_ties_to_even() {
        for (value, wanted) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.01 / 256.0, 1.0 + 2.0 / 256.0),
            (-3.1, -3.09375),
            (f32::MAX, 3.389_531_4e38),
            (f32::MIN, -3.389_531_4e38),
            (f32::MIN_POSITIVE, f32::MIN_POSITIVE),
            (f32::MIN_POSITIVE / 2.0, 0.0),
            (0.0, 0.0),
        ] {
            assert_eq!(from_bf16(to_bf16(value)), wanted, "{value}");
        }
    }

    #[test]
    fn rows_of_zeros_and_of_extreme_values_stay_finite() {
        let extreme = [0.0, f32::MAX, f32::MIN, 1e-45, -1e-45, 1.0];
        for value in extreme {
            let matrix = Matrix::new(2, 2, vec![value, 0.0, 0.0, value]).unwrap();
            for code in [Code::Bf16, Code::Int8] {
                let decoded = CompactMatrix::encode(&matrix, code).unwrap().decode();
                decoded.check_finite("decoded").unwrap();
                assert!((decoded.row(0)[0] - value).abs() <= value.abs() / 250.0 + 1e-38, "{value}");
            }
        }
        let nothing = CompactMatrix::encode(&Matrix::new(3, 0, vec![]).unwrap(), Code::Int8).unwrap();
        assert_eq!(nothing.decode().rows(), 3);
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        let matrix = Matrix::new(1, 2, vec![1.0, f32::NAN]).unwrap();
        let error = CompactMatrix::encode(&matrix, Code::Int8).unwrap_err();
        assert_eq!(error.to_string(), "embeddings: row 0, column 1 is NaN; every value must be finite");
        let wide = Matrix::new(1, MAX_INT8_COLS + 1, vec![1.0; MAX_INT8_COLS + 1]).unwrap();
        let error = CompactMatrix::encode(&wide, Code::Int8).unwrap_err();
        assert_eq!(error.to_string(), "the dimension of int8 rows must be at most 131072, 131073 given");
        assert!(CompactMatrix::encode(&wide, Code::Bf16).is_ok());
    }

    proptest! {
        #[test]
        fn a_stored_value_is_off_by_at_most_half_a_step(row in prop::collection::vec(-1e3f32..1e3, 1..40)) {
            let matrix = Matrix::new(1, row.len(), row.clone()).unwrap();
            let largest = row.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            let bf16 = CompactMatrix::encode(&matrix, Code::Bf16).unwrap().decode();
            let int8 = CompactMatrix::encode(&matrix, Code::Int8).unwrap().decode();
            for (i, &value) in row.iter().enumerate() {
                prop_assert!((bf16.row(0)[i] - value).abs() <= value.abs() / 256.0);
                prop_assert!((int8.row(0)[i] - value).abs() <= 1.0001 * largest / 254.0);
            }
        }
    }
}
