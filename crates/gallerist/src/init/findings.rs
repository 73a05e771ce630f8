//! What is known of the images.

use std::path::PathBuf;

use gallerist_data::{DatasetLayout, ImageSet, OpenOptions, Survey, survey};
use serde::Serialize;

use crate::text::{count, grouped};
use crate::{Error, Result};

/// Images that are decoded.
const LOOKED_AT: usize = 256;

/// Where the test images come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TestPart {
    /// Other paths.
    Paths(Vec<PathBuf>),
    /// The published split of the data set.
    Published,
    /// A split by folders or by a manifest; `None`: the splits `query` and `gallery`.
    Split(Option<String>),
    /// None is there.
    Missing,
}

/// The images of a run, before it has a run file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Findings {
    /// The paths of the training images, as given.
    pub images: Vec<PathBuf>,
    /// The layout of a published data set, class folders, or a manifest.
    pub layout: Option<DatasetLayout>,
    /// The training images.
    pub training: PartFindings,
    /// The other splits, with their names.
    pub splits: Vec<(String, PartFindings)>,
    /// The look of at most 256 training images.
    pub survey: Survey,
    /// Whether images have cameras.
    pub cameras: bool,
    /// Remarks on the source, such as folders that are left out.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub(super) test: TestPart,
    /// The split that trains, where folders or a manifest have one.
    #[serde(skip)]
    pub(super) train_split: Option<String>,
    /// Whether the training images are the split `train`.
    #[serde(skip)]
    pub(super) is_split: bool,
    /// Images of each class, ascending.
    #[serde(skip)]
    pub(super) class_sizes: Vec<usize>,
}

/// The size of a part of the images.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartFindings {
    /// Images.
    pub images: usize,
    /// Classes.
    pub classes: usize,
    /// Images of the smallest, the median and the largest class.
    pub images_per_class: [usize; 3],
}

impl PartFindings {
    /// Of a set, or of one split.
    fn of(set: &ImageSet, split: Option<&str>) -> Self {
        let class_sizes = class_sizes(set, split);
        let at = |i: usize| class_sizes.get(i).copied().unwrap_or(0);
        let n = class_sizes.len();
        PartFindings {
            images: (0..set.len()).filter(|&i| is_of(set, i, split)).count(),
            classes: n,
            images_per_class: [at(0), at(n / 2), at(n.saturating_sub(1))],
        }
    }
}

impl std::fmt::Display for PartFindings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [least, median, most] = self.images_per_class;
        write!(f, "{} of {}", count(self.images, "image"), count(self.classes, "class"))?;
        match (least, most) {
            (least, most) if least == most => write!(f, ", {} each", grouped(least)),
            _ => write!(f, ", {} to {} each, median {}", grouped(least), grouped(most), grouped(median)),
        }
    }
}

/// Whether an image is of this split; `None`: of any.
fn is_of(set: &ImageSet, image: usize, split: Option<&str>) -> bool {
    split.is_none_or(|split| set.split(image) == Some(split))
}

/// Images of each class of a set, of one split or of all; ascending. Distractors and junk are no class.
fn class_sizes(set: &ImageSet, split: Option<&str>) -> Vec<usize> {
    let mut sizes = vec![0; set.class_names().len()];
    for (i, label) in set.labels().unwrap_or_default().iter().enumerate() {
        let is_class = set.layout().is_none_or(|layout| layout.is_class(&set.class_names()[*label as usize]));
        if is_class && is_of(set, i, split) {
            sizes[*label as usize] += 1;
        }
    }
    sizes.retain(|&n| n > 0);
    sizes.sort_unstable();
    sizes
}

impl Findings {
    /// Opens the images and decodes some of them.
    pub(super) fn of(images: &[PathBuf], test: &[PathBuf]) -> Result<Self> {
        let whole = ImageSet::open_with(images, &OpenOptions::default())?;
        if whole.labels().is_none() {
            return Err(Error::new(
                format!(
                    "`{}` has {} and no classes, and training needs classes",
                    whole.name(),
                    count(whole.len(), "image")
                ),
                Some(
                    "put the images of each class into a folder of their own (photos/heron/1.jpg), or write a \
                     manifest.csv with the columns path,label; a network that is trained on other images embeds and \
                     searches images without classes: gallerist embed --run DIR --images PATH --out FILE.safetensors",
                ),
            ));
        }
        let mut notes = whole.notes().to_vec();
        if !test.is_empty() {
            let test = ImageSet::open_with(test, &OpenOptions::default())?;
            notes.extend(test.notes().iter().filter(|note| !whole.notes().contains(note)).cloned());
            if test.labels().is_none() {
                return Err(Error::new(
                    format!("the test images `{}` have no classes", test.name()),
                    Some("put the images of each class into a folder of their own"),
                ));
            }
        }
        let mut names: Vec<&str> = (0..whole.len()).filter_map(|i| whole.split(i)).collect();
        names.sort_unstable();
        names.dedup();
        let has = |name: &str| names.contains(&name);
        let published = whole.layout().filter(|layout| !layout.split_names().is_empty());
        let has_train = published.map_or(has("train"), |_| whole.has_split("train"));
        let of_folders = ["test", "val", "valid", "validation"].into_iter().find(|name| has(name));
        let found = match (published, has_train) {
            (_, false) => TestPart::Missing,
            (Some(_), true) if whole.has_split("test") || has("query") && has("gallery") => {
                TestPart::Published
            }
            (Some(_), true) => TestPart::Missing,
            (None, true) if has("query") && has("gallery") => TestPart::Split(None),
            (None, true) => of_folders.map_or(TestPart::Missing, |name| TestPart::Split(Some(name.into()))),
        };
        let split = (has_train && !names.is_empty()).then(|| "train".to_owned());
        let options = OpenOptions { split, ..OpenOptions::default() };
        let training = match options.split {
            Some(_) => ImageSet::open_with(images, &options)?,
            None => whole.clone(),
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let sizes = class_sizes(&training, None);
        let part = |name: &&str| (name.to_string(), PartFindings::of(&whole, Some(name)));
        Ok(Findings {
            images: images.to_vec(),
            layout: whole.layout(),
            training: PartFindings::of(&training, None),
            splits: names.iter().map(part).collect(),
            survey: survey(&training, LOOKED_AT, threads, &|_| ()),
            cameras: whole.cameras().is_some(),
            notes,
            test: if test.is_empty() { found } else { TestPart::Paths(test.to_vec()) },
            is_split: options.split.is_some(),
            train_split: options.split.filter(|_| published.is_none()),
            class_sizes: sizes,
        })
    }

    /// The splits that are neither trained nor tested on, or that are trained on because none is the training split: what
    /// the user should know of them.
    pub(super) fn unused_splits(&self) -> Option<String> {
        let is_tested = |name: &str| match &self.test {
            // A published data set has its own.
            TestPart::Published => true,
            TestPart::Split(Some(split)) => name == split,
            TestPart::Split(None) => name == "query" || name == "gallery",
            TestPart::Paths(_) | TestPart::Missing => false,
        };
        let is_unused = |name: &str| !self.is_split || name != "train" && !is_tested(name);
        let unused: Vec<String> = self
            .splits
            .iter()
            .filter(|(name, _)| is_unused(name))
            .map(|(name, part)| format!("`{name}` ({})", count(part.images, "image")))
            .collect();
        let splits = if unused.len() == 1 { "the split" } else { "the splits" };
        let are = if unused.len() == 1 { "is" } else { "are" };
        let names = unused.join(", ");
        match (unused.is_empty(), self.is_split) {
            (true, _) => None,
            (false, true) => Some(format!("{splits} {names} {are} neither trained nor tested on")),
            (false, false) => Some(format!("no split is called `train`: {splits} {names} {are} trained on")),
        }
    }

    /// The lines of the text, without line ends.
    pub(super) fn lines(&self) -> Vec<String> {
        let names: Vec<String> = self.images.iter().map(|path| path.display().to_string()).collect();
        let layout = match self.layout {
            Some(layout) => format!(" ({})", layout.title()),
            None => String::new(),
        };
        let mut lines = vec![format!("{}{layout}: {}", names.join(", "), self.training)];
        // The training images have a line already.
        let others = self.splits.iter().filter(|(name, _)| !(self.is_split && name == "train"));
        lines.extend(others.map(|(name, part)| format!("split {name}: {part}")));
        let Survey { decoded, sizes, coloured, white_borders, broken, .. } = &self.survey;
        let share = |part: usize| match part {
            0 => "none".to_owned(),
            part if part == *decoded => "all".to_owned(),
            part => format!("{part}"),
        };
        if let Some([least, median, most]) = sizes {
            let sizes = match least == most {
                true => format!("{} pixels (height x width)", median),
                false => format!("{median} pixels (height x width; from {least} to {most})"),
            };
            lines.push(format!(
                "{} looked at: {sizes}; {} in colour, {} with white borders",
                count(*decoded, "image"),
                share(*coloured),
                share(*white_borders)
            ));
        }
        if !broken.is_empty() {
            lines.push(format!(
                "{} of {} looked at cannot be read",
                count(broken.len(), "image"),
                grouped(broken.len() + decoded)
            ));
        }
        lines
    }
}

impl std::fmt::Display for Findings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}
