//! Class folders, or a flat folder.
//!
//! The class of an image is the path of its folder without the leading folders that all share.
//! Where the topmost of the others are all called `train`, `test` and the like, they are splits.

use std::borrow::Cow;

use super::{Layout, Listing, Record, Spec};
use crate::error::Error;
use crate::source::tree::Tree;

pub(in crate::source) static SPEC: Spec = Spec {
    layout: Layout::Folders,
    name: "folders",
    title: "class folders",
    wants: "folder",
    find: |_| Some(String::new()),
    read,
    splits: &[],
    unions: &[],
    protocol: None,
    published: &[],
};

const SPLITS: [&str; 7] = ["train", "val", "valid", "validation", "test", "query", "gallery"];

fn read(tree: &Tree, _: &str) -> Result<Listing, Error> {
    tree.refuse_nested_archives()?;
    let paths: Vec<&str> = tree.images("").collect();
    let skipped = tree.files().len() - paths.len();
    if paths.is_empty() {
        return Err(Error::NoImages { path: tree.name.clone(), skipped });
    }
    let folder_of = |path: &str| path.rsplit_once('/').map_or(0, |(folder, _)| folder.len());
    // Length of the leading folders shared by all images, with their last `/`.
    let first = &paths[0][..folder_of(paths[0])];
    let flat = paths.iter().all(|p| &p[..folder_of(p)] == first);
    let mut shared = if first.is_empty() { 0 } else { first.len() + 1 };
    for path in &paths {
        while !path.starts_with(&paths[0][..shared]) {
            shared = paths[0][..shared - 1].rfind('/').map_or(0, |at| at + 1);
        }
    }
    // The folder of an image below the shared ones; empty beside the class folders.
    let class_end = |path: &str| folder_of(path).max(shared);
    let split_up = paths.iter().all(|path| {
        let top = path[shared..class_end(path)].split_once('/').map(|(top, _)| top);
        top.is_some_and(|top| SPLITS.contains(&top))
    });
    let mut records = Vec::with_capacity(paths.len());
    let mut loose: Vec<&str> = Vec::new();
    for path in paths.iter().copied() {
        let class = &path[shared..class_end(path)];
        if !flat && class.is_empty() {
            loose.push(path);
        }
        let (split, class) = match class.split_once('/') {
            Some((split, class)) if split_up => (Some(Cow::from(split.to_owned())), class),
            _ => (None, class),
        };
        records.push(Record {
            path: path.to_owned(),
            label: (!flat).then(|| class.to_owned()),
            split,
            ..Record::default()
        });
    }
    if let Some(example) = loose.first() {
        return Err(Error::Layout {
            path: tree.name.clone(),
            problem: format!(
                "{} of {} images lie beside the class folders, `{example}` for one",
                loose.len(),
                records.len(),
            ),
            hint: "put every image into the folder of its class, or all into one folder",
        });
    }
    Ok(Listing { records, skipped, ..Listing::default() })
}
