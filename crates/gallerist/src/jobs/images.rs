//! Whether the images and the weights of a job are those of its run.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use gallerist_data::{DataRecord, ImageSet};
use gallerist_train::{RunConfig, open_test};
use gallerist_util::hex;

use super::folder::JobFolder;

/// The fingerprints of images and weights. Each is computed once: many jobs have the same.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints {
    /// By the part of a run file that names them.
    images: HashMap<String, Option<String>>,
    weights: HashMap<PathBuf, Option<String>>,
}

impl Fingerprints {
    /// A hash of the names, labels, cameras and splits of a job's images, training and test; `None` if they cannot be opened.
    pub(super) fn of_images(&mut self, config: &RunConfig) -> Option<String> {
        let data = RunConfig { data: config.data.clone(), ..RunConfig::default() };
        self.images.entry(data.to_toml()).or_insert_with(|| fingerprint(&data)).clone()
    }

    /// The SHA-256 of the weights and the model that a job starts from, a line for each; `None` if it starts from none or one
    /// cannot be read.
    pub(crate) fn of_weights(&mut self, config: &RunConfig) -> Option<String> {
        let network = &config.network;
        let mut lines = String::new();
        for (key, path) in [("weights", &network.weights), ("file", &network.file)] {
            let Some(path) = path else { continue };
            let digest = self.weights.entry(path.clone()).or_insert_with(|| digest(path)).as_ref()?;
            lines += &format!("network.{key} {digest}\n");
        }
        (!lines.is_empty()).then_some(lines)
    }

    /// Why the numbers of a run are not those of its job any more, if images or weights are not those it began with.
    pub(crate) fn change(&mut self, folder: &JobFolder, config: &RunConfig) -> Option<String> {
        let changed = if folder.has_other_images(|| self.of_images(config)) {
            "images, labels, cameras or splits have changed since this run"
        } else if folder.has_other_weights(|| self.of_weights(config)) {
            "the weights that the network starts from have changed since this run"
        } else {
            return None;
        };
        Some(format!("{changed}\nhint: {}", folder.hint_to_remove()))
    }
}

fn digest(path: &Path) -> Option<String> {
    Some(hex::sha256_of(File::open(path).ok()?).ok()?.1)
}

fn fingerprint(config: &RunConfig) -> Option<String> {
    let (train, _) = config.data.open_train().ok()?;
    let test = open_test(config).ok()?;
    let tested = test.iter().flat_map(|test| test.sets()).zip(["query", "gallery"]);
    let sets: Vec<(&str, &ImageSet)> =
        std::iter::once(("train", &train)).chain(tested.map(|(set, name)| (name, set))).collect();
    Some(DataRecord::of(&sets).fingerprint())
}
