//! The folder layouts of published data sets, one file each, and the list of them.

mod cars196;
mod consumer_to_shop;
mod cub200_2010;
mod cub200_2011;
mod cuhk03_np;
mod deepfashion;
mod dukemtmc;
pub(super) mod folders;
mod inshop;
pub(super) mod manifest;
mod market1501;
mod mnist;
mod omniglot;
mod person;
mod sop;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::extension;
use super::idx::Pictures;
use super::tree::Tree;
use super::window::BoundingBox;
use crate::error::Error;
use crate::sampler::counted;

/// How the files of a source say which image belongs to which class and split.
///
/// Told by the content of a folder or archive, or named: `layout = "cub200_2011"` in a run file,
/// `--layout cub200_2011` on the command line.
///
/// ```
/// use gallerist_data::Layout;
///
/// let layout: Layout = "market1501".parse().unwrap();
/// assert_eq!((layout, layout.title()), (Layout::Market1501, "Market-1501"));
/// assert_eq!(layout.split_names(), ["train", "query", "gallery", "test"]);
/// let error = "market".parse::<Layout>().unwrap_err().to_string();
/// assert!(error.starts_with("there is no layout `market`; there are `manifest`, `cub200_2011`"), "{error}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[non_exhaustive]
pub enum Layout {
    /// `manifest`: a CSV manifest.
    Manifest,
    /// `cub200_2011`: `images.txt`, `image_class_labels.txt`; classes 1-100 train, 101-200 test.
    Cub200Of2011,
    /// `cub200_2010`: 200 folders `001.Black_footed_Albatross` …; classes 1-100 train, 101-200 test.
    Cub200Of2010,
    /// `cars196`: `cars_annos.mat`, or the devkit's files; classes 1-98 train, 99-196 test.
    Cars196,
    /// `sop`: Stanford Online Products, `Ebay_train.txt` and `Ebay_test.txt`.
    OnlineProducts,
    /// `inshop`: DeepFashion In-shop, `list_eval_partition.txt` with train, query and gallery.
    InShop,
    /// `consumer_to_shop`: DeepFashion consumer-to-shop, `list_eval_partition.txt` of pairs.
    ConsumerToShop,
    /// `market1501`: `bounding_box_train`, `query`, `bounding_box_test`.
    Market1501,
    /// `dukemtmc`: DukeMTMC-reID, the same folders.
    DukeMtmc,
    /// `cuhk03_np_detected`: CUHK03-NP, the same folders, boxes of a detector.
    Cuhk03Detected,
    /// `cuhk03_np_labeled`: CUHK03-NP, the same folders, boxes drawn by hand.
    Cuhk03Labeled,
    /// `mnist`: the four IDX files, packed with gzip or not.
    Mnist,
    /// `omniglot`: `images_background` (train) and `images_evaluation` (test).
    Omniglot,
    /// `folders`: class folders, or one flat folder without classes.
    Folders,
}

/// All layouts, in the order in which they are looked for.
static LAYOUTS: [&Spec; 14] = [
    &manifest::SPEC,
    &cub200_2011::SPEC,
    &cars196::SPEC,
    &sop::SPEC,
    &inshop::SPEC,
    &consumer_to_shop::SPEC,
    &market1501::SPEC,
    &dukemtmc::SPEC,
    &cuhk03_np::DETECTED,
    &cuhk03_np::LABELED,
    &mnist::SPEC,
    &omniglot::SPEC,
    &cub200_2010::SPEC,
    &folders::SPEC,
];

/// One layout.
pub(super) struct Spec {
    layout: Layout,
    /// In run files and on the command line.
    name: &'static str,
    title: &'static str,
    /// What tells it, for the message that it is not there.
    wants: &'static str,
    /// Where in the tree it lies, in the reader's own terms.
    find: fn(&Tree) -> Option<String>,
    read: fn(&Tree, &str) -> Result<Listing, Error>,
    /// The names of its own splits.
    splits: &'static [&'static str],
    /// Further names: each stands for several splits.
    unions: &'static [(&'static str, &'static [&'static str])],
    /// The published protocol, by the name it has in `gallerist-retrieval`.
    protocol: Option<&'static str>,
    published: &'static [Published],
}

/// The published size of a split or union.
struct Published {
    split: &'static str,
    images: usize,
    /// Junk and distractors are no class; 0 where no figure is published.
    classes: usize,
}

impl Published {
    const fn new(split: &'static str, images: usize, classes: usize) -> Published {
        Published { split, images, classes }
    }
}

/// The images of a source.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) records: Vec<Record>,
    /// Files that are no images by their extension.
    pub(super) skipped: usize,
    /// What the user should know.
    pub(super) notes: Vec<String>,
    /// Folders and files next to the splits, with their number of images.
    pub(super) left_out: Vec<(String, usize)>,
    /// The images where they are no files.
    pub(super) pictures: Option<Pictures>,
}

/// One image as a source lists it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) path: String,
    pub(super) label: Option<String>,
    pub(super) camera: Option<String>,
    pub(super) split: Option<Cow<'static, str>>,
    pub(super) window: Option<BoundingBox>,
    /// Line of a manifest.
    pub(super) line: Option<u64>,
}

impl Layout {
    fn spec(self) -> &'static Spec {
        LAYOUTS.iter().find(|spec| spec.layout == self).expect("every layout is in the list")
    }

    /// Its name in run files and on the command line.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The data set's name.
    pub fn title(self) -> &'static str {
        self.spec().title
    }

    /// All layouts.
    pub fn all() -> impl Iterator<Item = Layout> {
        LAYOUTS.iter().map(|spec| spec.layout)
    }

    /// The splits that images of the layout belong to, then the names that stand for several of
    /// them; empty where a manifest or the names of folders say which there are.
    pub fn split_names(self) -> Vec<&'static str> {
        let spec = self.spec();
        spec.splits.iter().copied().chain(spec.unions.iter().map(|(name, _)| *name)).collect()
    }

    /// The name of the protocol that the data set's publication measures by, such as `market1501`;
    /// `None` where there is none.
    ///
    /// ```
    /// use gallerist_data::Layout;
    /// assert_eq!(Layout::DukeMtmc.protocol(), Some("duke"));
    /// assert_eq!(Layout::Folders.protocol(), None);
    /// ```
    pub fn protocol(self) -> Option<&'static str> {
        self.spec().protocol
    }

    /// The splits of this name: the split itself, or the members of a union.
    pub(super) fn members(self, split: &str) -> Vec<&str> {
        self.spec().members(split)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Layout> for &'static str {
    fn from(layout: Layout) -> &'static str {
        layout.name()
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Layout, Error> {
        let found = LAYOUTS.iter().find(|spec| spec.name == name);
        found.map(|spec| spec.layout).ok_or_else(|| Error::UnknownLayout {
            name: name.to_owned(),
            known: LAYOUTS.iter().map(|s| format!("`{}`", s.name)).collect::<Vec<_>>().join(", "),
        })
    }
}

impl TryFrom<String> for Layout {
    type Error = Error;

    fn try_from(name: String) -> Result<Layout, Error> {
        name.parse()
    }
}

/// The split that is asked for, and the one that is taken where none is and the layout has it.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) split: Option<&'a str>,
    pub(super) default: Option<&'a str>,
}

/// What a source holds, after a split was chosen.
pub(super) struct Found {
    pub(super) layout: Layout,
    pub(super) listing: Listing,
    /// Annotated images that are not there.
    pub(super) missing: Vec<String>,
}

/// Reads a tree in the layout that is named, or else in the first that fits.
pub(super) fn read(tree: &Tree, layout: Option<Layout>, choice: Choice) -> Result<Found, Error> {
    let (spec, at) = match layout {
        Some(layout) => {
            let spec = layout.spec();
            let at = (spec.find)(tree).ok_or_else(|| Error::Layout {
                path: tree.name.clone(),
                problem: format!("it is not laid out as {}: there is no {}", spec.title, spec.wants),
                hint: "leave the layout out to have it told by the content",
            })?;
            (spec, at)
        }
        None => {
            let mut fitting = LAYOUTS.iter().filter_map(|spec| Some((*spec, (spec.find)(tree)?)));
            fitting.next().expect("class folders fit everything")
        }
    };
    spec.finish(tree, (spec.read)(tree, &at)?, choice)
}

/// Reads a single file: a manifest, or one image.
pub(super) fn read_file(
    tree: &Tree,
    file: &str,
    layout: Option<Layout>,
    choice: Choice,
) -> Result<Found, Error> {
    let is_manifest = extension(file) == "csv";
    if let Some(other) = layout.filter(|l| !(is_manifest && *l == Layout::Manifest)) {
        return Err(Error::Layout {
            path: tree.name.clone(),
            problem: format!("it is one file, not laid out as {}", other.title()),
            hint: "give the folder or zip of the data set",
        });
    }
    if is_manifest {
        return manifest::SPEC.finish(tree, manifest::read(tree, file)?, choice);
    }
    let records = vec![Record { path: file.to_owned(), ..Record::default() }];
    folders::SPEC.finish(tree, Listing { records, ..Listing::default() }, choice)
}

impl Spec {
    fn finish(&self, tree: &Tree, mut listing: Listing, choice: Choice) -> Result<Found, Error> {
        let has = |split: &&str| {
            let members = self.members(split);
            let of = |r: &Record| r.split.as_deref().is_some_and(|s| members.contains(&s));
            !self.splits.is_empty() && listing.records.iter().any(of)
        };
        let split = choice.split.or_else(|| choice.default.filter(has));
        self.select(tree, &mut listing, split)?;
        let missing = self.leave_out_missing(tree, &mut listing)?;
        if listing.records.is_empty() {
            return Err(Error::NoImages { path: tree.name.clone(), skipped: listing.skipped });
        }
        self.compare_with_published(&mut listing, split);
        Ok(Found { layout: self.layout, listing, missing })
    }

    /// The splits that a name stands for.
    fn members<'a>(&self, split: &'a str) -> Vec<&'a str>
    where
        'static: 'a,
    {
        let union = self.unions.iter().find(|(name, _)| *name == split);
        union.map_or(vec![split], |(_, members)| members.to_vec())
    }

    /// Keeps the records of a split.
    fn select(&self, tree: &Tree, listing: &mut Listing, split: Option<&str>) -> Result<(), Error> {
        let Some(split) = split else { return Ok(()) };
        let members = self.members(split);
        let of = |r: &Record| r.split.as_deref().is_some_and(|s| members.contains(&s));
        if !listing.records.iter().any(of) {
            let mut known: BTreeMap<&str, usize> = BTreeMap::new();
            for record in &listing.records {
                *known.entry(record.split.as_deref().unwrap_or("")).or_default() += 1;
            }
            let none = known.remove("").is_some() && known.is_empty();
            let known: Vec<String> = known.iter().map(|(s, n)| format!("`{s}` ({n})")).collect();
            return Err(Error::Selection {
                path: tree.name.clone(),
                problem: if none {
                    format!("the split `{split}` was asked for, and there are no splits")
                } else {
                    format!("no image has the split `{split}`; there are {}", known.join(", "))
                },
                hint: none.then(|| {
                    "a manifest has splits in its column `split`, class folders below `train`, `test` and \
                     the like, and published data sets by their layout"
                        .to_owned()
                }),
            });
        }
        listing.records.retain(of);
        Ok(())
    }

    /// Takes out the records whose images are not there; in a manifest they are an error.
    fn leave_out_missing(&self, tree: &Tree, listing: &mut Listing) -> Result<Vec<String>, Error> {
        if listing.pictures.is_some() {
            return Ok(Vec::new());
        }
        if self.layout == Layout::Manifest {
            manifest::check_files(tree, &listing.records)?;
            return Ok(Vec::new());
        }
        let mut missing = Vec::new();
        listing.records.retain_mut(|record| {
            let there = tree.contains(&record.path);
            if !there {
                missing.push(std::mem::take(&mut record.path));
            }
            there
        });
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter().take(3).map(|m| format!("`{m}`")).collect();
            listing.notes.push(format!(
                "{} of {} annotated images are missing and left out: {}{}",
                missing.len(),
                listing.records.len() + missing.len(),
                names.join(", "),
                if missing.len() > names.len() { ", …" } else { "" }
            ));
        }
        Ok(missing)
    }

    /// Notes where the counts differ from the published ones. Parts that are not there at all are
    /// not noted: many sets come in several archives.
    fn compare_with_published(&self, listing: &mut Listing, split: Option<&str>) {
        for published in self.published.iter().filter(|p| split.is_none_or(|s| s == p.split)) {
            let members = self.members(published.split);
            let of = |r: &&Record| r.split.as_deref().is_some_and(|s| members.contains(&s));
            let (mut images, mut classes) = (0, HashSet::new());
            for record in listing.records.iter().filter(of) {
                images += 1;
                classes.extend(record.label.as_deref().filter(|l| !person::is_no_identity(l)));
            }
            let classes = if published.classes == 0 { 0 } else { classes.len() };
            if images > 0 && (images, classes) != (published.images, published.classes) {
                let counted = |images: usize, classes: usize| match classes {
                    0 => counted(images, "image", "images"),
                    _ => format!(
                        "{} of {}",
                        counted(images, "image", "images"),
                        counted(classes, "class", "classes")
                    ),
                };
                listing.notes.push(format!(
                    "split `{}` of {} has {}; published are {}",
                    published.split,
                    self.title,
                    counted(images, classes),
                    counted(published.images, published.classes)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_layouts_and_run_files_write_them() {
        for layout in Layout::all() {
            assert_eq!(layout.name().parse::<Layout>().unwrap(), layout);
            assert!(!layout.title().is_empty());
        }
        #[derive(Serialize, Deserialize)]
        struct Data {
            layout: Layout,
        }
        let text = toml::to_string(&Data { layout: Layout::Cub200Of2011 }).unwrap();
        assert_eq!(text, "layout = \"cub200_2011\"\n");
        assert_eq!(toml::from_str::<Data>(&text).unwrap().layout, Layout::Cub200Of2011);
        assert!(toml::from_str::<Data>("layout = \"cub\"").is_err());
    }
}
