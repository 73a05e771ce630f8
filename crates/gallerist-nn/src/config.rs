//! `[network]` of a run file.

use std::path::PathBuf;

use burn::tensor::Device;
use gallerist_util::registry::{Named, reserved_parameter};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use gallerist_tensor::{Error, Result};

use crate::bn_inception::BnInceptionConfig;
use crate::conv_blocks::ConvBlocksConfig;
use crate::efficientnet::EfficientNetConfig;
use crate::efficientnet_lite::EfficientNetLiteConfig;
use crate::embedder::AnyEmbedder;
use crate::googlenet::GoogLeNetConfig;
use crate::heads::Head;
use crate::mobilenet_v2::MobileNetV2Config;
use crate::mobilenet_v3::MobileNetV3Config;
use crate::onnx::OnnxConfig;
use crate::resnet::ResNetConfig;
use crate::setting::{FreezeBatchNorm, InputShape, Setting};
use crate::spec::NetworkSpec;
use crate::two_conv::TwoConvConfig;
use crate::vit::VitConfig;

/// `[network]` of a run file: the architecture, and the keys that all architectures have.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NetworkConfig {
    /// The network's kind and its parameters.
    #[serde(flatten)]
    pub architecture: Architecture,
    /// File of pretrained weights (crate `gallerist-weights`); absent: random weights from
    /// the seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<PathBuf>,
    /// The model of the network `onnx`, made by another program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The frozen parts of batch norm.
    #[serde(skip_serializing_if = "FreezeBatchNorm::is_none")]
    pub freeze_batch_norm: FreezeBatchNorm,
    /// Initialization of the last linear layers.
    #[serde(skip_serializing_if = "HeadInit::is_random")]
    pub head_init: HeadInit,
    /// Initial mean distance between the unnormalised embeddings of two training images, to which the last linear
    /// layers are scaled; absent: with [`HeadInit::Lda`] the distance that the loss declares
    /// (`LossConfig::initial_distance` of `gallerist-loss`), else no scaling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_distance: Option<f64>,
}

/// Initialization of the linear layers that compute the embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadInit {
    /// Drawn from the seed.
    #[default]
    Random,
    /// Linear discriminant analysis of the inputs of the layer for the training images: whitened by their
    /// covariance within classes, then its principal components (Mikolajczyk & Matas 2007; Radenović,
    /// Tolias & Chum 2019, section 3.4). For networks with pretrained weights. It needs more images than dimensions, and two
    /// different images of one class.
    Lda,
}

impl HeadInit {
    fn is_random(&self) -> bool {
        *self == HeadInit::Random
    }
}

gallerist_util::kind! {
    /// The kind of a network and its parameters: any configuration that implements [`NetworkSpec`].
    pub struct Architecture(dyn NetworkSpec), tag = "kind", default = ConvBlocksConfig;
    ConvBlocksConfig,
    TwoConvConfig,
    ResNetConfig,
    BnInceptionConfig,
    GoogLeNetConfig,
    MobileNetV2Config,
    MobileNetV3Config,
    EfficientNetConfig,
    EfficientNetLiteConfig,
    VitConfig,
    OnnxConfig,
}

/// The keys of `[network]` that all networks have.
const RESERVED: [&str; 5] = ["weights", "file", "freeze_batch_norm", "head_init", "head_distance"];

impl<C: NetworkSpec + Named> From<C> for NetworkConfig {
    fn from(config: C) -> Self {
        Architecture::from(config).into()
    }
}

impl From<Architecture> for NetworkConfig {
    fn from(architecture: Architecture) -> Self {
        NetworkConfig { architecture, ..Default::default() }
    }
}

impl NetworkConfig {
    /// Checks the ranges of the keys that all networks have.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where a number is not finite or out of its range; [`Error::Conflict`] for a network with a parameter
    /// that has the name of such a key.
    pub fn validate(&self) -> Result<()> {
        if let Some(key) = reserved_parameter(&self.architecture, &RESERVED) {
            return Err(Error::Conflict {
                message: format!(
                    "the network `{}` has a parameter `{key}`, which is a key of every [network]",
                    self.name()
                ),
                hint: "give the parameter of the network another name".into(),
            });
        }
        if self.file.is_some() && self.architecture.downcast_ref::<OnnxConfig>().is_none() {
            return Err(Error::Conflict {
                message: format!("the network `{}` is not computed by a file", self.name()),
                hint: "`network.file` belongs to kind = \"onnx\"; pretrained weights are `network.weights`"
                    .into(),
            });
        }
        match self.head_distance {
            Some(distance) => {
                Error::require("network.head_distance".into(), distance, distance > 0.0, "above 0")
            }
            None => Ok(()),
        }
    }

    /// The network with fresh weights, drawn from `seed` alone: the same on every device and for
    /// any number of threads. The file of [`NetworkConfig::weights`] is not read;
    /// `gallerist_weights::load` does that.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where the configuration does not fit the input.
    pub fn init(&self, input: InputShape, seed: u64, device: &Device) -> Result<AnyEmbedder> {
        self.architecture.build(Setting {
            input,
            seed,
            device,
            freeze: self.freeze_batch_norm,
            file: self.file.as_deref(),
        })
    }

    /// The name in the run file.
    pub fn name(&self) -> &'static str {
        self.architecture.name()
    }

    /// The network's embeddings, in the order in which [`Embedder::forward`](crate::Embedder::forward) returns them.
    pub fn heads(&self) -> Vec<Head> {
        self.architecture.heads()
    }

    /// Length of all its embeddings one after the other.
    pub fn dimensions(&self) -> usize {
        self.heads().iter().map(|head| head.dimensions).sum()
    }
}

/// The keys that all networks have are taken out first, so that each network can refuse the keys it
/// does not know.
impl<'de> Deserialize<'de> for NetworkConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Common {
            weights: Option<PathBuf>,
            file: Option<PathBuf>,
            freeze_batch_norm: FreezeBatchNorm,
            head_init: HeadInit,
            head_distance: Option<f64>,
        }
        let mut table = toml::Table::deserialize(deserializer)?;
        let common = RESERVED.into_iter().filter_map(|key| table.remove_entry(key)).collect::<toml::Table>();
        let Common { weights, file, freeze_batch_norm, head_init, head_distance } =
            common.try_into().map_err(|e: toml::de::Error| D::Error::custom(e.message()))?;
        let architecture =
            table.try_into().map_err(|e: toml::de::Error| D::Error::custom(with_common(e.message())))?;
        Ok(NetworkConfig { architecture, weights, file, freeze_batch_norm, head_init, head_distance })
    }
}

/// The message of an unknown key, with the keys that all networks have among the known ones.
fn with_common(message: &str) -> String {
    match message.starts_with("unknown field") {
        true => {
            format!("{}, {}", message.trim_end(), RESERVED.map(|key| format!("`{key}`")).join(", "))
        }
        false => message.into(),
    }
}
