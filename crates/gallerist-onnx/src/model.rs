//! A model and its computation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use gallerist_util::hex;
use rten_tensor::NdTensor;
use rten_tensor::prelude::*;
use sha2::{Digest, Sha256};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inspect::{Described, described};
use crate::rows::{Order, Rows};
use crate::session::{self, Dtype, Session, Side, Slot, Values};

/// The outputs that are taken if they exist: CLIP's and SigLIP's embedding of an image.
const PREFERRED: [&str; 1] = ["image_embeds"];

/// How to export a model that does not compute any number of images.
const EXPORT: &str = "export it in evaluation mode and for any number of images (`dynamic_axes` or `dynamic_shapes` of \
                      torch.onnx.export), or for one: [1, channels, height, width]";

/// The largest difference of a row of features that is computed alone and with another image, as a fraction of its length.
/// Rounding, also to f16 and int8, makes smaller differences.
const TOLERANCE: f64 = 0.05;

/// An ONNX model as a function from prepared images to one row of features per image.
pub struct Model {
    path: PathBuf,
    engine: Engine,
    session: Box<dyn Session>,
    /// The place of the input among those of the model.
    input: usize,
    /// The place of the output among those of the model.
    output: usize,
    order: Order,
    /// Whether it quantizes numbers by their range over all images that are computed together.
    shares_ranges: bool,
    /// Images, channels, height and width, where the model fixes them.
    fixed: [Option<usize>; 4],
    rows: Rows,
    sha256: String,
    metadata: BTreeMap<String, String>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("path", &self.path)
            .field("engine", &self.engine)
            .field("output", &self.output())
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Reads a model; weights in further files are read, too.
    ///
    /// `output` is the name of the output to take; `None`: `image_embeds` if there is such an output, else the first one. `engine`
    /// computes it.
    ///
    /// # Errors
    ///
    /// When the engine is not available, and when the file cannot be read, is no ONNX model, has an operator that is not
    /// supported, no input of images, or no such output.
    pub fn open(path: &Path, output: Option<&str>, rows: Rows, engine: Engine) -> Result<Self> {
        let fail = |reason: String, hint: Option<&str>| Error {
            path: Some(path.into()),
            reason,
            hint: hint.map(str::to_owned),
        };
        let Described { files, metadata, operators, cut } = described(path, engine)?;
        let session = session::open(path, engine, cut)?;
        let (input, shape) = image_input(session.inputs()).ok_or_else(|| {
            fail(
                format!(
                    "it has no input of images [n, channels, height, width] in f32, but {}",
                    list(session.inputs())
                ),
                Some("export the image tower of the model, with one input of prepared images"),
            )
        })?;
        let (order, fixed) = order_of(shape);
        let output = output_of(path, session.outputs(), output, &PREFERRED)?;
        let sha256 = digest(path, &files, &[])?;
        let shares_ranges = operators.iter().any(|operator| operator.contains("DynamicQuantize"));
        Ok(Model {
            path: path.into(),
            engine,
            session,
            input,
            output,
            order,
            shares_ranges,
            fixed,
            rows,
            sha256,
            metadata,
        })
    }

    /// SHA-256 of the file and of the files of weights that it names, 64 hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Entries of its metadata.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// How its output becomes rows.
    pub fn rows(&self) -> Rows {
        self.rows
    }

    /// The name of the output that is taken.
    pub fn output(&self) -> &str {
        &self.session.outputs()[self.output].name
    }

    /// The engine that computes it.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Channels, height and width of its images, where the model fixes them.
    pub fn image_shape(&self) -> [Option<usize>; 3] {
        [self.fixed[1], self.fixed[2], self.fixed[3]]
    }

    /// The length of a row of features for images of this shape (channels, height, width), found by computing two images, or
    /// one if the model was exported for a fixed number.
    ///
    /// # Errors
    ///
    /// As [`extract`](Self::extract), and when the model takes any number of images and cannot compute two together.
    pub fn features(&self, shape: [usize; 3]) -> Result<usize> {
        Ok(self.row_of_example(shape)?.len())
    }

    /// As [`features`](Self::features), and also checks that the row of an image does not depend on the other images. It
    /// computes one more image.
    ///
    /// # Errors
    ///
    /// As [`features`](Self::features), and when the row of an image is another one with a second image than alone.
    pub fn checked_features(&self, shape: [usize; 3]) -> Result<usize> {
        let together = self.row_of_example(shape)?;
        if self.fixed[0].is_some() || self.shares_ranges {
            return Ok(together.len());
        }
        let [channels, height, width] = shape;
        let alone = self.extract(&example(shape), [1, channels, height, width])?;
        let difference: f64 =
            alone.iter().zip(&together).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
        let length: f64 = alone.iter().map(|&value| f64::from(value).powi(2)).sum();
        if alone.len() != together.len() || difference.sqrt() > TOLERANCE * length.sqrt() {
            let reason = "it gives an image other features if a second image is computed with it".to_owned();
            return Err(self.fail(reason, Some(EXPORT)));
        }
        Ok(alone.len())
    }

    /// The features of [`example`]. If the model takes any number of images, an image of zeros is computed before it.
    fn row_of_example(&self, shape: [usize; 3]) -> Result<Vec<f32>> {
        let [channels, height, width] = shape;
        let image = example(shape);
        if self.fixed[0].is_some() {
            return self.extract(&image, [1, channels, height, width]);
        }
        let both = [vec![0.0; image.len()], image].concat();
        let rows = self.extract(&both, [2, channels, height, width]).map_err(|error| {
            match self.extract(&both[both.len() / 2..], [1, channels, height, width]) {
                Ok(_) => {
                    let reason = format!("it computes one image, but not two together\n  {}", error.reason);
                    self.fail(reason, Some(EXPORT))
                }
                Err(error) => error,
            }
        })?;
        Ok(rows[rows.len() / 2..].to_vec())
    }

    /// Features of prepared images.
    ///
    /// # Shapes
    ///
    /// `images` has the shape `[n, channels, height, width]`; the result is `[n, features]`. A model that was exported for
    /// a fixed number of images computes them in blocks of that number.
    ///
    /// # Errors
    ///
    /// When the model is for images of another shape, or cannot be computed.
    ///
    /// # Panics
    ///
    /// If `images` is not as long as `shape` says.
    pub fn extract(&self, images: &[f32], shape: [usize; 4]) -> Result<Vec<f32>> {
        let [n, channels, height, width] = shape;
        let length = channels * height * width;
        assert_eq!(images.len(), n * length, "numbers in {n} images of {channels} x {height} x {width}");
        self.check_shape([channels, height, width])?;
        let mut rows = Vec::new();
        for part in images.chunks(self.fixed[0].unwrap_or(n).max(1) * length.max(1)) {
            let count = part.len() / length;
            let mut block = part.to_vec();
            if let Some(fixed) = self.fixed[0] {
                // The last block is filled up with images of zeros.
                block.resize(fixed * length, 0.0);
            }
            let computed = block.len() / length;
            let found = self.compute(block, [channels, height, width])?;
            rows.extend_from_slice(&found[..found.len() / computed * count]);
        }
        Ok(rows)
    }

    fn check_shape(&self, found: [usize; 3]) -> Result<()> {
        let fits = self
            .image_shape()
            .iter()
            .zip(found)
            .all(|(fixed, found)| fixed.is_none_or(|fixed| fixed == found));
        if fits {
            return Ok(());
        }
        let text = |of: Option<usize>| of.map_or("any".into(), |side| side.to_string());
        let [channels, height, width] = self.image_shape().map(text);
        Err(self.fail(
            format!(
                "it is for images of {channels} x {height} x {width} (channels, height, width), not {} x {} x {}",
                found[0], found[1], found[2]
            ),
            Some("set image.size and image.channels of the run file, or export the model for any size"),
        ))
    }

    /// Rows of some images, as the model returns them.
    fn compute(&self, images: Vec<f32>, [channels, height, width]: [usize; 3]) -> Result<Vec<f32>> {
        let n = images.len() / (channels * height * width).max(1);
        let input = match self.order {
            Order::ChannelsFirst => Values::F32(vec![n, channels, height, width], images),
            Order::ChannelsLast => {
                let images = NdTensor::from_data([n, channels, height, width], images);
                let images = images.permuted([0, 2, 3, 1]).to_tensor();
                Values::F32(images.shape().to_vec(), images.into_data())
            }
        };
        let found = self.session.compute(vec![(self.input, input)], self.output);
        let session::Computed { shape, values } = found.map_err(|reason| {
            let others: Vec<&str> = self
                .session
                .inputs()
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != self.input)
                .map(|(_, input)| input.name.as_str())
                .collect();
            let hint = "export the model with the images as its only input";
            match others.is_empty() {
                true => self.fail(reason, None),
                false => self.fail(
                    format!(
                        "it also has the inputs {}, of which nothing is known\n  {reason}",
                        list(&others)
                    ),
                    Some(hint),
                ),
            }
        })?;
        if shape.first() != Some(&n) {
            return Err(self.fail(format!("its output for {n} images has the shape {shape:?}"), None));
        }
        self.rows.of(&shape, values, self.order, [height, width]).map_err(|reason| {
            self.fail(
                reason,
                Some("take another output: network.output; `gallerist model inspect` shows them"),
            )
        })
    }

    fn fail(&self, reason: String, hint: Option<&str>) -> Error {
        Error { path: Some(self.path.clone()), reason, hint: hint.map(str::to_owned) }
    }
}

/// The place of the output of this name; without one of the first of `preferred` that exists, else of the first output.
pub(crate) fn output_of(
    path: &Path,
    outputs: &[Slot],
    name: Option<&str>,
    preferred: &[&str],
) -> Result<usize> {
    let named = |name: &str| outputs.iter().position(|output| output.name == name);
    let chosen = match name {
        Some(name) => named(name),
        None => preferred.iter().find_map(|name| named(name)).or((!outputs.is_empty()).then_some(0)),
    };
    chosen.ok_or_else(|| {
        let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        Error {
            path: Some(path.into()),
            reason: format!("it has no output `{}`, but {}", name.unwrap_or_default(), list(&names)),
            hint: Some("`gallerist model inspect` shows the outputs".into()),
        }
    })
}

/// An image of this shape (channels, height, width) that is not constant.
fn example(shape: [usize; 3]) -> Vec<f32> {
    (0..shape.iter().product::<usize>()).map(|i| (0.37 * i as f64).sin() as f32).collect()
}

/// The place of the first input of f32 with four sides, and its shape.
fn image_input(inputs: &[Slot]) -> Option<(usize, &[Side])> {
    inputs.iter().enumerate().find_map(|(at, input)| {
        let shape = input.shape.as_deref().filter(|shape| shape.len() == 4)?;
        input.dtype.is_none_or(|dtype| dtype == Dtype::F32).then_some((at, shape))
    })
}

/// The order of an input's sides, and those that are fixed as images, channels, height, width.
fn order_of(shape: &[Side]) -> (Order, [Option<usize>; 4]) {
    let side = |at: usize| shape[at].fixed();
    let is_channels = |at: usize| matches!(side(at), Some(1 | 3));
    match !is_channels(1) && is_channels(3) {
        true => (Order::ChannelsLast, [side(0), side(3), side(1), side(2)]),
        false => (Order::ChannelsFirst, [side(0), side(1), side(2), side(3)]),
    }
}

pub(crate) fn list(names: &[impl Display]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// SHA-256 of a model, of its files of weights in the order of their names, and of `more` files.
pub(crate) fn digest(path: &Path, files: &BTreeSet<String>, more: &[&Path]) -> Result<String> {
    let fail = |path: &Path, error: std::io::Error| Error {
        path: Some(path.into()),
        reason: format!("cannot read it: {error}"),
        hint: None,
    };
    let mut digest = Sha256::new();
    let mut add = |path: &Path| -> std::io::Result<()> {
        let (mut file, mut buffer) = (File::open(path)?, vec![0; 1 << 16]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                count => digest.update(&buffer[..count]),
            }
        }
    };
    add(path).map_err(|error| fail(path, error))?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    for name in files {
        let file = folder.join(name);
        add(&file).map_err(|error| fail(&file, error))?;
    }
    for file in more {
        add(file).map_err(|error| fail(file, error))?;
    }
    Ok(hex::encode(&digest.finalize()))
}
