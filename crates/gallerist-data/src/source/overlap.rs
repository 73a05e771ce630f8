//! Classes that two sets have in common.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::set::ImageSet;

/// How many classes of a test set take part in training, see [`ImageSet::overlap_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassOverlap {
    /// Classes of both.
    pub shared: usize,
    /// Classes of the test set.
    pub test: usize,
}

impl fmt::Display for ClassOverlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shared, self.test) {
            (0, _) => f.write_str("no test class was trained on"),
            (1, 1) => f.write_str("the one test class was trained on"),
            (1, test) => write!(f, "1 of {test} test classes was trained on"),
            (shared, test) if shared == test => write!(f, "all {test} test classes were trained on"),
            (shared, test) => write!(f, "{shared} of {test} test classes were trained on"),
        }
    }
}

impl ImageSet {
    /// The classes of this set, a test set, that `training` has, too, by their names; of images with
    /// [several labels](ImageSet::label_sets), the labels. `None` where one of them has no labels.
    ///
    /// The usual benchmarks of metric learning test on classes that took no part in training.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// use gallerist_data::ImageSet;
    ///
    /// for path in ["train/wren/1.png", "train/heron/1.png", "test/wren/2.png", "test/owl/2.png"] {
    ///     let path = folder.path().join(path);
    ///     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    ///     std::fs::write(path, "").unwrap();
    /// }
    /// let train = ImageSet::open(folder.path().join("train")).unwrap();
    /// let test = ImageSet::open(folder.path().join("test")).unwrap();
    /// let overlap = test.overlap_with(&train).unwrap();
    /// assert_eq!((overlap.shared, overlap.test), (1, 2));
    /// assert_eq!(overlap.to_string(), "1 of 2 test classes was trained on");
    /// ```
    pub fn overlap_with(&self, training: &ImageSet) -> Option<ClassOverlap> {
        if self.labels().is_none() || training.labels().is_none() {
            return None;
        }
        let trained: HashSet<&String> = training.label_names().iter().collect();
        let shared = self.label_names().iter().filter(|name| trained.contains(name)).count();
        Some(ClassOverlap { shared, test: self.label_names().len() })
    }
}
