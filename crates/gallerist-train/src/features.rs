//! Features of images by a frozen model, computed once.

use std::path::Path;
use std::sync::Arc;

use gallerist_data::{
    AugmentConfig, BatchPlan, FeatureFile, Features, ImageSet, ImageStore, Loader, LoaderOptions, Transform,
};
use gallerist_nn::{Embedder, Extractor};

use super::RunConfig;
use crate::Result;

/// Images that the frozen model computes at once.
const AT_ONCE: usize = 32;

/// The frozen model whose features are computed once: that of the network, unless images are changed at random.
pub(super) fn frozen<'a>(config: &RunConfig, network: &'a dyn Embedder) -> Option<&'a Extractor> {
    network.extractor().filter(|_| config.augment == AugmentConfig::default())
}

/// A store that gives loaders the features of its images, which are read from a file in `folder`, where they are, and
/// computed else. Without a folder they are only in memory. Images are decoded as `options` say; `progress` is called with the
/// images done and all images.
///
/// # Errors
///
/// Those of `progress`, of the file and of the model.
pub(super) fn with_features(
    store: &ImageStore,
    extractor: &Extractor,
    config: &RunConfig,
    folder: Option<&Path>,
    options: LoaderOptions,
    progress: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<Arc<ImageStore>> {
    let set = store.set().clone();
    let transform = Transform::evaluation(&config.image)?;
    let mut features = Features::new(set.len(), transform.views(), extractor.features);
    let file = folder.map(|folder| open(folder, &set, extractor, config)).transpose()?;
    if let Some(file) = &file {
        for i in 0..set.len() {
            if let Some(row) = file.read(i) {
                features.set(i, &row);
            }
        }
    }
    let unknown = features.unknown();
    let mut done = set.len() - unknown.len();
    let plan = unknown.chunks(AT_ONCE).map(|items| BatchPlan { epoch: 0, first: 0, items: items.to_vec() });
    let plan: Vec<BatchPlan> = plan.collect();
    let images = Arc::new(ImageStore::new(set.clone(), transform, 0));
    for batch in Loader::new(images, plan, options)? {
        progress(done, set.len())?;
        let batch = batch?;
        done += batch.len() + batch.broken.len();
        let rows = extractor.model.extract(&batch.images, batch.shape()).map_err(|error| {
            gallerist_tensor::Error::Conflict {
                message: error.to_string(),
                hint: error
                    .hint()
                    .unwrap_or_else(|| "`gallerist model inspect FILE` shows what a model contains".into()),
            }
        })?;
        for (&item, row) in batch.items.iter().zip(rows.chunks_exact(batch.views * extractor.features)) {
            features.set(item as usize, row);
            if let Some(file) = &file {
                file.write(item as usize, row);
            }
        }
        features.set_broken(batch.broken);
    }
    // No image is decoded any more: the new store needs no caches.
    Ok(Arc::new(ImageStore::new(set, store.transform().clone(), 0).with_features(Arc::new(features))))
}

/// Writes the features of a store to a file in `folder`, for a run that is resumed.
///
/// # Errors
///
/// When the file cannot be made.
pub(super) fn keep(
    store: &ImageStore,
    extractor: &Extractor,
    config: &RunConfig,
    folder: &Path,
) -> Result<()> {
    let Some(features) = store.features() else { return Ok(()) };
    let file = open(folder, store.set(), extractor, config)?;
    (0..features.len()).filter(|&i| !features.is_broken(i)).for_each(|i| file.write(i, features.row(i)));
    Ok(())
}

fn open(
    folder: &Path,
    set: &Arc<ImageSet>,
    extractor: &Extractor,
    config: &RunConfig,
) -> Result<FeatureFile> {
    let transform = Transform::evaluation(&config.image)?;
    let model = &extractor.model;
    let mut name = format!("{} {} {:?}", model.sha256(), model.output(), model.rows());
    // Another engine has other bits. Files of the default engine have no name of it, as before there were others.
    if !model.engine().is_default() {
        name += &format!(" {}", model.engine().name());
    }
    Ok(FeatureFile::open(folder, set, &transform, &name, extractor.features)?)
}
