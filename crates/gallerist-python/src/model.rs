//! Embedding images with a trained network.

use std::path::PathBuf;

use gallerist::data::{
    Error as DataError, Image, ImageContent, ImageListing, ImageRecord, ImageSet, ImageSource, OpenOptions,
};
use gallerist::device::DeviceChoice;
use gallerist::model::{Embedded, Model as TrainedModel};
use gallerist::network::Products;
use gallerist::train::CheckpointKind;
use gallerist::{CalibrateOptions, EmbedOptions, Observer};
use numpy::{PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::errors::{OrValueError, detached, named, value_error};
use crate::files::set_to_dict;
use crate::watch::{Watch, Watcher};

/// The network of a run.
#[pyclass(frozen, module = "gallerist._native")]
pub(crate) struct Model {
    run: PathBuf,
    checkpoint: Option<CheckpointKind>,
    model: TrainedModel,
}

#[pymethods]
impl Model {
    #[staticmethod]
    #[pyo3(signature = (run, checkpoint, device, normalize, products))]
    fn load(
        py: Python<'_>,
        run: PathBuf,
        checkpoint: Option<&str>,
        device: &str,
        normalize: Option<bool>,
        products: Option<&str>,
    ) -> PyResult<Self> {
        let kinds = || CheckpointKind::ALL.iter().map(|&kind| (kind.name(), kind));
        let checkpoint = checkpoint.map(|checkpoint| named("checkpoint", checkpoint, kinds())).transpose()?;
        let device: DeviceChoice =
            device.parse().map_err(|error| value_error(format!("device: {error}"), None))?;
        let kinds = || Products::ALL.iter().map(|&products| (products.name(), products));
        let products = products.map(|products| named("products", products, kinds())).transpose()?;
        let options = EmbedOptions { checkpoint, device, normalize, products, ..EmbedOptions::default() };
        let model = detached(py, || gallerist::open_model(&run, &options, &mut ()).or_value_error())?;
        Ok(Model { run, checkpoint, model })
    }

    /// Fingerprint, metric, steps, dimensions and the resolved run file.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("fingerprint", self.model.fingerprint())?;
        dict.set_item("metric", self.model.metric().name())?;
        dict.set_item("step", self.model.step())?;
        dict.set_item("config", self.model.config().to_toml())?;
        Ok(dict)
    }

    /// Embeds the images of files, folders, archives or manifests. What cannot be read is a warning.
    #[pyo3(signature = (images, split, events))]
    fn embed_files<'py>(
        &self,
        py: Python<'py>,
        images: Vec<PathBuf>,
        split: Option<String>,
        events: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let images_options = OpenOptions { split, ..OpenOptions::default() };
        let options = EmbedOptions { images: images_options, ..EmbedOptions::default() };
        self.embedded(py, events, |watch| {
            gallerist::embed_images(&self.model, &self.run, &images, &options, watch).or_value_error()
        })
    }

    /// Measures the ranges of the network's values on images of files, for int8, and writes them into the run directory.
    #[pyo3(signature = (images, split, count, events))]
    fn calibrate<'py>(
        &self,
        py: Python<'py>,
        images: Vec<PathBuf>,
        split: Option<String>,
        count: usize,
        events: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = CalibrateOptions {
            checkpoint: self.checkpoint,
            images: OpenOptions { split, ..OpenOptions::default() },
            count,
        };
        let calibrated = watched(py, events, |watch| {
            gallerist::calibrate(&self.run, &images, &options, watch).or_value_error()
        })?;
        let dict = PyDict::new(py);
        dict.set_item("file", calibrated.file)?;
        dict.set_item("images", calibrated.images)?;
        dict.set_item("mean_distance", calibrated.mean_distance)?;
        dict.set_item("largest_distance", calibrated.largest_distance)?;
        Ok(dict)
    }

    /// Embeds images of shape (height, width, channels), u8, with 1 or 3 channels.
    fn embed_arrays<'py>(
        &self,
        py: Python<'py>,
        images: Vec<PyReadonlyArray3<'py, u8>>,
        events: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let images = images.iter().enumerate().map(|(i, array)| image(i, array)).collect::<PyResult<_>>()?;
        self.embedded(py, events, |watch| {
            let set = ImageSet::from_source(Arrays(images)).or_value_error()?;
            watch.embedding("embedding", 0, set.len());
            let progress = &mut |done, all| watch.embedding("embedding", done, all);
            let threads = self.model.config().train.loader_threads;
            self.model.embed(set, threads, progress).or_value_error()
        })
    }
}

impl Model {
    fn embedded<'py>(
        &self,
        py: Python<'py>,
        events: Py<PyAny>,
        embed: impl FnOnce(&mut Watch) -> PyResult<Embedded> + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let embedded = watched(py, events, embed)?;
        set_to_dict(py, embedded.set)
    }
}

/// The result of work that tells its progress to `events`.
fn watched<T: Send>(
    py: Python<'_>,
    events: Py<PyAny>,
    work: impl FnOnce(&mut Watch) -> PyResult<T> + Send,
) -> PyResult<T> {
    let watcher = Watcher::new(events);
    let result = detached(py, || work(&mut Watch(&watcher)));
    if let Some(error) = watcher.error() {
        return Err(error);
    }
    let result = result?;
    watcher.event("phase_done", &json!({}));
    Ok(result)
}

fn image(number: usize, array: &PyReadonlyArray3<'_, u8>) -> PyResult<Image> {
    let &[height, width, channels] = array.shape() else { unreachable!("an array of three dimensions") };
    if height == 0 || width == 0 || !matches!(channels, 1 | 3) {
        return Err(value_error(
            format!("image {number} has the shape ({height}, {width}, {channels})"),
            Some("an image has the shape (height, width, channels), with 1 or 3 channels".into()),
        ));
    }
    let pixels = match array.as_slice() {
        Ok(pixels) => pixels.to_vec(),
        Err(_) => array.as_array().iter().copied().collect(),
    };
    Ok(Image::new(width, height, channels, pixels))
}

/// Images in memory; their paths are their numbers.
struct Arrays(Vec<Image>);

impl ImageSource for Arrays {
    fn name(&self) -> &str {
        "arrays"
    }

    fn list(&mut self) -> Result<ImageListing, DataError> {
        Ok((0..self.0.len()).map(|i| ImageRecord::new(i.to_string())).collect::<Vec<_>>().into())
    }

    fn read(&self, number: usize, _path: &str) -> Result<ImageContent, DataError> {
        Ok(ImageContent::Decoded(self.0[number].clone()))
    }
}
