//! A CSV or TSV manifest, alone or as `manifest.csv` or `manifest.tsv` at the top of a folder or archive.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::spec::Spec;
use crate::error::Error;
use crate::source::manifest;
use crate::source::names::{is_image, split_name};
use crate::source::record::{ImageListing, ImageRecord, ListedColumn};
use crate::source::tree::{Root, Tree};
use crate::text::{counted, some_of};

/// A file of one of these names is used as the manifest of its folder or archive.
const FILES: [&str; 2] = ["manifest.csv", "manifest.tsv"];

pub(super) static SPEC: Spec = Spec {
    name: "manifest",
    title: "a manifest",
    wants: "`manifest.csv` or `manifest.tsv` at its top",
    find,
    read,
    check_files,
    splits: &[],
    unions: &[],
    protocol: None,
    published: &[],
};

/// The manifest at the top, or in the one folder that holds all of an archive.
fn find(tree: &Tree) -> Option<String> {
    FILES.iter().find_map(|file| find_file(tree, file))
}

fn find_file(tree: &Tree, file: &str) -> Option<String> {
    let top = match (&tree.root, tree.files().first()?.split_once('/')) {
        _ if tree.files().iter().any(|f| f == file) => String::new(),
        (Root::Zip(..) | Root::Tar(..), Some((top, _))) => format!("{top}/"),
        _ => return None,
    };
    let manifest = format!("{top}{file}");
    (tree.below(&top).len() == tree.files().len() && tree.contains(&manifest)).then_some(manifest)
}

/// Images of the manifest at `at`.
fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let name = tree.location(at);
    let top = match tree.root {
        Root::Zip(..) | Root::Tar(..) => Some(at.rsplit_once('/').map_or("", |(top, _)| top)),
        _ => None,
    };
    let mut records = Vec::new();
    let mut manifest = manifest::parse(&tree.read_manifest(at)?, &name)?;
    if tree.shard.is_some() {
        // The images of a shard may be of one split, and those of another shard of several.
        manifest.columns.splice(0..0, split_column(&manifest.rows));
    }
    for row in manifest.rows {
        if gallerist_store::is_address(&row.path) {
            return Err(Error::Manifest {
                path: name,
                line: Some(row.line),
                problem: format!(
                    "`{}` is an address, which is not read from a manifest: put the manifest into the store, and give paths \
                     relative to it",
                    row.path
                ),
            });
        }
        let in_tree = |path: &str| match top {
            None => Ok(manifest::tidy_path(path, |path| tree.contains(path))),
            Some(top) => manifest::resolve(top, &path.replace('\\', "/")).ok_or_else(|| Error::Manifest {
                path: name.clone(),
                line: Some(row.line),
                problem: format!("`{}` leads out of the archive", row.path),
            }),
        };
        // What a store has is not known before it is read.
        let is_known = !matches!(tree.root, Root::Objects(..));
        let spaced = row.spaced_path.as_deref().filter(|_| is_known).map(in_tree).transpose()?;
        let path = match spaced.filter(|path| tree.contains(path)) {
            Some(path) => path,
            None => in_tree(&row.path)?,
        };
        records.push(ImageRecord {
            path,
            label: row.label,
            camera: row.camera,
            split: row.split.map(Into::into),
            line: Some(row.line),
            ..ImageRecord::default()
        });
    }
    if records.is_empty() && tree.shard.is_none() {
        return Err(Error::NoImages {
            path: name,
            problem: Some("the manifest has a header and no rows".to_owned()),
            hint: Some("write a row for each image below the header".to_owned()),
        });
    }
    let mut listing = ImageListing { columns: manifest.columns, ..ImageListing::default() };
    count_unlisted(tree, at, &records, &mut listing);
    Ok(ImageListing { records, ..listing })
}

/// Counts the files next to the manifest `at` that it does not list, and notes the images among them.
fn count_unlisted(tree: &Tree, at: &str, records: &[ImageRecord], listing: &mut ImageListing) {
    let listed: HashSet<&str> = records.iter().map(|record| record.path.as_str()).collect();
    let unlisted =
        || tree.files().iter().map(String::as_str).filter(|path| *path != at && !listed.contains(path));
    let images: Vec<&str> = unlisted().filter(|path| is_image(path)).collect();
    listing.skipped = unlisted().count() - images.len();
    let Some(first) = images.first() else { return };
    let are = if images.len() == 1 { "is" } else { "are" };
    listing.notes.push(format!(
        "`{}` lists {}; {} next to it {are} no part of the set, `{first}` for one",
        tree.location(at),
        counted(records.len(), "image", "images"),
        counted(images.len(), "image", "images")
    ));
}

/// The splits as a further column, if the manifest has them.
fn split_column(rows: &[manifest::Row]) -> Option<ListedColumn> {
    let name = |split: &String| split_name(split).map_or_else(|| split.clone(), str::to_owned);
    let values: Option<Vec<String>> = rows.iter().map(|row| row.split.as_ref().map(name)).collect();
    values.filter(|values| !values.is_empty()).map(|values| ListedColumn { name: "split".to_owned(), values })
}

/// Refuses a manifest that names a file twice, or files that are not there. In a shard, files that are not there are broken images,
/// unless all are missing: one image that is removed does not stop a shard of many, which a scheduler would start again.
fn check_files(tree: &Tree, listing: &mut ImageListing) -> Result<(), Error> {
    let name = || find(tree).map_or_else(|| tree.name.clone(), |at| tree.location(&at));
    let fault = |line, problem| Error::Manifest { path: name(), line, problem };
    let mut seen = HashMap::new();
    for record in &listing.records {
        // Twice the same image would be its own best match.
        let file = match &tree.root {
            Root::Folder(folder) => Cow::from(manifest::absolute(folder, &record.path)),
            Root::Objects(objects) => Cow::from(manifest::absolute(objects.address(), &record.path)),
            _ => Cow::from(Path::new(&record.path)),
        };
        if let Some((path, line)) = seen.insert(file, (&record.path, record.line)) {
            let also = if *path == record.path { String::new() } else { format!(" as `{path}`") };
            let problem = format!("`{}` is listed already{also}, on line {}", record.path, line.unwrap_or(0));
            return Err(fault(record.line, problem));
        }
    }
    let mut missing = listing.records.iter().filter(|r| !tree.contains(&r.path));
    let Some(first) = missing.next() else { return Ok(()) };
    let further: Vec<&str> = missing.map(|record| record.path.as_str()).collect();
    if tree.shard.is_some() && further.len() + 1 < listing.records.len() {
        return Ok(());
    }
    let mut problem = format!("there is no file `{}`", first.path);
    if !further.is_empty() {
        problem += &format!("; {} further files are missing: {}", further.len(), some_of(&further));
    }
    Err(fault(first.line, problem))
}
