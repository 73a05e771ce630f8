//! CUB-200 of 2010: folders `001.Black_footed_Albatross` to `200.Common_Yellowthroat`, nothing else needed.
//!
//! Classes 1 to 100 for training, 101 to 200 for test, as for the set of 2011.

use std::collections::BTreeSet;

use super::{Layout, Listing, Published, Record, Spec, cub200_2011};
use crate::error::Error;
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    layout: Layout::Cub200Of2010,
    name: "cub200_2010",
    title: "CUB-200 (2010)",
    wants: "folder for each of the classes 001 to 200, such as `001.Black_footed_Albatross`",
    find: |tree| {
        let classes: Option<BTreeSet<u32>> = tree.images("").map(|p| Some(class(p)?.0)).collect();
        let complete = classes.is_some_and(|c| c.iter().copied().eq(1..=200));
        (complete && tree.images("").count() < FEWER_THAN).then(String::new)
    },
    read,
    splits: &["train", "test"],
    unions: &[],
    published: &[Published::new("train", 2990, 100), Published::new("test", 3043, 100)],
};

/// The bare images of 2011 lie in the same folders, and are 11,788 where these are 6,033.
const FEWER_THAN: usize = 9000;

/// Number and name of the class in whose folder an image lies.
fn class(path: &str) -> Option<(u32, &str)> {
    let (folder, _) = path.rsplit_once('/')?;
    let name = folder.rsplit('/').next()?;
    let (number, _) = name.split_once('.').filter(|(number, _)| number.len() == 3)?;
    Some((number.parse().ok()?, name))
}

fn read(tree: &Tree, _: &str) -> Result<Listing, Error> {
    let images = tree.images("");
    let records: Vec<Record> = images
        .filter_map(|path| {
            let (number, name) = class(path)?;
            Some(Record {
                path: path.to_owned(),
                label: Some(name.to_owned()),
                split: Some(cub200_2011::split(number).into()),
                ..Record::default()
            })
        })
        .collect();
    Ok(Listing { skipped: tree.files().len() - records.len(), records, ..Listing::default() })
}
