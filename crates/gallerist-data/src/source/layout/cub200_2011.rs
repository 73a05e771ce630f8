//! CUB-200-2011: `images.txt`, `image_class_labels.txt`, `classes.txt`, `bounding_boxes.txt`, `images/`.
//!
//! The split of metric learning: classes 1 to 100 for training, 101 to 200 for test. (The file
//! `train_test_split.txt` splits every class, for classification; it is not used.)

use std::collections::HashMap;

use super::missing;
use super::spec::{Published, Spec};
use crate::error::Error;
use crate::source::bounding_box::BoundingBox;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::table::Table;
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "cub200_2011",
    title: "CUB-200-2011",
    wants: "`images.txt` and `image_class_labels.txt` in one folder",
    find: |tree| {
        let folders = tree.folders_with("image_class_labels.txt");
        folders.into_iter().find(|f| tree.contains(&format!("{f}images.txt"))).map(str::to_owned)
    },
    read,
    check_files: missing::leave_out,
    splits: &["train", "test"],
    unions: &[],
    protocol: Some("cub200"),
    published: &[Published::new("train", 5864, 100), Published::new("test", 5924, 100)],
};

/// The split of class `number` of 200, counted from 1.
pub(super) fn split(number: u32) -> &'static str {
    if number <= 100 { "train" } else { "test" }
}

fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let file = |name: &str| format!("{at}{name}");
    let (images, labels) = (file("images.txt"), file("image_class_labels.txt"));
    let bytes = tree.read(&labels)?;
    let mut class_of = HashMap::new();
    for line in Table::new(&bytes, tree.location(&labels))?.lines() {
        let [id, class] = line.fields()?;
        let class: u32 = line.parse(class, "the class")?;
        if !(1..=200).contains(&class) {
            return Err(line.fault(format!("class {class}, and there are 1 to 200")));
        }
        class_of.insert(id.to_owned(), class);
    }
    let mut names = HashMap::new();
    if tree.contains(&file("classes.txt")) {
        let bytes = tree.read(&file("classes.txt"))?;
        for line in Table::new(&bytes, tree.location(&file("classes.txt")))?.lines() {
            let [class, name] = line.fields()?;
            names.insert(line.parse::<u32>(class, "the class")?, name.to_owned());
        }
    }
    let mut boxes = HashMap::new();
    if tree.contains(&file("bounding_boxes.txt")) {
        let bytes = tree.read(&file("bounding_boxes.txt"))?;
        for line in Table::new(&bytes, tree.location(&file("bounding_boxes.txt")))?.lines() {
            let [id, left, top, width, height] = line.fields()?;
            let number = |field| line.parse::<f32>(field, "a coordinate");
            let window = BoundingBox {
                left: number(left)?,
                top: number(top)?,
                width: number(width)?,
                height: number(height)?,
            };
            boxes.insert(id.to_owned(), window);
        }
    }
    let bytes = tree.read(&images)?;
    let mut records = Vec::new();
    for line in Table::new(&bytes, tree.location(&images))?.lines() {
        let [id, path] = line.fields()?;
        let class = *class_of
            .get(id)
            .ok_or_else(|| line.fault(format!("image {id} has no class in `image_class_labels.txt`")))?;
        records.push(ImageRecord {
            path: format!("{at}images/{path}"),
            label: Some(names.get(&class).cloned().unwrap_or_else(|| format!("{class:03}"))),
            split: Some(split(class).into()),
            bounding_box: boxes.get(id).copied(),
            ..ImageRecord::default()
        });
    }
    Ok(ImageListing { records, ..ImageListing::default() })
}
