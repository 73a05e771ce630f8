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

/// The metrics of queries across cameras, in addition to the one that chooses the checkpoint.
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

#[cfg(test)]
mod tests {
    use gallerist_retrieval::Matrix;

    use super::*;

    /// A manifest of images by label and camera; the files are empty.
    fn set(images: &[(&str, &str)]) -> (tempfile::TempDir, ImageSet) {
        let folder = tempfile::tempdir().unwrap();
        let mut list = "path,label,camera\n".to_owned();
        for (i, (label, camera)) in images.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{i}.png")), "").unwrap();
            list += &format!("{i}.png,{label},{camera}\n");
        }
        std::fs::write(folder.path().join("list.csv"), list).unwrap();
        let set = ImageSet::open(folder.path().join("list.csv")).unwrap();
        (folder, set)
    }

    #[test]
    fn one_image_of_each_identity_and_camera_is_a_query_where_two_cameras_saw_it() {
        let images = [("a", "1"), ("b", "1"), ("a", "1"), ("a", "2"), ("b", "1"), ("c", "3"), ("c", "1")];
        let (_folder, set) = set(&images);
        for seed in 0..8 {
            let queries = across_cameras(&set, seed).unwrap();
            let of: Vec<_> = queries.iter().map(|&i| images[i as usize]).collect();
            // b was seen by one camera: no image could be found across cameras.
            assert_eq!(of, [("a", "1"), ("a", "2"), ("c", "3"), ("c", "1")]);
            assert_eq!(across_cameras(&set, seed).unwrap(), queries, "the seed decides");
        }
        let drawn: std::collections::BTreeSet<u32> =
            (0..64).map(|seed| across_cameras(&set, seed).unwrap()[0]).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [0, 2], "every image may be drawn");
    }

    #[test]
    fn without_two_cameras_or_with_several_labels_every_image_is_a_query() {
        let (_folder, alone) = set(&[("a", "1"), ("a", "1"), ("b", "2"), ("b", "2")]);
        assert_eq!(across_cameras(&alone, 0), None);
        let (_folder, sets) = set(&[("a|b", "1"), ("a", "2"), ("b", "2")]);
        assert_eq!(across_cameras(&sets, 0), None);
    }

    #[test]
    fn an_image_of_the_querys_own_camera_is_neither_right_nor_wrong() {
        // The images of camera 2 are swapped: across cameras every first result is wrong, within a
        // camera every one is right. The third image could not be read and has no row.
        let images = [("a", "1"), ("a", "1"), ("x", "9"), ("a", "2"), ("b", "1"), ("b", "2")];
        let (_folder, set) = set(&images);
        let items = [0, 1, 3, 4, 5];
        let rows = Matrix::new(5, 2, vec![1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 1.1, 1.0, 0.2]).unwrap();
        let of = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
            Some(items.iter().map(|&i| pick(&images[i as usize]).to_owned()).collect())
        };
        let embedded =
            EmbeddingSet { labels: of(|image| image.0), cameras: of(|image| image.1), ..rows.into() };
        let text = "[validation]\nmetric = \"map_trapezoid\"";
        let config = RunConfig::parse(text, "a test", &[]).unwrap();
        let found = Validation::new(&config, &set).unwrap().measure(embedded, &items).unwrap();
        assert_eq!((found.queries, found.gallery), (4, 5));
        assert_eq!(found.protocol, "queries against the other cameras' images");
        let names: Vec<_> = found.metrics.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["map", "cmc@1", "cmc@5", "cmc@10", "map_trapezoid"]);
        assert_eq!(found.metrics["cmc@1"], 0.0);
        assert_eq!(found.metrics["cmc@5"], 1.0);
    }
}
