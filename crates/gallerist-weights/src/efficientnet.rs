//! Weights of EfficientNet-Lite: what a file tells of its network.

use gallerist_nn::EfficientNetLiteConfig;
use toml::Value;

use crate::described::{Beside, Described, HALF, IMAGENET};
use crate::tensors::Weights;

/// TensorFlow's images: 127 of 255 is subtracted, and the rest divided by 128 of 255.
const TENSORFLOW: ([f32; 3], [f32; 3]) = ([0.498; 3], [0.502; 3]);

/// The network and the preprocessing, by the names and shapes of the tensors. timm's two variants have the same names: the
/// `config.json` with which timm publishes weights tells them apart, else the name of the file.
pub(crate) fn describe(weights: &Weights) -> Option<Described> {
    let find = |end: &str| weights.tensors.keys().find_map(|key| key.strip_suffix(end));
    let of_timm = find("blocks.0.0.conv_dw.weight");
    let prefix = of_timm.or_else(|| find("_blocks.0._depthwise_conv.weight"))?;
    let has = |name: String| weights.tensors.contains_key(&format!("{prefix}{name}"));
    let beside = Beside::read(&weights.path);
    let file = || Some(weights.path.file_stem()?.to_string_lossy().into_owned());
    let (whose, layout, statistics, (blocks, last)) = match of_timm {
        None => {
            let blocks = (0..).take_while(|i| has(format!("_blocks.{i}._depthwise_conv.weight"))).count();
            let last = format!("_blocks.{}._project_conv.weight", blocks - 1);
            ("those of EfficientNet-PyTorch", "efficientnet_pytorch", TENSORFLOW, (blocks, last))
        }
        Some(_) => {
            let of_group = |group: usize| {
                (0..).take_while(|i| has(format!("blocks.{group}.{i}.conv_dw.weight"))).count()
            };
            let blocks = (0..7).map(of_group).sum();
            let own = beside
                .architecture
                .clone()
                .or_else(file)
                .is_some_and(|name| name.starts_with("efficientnet"));
            let (layout, statistics) = if own { ("timm", IMAGENET) } else { ("timm_tf", HALF) };
            ("timm's EfficientNet-Lite", layout, statistics, (blocks, "blocks.6.0.conv_pwl.weight".into()))
        }
    };
    let channels = *weights.tensors.get(&format!("{prefix}{last}"))?.shape().first()?;
    let size = EfficientNetLiteConfig::size_of(blocks, channels)?;
    let mut network = toml::Table::new();
    network.insert("kind".into(), "efficientnet_lite".into());
    if size > 0 {
        network.insert("size".into(), Value::Integer(size as i64));
    }
    network.insert("layout".into(), layout.into());
    let side = EfficientNetLiteConfig::side_of(size);
    Some(Described { whose, network, images: beside.images(side, statistics) })
}
