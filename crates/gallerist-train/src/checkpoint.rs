//! Checkpoints: one safetensors file with everything that is needed to continue a run.
//!
//! Tensors: `network.NAME`, `loss.NAME` (parameters the loss learns), `optimizer.NAME` (momentum
//! and moments), `state.NAME` (other state of the training loop). The metadata has one entry, `gallerist`, a JSON object ([`Header`]) with the step, the resolved
//! run file, the fingerprint of the model and further state of the training loop. Random numbers need no
//! state: every draw is a function of (seed, purpose, epoch, index).
//!
//! Writing is atomic: a run killed at any moment leaves the old checkpoint or the new one.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::tensor::TensorData;
use gallerist_retrieval::file::write_atomically;
use safetensors::tensor::{SafeTensors, View};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::optim::OptimizerState;
use crate::{BrokenImage, CollapseWatch, LossScale, RankWatch, SkippedSteps};
use gallerist_tensor::params;

use crate::{Error, Result};

use gallerist_weights::CHECKPOINT_FORMAT as FORMAT;

/// Everything in a checkpoint that is not a tensor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// Format and version of the file.
    pub format: String,
    /// Version of the program that wrote it.
    pub version: String,
    /// Steps done.
    pub step: usize,
    /// The resolved run file, TOML.
    pub config: String,
    /// Fingerprint of network and preprocessing ([`crate::model::Model::fingerprint`]).
    pub fingerprint: String,
    /// Channels, height and width of the network's input.
    pub input: [usize; 3],
    /// The best validation so far.
    pub best: Option<Best>,
    /// Counters of the optimiser by name.
    pub optimizer_counters: BTreeMap<String, i64>,
    /// Ranks of the optimiser's states by parameter name.
    pub optimizer_ranks: BTreeMap<String, usize>,
    /// Seconds of training so far, over all its sessions, in files of earlier versions. Now they are in `timing.json`: the
    /// checkpoints of two runs of one run file are equal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seconds: f64,
    /// The kind of device that trained: `cpu`, `cuda`, `wgpu`; empty in files of earlier versions: `cpu`.
    #[serde(default)]
    pub device: String,
    /// The loss scale, if the network computes in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// The state of the warning about lost dimensions; absent in files of earlier versions.
    #[serde(default)]
    pub rank_watch: RankWatch,
    /// The state of the warning about a collapse.
    #[serde(default)]
    pub collapse_watch: CollapseWatch,
    /// The fingerprint of the images and their labels ([`gallerist_data::DataRecord`]); empty in files of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// The images that could not be read so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<BrokenImage>,
    /// The steps that were skipped so far.
    #[serde(default, skip_serializing_if = "SkippedSteps::is_none")]
    pub skipped: SkippedSteps,
    /// SHA-256 of all tensors and of this header with 64 zeros in its place; empty in files of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
}

/// What [`Header::sha256`] is while it is computed.
const NO_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// The best validation of a run so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The metric's name, e.g. `map@r`.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// Steps done when it was measured.
    pub step: usize,
}

/// A checkpoint in memory.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// Step, run file, fingerprint, …
    pub header: Header,
    /// The network's tensors by name.
    pub network: BTreeMap<String, TensorData>,
    /// The loss's tensors by name.
    pub loss: BTreeMap<String, TensorData>,
    /// The optimiser's tensors by name.
    pub optimizer: BTreeMap<String, TensorData>,
    /// Other state of the training loop, by name: class means of the sampler, the cross-batch memory.
    pub state: BTreeMap<String, TensorData>,
}

impl Checkpoint {
    /// The first tensor with a number that is not finite.
    pub fn first_nonfinite(&self) -> Option<String> {
        let groups = self.groups();
        let all = groups.iter().flat_map(|(group, tensors)| tensors.iter().map(move |named| (group, named)));
        let found = all.into_iter().find(|(_, (_, data))| !params::is_finite(data));
        found.map(|(group, (name, _))| format!("{group}.{name}"))
    }

    fn groups(&self) -> [(&'static str, &BTreeMap<String, TensorData>); 4] {
        [
            ("network", &self.network),
            ("loss", &self.loss),
            ("optimizer", &self.optimizer),
            ("state", &self.state),
        ]
    }

    /// Writes the checkpoint. It replaces an older one only when it is completely on disk.
    ///
    /// # Errors
    ///
    /// When the directory cannot be written or is full, and when a tensor has a number that is not finite; the older file
    /// is then untouched.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(name) = self.first_nonfinite() {
            let hint = "the file has the state of the last time that it was written";
            return Err(bad(
                path,
                format!("it would have tensors that are not finite: `{name}`"),
                Some(hint),
            ));
        }
        let header = Header {
            format: FORMAT.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            sha256: NO_CHECKSUM.into(),
            ..self.header.clone()
        };
        let groups = self.groups();
        let tensors: BTreeMap<String, params::Raw> = groups
            .iter()
            .flat_map(|(group, tensors)| {
                tensors.iter().map(move |(name, data)| (format!("{group}.{name}"), params::Raw::new(data)))
            })
            .collect();
        let json = serde_json::to_string(&header).expect("a header is plain data");
        let json = json.replace(NO_CHECKSUM, &checksum(&tensors, &json));
        // One metadata entry: the map's order is not fixed, and equal checkpoints have equal bytes.
        let metadata = HashMap::from([("gallerist".to_string(), json)]);
        let bytes = safetensors::serialize(tensors, Some(metadata))
            .map_err(|e| bad(path, format!("cannot be put together: {e}"), None))?;
        write_atomically(path, |file| std::io::Write::write_all(file, &bytes))?;
        Ok(())
    }

    /// Reads a checkpoint.
    ///
    /// # Errors
    ///
    /// When the file is missing, cut short, not safetensors, not one of ours, a bit of it has changed, or a tensor has a
    /// number that is not finite.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = gallerist_retrieval::file::read_regular(path).map_err(|source| Error::Io {
            action: "read",
            path: path.into(),
            source,
        })?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|e| bad(path, format!("it is no whole safetensors file: {e}"), Some(damaged(path))))?;
        let json = metadata.metadata().as_ref().and_then(|m| m.get("gallerist"));
        let header: Header = match json {
            None => {
                return Err(bad(
                    path,
                    "it has no `gallerist` entry in its metadata".into(),
                    Some("give a checkpoint written by `gallerist train`"),
                ));
            }
            Some(json) => serde_json::from_str(json)
                .map_err(|e| bad(path, format!("its metadata cannot be read: {e}"), None))?,
        };
        if header.format != FORMAT {
            let reason = format!("its format is `{}`, this program reads `{FORMAT}`", header.format);
            return Err(bad(path, reason, Some("use the version of the program that wrote it")));
        }
        let file = SafeTensors::deserialize(&bytes).map_err(|e| bad(path, e.to_string(), None))?;
        if let Some(json) = json.filter(|_| !header.sha256.is_empty()) {
            let json = json.replace(&header.sha256, NO_CHECKSUM);
            if header.sha256 != checksum(&file.iter().collect(), &json) {
                return Err(bad(path, "its checksum does not hold".into(), Some(damaged(path))));
            }
        }
        let mut checkpoint = Checkpoint { header, ..Default::default() };
        for (name, view) in file.iter() {
            let data = params::values(name, &view).map_err(|e| bad(path, e, None))?;
            let (group, rest) = name.split_once('.').unwrap_or((name, ""));
            match group {
                "network" => checkpoint.network.insert(rest.into(), data),
                "loss" => checkpoint.loss.insert(rest.into(), data),
                "optimizer" => checkpoint.optimizer.insert(rest.into(), data),
                "state" => checkpoint.state.insert(rest.into(), data),
                _ => return Err(bad(path, format!("tensor `{name}` belongs to no known group"), None)),
            };
        }
        if let Some(name) = checkpoint.first_nonfinite() {
            return Err(bad(
                path,
                format!("it has tensors that are not finite: `{name}`"),
                Some(damaged(path)),
            ));
        }
        Ok(checkpoint)
    }

    /// The optimiser's part.
    pub fn take_optimizer(&mut self) -> OptimizerState {
        OptimizerState {
            tensors: std::mem::take(&mut self.optimizer),
            counters: self.header.optimizer_counters.clone(),
            ranks: self.header.optimizer_ranks.clone(),
        }
    }
}

fn bad(path: &Path, reason: String, hint: Option<&str>) -> Error {
    Error::Checkpoint { path: path.into(), reason, hint: hint.map(str::to_string) }
}

/// What to do about a damaged checkpoint.
fn damaged(path: &Path) -> &'static str {
    match path.file_stem().and_then(|name| name.to_str()) {
        Some("best") => "the file is damaged; use the run's other checkpoint: --checkpoint last",
        Some("last") => {
            "the file is damaged; the run's other checkpoint can be used (--checkpoint best), but the run not resumed"
        }
        _ => "the file is damaged",
    }
}

/// SHA-256, in hexadecimal, of tensors (names, shapes and values in the order of their names) and a
/// description of the processing of an image before and after them.
pub fn fingerprint(tensors: &BTreeMap<String, TensorData>, description: &str) -> String {
    let tensors = tensors.iter().map(|(name, data)| (name.as_str(), params::Raw::new(data)));
    checksum(&tensors.collect(), description)
}

/// SHA-256, in hexadecimal, of tensors as they are written (names, shapes and bytes in the order of their names) and a text.
fn checksum<N: AsRef<str>, V: View>(tensors: &BTreeMap<N, V>, text: &str) -> String {
    let mut hasher = Sha256::new();
    for (name, tensor) in tensors {
        let name = name.as_ref();
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((tensor.shape().len() as u64).to_le_bytes());
        for &side in tensor.shape() {
            hasher.update((side as u64).to_le_bytes());
        }
        hasher.update(tensor.data());
    }
    hasher.update(text);
    gallerist_util::hex::encode(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let tensor = |values: Vec<f32>| TensorData::new(values, [2, 1]);
        Checkpoint {
            header: Header {
                step: 7,
                config: "seed = 1".into(),
                optimizer_ranks: [("a".to_string(), 2)].into(),
                ..Default::default()
            },
            network: [("a".to_string(), tensor(vec![1.0, -2.5]))].into(),
            optimizer: [("a.momentum.velocity".to_string(), tensor(vec![f32::MIN_POSITIVE, 3.0]))].into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_checkpoint_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.safetensors");
        checkpoint().save(&path).unwrap();
        let back = Checkpoint::load(&path).unwrap();
        assert_eq!(back.header.step, 7);
        assert_eq!(back.network["a"], checkpoint().network["a"]);
        assert_eq!(back.optimizer["a.momentum.velocity"], checkpoint().optimizer["a.momentum.velocity"]);
        let first = std::fs::read(&path).unwrap();
        checkpoint().save(&path).unwrap();
        assert_eq!(first, std::fs::read(&path).unwrap(), "equal checkpoints have equal bytes");
    }

    #[test]
    fn numbers_that_are_not_finite_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("best.safetensors");
        let nan = TensorData::new(vec![f32::NAN, 1.0], [2, 1]);
        // A file of an earlier version has no checksum that a changed bit would break.
        let header = Header { format: FORMAT.into(), ..checkpoint().header };
        let metadata = HashMap::from([("gallerist".to_string(), serde_json::to_string(&header).unwrap())]);
        let tensors = [("loss.a".to_string(), params::Raw::new(&nan))];
        std::fs::write(&path, safetensors::serialize(tensors, Some(metadata)).unwrap()).unwrap();
        let error = Checkpoint::load(&path).unwrap_err();
        assert!(error.to_string().contains("not finite: `loss.a`"), "{error}");
        assert!(error.hint().unwrap().contains("--checkpoint last"));
    }

    #[test]
    fn a_file_of_which_a_bit_changed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last.safetensors");
        checkpoint().save(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        // A file without the key of the checksum is one of an earlier version, and its content is the same.
        let key = whole.windows(6).position(|bytes| bytes == b"sha256").unwrap();
        let is_content = |at: usize| !(key..key + 6).contains(&at) && (at < 8 || whole[at] != b' ');
        for at in (0..whole.len()).filter(|&at| is_content(at)) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(Checkpoint::load(&path).is_err(), "byte {at}, {:?}", whole[at] as char);
        }
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &changed).unwrap();
        let error = Checkpoint::load(&path).unwrap_err();
        assert!(error.to_string().contains("its checksum does not hold"), "{error}");
        assert!(error.hint().unwrap().contains("--checkpoint best"));

        // Files of earlier versions have none.
        let header = Header { format: FORMAT.into(), ..checkpoint().header };
        let metadata = HashMap::from([("gallerist".to_string(), serde_json::to_string(&header).unwrap())]);
        let old = safetensors::serialize(Vec::<(String, params::Raw<'_>)>::new(), Some(metadata)).unwrap();
        std::fs::write(&path, old).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap().header.sha256, "");
    }

    #[test]
    fn tensors_that_are_not_finite_do_not_replace_a_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.safetensors");
        checkpoint().save(&path).unwrap();
        let good = std::fs::read(&path).unwrap();
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut bad = checkpoint();
            bad.optimizer.insert("a.momentum.velocity".into(), TensorData::new(vec![0.0, value], [2, 1]));
            let error = bad.save(&path).unwrap_err().to_string();
            assert!(error.contains("not finite: `optimizer.a.momentum.velocity`"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), good);
        }
    }

    #[test]
    fn a_cut_or_foreign_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.safetensors");
        checkpoint().save(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 4, 9, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(matches!(Checkpoint::load(&path), Err(Error::Checkpoint { .. })), "cut at {cut}");
        }
        let foreign = safetensors::serialize(Vec::<(String, params::Raw<'_>)>::new(), None).unwrap();
        std::fs::write(&path, foreign).unwrap();
        assert!(Checkpoint::load(&path).unwrap_err().to_string().contains("no `gallerist` entry"));
    }

    #[test]
    fn the_fingerprint_depends_on_names_shapes_values_and_description() {
        let a = checkpoint().network;
        let mut renamed = a.clone();
        let data = renamed.remove("a").unwrap();
        renamed.insert("b".into(), data.clone());
        let reshaped = BTreeMap::from([("a".to_string(), TensorData::new(vec![1.0f32, -2.5], [1, 2]))]);
        let mut prints = vec![
            fingerprint(&a, "x"),
            fingerprint(&a, "y"),
            fingerprint(&renamed, "x"),
            fingerprint(&reshaped, "x"),
        ];
        assert_eq!(prints[0].len(), 64);
        prints.sort();
        prints.dedup();
        assert_eq!(prints.len(), 4);
    }
}
