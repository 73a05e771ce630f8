//! Parts of a set, and its turned copies.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use super::labels::turned_names;
use super::set::{ImageSet, Item};
use crate::error::Error;
use gallerist_util::random::Random;

/// What a split by classes keeps together.
struct Classes<'a> {
    /// For each image its class, or with several labels its group.
    groups: Cow<'a, [u32]>,
    count: usize,
}

impl ImageSet {
    /// The images at `indices`, in that order. Classes are numbered anew, so
    /// that labels have no gaps; their names stay.
    pub fn subset(&self, indices: &[u32]) -> ImageSet {
        let pick = |i: &u32| *i as usize;
        let mut new_ids = vec![u32::MAX; self.class_names.len()];
        let mut class_names = Vec::new();
        let labels = self.labels.as_ref().map(|labels| {
            for i in indices {
                new_ids[labels[pick(i)] as usize] = 0;
            }
            for (id, name) in new_ids.iter_mut().zip(&self.class_names) {
                if *id == 0 {
                    *id = class_names.len() as u32;
                    class_names.push(name.clone());
                }
            }
            indices.iter().map(|i| new_ids[labels[pick(i)] as usize]).collect()
        });
        ImageSet {
            items: indices.iter().map(|i| self.items[pick(i)].clone()).collect(),
            labels,
            class_names,
            label_sets: self.label_sets.as_ref().map(|l| Arc::new(l.subset(indices))),
            cameras: self
                .cameras
                .as_ref()
                .map(|cameras| indices.iter().map(|i| cameras[pick(i)].clone()).collect()),
            ..self.share()
        }
    }

    /// Splits the set into two without a common class: the larger part and the
    /// held-out part.
    ///
    /// The held-out part has `fraction` of the classes, rounded, but at least
    /// one, and leaves at least one. Which ones is a function of the seed and
    /// the number of classes. Both parts keep the order of the images. Images with
    /// [several labels](ImageSet::label_sets) go by groups that share no label.
    ///
    /// # Errors
    ///
    /// Without labels, with fewer than two classes, and for a fraction outside
    /// (0, 1). Rotation classes are added after splitting, never before: a
    /// character and its turned copy must not end up on both sides.
    pub fn split_classes(&self, fraction: f64, seed: u64) -> Result<(ImageSet, ImageSet), Error> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::Config {
                field: "fraction",
                wanted: "between 0 and 1",
                found: fraction.to_string(),
            });
        }
        let classes = self.classes_to_split(2)?;
        let held_out = ((classes.count as f64 * fraction).round() as usize).clamp(1, classes.count - 1);
        let order = Random::new(seed, "split classes", 0, 0).permutation(classes.count);
        Ok(self.hold_out(&classes, &order[..held_out]))
    }

    /// Divides the classes into `folds` parts without a common class, and returns the images of all parts but one, and
    /// those of part `fold`, which counts from 0.
    ///
    /// The parts have the same number of classes, or one more. They are a function of the seed and the number of
    /// classes. Otherwise as [`split_classes`](Self::split_classes).
    ///
    /// # Errors
    ///
    /// Without labels, with fewer classes than folds, with fewer than 2 folds, and where `fold` is not below `folds`.
    pub fn class_fold(&self, fold: usize, folds: usize, seed: u64) -> Result<(ImageSet, ImageSet), Error> {
        if folds < 2 || fold >= folds {
            return Err(Error::Config {
                field: "fold",
                wanted: "one of 2 or more folds",
                found: format!("fold {} of {folds}", fold + 1),
            });
        }
        let classes = self.classes_to_split(folds)?;
        let order = Random::new(seed, "class folds", 0, 0).permutation(classes.count);
        let start = |fold: usize| fold * classes.count / folds;
        Ok(self.hold_out(&classes, &order[start(fold)..start(fold + 1)]))
    }

    /// The class of each image, where there are at least `least`.
    fn classes_to_split(&self, least: usize) -> Result<Classes<'_>, Error> {
        let labels = self.labels().ok_or_else(|| self.no_labels("a split by classes"))?;
        let (groups, count) = match self.label_sets.as_ref().map(|l| l.groups()) {
            None => (Cow::Borrowed(labels), self.class_names.len()),
            Some(groups) => {
                let count = groups.iter().collect::<HashSet<_>>().len();
                (Cow::Owned(groups), count)
            }
        };
        if count < least || self.turned {
            return Err(Error::Selection {
                path: self.name.to_string(),
                problem: if self.turned {
                    "rotation classes cannot be split".to_owned()
                } else if self.label_sets.is_some() {
                    match count {
                        1 => "a split by classes needs images that share no label, and all are linked by labels \
                              they share"
                            .to_owned(),
                        _ => format!(
                            "a split by classes needs {least} groups of images that share no label, and there are \
                             {count}"
                        ),
                    }
                } else {
                    let are = if count == 1 { "is" } else { "are" };
                    format!("a split by classes needs {least} classes, and there {are} {count}")
                },
                hint: self.turned.then(|| "split first, then add the rotation classes".to_owned()),
            });
        }
        Ok(Classes { groups, count })
    }

    /// The images of the other classes, and those of the classes with the given ranks.
    fn hold_out(&self, classes: &Classes<'_>, ranks: &[u32]) -> (ImageSet, ImageSet) {
        // Groups of linked labels are numbered by gaps; a rank closes them.
        let mut present: Vec<u32> = classes.groups.to_vec();
        present.sort_unstable();
        present.dedup();
        let held_out: HashSet<u32> = ranks.iter().map(|&rank| present[rank as usize]).collect();
        let (mut rest, mut held) = (Vec::new(), Vec::new());
        for (i, group) in classes.groups.iter().enumerate() {
            if held_out.contains(group) { &mut held } else { &mut rest }.push(i as u32);
        }
        (self.subset(&rest), self.subset(&held))
    }

    /// The set four times over: as it is, and turned by 90, 180 and 270 degrees
    /// counter-clockwise, every turn of a class a class of its own (Santoro et
    /// al., 2016, for Omniglot).
    ///
    /// Image `i` turned by `t` quarters has index `t * len + i`, and class `c`
    /// becomes `t * classes + c`, called `name@90`, `name@180` and `name@270`.
    ///
    /// # Errors
    ///
    /// Without labels, and for a set that has rotation classes already.
    pub fn with_rotation_classes(&self) -> Result<ImageSet, Error> {
        let labels = self.labels().ok_or_else(|| self.no_labels("rotation classes"))?;
        if self.turned || self.len() > u32::MAX as usize / 4 {
            return Err(Error::Selection {
                path: self.name.to_string(),
                problem: if self.turned {
                    "it has rotation classes already".to_owned()
                } else {
                    format!("four times {} images are more than 2^32", self.len())
                },
                hint: None,
            });
        }
        let classes = self.class_names.len() as u32;
        let turns = 0..4u8;
        Ok(ImageSet {
            items: turns
                .clone()
                .flat_map(|turn| self.items.iter().map(move |item| Item { turn, ..item.clone() }))
                .collect(),
            labels: Some(
                turns.flat_map(|turn| labels.iter().map(move |l| l + u32::from(turn) * classes)).collect(),
            ),
            class_names: turned_names(&self.class_names),
            label_sets: self.label_sets.as_ref().map(|l| Arc::new(l.turned())),
            cameras: self.cameras.as_ref().map(|c| (0..4).flat_map(|_| c.iter().cloned()).collect()),
            turned: true,
            ..self.share()
        })
    }

    /// What all parts of a set have in common, without its images.
    fn share(&self) -> ImageSet {
        ImageSet {
            name: self.name.clone(),
            sources: self.sources.clone(),
            layout: self.layout,
            items: Vec::new(),
            labels: None,
            class_names: Vec::new(),
            label_sets: None,
            cameras: None,
            columns: self.columns.clone(),
            split_names: self.split_names.clone(),
            cropped: self.cropped,
            skipped: self.skipped,
            notes: self.notes.clone(),
            missing: self.missing.clone(),
            left_out: self.left_out.clone(),
            turned: self.turned,
        }
    }
}
