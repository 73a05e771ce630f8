//! The network that a server embeds images with.

use std::sync::Arc;

use gallerist_data::Image;

/// A network that embeds images as those of the gallery were embedded.
///
/// The server calls it for uploaded images and for heat maps, from several threads at once.
///
/// # Example
///
/// A network that sees the mean colour of an image:
///
/// ```
/// use gallerist_data::Image;
/// use gallerist_serve::Embedder;
///
/// struct MeanColour;
///
/// impl Embedder for MeanColour {
///     fn dimensions(&self) -> usize {
///         3
///     }
///
///     fn fingerprint(&self) -> &str {
///         "mean colour 1"
///     }
///
///     fn embed(&self, image: &Image) -> Result<Vec<f32>, String> {
///         let image = image.clone().to_rgb();
///         let pixels = image.pixels().as_chunks::<3>().0;
///         let mean = |c: usize| pixels.iter().map(|p| f32::from(p[c])).sum::<f32>() / pixels.len() as f32;
///         Ok((0..3).map(mean).collect())
///     }
/// }
///
/// let grey = Image::new(2, 2, 1, vec![7; 4]);
/// assert_eq!(MeanColour.embed(&grey)?, [7.0; 3]);
/// # Ok::<(), String>(())
/// ```
pub trait Embedder: Send + Sync {
    /// Values per embedding. The embeddings of the gallery have as many.
    fn dimensions(&self) -> usize;

    /// A text that identifies the network and its weights. A server refuses to start where the gallery names another
    /// one ([`EmbeddingSet::model`](gallerist_retrieval::EmbeddingSet::model)).
    fn fingerprint(&self) -> &str;

    /// The embedding of an image, of [`dimensions`](Self::dimensions) values. Where the gallery is compared by the
    /// cosine, the server divides it by its length.
    ///
    /// # Errors
    /// The reason why the image has no embedding, which the answer to the upload contains.
    fn embed(&self, image: &Image) -> Result<Vec<f32>, String>;

    /// The network as one that embeds several images at once; `None` where [`embed`](Self::embed) is as fast. The server
    /// embeds images that wait for the network together.
    fn batched(self: Arc<Self>) -> Option<Arc<dyn BatchEmbedder>> {
        None
    }

    /// Whether it embeds texts, too.
    fn has_text(&self) -> bool {
        false
    }

    /// The embedding of a text, comparable with those of images; called only where [`has_text`](Self::has_text) is true.
    ///
    /// # Errors
    /// The reason why the text has no embedding, which the answer to the search contains.
    fn embed_text(&self, text: &str) -> Result<TextVector, String> {
        let _ = text;
        Err("the network has no text tower".to_owned())
    }

    /// The last feature maps of the network before pooling; `None` for a network without them, which then has no heat
    /// maps.
    fn feature_map(&self, image: &Image) -> Option<FeatureMap> {
        let _ = image;
        None
    }
}

/// A network that embeds several images at once ([`Embedder::batched`]).
pub trait BatchEmbedder: Send + Sync {
    /// What the network reads of an image: few values, because many images may wait for the network. Called from several
    /// threads at once.
    ///
    /// # Errors
    /// The reason why the image has no embedding, which the answer to the upload contains.
    fn preprocess(&self, image: &Image) -> Result<Vec<f32>, String>;

    /// The embeddings of preprocessed images, each that of [`Embedder::embed`]. Called from one thread at a time.
    ///
    /// # Errors
    /// A reason. The server then embeds each of the images alone.
    fn embed_preprocessed(&self, images: &[&[f32]]) -> Result<Vec<Vec<f32>>, String>;
}

/// The embedding of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextVector {
    /// The embedding, of [`Embedder::dimensions`] values.
    pub vector: Vec<f32>,
    /// The number of tokens that the text was cut to; `None` for a text that fits.
    pub cut_to: Option<usize>,
}

/// Features at the positions of a grid over an image.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureMap {
    /// Rows of the grid.
    pub height: usize,
    /// Columns of the grid.
    pub width: usize,
    /// Values per position.
    pub channels: usize,
    /// `[height, width, channels]`, row after row, the channels of a position together.
    pub values: Vec<f32>,
}

impl FeatureMap {
    /// The sum over all positions.
    fn pooled(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.channels];
        for place in self.values.chunks(self.channels.max(1)) {
            sums.iter_mut().zip(place).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sums
    }

    /// For each position the cosine of its features and the pooled features of `other`; 0 where it is negative.
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
