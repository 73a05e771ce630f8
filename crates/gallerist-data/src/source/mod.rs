//! Where images come from: folders, zip archives, manifests and single files.

mod archive;
mod folder;
mod manifest;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::decode::{MAX_FILE_BYTES, decode};
use crate::error::Error;
use crate::image::Image;
use crate::random::Random;
use archive::Archive;

/// A file of this name at the top of a folder or archive is used as its manifest.
const MANIFEST: &str = "manifest.csv";

/// Files that are taken for images when a folder or an archive is listed.
const EXTENSIONS: [&str; 8] = ["png", "jpg", "jpeg", "gif", "bmp", "webp", "tif", "tiff"];

/// What to take from a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Only the rows of a manifest whose `split` column has this value.
    pub split: Option<String>,
    /// Only the first so many classes, in the order of their names.
    pub max_classes: Option<usize>,
    /// Only the first so many images (after `max_classes`).
    pub max_images: Option<usize>,
}

/// Images with their paths, labels and cameras; nothing is decoded until asked for.
///
/// # Sources
///
/// * **A folder of class folders**, nested as deep as you like. The class of an
///   image is the path of its folder, without the leading folders that all
///   images share: `images_background/Greek/character07/x.png` belongs to class
///   `Greek/character07`. Images both in class folders and directly beside them
///   are refused.
/// * **A flat folder**: all images in one folder, and no labels.
/// * **A CSV manifest** with the header `path,label` and optionally `camera` and
///   `split`; paths are relative to the manifest. A file called `manifest.csv`
///   at the top of a folder or archive is used in place of the folder layout.
/// * **A zip archive** of any of these, read in place. Entries are stored or
///   deflated, checked against their CRC-32 and limited to [`MAX_FILE_BYTES`].
/// * **A single image file**: one image without a label.
///
/// Files are taken for images by their extension (png, jpg, jpeg, gif, bmp,
/// webp, tif, tiff); others are counted in [`ImageSet::skipped`]. Hidden files
/// and `__MACOSX` are ignored. A manifest's files are taken whatever their name.
///
/// # Order
///
/// Sorted by the bytes of the path; a manifest keeps its own order; several
/// sources follow each other as given. Labels number the classes in the byte
/// order of their names, from 0, without gaps.
#[derive(Clone)]
pub struct ImageSet {
    name: Arc<str>,
    roots: Arc<Vec<Root>>,
    items: Vec<Item>,
    labels: Option<Vec<u32>>,
    class_names: Vec<String>,
    cameras: Option<Vec<String>>,
    skipped: usize,
    turned: bool,
}

/// Where the bytes are.
enum Root {
    Folder(PathBuf),
    Zip(Archive, PathBuf),
}

#[derive(Clone)]
struct Item {
    root: u32,
    path: Arc<str>,
    /// Quarter turns, counter-clockwise.
    turn: u8,
}

/// One image as a source lists it.
struct Listed {
    path: String,
    label: Option<String>,
    camera: Option<String>,
}

impl ImageSet {
    /// Opens one source.
    ///
    /// # Errors
    ///
    /// When there is nothing at the path, when it holds no image, and when its
    /// layout, manifest or archive contradicts itself.
    pub fn open(path: impl AsRef<Path>) -> Result<ImageSet, Error> {
        ImageSet::open_with(&[path], &OpenOptions::default())
    }

    /// Opens several sources as one set, whole or in part.
    ///
    /// Classes of the same name are the same class. Either all sources have
    /// labels or none has; the same holds for cameras.
    ///
    /// # Errors
    ///
    /// As [`ImageSet::open`], and when `options` leave no image.
    ///
    /// # Panics
    ///
    /// If `paths` is empty.
    pub fn open_with(paths: &[impl AsRef<Path>], options: &OpenOptions) -> Result<ImageSet, Error> {
        assert!(!paths.is_empty(), "no path to open an image set from");
        let mut roots = Vec::new();
        let mut items = Vec::new();
        let mut listed = Vec::new();
        let mut skipped = 0;
        for path in paths {
            let (root, found, other) = open_one(path.as_ref(), options.split.as_deref())?;
            let number = roots.len() as u32;
            roots.push(root);
            skipped += other;
            for entry in found {
                items.push(Item { root: number, path: entry.path.as_str().into(), turn: 0 });
                listed.push(entry);
            }
        }
        let mut name = paths[0].as_ref().display().to_string();
        if paths.len() > 1 {
            name.push_str(&format!(" and {} more", paths.len() - 1));
        }
        u32::try_from(items.len()).map_err(|_| Error::Selection {
            path: name.clone(),
            problem: format!("{} images are more than 2^32", items.len()),
            hint: None,
        })?;
        let labels = all_or_none(&name, "labels", listed.iter_mut().map(|l| l.label.take()))?;
        let cameras = all_or_none(&name, "cameras", listed.iter_mut().map(|l| l.camera.take()))?;
        let (labels, class_names) = match labels {
            None => (None, Vec::new()),
            Some(labels) => {
                let (ids, names) = encode(labels);
                (Some(ids), names)
            }
        };
        let set = ImageSet {
            name: name.into(),
            roots: Arc::new(roots),
            items,
            labels,
            class_names,
            cameras,
            skipped,
            turned: false,
        };
        set.limited(options)
    }

    fn limited(self, options: &OpenOptions) -> Result<ImageSet, Error> {
        if options.max_classes.is_none() && options.max_images.is_none() {
            return Ok(self);
        }
        if let Some(limit) = [options.max_classes, options.max_images].into_iter().flatten().min()
            && limit == 0
        {
            return Err(Error::Config {
                field: if options.max_classes == Some(0) { "max_classes" } else { "max_images" },
                wanted: "at least 1",
                found: "0".to_owned(),
            });
        }
        let classes = match options.max_classes {
            None => usize::MAX,
            Some(_) if self.labels.is_none() => {
                return Err(self.no_labels("a limit on the classes"));
            }
            Some(n) => n,
        };
        let label = |i: usize| self.labels.as_ref().map_or(0, |l| l[i] as usize);
        let kept: Vec<u32> = (0..self.len())
            .filter(|&i| label(i) < classes)
            .take(options.max_images.unwrap_or(usize::MAX))
            .map(|i| i as u32)
            .collect();
        Ok(self.subset(&kept))
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True for a subset of no images; an opened set has at least one.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What the set was opened from, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One class number per image, or `None` for a set without labels.
    pub fn labels(&self) -> Option<&[u32]> {
        self.labels.as_deref()
    }

    /// Names of the classes by their number; empty without labels.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// One camera per image, where a manifest names them.
    pub fn cameras(&self) -> Option<&[String]> {
        self.cameras.as_deref()
    }

    /// Files that were skipped because their extension is not an image's.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Path of image `i` relative to its source, with `/` between the parts:
    /// the same for a folder and for a zip of that folder's contents.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`ImageSet::len`]; so for all methods that take an index.
    pub fn path(&self, i: usize) -> &str {
        &self.items[i].path
    }

    /// Where image `i` is, for messages: the source and the path in it.
    pub fn location(&self, i: usize) -> String {
        let item = &self.items[i];
        match &self.roots[item.root as usize] {
            Root::Folder(root) => root.join(&*item.path).display().to_string(),
            Root::Zip(_, file) => format!("{}/{}", file.display(), item.path),
        }
    }

    /// Quarter turns, counter-clockwise, that [`ImageSet::decode`] applies to
    /// image `i`: 0 but for [`ImageSet::with_rotation_classes`].
    pub fn quarter_turns(&self, i: usize) -> u8 {
        self.items[i].turn
    }

    /// The bytes of image `i`'s file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when it cannot be read, [`Error::Decode`] when it is larger
    /// than [`MAX_FILE_BYTES`] or damaged in its archive.
    pub fn read(&self, i: usize) -> Result<Vec<u8>, Error> {
        let item = &self.items[i];
        match &self.roots[item.root as usize] {
            Root::Folder(root) => read_limited(&root.join(&*item.path)),
            Root::Zip(archive, _) => archive.read(&item.path),
        }
    }

    /// Image `i`, upright, with 1 or 3 channels as its file has. See [`decode`](crate::decode()).
    ///
    /// # Errors
    ///
    /// As [`ImageSet::read`] and [`decode`](crate::decode()).
    pub fn decode(&self, i: usize) -> Result<Image, Error> {
        let image = decode(&self.read(i)?, &self.location(i))?;
        Ok(match self.items[i].turn {
            0 => image,
            turn => image.rotate(turn),
        })
    }

    /// The images at `indices`, in that order. Classes are numbered anew, so
    /// that labels have no gaps; their names stay.
    pub fn subset(&self, indices: &[u32]) -> ImageSet {
        let pick = |i: &u32| *i as usize;
        let mut new_ids = vec![u32::MAX; self.class_names.len()];
        let mut class_names = Vec::new();
        let labels = self.labels.as_ref().map(|labels| {
            for i in indices {
                new_ids[labels[pick(i)] as usize] = 0;
            }
            for (id, name) in new_ids.iter_mut().zip(&self.class_names) {
                if *id == 0 {
                    *id = class_names.len() as u32;
                    class_names.push(name.clone());
                }
            }
            indices.iter().map(|i| new_ids[labels[pick(i)] as usize]).collect()
        });
        ImageSet {
            name: self.name.clone(),
            roots: self.roots.clone(),
            items: indices.iter().map(|i| self.items[pick(i)].clone()).collect(),
            labels,
            class_names,
            cameras: self
                .cameras
                .as_ref()
                .map(|cameras| indices.iter().map(|i| cameras[pick(i)].clone()).collect()),
            skipped: self.skipped,
            turned: self.turned,
        }
    }

    /// Splits the set into two without a common class: the larger part and the
    /// held-out part.
    ///
    /// The held-out part has `fraction` of the classes, rounded, but at least
    /// one, and leaves at least one. Which ones is a function of the seed and
    /// the number of classes. Both parts keep the order of the images.
    ///
    /// # Errors
    ///
    /// Without labels, with fewer than two classes, and for a fraction outside
    /// (0, 1). Rotation classes are added after splitting, never before: a
    /// character and its turned copy must not end up on both sides.
    pub fn split_classes(&self, fraction: f64, seed: u64) -> Result<(ImageSet, ImageSet), Error> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::Config {
                field: "fraction",
                wanted: "between 0 and 1",
                found: fraction.to_string(),
            });
        }
        let labels = self.labels().ok_or_else(|| self.no_labels("a split by classes"))?;
        let classes = self.class_names.len();
        if classes < 2 || self.turned {
            return Err(Error::Selection {
                path: self.name.to_string(),
                problem: if self.turned {
                    "rotation classes cannot be split".to_owned()
                } else {
                    format!("a split by classes needs 2 classes, and there is {classes}")
                },
                hint: self.turned.then(|| "split first, then add the rotation classes".to_owned()),
            });
        }
        let held_out = ((classes as f64 * fraction).round() as usize).clamp(1, classes - 1);
        let order = Random::new(seed, "split classes", 0, 0).permutation(classes);
        let held_out: HashSet<u32> = order[..held_out].iter().copied().collect();
        let (mut rest, mut held) = (Vec::new(), Vec::new());
        for (i, label) in labels.iter().enumerate() {
            if held_out.contains(label) { &mut held } else { &mut rest }.push(i as u32);
        }
        Ok((self.subset(&rest), self.subset(&held)))
    }

    /// The set four times over: as it is, and turned by 90, 180 and 270 degrees
    /// counter-clockwise, every turn of a class a class of its own (Santoro et
    /// al., 2016, for Omniglot).
    ///
    /// Image `i` turned by `t` quarters has index `t * len + i`, and class `c`
    /// becomes `t * classes + c`, called `name@90`, `name@180` and `name@270`.
    ///
    /// # Errors
    ///
    /// Without labels, and for a set that has rotation classes already.
    pub fn with_rotation_classes(&self) -> Result<ImageSet, Error> {
        let labels = self.labels().ok_or_else(|| self.no_labels("rotation classes"))?;
        if self.turned || self.len() > u32::MAX as usize / 4 {
            return Err(Error::Selection {
                path: self.name.to_string(),
                problem: if self.turned {
                    "it has rotation classes already".to_owned()
                } else {
                    format!("four times {} images are more than 2^32", self.len())
                },
                hint: None,
            });
        }
        let classes = self.class_names.len() as u32;
        let turns = 0..4u8;
        let name = |turn: u8, name: &String| match turn {
            0 => name.clone(),
            turn => format!("{name}@{}", u32::from(turn) * 90),
        };
        Ok(ImageSet {
            items: turns
                .clone()
                .flat_map(|turn| self.items.iter().map(move |item| Item { turn, ..item.clone() }))
                .collect(),
            labels: Some(
                turns
                    .clone()
                    .flat_map(|turn| labels.iter().map(move |l| l + u32::from(turn) * classes))
                    .collect(),
            ),
            class_names: turns.flat_map(|turn| self.class_names.iter().map(move |n| name(turn, n))).collect(),
            cameras: self.cameras.as_ref().map(|c| (0..4).flat_map(|_| c.iter().cloned()).collect()),
            turned: true,
            ..self.clone()
        })
    }

    pub(crate) fn no_labels(&self, purpose: &'static str) -> Error {
        Error::NoLabels { purpose, path: self.name.to_string() }
    }
}

impl std::fmt::Debug for ImageSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageSet")
            .field("name", &self.name)
            .field("images", &self.len())
            .field("classes", &self.class_names.len())
            .finish()
    }
}

/// Lists one source: its root, its images and the number of skipped files.
fn open_one(path: &Path, split: Option<&str>) -> Result<(Root, Vec<Listed>, usize), Error> {
    let name = path.display().to_string();
    let kind = fs::metadata(path).map_err(|e| Error::io("open", name.clone(), e))?;
    if kind.is_dir() {
        let files = folder::list(path)?;
        let root = Root::Folder(path.to_owned());
        let (listed, skipped) = if files.iter().any(|f| f == MANIFEST) {
            let manifest = path.join(MANIFEST);
            let name = manifest.display().to_string();
            let exists = |file: &str| path.join(file).is_file();
            (from_manifest(&read_limited(&manifest)?, &name, None, split, exists)?, 0)
        } else {
            from_layout(files, &name, split)?
        };
        return Ok((root, listed, skipped));
    }
    match extension(&name).as_str() {
        "csv" => {
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let exists = |file: &str| folder.join(file).is_file();
            let listed = from_manifest(&read_limited(path)?, &name, None, split, exists)?;
            Ok((Root::Folder(folder), listed, 0))
        }
        "zip" => {
            let archive = Archive::open(path)?;
            let files = archive.list();
            let (listed, skipped) = match archive_manifest(&files) {
                Some(manifest) => {
                    let bytes = archive.read(&manifest)?;
                    let top = manifest.rsplit_once('/').map_or("", |(top, _)| top);
                    let name = format!("{name}/{manifest}");
                    (from_manifest(&bytes, &name, Some(top), split, |f| archive.contains(f))?, 0)
                }
                None => from_layout(files, &name, split)?,
            };
            Ok((Root::Zip(archive, path.to_owned()), listed, skipped))
        }
        _ => {
            refuse_split(&name, split)?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let Some(file) = path.file_name().and_then(|f| f.to_str()) else {
                return Err(Error::Layout {
                    path: name,
                    problem: "its name is not UTF-8".to_owned(),
                    hint: "rename the file",
                });
            };
            let listed = Listed { path: file.to_owned(), label: None, camera: None };
            Ok((Root::Folder(folder), vec![listed], 0))
        }
    }
}

/// The manifest of an archive: at its top, or in the one folder that holds all.
fn archive_manifest(files: &[String]) -> Option<String> {
    if files.iter().any(|f| f == MANIFEST) {
        return Some(MANIFEST.to_owned());
    }
    let (top, _) = files.first()?.split_once('/')?;
    let inside = |f: &String| f.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
    let manifest = format!("{top}/{MANIFEST}");
    (files.iter().all(inside) && files.contains(&manifest)).then_some(manifest)
}

/// Images of a folder or archive, their classes told by their folders.
fn from_layout(files: Vec<String>, name: &str, split: Option<&str>) -> Result<(Vec<Listed>, usize), Error> {
    refuse_split(name, split)?;
    let total = files.len();
    let mut paths: Vec<String> =
        files.into_iter().filter(|f| EXTENSIONS.contains(&extension(f).as_str())).collect();
    let skipped = total - paths.len();
    if paths.is_empty() {
        return Err(Error::NoImages { path: name.to_owned(), skipped });
    }
    paths.sort_unstable();
    let folder_of = |path: &str| path.rsplit_once('/').map_or(0, |(folder, _)| folder.len());
    // Length of the leading folders shared by all images, with their last `/`.
    let first = &paths[0][..folder_of(&paths[0])];
    let flat = paths.iter().all(|p| &p[..folder_of(p)] == first);
    let mut shared = if first.is_empty() { 0 } else { first.len() + 1 };
    for path in &paths {
        while !path.starts_with(&paths[0][..shared]) {
            shared = paths[0][..shared - 1].rfind('/').map_or(0, |at| at + 1);
        }
    }
    let listed: Vec<Listed> = paths
        .into_iter()
        .map(|path| {
            let folder = folder_of(&path);
            let label = (!flat).then(|| path.get(shared..folder).unwrap_or("").to_owned());
            Listed { path, label, camera: None }
        })
        .collect();
    let loose = listed.iter().filter(|l| l.label.as_deref() == Some("")).count();
    if loose > 0 {
        let example = listed.iter().find(|l| l.label.as_deref() == Some("")).expect("counted");
        return Err(Error::Layout {
            path: name.to_owned(),
            problem: format!(
                "{loose} of {} images lie beside the class folders, `{}` for one",
                listed.len(),
                example.path
            ),
            hint: "put every image into the folder of its class, or all into one folder",
        });
    }
    Ok((listed, skipped))
}

/// Images of a manifest; `top` is the folder of an archive in which it lies.
fn from_manifest(
    bytes: &[u8],
    name: &str,
    top: Option<&str>,
    split: Option<&str>,
    exists: impl Fn(&str) -> bool,
) -> Result<Vec<Listed>, Error> {
    let rows = manifest::parse(bytes, name)?;
    if let Some(split) = split {
        let known: BTreeMap<&str, usize> =
            rows.iter().filter_map(|r| r.split.as_deref()).fold(BTreeMap::new(), |mut m, s| {
                *m.entry(s).or_default() += 1;
                m
            });
        if !known.contains_key(split) {
            let known: Vec<String> = known.iter().map(|(s, n)| format!("`{s}` ({n})")).collect();
            return Err(Error::Selection {
                path: name.to_owned(),
                problem: if known.is_empty() {
                    format!("the split `{split}` was asked for, and there is no column `split`")
                } else {
                    format!("no row has the split `{split}`; there are {}", known.join(", "))
                },
                hint: None,
            });
        }
    }
    let mut listed = Vec::new();
    let mut seen = HashMap::new();
    for row in rows.into_iter().filter(|r| split.is_none() || r.split.as_deref() == split) {
        let fault = |problem| Error::Manifest { path: name.to_owned(), line: Some(row.line), problem };
        let path = match top {
            None => row.path.clone(),
            Some(top) => manifest::resolve(top, &row.path)
                .ok_or_else(|| fault(format!("`{}` leads out of the archive", row.path)))?,
        };
        // Twice the same image would be its own best match.
        if let Some(before) = seen.insert(path.clone(), row.line) {
            return Err(fault(format!("`{}` is listed already, on line {before}", row.path)));
        }
        if !exists(&path) {
            return Err(fault(format!("there is no file `{}`", row.path)));
        }
        listed.push(Listed { path, label: row.label, camera: row.camera });
    }
    if listed.is_empty() {
        return Err(Error::NoImages { path: name.to_owned(), skipped: 0 });
    }
    Ok(listed)
}

fn refuse_split(name: &str, split: Option<&str>) -> Result<(), Error> {
    match split {
        None => Ok(()),
        Some(split) => Err(Error::Selection {
            path: name.to_owned(),
            problem: format!("the split `{split}` was asked for, and only a manifest has splits"),
            hint: Some("open the folder of the split, or write a manifest".to_owned()),
        }),
    }
}

/// A value for every image, or for none.
fn all_or_none(
    name: &str,
    what: &str,
    values: impl Iterator<Item = Option<String>>,
) -> Result<Option<Vec<String>>, Error> {
    let values: Vec<Option<String>> = values.collect();
    let total = values.len();
    let known: Vec<String> = values.into_iter().flatten().collect();
    match known.len() {
        0 => Ok(None),
        n if n == total => Ok(Some(known)),
        n => Err(Error::Layout {
            path: name.to_owned(),
            problem: format!("{n} of {total} images have {what}, the others have none"),
            hint: "open sources with labels and sources without in two commands",
        }),
    }
}

/// Class numbers in the byte order of the names.
fn encode(labels: Vec<String>) -> (Vec<u32>, Vec<String>) {
    let mut ids: BTreeMap<&str, u32> = labels.iter().map(|l| (l.as_str(), 0)).collect();
    for (number, id) in ids.values_mut().enumerate() {
        *id = number as u32;
    }
    let numbers = labels.iter().map(|l| ids[l.as_str()]).collect();
    let names = ids.keys().map(|&name| name.to_owned()).collect();
    (numbers, names)
}

/// A whole file, its size checked before memory is taken for it.
fn read_limited(path: &Path) -> Result<Vec<u8>, Error> {
    let name = || path.display().to_string();
    let failed = |e| Error::io("read", name(), e);
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let too_large =
        || Error::Decode { path: name(), problem: format!("a file may have {} MiB", MAX_FILE_BYTES >> 20) };
    if size > MAX_FILE_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(size as usize + 1);
    // A pipe or a growing file has more than its size says.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

/// The extension in lower case, or nothing.
fn extension(path: &str) -> String {
    let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
    file.rsplit_once('.').map_or(String::new(), |(_, ext)| ext.to_ascii_lowercase())
}

/// Hidden files, and what one operating system adds to its archives.
fn is_ignored_name(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX"
}

fn is_ignored(path: &str) -> bool {
    path.split('/').any(is_ignored_name)
}
