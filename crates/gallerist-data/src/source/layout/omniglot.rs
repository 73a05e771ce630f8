//! Omniglot: `images_background/ALPHABET/characterNN/….png` for training and `images_evaluation/…` for
//! test, together or either alone. A character of an alphabet is a class.

use super::missing;
use super::spec::{Published, Spec};
use crate::error::Error;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "omniglot",
    title: "Omniglot",
    wants: "`images_background` or `images_evaluation`",
    find: |tree| {
        let mut images = tree.images("").peekable();
        images.peek()?;
        images.all(|path| part(path).is_some()).then(String::new)
    },
    read,
    check_files: missing::leave_out,
    splits: &["train", "test"],
    unions: &[],
    protocol: Some("omniglot"),
    published: &[Published::new("train", 19_280, 964), Published::new("test", 13_180, 659)],
};

/// Split and class of an image.
fn part(path: &str) -> Option<(&'static str, &str)> {
    [("train", "images_background/"), ("test", "images_evaluation/")].into_iter().find_map(
        |(split, folder)| {
            let at = path.find(folder).filter(|&at| at == 0 || path.as_bytes()[at - 1] == b'/')?;
            let (class, _) = path[at + folder.len()..].rsplit_once('/')?;
            class.contains('/').then_some((split, class))
        },
    )
}

fn read(tree: &Tree, _: &str) -> Result<ImageListing, Error> {
    let records: Vec<ImageRecord> = tree
        .images("")
        .filter_map(|path| {
            let (split, class) = part(path)?;
            Some(ImageRecord {
                path: path.to_owned(),
                label: Some(class.to_owned()),
                split: Some(split.into()),
                ..ImageRecord::default()
            })
        })
        .collect();
    Ok(ImageListing { skipped: tree.files().len() - records.len(), records, ..ImageListing::default() })
}
