//! The network and the preprocessing of a file of a vision transformer.

use gallerist_nn::VitSize;
use toml::Value;

use super::names::{Family, Renamed, renamed};
use super::positions::square_root;
use crate::described::{Beside, Described, HALF, IMAGENET};
use crate::tensors::Weights;

const CLIP: ([f32; 3], [f32; 3]) =
    ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);

/// The side of images for DINOv2, whose positions are for 518: that of its own evaluation. For DINOv3, which is for any size,
/// that of Hugging Face's preprocessing.
const DINO_SIDE: usize = 224;

/// The network and the preprocessing, by the names and shapes of the tensors, and by the `config.json` or
/// `preprocessor_config.json` in the folder of the file, with which timm and Hugging Face publish weights.
pub(crate) fn describe(weights: &Weights) -> Option<Described> {
    let renamed = renamed(&weights.tensors)?;
    let beside = Beside::read(&weights.path);
    let mut network = network(&renamed)?;
    let shape = |name: &str| renamed.tensors.get(name).map(|data| data.shape().to_vec());
    let has = |name: &str| renamed.tensors.contains_key(name);
    let pre_norm = has("norm_pre.weight");
    let pooled = has("attn_pool.latent");
    let activation = beside.activation.or(match renamed.family {
        Family::OpenAiClip => Some("quick_gelu"),
        Family::HuggingFaceClip if pooled => Some("gelu_tanh"),
        Family::HuggingFaceClip => Some("quick_gelu"),
        _ => None,
    });
    if let Some(activation) = activation.filter(|activation| *activation != "gelu") {
        network.insert("activation".into(), activation.into());
    }
    let (whose, statistics) = match renamed.family {
        Family::OpenAiClip => ("those of CLIP", CLIP),
        Family::HuggingFaceClip if pooled => ("those of SigLIP (Hugging Face)", HALF),
        Family::HuggingFaceClip => ("those of CLIP (Hugging Face)", CLIP),
        Family::Torchvision => ("torchvision's vision transformers", IMAGENET),
        Family::HuggingFace if has("blocks.0.ls1.gamma") => ("those of DINOv2 (Hugging Face)", IMAGENET),
        Family::HuggingFace => ("those of Hugging Face's ViT", HALF),
        Family::Timm if pre_norm => ("timm's CLIP", CLIP),
        Family::Timm if pooled => ("timm's SigLIP", HALF),
        Family::Timm if has("blocks.0.ls1.gamma") => ("those of DINOv2", IMAGENET),
        // timm's classifiers are normalised so; DINO and other self-supervised weights have no classifier.
        Family::Timm if has("head.weight") => ("timm's vision transformers", HALF),
        Family::Timm => ("those of DINO", IMAGENET),
        Family::DinoV3 => ("those of DINOv3", IMAGENET),
        Family::HuggingFaceDinoV3 => ("those of DINOv3 (Hugging Face)", IMAGENET),
    };
    let patch = *shape("patch_embed.proj.weight")?.last()?;
    let trained = shape("pos_embed").and_then(|positions| {
        let [_, positions, _] = positions[..] else { return None };
        let class = has("cls_token") && square_root(positions).is_none();
        square_root(positions.checked_sub(class.into())?)?.checked_mul(patch)
    });
    let side = match trained {
        Some(side) if side != 518 => side,
        _ => DINO_SIDE / patch * patch,
    };
    Some(Described { whose, network, images: beside.images(side, statistics) })
}

/// `[network]` by the shapes of the tensors.
fn network(renamed: &Renamed) -> Option<toml::Table> {
    let shape = |name: &str| renamed.tensors.get(name).map(|data| data.shape().to_vec());
    let has = |name: &str| renamed.tensors.contains_key(name);
    let [width, _, patch, _] = shape("patch_embed.proj.weight")?[..] else { return None };
    if width == 0 || patch == 0 {
        return None;
    }
    let depth = (0..).take_while(|i| has(&format!("blocks.{i}.norm1.weight"))).count();
    let mut table = toml::Table::new();
    let mut set = |key: &str, value: Value| table.insert(key.into(), value);
    let number = |number: usize| Value::Integer(number as i64);
    set("kind", "vit".into());
    match VitSize::of_width(width) {
        Some(size) => {
            set("size", size.name().into());
            if depth != size.depth() {
                set("depth", number(depth));
            }
        }
        None => {
            set("width", number(width));
            set("depth", number(depth));
        }
    }
    set("patch", number(patch));
    let inner = *shape("blocks.0.mlp.fc2.weight")?.last()?;
    if inner != 4 * width {
        set("mlp_ratio", Value::Float(inner as f64 / width as f64));
    }
    if *shape("blocks.0.mlp.fc1.weight")?.first()? == 2 * inner {
        set("gated_mlp", true.into());
    }
    if !has("cls_token") {
        set("class_token", false.into());
    }
    if let Some([_, registers, _]) = shape("reg_token").as_deref() {
        set("registers", number(*registers));
    }
    if renamed.family.is_rotary() {
        set("positions", "rotary".into());
        set("key_bias", false.into());
        set("norm_epsilon", Value::Float(1e-5));
    }
    if has("blocks.0.ls1.gamma") {
        set("layer_scale", true.into());
    }
    if has("norm_pre.weight") {
        set("pre_norm", true.into());
        set("norm_epsilon", Value::Float(1e-5));
    }
    if has("attn_pool.latent") {
        set("output", "attention".into());
    } else if !has("cls_token") {
        set("output", "mean".into());
    }
    if let Some([projection, _]) = shape("proj.weight").as_deref() {
        set("projection", number(*projection));
    }
    Some(table)
}
