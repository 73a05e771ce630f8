//! Weights of networks of inverted residual blocks (EfficientNet, EfficientNet-Lite, MobileNetV3, timm's MobileNetV2): what a
//! file tells of its network.

use gallerist_nn::{EfficientNetConfig, EfficientNetLiteConfig};
use toml::Value;

use crate::described::{Beside, Described, HALF, IMAGENET};
use crate::tensors::Weights;

/// TensorFlow's images: 127 of 255 is subtracted, and the rest divided by 128 of 255.
const TENSORFLOW: ([f32; 3], [f32; 3]) = ([0.498; 3], [0.502; 3]);

/// The programs whose names are known.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    Torchvision,
    EfficientNetPyTorch,
    /// timm's own weights, or TensorFlow's: the names are the same.
    Timm {
        own: bool,
    },
}

impl Names {
    fn layout(self) -> &'static str {
        match self {
            Names::Torchvision => "torchvision",
            Names::EfficientNetPyTorch => "efficientnet_pytorch",
            Names::Timm { own: true } => "timm",
            Names::Timm { own: false } => "timm_tf",
        }
    }
}

/// The tensors of a file.
struct File<'a> {
    weights: &'a Weights,
    /// What all names begin with.
    prefix: &'a str,
    beside: Beside,
}

impl<'a> File<'a> {
    /// The file, if it has a tensor whose name ends so.
    fn with(weights: &'a Weights, end: &str) -> Option<Self> {
        let prefix = weights.tensors.keys().find_map(|key| key.strip_suffix(end))?;
        Some(File { weights, prefix, beside: Beside::read(&weights.path) })
    }

    fn has(&self, name: &str) -> bool {
        self.outputs(name).is_some()
    }

    /// The first side of a tensor.
    fn outputs(&self, name: &str) -> Option<usize> {
        self.weights.tensors.get(&format!("{}{name}", self.prefix))?.shape().first().copied()
    }

    /// The number of tensors with such names, from 0 on.
    fn count(&self, name: impl Fn(usize) -> String) -> usize {
        (0..).take_while(|&i| self.has(&name(i))).count()
    }
}

/// The network and the preprocessing, by the names and shapes of the tensors. timm's own weights and TensorFlow's by timm have
/// the same names: `layout` of the `[network]` tells them apart, else the `config.json` with which timm publishes weights, else the name
/// of the file.
pub(crate) fn describe(weights: &Weights, layout: Option<&str>) -> Option<Described> {
    if let Some(file) = File::with(weights, "_blocks.0._depthwise_conv.weight") {
        let blocks = file.count(|i| format!("_blocks.{i}._depthwise_conv.weight"));
        let last = file.outputs(&format!("_blocks.{}._project_conv.weight", blocks.checked_sub(1)?))?;
        let squeezes = file.has("_blocks.0._se_reduce.weight");
        return efficientnet(&file, Names::EfficientNetPyTorch, squeezes, [blocks, last]);
    }
    if let Some(file) = File::with(weights, "features.1.0.block.1.fc1.weight") {
        let of_group = |group: usize| file.count(|i| format!("features.{group}.{i}.block.0.0.weight"));
        let blocks = (1..8).map(of_group).sum();
        let last = file.outputs("features.7.0.block.3.0.weight")?;
        return efficientnet(&file, Names::Torchvision, true, [blocks, last]);
    }
    if let Some(file) = File::with(weights, "features.1.block.0.0.weight") {
        let sizes = [("large", "features.16.0.weight", 960), ("small", "features.12.0.weight", 576)];
        let squeezes = file.has("features.4.block.2.fc1.weight");
        return squeezes.then(|| mobilenet_v3(&file, Names::Torchvision, sizes))?;
    }
    let file = File::with(weights, "blocks.0.0.conv_dw.weight")?;
    let own = match layout {
        Some("timm") => true,
        Some("timm_tf") => false,
        _ => is_timms_own(&file) == Some(true),
    };
    let names = Names::Timm { own };
    let sizes = [("large", "blocks.6.0.conv.weight", 960), ("small", "blocks.5.0.conv.weight", 576)];
    if sizes.iter().any(|(_, last, _)| file.has(last)) {
        // The `minimal` form has no squeeze and excitation.
        let squeezes = file.has("blocks.2.0.se.conv_reduce.weight");
        return squeezes.then(|| mobilenet_v3(&file, names, sizes))?;
    }
    let of_group = |group: usize| file.count(|i| format!("blocks.{group}.{i}.conv_dw.weight"));
    let groups: Vec<usize> = (0..7).map(of_group).collect();
    let last = file.outputs(&format!("blocks.6.{}.conv_pwl.weight", groups[6].checked_sub(1)?))?;
    let squeezes = file.has("blocks.0.0.se.conv_reduce.weight");
    if groups == MOBILENET_V2 && last == 320 && !squeezes {
        return Some(described(&file, "timm's MobileNetV2", ("mobilenet_v2", "timm", None), 224, IMAGENET));
    }
    efficientnet(&file, names, squeezes, [groups.iter().sum(), last])
}

/// Whether weights by timm's names are timm's own (true) or TensorFlow's, by the `config.json` or the name of the file; `None` where
/// neither says it.
fn is_timms_own(file: &File<'_>) -> Option<bool> {
    let stem = || file.weights.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = file.beside.architecture.clone().or_else(stem)?;
    let begins = |with: &[&str]| with.iter().any(|begin| name.starts_with(begin));
    match (begins(&["efficientnet", "mobilenetv3"]), begins(&["tf_"])) {
        (false, false) => None,
        (own, _) => Some(own),
    }
}

/// Whether nothing says if the weights are timm's own or TensorFlow's, which are computed with differently.
pub(crate) fn is_of_unknown_layout(weights: &Weights) -> bool {
    let of_mobilenet_v2 = || {
        describe(weights, None).is_some_and(|known| known.network["kind"].as_str() == Some("mobilenet_v2"))
    };
    File::with(weights, "blocks.0.0.conv_dw.weight").is_some_and(|file| is_timms_own(&file).is_none())
        && !of_mobilenet_v2()
}

/// Blocks of each group of timm's MobileNetV2.
const MOBILENET_V2: [usize; 7] = [1, 2, 3, 4, 3, 3, 1];

/// EfficientNet or, without squeeze and excitation, EfficientNet-Lite, by the number of its blocks and the channels of the last
/// one.
fn efficientnet(
    file: &File<'_>,
    names: Names,
    squeezes: bool,
    [blocks, last]: [usize; 2],
) -> Option<Described> {
    let (kind, size, side) = match squeezes {
        true => {
            let size = EfficientNetConfig::size_of(blocks, last)?;
            ("efficientnet", size, EfficientNetConfig::side_of(size))
        }
        false => {
            let size = EfficientNetLiteConfig::size_of(blocks, last)?;
            ("efficientnet_lite", size, EfficientNetLiteConfig::side_of(size))
        }
    };
    let (whose, statistics) = match (names, squeezes) {
        (Names::Torchvision, _) => ("torchvision's EfficientNet", IMAGENET),
        (Names::EfficientNetPyTorch, true) => ("those of EfficientNet-PyTorch", IMAGENET),
        (Names::EfficientNetPyTorch, false) => ("those of EfficientNet-PyTorch", TENSORFLOW),
        (Names::Timm { .. }, true) => ("timm's EfficientNet", IMAGENET),
        (Names::Timm { own: true }, false) => ("timm's EfficientNet-Lite", IMAGENET),
        (Names::Timm { own: false }, false) => ("timm's EfficientNet-Lite", HALF),
    };
    let size = (size > 0).then_some(Value::Integer(size as i64));
    Some(described(file, whose, (kind, names.layout(), size), side, statistics))
}

/// MobileNetV3, by the channels of its last convolution in each size.
fn mobilenet_v3(file: &File<'_>, names: Names, sizes: [(&str, &str, usize); 2]) -> Option<Described> {
    let (size, ..) = sizes.into_iter().find(|(_, last, channels)| file.outputs(last) == Some(*channels))?;
    let (whose, statistics) = match names {
        Names::Torchvision => ("torchvision's MobileNetV3", IMAGENET),
        Names::Timm { own: false } => ("timm's MobileNetV3", HALF),
        _ => ("timm's MobileNetV3", IMAGENET),
    };
    let size = (size != "large").then(|| Value::from(size));
    Some(described(file, whose, ("mobilenet_v3", names.layout(), size), 224, statistics))
}

fn described(
    file: &File<'_>,
    whose: &'static str,
    (kind, layout, size): (&str, &str, Option<Value>),
    side: usize,
    statistics: ([f32; 3], [f32; 3]),
) -> Described {
    let mut network = toml::Table::from_iter(
        [("kind", kind), ("layout", layout)].map(|(key, value)| (key.into(), value.into())),
    );
    network.extend(size.map(|size| ("size".to_string(), size)));
    Described { whose, network, images: file.beside.images(side, statistics) }
}
