//! Embedding the test images of a run: the same after training and in `evaluate`.

use std::path::Path;

use gallerist_data::ImageSet;
use gallerist_retrieval::EmbeddingSet;
use gallerist_train::model::Model;
use gallerist_train::{EvaluationConfig, TestImages};
use gallerist_util::text::absolute;

use super::embed::embed_set;
use crate::measured::Measured;
use crate::{Observer, Result};

/// Embeds queries and gallery, or the one set, and counts the images that cannot be read. `run` is written into the
/// embeddings.
pub(super) fn embed_test(
    model: &Model,
    test: TestImages,
    evaluation: &EvaluationConfig,
    run: Option<&Path>,
    observer: &mut dyn Observer,
) -> Result<(Measured, usize)> {
    let run = run.map(|run| absolute(run).to_string_lossy().into_owned());
    let mut broken = 0;
    let mut embed = |images: ImageSet, what: &str| -> Result<EmbeddingSet> {
        let mut embedded = embed_set(model, images, what, observer)?;
        broken += embedded.broken.len();
        embedded.set.run = run.clone();
        Ok(embedded.set)
    };
    let TestImages { queries, gallery } = test;
    let (queries, gallery) = match gallery {
        None => (embed(queries, "embedding the test images")?, None),
        Some(gallery) => {
            (embed(queries, "embedding the queries")?, Some(embed(gallery, "embedding the gallery")?))
        }
    };
    Ok((Measured::new(queries, gallery, evaluation)?, broken))
}
