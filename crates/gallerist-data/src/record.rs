//! The images of a run as a list: which they are, and with which labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::source::{ImageSet, encode_parts, turned_names};

/// The columns of the list.
const COLUMNS: [&str; 7] = ["set", "source", "image", "label", "camera", "split", "part"];

/// One image.
type Row = [String; COLUMNS.len()];

/// The images of a run with their labels, cameras, splits and the parts of them that are cut out, in their order.
///
/// Sources are numbered, and the paths of images are relative to their source: the list does not change when the images
/// are moved to another folder. It does not depend on the content of the images.
///
/// # Example
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let photos = folder.path();
/// # for class in ["owl", "wren"] {
/// #     std::fs::create_dir(photos.join(class)).unwrap();
/// #     std::fs::write(photos.join(class).join("1.png"), "").unwrap();
/// # }
/// use gallerist_data::{DataRecord, ImageSet};
///
/// let before = DataRecord::of(&[("train", &ImageSet::open(photos)?)]);
/// std::fs::write(photos.join("wren/2.png"), "").unwrap();
/// let after = DataRecord::of(&[("train", &ImageSet::open(photos)?)]);
/// assert_ne!(before.fingerprint(), after.fingerprint());
/// let changes = after.changes_since(&before).to_string();
/// assert_eq!(changes, "1 image was added, `wren/2.png` (`wren`)");
/// # Ok::<(), gallerist_data::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataRecord {
    rows: Vec<Row>,
}

impl DataRecord {
    /// The images of these sets, each with the name of its purpose: `train`, `validation`.
    pub fn of(sets: &[(&str, &ImageSet)]) -> Self {
        let rows = sets.iter().flat_map(|(name, set)| {
            (0..set.len()).map(|i| {
                let label = set.labels().map(|labels| set.class_names()[labels[i] as usize].clone());
                [
                    (*name).to_owned(),
                    set.source(i).to_string(),
                    set.path(i).to_owned(),
                    label.unwrap_or_default(),
                    set.cameras().map_or_else(String::new, |cameras| cameras[i].clone()),
                    set.split(i).unwrap_or_default().to_owned(),
                    set.part(i),
                ]
            })
        });
        DataRecord { rows: rows.collect() }
    }

    /// The list as CSV, with a header.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let rows = self.rows.iter().map(|row| row.each_ref().map(String::as_str));
        for row in std::iter::once(COLUMNS).chain(rows) {
            writer.write_record(row).expect("memory can be written");
        }
        String::from_utf8(writer.into_inner().expect("memory can be written")).expect("rows are text")
    }

    /// Reads what [`to_csv`](Self::to_csv) has written; `None` for anything else.
    pub fn parse(csv: &str) -> Option<Self> {
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        if reader.headers().ok()? != COLUMNS.as_slice() {
            return None;
        }
        let row = |record: csv::StringRecord| {
            let values: Vec<String> = record.iter().map(str::to_owned).collect();
            values.try_into().ok()
        };
        let rows = reader.records().map(|record| row(record.ok()?)).collect::<Option<_>>()?;
        Some(DataRecord { rows })
    }

    /// Divides the list into the images of the set of this name, and the others.
    #[must_use]
    pub fn split_off(self, set: &str) -> (Self, Self) {
        let (of_set, others) = self.rows.into_iter().partition(|row| row[0] == set);
        (DataRecord { rows: of_set }, DataRecord { rows: others })
    }

    /// The list with the images of another one after its own.
    #[must_use]
    pub fn joined(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        self
    }

    /// The labels of the images.
    pub fn labels(&self) -> BTreeSet<String> {
        self.rows.iter().map(|row| row[3].clone()).collect()
    }

    /// The names of the labels by their number, as [`ImageSet::label_names`] of a set with these images has them.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("list.csv");
    /// # for name in ["1.png", "2.png"] { std::fs::write(folder.path().join(name), "").unwrap(); }
    /// std::fs::write(&path, "path,label\n1.png,red|dress\n2.png,red\n").unwrap();
    /// let set = gallerist_data::ImageSet::open(&path).unwrap();
    /// let list = gallerist_data::DataRecord::of(&[("train", &set)]);
    /// assert_eq!(list.label_names(), ["dress", "red"]);
    /// ```
    pub fn label_names(&self) -> Vec<String> {
        let is_turned = |row: &Row| row[6].split(", ").any(|part| part.starts_with("turned "));
        let upright = self.rows.iter().filter(|row| !is_turned(row));
        let (_, names) = encode_parts(upright.map(|row| row[3].as_str()));
        // Each turn of a label is a label of its own.
        if self.rows.iter().any(is_turned) { turned_names(&names) } else { names }
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// SHA-256 of [`to_csv`](Self::to_csv), in hexadecimal.
    pub fn fingerprint(&self) -> String {
        gallerist_util::hex::sha256(self.to_csv().as_bytes())
    }

    /// What differs from an earlier list.
    pub fn changes_since(&self, before: &DataRecord) -> DataChanges {
        let (old, new) = (before.keyed(), self.keyed());
        let places: BTreeMap<_, _> = old.iter().copied().collect();
        let shown = |row: &Row| match row[3].as_str() {
            "" => format!("`{}`", row[2]),
            label => format!("`{}` (`{label}`)", row[2]),
        };
        let mut changes = DataChanges::default();
        for (key, row) in &new {
            let Some(was) = places.get(key) else {
                changes.added.add(|| shown(row));
                continue;
            };
            if was[3] != row[3] {
                changes.relabelled.add(|| format!("`{}` (`{}`, now `{}`)", row[2], was[3], row[3]));
            } else if was[0] != row[0] {
                changes.moved.add(|| format!("`{}` (from {} to {})", row[2], was[0], row[0]));
            } else if was != row {
                changes.others.add(|| format!("`{}`", row[2]));
            }
        }
        let places: BTreeMap<_, _> = new.into_iter().collect();
        for (_, row) in old.iter().filter(|(key, _)| !places.contains_key(key)) {
            changes.removed.add(|| shown(row));
        }
        changes.reordered = changes.is_empty() && self != before;
        changes
    }

    /// The rows with what identifies their image: its source, its path, and which of its turns it is.
    fn keyed(&self) -> Vec<((&str, &str, usize), &Row)> {
        let mut times = BTreeMap::new();
        let mut keyed = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let (source, image) = (row[1].as_str(), row[2].as_str());
            let time = times.entry((source, image)).or_insert(0);
            keyed.push(((source, image, *time), row));
            *time += 1;
        }
        keyed
    }
}

/// Images that have changed in one way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    count: usize,
    example: String,
}

impl Group {
    fn add(&mut self, example: impl FnOnce() -> String) {
        if self.count == 0 {
            self.example = example();
        }
        self.count += 1;
    }
}

/// The differences of two lists of images: counts and an example of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataChanges {
    added: Group,
    removed: Group,
    relabelled: Group,
    /// Between the sets: from training to validation.
    moved: Group,
    /// Another camera, split or bounding box.
    others: Group,
    reordered: bool,
}

impl DataChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == DataChanges::default()
    }
}

impl fmt::Display for DataChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = [
            (&self.added, "was added", "were added"),
            (&self.removed, "is gone", "are gone"),
            (&self.relabelled, "has another label", "have other labels"),
            (&self.moved, "moved between the sets", "moved between the sets"),
            (
                &self.others,
                "has another camera, split or bounding box",
                "have other cameras, splits or bounding boxes",
            ),
        ];
        let mut parts: Vec<String> = Vec::new();
        for (Group { count, example }, one, several) in groups {
            match count {
                0 => {}
                1 => parts.push(format!("1 image {one}, {example}")),
                count => parts.push(format!("{count} images {several}, for example {example}")),
            }
        }
        if self.reordered {
            parts.push("the same images are in another order".into());
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(manifest: &str) -> (tempfile::TempDir, ImageSet) {
        let folder = tempfile::tempdir().unwrap();
        for row in manifest.lines() {
            std::fs::write(folder.path().join(row.split(',').next().unwrap()), "").unwrap();
        }
        let path = folder.path().join("list.csv");
        std::fs::write(&path, format!("path,label,camera\n{manifest}")).unwrap();
        let set = ImageSet::open(&path).unwrap();
        (folder, set)
    }

    fn record(manifest: &str) -> DataRecord {
        let (_folder, set) = set(manifest);
        DataRecord::of(&[("train", &set)])
    }

    const BEFORE: &str = "1.png,owl,a\n2.png,owl,b\n3.png,wren,a\n4.png,wren,a";

    #[test]
    fn the_list_does_not_depend_on_the_folder_and_comes_back_from_csv() {
        let before = record(BEFORE);
        assert_eq!(record(BEFORE).fingerprint(), before.fingerprint(), "another folder");
        assert_eq!(DataRecord::parse(&before.to_csv()).unwrap(), before);
        for damaged in ["", "set,image\ntrain,1.png\n", &before.to_csv().replace("owl,a", "owl")] {
            assert_eq!(DataRecord::parse(damaged), None, "{damaged}");
        }
        let row = ["train", "0", "a,\"b\".png", "line 1\nline 2", "", "", "turned 90"];
        let awkward = DataRecord { rows: vec![row.map(str::to_owned)] };
        assert_eq!(DataRecord::parse(&awkward.to_csv()).unwrap(), awkward);
    }

    #[test]
    fn a_list_is_divided_by_sets_and_joined() {
        let (_folder, set) = set(BEFORE);
        let list = DataRecord::of(&[("train", &set.subset(&[0, 1])), ("test", &set.subset(&[2, 3]))]);
        let (test, train) = list.clone().split_off("test");
        assert_eq!(train, DataRecord::of(&[("train", &set.subset(&[0, 1]))]));
        assert_eq!(
            (test.labels().into_iter().collect::<Vec<_>>(), test.is_empty()),
            (vec!["wren".to_owned()], false)
        );
        assert_eq!(train.joined(test), list);
    }

    #[test]
    fn changes_are_counted_and_named() {
        let before = record(BEFORE);
        let changes = |manifest: &str| record(manifest).changes_since(&before).to_string();
        assert_eq!(changes(BEFORE), "");
        assert_eq!(
            changes("1.png,owl,a\n2.png,wren,b\n3.png,owl,a\n5.png,wren,a"),
            "1 image was added, `5.png` (`wren`); 1 image is gone, `4.png` (`wren`); \
             2 images have other labels, for example `2.png` (`owl`, now `wren`)"
        );
        assert_eq!(
            changes("1.png,owl,a\n2.png,owl,c\n3.png,wren,a\n4.png,wren,a"),
            "1 image has another camera, split or bounding box, `2.png`"
        );
        assert_eq!(
            changes("2.png,owl,b\n1.png,owl,a\n3.png,wren,a\n4.png,wren,a"),
            "the same images are in another order"
        );
        let (_folder, same) = set(BEFORE);
        let divided =
            DataRecord::of(&[("train", &same.subset(&[0, 1])), ("validation", &same.subset(&[2, 3]))]);
        assert_eq!(
            divided.changes_since(&before).to_string(),
            "2 images moved between the sets, for example `3.png` (from train to validation)"
        );
    }

    #[test]
    fn turned_images_are_other_images() {
        let (_folder, set) = set(BEFORE);
        let turned = DataRecord::of(&[("train", &set.with_rotation_classes().unwrap())]);
        let changes = turned.changes_since(&DataRecord::of(&[("train", &set)])).to_string();
        assert_eq!(changes, "12 images were added, for example `1.png` (`owl@90`)");
    }

    #[test]
    fn labels_are_numbered_as_in_the_set() {
        for manifest in [BEFORE, "1.png,wren|owl,a\n2.png,tit,a\n3.png,owl,a\n4.png,tit|auk,a"] {
            let (_folder, set) = set(manifest);
            let part = set.subset(&[0, 2]);
            for set in [&set, &part, &set.with_rotation_classes().unwrap()] {
                let list = DataRecord::of(&[("train", set)]);
                assert_eq!(list.label_names(), set.label_names());
                assert_eq!(DataRecord::parse(&list.to_csv()).unwrap().label_names(), set.label_names());
            }
        }
        assert!(DataRecord::default().label_names().is_empty());
    }
}
