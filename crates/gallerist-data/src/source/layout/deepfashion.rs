//! What the DeepFashion layouts share: lists that start with their length, and the places of images and
//! boxes.

use std::collections::HashMap;

use crate::error::Error;
use crate::source::bounding_box::BoundingBox;
use crate::source::table::Table;
use crate::source::tree::Tree;

pub(super) const PARTITION: &str = "list_eval_partition.txt";

/// The partition whose line of column names begins with `column`.
pub(super) fn find(tree: &Tree, column: &str) -> Option<String> {
    tree.folders_with(PARTITION).into_iter().map(|folder| format!("{folder}{PARTITION}")).find(|file| {
        // A file that cannot be read is an error later, if the layout is chosen by name.
        let bytes = tree.read(file).unwrap_or_default();
        let header = bytes.split(|&b| b == b'\n').nth(1).unwrap_or_default();
        header.trim_ascii().starts_with(column.as_bytes())
    })
}

/// The folder of the images named in the partition at `at`; `named` is the first of them.
pub(super) fn images(tree: &Tree, at: &str, named: &str) -> String {
    let folder = at.strip_suffix(PARTITION).expect("it was found by this name");
    let base = ["Eval/", "Anno/"].iter().find_map(|end| folder.strip_suffix(end)).unwrap_or(folder);
    let mut places = ["", "Img/"].map(|inner| format!("{base}{inner}")).into_iter();
    let found = places.find(|place| tree.contains(&format!("{place}{named}")));
    // The first image may be missing: then any will do.
    let top = named.split_once('/').map_or("", |(top, _)| top);
    found
        .or_else(|| {
            let mut places = ["", "Img/"].map(|inner| format!("{base}{inner}")).into_iter();
            places.find(|place| !tree.below(&format!("{place}{top}/")).is_empty())
        })
        .unwrap_or_else(|| base.to_owned())
}

/// The boxes of a list with the columns `image_name clothes_type OTHER x_1 y_1 x_2 y_2`; none if the file
/// does not exist.
pub(super) fn boxes(tree: &Tree, file: &str) -> Result<HashMap<String, BoundingBox>, Error> {
    let Some(folder) = tree.folder_with(file) else { return Ok(HashMap::new()) };
    let path = format!("{folder}{file}");
    let bytes = tree.read(&path)?;
    let mut boxes = HashMap::new();
    for line in Table::new(&bytes, tree.location(&path))?.counted_rows()? {
        let [name, _, _, x1, y1, x2, y2] = line.fields()?;
        let number = |field| line.parse::<f32>(field, "a coordinate");
        let corners = [number(x1)?, number(y1)?, number(x2)?, number(y2)?];
        boxes.insert(name.to_owned(), BoundingBox::inclusive(corners, 0.0));
    }
    Ok(boxes)
}
