//! What describes the layout of a data set.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::error::Error;
use crate::source::record::ImageListing;
use crate::source::tree::Tree;

/// One layout.
pub(in crate::source) struct Spec {
    /// In run files and on the command line.
    pub(super) name: &'static str,
    /// The name of the data set.
    pub(super) title: &'static str,
    /// What a folder of this layout has, for the message that it is not there.
    pub(super) wants: &'static str,
    /// Where in a tree the layout begins, as `read` takes it; `None`: the tree has another layout.
    pub(super) find: fn(&Tree) -> Option<String>,
    /// Lists the images of all splits.
    pub(super) read: fn(&Tree, &str) -> Result<ImageListing, Error>,
    /// Checks the files of the selected images: leaves out those that are missing, or refuses them.
    pub(super) check_files: fn(&Tree, &mut ImageListing) -> Result<(), Error>,
    /// The names of its own splits.
    pub(super) splits: &'static [&'static str],
    /// Further names: each names several splits.
    pub(super) unions: &'static [(&'static str, &'static [&'static str])],
    /// The published protocol, by its name in `gallerist-retrieval`.
    pub(super) protocol: Option<&'static str>,
    pub(super) published: &'static [Published],
}

/// The published size of a split or union.
pub(super) struct Published {
    pub(super) split: &'static str,
    pub(super) images: usize,
    /// Junk and distractors are no class; 0 where no figure is published.
    pub(super) classes: usize,
}

impl Published {
    pub(super) const fn new(split: &'static str, images: usize, classes: usize) -> Published {
        Published { split, images, classes }
    }
}

/// How the files of a source say which image belongs to which class and split.
///
/// It is recognised by the content of a folder or archive, or named: `layout = "cub200_2011"` in a run file,
/// `--layout cub200_2011` on the command line.
///
/// ```
/// use gallerist_data::DatasetLayout;
///
/// let layout: DatasetLayout = "market1501".parse().unwrap();
/// assert_eq!((layout, layout.title()), (DatasetLayout::MARKET1501, "Market-1501"));
/// assert_eq!(layout.split_names(), ["train", "query", "gallery", "test"]);
/// let error = "market".parse::<DatasetLayout>().unwrap_err().to_string();
/// assert!(error.starts_with("there is no layout `market`; there are `manifest`, `cub200_2011`"), "{error}");
/// ```
#[derive(Clone, Copy)]
pub struct DatasetLayout(pub(super) &'static Spec);

impl DatasetLayout {
    /// Its name in run files and on the command line.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The data set's name.
    pub fn title(self) -> &'static str {
        self.0.title
    }

    /// The splits that images of the layout belong to, then the names for several of
    /// them; empty if a manifest or the names of folders define the splits.
    pub fn split_names(self) -> Vec<&'static str> {
        self.0.splits.iter().copied().chain(self.0.unions.iter().map(|(name, _)| *name)).collect()
    }

    /// Whether the layout itself defines the splits, and not a manifest or the names of folders.
    pub(in crate::source) fn has_own_splits(self) -> bool {
        !self.0.splits.is_empty()
    }

    /// The name of the protocol of the data set's publication, such as `market1501`;
    /// `None` where there is none.
    ///
    /// ```
    /// use gallerist_data::DatasetLayout;
    /// assert_eq!(DatasetLayout::DUKE_MTMC.protocol(), Some("duke"));
    /// assert_eq!(DatasetLayout::FOLDERS.protocol(), None);
    /// ```
    pub fn protocol(self) -> Option<&'static str> {
        self.0.protocol
    }

    /// The splits of this name: the split itself, or the members of a union.
    pub(in crate::source) fn members<'a>(self, split: &'a str) -> Vec<&'a str>
    where
        'static: 'a,
    {
        let union = self.0.unions.iter().find(|(name, _)| *name == split);
        union.map_or(vec![split], |(_, members)| members.to_vec())
    }

    /// Where in a tree the layout begins, if the tree has it.
    pub(in crate::source) fn find(self, tree: &Tree) -> Option<String> {
        (self.0.find)(tree)
    }

    /// What a folder of this layout has.
    pub(in crate::source) fn wants(self) -> &'static str {
        self.0.wants
    }

    /// Lists the images; `at` is what [`find`](Self::find) returned.
    pub(in crate::source) fn read(self, tree: &Tree, at: &str) -> Result<ImageListing, Error> {
        (self.0.read)(tree, at)
    }

    /// Checks the files of the selected images.
    pub(in crate::source) fn check_files(self, tree: &Tree, listing: &mut ImageListing) -> Result<(), Error> {
        (self.0.check_files)(tree, listing)
    }
}

impl PartialEq for DatasetLayout {
    fn eq(&self, other: &DatasetLayout) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for DatasetLayout {}

impl Hash for DatasetLayout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for DatasetLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatasetLayout({})", self.0.name)
    }
}

impl fmt::Display for DatasetLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl From<DatasetLayout> for &'static str {
    fn from(layout: DatasetLayout) -> &'static str {
        layout.0.name
    }
}
