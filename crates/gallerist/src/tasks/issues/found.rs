//! The issues with the names of images and classes.

use std::path::PathBuf;

use gallerist_data::is_training_split;
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::issues::Issues;
use serde::Serialize;

use crate::narrow::Narrowed;
use crate::plots::names_of;

/// The rows of several files.
pub(super) struct Rows {
    pub(super) files: Vec<PathBuf>,
    /// The row after the last of each file.
    pub(super) ends: Vec<usize>,
    /// The rows that are compared.
    pub(super) set: EmbeddingSet,
    /// Their rows, counted over all files.
    pub(super) numbers: Vec<usize>,
    /// Their splits; empty if they are not known.
    pub(super) splits: Vec<Option<String>>,
    /// The condition on the rows, and how many meet it.
    pub(super) narrowed: Option<Narrowed>,
}

/// An image of [`FoundIssues`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IssueImage {
    /// Its path, relative to its source; of embeddings without paths, `row N`.
    pub name: String,
    /// The file of its embedding, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The place of its source, if the embeddings are of several sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its split, if the embeddings have splits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Its label.
    pub label: Option<String>,
    /// Its row, counted over all files.
    pub row: usize,
}

/// An image whose label is likely wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IssueLabel {
    /// The image.
    pub image: IssueImage,
    /// Its label.
    pub label: String,
    /// The class of images that are nearest.
    pub suggested: String,
    /// The probability that the label is wrong.
    pub probability: f64,
    /// The mean distance to the nearest images of its label.
    pub own_distance: f64,
    /// The mean distance to the nearest images of the suggested class.
    pub suggested_distance: f64,
}

/// A group of near-duplicates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IssueGroup {
    /// The images.
    pub images: Vec<IssueImage>,
    /// The smallest distance of two of them.
    pub distance: f64,
    /// Whether they have different labels.
    pub across_classes: bool,
    /// Whether they are in different files.
    pub across_files: bool,
    /// Whether they are in different splits.
    pub across_splits: bool,
    /// Whether one is in a training split and another one in another split: a leak.
    pub leak: bool,
}

impl IssueGroup {
    /// Whether the images are in different splits or files.
    pub fn across_parts(&self) -> bool {
        self.across_splits || self.across_files
    }

    /// `, across classes and files`; empty for a group in one class, file and split.
    pub(super) fn across(&self) -> String {
        let over =
            [(self.across_classes, "classes"), (self.across_files, "files"), (self.across_splits, "splits")];
        let over: Vec<&str> = over.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        match &over[..] {
            [] => String::new(),
            [one] => format!(", across {one}"),
            [others @ .., last] => format!(", across {} and {last}", others.join(", ")),
        }
    }
}

/// An image far from all others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IssueOutlier {
    /// The image.
    pub image: IssueImage,
    /// The mean distance to its nearest neighbours.
    pub distance: f64,
    /// Its modified z-score.
    pub score: f64,
}

/// Two classes whose images are mixed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IssueClasses {
    /// The labels.
    pub labels: [String; 2],
    /// Their numbers of images.
    pub images: [usize; 2],
    /// Neighbours of the other class, divided by their expected number for one class under two names.
    pub mixing: f64,
    /// Neighbours that were counted.
    pub neighbours: usize,
    /// Neighbours of the other class.
    pub of_other_class: usize,
    /// Standard deviations by which the neighbours of the same class exceed their expected number.
    pub z_score: f64,
}

/// What [`issues`](super::issues) finds. Each list is ranked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundIssues {
    /// Images that were compared.
    pub images: usize,
    /// The condition that they meet, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed: Option<Narrowed>,
    /// Classes; 0 without labels.
    pub classes: usize,
    /// Likely wrong labels.
    pub wrong_labels: Vec<IssueLabel>,
    /// The estimated share of random labels.
    pub noise_rate: f64,
    /// Images whose labels cannot be judged: the others of their class are near-duplicates, or there are none.
    pub not_judged: usize,
    /// Groups of near-duplicates.
    pub duplicates: Vec<IssueGroup>,
    /// The largest distance of near-duplicates.
    pub duplicate_distance: f64,
    /// Outliers.
    pub outliers: Vec<IssueOutlier>,
    /// The distance above which an image is an outlier.
    pub outlier_distance: Option<f64>,
    /// Pairs of classes that should perhaps be one.
    pub same_class: Vec<IssueClasses>,
}

impl Rows {
    fn file(&self, row: usize) -> usize {
        self.ends.partition_point(|&end| end <= self.numbers[row])
    }

    fn split(&self, row: usize) -> Option<&str> {
        self.splits.get(row)?.as_deref()
    }

    /// Whether rows are in a training split, and others in other splits.
    fn is_leak(&self, rows: &[usize]) -> bool {
        let is_training = |row: usize| self.split(row).is_some_and(is_training_split);
        let is_other = |row: usize| self.split(row).is_some_and(|split| !is_training_split(split));
        rows.iter().any(|&row| is_training(row)) && rows.iter().any(|&row| is_other(row))
    }

    /// The place of a row's source, or its name, if there are several sources.
    fn source(&self, row: usize) -> Option<String> {
        let sources = self.set.sources.as_ref().filter(|sources| sources.list().len() > 1)?;
        let source = sources.get(row)?;
        Some(source.images.as_ref().unwrap_or(&source.name).clone())
    }

    /// `files` has the name of each file.
    fn image(&self, row: usize, files: &[String]) -> IssueImage {
        let number = self.numbers[row];
        IssueImage {
            name: self.set.paths.as_ref().map_or_else(|| format!("row {number}"), |paths| paths[row].clone()),
            file: (files.len() > 1).then(|| files[self.file(row)].clone()),
            source: self.source(row),
            split: self.split(row).map(str::to_owned),
            label: self.set.labels.as_ref().map(|labels| labels[row].clone()),
            row: number,
        }
    }
}

impl FoundIssues {
    /// The images of all wrong labels, groups and outliers.
    pub(super) fn images_of_issues(&self) -> impl Iterator<Item = &IssueImage> {
        let wrong = self.wrong_labels.iter().map(|wrong| &wrong.image);
        let grouped = self.duplicates.iter().flat_map(|group| &group.images);
        wrong.chain(grouped).chain(self.outliers.iter().map(|outlier| &outlier.image))
    }

    /// `names` has the name of each label.
    pub(super) fn new(issues: &Issues, rows: &Rows, names: &[String]) -> Self {
        let name = |label: u32| names[label as usize].clone();
        let labels = rows.set.labels.as_deref();
        let files = names_of(&rows.files);
        let group = |group: &gallerist_retrieval::issues::DuplicateGroup| IssueGroup {
            images: group.rows.iter().map(|&row| rows.image(row, &files)).collect(),
            distance: group.distance,
            across_classes: labels.is_some_and(|labels| differ(&group.rows, |row| &labels[row])),
            across_files: differ(&group.rows, |row| rows.file(row)),
            across_splits: differ(&group.rows, |row| rows.split(row)),
            leak: rows.is_leak(&group.rows),
        };
        FoundIssues {
            images: rows.set.embeddings.rows(),
            narrowed: rows.narrowed.clone(),
            classes: names.len(),
            wrong_labels: issues
                .wrong_labels
                .iter()
                .map(|wrong| IssueLabel {
                    image: rows.image(wrong.row, &files),
                    label: name(wrong.label),
                    suggested: name(wrong.suggested),
                    probability: wrong.probability,
                    own_distance: wrong.own_distance,
                    suggested_distance: wrong.suggested_distance,
                })
                .collect(),
            noise_rate: issues.noise_rate,
            not_judged: issues.not_judged,
            duplicates: issues.duplicates.iter().map(group).collect(),
            duplicate_distance: issues.duplicate_distance,
            outliers: issues
                .outliers
                .iter()
                .map(|o| IssueOutlier {
                    image: rows.image(o.row, &files),
                    distance: o.distance,
                    score: o.score,
                })
                .collect(),
            outlier_distance: issues.outlier_distance,
            same_class: issues
                .same_class
                .iter()
                .map(|pair| IssueClasses {
                    labels: pair.labels.map(name),
                    images: pair.images,
                    mixing: pair.mixing,
                    neighbours: pair.coincidence.neighbours,
                    of_other_class: pair.coincidence.neighbours - pair.coincidence.same,
                    z_score: pair.coincidence.score(),
                })
                .collect(),
        }
    }
}

/// Whether some row has another value than the first.
fn differ<T: PartialEq>(rows: &[usize], value: impl Fn(usize) -> T) -> bool {
    rows.iter().any(|&row| value(row) != value(rows[0]))
}
