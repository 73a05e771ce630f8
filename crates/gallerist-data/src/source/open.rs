//! Opening sources.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::labels::{self, LabelFrom, LabelSets};
use super::layout::{self, Choice, Found, Layout, Record};
use super::tree::{Root, Tree};
use super::{ImageSet, Item, extension};
use crate::error::Error;

/// What to take from a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The layout of the files; `None`: told by the content.
    pub layout: Option<Layout>,
    /// Only the images of this split: `train`, `test`, `query`, `gallery`, as the
    /// [layout](Layout::split_names), the column `split` of a manifest or the names of folders have it.
    pub split: Option<String>,
    /// Where `split` is `None` and the layout has [splits of its own](Layout::split_names), only the
    /// images of this one, unless the source has none of them.
    pub default_split: Option<String>,
    /// Which part of a label counts.
    pub label_from: LabelFrom,
    /// Images cut to their bounding boxes, where the annotations have them.
    pub crop_boxes: bool,
    /// Only the first so many classes, in the order of their names.
    pub max_classes: Option<usize>,
    /// Only the first so many images (after `max_classes`).
    pub max_images: Option<usize>,
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
    /// As [`ImageSet::open`], and when `options` leave no image or ask for what the source does not have.
    ///
    /// # Panics
    ///
    /// If `paths` is empty.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use gallerist_data::{ImageSet, OpenOptions};
    ///
    /// // The layout of Market-1501 is told by its folders.
    /// let split = |name: &str| OpenOptions { split: Some(name.into()), ..Default::default() };
    /// let queries = ImageSet::open_with(&["Market-1501-v15.09.15"], &split("query"))?;
    /// let gallery = ImageSet::open_with(&["Market-1501-v15.09.15"], &split("gallery"))?;
    /// assert!(queries.cameras().is_some());
    /// for note in gallery.notes() {
    ///     eprintln!("{note}"); // what differs from the published counts
    /// }
    /// # Ok::<(), gallerist_data::Error>(())
    /// ```
    pub fn open_with(paths: &[impl AsRef<Path>], options: &OpenOptions) -> Result<ImageSet, Error> {
        assert!(!paths.is_empty(), "no path to open an image set from");
        let mut roots = Vec::new();
        let mut layouts = Vec::new();
        let mut records: Vec<(u32, Record)> = Vec::new();
        let (mut skipped, mut notes, mut missing, mut left_out) = (0, Vec::new(), Vec::new(), Vec::new());
        for path in paths {
            let (root, found) = open_one(path.as_ref(), options)?;
            let number = roots.len() as u32;
            roots.push(root);
            layouts.push(found.layout);
            let mut listing = found.listing;
            skipped += listing.skipped;
            notes.append(&mut listing.notes);
            missing.extend(found.missing);
            left_out.append(&mut listing.left_out);
            records.extend(listing.records.into_iter().map(|record| (number, record)));
        }
        let mut name = paths[0].as_ref().display().to_string();
        if paths.len() > 1 {
            name.push_str(&format!(" and {} more", paths.len() - 1));
        }
        u32::try_from(records.len()).map_err(|_| Error::Selection {
            path: name.clone(),
            problem: format!("{} images are more than 2^32", records.len()),
            hint: None,
        })?;
        if options.crop_boxes && records.iter().all(|(_, r)| r.window.is_none()) {
            return Err(Error::Selection {
                path: name,
                problem: "images cut to their bounding boxes were asked for, and there are no boxes"
                    .to_owned(),
                hint: Some(
                    "of the known layouts, CUB-200-2011, Cars196 and DeepFashion have boxes".to_owned(),
                ),
            });
        }
        let labels = all_or_none(&name, "labels", records.iter_mut().map(|(_, r)| r.label.take()))?;
        let labels = labels.map(|labels| options.label_from.apply(labels, &mut notes));
        let cameras = all_or_none(&name, "cameras", records.iter_mut().map(|(_, r)| r.camera.take()))?;
        let (labels, class_names, label_sets) = match labels {
            None => (None, Vec::new(), None),
            Some(mut labels) => {
                let sets = LabelSets::parse(&mut labels, &name)?;
                let (ids, names) = labels::encode(&labels);
                (Some(ids), names, sets)
            }
        };
        let mut splits = HashMap::new();
        let mut split_names = Vec::new();
        let items = records
            .into_iter()
            .map(|(root, record)| Item {
                root,
                path: record.path.into(),
                turn: 0,
                split: record.split.map(|split| {
                    *splits.entry(split).or_insert_with_key(|split| {
                        split_names.push(split.to_string());
                        split_names.len() as u32 - 1
                    })
                }),
                window: record.window,
            })
            .collect();
        let set = ImageSet {
            name: name.into(),
            roots: Arc::new(roots),
            given: paths.iter().map(|path| path.as_ref().to_owned()).collect(),
            layout: layouts.iter().all(|l| *l == layouts[0]).then_some(layouts[0]),
            items,
            labels,
            class_names,
            label_sets,
            cameras,
            split_names: split_names.into(),
            cropped: options.crop_boxes,
            skipped,
            notes: notes.into(),
            missing: missing.into(),
            left_out: left_out.into(),
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
}

/// Lists one source and says where its bytes are.
fn open_one(path: &Path, options: &OpenOptions) -> Result<(Root, Found), Error> {
    let failed = |e| Error::io("open", path.display().to_string(), e);
    let kind = fs::metadata(path).map_err(failed)?;
    if !kind.is_dir() {
        gallerist_util::files::open_regular(path).map_err(failed)?;
    }
    let split = Choice { split: options.split.as_deref(), default: options.default_split.as_deref() };
    let (tree, mut found) = if kind.is_dir() {
        let tree = Tree::folder(path)?;
        let found = layout::read(&tree, options.layout, split)?;
        (tree, found)
    } else if extension(&path.display().to_string()) == "zip" {
        let tree = Tree::zip(path)?;
        let found = layout::read(&tree, options.layout, split)?;
        (tree, found)
    } else {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let Some(file) = path.file_name().and_then(|f| f.to_str()) else {
            return Err(Error::Layout {
                path: path.display().to_string(),
                problem: "its name is not UTF-8".to_owned(),
                hint: "rename the file",
            });
        };
        let tree = Tree::unlisted(folder, path);
        let found = layout::read_file(&tree, file, options.layout, split)?;
        (tree, found)
    };
    let root = match found.listing.pictures.take() {
        Some(pictures) => Root::Pictures(pictures, path.to_owned()),
        None => tree.root,
    };
    Ok((root, found))
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
