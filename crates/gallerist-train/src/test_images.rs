//! The test images of a run.

use std::collections::{BTreeSet, HashSet};

use gallerist_data::{DataRecord, ImageSet, OpenOptions};
use gallerist_retrieval::eval::{Named, Plan, Setting, SideInfo};
use gallerist_util::text::shell_word;

use super::evaluation::published_protocol;
use super::{DataConfig, EvaluationConfig, RunConfig};
use crate::directory::RunDirectory;
use crate::{Error, Result};

/// The set of the test images in the list of a run.
pub(crate) const TEST: &str = "test";

/// Test images: one set, whose images are compared with each other, or queries and a gallery.
#[derive(Clone, Debug)]
pub struct TestImages {
    /// The queries; without a gallery, all test images.
    pub queries: ImageSet,
    /// The gallery; `None`: the queries are compared with each other.
    pub gallery: Option<ImageSet>,
    /// What differs from the test images that the run held out.
    changes: Option<String>,
}

/// The test images of a run file; `None` where it names none.
///
/// Without them, the classes that `data.test_fraction` holds out. Images of `data.test` that have the splits `query` and `gallery` (Market-1501, DukeMTMC-reID, CUHK03-NP, the two of
/// DeepFashion, and your own folders or manifests) are queries and a gallery, unless `data.test_split`
/// names another split than `test`.
///
/// # Errors
///
/// When they cannot be read.
pub fn open_test(config: &RunConfig) -> Result<Option<TestImages>> {
    Ok(open(config, None)?.map(|opened| opened.test))
}

/// The test images of a run: as [`open_test`] of its run file, but where `data.test_fraction` holds them out, they are of the
/// classes that the run has held out, also if classes were added since.
///
/// # Errors
///
/// As [`open_test`]; when none of these classes is left, and when a run of an earlier version, which did not keep their names, was
/// trained on a class that would be held out now.
pub fn open_test_of(run: &RunDirectory, config: &RunConfig) -> Result<Option<TestImages>> {
    let Some(list) = run.image_list().filter(|_| config.data.holds_out_test()) else {
        return open_test(config);
    };
    let (tested, trained) = list.split_off(TEST);
    let refused = |problem: String| Error::TestImages {
        problem,
        hint: format!(
            "restore the images of data.train, or measure others: gallerist evaluate --run {} --query IMAGES --gallery IMAGES",
            shell_word(&run.path().display().to_string())
        ),
    };
    if tested.is_empty() {
        let found = open_test(config)?;
        let trained = trained.labels();
        let now = found.iter().flat_map(|test| test.queries.class_names());
        let known: Vec<&String> = now.filter(|name| trained.contains(*name)).collect();
        return match known.first() {
            None => Ok(found),
            Some(first) => Err(refused(format!(
                "the images of data.train have changed, and data.test_fraction now holds out {} classes that the run was \
                 trained on, for example `{first}`",
                known.len()
            ))),
        };
    }
    let classes = tested.labels();
    let found = open(config, Some(&classes))?.filter(|opened| !opened.test.queries.is_empty());
    let Some(Opened { mut test, held_out }) = found else {
        return Err(refused(format!("none of the {} test classes of the run is left", classes.len())));
    };
    let changes = held_out.changes_since(&tested);
    test.changes = (!changes.is_empty()).then(|| changes.to_string());
    Ok(Some(test))
}

/// Test images, and the list of all those that `data.test_fraction` holds out; it is empty for other test images.
pub(crate) struct Opened {
    pub(crate) test: TestImages,
    pub(crate) held_out: DataRecord,
}

/// Opens the test images. `classes` are held out in place of those that `data.test_fraction` chooses.
pub(crate) fn open(config: &RunConfig, classes: Option<&BTreeSet<String>>) -> Result<Option<Opened>> {
    let data = &config.data;
    if !data.has_test() {
        return Ok(None);
    }
    let mut held_out = DataRecord::default();
    let found = if !data.test.is_empty() {
        open_one(data)?
    } else if !data.query.is_empty() {
        TestImages::new(open_side(data, "query")?, Some(open_side(data, "gallery")?))
    } else {
        // Other corrections may hold out other classes. Of known classes, the changes are named.
        if classes.is_none() {
            data.check_corrections()?;
        }
        let (_, test) = data.open_train_without(classes)?;
        let test = test.expect("the only test images left");
        held_out = DataRecord::of(&[(TEST, &test)]);
        TestImages::new(test, None)
    };
    Ok(Some(Opened { test: found.with_classes(data.max_test_classes), held_out }))
}

/// Opens `data.test`.
fn open_one(data: &DataConfig) -> Result<TestImages> {
    let options = OpenOptions { max_classes: None, ..data.test_options() };
    let whole = ImageSet::open_with(&data.test, &options)?;
    let all_test = data.test_split.as_deref().is_none_or(|split| split == "test");
    if !(all_test && whole.has_split("query") && whole.has_split("gallery")) {
        return Ok(TestImages::new(whole, None));
    }
    // Opened anew: the gallery may have more than the split `test` (DeepFashion's pictures of the shop).
    let side = |split: &str| {
        ImageSet::open_with(&data.test, &OpenOptions { split: Some(split.into()), ..options.clone() })
    };
    Ok(TestImages::new(side("query")?, Some(side("gallery")?)))
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
    fn new(queries: ImageSet, gallery: Option<ImageSet>) -> Self {
        TestImages { queries, gallery, changes: None }
    }

    /// Queries and gallery, or the one set.
    pub fn sets(&self) -> impl Iterator<Item = &ImageSet> {
        std::iter::once(&self.queries).chain(&self.gallery)
    }

    /// The images of the first `most` classes of the queries, and the images that are relevant to no query; 0: all.
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
        TestImages { queries: self.queries.subset(&kept), gallery, changes: self.changes }
    }

    /// The plan of `evaluation` for these images, by the protocol of their data set where it names none.
    ///
    /// # Errors
    ///
    /// [`Error::Retrieval`] for an unknown metric or protocol; as for [`check`](Self::check).
    pub fn plan(&self, evaluation: &EvaluationConfig) -> Result<Plan> {
        let protocol = |set: &ImageSet| set.layout().and_then(published_protocol);
        let of_gallery = self.gallery.as_ref().and_then(protocol);
        let mut plan = evaluation.plan_for(of_gallery.filter(|_| of_gallery == protocol(&self.queries)))?;
        plan.ignore_unusable_cameras(self.sides_info());
        self.check(&plan)?;
        Ok(plan)
    }

    /// Whether a plan can be run on these images, before they are embedded.
    ///
    /// # Errors
    ///
    /// [`Error::Retrieval`] for a protocol of queries and a gallery where there is one set, and the other way round,
    /// for a protocol of cameras where there are none, for what needs one set or one label per image, and for a threshold,
    /// open-set identification or few-shot episodes for which there are too few classes or images;
    /// [`Error::Data`] for images without labels.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        if let Some(set) = self.sets().find(|set| set.labels().is_none()) {
            return Err(
                gallerist_data::Error::NoLabels { purpose: "evaluation", path: set.name().into() }.into()
            );
        }
        let (queries, gallery) = self.sides_info();
        plan.fits(queries, gallery).map_err(|error| -> Error { match (error, plan.protocol) {
            (gallerist_retrieval::Error::Protocol { what, problem, .. }, Some(protocol)) if what.contains(protocol.name) => {
                let hint = match protocol.setting {
                    Setting::EveryImage => "leave the protocol out: queries and a gallery are measured as such",
                    _ if self.gallery.is_some() => {
                        "give manifests with a column `camera` (path,label,camera), or leave the protocol out"
                    }
                    _ => {
                        "name the images in data.query and data.gallery, or in data.test a set with the splits \
                         `query` and `gallery`"
                    }
                };
                gallerist_retrieval::Error::Protocol { what, problem, hint: Some(hint.into()) }.into()
            }
            (gallerist_retrieval::Error::Protocol { what, problem, .. }, _) => {
                let hint = Some("leave it out, or give other images".into());
                gallerist_retrieval::Error::Protocol { what, problem, hint }.into()
            }
            (other, _) => other.into(),
        }})?;
        self.check_classes(plan)
    }

    /// Whether there are enough classes and images for what is measured in addition to the metrics.
    fn check_classes(&self, plan: &Plan) -> Result<()> {
        if plan.threshold.is_none() && plan.open_set.is_none() && plan.few_shot.is_none() {
            return Ok(());
        }
        let names = |set: &ImageSet| -> Vec<String> {
            let labels = set.labels().unwrap_or_default();
            labels.iter().map(|&label| set.class_names()[label as usize].clone()).collect()
        };
        let (of_queries, of_gallery) = (names(&self.queries), self.gallery.as_ref().map(names));
        let queries = Named { labels: &of_queries, cameras: self.queries.cameras() };
        let gallery = self.gallery.as_ref().zip(of_gallery.as_deref());
        let gallery = gallery.map(|(set, labels)| Named { labels, cameras: set.cameras() });
        let rules = plan.rules(queries, gallery)?;
        let rows = rules.classes();
        let checks = [
            ("threshold", plan.threshold.map(|options| options.check_rows(&rows))),
            ("open_set", plan.open_set.as_ref().map(|options| options.check_rows(&rows))),
            ("few_shot", plan.few_shot.map(|options| options.check_rows(&rows))),
        ];
        for (key, checked) in checks {
            let Some(Err(error)) = checked else { continue };
            let gallery_of = self.gallery.as_ref().map_or(String::new(), |gallery| {
                format!(
                    ", and a gallery of {} images of {} classes",
                    gallery.len(),
                    gallery.class_names().len()
                )
            });
            let hint = format!(
                "there are {} test images of {} classes{gallery_of}: give more (data.test, data.test_fraction, \
                 data.max_test_classes), or change or leave out evaluation.{key}",
                self.queries.len(),
                self.queries.class_names().len(),
            );
            return Err(match error {
                gallerist_retrieval::Error::Protocol { what, problem, .. } => {
                    gallerist_retrieval::Error::Protocol { what, problem, hint: Some(hint) }
                }
                other => other,
            }
            .into());
        }
        Ok(())
    }

    fn sides_info(&self) -> (SideInfo, Option<SideInfo>) {
        let info = |set: &ImageSet| SideInfo {
            cameras: set.cameras().is_some(),
            label_sets: set.label_sets().is_some(),
        };
        (info(&self.queries), self.gallery.as_ref().map(info))
    }

    /// What the user should know about the images: those that have changed since the run began, queries that are in the gallery,
    /// too, and a protocol that does not hold because one side's data set has another.
    pub fn notes(&self, evaluation: &EvaluationConfig) -> Vec<String> {
        let changes = |changes| format!("the test images have changed since the run began: {changes}");
        let mut notes: Vec<String> = self.changes.as_ref().map(changes).into_iter().collect();
        let Some(gallery) = &self.gallery else { return notes };
        let shared = self.shared(gallery);
        if shared > 0 {
            notes.push(format!(
                "{shared} of {} queries are images of the gallery, too, and find themselves; other splits \
                 (data.query_split, data.gallery_split) keep them apart",
                self.queries.len()
            ));
        }
        let of = |set: &ImageSet| set.layout().and_then(published_protocol);
        if evaluation.protocol.is_none() && of(&self.queries) != of(gallery) {
            let named = |set| of(set).map_or("none".to_owned(), |name| format!("`{name}`"));
            notes.push(format!(
                "the queries' data set has the protocol {}, the gallery's {}; they are compared by none \
                 (evaluation.protocol names one)",
                named(&self.queries),
                named(gallery)
            ));
        }
        notes
    }

    /// The number of queries that are images of the gallery, too.
    fn shared(&self, gallery: &ImageSet) -> usize {
        // Where cameras count, an image of the query's own camera is skipped, and so is the query itself.
        if self.sets().all(|set| set.cameras().is_some()) {
            return 0;
        }
        let there: HashSet<String> = (0..gallery.len()).map(|i| gallery.location(i)).collect();
        (0..self.queries.len()).filter(|&i| there.contains(&self.queries.location(i))).count()
    }
}
