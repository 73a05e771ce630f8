//! Inner products of rows with rows, in tiles that are looked at while they are in the cache.
//!
//! The key of a pair is `bias_a + bias_b + sum over k of a_k b_k`, added up in the order of k by
//! one chain of fused multiply-adds. Every kernel, for every processor, keeps that order, so a
//! key is a function of its two rows alone: it does not change with the place of the rows, the
//! size of the blocks, the number of threads or the instruction set, and it is the same for
//! `(a, b)` as for `(b, a)`.
//!
//! Its error against exact arithmetic is at most `(depth + 2) * 2^-24` times
//! `|bias_a| + |bias_b| + |a| |b|` (Higham, Accuracy and Stability of Numerical Algorithms, 3.1);
//! the usual error grows with the square root of the depth.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod dots;
mod panels;
mod portable;
mod tile;

use crate::instructions::{Level, WideFloats};

pub(crate) use panels::Panels;
use tile::PART;
pub(crate) use tile::{Bits, GROUPS, LANES, Panel, ROWS, Tile};

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Kernel(Level<WideFloats>);

impl Kernel {
    /// The fastest kernels this CPU runs.
    pub(crate) fn best() -> Self {
        Self(Level::best())
    }

    /// All kernels this CPU runs, the slowest first.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        Level::all().into_iter().map(Self).collect()
    }

    /// The keys of `rows` rows of panel `a`, from row `group * ROWS` on, with all rows of panel
    /// `b`. The further rows of `out` are unspecified.
    pub(crate) fn product(
        self,
        rows: usize,
        (a, group, bias_a): (&Panel, usize, &[f32; ROWS]),
        (b, bias_b): (&Panel, &[f32; LANES]),
        out: &mut Tile,
    ) {
        self.part(rows, Some((bias_a, bias_b)), (a, group), b, out);
    }

    /// The keys of the first `rows` rows of panel `a` with all rows of panel `b`, a tile for each
    /// group of `a`. What the tiles hold in further rows is not said.
    ///
    /// As many [`product`](Self::product)s give the same bits; here both panels are read in parts
    /// that stay in the first cache until all groups have used them.
    pub(crate) fn products(
        self,
        rows: usize,
        (a, bias_a): (&Panel, &[f32; LANES]),
        (b, bias_b): (&Panel, &[f32; LANES]),
        out: &mut [Tile; GROUPS],
    ) {
        assert!(a.len() == b.len() && rows <= LANES, "{rows} rows of {} and {} values", a.len(), b.len());
        // One group has nobody to share with.
        let part = if rows <= ROWS { a.len().max(1) } else { PART };
        let mut start = 0;
        while start == 0 || start < a.len() {
            let values = start..a.len().min(start + part);
            let (a, b) = (&a[values.clone()], &b[values]);
            for (group, out) in out[..rows.div_ceil(ROWS)].iter_mut().enumerate() {
                let biases = (start == 0).then(|| (&bias_a.as_chunks().0[group], bias_b));
                self.part(ROWS.min(rows - group * ROWS), biases, (a, group), b, out);
            }
            start += part;
        }
    }

    /// Adds the products of some of the values to the keys in `out`, which start from the biases
    /// where they are given.
    fn part(
        self,
        rows: usize,
        biases: Option<(&[f32; ROWS], &[f32; LANES])>,
        a: (&Panel, usize),
        b: &Panel,
        out: &mut Tile,
    ) {
        assert!(a.0.len() == b.len(), "rows of {} and of {} values", a.0.len(), b.len());
        assert!(a.1 < GROUPS && rows <= ROWS, "{rows} rows of group {}", a.1);
        match self.0 {
            Level::Portable => portable::product(rows, biases, a, b, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2::product(rows, biases, a, b, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe {
                match rows {
                    0..=1 => avx512::product::<1>(biases, a, b, out),
                    2 => avx512::product::<2>(biases, a, b, out),
                    3..=4 => avx512::product::<4>(biases, a, b, out),
                    _ => avx512::product::<ROWS>(biases, a, b, out),
                }
            },
        }
    }

    /// Which keys reach the floor of their row.
    pub(crate) fn at_least_rows(self, tile: &Tile, floors: &[f32; ROWS]) -> Bits {
        match self.0 {
            Level::Portable => portable::at_least_rows(tile, floors),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2::at_least_rows(tile, floors) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe { avx512::at_least_rows(tile, floors) },
        }
    }

    /// Which keys reach the floor of their lane.
    pub(crate) fn at_least_lanes(self, tile: &Tile, floors: &[f32; LANES]) -> Bits {
        match self.0 {
            Level::Portable => portable::at_least_lanes(tile, floors),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2::at_least_lanes(tile, floors) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe { avx512::at_least_lanes(tile, floors) },
        }
    }

    /// Adds to each count how many keys of one row reach the floor of that count.
    pub(crate) fn count_row(self, keys: &[f32; LANES], floors: &[f32], counts: &mut [u32]) {
        assert!(floors.len() == counts.len(), "{} floors, {} counts", floors.len(), counts.len());
        match self.0 {
            Level::Portable => portable::count_row(keys, floors, counts),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2::count_row(keys, floors, counts) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe { avx512::count_row(keys, floors, counts) },
        }
    }

    /// Adds to each count how many keys of its lane, in the first `rows` rows, reach its floor.
    pub(crate) fn count_lanes(
        self,
        tile: &Tile,
        rows: usize,
        floors: &[[f32; LANES]],
        counts: &mut [[u32; LANES]],
    ) {
        assert!(floors.len() == counts.len(), "{} floors, {} counts", floors.len(), counts.len());
        let tile = &tile.0[..rows];
        match self.0 {
            Level::Portable => portable::count_lanes(tile, floors, counts),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2` proves that the CPU has AVX2 and FMA.
            Level::Avx2(_) => unsafe { avx2::count_lanes(tile, floors, counts) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx512` proves that the CPU has AVX-512 F, FMA and POPCNT.
            Level::Avx512(_) => unsafe { avx512::count_lanes(tile, floors, counts) },
        }
    }
}

/// The positions of the set bits, from the lowest.
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (bits != 0).then(|| {
            let at = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            at
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MatrixView;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    // Runs under Miri with `-C target-feature=+avx512f`.
    #[test]
    fn every_kernel_adds_in_the_order_of_the_dimensions() {
        let depths: &[usize] = if cfg!(miri) { &[0, 3] } else { &[0, 1, 2, 7, 33, PART, PART + 1] };
        let counts: &[usize] = if cfg!(miri) { &[1, ROWS + 1] } else { &[1, ROWS, ROWS + 1, LANES] };
        for &depth in depths {
            let (a, b) = (values(LANES * depth, 1), values(LANES * depth, 2));
            let a = MatrixView::new(LANES, depth, &a).unwrap();
            let b = MatrixView::new(LANES, depth, &b).unwrap();
            let bias = |row: &[f32]| -0.5 * row.iter().map(|value| value * value).sum::<f32>();
            let (left, right) = (Panels::new(a, bias), Panels::new(b, bias));
            let mut tile = Tile::new();
            for kernel in Kernel::all() {
                for (group, rows) in [(0, 1), (1, 2), (2, 3), (4, 4), (5, 8)] {
                    let bias_a = left.bias(0).as_chunks().0[group];
                    kernel.product(
                        rows,
                        (left.panel(0), group, &bias_a),
                        (right.panel(0), right.bias(0)),
                        &mut tile,
                    );
                    for row in 0..rows {
                        for lane in 0..LANES {
                            let (a, b) = (a.row(group * ROWS + row), b.row(lane));
                            let wanted =
                                a.iter().zip(b).fold(bias(a) + bias(b), |sum, (a, b)| a.mul_add(*b, sum));
                            assert_eq!(tile.0[row][lane].to_bits(), wanted.to_bits());
                        }
                    }
                }
                let mut tiles = Tile::for_panel();
                for &rows in counts {
                    tiles.iter_mut().flat_map(|tile| &mut tile.0).for_each(|keys| keys.fill(f32::NAN));
                    let (left, right) = ((left.panel(0), left.bias(0)), (right.panel(0), right.bias(0)));
                    kernel.products(rows, left, right, &mut tiles);
                    for row in 0..rows {
                        let (group, in_group) = (row / ROWS, row % ROWS);
                        let bias_a = &left.1.as_chunks().0[group];
                        kernel.product(in_group + 1, (left.0, group, bias_a), right, &mut tile);
                        let bits = |keys: &[f32; LANES]| keys.map(f32::to_bits);
                        assert_eq!(bits(&tiles[group].0[in_group]), bits(&tile.0[in_group]));
                    }
                }
            }
        }
    }

    #[test]
    fn every_kernel_finds_the_keys_that_reach_their_floor() {
        let mut tile = Tile::new();
        let keys = values(ROWS * LANES, 3);
        for (row, keys) in tile.0.iter_mut().zip(keys.chunks(LANES)) {
            row.copy_from_slice(keys);
        }
        tile.0[3][17] = f32::NEG_INFINITY;
        let mut row_floors: [f32; ROWS] = values(ROWS, 4).try_into().unwrap();
        let mut lane_floors: [f32; LANES] = values(LANES, 5).try_into().unwrap();
        // A key that equals its floor reaches it.
        row_floors[2] = tile.0[2][40];
        lane_floors[15] = tile.0[7][15];
        for kernel in Kernel::all() {
            let by_row = kernel.at_least_rows(&tile, &row_floors);
            let by_lane = kernel.at_least_lanes(&tile, &lane_floors);
            for row in 0..ROWS {
                for lane in 0..LANES {
                    let key = tile.0[row][lane];
                    assert_eq!(by_row[row] >> lane & 1 == 1, key >= row_floors[row]);
                    assert_eq!(by_lane[row] >> lane & 1 == 1, key >= lane_floors[lane]);
                }
                assert_eq!((by_row[row] | by_lane[row]) >> LANES, 0);
            }
        }
    }

    #[test]
    fn every_kernel_counts_the_keys_that_reach_each_floor() {
        let mut tile = Tile::new();
        let keys = values(ROWS * LANES, 6);
        for (row, keys) in tile.0.iter_mut().zip(keys.chunks(LANES)) {
            row.copy_from_slice(keys);
        }
        let mut row_floors = values(5, 7);
        row_floors[3] = tile.0[4][20];
        row_floors[4] = f32::INFINITY;
        let lane_floors: Vec<[f32; LANES]> =
            (0..3).map(|level| if level == 1 { tile.0[2] } else { tile.0[level + 3] }).collect();
        for kernel in Kernel::all() {
            let mut counts = vec![1; 5];
            kernel.count_row(&tile.0[4], &row_floors, &mut counts);
            for (count, floor) in counts.iter().zip(&row_floors) {
                let wanted = tile.0[4].iter().filter(|&key| key >= floor).count();
                assert_eq!(*count as usize, 1 + wanted);
            }
            for rows in [1, 3, ROWS] {
                let mut counts = vec![[2; LANES]; 3];
                kernel.count_lanes(&tile, rows, &lane_floors, &mut counts);
                for (counts, floors) in counts.iter().zip(&lane_floors) {
                    for lane in 0..LANES {
                        let wanted = (0..rows).filter(|&row| tile.0[row][lane] >= floors[lane]).count();
                        assert_eq!(counts[lane] as usize, 2 + wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn set_bits_are_listed_from_the_lowest() {
        assert_eq!(ones(0).count(), 0);
        assert_eq!(ones(1 << 47 | 0b101).collect::<Vec<_>>(), [0, 2, 47]);
    }
}
