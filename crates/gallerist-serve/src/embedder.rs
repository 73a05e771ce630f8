//! The door to the network.

use gallerist_data::Image;

/// A network that embeds images as those of the gallery were embedded.
pub trait Embedder: Send + Sync {
    /// Values per embedding.
    fn dimensions(&self) -> usize;

    /// What tells this network from others: equal to the gallery's model.
    fn fingerprint(&self) -> &str;

    /// The embedding of an image.
    ///
    /// # Errors
    /// Why there is none.
    fn embed(&self, image: &Image) -> Result<Vec<f32>, String>;

    /// The network's last feature maps before they are pooled; `None` where it has none.
    fn feature_map(&self, image: &Image) -> Option<FeatureMap>;
}

/// Values per place of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureMap {
    /// Rows.
    pub height: usize,
    /// Places in a row.
    pub width: usize,
    /// Values per place.
    pub channels: usize,
    /// Row after row, the channels of a place together: `[height, width, channels]`.
    pub values: Vec<f32>,
}

impl FeatureMap {
    /// The mean over all places.
    fn pooled(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.channels];
        for place in self.values.chunks(self.channels.max(1)) {
            sums.iter_mut().zip(place).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sums
    }

    /// For each place the cosine with what `other` shows on the whole, 0 where they have nothing in common.
    pub(crate) fn alike(&self, other: &Self) -> Vec<f32> {
        let wanted = other.pooled();
        let length =
            |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let wanted_length = length(&mut wanted.iter().copied());
        let cosine = |place: &[f32]| {
            let lengths = wanted_length * length(&mut place.iter().map(|&value| value.into()));
            let product: f64 = place.iter().zip(&wanted).map(|(&a, b)| f64::from(a) * b).sum();
            if lengths > 0.0 { (product / lengths).clamp(0.0, 1.0) as f32 } else { 0.0 }
        };
        self.values.chunks(self.channels.max(1)).map(cosine).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_as_alike_as_its_cosine_with_the_other_images_mean() {
        let map = |values: &[f32]| FeatureMap {
            height: 1,
            width: values.len() / 2,
            channels: 2,
            values: values.to_vec(),
        };
        let (a, b) = (map(&[1.0, 0.0, 0.0, 0.0, 0.0, 2.0, -1.0, -1.0]), map(&[3.0, 0.0, 1.0, 4.0]));
        // The mean of b points along (1, 1).
        let half = 0.5f32.sqrt();
        let found = a.alike(&b);
        assert!(found.iter().zip([half, 0.0, half, 0.0]).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    }
}
