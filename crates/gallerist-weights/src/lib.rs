//! Reading and writing files of weights.
//!
//! [`read`] reads safetensors, PyTorch's `.pth` and `.pt` (no code in them is executed) and our own
//! checkpoints. [`load`] loads their tensors into a network and reports how each was used. Names are those of
//! torchvision, of the public `bn_inception` and MXNet `mobilenetv2` weights, and our own; of EfficientNet, its Lite form and
//! MobileNetV3 also those of timm and EfficientNet-PyTorch; of vision transformers also those of timm, DINO, DINOv2, DINOv3, CLIP, SigLIP and Hugging Face;
//! a common prefix (`module.`, `backbone.`) is ignored.
//!
//! [`save_safetensors`] and [`save_onnx`] write a network for other programs; [`fetch`] downloads the public
//! weights of [`SOURCES`].
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use burn::tensor::Device;
//! use gallerist_nn::{InputShape, NetworkConfig, ResNetConfig};
//! use gallerist_weights as weights;
//!
//! let config = NetworkConfig::from(ResNetConfig::default());
//! let network = config.init(InputShape { channels: 3, height: 224, width: 224 }, 1, &Device::flex())?;
//! let (network, report) = weights::load(network, weights::read(Path::new("resnet50-11ad3fa6.pth"))?)?;
//! println!("{report}");
//! # Ok::<(), gallerist_weights::Error>(())
//! ```

#![recursion_limit = "256"]

mod described;
mod error;
mod export;
mod fetch;
mod file;
mod http;
mod identify;
mod inverted_residual;
mod names;
mod onnx;
mod pickle;
mod preprocessing;
mod pytorch;
mod sources;
mod tensors;
mod vit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::tensor::TensorData;

pub use export::{save_safetensors, to_pytorch};
pub use fetch::{Fetched, fetch};
pub use file::{CHECKPOINT_FORMAT, read};
pub use identify::{OF_SEVERAL_VARIANTS, check_layout, network_of, safetensors_header};
pub use names::Names;
pub use onnx::{OnnxOptions, save_onnx};
pub use preprocessing::Preprocessing;
pub use sources::{BN_INCEPTION, Images, SOURCES, Source};
pub use tensors::Weights;

use gallerist_nn::graph::{Op, Slot};
use gallerist_nn::{AnyEmbedder, Embedder, Network};
use gallerist_tensor::params;

pub use error::{Error, Result};
use tensors::{bad, transposed, values};

/// What became of the tensors of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Tensors of the network that have their values from the file: name in the network, name in the file.
    pub loaded: Vec<(String, String)>,
    /// Tensors of new layers that the file lacks; they keep their fresh values.
    pub missing: Vec<(String, Vec<usize>)>,
    /// Tensors of the file that the network does not take: name, shape, reason.
    pub refused: Vec<(String, Vec<usize>, &'static str)>,
    /// Biases of convolutions that were folded into the running mean of the following batch norm.
    pub folded: Vec<String>,
    /// The grids of the patches, of the file and of the network, where the positions of a vision transformer were
    /// interpolated.
    pub interpolated: Option<[[usize; 2]; 2]>,
}

impl std::fmt::Display for LoadReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tensors loaded", self.loaded.len())?;
        if !self.folded.is_empty() {
            write!(f, ", {} biases folded into running means", self.folded.len())?;
        }
        if let Some([[rows, columns], [new_rows, new_columns]]) = self.interpolated {
            write!(
                f,
                ", positions interpolated from {rows} x {columns} to {new_rows} x {new_columns} patches"
            )?;
        }
        let list = |names: &mut dyn Iterator<Item = &String>| {
            let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            match names.len() {
                0..=4 => names.join(", "),
                n => format!("{}, … and {} more", names[..3].join(", "), n - 3),
            }
        };
        if !self.missing.is_empty() {
            let names = list(&mut self.missing.iter().map(|(name, _)| name));
            write!(f, ", {} new ({names})", self.missing.len())?;
        }
        if !self.refused.is_empty() {
            let names = list(&mut self.refused.iter().map(|(name, ..)| name));
            write!(f, ", {} not taken ({names})", self.refused.len())?;
        }
        Ok(())
    }
}

/// The network with the tensors of a file.
///
/// Embedding heads, and auxiliary classifiers on the way to them, may be absent or of another shape; they
/// then keep their fresh values. A bias of a convolution that has none here is folded into the running
/// mean of the following batch norm, which gives the same outputs.
///
/// A module without a [graph](gallerist_nn::Embedder::graph) takes tensors of its own names and shapes.
///
/// # Errors
///
/// [`Error::Weights`] where a tensor of the network's body is not in the file (weights of another network), or
/// has another shape there, naming both; where a numbered block of the file has tensors besides those of the network's; and
/// for values that are not finite.
pub fn load(network: AnyEmbedder, weights: Weights) -> Result<(AnyEmbedder, LoadReport)> {
    match network.downcast::<Network>() {
        Ok(network) => load_graph(network, weights).map(|(network, report)| (network.boxed(), report)),
        Err(network) => load_by_name(network, weights),
    }
}

/// [`load`] for a module whose layers are not known.
fn load_by_name(network: AnyEmbedder, weights: Weights) -> Result<(AnyEmbedder, LoadReport)> {
    let Weights { path, mut tensors, .. } = weights;
    let (mut report, mut found) = (LoadReport::default(), BTreeMap::new());
    for (name, fresh) in params::collect(&network) {
        let wanted = fresh.shape().to_vec();
        let shape = tensors.get(&name).map(|data| data.shape().to_vec());
        match shape {
            Some(shape) if shape == wanted => {
                found.extend(tensors.remove_entry(&name));
                report.loaded.push((name.clone(), name));
                continue;
            }
            Some(_) | None if Network::may_be_new(&name) => {
                report.missing.push((name.clone(), wanted));
                if let Some(shape) = shape {
                    tensors.remove(&name);
                    report.refused.push((name.clone(), shape, "a new layer has another shape"));
                }
            }
            Some(shape) => {
                let reason = format!("`{name}` is {shape:?} in the file, the network's is {wanted:?}");
                return Err(bad(&path, reason, Some("choose the [network] that the weights are of".into())));
            }
            None => {
                let hint = "this network takes tensors of its own names only".into();
                return Err(bad(
                    &path,
                    format!("the network's tensor `{name}` is not in the file"),
                    Some(hint),
                ));
            }
        }
        // A layer that keeps its fresh values.
        found.insert(name, fresh);
    }
    let others = tensors
        .into_iter()
        .map(|(name, data)| (name, data.shape().to_vec(), "the network has no such tensor"));
    report.refused.extend(others);
    refuse_not_finite(&path, &found)?;
    let (network, mismatch) = params::load(network, found);
    assert!(mismatch.is_empty(), "names and shapes are those of the module: {mismatch}");
    Ok((network, report))
}

/// The keys of a section in one line.
fn in_a_line(section: &toml::Table) -> String {
    section.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

fn load_graph(network: Network, weights: Weights) -> Result<(Network, LoadReport)> {
    let Weights { path, mut tensors, ours, .. } = weights;
    let mut origins = BTreeMap::new();
    let transformer = network.steps.iter().any(|step| matches!(step.op, Op::Tokens(_)));
    if transformer
        && !ours
        && let Some(renamed) = vit::renamed(&tensors)
    {
        (tensors, origins) = (renamed.tensors, renamed.origins);
    }
    let images = || identify::of_file(&path).map(|known| known.size);
    let interpolated = vit::fit_positions(&network, &mut tensors, images);
    let mut report = LoadReport { interpolated, ..Default::default() };
    let keys: BTreeSet<&str> = tensors.keys().map(String::as_str).collect();
    let (naming, names) = names::in_file(&network, &keys, ours);
    let mut found: BTreeMap<String, TensorData> = BTreeMap::new();
    let mut absent: Vec<String> = Vec::new();
    let slots = network.slots();
    for (slot, name) in slots.iter().zip(&names) {
        let here = slot.path();
        let Some(data) = tensors.remove(name) else {
            match Network::may_be_new(&here) {
                true => report.missing.push((here, slot.shape.clone())),
                false => absent.push(name.clone()),
            }
            continue;
        };
        let shape = data.shape().to_vec();
        match fit(data, slot, naming) {
            Some(data) => {
                found.insert(here.clone(), data);
                report.loaded.push((here, name.clone()));
            }
            None if Network::may_be_new(&here) => {
                report.missing.push((here, slot.shape.clone()));
                report.refused.push((name.clone(), shape, "a new layer has another shape"));
            }
            None => {
                let wanted = if slot.linear && naming.transposes() {
                    slot.shape.iter().rev().copied().collect()
                } else {
                    slot.shape.clone()
                };
                let reason = format!("`{name}` is {shape:?} in the file, the network's is {wanted:?}");
                // Later tensors no longer tell the network: the ones before them are taken out.
                tensors.insert(name.clone(), TensorData::zeros::<f32, _>(shape.clone()));
                let known = || report.loaded.is_empty().then(|| known_as(&path, &mut tensors)).flatten();
                let hint = other_channels(&shape, &wanted)
                    .or_else(known)
                    .unwrap_or_else(|| "choose the [network] that the weights are of".into());
                return Err(bad(&path, reason, Some(hint)));
            }
        }
    }
    if let Some(first) = absent.first() {
        let reason = format!(
            "{} of the network's {} tensors are not in the file, the first is `{first}`",
            absent.len(),
            slots.len()
        );
        let known = known_as(&path, &mut tensors);
        let hint = match tensors.keys().next() {
            _ if 2 * absent.len() < slots.len() => {
                "the others are there: the file is incomplete, or of a variant of this network".into()
            }
            _ if let Some(known) = known => known,
            Some(key) => {
                format!(
                    "it has `{key}`, {:?}: these are weights of another network",
                    tensors[key].shape().to_vec()
                )
            }
            None => "these are weights of another network".into(),
        };
        return Err(bad(&path, reason, Some(hint)));
    }
    fold_biases(&network, &slots, &names, &mut tensors, &mut found, &mut report);
    refuse_parts(&path, &report, &tensors)?;
    let others = tensors
        .into_iter()
        .map(|(name, data)| (name, data.shape().to_vec(), "the network has no such tensor"));
    report.refused.extend(others);
    name_as_in_file(&mut report, &origins);
    drop(slots);
    refuse_not_finite(&path, &found)?;
    let (network, mismatch) = params::load(network, found);
    assert!(
        mismatch.shapes.is_empty() && mismatch.unexpected.is_empty(),
        "slots and parameters have the same names and shapes: {mismatch}"
    );
    Ok((network, report))
}

/// Refuses tensors with numbers that are not finite, by their names in the network.
fn refuse_not_finite(path: &Path, found: &BTreeMap<String, TensorData>) -> Result<()> {
    match found.iter().find(|(_, data)| !params::is_finite(data)) {
        None => Ok(()),
        Some((name, _)) => {
            let reason = format!("its values of `{name}` are not all finite");
            Err(bad(
                path,
                reason,
                Some("the training that wrote it has failed, or it is damaged: take another file".into()),
            ))
        }
    }
}

/// Refuses tensors that are left over of blocks from which others were taken: a network with these parts computes something else.
fn refuse_parts(path: &Path, report: &LoadReport, left: &BTreeMap<String, TensorData>) -> Result<()> {
    let blocks: BTreeSet<&str> = report.loaded.iter().filter_map(|(_, name)| block_of(name)).collect();
    let parts: Vec<&str> = left
        .keys()
        .map(String::as_str)
        .filter(|name| block_of(name).is_some_and(|block| blocks.contains(block)))
        .collect();
    let Some(first) = parts.first() else { return Ok(()) };
    let reason = format!(
        "its blocks have {} that the network has not, the first is `{first}`",
        if parts.len() == 1 { "a tensor".to_owned() } else { format!("{} tensors", parts.len()) }
    );
    Err(bad(
        path,
        reason,
        Some("they are of another network: choose the [network] that the weights are of".into()),
    ))
}

/// The name of the innermost numbered block that a tensor is in: `layer1.0` of `layer1.0.conv1.weight`.
fn block_of(name: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut ends = name.rmatch_indices('.').map(|(at, _)| at);
    ends.find(|&at| is_number(name[..at].rsplit('.').next().unwrap_or_default())).map(|at| &name[..at])
}

/// The hint for a convolution that differs in its input channels alone, of which the first one of a network has those of the
/// images.
fn other_channels(in_file: &[usize], wanted: &[usize]) -> Option<String> {
    let ([outputs, of_file @ (1 | 3), rest @ ..], [same, here, same_rest @ ..]) = (in_file, wanted) else {
        return None;
    };
    (rest.len() == 2 && (outputs, rest) == (same, same_rest)).then(|| {
        format!(
            "the weights are for images of {of_file} channels, and image.channels is {here}: leave it out"
        )
    })
}

/// The `[network]` of a file, in words, if it is a known one.
fn known_as(path: &Path, tensors: &mut BTreeMap<String, TensorData>) -> Option<String> {
    let weights = Weights { path: path.into(), tensors: std::mem::take(tensors), ..Default::default() };
    let known = identify::identified(&weights);
    *tensors = weights.tensors;
    let (whose, network) = known?;
    Some(format!("its names are {whose}: use the [network] {}", in_a_line(&network)))
}

/// Gives the tensors of a report the names that they have in the file.
fn name_as_in_file(report: &mut LoadReport, origins: &BTreeMap<String, Vec<String>>) {
    let loaded = std::mem::take(&mut report.loaded);
    for (here, name) in loaded {
        match origins.get(&name) {
            Some(names) => report.loaded.extend(names.iter().map(|name| (here.clone(), name.clone()))),
            None => report.loaded.push((here, name)),
        }
    }
    for (name, ..) in &mut report.refused {
        if let Some([first, ..]) = origins.get(name).map(Vec::as_slice) {
            name.clone_from(first);
        }
    }
}

/// The tensor as the network has it, where its shape can be that.
fn fit(data: TensorData, slot: &Slot<'_>, naming: Names) -> Option<TensorData> {
    let shape = data.shape().to_vec();
    if slot.linear && slot.shape.len() == 2 && naming.transposes() {
        let [outputs, inputs] = shape[..] else { return None };
        return (slot.shape == [inputs, outputs]).then(|| transposed(&data, outputs, inputs));
    }
    // Old PyTorch files have `[1, c]` for the vectors of a batch norm.
    let squeezed = shape.len() == 2 && shape[0] == 1 && slot.shape == shape[1..];
    (shape == slot.shape || squeezed).then(|| TensorData::new(values(&data).to_vec(), slot.shape.clone()))
}

/// Folds the biases that the file has and the network lacks: `(x + b) - m = x - (m - b)`.
fn fold_biases(
    network: &Network,
    slots: &[Slot<'_>],
    names: &[String],
    tensors: &mut BTreeMap<String, TensorData>,
    found: &mut BTreeMap<String, TensorData>,
    report: &mut LoadReport,
) {
    for (slot, name) in slots.iter().zip(names) {
        let Op::Conv(conv) = &network.steps[slot.step].op else { continue };
        let Some(bias) = name.strip_suffix("weight").map(|layer| format!("{layer}bias")) else { continue };
        if conv.bias.is_some() || tensors.get(&bias).is_none_or(|data| data.shape()[..] != slot.shape[..1]) {
            continue;
        }
        let behind = network.steps.iter().find(|step| step.inputs == [slot.step]);
        let Some(norm) = behind.filter(|step| matches!(step.op, Op::Norm(_))) else { continue };
        let Some(mean) = found.get_mut(&format!("{}.running_mean", norm.name)) else { continue };
        let data = tensors.remove(&bias).expect("looked at above");
        let folded = values(mean).iter().zip(values(&data)).map(|(mean, bias)| mean - bias).collect();
        *mean = TensorData::new(folded, slot.shape[..1].to_vec());
        report.folded.push(bias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_loaded_block_that_the_network_has_not_are_refused_and_other_tensors_are_not() {
        assert_eq!(block_of("layer1.0.se.fc1.bias"), Some("layer1.0"));
        assert_eq!(block_of("layer1.0.downsample.1.weight"), Some("layer1.0.downsample.1"));
        assert_eq!((block_of("fc.weight"), block_of("7")), (None, None));
        let loaded = ["layer1.0.conv1.weight", "blocks.0.attn.qkv.weight"];
        let report = LoadReport {
            loaded: loaded.map(|name| (name.to_owned(), name.to_owned())).to_vec(),
            ..Default::default()
        };
        let refused = |names: &[&str]| {
            let left = names.iter().map(|name| ((*name).to_owned(), TensorData::zeros::<f32, _>([1])));
            refuse_parts(Path::new("x.pth"), &report, &left.collect()).err().map(|error| error.to_string())
        };
        assert_eq!(
            refused(&["fc.weight", "classifier.1.bias", "blocks.7.norm1.weight", "text.blocks.0.x"]),
            None
        );
        let message = refused(&["fc.weight", "layer1.0.se.fc1.bias", "layer1.0.se.fc2.bias"]).unwrap();
        let wanted =
            "its blocks have 2 tensors that the network has not, the first is `layer1.0.se.fc1.bias`";
        assert!(message.contains(wanted), "{message}");
    }
}
