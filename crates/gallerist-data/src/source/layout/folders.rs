//! Class folders, or a flat folder.
//!
//! The class of an image is the path of its folder without the leading folders that all share; in a set with a single
//! folder of images, the name of this folder ([`the_only_class`]). Folders called
//! `train`, `test` and the like are splits by the rule of [`ImageSet`](crate::ImageSet).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::missing;
use super::spec::Spec;
use crate::error::Error;
use crate::source::names::split_name;
use crate::source::record::{ImageListing, ImageRecord, LoneSplit};
use crate::source::tree::Tree;
use crate::text::counted;

pub(super) static SPEC: Spec = Spec {
    name: "folders",
    title: "class folders",
    wants: "folder",
    find: |_| Some(String::new()),
    read,
    check_files,
    splits: &[],
    unions: &[],
    protocol: None,
    published: &[],
};

fn read(tree: &Tree, _: &str) -> Result<ImageListing, Error> {
    tree.refuse_nested_archives()?;
    let paths: Vec<&str> = tree.images("").collect();
    let skipped = tree.files().len() - paths.len();
    if paths.is_empty() {
        return Err(Error::no_images(&tree.name, skipped, tree.unread_pictures()));
    }
    let folder_of = |path: &str| path.rsplit_once('/').map_or(0, |(folder, _)| folder.len());
    // Length of the leading folders shared by all images, with their last `/`.
    let first = &paths[0][..folder_of(paths[0])];
    let flat = paths.iter().all(|p| &p[..folder_of(p)] == first);
    let only_class = if flat { the_only_class(first, tree.root.path()) } else { None };
    let mut shared = if first.is_empty() { 0 } else { first.len() + 1 };
    for path in &paths {
        while !path.starts_with(&paths[0][..shared]) {
            shared = paths[0][..shared - 1].rfind('/').map_or(0, |at| at + 1);
        }
    }
    let splits_in = splits_in(&paths, &paths[0][..shared]);
    let mut listing = ImageListing { skipped, ..ImageListing::default() };
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths.iter().copied() {
        let (split, class) = match splits_in {
            // The folder of an image below the shared ones; empty next to the class folders.
            None => (None, &path[shared..folder_of(path).max(shared)]),
            Some(parent) => {
                let split = path.strip_prefix(parent).and_then(|rest| {
                    let (top, below) = rest.split_once('/')?;
                    Some((split_name(top)?, below))
                });
                let Some((split, below)) = split else {
                    // Named by what is next to the splits, or else by what is at the top of the set.
                    let from = if path.starts_with(parent) { parent.len() } else { shared };
                    let end = path[from..].find('/').map_or(path.len(), |at| from + at);
                    *left_out.entry(&path[..end]).or_default() += 1;
                    continue;
                };
                (Some(Cow::from(split)), &below[..folder_of(below)])
            }
        };
        listing.records.push(ImageRecord {
            path: path.to_owned(),
            label: if flat { only_class.map(str::to_owned) } else { Some(class.to_owned()) },
            split,
            ..ImageRecord::default()
        });
    }
    if splits_in.is_none() {
        let folders = only_class.map_or(&paths[0][..shared], |class| &first[..first.len() - class.len()]);
        listing.lone_split = lone_split(folders);
    }
    listing.left_out = left_out.into_iter().map(|(folder, images)| (folder.to_owned(), images)).collect();
    listing.notes.extend(left_out_note(&listing));
    listing.notes.extend(only_class.map(|class| {
        let images = counted(listing.records.len(), "image", "images");
        format!(
            "`{}` has one folder of images, `{first}`: {images} of the class `{class}`; to open them without a class, give \
             the folder itself",
            tree.name
        )
    }));
    Ok(listing)
}

/// Refuses images next to class folders; their label is empty. Where a split was chosen that has no class folders, its images have
/// no class.
fn check_files(tree: &Tree, listing: &mut ImageListing) -> Result<(), Error> {
    let is_loose = |record: &&ImageRecord| record.label.as_deref() == Some("");
    let (loose, all) = (listing.records.iter().filter(is_loose).count(), listing.records.len());
    if loose == all {
        listing.records.iter_mut().for_each(|record| record.label = None);
    } else if let Some(example) = listing.records.iter().find(is_loose) {
        return Err(Error::Layout {
            path: tree.name.clone(),
            problem: format!(
                "{loose} of {all} images are next to the class folders, `{}` for one",
                example.path
            ),
            hint: match listing.records.iter().all(|record| record.split == example.split) {
                true => "put every image into the folder of its class, or all into one folder",
                false => {
                    "give the folder of a split whose images are all in class folders, or choose the split (--split; \
                     `data.train_split`); else put every image into the folder of its class"
                }
            },
        });
    }
    missing::leave_out(tree, listing)
}

/// The first of the folders that all images share that has the name of a split.
fn lone_split(shared: &str) -> Option<LoneSplit> {
    let mut below = shared;
    while let Some((folder, rest)) = below.split_once('/') {
        if let Some(split) = split_name(folder) {
            return Some(LoneSplit { split, folders: rest.to_owned() });
        }
        below = rest;
    }
    None
}

/// Names of folders that say what is in them, and are no class, in lower case.
const CONTENTS: [&str; 9] = ["images", "image", "img", "imgs", "photos", "pictures", "jpg", "jpeg", "png"];

/// The class of a set whose images are all in the folder `folder`, relative to the set at `root`: its name, unless it
/// names a split or the kind of its content, or the set itself, as in an archive of a folder. `photos/shoes/1.jpg` in
/// `photos` is of the class `shoes`.
fn the_only_class<'a>(folder: &'a str, root: &Path) -> Option<&'a str> {
    let name = folder.rsplit('/').next().filter(|name| !name.is_empty())?;
    let is_contents = CONTENTS.iter().any(|contents| name.eq_ignore_ascii_case(contents));
    let is_set = root.file_stem().is_some_and(|stem| stem == name);
    (split_name(name).is_none() && !is_contents && !is_set).then_some(name)
}

/// The folder, with its last `/`, that holds the folders that are splits. `shared`: the folders that all images
/// share.
fn splits_in<'a>(paths: &[&'a str], shared: &'a str) -> Option<&'a str> {
    // Every image in a class folder in a split: any two splits will do.
    let in_split = |path: &&str| {
        let parts: Vec<&str> = path[shared.len()..].splitn(3, '/').collect();
        matches!(parts[..], [split, _, _] if split_name(split).is_some())
    };
    if paths.iter().all(in_split) {
        return Some(shared);
    }
    // Otherwise one of them has to be `train`, with class folders. By parent: the splits, and whether they are.
    let mut parents: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
    for path in paths {
        let mut from = 0;
        while let Some(length) = path[from..].find('/') {
            if let Some(split) = split_name(&path[from..from + length]) {
                let has_classes = path[from + length + 1..].contains('/');
                let splits = parents.entry(&path[..from]).or_default();
                *splits.entry(split).or_default() |= has_classes;
            }
            from += length + 1;
        }
    }
    parents.retain(|_, splits| splits.len() > 1 && splits.get("train") == Some(&true));
    let depth = |parent: &str| parent.matches('/').count();
    let least = parents.keys().map(|parent| depth(parent)).min()?;
    let mut shallowest = parents.keys().copied().filter(|parent| depth(parent) == least);
    // Two sets next to each other: the one that is meant is unknown.
    shallowest.next().filter(|_| shallowest.next().is_none())
}

/// What the user should know of the folders next to the splits.
fn left_out_note(listing: &ImageListing) -> Option<String> {
    const SHOWN: usize = 3;
    let left_out = &listing.left_out;
    if left_out.is_empty() {
        return None;
    }
    let splits: BTreeSet<&str> = listing.records.iter().filter_map(|r| r.split.as_deref()).collect();
    let splits: Vec<String> = splits.iter().map(|split| format!("`{split}`")).collect();
    let mut named: Vec<String> = left_out
        .iter()
        .take(SHOWN)
        .map(|(folder, images)| format!("`{folder}` ({})", counted(*images, "image", "images")))
        .collect();
    if left_out.len() > SHOWN {
        named.push(format!("{} more", left_out.len() - SHOWN));
    }
    Some(format!(
        "the folders {} are taken as splits, and what lies next to them is left out: {}",
        splits.join(", "),
        named.join(", ")
    ))
}
