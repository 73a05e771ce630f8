//! CUB-200 of 2010: folders `001.Black_footed_Albatross` to `200.Common_Yellowthroat`, nothing else needed.
//!
//! Where the annotations are in the same tree (`annotations-mat/001.Black_footed_Albatross/….mat`, a file for
//! every image), the bounding boxes are those of its structure `bbox`: `left`, `top`, `right` and `bottom`,
//! taken for edges.
//!
//! Classes 1 to 100 for training, 101 to 200 for test, as for the set of 2011.

use std::collections::{BTreeSet, HashMap};

use super::spec::{Published, Spec};
use super::{cub200_2011, missing};
use crate::error::Error;
use crate::source::bounding_box::BoundingBox;
use crate::source::mat::MatFile;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "cub200_2010",
    title: "CUB-200 (2010)",
    wants: "folder for each of the classes 001 to 200, such as `001.Black_footed_Albatross`",
    find: |tree| {
        let classes: Option<BTreeSet<u32>> = tree.images("").map(|p| Some(class(p)?.0)).collect();
        let complete = classes.is_some_and(|c| c.iter().copied().eq(1..=200));
        (complete && tree.images("").count() < FEWER_THAN).then(String::new)
    },
    read,
    check_files: missing::leave_out,
    splits: &["train", "test"],
    unions: &[],
    protocol: None,
    published: &[Published::new("train", 2990, 100), Published::new("test", 3043, 100)],
};

/// The images of 2011 without annotations are in the same folders: 11,788 instead of 6,033.
const FEWER_THAN: usize = 9000;

/// Number and name of the class whose folder an image is in.
fn class(path: &str) -> Option<(u32, &str)> {
    let (folder, _) = path.rsplit_once('/')?;
    let name = folder.rsplit('/').next()?;
    let (number, _) = name.split_once('.').filter(|(number, _)| number.len() == 3)?;
    Some((number.parse().ok()?, name))
}

/// The folder and the name of a file, without its ending: what an image and its annotation have in common.
fn place(path: &str) -> Option<(&str, &str)> {
    let (folder, name) = path.rsplit_once('/')?;
    Some((folder.rsplit('/').next()?, name.rsplit_once('.')?.0))
}

fn read(tree: &Tree, _: &str) -> Result<ImageListing, Error> {
    let annotations = tree.files().iter().filter(|path| path.ends_with(".mat"));
    let annotations: HashMap<_, _> = annotations.filter_map(|path| Some((place(path)?, path))).collect();
    let mut listing = ImageListing::default();
    let mut used = 0;
    for path in tree.images("") {
        let Some((number, name)) = class(path) else { continue };
        let annotation = place(path).and_then(|place| annotations.get(&place));
        used += 1 + usize::from(annotation.is_some());
        listing.records.push(ImageRecord {
            path: path.to_owned(),
            label: Some(name.to_owned()),
            split: Some(cub200_2011::split(number).into()),
            bounding_box: annotation.map(|path| bounding_box(tree, path)).transpose()?,
            ..ImageRecord::default()
        });
    }
    listing.skipped = tree.files().len() - used;
    Ok(listing)
}

fn bounding_box(tree: &Tree, path: &str) -> Result<BoundingBox, Error> {
    let file = MatFile::open_for(tree, path, "bbox")?;
    let bbox = file.structs("bbox")?;
    let edge = |name| {
        let column = bbox.column(name).filter(|_| bbox.len() == 1);
        let number = column.and_then(|column| bbox.get(0, column).number());
        number.ok_or_else(|| file.fault(format!("`bbox` has no number `{name}`"))).map(|v| v as f32)
    };
    let (left, top) = (edge("left")?, edge("top")?);
    Ok(BoundingBox { left, top, width: edge("right")? - left, height: edge("bottom")? - top })
}
