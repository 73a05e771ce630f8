//! What validation during training measures.
//!
//! Where the held-out images have cameras, they are measured as persons are: the gallery is all of them, and for
//! each identity with two cameras or more, one image per camera is a query, drawn by the seed of the validation,
//! as Market-1501's own queries are. A gallery image of the query's identity and camera is skipped. Else every
//! image is compared with the others.

use std::collections::BTreeMap;
use std::path::Path;

use gallerist_data::{ImageSet, Random};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{EvalOptions, Evaluation, Labelled, Measure, Plan};

use super::{RunConfig, measures};
use crate::Result;

/// What is measured of queries across cameras beside the metric that chooses the checkpoint.
const ACROSS_CAMERAS: [&str; 4] = ["map", "cmc@1", "cmc@5", "cmc@10"];

/// Who looks for what among the held-out images.
#[derive(Clone, Debug)]
pub(super) struct Validation {
    /// Images that are queries, ascending; `None`: every image.
    queries: Option<Vec<u32>>,
    plan: Plan,
}

impl Validation {
    pub(super) fn new(config: &RunConfig, set: &ImageSet) -> Result<Self> {
        let queries = across_cameras(set, config.validation.seed);
        let mut options = EvalOptions::recall_at(&config.evaluation.recall_at);
        options.metric = config.metric();
        if queries.is_some() {
            options.measures = measures(&ACROSS_CAMERAS.map(String::from))?;
        }
        let chooses: Measure = config.validation.metric.parse()?;
        if !options.measures.contains(&chooses) {
            options.measures.push(chooses);
        }
        Ok(Self { queries, plan: Plan { options, ..Plan::default() } })
    }

    /// Measures the embeddings of the held-out images; `items` has the index of the image of each row.
    pub(super) fn measure(&self, set: EmbeddingSet, items: &[u32]) -> Result<Evaluation> {
        let Some(queries) = &self.queries else {
            // Cameras are for queries and a gallery.
            let set = EmbeddingSet { cameras: None, ..set };
            return Ok(self.plan.run(&Labelled::from_set(set, Path::new("validation"))?, None)?.evaluation);
        };
        let gallery = Labelled::from_set(set, Path::new("validation"))?;
        let rows: Vec<usize> =
            (0..items.len()).filter(|&row| queries.binary_search(&items[row]).is_ok()).collect();
        let pick = |of: &[String]| rows.iter().map(|&row| of[row].clone()).collect::<Vec<_>>();
        let queries = Labelled {
            embeddings: gallery.embeddings.select(&rows),
            labels: pick(&gallery.labels),
            cameras: gallery.cameras.as_deref().map(pick),
        };
        Ok(self.plan.run(&queries, Some(&gallery))?.evaluation)
    }
}

/// One image of each identity and camera, of the identities that two cameras or more have seen, ascending;
/// `None` without cameras, or where no identity has two.
fn across_cameras(set: &ImageSet, seed: u64) -> Option<Vec<u32>> {
    let (labels, cameras) = (set.labels()?, set.cameras()?);
    if set.label_sets().is_some() {
        return None;
    }
    let mut seen: BTreeMap<u32, BTreeMap<&str, Vec<u32>>> = BTreeMap::new();
    for (i, (&label, camera)) in labels.iter().zip(cameras).enumerate() {
        seen.entry(label).or_default().entry(camera.as_str()).or_default().push(i as u32);
    }
    let mut queries = Vec::new();
    for (label, cameras) in seen.iter().filter(|(_, cameras)| cameras.len() > 1) {
        let mut random = Random::new(seed, "validation/queries", 0, u64::from(*label));
        queries.extend(cameras.values().map(|images| images[random.below(images.len())]));
    }
    queries.sort_unstable();
    (!queries.is_empty()).then_some(queries)
}
