//! What the person re-identification layouts share: the folders `bounding_box_train`, `query` and
//! `bounding_box_test`, and names that begin with identity and camera, `0002_c1…`.

use crate::error::Error;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::tree::Tree;

pub(super) const SPLITS: &[&str] = &["train", "query", "gallery"];
pub(super) const UNIONS: &[(&str, &[&str])] = &[("test", &["query", "gallery"])];

const FOLDERS: [(&str, &str); 3] =
    [("train", "bounding_box_train/"), ("query", "query/"), ("gallery", "bounding_box_test/")];

/// Junk (parts of persons, kept out of ranked lists) and distractors (no person of the queries).
pub(super) fn is_no_identity(label: &str) -> bool {
    label == "-1" || label == "0000"
}

/// The folders with two of the three subfolders and with image names that `fits` accepts: it gets the part after the
/// number of the camera.
pub(super) fn find(tree: &Tree, fits: fn(&str) -> bool) -> Vec<&str> {
    let mut places = tree.folders_with("bounding_box_train/");
    places.extend(tree.folders_with("bounding_box_test/"));
    places.sort_unstable();
    places.dedup();
    places.retain(|place| {
        let parts = FOLDERS.map(|(_, folder)| {
            tree.images(&format!("{place}{folder}")).next().and_then(|path| parse(file_name(path)))
        });
        parts.iter().flatten().count() >= 2 && parts.iter().flatten().all(|(_, _, rest)| fits(rest))
    });
    places
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Identity, camera and the rest of a file's name.
fn parse(name: &str) -> Option<(&str, &str, &str)> {
    let (identity, rest) = name.split_once("_c")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let number = identity.strip_prefix('-').unwrap_or(identity);
    let ok = digits > 0 && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    ok.then_some((identity, &rest[..digits], &rest[digits..]))
}

pub(super) fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let mut records = Vec::new();
    for (split, folder) in FOLDERS {
        for path in tree.images(&format!("{at}{folder}")) {
            let (identity, camera, _) = parse(file_name(path)).ok_or_else(|| Error::Layout {
                path: tree.name.clone(),
                problem: format!("the name of `{path}` does not begin with an identity and a camera"),
                hint: "names begin like `0002_c1`; junk like `-1_c1`",
            })?;
            records.push(ImageRecord {
                path: path.to_owned(),
                label: Some(identity.to_owned()),
                camera: Some(camera.to_owned()),
                split: Some(split.into()),
                ..ImageRecord::default()
            });
        }
    }
    Ok(ImageListing { records, ..ImageListing::default() })
}
