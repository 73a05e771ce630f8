//! Whether the images of a job are those of its run.

use std::collections::HashMap;

use gallerist_data::{DataRecord, ImageSet};
use gallerist_train::{RunConfig, open_test};

/// The fingerprints of images, by the part of a run file that names them: many jobs have the same.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(HashMap<String, Option<String>>);

impl Fingerprints {
    /// A hash of the names, labels, cameras and splits of a job's images, training and test; `None` if they cannot be opened.
    pub(super) fn of(&mut self, config: &RunConfig) -> Option<String> {
        let data = RunConfig { data: config.data.clone(), ..RunConfig::default() };
        self.0.entry(data.to_toml()).or_insert_with(|| fingerprint(&data)).clone()
    }
}

fn fingerprint(config: &RunConfig) -> Option<String> {
    let (train, _) = config.data.open_train().ok()?;
    let test = open_test(config).ok()?;
    let tested = test.iter().flat_map(|test| test.sets()).zip(["query", "gallery"]);
    let sets: Vec<(&str, &ImageSet)> =
        std::iter::once(("train", &train)).chain(tested.map(|(set, name)| (name, set))).collect();
    Some(DataRecord::of(&sets).fingerprint())
}
