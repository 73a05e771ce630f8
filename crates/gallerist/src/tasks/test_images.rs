//! Embedding the test images of a run: the same after training and in `evaluate`.

use std::path::Path;

use gallerist_data::ImageSet;
use gallerist_retrieval::EmbeddingSet;
use gallerist_train::model::Model;
use gallerist_train::{BrokenImage, EvaluationConfig, TestImages};

use super::embed::embed_set;
use crate::measured::Measured;
use crate::{Observer, Result};

/// Embeds queries and gallery, or the one set, and lists the images that cannot be read. `run` is written into the
/// embeddings; `.` is the folder of their file.
pub(super) fn embed_test(
    model: &Model,
    test: TestImages,
    evaluation: &EvaluationConfig,
    run: Option<&Path>,
    observer: &mut dyn Observer,
) -> Result<(Measured, Vec<BrokenImage>)> {
    let run = run.map(|run| run.to_string_lossy().into_owned());
    let mut broken = Vec::new();
    let mut embed = |images: ImageSet, set: &str, what: &str| -> Result<EmbeddingSet> {
        let paths = images.clone();
        let mut embedded = embed_set(model, images, what, observer)?;
        broken.extend(embedded.broken.iter().map(|one| BrokenImage {
            set: set.into(),
            image: paths.path(one.item as usize).into(),
            reason: one.to_string(),
        }));
        embedded.set.run = run.clone();
        Ok(embedded.set)
    };
    let TestImages { queries, gallery, .. } = test;
    let (queries, gallery) = match gallery {
        None => (embed(queries, "test", "embedding the test images")?, None),
        Some(gallery) => {
            let queries = embed(queries, "query", "embedding the queries")?;
            (queries, Some(embed(gallery, "gallery", "embedding the gallery")?))
        }
    };
    Ok((Measured::new(queries, gallery, evaluation)?, broken))
}
