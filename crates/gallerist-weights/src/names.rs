//! How the tensors of a network are called in files.

use std::collections::BTreeSet;

use gallerist_nn::Network;
use gallerist_nn::graph::Slot;

/// A program's way of naming tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// `layer1.0.bn1.weight`; linear weights are `[outputs, inputs]`.
    PyTorch,
    /// `mobilenetv20_features_linearbottleneck0_batchnorm1_gamma`; linear weights are `[outputs, inputs]`.
    MxNet,
    /// `layer1.0.bn1.gamma`; linear weights are `[inputs, outputs]`. In checkpoints.
    Gallerist,
}

impl Names {
    /// The tensor's name, without what all names of a file may begin with.
    pub(crate) fn of(self, slot: &Slot<'_>) -> String {
        let field = match (self, slot.field) {
            (Names::PyTorch, "gamma") if slot.norm => "weight",
            (Names::PyTorch, "beta") if slot.norm => "bias",
            (_, field) => field,
        };
        match self {
            // Tokens and positions are at the top.
            Names::PyTorch | Names::Gallerist if slot.layer.is_empty() => field.into(),
            Names::PyTorch | Names::Gallerist => format!("{}.{field}", slot.layer),
            Names::MxNet => format!("{}_{field}", slot.layer.replace('.', "_")),
        }
    }

    /// Whether linear weights are `[outputs, inputs]`.
    pub(crate) fn transposes(self) -> bool {
        self != Names::Gallerist
    }
}

/// What all names of a file begin with (`module.`, `backbone.`, `mobilenetv20_features_`), by the name
/// of the network's first tensor: the shortest name that ends so has the least before it.
fn prefix<'a>(keys: &BTreeSet<&'a str>, first: &str) -> &'a str {
    let whole = |before: &str| before.is_empty() || before.ends_with(['.', '_']);
    let candidates = keys.iter().filter_map(|key| key.strip_suffix(first)).filter(|before| whole(before));
    candidates.min_by_key(|before| before.len()).unwrap_or("")
}

/// The names in a file of a network's tensors, one per slot: by the way of naming that finds most of
/// them there.
pub(crate) fn in_file(network: &Network, keys: &BTreeSet<&str>, ours: bool) -> (Names, Vec<String>) {
    let slots = network.slots();
    let all = |names: Names| {
        let first = slots.first().map_or(String::new(), |slot| names.of(slot));
        let prefix = prefix(keys, &first);
        let all: Vec<String> = slots.iter().map(|slot| format!("{prefix}{}", names.of(slot))).collect();
        (names, all)
    };
    if ours {
        return all(Names::Gallerist);
    }
    let found = |all: &[String]| all.iter().filter(|name| keys.contains(name.as_str())).count();
    let [pytorch, mxnet] = [all(Names::PyTorch), all(Names::MxNet)];
    if found(&mxnet.1) > found(&pytorch.1) { mxnet } else { pytorch }
}
