//! The images that a run is measured on.

use std::collections::HashSet;

use gallerist_data::{ImageSet, OpenOptions};
use gallerist_retrieval::eval::{Known, Plan};

use super::evaluation::published_protocol;
use super::{DataConfig, EvaluationConfig, RunConfig};
use crate::Result;

/// Test images: one set, whose images are compared with each other, or queries and a gallery.
#[derive(Clone, Debug)]
pub struct TestImages {
    /// The queries; without a gallery, all test images.
    pub queries: ImageSet,
    /// What the queries are compared with; `None`: with the other queries.
    pub gallery: Option<ImageSet>,
}

/// The test images of a run file; `None` where it names none.
///
/// Images of `data.test` that have the splits `query` and `gallery` (Market-1501, DukeMTMC-reID, CUHK03-NP, the two of
/// DeepFashion, and your own folders or manifests) are queries and a gallery, unless `data.test_split`
/// names another split than `test`.
///
/// # Errors
///
/// When they cannot be read.
pub fn open_test(config: &RunConfig) -> Result<Option<TestImages>> {
    let data = &config.data;
    let found = if !data.test.is_empty() {
        open_one(data)?
    } else if !data.query.is_empty() {
        let queries = open_side(data, "query")?;
        TestImages { queries, gallery: Some(open_side(data, "gallery")?) }
    } else {
        return Ok(None);
    };
    Ok(Some(found.with_classes(data.max_test_classes)))
}

/// Opens `data.test`.
fn open_one(data: &DataConfig) -> Result<TestImages> {
    let options = OpenOptions { max_classes: None, ..data.test_options() };
    let whole = ImageSet::open_with(&data.test, &options)?;
    let all_test = data.test_split.as_deref().is_none_or(|split| split == "test");
    if !(all_test && whole.has_split("query") && whole.has_split("gallery")) {
        return Ok(TestImages { queries: whole, gallery: None });
    }
    // Opened anew: the gallery may have more than the split `test` (DeepFashion's pictures of the shop).
    let side = |split: &str| {
        ImageSet::open_with(&data.test, &OpenOptions { split: Some(split.into()), ..options.clone() })
    };
    Ok(TestImages { queries: side("query")?, gallery: Some(side("gallery")?) })
}

/// Opens `data.query` or `data.gallery`: of images with splits, the one of that name.
fn open_side(data: &DataConfig, side: &str) -> Result<ImageSet> {
    let (paths, options) = match side {
        "query" => (&data.query, data.query_options()),
        _ => (&data.gallery, data.gallery_options()),
    };
    let set = ImageSet::open_with(paths, &options)?;
    if options.split.is_some() || !set.has_split(side) {
        return Ok(set);
    }
    Ok(ImageSet::open_with(paths, &OpenOptions { split: Some(side.into()), ..options })?)
}

impl TestImages {
    /// Queries and gallery, or the one set.
    pub fn sets(&self) -> impl Iterator<Item = &ImageSet> {
        std::iter::once(&self.queries).chain(&self.gallery)
    }

    /// The images whose classes are among the first `most` of the queries, and what no query looks for; 0: all.
    fn with_classes(self, most: usize) -> Self {
        let Some(labels) =
            self.queries.labels().filter(|_| most > 0 && most < self.queries.class_names().len())
        else {
            return self;
        };
        let kept: Vec<u32> =
            (0..labels.len() as u32).filter(|&i| (labels[i as usize] as usize) < most).collect();
        let gallery = self.gallery.as_ref().map(|gallery| {
            let left_out: HashSet<&str> =
                self.queries.class_names()[most..].iter().map(String::as_str).collect();
            let names = gallery.class_names();
            let stays = |i: &u32| {
                let label = gallery.labels().map(|labels| labels[*i as usize] as usize);
                label.is_none_or(|label| !left_out.contains(names[label].as_str()))
            };
            gallery.subset(&(0..gallery.len() as u32).filter(stays).collect::<Vec<_>>())
        });
        TestImages { queries: self.queries.subset(&kept), gallery }
    }

    /// The plan of `evaluation` for these images, by the protocol of their data set where none is named.
    ///
    /// # Errors
    ///
    /// [`Error::Retrieval`] for an unknown metric or protocol, and for what cannot be measured of such images:
    /// a protocol of cameras without cameras, a protocol of queries and a gallery for one set, images without labels.
    pub fn plan(&self, evaluation: &EvaluationConfig) -> Result<Plan> {
        let protocol = |set: &ImageSet| set.layout().and_then(published_protocol);
        let published = match &self.gallery {
            Some(gallery) => protocol(gallery).filter(|name| protocol(&self.queries) == Some(name)),
            None => None,
        };
        let plan = evaluation.plan_for(published)?;
        for set in self.sets() {
            if set.labels().is_none() {
                return Err(gallerist_data::Error::NoLabels {
                    purpose: "evaluation (data.test, or data.query and data.gallery)",
                    path: set.name().into(),
                }
                .into());
            }
        }
        let one_set = self.gallery.is_none();
        let known = |set: &ImageSet| Known {
            // A set whose images are compared with each other is measured without its cameras.
            cameras: !one_set && set.cameras().is_some(),
            label_sets: set.label_sets().is_some(),
        };
        match plan.fits(known(&self.queries), self.gallery.as_ref().map(known)) {
            Ok(()) => Ok(plan),
            Err(gallerist_retrieval::Error::Protocol { what, problem, hint }) => {
                let hint = match (one_set, plan.protocol) {
                    (true, Some(_)) => Some(
                        "name the images in data.query and data.gallery, or a set with the splits `query` and `gallery` \
                         in data.test"
                            .into(),
                    ),
                    (false, Some(_)) if problem.contains("camera") => Some(
                        "give a manifest with a column `camera` (path,label,camera), or leave out evaluation.protocol"
                            .into(),
                    ),
                    (false, Some(_)) => Some("leave out evaluation.protocol, or give the images as data.test".into()),
                    (false, None) => Some("leave it out of [evaluation]".into()),
                    (true, None) => hint,
                };
                Err(gallerist_retrieval::Error::Protocol { what, problem, hint }.into())
            }
            Err(other) => Err(other.into()),
        }
    }

    /// The number of queries that are images of the gallery, too, and so find themselves.
    ///
    /// Where cameras count, an image of the query's own camera is skipped, and so is the query itself.
    pub fn shared(&self) -> usize {
        let Some(gallery) = &self.gallery else { return 0 };
        if self.sets().all(|set| set.cameras().is_some()) {
            return 0;
        }
        let there: HashSet<String> = (0..gallery.len()).map(|i| gallery.location(i)).collect();
        (0..self.queries.len()).filter(|&i| there.contains(&self.queries.location(i))).count()
    }
}
