//! The inverse cosine transform of a block, whole or at a reduced size.
//!
//! Whole blocks: the integer transform of stb_image and zune-jpeg, of 12 bits, in 32-bit arithmetic,
//! columns first; all implementations give the same bits, those of zune-jpeg.

/// How blocks are transformed: with the vectors of the processor at hand, or in plain code.
pub(crate) trait Idct: Copy {
    /// The samples of a whole block from its coefficients, into eight rows of `out`, `stride` apart.
    /// `low`: only the lowest 4 x 4 coefficients may be other than zero.
    fn whole(self, block: &[i16; 64], low: bool, out: &mut [u8], stride: usize);
}

/// In plain code.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// What a pass adds before it shifts: half a unit; the second also the 128 that samples are above 0.
const FIRST: (i32, u32) = (512, 10);
const SECOND: (i32, u32) = (512 + 65_536 + (128 << 17), 17);

/// The transform in one direction, of eight columns at once. Written out once for all kinds of
/// vectors: `$add`, `$sub` take two, `$times` a vector and a constant.
macro_rules! pass {
    ($rows:ident, $bias:expr, $add:expr, $sub:expr, $times:expr, $shift_up:expr, $shift_down:expr) => {{
        let [r0, r1, r2, r3, r4, r5, r6, r7] = $rows;
        let (add, sub, times) = ($add, $sub, $times);
        // Even rows.
        let p1 = times(add(r2, r6), 2217);
        let t2 = add(p1, times(r6, -7567));
        let t3 = add(p1, times(r2, 3135));
        let t0 = add($shift_up(add(r0, r4)), $bias);
        let t1 = add($shift_up(sub(r0, r4)), $bias);
        let (x0, x3) = (add(t0, t3), sub(t0, t3));
        let (x1, x2) = (add(t1, t2), sub(t1, t2));
        // Odd rows.
        let p3 = add(r7, r3);
        let p4 = add(r5, r1);
        let p5 = times(add(p3, p4), 4816);
        let p1 = add(p5, times(add(r7, r1), -3685));
        let p2 = add(p5, times(add(r5, r3), -10_497));
        let p3 = times(p3, -8034);
        let p4 = times(p4, -1597);
        let t3 = add(times(r1, 6149), add(p1, p4));
        let t2 = add(times(r3, 12_586), add(p2, p3));
        let t1 = add(times(r5, 8410), add(p2, p4));
        let t0 = add(times(r7, 1223), add(p1, p3));
        let (s0, s1, s2, s3) = (add(x0, t3), add(x1, t2), add(x2, t1), add(x3, t0));
        let (s4, s5, s6, s7) = (sub(x3, t0), sub(x2, t1), sub(x1, t2), sub(x0, t3));
        // Not `map`, which is not always inlined.
        let down = $shift_down;
        [down(s0), down(s1), down(s2), down(s3), down(s4), down(s5), down(s6), down(s7)]
    }};
}

impl Idct for Portable {
    #[inline(always)]
    fn whole(self, block: &[i16; 64], _low: bool, out: &mut [u8], stride: usize) {
        fn one(rows: [[i32; 8]; 8], (bias, down): (i32, u32)) -> [[i32; 8]; 8] {
            let each = |f: fn(i32, i32) -> i32| {
                move |a: [i32; 8], b: [i32; 8]| -> [i32; 8] { std::array::from_fn(|i| f(a[i], b[i])) }
            };
            pass!(
                rows,
                [bias; 8],
                each(i32::wrapping_add),
                each(i32::wrapping_sub),
                |a: [i32; 8], c: i32| a.map(|v| v.wrapping_mul(c)),
                |a: [i32; 8]| a.map(|v| v << 12),
                |a: [i32; 8]| a.map(|v| v >> down)
            )
        }
        let turned = |rows: [[i32; 8]; 8]| -> [[i32; 8]; 8] {
            std::array::from_fn(|y| std::array::from_fn(|x| rows[x][y]))
        };
        let rows = std::array::from_fn(|y| std::array::from_fn(|x| i32::from(block[8 * y + x])));
        let rows = turned(one(turned(one(rows, FIRST)), SECOND));
        for (line, row) in out.chunks_mut(stride).zip(rows) {
            line[..8].copy_from_slice(&row.map(|v| v.clamp(0, 255) as u8));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{__m128i, __m256i};

    use gallerist_util::simd::pulp;
    use pulp::x86::V3;

    use super::{FIRST, Idct, SECOND};

    impl Idct for V3 {
        #[inline(always)]
        fn whole(self, block: &[i16; 64], low: bool, out: &mut [u8], stride: usize) {
            let [r0, r1, r2, r3, r4, r5, r6, r7]: [__m128i; 8] = pulp::cast(*block);
            let wide = |row| self.avx2._mm256_cvtepi16_epi32(row);
            let [w0, w1, w2, w3] = [wide(r0), wide(r1), wide(r2), wide(r3)];
            let [c0, c1, c2, c3, c4, c5, c6, c7] = if low {
                // The compiler leaves out what is multiplied by these.
                let z = self.avx._mm256_setzero_si256();
                let [t0, t1, t2, t3, ..] =
                    transpose(self, one::<10>(self, [w0, w1, w2, w3, z, z, z, z], FIRST.0));
                one::<17>(self, [t0, t1, t2, t3, z, z, z, z], SECOND.0)
            } else {
                let rows = [w0, w1, w2, w3, wide(r4), wide(r5), wide(r6), wide(r7)];
                one::<17>(self, transpose(self, one::<10>(self, rows, FIRST.0)), SECOND.0)
            };
            // Saturated to 16 bits and then to bytes, rows 0 to 3 in the lower half of the register and
            // rows 4 to 7 in the upper: four bytes each of four columns, then turned.
            let pack = |a, b, c, d| {
                let (ab, cd) = (self.avx2._mm256_packs_epi32(a, b), self.avx2._mm256_packs_epi32(c, d));
                let columns = self.avx2._mm256_packus_epi16(ab, cd);
                self.avx2._mm256_shuffle_epi8(columns, pulp::cast([TURN; 2]))
            };
            let (left, right) = (pack(c0, c1, c2, c3), pack(c4, c5, c6, c7));
            let [r0, r1, r4, r5]: [u64; 4] = pulp::cast(self.avx2._mm256_unpacklo_epi32(left, right));
            let [r2, r3, r6, r7]: [u64; 4] = pulp::cast(self.avx2._mm256_unpackhi_epi32(left, right));
            for (line, row) in out.chunks_mut(stride).zip([r0, r1, r2, r3, r4, r5, r6, r7]) {
                line[..8].copy_from_slice(&row.to_le_bytes());
            }
        }
    }

    /// 4 x 4 bytes, rows and columns exchanged.
    const TURN: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

    #[inline(always)]
    fn one<const DOWN: i32>(simd: V3, rows: [__m256i; 8], bias: i32) -> [__m256i; 8] {
        pass!(
            rows,
            simd.avx._mm256_set1_epi32(bias),
            |a, b| simd.avx2._mm256_add_epi32(a, b),
            |a, b| simd.avx2._mm256_sub_epi32(a, b),
            |a, c| simd.avx2._mm256_mullo_epi32(a, simd.avx._mm256_set1_epi32(c)),
            |a| simd.avx2._mm256_slli_epi32::<12>(a),
            |a| simd.avx2._mm256_srai_epi32::<DOWN>(a)
        )
    }

    #[inline(always)]
    fn transpose(simd: V3, [a, b, c, d, e, f, g, h]: [__m256i; 8]) -> [__m256i; 8] {
        let low = |a, b| simd.avx2._mm256_unpacklo_epi32(a, b);
        let high = |a, b| simd.avx2._mm256_unpackhi_epi32(a, b);
        let low2 = |a, b| simd.avx2._mm256_unpacklo_epi64(a, b);
        let high2 = |a, b| simd.avx2._mm256_unpackhi_epi64(a, b);
        let low4 = |a, b| simd.avx2._mm256_permute2x128_si256::<0x20>(a, b);
        let high4 = |a, b| simd.avx2._mm256_permute2x128_si256::<0x31>(a, b);
        let (ab, cd, ef, gh) = (low(a, b), low(c, d), low(e, f), low(g, h));
        let (ab2, cd2, ef2, gh2) = (high(a, b), high(c, d), high(e, f), high(g, h));
        let (u0, u1, u2, u3) = (low2(ab, cd), high2(ab, cd), low2(ab2, cd2), high2(ab2, cd2));
        let (v0, v1, v2, v3) = (low2(ef, gh), high2(ef, gh), low2(ef2, gh2), high2(ef2, gh2));
        [
            low4(u0, v0),
            low4(u1, v1),
            low4(u2, v2),
            low4(u3, v3),
            high4(u0, v0),
            high4(u1, v1),
            high4(u2, v2),
            high4(u3, v3),
        ]
    }
}

/// A block of which only the first coefficient is not zero, or counts, as `N` x `N` equal samples.
#[inline(always)]
pub(crate) fn flat<const N: usize>(first: i16, out: &mut [u8], stride: usize) {
    let value = ((i32::from(first) + 4 + 1024) >> 3).clamp(0, 255) as u8;
    for line in out.chunks_mut(stride).take(N) {
        line[..N].fill(value);
    }
}

/// A block as 4 x 4 samples, from its 4 x 4 lowest coefficients.
#[inline(always)]
pub(crate) fn half(block: &[i16; 64], out: &mut [u8], stride: usize) {
    // The even rows of the transform above are the one of half the length.
    fn one(rows: [[i32; 4]; 4], (bias, down): (i32, u32)) -> [[i32; 4]; 4] {
        let mut out = [[0; 4]; 4];
        for i in 0..4 {
            let [r0, r1, r2, r3] = rows.map(|row| row[i]);
            let (even0, even1) = (((r0 + r2) << 12) + bias, ((r0 - r2) << 12) + bias);
            let (odd0, odd1) = (5352 * r1 + 2217 * r3, 2217 * r1 - 5352 * r3);
            for (row, sum) in out.iter_mut().zip([even0 + odd0, even1 + odd1, even1 - odd1, even0 - odd0]) {
                row[i] = sum >> down;
            }
        }
        out
    }
    let turned = |rows: [[i32; 4]; 4]| -> [[i32; 4]; 4] {
        std::array::from_fn(|y| std::array::from_fn(|x| rows[x][y]))
    };
    let rows = std::array::from_fn(|y| std::array::from_fn(|x| i32::from(block[8 * y + x])));
    let rows = turned(one(turned(one(rows, FIRST)), SECOND));
    for (line, row) in out.chunks_mut(stride).zip(rows) {
        line[..4].copy_from_slice(&row.map(|v| v.clamp(0, 255) as u8));
    }
}

/// A block as 2 x 2 samples, from its 2 x 2 lowest coefficients.
#[inline(always)]
pub(crate) fn quarter(block: &[i16; 64], out: &mut [u8], stride: usize) {
    let [a, b, c, d] = [0, 1, 8, 9].map(|at| i32::from(block[at]));
    let sample = |sum: i32| ((sum + 4 + 1024) >> 3).clamp(0, 255) as u8;
    out[0] = sample(a + b + c + d);
    out[1] = sample(a - b + c - d);
    out[stride] = sample(a + b - c - d);
    out[stride + 1] = sample(a - b - c + d);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gallerist_util::random::Random;

    /// The definition, T.81 section A.3.3.
    fn defined(block: &[i16; 64], x: usize, y: usize) -> f64 {
        let wave = |k: usize, at: usize| {
            let scale = if k == 0 { 0.5f64.sqrt() } else { 1.0 };
            scale * ((2 * at + 1) as f64 * k as f64 * std::f64::consts::PI / 16.0).cos()
        };
        let sum: f64 = (0..64).map(|i| f64::from(block[i]) * wave(i % 8, x) * wave(i / 8, y)).sum();
        (sum / 4.0 + 128.0).clamp(0.0, 255.0)
    }

    /// Coefficients that are the smaller the higher they are; `corner` limits them to low ones.
    fn blocks(corner: usize, count: u64) -> impl Iterator<Item = [i16; 64]> {
        (0..count).map(move |i| {
            let mut random = Random::new(1, "blocks", 0, i);
            std::array::from_fn(|at| {
                let (x, y) = (at % 8, at / 8);
                let reach = 600.0 / (1 + x + y) as f64;
                if x.max(y) < corner { random.between(-reach, reach) as i16 } else { 0 }
            })
        })
    }

    #[test]
    fn samples_are_those_of_the_definition_to_one_grey_level() {
        for block in blocks(8, 200) {
            let mut out = [0; 64];
            Portable.whole(&block, false, &mut out, 8);
            for (i, &sample) in out.iter().enumerate() {
                let wanted = defined(&block, i % 8, i / 8);
                assert!((f64::from(sample) - wanted).abs() < 1.0, "{sample} for {wanted}");
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vectors_give_the_same_samples_as_plain_code() {
        let Some(simd) = gallerist_util::simd::pulp::x86::V3::try_new().filter(|_| !cfg!(miri)) else {
            return;
        };
        let extreme = [[i16::MAX; 64], [i16::MIN; 64]];
        let whole = blocks(8, 500).chain(extreme).map(|block| (block, false));
        for (block, low) in whole.chain(blocks(4, 200).map(|block| (block, true))) {
            let (mut plain, mut vectors) = ([0; 80], [0; 80]);
            Portable.whole(&block, false, &mut plain, 10);
            simd.whole(&block, low, &mut vectors, 10);
            assert_eq!(plain, vectors);
        }
    }

    #[test]
    fn a_block_of_one_coefficient_is_flat() {
        for first in (-1400..1400).step_by(7) {
            let mut block = [0; 64];
            block[0] = first;
            let (mut whole, mut flat8) = ([0; 64], [0; 64]);
            Portable.whole(&block, false, &mut whole, 8);
            flat::<8>(first, &mut flat8, 8);
            assert_eq!(whole, flat8);
            let (mut half4, mut quarter2) = ([0; 16], [0; 4]);
            half(&block, &mut half4, 4);
            quarter(&block, &mut quarter2, 2);
            assert_eq!((half4, quarter2), ([whole[0]; 16], [whole[0]; 4]));
        }
    }

    #[test]
    fn reduced_blocks_are_what_the_samples_average_to() {
        // Of coefficients below a quarter of the highest, next to nothing is lost by the reduction.
        let (mut worst4, mut worst2) = (0.0f64, 0.0f64);
        for block in blocks(2, 200) {
            let mut whole = [0; 64];
            Portable.whole(&block, false, &mut whole, 8);
            if whole.iter().any(|v| matches!(v, 0 | 255)) {
                continue;
            }
            let (mut half4, mut quarter2) = ([0; 16], [0; 4]);
            half(&block, &mut half4, 4);
            quarter(&block, &mut quarter2, 2);
            for (reduced, side, worst) in [(&half4[..], 4, &mut worst4), (&quarter2[..], 2, &mut worst2)] {
                let step = 8 / side;
                for (i, &sample) in reduced.iter().enumerate() {
                    let (left, top) = (i % side * step, i / side * step);
                    let all = (0..step * step).map(|j| whole[(top + j / step) * 8 + left + j % step]);
                    let mean = all.map(f64::from).sum::<f64>() / (step * step) as f64;
                    *worst = worst.max((f64::from(sample) - mean).abs());
                }
            }
        }
        assert!(worst4 < 8.0 && worst2 < 25.0, "{worst4} {worst2}");
    }
}
