//! Networks: one file each, chosen by `kind` in the run file's `[network]`.
//!
//! A network maps images `[n, channels, height, width]` to embeddings `[n, d]`, one per head, that are not
//! normalised; the configuration of the loss and the run file define whether they are normalised before the loss.
//!
//! To add a network: one file with its configuration ([`NetworkSpec`]) and its description (calls on the builder of
//! the module `graph`, or a Burn module that implements [`Embedder`]), one line in the list of [`Architecture`], its
//! tests and its documentation. A program adds its own by [`Architecture::register`].
//!
//! # Example
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use gallerist_nn::{InputShape, NetworkConfig, ResNetConfig};
//!
//! let config = NetworkConfig::from(ResNetConfig { depth: 18, dimensions: 64, ..Default::default() });
//! let input = InputShape { channels: 3, height: 64, width: 32 };
//! let network = config.init(input, 1, &Device::flex())?;
//! let embeddings = network.forward(Tensor::zeros([2, 3, 64, 32], &Device::flex()));
//! assert_eq!(embeddings.len(), config.heads().len());
//! assert_eq!(embeddings[0].dims(), [2, 64]);
//! # Ok::<(), gallerist_nn::Error>(())
//! ```

#![recursion_limit = "256"]

mod bn_inception;
mod config;
mod conv_blocks;
mod efficientnet;
mod efficientnet_lite;
mod embedder;
mod extractor;
mod googlenet;
pub mod graph;
mod heads;
mod inverted_residual;
pub mod layers;
mod limits;
mod mobilenet_v2;
mod mobilenet_v3;
mod onnx;
mod resnet;
mod setting;
mod spec;
pub mod token_layers;
mod two_conv;
mod vit;

pub use bn_inception::{BnInceptionConfig, InceptionHead};
pub use config::{Architecture, HeadInit, NetworkConfig};
pub use conv_blocks::ConvBlocksConfig;
pub use efficientnet::{EfficientNetConfig, EfficientNetVariant};
pub use efficientnet_lite::{EfficientNetLiteConfig, EfficientNetLiteVariant};
pub use embedder::{AnyEmbedder, Embedder};
pub use extractor::Extractor;
pub use googlenet::GoogLeNetConfig;
pub use graph::{Checkpoints, Network, Prepared};
pub use heads::{Combine, Head, HeadChoice, check_outputs, place};
pub use limits::{MAX_PARAMETERS, numbers_in_words};
pub use mobilenet_v2::{MobileNetV2Config, MobileNetV2Variant};
pub use mobilenet_v3::{MobileNetV3Config, MobileNetV3Size, MobileNetV3Variant};
pub use onnx::{Engine, OnnxConfig, Rows};
pub use resnet::{GlobalPool, ResNetConfig};
pub use setting::{FreezeBatchNorm, InputShape, Setting};
pub use spec::NetworkSpec;
pub use token_layers::{Draw, Gelu};
pub use two_conv::TwoConvConfig;
pub use vit::{VitConfig, VitOutput, VitPositions, VitSize};

pub use gallerist_kernels::Rotary;
pub use gallerist_kernels::prepared::{Measurement, Ranges};
pub use gallerist_kernels::{Products, int8_unit};
pub use gallerist_tensor::{Error, Result};
