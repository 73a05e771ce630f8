//! Inner products of rows in bf16 or int8, for finding candidates.
//!
//! Rows stay as they are stored, one after the other, so that a mapped file is multiplied where it
//! is. Products of int8 are exact. Those of bf16 are summed in f32 in an order that depends on the
//! instruction set, so they are used only where a bound on their error suffices: the
//! candidates are scored again with [`Kernel`](super::Kernel).
//!
//! The error of a sum of bf16 products against exact arithmetic is at most `depth * 2^-23 * |a| |b|`
//! for any order and for the roundings of `vdpbf16ps`, and some multiple of 2^-126 for what that
//! instruction takes for zero.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod block;
mod portable;

use crate::instructions::{Level, WideCodes};

pub(crate) use block::{BLOCK, Codes, Keys, Products, QUERIES};

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dots(Level<WideCodes>);

impl Dots {
    /// The fastest kernels this CPU runs.
    pub(crate) fn best() -> Self {
        Self(Level::best())
    }

    /// All kernels this CPU runs, the slowest first.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        Level::all().into_iter().map(Self).collect()
    }

    /// The products of each query with each of the rows, of which there are at most [`BLOCK`].
    /// The contents of `out` for further rows and queries are unspecified.
    pub(crate) fn products(self, codes: &Codes, depth: usize, out: &mut [Products; QUERIES]) {
        let (queries, values, right) = match codes {
            Codes::Bf16 { queries, rows } => {
                (queries.len(), rows.len(), queries.iter().all(|query| query.len() == depth))
            }
            Codes::Int8 { queries, rows } => {
                (queries.len(), rows.len(), queries.iter().all(|query| query.len() == depth))
            }
        };
        assert!(right && (1..=QUERIES).contains(&queries), "{queries} queries of {depth} values");
        let whole = if depth == 0 { values == 0 } else { values.is_multiple_of(depth) };
        assert!(whole && values <= BLOCK * depth, "{values} values in rows of {depth}");
        if depth == 0 {
            *out = [[0.0; BLOCK]; QUERIES];
            return;
        }
        match (self.0, codes) {
            (Level::Portable, Codes::Bf16 { queries, rows }) => portable::bf16(queries, rows, depth, out),
            (Level::Portable, Codes::Int8 { queries, rows }) => portable::int8(queries, rows, depth, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            (Level::Avx2(_), Codes::Bf16 { queries, rows }) => unsafe {
                avx2::bf16(queries, rows, depth, out)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            (Level::Avx2(_), Codes::Int8 { queries, rows }) => unsafe {
                avx2::int8(queries, rows, depth, out)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, BW, BF16 and VNNI.
            (Level::Avx512(_), Codes::Bf16 { queries, rows }) => unsafe {
                avx512::bf16(queries, rows, depth, out)
            },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, BW, BF16 and VNNI.
            (Level::Avx512(_), Codes::Int8 { queries, rows }) => unsafe {
                avx512::int8(queries, rows, depth, out)
            },
        }
    }

    /// Turns products into keys, `product * (scale * factor) + (bias + row's bias)`, and tells
    /// which of them reach `floor`: a bit per row.
    pub(crate) fn reach(self, products: &mut Products, keys: &Keys, floor: f32) -> u64 {
        match self.0 {
            Level::Portable => portable::reach(products, keys, floor),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2::reach(products, keys, floor) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, BW, BF16 and VNNI.
            Level::Avx512(_) => unsafe { avx512::reach(products, keys, floor) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::from_bf16;

    fn bytes(count: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..count).map(|_| next()).collect()
    }

    /// Miri takes a second for a few thousand products.
    const SIZES: &[(usize, usize)] = if cfg!(miri) {
        &[(1, 1), (17, 2)]
    } else {
        &[(1, 1), (15, 4), (16, 2), (17, 1), (BLOCK, 3), (BLOCK, 4)]
    };
    const DEPTHS: &[usize] = if cfg!(miri) { &[1, 67] } else { &[1, 2, 31, 32, 33, 63, 64, 65, 200] };

    // Runs under Miri with `-C target-feature=+avx512f,+avx512bw,+avx512vnni,+avx512bf16`.
    #[test]
    fn every_kernel_multiplies_int8_exactly() {
        for &depth in DEPTHS {
            let signed = |bytes: Vec<u8>| bytes.iter().map(|&byte| byte as i8).collect::<Vec<_>>();
            let queries = signed(bytes(QUERIES * depth, 1));
            let rows = signed(bytes(BLOCK * depth, 2));
            let queries: Vec<&[i8]> = queries.chunks(depth).collect();
            for kernel in Dots::all() {
                for &(count, queried) in SIZES {
                    let mut out = [[0.0; BLOCK]; QUERIES];
                    let codes = Codes::Int8 { queries: &queries[..queried], rows: &rows[..count * depth] };
                    kernel.products(&codes, depth, &mut out);
                    for (query, out) in queries[..queried].iter().zip(&out) {
                        for (row, &found) in rows.chunks(depth).zip(out).take(count) {
                            let wanted: i64 =
                                query.iter().zip(row).map(|(&a, &b)| i64::from(a) * i64::from(b)).sum();
                            assert_eq!(found, wanted as f32, "{kernel:?}, {count} x {depth}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_longest_int8_rows_of_the_largest_values_do_not_overflow() {
        let depth = if cfg!(miri) { 1 << 10 } else { 1 << 17 };
        for value in [-128i8, 127] {
            let (query, row) = (vec![-127i8; depth], vec![value; depth]);
            for kernel in Dots::all() {
                let mut out = [[0.0; BLOCK]; QUERIES];
                kernel.products(&Codes::Int8 { queries: &[&query], rows: &row }, depth, &mut out);
                assert_eq!(out[0][0], (-127 * i64::from(value) * depth as i64) as f32);
            }
        }
    }

    #[test]
    fn every_kernel_multiplies_bf16_within_its_bound() {
        for &depth in DEPTHS {
            // Any sign and fraction, exponents about 1.
            let codes = |bytes: Vec<u8>| -> Vec<u16> {
                let pairs = bytes.as_chunks::<2>().0.iter();
                pairs.map(|&pair| u16::from_le_bytes(pair) & 0x80ff | 0x3f00).collect()
            };
            let queries = codes(bytes(2 * QUERIES * depth, 3));
            let rows = codes(bytes(2 * BLOCK * depth, 4));
            let queries: Vec<&[u16]> = queries.chunks(depth).collect();
            for kernel in Dots::all() {
                for &(count, queried) in SIZES {
                    let mut out = [[0.0; BLOCK]; QUERIES];
                    let codes = Codes::Bf16 { queries: &queries[..queried], rows: &rows[..count * depth] };
                    kernel.products(&codes, depth, &mut out);
                    for (query, out) in queries[..queried].iter().zip(&out) {
                        for (row, &found) in rows.chunks(depth).zip(out).take(count) {
                            let exact =
                                |a: &u16, b: &u16| f64::from(from_bf16(*a)) * f64::from(from_bf16(*b));
                            let wanted: f64 = query.iter().zip(row).map(|(a, b)| exact(a, b)).sum();
                            let length = |row: &[u16]| row.iter().map(|a| exact(a, a)).sum::<f64>().sqrt();
                            let bound = depth as f64 * 2f64.powi(-23) * length(query) * length(row);
                            assert!((f64::from(found) - wanted).abs() <= bound, "{kernel:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_kernel_finds_the_keys_that_reach_the_floor() {
        let values: Vec<f32> = bytes(3 * BLOCK, 5).iter().map(|&byte| f32::from(byte) - 100.0).collect();
        let [products, factors, biases] =
            [0, 1, 2].map(|part| <[f32; BLOCK]>::try_from(&values[part * BLOCK..][..BLOCK]).unwrap());
        let keys = Keys { scale: 0.5, bias: 3.0, factors: &factors, biases: &biases };
        for floor in [f32::NEG_INFINITY, -10.0, 203.0] {
            for kernel in Dots::all() {
                let mut found = products;
                let bits = kernel.reach(&mut found, &keys, floor);
                for row in 0..BLOCK {
                    // Whole and half numbers: no rounding.
                    let wanted = products[row] * 0.5 * factors[row] + 3.0 + biases[row];
                    assert_eq!(found[row], wanted);
                    assert_eq!(bits >> row & 1 == 1, wanted >= floor);
                }
            }
        }
    }
}
