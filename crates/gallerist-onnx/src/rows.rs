//! The output of a model as one row per image.

gallerist_util::named_values! {
    /// How tokens `[n, count, width]` become one row per image.
    ///
    /// An output `[n, length]` is a row already. Feature maps `[n, channels, height, width]` or `[n, height, width, channels]`
    /// become their mean over all positions.
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

/// The order of the sides of images or feature maps.
#[cfg(any(test, feature = "engine"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    ChannelsFirst,
    ChannelsLast,
}

#[cfg(any(test, feature = "engine"))]
impl Order {
    /// The order of feature maps with these sides: the one in which they have the proportions of the images. If both have
    /// them or none, it is `self`, the order of the images.
    ///
    /// The two can differ: Swin transformers of timm have channels first in images and last in feature maps.
    fn of_maps(self, [a, b, c]: [usize; 3], [height, width]: [usize; 2]) -> Self {
        // The sides of maps are those of the images divided by one number, and rounded.
        let fits = |h: usize, w: usize| (h * width).abs_diff(w * height) <= height + width;
        match (fits(b, c), fits(a, b)) {
            (true, false) => Self::ChannelsFirst,
            (false, true) => Self::ChannelsLast,
            _ => self,
        }
    }
}

impl Rows {
    /// Rows of an output of this shape, or the reason why it has none. `order` and `image` are the order of the input, and
    /// height and width of the images.
    #[cfg(any(test, feature = "engine"))]
    pub(crate) fn of(
        self,
        shape: &[usize],
        values: Vec<f32>,
        order: Order,
        image: [usize; 2],
    ) -> Result<Vec<f32>, String> {
        match *shape {
            // Maps of one position, in either order, are rows, too.
            [_, _] | [_, _, 1, 1] | [_, 1, 1, _] => Ok(values),
            [n, count, width] if !values.is_empty() => Ok(self.of_tokens(n, count, width, &values)),
            [n, a, b, c] if !values.is_empty() => match order.of_maps([a, b, c], image) {
                Order::ChannelsFirst => {
                    let area = b * c;
                    let mean =
                        |map: &[f32]| (map.iter().map(|&v| f64::from(v)).sum::<f64>() / area as f64) as f32;
                    Ok(values.chunks_exact(area).map(mean).collect())
                }
                Order::ChannelsLast => Ok(Self::Mean.of_tokens(n, a * b, c, &values)),
            },
            _ => Err(format!(
                "its output has the shape {shape:?}; wanted [n, length], [n, tokens, length], [n, channels, height, width] \
                 or [n, height, width, channels]"
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
        let with = |rows: Rows, shape: &[usize], order| rows.of(shape, tokens.clone(), order, [8, 8]);
        let of = |rows: Rows, shape: &[usize]| with(rows, shape, Order::ChannelsFirst).unwrap();
        assert_eq!(of(Rows::First, &[2, 3, 2]), [0.0, 1.0, 6.0, 7.0]);
        assert_eq!(of(Rows::Mean, &[2, 3, 2]), [2.0, 3.0, 8.0, 9.0]);
        assert_eq!(of(Rows::MeanOfPatches, &[2, 3, 2]), [3.0, 4.0, 9.0, 10.0]);
        assert_eq!(of(Rows::First, &[1, 3, 2, 2]), [1.5, 5.5, 9.5]);
        assert_eq!(of(Rows::Mean, &[6, 2]), tokens);
        assert!(with(Rows::First, &[12], Order::ChannelsFirst).unwrap_err().contains("[12]"));
        // The order of the input decides where the sides do not.
        let last = |shape: &[usize]| with(Rows::First, shape, Order::ChannelsLast).unwrap();
        assert_eq!(last(&[1, 2, 2, 3]), [4.5, 5.5, 6.5]);
        assert_eq!(last(&[2, 1, 2, 3]), [1.5, 2.5, 3.5, 7.5, 8.5, 9.5]);
        for shape in [[2, 1, 1, 6], [2, 6, 1, 1], [12, 1, 1, 1]] {
            assert_eq!((last(&shape), of(Rows::First, &shape)), (tokens.clone(), tokens.clone()));
        }
    }

    #[test]
    fn the_order_of_maps_is_the_one_in_which_they_have_the_proportions_of_the_images() {
        use Order::{ChannelsFirst, ChannelsLast};
        for (sides, image, wanted) in [
            ([512, 7, 7], [224, 224], Some(ChannelsFirst)),
            ([7, 7, 768], [224, 224], Some(ChannelsLast)),
            ([64, 56, 56], [224, 224], Some(ChannelsFirst)),
            // Of 100 x 60 with a stride of 8, rounded up or down.
            ([13, 8, 96], [100, 60], Some(ChannelsLast)),
            ([96, 12, 7], [100, 60], Some(ChannelsFirst)),
            ([7, 7, 7], [224, 224], None),
            ([512, 1, 25], [32, 100], None),
            ([12, 197, 64], [224, 224], None),
        ] {
            for order in [ChannelsFirst, ChannelsLast] {
                assert_eq!(order.of_maps(sides, image), wanted.unwrap_or(order), "{sides:?} of {image:?}");
            }
        }
    }
}
