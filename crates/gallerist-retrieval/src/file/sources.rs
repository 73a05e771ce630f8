//! Where the rows of a set come from.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A set of images that embeddings come from: a folder, an archive, the folder of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name: with the path of an image it makes the image's
    /// [id](crate::index::item_id). The [absolute path](Source::name_of) of the images, unless
    /// the user gave another name.
    pub name: String,
    /// What to open to see the images: the path at the time of embedding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
}

impl Source {
    /// The source of the images at `path`, under the name that the path gives it.
    pub fn at(path: &Path) -> Self {
        let name = Self::name_of(path);
        Self { images: Some(name.clone()), name }
    }

    /// The absolute path with symbolic links, `.` and `..` resolved, so that one folder has one
    /// name however it is written. What does not exist is resolved as text; an address `scheme://rest` stays.
    ///
    /// ```
    /// # use std::path::Path;
    /// use gallerist_retrieval::file::Source;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let photos = folder.path().join("photos");
    /// std::fs::create_dir(&photos).unwrap();
    /// let detour = folder.path().join("./photos/../photos");
    /// assert_eq!(Source::name_of(&detour), Source::name_of(&photos));
    /// ```
    pub fn name_of(path: &Path) -> String {
        if let Some(address) = path.to_str().filter(|text| gallerist_util::text::address(text).is_some()) {
            return address.to_owned();
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolved = path.canonicalize().unwrap_or_else(|_| {
            let mut plain = PathBuf::new();
            for part in gallerist_util::text::absolute(path).components() {
                match part {
                    Component::ParentDir => drop(plain.pop()),
                    Component::CurDir => {}
                    part => plain.push(part),
                }
            }
            plain
        });
        resolved.to_string_lossy().into_owned()
    }
}

/// The number of a row without a source.
pub(crate) const NONE: u32 = u32::MAX;

/// The source of each row. Rows of files that were written before sources were kept have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    list: Vec<Source>,
    /// For each row its place in `list`, or [`NONE`].
    rows: Vec<u32>,
}

impl Sources {
    /// `rows` rows of one source.
    pub fn one(source: Source, rows: usize) -> Self {
        Self { list: vec![source], rows: vec![0; rows] }
    }

    /// The sources in `list` and for each row its place there; sources of one name become one, and
    /// those without a row are left out.
    ///
    /// # Errors
    /// [`Error::Option`] for a row whose source is not in the list.
    pub fn new(list: Vec<Source>, rows: impl IntoIterator<Item = Option<usize>>) -> Result<Self> {
        let mut sources = Self::default();
        let mut known = HashMap::new();
        for row in rows {
            let source = match row {
                None => None,
                Some(at) => Some(list.get(at).ok_or_else(|| Error::Option {
                    option: "the source of a row",
                    wanted: "one of the list of sources",
                    found: at.to_string(),
                })?),
            };
            sources.push(source, &mut known);
        }
        Ok(sources)
    }

    /// `known` holds the places of the sources in the list by their names.
    fn push(&mut self, source: Option<&Source>, known: &mut HashMap<String, u32>) {
        let place = source.map_or(NONE, |source| match known.get(&source.name) {
            Some(&place) => place,
            None => {
                let place = self.list.len() as u32;
                known.insert(source.name.clone(), place);
                self.list.push(source.clone());
                place
            }
        });
        self.rows.push(place);
    }

    /// The sources of rows, in the order of their first row.
    pub fn list(&self) -> &[Source] {
        &self.list
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The source of a row, where it has one.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn get(&self, row: usize) -> Option<&Source> {
        self.list.get(self.rows[row] as usize)
    }

    /// The place of a row's source in [`list`](Self::list), where it has one.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn place(&self, row: usize) -> Option<usize> {
        Some(self.rows[row]).filter(|&place| place != NONE).map(|place| place as usize)
    }

    /// The sources of these rows, in that order.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let mut selected = Self::default();
        let mut known = HashMap::new();
        rows.iter().for_each(|&row| selected.push(self.get(row), &mut known));
        selected
    }

    /// Nothing where no row has a source.
    pub(crate) fn or_none(self) -> Option<Self> {
        (!self.list.is_empty()).then_some(self)
    }

    /// The sources of the rows of several sets, one set after the other; `None` where no row has
    /// one.
    pub(crate) fn concat<'a>(sets: impl IntoIterator<Item = (Option<&'a Self>, usize)>) -> Option<Self> {
        let mut all = Self::default();
        let mut known = HashMap::new();
        for (sources, rows) in sets {
            (0..rows).for_each(|row| all.push(sources.and_then(|sources| sources.get(row)), &mut known));
        }
        all.or_none()
    }

    /// The place of each row's source in the list, [`NONE`] for a row without.
    pub(crate) fn places(&self) -> &[u32] {
        &self.rows
    }

    /// True when all rows have the first source, so that the list says it all.
    pub(crate) fn is_one(&self) -> bool {
        self.list.len() == 1 && self.rows.iter().all(|&row| row == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str) -> Source {
        Source { name: name.to_owned(), images: None }
    }

    fn names(sources: &Sources) -> Vec<Option<&str>> {
        (0..sources.len()).map(|row| sources.get(row).map(|source| source.name.as_str())).collect()
    }

    #[test]
    fn one_folder_has_one_name_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["train", "test"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let train = Source::name_of(&folder.path().join("train"));
        for other in ["./train", "train/", "test/../train", "train/."] {
            assert_eq!(Source::name_of(&folder.path().join(other)), train, "{other}");
        }
        assert_ne!(Source::name_of(&folder.path().join("test")), train);
        let gone = folder.path().join("gone/./x/../y");
        assert!(Source::name_of(&gone).ends_with("/gone/y"));
        assert!(Path::new(&Source::name_of(Path::new("relative/that/is/not/there"))).is_absolute());
        assert_eq!(Source::name_of(Path::new("")), Source::name_of(Path::new(".")));
    }

    #[test]
    fn sources_are_kept_once_and_in_the_order_of_rows() {
        let sources =
            Sources::new(vec![source("a"), source("b"), source("c")], [Some(2), None, Some(0), Some(2)])
                .unwrap();
        assert_eq!(sources.list(), [source("c"), source("a")]);
        assert_eq!(names(&sources), [Some("c"), None, Some("a"), Some("c")]);
        let selected = sources.select(&[2, 1]);
        assert_eq!((names(&selected), selected.list()), (vec![Some("a"), None], &[source("a")][..]));
        let twice = Sources::new(vec![source("a"), source("a")], [Some(0), Some(1)]).unwrap();
        assert!(twice.is_one());
        assert!(Sources::new(vec![source("a")], [Some(1)]).is_err());
    }

    #[test]
    fn joined_rows_keep_their_sources() {
        let (a, b) = (Sources::one(source("a"), 2), Sources::one(source("b"), 1));
        let all = Sources::concat([(Some(&a), 2), (None, 1), (Some(&b), 1), (Some(&a), 2)]).unwrap();
        assert_eq!(names(&all), [Some("a"), Some("a"), None, Some("b"), Some("a"), Some("a")]);
        assert_eq!(Sources::concat([(None, 3)]), None);
    }
}
