//! The classes of a set, as samplers see them.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::source::ImageSet;

/// The classes of the images of a set.
#[derive(Clone, Copy, Debug)]
pub struct ClassLabels<'a> {
    /// One class number per image, each below the number of classes.
    pub labels: &'a [u32],
    /// Names of the classes.
    pub class_names: &'a [String],
    /// Where the images come from, for messages.
    pub source: &'a str,
}

impl<'s> ClassLabels<'s> {
    /// The classes of a set.
    ///
    /// # Errors
    ///
    /// [`Error::NoLabels`] where it has none.
    pub fn of(set: &'s ImageSet) -> Result<ClassLabels<'s>, Error> {
        let labels = set.labels().ok_or_else(|| set.no_labels("the sampler"))?;
        Ok(ClassLabels { labels, class_names: set.class_names(), source: set.name() })
    }

    /// The images of each class, in their order.
    ///
    /// # Panics
    ///
    /// If a label has no class name.
    pub(super) fn members(&self) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); self.class_names.len()];
        for (i, &label) in self.labels.iter().enumerate() {
            members[label as usize].push(i as u32);
        }
        members
    }

    /// Size of the smallest class and its name: the first of several.
    pub(super) fn smallest<'a>(&'a self, members: &[Vec<u32>]) -> Option<(usize, &'a str)> {
        let smallest = (0..members.len()).min_by_key(|&c| members[c].len())?;
        Some((members[smallest].len(), &self.class_names[smallest]))
    }
}

/// What to do with a class that has fewer images than a batch takes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmallClasses {
    /// Its images are repeated until there are enough.
    #[default]
    Repeat,
    /// It is left out; [`BatchSampler::left_out_classes`](crate::BatchSampler::left_out_classes) counts it.
    LeaveOut,
}

/// At least 1, or an error that names the field.
pub(super) fn at_least_one(field: &'static str, value: usize) -> Result<(), Error> {
    match value {
        0 => Err(Error::Config { field, wanted: "at least 1", found: "0".to_owned() }),
        _ => Ok(()),
    }
}
