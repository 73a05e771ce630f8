//! A frozen model of another program as a layer.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Tensor, TensorData};
use gallerist_onnx::Model;

use crate::layers::at_least_f32;

/// A frozen model of another program: features of images, without gradients.
#[derive(Module, Debug)]
pub struct Extractor {
    /// The model.
    #[module(skip)]
    pub model: Arc<Model>,
    /// Length of a row of features.
    #[module(skip)]
    pub features: usize,
}

impl Extractor {
    /// Features of images. Features that were computed before, `[n, features, 1, 1]`, are returned as they are.
    ///
    /// # Shapes
    ///
    /// `[n, channels, height, width]` to `[n, features]`.
    ///
    /// # Panics
    ///
    /// If the model cannot be computed. It was computed when the network was built: for two images together, if it takes any
    /// number.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let [n, channels, height, width] = images.dims();
        if [channels, height, width] == [self.features, 1, 1] {
            return at_least_f32(images).reshape([n, self.features]);
        }
        let device = images.device();
        let values = at_least_f32(images).into_data().try_into_vec::<f32>().expect("images are f32");
        let rows = self
            .model
            .extract(&values, [n, channels, height, width])
            .unwrap_or_else(|error| panic!("{error}"));
        Tensor::from_data(TensorData::new(rows, [n, self.features]), &device)
    }
}
