//! Rotary positions (Su et al. 2021), for the patches of an image.

/// The angles by which self-attention turns the queries and keys of tokens.
///
/// Channel `i` of the first half of a head and channel `i` of the second half are the two coordinates that are turned by
/// angle `i`. The first tokens of an image (class token, registers) are not turned.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotary {
    first: usize,
    half: usize,
    /// Cosine and sine of token, angle.
    turns: Vec<[f32; 2]>,
}

impl Rotary {
    /// The angles of patches in a grid, as in DINOv3 (Siméoni et al. 2025): the centres of the rows lie between -1 and 1, so
    /// do those of the columns, and a head of `channels` has `channels / 4` angles for each of both,
    /// `2 pi position / base^(4 i / channels)`.
    ///
    /// `first` is the number of tokens before the patches, `grid` the rows and columns of patches.
    ///
    /// # Panics
    ///
    /// If `channels` is 0 or not a multiple of 4.
    pub fn of_grid(first: usize, grid: [usize; 2], channels: usize, base: f64) -> Self {
        assert!(
            channels > 0 && channels.is_multiple_of(4),
            "rotary positions need heads of a multiple of 4 channels, not {channels}"
        );
        let quarter = channels / 4;
        let of_side = |place: usize, side: usize| {
            let position = 2.0 * (place as f64 + 0.5) / side as f64 - 1.0;
            (0..quarter).map(move |i| {
                let period = base.powf(i as f64 / quarter as f64);
                let (sin, cos) = (std::f64::consts::TAU * position / period).sin_cos();
                [cos as f32, sin as f32]
            })
        };
        let [rows, columns] = grid;
        let patches = (0..rows * columns).map(|i| (i / columns, i % columns));
        let turns =
            patches.flat_map(|(row, column)| of_side(row, rows).chain(of_side(column, columns))).collect();
        Rotary { first, half: 2 * quarter, turns }
    }

    /// Tokens that are not turned, before the others.
    pub fn first(&self) -> usize {
        self.first
    }

    /// All tokens of an image.
    pub fn tokens(&self) -> usize {
        self.first + self.turns.len() / self.half
    }

    /// Channels of a head.
    pub fn channels(&self) -> usize {
        2 * self.half
    }

    /// Cosines and sines, `[tokens, channels]`: a head `[x, y]` becomes `[x, y] cos + [-y, x] sin`.
    pub fn tables(&self) -> [Vec<f32>; 2] {
        [0, 1].map(|part| {
            let mut table = vec![if part == 0 { 1.0 } else { 0.0 }; self.first * self.channels()];
            for turns in self.turns.chunks_exact(self.half) {
                (0..2).for_each(|_| table.extend(turns.iter().map(|turn| turn[part])));
            }
            table
        })
    }

    /// Turns the tokens of a head, rows of `stride` elements.
    pub(crate) fn turn(&self, rows: &mut [f32], stride: usize) {
        self.turn_by(rows, stride, 1.0);
    }

    /// Turns the tokens of a head back, which is the gradient of [`turn`](Self::turn).
    pub(crate) fn turn_back(&self, rows: &mut [f32], stride: usize) {
        self.turn_by(rows, stride, -1.0);
    }

    fn turn_by(&self, rows: &mut [f32], stride: usize, direction: f32) {
        let rows = rows.chunks_exact_mut(stride).skip(self.first);
        for (row, turns) in rows.zip(self.turns.chunks_exact(self.half)) {
            let (left, right) = row.split_at_mut(self.half);
            for ((x, y), [cos, sin]) in left.iter_mut().zip(right).zip(turns) {
                let sin = sin * direction;
                (*x, *y) = (*x * cos - *y * sin, *y * cos + *x * sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_keeps_lengths_and_turning_back_undoes_it() {
        let rotary = Rotary::of_grid(1, [2, 3], 8, 100.0);
        assert_eq!([rotary.first(), rotary.tokens(), rotary.channels()], [1, 7, 8]);
        let values: Vec<f32> = (0..7 * 16).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
        let mut turned = values.clone();
        rotary.turn(&mut turned, 16);
        assert_eq!(turned[..16], values[..16]);
        for (row, (turned, values)) in turned.chunks(16).zip(values.chunks(16)).enumerate() {
            assert_eq!(turned[8..], values[8..], "row {row} beyond its channels");
            let length = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
            assert!((length(turned) - length(values)).abs() < 1e-3, "row {row}");
        }
        rotary.turn_back(&mut turned, 16);
        for (turned, value) in turned.iter().zip(&values) {
            assert!((turned - value).abs() < 1e-5, "{turned}, wanted {value}");
        }
    }

    #[test]
    fn tables_are_those_of_the_equation() {
        let [cos, sin] = Rotary::of_grid(1, [1, 2], 8, 100.0).tables();
        // The row is in the middle, the columns are at -1/2 and 1/2; the periods are 1 and 10.
        let turn = std::f32::consts::TAU / 2.0;
        let column = |sign: f32| [0.0, 0.0, sign * turn, sign * turn / 10.0];
        let angles: Vec<f32> =
            [-1.0, 1.0].into_iter().flat_map(|sign| [column(sign), column(sign)].concat()).collect();
        for (i, angle) in [[0.0; 8].to_vec(), angles].concat().into_iter().enumerate() {
            assert!((cos[i] - angle.cos()).abs() < 1e-6 && (sin[i] - angle.sin()).abs() < 1e-6, "{i}");
        }
    }
}
