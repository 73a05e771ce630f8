//! The trait of networks.

use burn::module::Module;
use burn::tensor::Tensor;
use gallerist_kernels::Products;
use gallerist_kernels::prepared::{Measurement, Ranges};
use gallerist_tensor::dynamic::AnyModule;

use crate::extractor::Extractor;
use crate::graph::{Checkpoints, Network, Prepared};
use crate::setting::InputShape;
use crate::token_layers::Draw;

/// A network that maps images to embeddings: one of this crate, or any Burn module that implements this trait.
///
/// Only [`forward`](Self::forward) is required. The optimiser treats parameters whose name begins with `head.` (the
/// field `head` of a module) as new layers: their learning rate is `optimizer.head_factor` times the base rate.
///
/// # Example
///
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Device, Tensor};
/// use gallerist_nn::Embedder;
///
/// #[derive(Module, Debug)]
/// struct Flat {
///     head: Linear,
/// }
///
/// impl Embedder for Flat {
///     fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
///         vec![self.head.forward(images.flatten(1, 3))]
///     }
/// }
///
/// let device = Device::flex();
/// let network = Flat { head: LinearConfig::new(3 * 4 * 4, 8).init(&device) }.boxed();
/// assert_eq!(network.forward(Tensor::zeros([2, 3, 4, 4], &device))[0].dims(), [2, 8]);
/// ```
pub trait Embedder {
    /// The embeddings of a batch, one tensor per head, not normalised.
    ///
    /// # Shapes
    ///
    /// `[n, channels, height, width]` to `[n, dimensions]` of each head, in the order of
    /// [`NetworkSpec::heads`](crate::NetworkSpec::heads).
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>>;

    /// [`forward`](Self::forward) of a training step, for networks that make random decisions in training (drop path).
    ///
    /// The decisions depend on `draw` and the network alone, so that a resumed run makes the same ones.
    fn forward_training(&self, images: Tensor<4>, draw: Draw) -> Vec<Tensor<2>> {
        let _ = draw;
        self.forward(images)
    }

    /// [`forward_training`](Self::forward_training) that keeps few results and computes the others again for the gradients,
    /// with the outputs on the device without autodiff. `None`: the network cannot do it.
    fn forward_checkpointed(&self, images: Tensor<4>, draw: Draw) -> Option<(Vec<Tensor<2>>, Checkpoints)> {
        let _ = (images, draw);
        None
    }

    /// Whether [`forward_checkpointed`](Self::forward_checkpointed) is possible.
    fn can_checkpoint(&self) -> bool {
        false
    }

    /// [`forward`](Self::forward), and the last feature maps before they are pooled, `[n, channels, height, width]`;
    /// `None` if the network has no feature maps.
    fn forward_with_maps(&self, images: Tensor<4>) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        (self.forward(images), None)
    }

    /// The network prepared for embedding images of one size on the CPU: faster than [`forward`](Self::forward), and the
    /// same up to rounding. `None`: it has no prepared form.
    fn prepare(&self, input: InputShape, products: Products) -> Option<Prepared> {
        let _ = (input, products);
        None
    }

    /// The same in int8, in measured ranges. `None`: it has no form in int8, or the ranges are of another network.
    fn prepare_int8(&self, input: InputShape, ranges: &Ranges) -> Option<Prepared> {
        let _ = (input, ranges);
        None
    }

    /// A measurement of the ranges of its layers, for [`prepare_int8`](Self::prepare_int8). `None`: it has no form in int8.
    fn measure(&self, input: InputShape) -> Option<Measurement> {
        let _ = input;
        None
    }

    /// The bytes that one image needs in a pass without gradients, which decides how many images are embedded at
    /// once. The default suits a network like ResNet-50 at 224 x 224 pixels.
    fn bytes_per_image(&self) -> usize {
        16 << 20
    }

    /// Numbers of the largest feature maps for one image; a batch whose maps are too large for one tensor is refused
    /// before training. `None`: not known.
    fn largest_maps(&self) -> Option<usize> {
        None
    }

    /// The factor by which the network shrinks an image, for a warning about images that are too small. `None`: not
    /// known.
    fn total_stride(&self) -> Option<usize> {
        None
    }

    /// The number of its transformer or convolution blocks, whose parameters are named `blocks.0.…` onwards, for
    /// `optimizer.layer_decay`. `None`: it has none.
    fn blocks(&self) -> Option<usize> {
        None
    }

    /// The description as a list of layers, from which ONNX and PyTorch files are written; `None` for modules without
    /// one.
    fn graph(&self) -> Option<&Network> {
        None
    }

    /// The frozen model that makes its features. Training computes them once for each image and gives them to the network
    /// in place of the image ([`Extractor::forward`]). `None`: it has none.
    fn extractor(&self) -> Option<&Extractor> {
        None
    }

    /// The network in a box, for trainer and model.
    fn boxed(self) -> AnyEmbedder
    where
        Self: Module + Sync + Sized + 'static,
    {
        AnyModule::new(self, |network| network)
    }
}

/// Any network.
pub type AnyEmbedder = AnyModule<dyn Embedder>;

impl Embedder for Network {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        Network::forward(self, images)
    }

    fn forward_training(&self, images: Tensor<4>, draw: Draw) -> Vec<Tensor<2>> {
        Network::forward_training(self, images, draw)
    }

    fn forward_checkpointed(&self, images: Tensor<4>, draw: Draw) -> Option<(Vec<Tensor<2>>, Checkpoints)> {
        Network::forward_checkpointed(self, images, draw)
    }

    fn can_checkpoint(&self) -> bool {
        Network::can_checkpoint(self)
    }

    fn forward_with_maps(&self, images: Tensor<4>) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        Network::forward_with_maps(self, images)
    }

    fn prepare(&self, input: InputShape, products: Products) -> Option<Prepared> {
        Network::prepare(self, input, products)
    }

    fn prepare_int8(&self, input: InputShape, ranges: &Ranges) -> Option<Prepared> {
        Network::prepare_int8(self, input, ranges)
    }

    fn measure(&self, input: InputShape) -> Option<Measurement> {
        Network::measure(self, input)
    }

    fn blocks(&self) -> Option<usize> {
        Network::blocks(self)
    }

    fn bytes_per_image(&self) -> usize {
        Network::bytes_per_image(self)
    }

    fn largest_maps(&self) -> Option<usize> {
        Some(Network::largest_maps(self))
    }

    fn total_stride(&self) -> Option<usize> {
        Some(Network::total_stride(self))
    }

    fn graph(&self) -> Option<&Network> {
        // A frozen model is no layer that files of other programs could have.
        self.extractor().is_none().then_some(self)
    }

    fn extractor(&self) -> Option<&Extractor> {
        Network::extractor(self)
    }
}
