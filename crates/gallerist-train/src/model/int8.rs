//! Ranges of a network's layers, for embedding in int8.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gallerist_data::{BatchPlan, Broken, ImageSet, ImageStore, Loader, LoaderOptions, Transform};
use gallerist_nn::{InputShape, Prepared, Products, Ranges};
use serde::{Deserialize, Serialize};

use super::trained::Model;
use crate::config::threads as resolved;
use crate::{Error, Result, json};

/// Images of a batch whose layers are measured: the values of all layers are in memory at a time.
const BATCH: usize = 4;

/// What the file says that it is.
const FORMAT: &str = "gallerist-ranges";
const VERSION: u32 = 1;

/// Ranges measured on images, and how far embeddings in int8 are from those in f32 there.
#[derive(Debug)]
pub struct Calibration {
    /// The ranges.
    pub ranges: Ranges,
    /// The images that were read.
    pub images: usize,
    /// Others that were chosen and cannot be read.
    pub broken: Vec<Broken>,
    /// Cosine distance between an image's embedding in int8 and in f32: the mean over the images.
    pub mean_distance: f64,
    /// And the largest.
    pub largest_distance: f64,
}

/// The content of the file that keeps the ranges of a checkpoint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RangesFile {
    format: String,
    version: u32,
    /// The fingerprint of the model.
    model: String,
    images: usize,
    ranges: Ranges,
}

/// That file: it is in the checkpoint's folder.
fn file_of(checkpoint: &Path) -> PathBuf {
    checkpoint.with_extension("ranges.json")
}

impl Model {
    /// Measures the ranges of the network's layers on `count` images, evenly spaced in the set, or on all if it has fewer, and
    /// compares embeddings in int8 with those in f32 on them. On the CPU.
    ///
    /// `progress` is called with the images done and all; each is read twice.
    ///
    /// # Errors
    ///
    /// When the network has no form in int8, such as a transformer or a model in ONNX, gives values that are not finite, or no image
    /// can be read.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use std::path::Path;
    /// use gallerist_data::ImageSet;
    /// use gallerist_nn::Products;
    /// use gallerist_train::CheckpointKind;
    /// use gallerist_train::model::Model;
    ///
    /// let model = Model::open(Path::new("runs/omniglot"), CheckpointKind::Best)?;
    /// let calibration = model.calibrate(ImageSet::open("photos")?, 256, 0, &mut |_, _| {})?;
    /// model.save_ranges(&calibration)?;
    /// let fast = model.with_products(Products::Int8)?;
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    pub fn calibrate(
        &self,
        images: ImageSet,
        count: usize,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Calibration> {
        let no_form = || self.no_form_in_int8();
        let count = count.min(images.len());
        let chosen: Vec<u32> = (0..count).map(|i| (i * images.len() / count) as u32).collect();
        let transform = Transform::evaluation(&self.config.image)?;
        let views = transform.views();
        let store =
            Arc::new(ImageStore::new(Arc::new(images), transform.clone(), 0).subset(&chosen, transform));
        let mut each =
            |before: usize, work: &mut dyn FnMut(Vec<f32>, usize)| -> Result<(usize, Vec<Broken>)> {
                let (mut read, mut broken) = (0, Vec::new());
                let options = LoaderOptions::evaluation(resolved(threads)).strict(self.strict);
                for batch in Loader::new(store.clone(), BatchPlan::in_order(count, BATCH), options)? {
                    let batch = batch?;
                    read += batch.items.len();
                    broken.extend(batch.broken.clone());
                    if !batch.items.is_empty() {
                        work(batch.images, batch.items.len() * views);
                    }
                    progress(before + read + broken.len(), 2 * count);
                }
                Ok((read, broken))
            };
        let mut measurement = self.network.measure(self.input).ok_or_else(no_form)?;
        let (read, broken) = each(0, &mut |values, images| measurement.add(&values, images))?;
        if read == 0 {
            let first = broken.first().map(ToString::to_string).unwrap_or_default();
            return Err(Error::NoImages { count, origin: store.set().name().into(), first });
        }
        let ranges = measurement.finish().ok_or_else(|| gallerist_tensor::Error::Conflict {
            message: "a layer of the network gives values that are not finite for these images".into(),
            hint: "look for NaN in the embeddings: `gallerist embed` names the images".into(),
        })?;
        let in_int8 = self.network.prepare_int8(self.input, &ranges).ok_or_else(no_form)?;
        let in_f32 = self.network.prepare(self.input, Products::F32).ok_or_else(no_form)?;
        let mut distances = Vec::new();
        each(count, &mut |values, images| {
            let both = [&in_f32, &in_int8].map(|network| self.rows(network.forward(&values, images), views));
            let dimensions = both[0].len() / (images / views);
            let rows = both[0].chunks(dimensions).zip(both[1].chunks(dimensions));
            distances.extend(rows.map(|(x, y)| cosine_distance(x, y)));
        })?;
        Ok(Calibration {
            ranges,
            images: read,
            broken,
            mean_distance: distances.iter().sum::<f64>() / distances.len() as f64,
            largest_distance: distances.iter().fold(0.0, |largest, distance| distance.max(largest)),
        })
    }

    /// Writes measured ranges into the folder of the model's checkpoint, and returns the file.
    /// [`with_products`](Self::with_products) reads it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, and for a model that is not of a checkpoint.
    pub fn save_ranges(&self, calibration: &Calibration) -> Result<PathBuf> {
        let checkpoint = self.checkpoint.as_ref().ok_or_else(|| gallerist_tensor::Error::Conflict {
            message: "this model is of no checkpoint, beside which its ranges could be".into(),
            hint: "save the run, and open the model from there".into(),
        })?;
        let file = file_of(checkpoint);
        let Calibration { ranges, images, .. } = calibration;
        let content = RangesFile {
            format: FORMAT.into(),
            version: VERSION,
            model: self.base_fingerprint.clone(),
            images: *images,
            ranges: ranges.clone(),
        };
        json::write(&file, &content)?;
        Ok(file)
    }

    /// The ranges that are kept for the checkpoint, and the network in int8 in them.
    ///
    /// # Errors
    ///
    /// When there are none, they are of another checkpoint, or the file is damaged.
    pub(super) fn read_ranges(&self) -> Result<(Ranges, Prepared)> {
        let run = self.checkpoint.as_ref().and_then(|file| file.parent()?.parent());
        let run = run.map_or("RUN".into(), |run| run.display().to_string());
        let problem = |reason: String| Error::Ranges { reason, run: run.clone() };
        let Some(checkpoint) = &self.checkpoint else {
            return Err(problem("the model is of no checkpoint".into()));
        };
        let file = file_of(checkpoint);
        if !file.exists() {
            // Not the hint to measure ranges that the network cannot use.
            self.check_form_in_int8()?;
            return Err(problem(format!("there is no file `{}`", file.display())));
        }
        let RangesFile { format, version, model, ranges, .. } =
            json::read(&file).map_err(|error| problem(error.to_string()))?;
        if format != FORMAT || version != VERSION {
            let reason = format!(
                "`{}` is {format} {version}, and this program reads {FORMAT} {VERSION}",
                file.display()
            );
            return Err(problem(reason));
        }
        if model != self.base_fingerprint {
            return Err(problem(format!("those in `{}` are of another checkpoint", file.display())));
        }
        let prepared = self.network.prepare_int8(self.input, &ranges).ok_or_else(|| {
            problem(format!("those in `{}` do not fit the network; the file is damaged", file.display()))
        })?;
        Ok((ranges, prepared))
    }

    /// Refuses a network that has no form in int8: with the ranges of one grey image, it cannot be prepared.
    fn check_form_in_int8(&self) -> Result<()> {
        let InputShape { channels, height, width } = self.input;
        let mut measurement = self.network.measure(self.input).ok_or_else(|| self.no_form_in_int8())?;
        measurement.add(&vec![0.5; channels * height * width], 1);
        let has_form = |ranges| self.network.prepare_int8(self.input, &ranges).is_some();
        if measurement.finish().is_none_or(has_form) { Ok(()) } else { Err(self.no_form_in_int8()) }
    }

    fn no_form_in_int8(&self) -> Error {
        gallerist_tensor::Error::Conflict {
            message: format!("the network `{}` has no form in int8", self.config.network.name()),
            hint: "networks of convolutions with ReLU have one; take --products f32 or bf16 for this one"
                .into(),
        }
        .into()
    }
}

fn cosine_distance(x: &[f32], y: &[f32]) -> f64 {
    let dot =
        |x: &[f32], y: &[f32]| -> f64 { x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum() };
    let lengths = (dot(x, x) * dot(y, y)).sqrt();
    if lengths > 0.0 { (1.0 - dot(x, y) / lengths).max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gallerist_data::ImageSet;
    use gallerist_nn::int8_unit;

    use super::*;
    use crate::config::{CheckpointKind, RunConfig};
    use crate::model::embed::tests::bitmap;

    fn images(folder: &Path) -> ImageSet {
        for mirrored in [false, true] {
            std::fs::write(folder.join(format!("{mirrored}.bmp")), bitmap(mirrored)).unwrap();
        }
        ImageSet::open(folder).unwrap()
    }

    /// A run of an untrained network.
    fn run(folder: &Path, network: &str, seed: u64) -> Model {
        let text = format!("[train]\nseed = {seed}\n[image]\nsize = 16\nchannels = 3\n{network}");
        let config = RunConfig::parse(&text, "a test", &[]).unwrap();
        Model::untrained(&config).unwrap().save_run(folder).unwrap();
        Model::open(folder, CheckpointKind::Best).unwrap()
    }

    const CONVOLUTIONS: &str = "[network]\nkind = \"conv_blocks\"\nchannels = [16, 16]\ndimensions = 8";

    fn embeddings(model: &Model, folder: &Path) -> Vec<f32> {
        model.embed(images(folder), 1, &mut |_, _| ()).unwrap().set.embeddings.as_slice().to_vec()
    }

    #[test]
    fn a_calibrated_run_embeds_in_int8_and_says_how_far_that_is_from_f32() {
        let (folder, photos) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = folder.path().join("run");
        let model = run(&at, CONVOLUTIONS, 1);
        let fingerprint = model.fingerprint().to_owned();
        let wanted = embeddings(&model, photos.path());
        let mut seen = Vec::new();
        let calibration =
            model.calibrate(images(photos.path()), 10, 1, &mut |done, all| seen.push((done, all))).unwrap();
        assert_eq!((calibration.images, seen.last()), (2, Some(&(4, 4))));
        assert!(calibration.mean_distance <= calibration.largest_distance);
        assert!((1e-9..1e-2).contains(&calibration.largest_distance), "{}", calibration.largest_distance);
        let file = model.save_ranges(&calibration).unwrap();
        assert_eq!(file, at.join("checkpoints/best.ranges.json"));
        let model = model.with_products(Products::Int8).unwrap();
        let found = embeddings(&model, photos.path());
        let off = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 0.1 && (off > 1e-5 || int8_unit().is_none()), "off by {off}");
        assert_eq!(model.fingerprint(), fingerprint);
        // Another process, and back to f32.
        let model = Model::open(&at, CheckpointKind::Best).unwrap().with_products(Products::Int8).unwrap();
        assert_eq!(embeddings(&model, photos.path()), found);
        assert_eq!(embeddings(&model.with_products(Products::F32).unwrap(), photos.path()), wanted);
    }

    #[test]
    fn a_run_file_in_int8_is_embedded_so_once_there_are_ranges() {
        let (folder, photos) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = folder.path().join("run");
        let wanting = format!("{CONVOLUTIONS}\n[evaluation]\nproducts = \"int8\"");
        let model = run(&at, &wanting, 1);
        let in_f32 = embeddings(&model, photos.path());
        let calibration = model.calibrate(images(photos.path()), 2, 1, &mut |_, _| ()).unwrap();
        model.save_ranges(&calibration).unwrap();
        let model = Model::open(&at, CheckpointKind::Best).unwrap();
        assert_eq!(embeddings(&model, photos.path()) != in_f32, int8_unit().is_some());
    }

    #[test]
    fn int8_without_ranges_of_this_checkpoint_is_refused() {
        let (folder, photos) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let refused = |model: Model| {
            let error = model.with_products(Products::Int8).unwrap_err();
            (error.to_string(), error.hint().unwrap_or_default())
        };
        let model = run(&first, CONVOLUTIONS, 1);
        let calibration = model.calibrate(images(photos.path()), 2, 1, &mut |_, _| ()).unwrap();
        let file = model.save_ranges(&calibration).unwrap();
        let (message, hint) = refused(run(&second, CONVOLUTIONS, 2));
        assert!(message.contains("there is no file"), "{message}");
        assert!(hint.contains(&format!("gallerist model calibrate --run {}", second.display())), "{hint}");
        std::fs::copy(&file, second.join("checkpoints/best.ranges.json")).unwrap();
        let (message, _) = refused(Model::open(&second, CheckpointKind::Best).unwrap());
        assert!(message.contains("of another checkpoint"), "{message}");
        let mut content: serde_json::Value = json::read(&file).unwrap();
        content["ranges"].as_array_mut().unwrap().pop();
        json::write(&file, &content).unwrap();
        let (message, _) = refused(Model::open(&first, CheckpointKind::Best).unwrap());
        assert!(message.contains("the file is damaged"), "{message}");
    }

    #[test]
    fn a_transformer_has_no_form_in_int8() {
        let (folder, photos) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let network = "[network]\nkind = \"vit\"\nsize = \"ti\"\ndepth = 1\npatch = 16";
        let model = run(&folder.path().join("run"), network, 1);
        let error = model.calibrate(images(photos.path()), 2, 1, &mut |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("`vit` has no form in int8"), "{error}");
        // Nobody is sent to measure ranges that cannot be used.
        let gated =
            run(&folder.path().join("gated"), "[network]\nkind = \"mobilenet_v3\"\nsize = \"small\"", 3);
        for model in [model, gated] {
            let error = model.with_products(Products::Int8).err().unwrap();
            assert!(error.to_string().contains("has no form in int8"), "{error}");
        }
    }
}
