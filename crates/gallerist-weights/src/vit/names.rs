//! The tensors of a vision transformer by timm's names.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use gallerist_nn::Network;
use gallerist_nn::graph::{FixedKind, Op};

use crate::tensors::{transposed, values};

/// The programs whose names are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// timm, DINO and DINOv2 as their authors publish them.
    Timm,
    /// `vit_b_16` and others.
    Torchvision,
    /// OpenAI's CLIP and open_clip.
    OpenAiClip,
    /// Hugging Face's CLIP and SigLIP (`CLIPVisionModel`, `SiglipVisionModel`).
    HuggingFaceClip,
    /// Hugging Face's ViT and DINOv2 (`ViTModel`, `Dinov2Model`).
    HuggingFace,
    /// DINOv3 as its authors publish it, and timm's (`vit_small_patch16_dinov3`).
    DinoV3,
    /// Hugging Face's DINOv3 (`DINOv3ViTModel`).
    HuggingFaceDinoV3,
}

impl Family {
    /// Whether the attention has rotary positions, and no bias of keys.
    pub(crate) fn is_rotary(self) -> bool {
        matches!(self, Family::DinoV3 | Family::HuggingFaceDinoV3)
    }
}

/// The tensors of a file by timm's names.
#[derive(Clone, Debug)]
pub(crate) struct Renamed {
    pub(crate) family: Family,
    pub(crate) tensors: BTreeMap<String, TensorData>,
    /// The names in the file of the tensors that have another name here.
    pub(crate) origins: BTreeMap<String, Vec<String>>,
}

/// What a tensor of a file becomes.
enum Target {
    /// This tensor.
    Whole(String),
    /// Its transpose.
    Transposed(String),
    /// This part of several, one below the other: of three for queries, keys, values; of two for the gate of an MLP and what it
    /// is the gate of.
    Part { of: String, place: usize, parts: usize },
    /// Its first third, and the other two: queries, and keys with values.
    Query { query: String, others: String },
    /// A constant that the network has without the file.
    Known,
}

/// The tensors by timm's names; `None` where they are of no vision transformer. Tensors that belong to something else
/// keep their names.
pub(crate) fn renamed(tensors: &BTreeMap<String, TensorData>) -> Option<Renamed> {
    let (family, prefix) = family(tensors)?;
    let has = |name: &str| tensors.contains_key(&format!("{prefix}{name}"));
    // timm's CLIP has the projection as a classifier without a bias, or with one of zeros.
    let has_bias = tensors
        .get(&format!("{prefix}head.bias"))
        .is_some_and(|bias| values(bias).iter().any(|value| *value != 0.0));
    let clip_of_timm = has("norm_pre.weight") && !has("proj.weight") && !has_bias;
    let gated = tensors.keys().any(|key| key.ends_with(".mlp.gate_proj.weight"));
    let mut out = BTreeMap::new();
    let mut origins: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut collected: BTreeMap<(String, usize), Vec<Option<&TensorData>>> = BTreeMap::new();
    for (key, data) in tensors {
        let target = match key.strip_prefix(prefix.as_str()) {
            // A number is no part of a transformer.
            _ if data.shape().is_empty() => None,
            Some(rest) => family.target(rest, clip_of_timm, gated),
            // Hugging Face's projection is beside the tower.
            None if family == Family::HuggingFaceClip && key.ends_with("visual_projection.weight") => {
                Some(Target::Whole("proj.weight".into()))
            }
            None => None,
        };
        let mut put = |name: String, data: TensorData| {
            origins.entry(name.clone()).or_default().push(key.clone());
            out.insert(name, data);
        };
        match target {
            None => put(key.clone(), data.clone()),
            Some(Target::Whole(name)) => {
                let data = with_sides(&name, data);
                put(name, data);
            }
            Some(Target::Transposed(name)) => match data.shape()[..] {
                [rows, columns] => put(name, transposed(data, rows, columns)),
                _ => put(name, data.clone()),
            },
            Some(Target::Query { query, others }) => {
                let first = data.shape()[0] / 3;
                put(query, rows(data, 0, first));
                put(others, rows(data, first, data.shape()[0]));
            }
            Some(Target::Known) => {}
            Some(Target::Part { of, place, parts }) => {
                origins.entry(of.clone()).or_default().push(key.clone());
                collected.entry((of, parts)).or_insert_with(|| vec![None; parts])[place] = Some(data);
            }
        }
    }
    for ((name, _), parts) in collected {
        match (parts.iter().copied().collect::<Option<Vec<_>>>(), &parts[..]) {
            (Some(parts), _) => {
                out.insert(name, below(&parts));
            }
            (None, [Some(query), None, Some(value)]) if family.is_rotary() => {
                let zeros = TensorData::zeros::<f32, _>(query.shape().to_vec());
                out.insert(name, below(&[query, &zeros, value]));
            }
            // An incomplete file: the network misses the tensor, the parts are not taken.
            _ => {
                let keys = origins.remove(&name).unwrap_or_default();
                out.extend(keys.into_iter().map(|key| (key.clone(), tensors[&key].clone())));
            }
        }
    }
    if family.is_rotary() {
        for name in complete_biases(&mut out) {
            origins.entry(name).or_default();
        }
    }
    Some(Renamed { family, tensors: out, origins })
}

/// Makes the bias of keys 0, which the authors' files mask, and every bias of queries, keys and values 0 in files without.
/// Returns the names of these biases.
fn complete_biases(tensors: &mut BTreeMap<String, TensorData>) -> Vec<String> {
    let weights: Vec<String> =
        tensors.keys().filter(|key| key.ends_with(".attn.qkv.weight")).cloned().collect();
    let biases = weights.into_iter().map(|weight| {
        let outputs = tensors[&weight].shape().first().copied().unwrap_or(0);
        let name = weight.replace(".weight", ".bias");
        let mut bias = tensors.get(&name).map_or_else(|| vec![0.0; outputs], |data| values(data).to_vec());
        if let Some(of_keys) = bias.get_mut(outputs / 3..outputs / 3 * 2) {
            of_keys.fill(0.0);
        }
        let count = bias.len();
        tensors.insert(name.clone(), TensorData::new(bias, [count]));
        name
    });
    biases.collect()
}

/// Gives tensors with our names, which are timm's of other transformers, those of timm's DINOv3 if `network` is one.
pub(crate) fn rename_for_timm(network: &Network, tensors: &mut BTreeMap<String, TensorData>) {
    let rotary = |op: &Op| matches!(op, Op::SelfAttention(attention) if attention.rotary.is_some());
    if !network.steps.iter().any(|step| rotary(&step.op)) || !is_dino_v3(tensors) {
        return;
    }
    let gated = network
        .steps
        .iter()
        .any(|step| matches!(&step.op, Op::Fixed(fixed) if fixed.kind == FixedKind::GatedSilu));
    for name in tensors.keys().cloned().collect::<Vec<_>>() {
        let data = tensors.remove(&name).expect("a key of the map");
        if let Some(layer) = name.strip_suffix(".qkv.bias") {
            let outputs = data.shape()[0];
            tensors.insert(format!("{layer}{QUERY_BIAS}"), rows(&data, 0, outputs / 3));
            tensors.insert(format!("{layer}{VALUE_BIAS}"), rows(&data, outputs / 3 * 2, outputs));
        } else if let Some((mlp, field)) = name.split_once(GATED_LAYER).filter(|_| gated) {
            let outputs = data.shape()[0];
            let halves = [rows(&data, 0, outputs / 2), rows(&data, outputs / 2, outputs)];
            for (part, half) in GATED_LAYERS_OF_TIMM.into_iter().zip(halves) {
                tensors.insert(format!("{mlp}{part}{field}"), half);
            }
        } else {
            let of_timm = DINO_V3_OF_TIMM.iter().fold(name, |name, (timm, ours)| name.replace(ours, timm));
            tensors.insert(of_timm, data);
        }
    }
}

/// Whether a transformer with rotary positions, whose tensors have our names, has the parts of DINOv3. Others have no names of timm, and
/// would not be recognized by those of DINOv3.
fn is_dino_v3(tensors: &BTreeMap<String, TensorData>) -> bool {
    let no_bias_of_keys = |data: &TensorData| {
        let third = data.shape()[0] / 3;
        values(data)[third..2 * third].iter().all(|&value| value == 0.0)
    };
    let mut biases = tensors.iter().filter(|(name, _)| name.ends_with(".qkv.bias"));
    ["blocks.0.ls1.gamma", "cls_token", "reg_token"].iter().all(|name| tensors.contains_key(*name))
        && biases.all(|(_, data)| no_bias_of_keys(data))
}

/// The program whose names these are, and what they begin with.
fn family(tensors: &BTreeMap<String, TensorData>) -> Option<(Family, String)> {
    // The weight of the patches, other tensors that the file has, and those that it has not.
    type Anchor = (&'static str, &'static [&'static str], &'static [&'static str], Family);
    const ANCHORS: [Anchor; 9] = [
        ("patch_embed.proj.weight", &["pos_embed"], &[], Family::Timm),
        ("conv_proj.weight", &["encoder.pos_embedding"], &[], Family::Torchvision),
        ("conv1.weight", &["positional_embedding"], &[], Family::OpenAiClip),
        (
            "embeddings.patch_embedding.weight",
            &["embeddings.position_embedding.weight"],
            &[],
            Family::HuggingFaceClip,
        ),
        (
            "embeddings.patch_embeddings.projection.weight",
            &["embeddings.position_embeddings"],
            &[],
            Family::HuggingFace,
        ),
        ("trunk.patch_embed.proj.weight", &["trunk.pos_embed"], &[], Family::Timm),
        ("patch_embed.proj.weight", &["storage_tokens"], &[], Family::DinoV3),
        // timm's other transformers with rotary positions have no scales, no class token or a bias of keys.
        (
            "patch_embed.proj.weight",
            &["blocks.0.gamma_1", "cls_token", "reg_token"],
            &["blocks.0.attn.qkv.bias", "pos_embed"],
            Family::DinoV3,
        ),
        (
            "embeddings.patch_embeddings.weight",
            &["embeddings.register_tokens"],
            &[],
            Family::HuggingFaceDinoV3,
        ),
    ];
    ANCHORS.into_iter().find_map(|(patches, present, absent, family)| {
        let prefixes = tensors.keys().filter_map(|key| key.strip_suffix(patches));
        let prefixes =
            prefixes.filter(|prefix| prefix.is_empty() || prefix.ends_with('.')).filter(|prefix| {
                let has = |name: &&str| tensors.contains_key(&format!("{prefix}{name}"));
                present.iter().all(has) && !absent.iter().any(has)
            });
        let prefix = prefixes.min_by_key(|prefix| prefix.len())?;
        let trunk = if patches.starts_with("trunk.") { "trunk." } else { "" };
        Some((family, format!("{prefix}{trunk}")))
    })
}

/// Parts of names, in the order in which they are replaced.
const TORCHVISION: &[(&str, &str)] = &[
    ("class_token", "cls_token"),
    ("encoder.pos_embedding", "pos_embed"),
    ("conv_proj.", "patch_embed.proj."),
    ("encoder.layers.encoder_layer_", "blocks."),
    ("encoder.ln.", "norm."),
    (".ln_1.", ".norm1."),
    (".ln_2.", ".norm2."),
    (".self_attention.in_proj_", ".attn.qkv."),
    (".self_attention.out_proj.", ".attn.proj."),
    (".mlp.linear_1.", ".mlp.fc1."),
    (".mlp.linear_2.", ".mlp.fc2."),
    (".mlp.0.", ".mlp.fc1."),
    (".mlp.3.", ".mlp.fc2."),
];

const OPENAI: &[(&str, &str)] = &[
    ("class_embedding", "cls_token"),
    ("positional_embedding", "pos_embed"),
    ("conv1.", "patch_embed.proj."),
    ("transformer.resblocks.", "blocks."),
    ("ln_pre.", "norm_pre."),
    ("ln_post.", "norm."),
    (".ln_1.", ".norm1."),
    (".ln_2.", ".norm2."),
    (".ls_1.", ".ls1."),
    (".ls_2.", ".ls2."),
    (".attn.in_proj_", ".attn.qkv."),
    (".attn.out_proj.", ".attn.proj."),
    (".mlp.c_fc.", ".mlp.fc1."),
    (".mlp.c_proj.", ".mlp.fc2."),
];

const HUGGING_FACE_CLIP: &[(&str, &str)] = &[
    ("embeddings.class_embedding", "cls_token"),
    ("embeddings.position_embedding.weight", "pos_embed"),
    ("embeddings.patch_embedding.", "patch_embed.proj."),
    ("encoder.layers.", "blocks."),
    ("pre_layrnorm.", "norm_pre."),
    ("post_layernorm.", "norm."),
    (".layer_norm1.", ".norm1."),
    (".layer_norm2.", ".norm2."),
    (".self_attn.out_proj.", ".attn.proj."),
    ("head.probe", "attn_pool.latent"),
    ("head.attention.out_proj.", "attn_pool.proj."),
    ("head.layernorm.", "attn_pool.norm."),
    ("head.mlp.", "attn_pool.mlp."),
];

const HUGGING_FACE: &[(&str, &str)] = &[
    ("embeddings.cls_token", "cls_token"),
    ("embeddings.register_tokens", "reg_token"),
    ("embeddings.position_embeddings", "pos_embed"),
    ("embeddings.patch_embeddings.projection.", "patch_embed.proj."),
    ("encoder.layer.", "blocks."),
    ("layers.", "blocks."),
    (".layernorm_before.", ".norm1."),
    (".layernorm_after.", ".norm2."),
    ("layernorm.", "norm."),
    (".attention.output.dense.", ".attn.proj."),
    (".attention.o_proj.", ".attn.proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
    (".mlp.weights_in.", ".mlp.fc1."),
    (".mlp.weights_out.", ".mlp.fc2."),
    (".layer_scale1.lambda1", ".ls1.gamma"),
    (".layer_scale2.lambda1", ".ls2.gamma"),
];

/// The gated MLPs of the authors of DINOv2 and DINOv3; [`GATED`] has the others.
const GATED_OF_AUTHORS: &[(&str, &str)] = &[(".mlp.w12.", ".mlp.fc1."), (".mlp.w3.", ".mlp.fc2.")];

const DINO_V3_OF_TIMM: &[(&str, &str)] = &[(".gamma_1", ".ls1.gamma"), (".gamma_2", ".ls2.gamma")];

/// What follows the name of the attention in timm's DINOv3.
const QUERY_BIAS: &str = ".q_bias";
const VALUE_BIAS: &str = ".v_bias";

const HUGGING_FACE_DINO_V3: &[(&str, &str)] = &[
    ("embeddings.cls_token", "cls_token"),
    ("embeddings.register_tokens", "reg_token"),
    ("embeddings.patch_embeddings.", "patch_embed.proj."),
    ("model.layer.", "blocks."),
    ("layer.", "blocks."),
    (".attention.o_proj.", ".attn.proj."),
    (".mlp.up_proj.", ".mlp.fc1."),
    (".mlp.down_proj.", ".mlp.fc2."),
    (".layer_scale1.lambda1", ".ls1.gamma"),
    (".layer_scale2.lambda1", ".ls2.gamma"),
];

/// Queries, keys and values in a file that has them apart.
const THIRDS: [(&str, usize); 9] = [
    (".self_attn.q_proj.", 0),
    (".self_attn.k_proj.", 1),
    (".self_attn.v_proj.", 2),
    (".attention.attention.query.", 0),
    (".attention.attention.key.", 1),
    (".attention.attention.value.", 2),
    (".attention.q_proj.", 0),
    (".attention.k_proj.", 1),
    (".attention.v_proj.", 2),
];

/// The gate and what it is the gate of, in a file that has them apart. `up_proj` without a `gate_proj` is a whole layer.
const GATED: [(&str, usize); 6] = [
    (".mlp.fc1_g.", 0),
    (".mlp.fc1_x.", 1),
    (".mlp.w1.", 0),
    (".mlp.w2.", 1),
    (".mlp.gate_proj.", 0),
    (".mlp.up_proj.", 1),
];

/// Both together here.
const GATED_LAYER: &str = ".mlp.fc1.";

/// Both in timm's DINOv3.
const GATED_LAYERS_OF_TIMM: [&str; 2] = [GATED[0].0, GATED[1].0];

impl Family {
    /// What the tensor `name`, without what all names begin with, becomes; `None`: nothing of the network. `gated` tells whether
    /// the file has a `gate_proj`.
    fn target(self, name: &str, clip_of_timm: bool, gated: bool) -> Option<Target> {
        let replaced = |name: &str, pairs: &[(&str, &str)]| {
            pairs.iter().fold(name.to_string(), |name, (from, to)| name.replace(from, to))
        };
        let half = GATED.into_iter().find(|(part, _)| self.is_rotary() && name.contains(part));
        if let Some((part, place)) = half.filter(|(part, _)| gated || *part != ".mlp.up_proj.") {
            let pairs = if self == Family::HuggingFaceDinoV3 { HUGGING_FACE_DINO_V3 } else { &[] };
            return Some(Target::Part {
                of: replaced(&name.replace(part, GATED_LAYER), pairs),
                place,
                parts: 2,
            });
        }
        Some(match self {
            Family::Timm => match name {
                "register_tokens" => Target::Whole("reg_token".into()),
                // timm's CLIP has the projection as its classifier.
                "head.weight" if clip_of_timm => Target::Whole("proj.weight".into()),
                _ => Target::Whole(replaced(&without_chunk(name), GATED_OF_AUTHORS)),
            },
            Family::Torchvision => Target::Whole(replaced(name, TORCHVISION)),
            Family::OpenAiClip if name == "proj" => Target::Transposed("proj.weight".into()),
            Family::OpenAiClip => Target::Whole(replaced(name, OPENAI)),
            Family::DinoV3 => match name {
                "storage_tokens" => Target::Whole("reg_token".into()),
                "rope_embed.periods" => Target::Known,
                _ if name.ends_with(".attn.qkv.bias_mask") => Target::Known,
                _ => {
                    let bias = |part| Some(format!("{}.qkv.bias", name.strip_suffix(part)?));
                    match (bias(QUERY_BIAS), bias(VALUE_BIAS)) {
                        (Some(of), _) => Target::Part { of, place: 0, parts: 3 },
                        (_, Some(of)) => Target::Part { of, place: 2, parts: 3 },
                        _ => Target::Whole(replaced(&replaced(name, DINO_V3_OF_TIMM), GATED_OF_AUTHORS)),
                    }
                }
            },
            Family::HuggingFaceClip | Family::HuggingFace | Family::HuggingFaceDinoV3 => {
                let pairs = match self {
                    Family::HuggingFace => HUGGING_FACE,
                    Family::HuggingFaceDinoV3 => HUGGING_FACE_DINO_V3,
                    _ => HUGGING_FACE_CLIP,
                };
                if let Some(field) = name.strip_prefix("head.attention.in_proj_") {
                    return Some(Target::Query {
                        query: format!("attn_pool.q.{field}"),
                        others: format!("attn_pool.kv.{field}"),
                    });
                }
                let new = replaced(name, pairs);
                match THIRDS.into_iter().find(|(part, _)| new.contains(part)) {
                    Some((part, place)) => {
                        Target::Part { of: new.replace(part, ".attn.qkv."), place, parts: 3 }
                    }
                    None => Target::Whole(new),
                }
            }
        })
    }
}

/// DINOv2's training checkpoints have the blocks in chunks: `blocks.0.3.norm1.weight` is in block 3.
fn without_chunk(name: &str) -> String {
    let chunked = name.strip_prefix("blocks.").and_then(|rest| {
        let (chunk, rest) = rest.split_once('.')?;
        let (block, _) = rest.split_once('.')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (number(chunk) && number(block)).then(|| format!("blocks.{rest}"))
    });
    chunked.unwrap_or_else(|| name.into())
}

/// Tokens and positions as `[1, count, width]`.
fn with_sides(name: &str, data: &TensorData) -> TensorData {
    let shape = match (name, &data.shape()[..]) {
        ("cls_token" | "reg_token" | "pos_embed" | "attn_pool.latent", [width]) => vec![1, 1, *width],
        ("cls_token" | "reg_token" | "pos_embed" | "attn_pool.latent", [count, width]) => {
            vec![1, *count, *width]
        }
        _ => return data.clone(),
    };
    TensorData::new(values(data).to_vec(), shape)
}

/// Some rows of a matrix, or values of a vector.
fn rows(data: &TensorData, from: usize, to: usize) -> TensorData {
    let mut shape = data.shape().to_vec();
    let row: usize = shape[1..].iter().product();
    shape[0] = to - from;
    TensorData::new(values(data)[from * row..to * row].to_vec(), shape)
}

/// Tensors of the same width one below the other.
fn below(parts: &[&TensorData]) -> TensorData {
    let mut shape = parts[0].shape().to_vec();
    shape[0] = parts.iter().map(|part| part.shape()[0]).sum();
    let all: Vec<f32> = parts.iter().flat_map(|part| values(part).iter().copied()).collect();
    if all.len() != shape.iter().product::<usize>() {
        return parts[0].clone();
    }
    TensorData::new(all, shape)
}
