//! CUHK03-NP (the new protocol of 767 and 700 identities): names like `0003_c1_1.png`, once with the
//! boxes of a detector and once with boxes drawn by hand.
//!
//! A folder that holds both is read as `cuhk03_np_detected` unless the other is named.

use super::spec::{Published, Spec};
use super::{missing, person};
use crate::source::tree::Tree;

pub(super) static DETECTED: Spec = Spec {
    name: "cuhk03_np_detected",
    title: "CUHK03-NP (detected)",
    wants: "`bounding_box_train`, `query` and `bounding_box_test` with names like `0003_c1_1.png`, but for hand-drawn boxes",
    find: |tree| find(tree, false),
    read: person::read,
    check_files: missing::leave_out,
    splits: person::SPLITS,
    unions: person::UNIONS,
    protocol: Some("cuhk03"),
    published: &[
        Published::new("train", 7365, 767),
        Published::new("query", 1400, 700),
        Published::new("gallery", 5332, 700),
    ],
};

pub(super) static LABELED: Spec = Spec {
    name: "cuhk03_np_labeled",
    title: "CUHK03-NP (labeled)",
    wants: "`labeled` folder with `bounding_box_train`, `query` and `bounding_box_test`",
    find: |tree| find(tree, true),
    read: person::read,
    check_files: missing::leave_out,
    splits: person::SPLITS,
    unions: person::UNIONS,
    protocol: Some("cuhk03"),
    published: &[
        Published::new("train", 7368, 767),
        Published::new("query", 1400, 700),
        Published::new("gallery", 5328, 700),
    ],
};

/// A place with `label` in its path (or in the name of the source), or without it.
fn find(tree: &Tree, labeled: bool) -> Option<String> {
    let places = person::find(tree, |rest| {
        rest.strip_prefix('_').is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    });
    let says = |place: &&&str| {
        let path = if place.is_empty() { tree.name.as_str() } else { place };
        let folder = path.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(path);
        folder.to_ascii_lowercase().contains("label") == labeled
    };
    places.iter().find(says).map(|place| (*place).to_owned())
}
