//! Images that wait for the network.

use gallerist_util::sync::Arc;

use crate::batch::Work;
use crate::embedder::BatchEmbedder;
use crate::gate::Place;

/// The embeddings of images that an embedder has preprocessed ([`Embedder::batched`](crate::Embedder::batched)).
pub(crate) struct Embeddings(pub(crate) Arc<dyn BatchEmbedder>);

/// What the network reads of an image.
pub(crate) struct Preprocessed {
    pub(crate) values: Vec<f32>,
    /// Kept until the image is embedded, also if its client has gone: as many images wait as have a place.
    pub(crate) _place: Place,
}

impl Work for Embeddings {
    type Question = Preprocessed;
    type Answer = Vec<f32>;
    type Problem = String;

    const AT_ONCE: usize = 32;
    const NAME: &'static str = "embedding";

    fn answers(&self, images: &[Preprocessed]) -> std::result::Result<Vec<Vec<f32>>, String> {
        let images: Vec<&[f32]> = images.iter().map(|image| &image.values[..]).collect();
        let rows = self.0.embed_preprocessed(&images)?;
        if rows.len() != images.len() {
            return Err(format!("the network gave {} embeddings for {} images", rows.len(), images.len()));
        }
        Ok(rows)
    }
}
