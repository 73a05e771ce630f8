//! The counts of a data set compared with the published ones.

use std::collections::HashSet;

use super::person;
use super::spec::DatasetLayout;
use crate::source::record::{ImageListing, ImageRecord};
use crate::text::counted;

impl DatasetLayout {
    /// Whether a label of the layout is a class. The junk and the distractors of person re-identification are none.
    ///
    /// ```
    /// use gallerist_data::DatasetLayout;
    /// assert!(DatasetLayout::MARKET1501.is_class("0002") && !DatasetLayout::MARKET1501.is_class("-1"));
    /// assert!(DatasetLayout::FOLDERS.is_class("-1"));
    /// ```
    pub fn is_class(self, label: &str) -> bool {
        !self.has_own_splits() || !person::is_no_identity(label)
    }

    /// Notes where the counts differ from the published ones. Splits of which no image exists are
    /// not noted: many data sets come in several archives.
    pub(in crate::source) fn compare_with_published(self, listing: &mut ImageListing, split: Option<&str>) {
        let spec = self.0;
        for published in spec.published.iter().filter(|p| split.is_none_or(|s| s == p.split)) {
            let members = self.members(published.split);
            let of = |r: &&ImageRecord| r.split.as_deref().is_some_and(|s| members.contains(&s));
            let (mut images, mut classes) = (0, HashSet::new());
            for record in listing.records.iter().filter(of) {
                images += 1;
                classes.extend(record.label.as_deref().filter(|label| self.is_class(label)));
            }
            let classes = if published.classes == 0 { 0 } else { classes.len() };
            if images > 0 && (images, classes) != (published.images, published.classes) {
                listing.notes.push(format!(
                    "split `{}` of {} has {}; published are {}",
                    published.split,
                    spec.title,
                    in_words(images, classes),
                    in_words(published.images, published.classes)
                ));
            }
        }
    }
}

fn in_words(images: usize, classes: usize) -> String {
    let images = counted(images, "image", "images");
    match classes {
        0 => images,
        _ => format!("{images} of {}", counted(classes, "class", "classes")),
    }
}
