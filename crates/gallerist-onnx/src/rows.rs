//! The output of a model as one row per image.

gallerist_util::named_values! {
    /// How tokens `[n, count, width]` become one row per image.
    ///
    /// An output `[n, length]` is a row already. Feature maps `[n, channels, height, width]` become their mean over all
    /// positions.
    #[derive(Default, Hash)]
    pub enum Rows {
        /// The class token.
        #[default]
        First = "first", "The first token, which is the class token of most transformers";
        /// The mean of all tokens.
        Mean = "mean", "The mean of all tokens";
        /// The mean of the patches.
        MeanOfPatches = "mean_of_patches", "The mean of all tokens but the first";
    }
}

impl Rows {
    /// Rows of an output of this shape, or the reason why it has none.
    #[cfg(any(test, feature = "engine"))]
    pub(crate) fn of(self, shape: &[usize], values: Vec<f32>) -> Result<Vec<f32>, String> {
        match *shape {
            [_, _] => Ok(values),
            [_, _, 1, 1] => Ok(values),
            [n, count, width] if count > 0 => Ok(self.of_tokens(n, count, width, &values)),
            [_, _, height, width] if height * width > 0 => {
                let area = height * width;
                let mean =
                    |map: &[f32]| (map.iter().map(|&v| f64::from(v)).sum::<f64>() / area as f64) as f32;
                Ok(values.chunks_exact(area).map(mean).collect())
            }
            _ => Err(format!(
                "its output has the shape {shape:?}; wanted [n, length], [n, tokens, length] or [n, channels, height, width]"
            )),
        }
    }

    #[cfg(any(test, feature = "engine"))]
    fn of_tokens(self, n: usize, count: usize, width: usize, values: &[f32]) -> Vec<f32> {
        let first = match self {
            Rows::First => {
                return values
                    .chunks_exact(count * width)
                    .flat_map(|tokens| &tokens[..width])
                    .copied()
                    .collect();
            }
            Rows::Mean => 0,
            Rows::MeanOfPatches => usize::from(count > 1),
        };
        let mut rows = Vec::with_capacity(n * width);
        for tokens in values.chunks_exact(count * width) {
            let mut sums = vec![0.0f64; width];
            for token in tokens.chunks_exact(width).skip(first) {
                sums.iter_mut().zip(token).for_each(|(sum, &value)| *sum += f64::from(value));
            }
            rows.extend(sums.iter().map(|sum| (sum / (count - first) as f64) as f32));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_maps_become_rows() {
        // Two images of three tokens of length 2.
        let tokens: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let of = |rows: Rows| rows.of(&[2, 3, 2], tokens.clone()).unwrap();
        assert_eq!(of(Rows::First), [0.0, 1.0, 6.0, 7.0]);
        assert_eq!(of(Rows::Mean), [2.0, 3.0, 8.0, 9.0]);
        assert_eq!(of(Rows::MeanOfPatches), [3.0, 4.0, 9.0, 10.0]);
        assert_eq!(Rows::First.of(&[1, 3, 2, 2], tokens.clone()).unwrap(), [1.5, 5.5, 9.5]);
        assert_eq!(Rows::Mean.of(&[6, 2], tokens.clone()).unwrap(), tokens);
        assert!(Rows::First.of(&[12], tokens).unwrap_err().contains("[12]"));
    }
}
