//! What a file of weights says about itself: its network, and how its images were prepared.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use gallerist_data::ImageConfig;
use gallerist_nn::{
    EfficientNetConfig, EfficientNetLiteConfig, MobileNetV2Config, MobileNetV3Config, VitConfig,
};
use gallerist_util::registry::Named;

use super::described::{Described, preprocessing_beside};
use super::file::read;
use super::preprocessing::Preprocessing;
use super::sources::SOURCES;
use super::tensors::Weights;
use super::{inverted_residual, vit};
use crate::{Error, Result};

/// The networks of several variants, which a file of weights tells, with the preprocessing of most.
pub const OF_SEVERAL_VARIANTS: [&str; 5] = [
    VitConfig::NAME,
    EfficientNetConfig::NAME,
    EfficientNetLiteConfig::NAME,
    MobileNetV2Config::NAME,
    MobileNetV3Config::NAME,
];

impl Preprocessing {
    /// What the file of weights says of itself, else what all published weights of that `[network] kind` want;
    /// `None` where neither is known. `layout` is that of the `[network]` where it is known: weights by timm's names may be timm's own or
    /// TensorFlow's.
    ///
    /// Our own checkpoints and exports say it in their metadata.
    ///
    /// ```
    /// use std::path::Path;
    /// use gallerist_weights::Preprocessing;
    ///
    /// let of = |kind| Preprocessing::of_weights(Path::new("a file that says nothing.pth"), kind, None);
    /// assert_eq!(of("resnet").unwrap().mean, [0.485, 0.456, 0.406]);
    /// assert!(of("bn_inception").unwrap().bgr);
    /// assert!(of("conv_blocks").is_none());
    /// ```
    pub fn of_weights(path: &Path, kind: &str, layout: Option<&str>) -> Option<Self> {
        of_file(path).or_else(|| {
            if OF_SEVERAL_VARIANTS.contains(&kind)
                && let Some(described) = described(&read(path).ok()?, layout)
            {
                return Some(described.images);
            }
            let wanted = format!("kind = \"{kind}\"");
            let source = SOURCES.iter().find(|source| source.network.starts_with(&wanted))?;
            Some(source.images.into())
        })
    }
}

impl Preprocessing {
    /// How images are prepared for an ONNX model: from its `metadata`, if it is one of our exports, else from the
    /// `config.json` or `preprocessor_config.json` in its folder, with which timm and Hugging Face publish models. `side`
    /// is the side of the images where these files do not say it.
    pub fn of_model(path: &Path, metadata: &BTreeMap<String, String>, side: usize) -> Option<Self> {
        let own = metadata.get("image").and_then(|image| serde_json::from_str::<ImageConfig>(image).ok());
        own.map(|image| (&image).into()).or_else(|| preprocessing_beside(path, side))
    }
}

/// The largest header of a safetensors file that is looked into.
const MAX_HEADER: u64 = 64 << 20;

/// The header of a safetensors file: tensors by name, and its metadata as `__metadata__`. `None` for any other file, and for
/// a header of more than 64 MiB.
pub fn safetensors_header(path: &Path) -> Option<serde_json::Map<String, serde_json::Value>> {
    let mut file = gallerist_retrieval::file::open_regular(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return None;
    }
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// What one of our files says in its metadata.
pub(super) fn of_file(path: &Path) -> Option<Preprocessing> {
    let header = safetensors_header(path)?;
    let metadata: BTreeMap<String, String> =
        serde_json::from_value(header.get("__metadata__")?.clone()).ok()?;
    if let Some(image) = metadata.get("image") {
        return Some((&serde_json::from_str::<ImageConfig>(image).ok()?).into());
    }
    let checkpoint: serde_json::Value = serde_json::from_str(metadata.get("gallerist")?).ok()?;
    // The run file of a checkpoint is resolved: `[image]` has every key.
    let config: toml::Table = checkpoint.get("config")?.as_str()?.parse().ok()?;
    let image: ImageConfig = config.get("image")?.clone().try_into().ok()?;
    Some((&image).into())
}

/// The section `[network]` of a run file for which a file of weights was made: the kind of the network and its
/// parameters. `None` where the names of its tensors belong to no known network.
///
/// Our own checkpoints and exports say it in their metadata; of the weights of other programs, the names of the tensors
/// tell it.
///
/// # Errors
///
/// As [`read`].
///
/// ```no_run
/// use std::path::Path;
///
/// let network = gallerist_weights::network_of(Path::new("mobilenet_v2-7ebf99e0.pth"))?;
/// assert_eq!(network.unwrap()["kind"].as_str(), Some("mobilenet_v2"));
/// # Ok::<(), gallerist_weights::Error>(())
/// ```
pub fn network_of(path: &Path) -> Result<Option<toml::Table>> {
    if let Some(table) = safetensors_header(path).and_then(|header| network_of_header(&header)) {
        return Ok(Some(table));
    }
    Ok(identified(&read(path)?).map(|(_, network)| network))
}

/// Refuses weights of an EfficientNet or MobileNetV3 by timm's names of which nothing says whether they are timm's own or
/// TensorFlow's: the two are computed with differently, and the features of one as the other are wrong by half their size.
///
/// # Errors
///
/// [`Error::Weights`], and as [`read`].
pub fn check_layout(path: &Path) -> Result<()> {
    if safetensors_header(path).and_then(|header| network_of_header(&header)).is_some()
        || !inverted_residual::is_of_unknown_layout(&read(path)?)
    {
        return Ok(());
    }
    Err(Error::Weights {
        path: path.into(),
        reason: "its tensors have timm's names, which are those of timm's own weights and of TensorFlow's".to_owned(),
        hint: Some(
            "say which: network.layout = \"timm\" for timm's own, also for networks that were trained further, \"timm_tf\" for those whose \
             name begins with `tf_`; or put their `config.json` next to the file"
                .to_owned(),
        ),
    })
}

/// What a file of a network of many variants tells of it.
fn described(weights: &Weights, layout: Option<&str>) -> Option<Described> {
    vit::describe(weights).or_else(|| inverted_residual::describe(weights, layout))
}

/// The owner of the names of these tensors, and the `[network]` that they belong to.
pub(super) fn identified(weights: &Weights) -> Option<(&'static str, toml::Table)> {
    if let Some(described) = described(weights, None) {
        return Some((described.whose, described.network));
    }
    let keys: Vec<&str> = weights.tensors.keys().map(String::as_str).collect();
    let (whose, network) = identify(&keys)?;
    let lines = network.replace(", ", "\n");
    Some((whose, lines.parse().expect("the list has run files' keys")))
}

/// What one of our files says of its network in its metadata.
fn network_of_header(header: &serde_json::Map<String, serde_json::Value>) -> Option<toml::Table> {
    let text = |key: &str| header.get("__metadata__")?.get(key)?.as_str();
    if let Some(network) = text("network") {
        return serde_json::from_str(network).ok();
    }
    let checkpoint: serde_json::Value = serde_json::from_str(text("gallerist")?).ok()?;
    let config: toml::Table = checkpoint.get("config")?.as_str()?.parse().ok()?;
    let mut network = config.get("network")?.as_table()?.clone();
    for key in ["weights", "freeze_batch_norm", "head_init", "head_distance"] {
        network.remove(key);
    }
    Some(network)
}

/// The owner of these tensor names, and the `[network]` with these names.
fn identify(keys: &[&str]) -> Option<(&'static str, &'static str)> {
    let has = |part: &str| keys.iter().any(|key| key.contains(part));
    Some(if has("linearbottleneck0_conv0") {
        ("MXNet's", "kind = \"mobilenet_v2\", layout = \"mxnet\"")
    } else if has("features.1.conv.0.0.weight") {
        ("torchvision's MobileNetV2", "kind = \"mobilenet_v2\", layout = \"torchvision\"")
    } else if has("inception_3a_1x1") {
        ("those of BN-Inception", "kind = \"bn_inception\"")
    } else if has("inception3a.branch1") {
        ("torchvision's GoogLeNet", "kind = \"googlenet\"")
    } else if has("layer1.0.conv3.weight") && has("layer3.5.conv1.weight") && !has("layer3.6.conv1.weight") {
        ("torchvision's ResNet-50", "kind = \"resnet\", depth = 50")
    } else if has("layer1.0.conv3.weight") {
        return None;
    } else if has("layer3.5.conv1.weight") {
        ("torchvision's ResNet-34", "kind = \"resnet\", depth = 34")
    } else if has("layer1.1.conv1.weight") {
        ("torchvision's ResNet-18", "kind = \"resnet\", depth = 18")
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_network() {
        let of = |keys: &[&str]| identify(keys).map(|(_, network)| network);
        assert_eq!(
            of(&["mobilenetv20_features_linearbottleneck0_conv0_weight"]).unwrap(),
            "kind = \"mobilenet_v2\", layout = \"mxnet\""
        );
        assert_eq!(of(&["module.layer1.1.conv1.weight"]).unwrap(), "kind = \"resnet\", depth = 18");
        assert_eq!(
            of(&["layer1.1.conv1.weight", "layer3.5.conv1.weight"]).unwrap(),
            "kind = \"resnet\", depth = 34"
        );
        assert_eq!(of(&["classifier.weight"]), None);
    }

    #[test]
    fn a_file_tells_its_network_by_its_tensors_or_its_metadata() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let write = |name: &str, metadata: &[(&str, &str)]| {
            let tensors = BTreeMap::from([(name.to_string(), burn::tensor::TensorData::from([0.0f32]))]);
            let metadata = metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            gallerist_tensor::params::write_with(&path, &tensors, Some(metadata)).unwrap();
        };
        write("features.1.conv.0.0.weight", &[]);
        let network = network_of(&path).unwrap().unwrap();
        assert_eq!(network.to_string(), "kind = \"mobilenet_v2\"\nlayout = \"torchvision\"\n");
        write("x", &[("network", r#"{"kind": "resnet", "depth": 18}"#)]);
        assert_eq!(network_of(&path).unwrap().unwrap()["depth"].as_integer(), Some(18));
        let config = "[network]\nkind = \"two_conv\"\nweights = \"a.pth\"\nhead_init = \"lda\"\n";
        let checkpoint = serde_json::json!({ "config": config }).to_string();
        write("x", &[("gallerist", &checkpoint)]);
        assert_eq!(network_of(&path).unwrap().unwrap().to_string(), "kind = \"two_conv\"\n");
        write("classifier.weight", &[]);
        assert_eq!(network_of(&path).unwrap(), None);
        std::fs::write(&path, "no weights").unwrap();
        assert!(network_of(&path).is_err());
    }

    #[test]
    fn a_file_says_how_its_images_were_prepared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let mut image = ImageConfig::new(64, 1);
        (image.mean, image.invert) = (vec![0.25], true);
        let metadata = BTreeMap::from([("image".to_string(), serde_json::to_string(&image).unwrap())]);
        gallerist_tensor::params::write_with(&path, &BTreeMap::new(), Some(metadata.into_iter().collect()))
            .unwrap();
        let found = Preprocessing::of_weights(&path, "resnet", None).unwrap();
        assert_eq!(found, (&image).into());
        assert_eq!(found.to_string(), "grey 64, mean 0.25, inverted");
        // A file cut short, and one of another format, say nothing.
        std::fs::write(&path, [0xff; 12]).unwrap();
        assert_eq!(Preprocessing::of_weights(&path, "conv_blocks", None), None);
    }
}
