//! The test images of a run, embedded by its network.

use std::path::Path;

use gallerist_data::OneShotRuns;
use gallerist_retrieval::eval::{self, OneShot, Trial};
use gallerist_retrieval::search::Metric;
use gallerist_train::model::Model;
use gallerist_train::{
    BrokenImage, DataConfig, RunConfig, RunDirectory, TestImages, open_test, open_test_of,
};

use super::super::embed::{embed_set, with_cache};
use super::super::model::{self, on_device};
use super::super::test_images::embed_test;
use super::options::{EvaluateOptions, EvaluateRun, ImagePart};
use crate::measured::Measured;
use crate::{Error, Observer, Result};

/// Embeds the images. Also returns the network, and the images that cannot be read.
pub(super) fn measure(
    of: &EvaluateRun,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<(Model, Measured, Vec<BrokenImage>)> {
    let model = model::open(&of.run, of.checkpoint)?.strict(of.strict);
    let which = of.checkpoint.unwrap_or(model.config().evaluation.checkpoint);
    observer.note(&format!("checkpoint: {}, step {}", which.name(), model.step()));
    let model = with_cache(model, of.cache.as_deref())?;
    let model = on_device(model, of.device, of.products, observer)?;
    if of.images.is_none() {
        let needed: &[&str] = match model.config().data.test_fraction {
            Some(_) => &["data.train"],
            None => &["data.test", "data.query", "data.gallery"],
        };
        model.config().check_files(&RunDirectory::open(&of.run)?.config(), needed)?;
    }
    let Some(test) = test_images(of, model.config(), observer)? else {
        let hint = "give --query IMAGES and --gallery IMAGES, or embed a set with `gallerist embed` and give it as \
                    --embeddings FILE";
        let message = format!("the run `{}` has no test images (data.test, data.query)", of.run.display());
        return Err(Error::new(message, Some(hint)));
    };
    let mut config = options.evaluation(Some(&model.config().evaluation));
    if of.images.is_some() {
        // What the run measures of its own test images cannot be measured of all others.
        let mut leave_out = |key: &str| {
            observer.note(&format!(
                "evaluation.{key} of the run is left out: it needs one set, and there is a gallery"
            ));
        };
        if options.cluster.is_none() && config.cluster.take().is_some() {
            leave_out("cluster");
        }
        if options.few_shot.is_none() && config.few_shot.take().is_some() {
            leave_out("few_shot");
        }
    }
    test.check(&options.plan(test.plan(&config)?)?)?;
    test.notes(&config).iter().for_each(|note| observer.warning(note));
    let (measured, broken) = embed_test(&model, test, &config, None, observer)?;
    Ok((model, measured, broken))
}

/// The images of the options, or the run's own. Both are cut to their bounding boxes if the run file says so.
fn test_images(
    of: &EvaluateRun,
    config: &RunConfig,
    observer: &mut dyn Observer,
) -> Result<Option<TestImages>> {
    let Some((query, gallery)) = &of.images else {
        return Ok(open_test_of(&RunDirectory::open(&of.run)?, config)?);
    };
    for (ImagePart { path, .. }, option) in [(query, "--query"), (gallery, "--gallery")] {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if matches!(
            extension,
            Some("safetensors" | "npy" | "index" | "parquet" | "arrow" | "feather" | "ipc")
        ) {
            return Err(Error::new(
                format!(
                    "with --run, {option} names images, and `{}` is a file of embeddings",
                    path.display()
                ),
                Some("leave out --run to measure files of embeddings"),
            ));
        }
    }
    let data = DataConfig {
        query: vec![query.path.clone()],
        gallery: vec![gallery.path.clone()],
        query_split: query.split.clone(),
        gallery_split: gallery.split.clone(),
        label: config.data.label,
        ..DataConfig::default()
    };
    let Some(mut test) = open_test(&RunConfig { data, ..config.clone() })? else { return Ok(None) };
    if config.data.crop_boxes {
        for set in std::iter::once(&mut test.queries).chain(&mut test.gallery) {
            match set.clone().cropped_to_boxes() {
                Some(cropped) => *set = cropped,
                None => observer.warning(&format!(
                    "the run cuts images to their bounding boxes (data.crop_boxes), and those of `{}` have none: they are used whole",
                    set.name()
                )),
            }
        }
    }
    Ok(Some(test))
}

/// Classifies the test images of each one-shot run by the nearest training image.
pub(super) fn one_shot(
    path: &Path,
    model: &Model,
    metric: Metric,
    observer: &mut dyn Observer,
) -> Result<OneShot> {
    let OneShotRuns { images, runs } = OneShotRuns::open(path)?;
    let embedded = embed_set(model, images, "embedding the one-shot runs", observer)?;
    if let Some(first) = embedded.broken.first() {
        return Err(Error::new(
            format!("the one-shot runs `{}` are not whole\n  {first}", path.display()),
            Some("a run without one of its images is another test; copy or download the file again"),
        ));
    }
    let rows =
        |of: &[u32]| embedded.set.embeddings.select(&of.iter().map(|&i| i as usize).collect::<Vec<_>>());
    let trials: Vec<Trial> = runs
        .into_iter()
        .map(|run| Trial {
            classes: rows(&run.training),
            tests: rows(&run.tests),
            name: run.name,
            answers: run.answers,
        })
        .collect();
    Ok(eval::one_shot(&trials, metric)?)
}
