//! Opening sources.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::address;
use super::files::FileSource;
use super::image_source::ImageSource;
use super::labels::{self, LabelFrom, LabelSets};
use super::layout::DatasetLayout;
use super::names::split_name;
use super::record::{ImageListing, ImageRecord, ListedColumn};
use super::relabel::Corrections;
use super::repeats;
use super::set::{ImageSet, Item};
use crate::error::Error;
use crate::text::counted;
use gallerist_util::shard::Shard;

/// What to take from a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The layout of the files; `None`: recognised by the content.
    pub layout: Option<DatasetLayout>,
    /// Only the images of this split: `train`, `test`, `query`, `gallery`, as the
    /// [layout](DatasetLayout::split_names), the column `split` of a manifest or the names of folders have it. `Test`,
    /// `training` and the like are the splits that [folders](ImageSet#sources) of these names are.
    pub split: Option<String>,
    /// Where `split` is `None` and the layout has [splits of its own](DatasetLayout::split_names), only the
    /// images of this one, unless the source has none of them.
    pub default_split: Option<String>,
    /// Which part of a label counts.
    pub label_from: LabelFrom,
    /// Images cut to their bounding boxes, where the annotations have them.
    pub crop_boxes: bool,
    /// CSV files of corrections, as `gallerist data issues` writes them: `image` with the action `relabel` and a
    /// `new_label`, or `drop`; a row with a label in place of an image is for all images of that class. All labels are
    /// those of the set, after [`label_from`](Self::label_from): a new label is the whole name of a class.
    pub relabel: Vec<PathBuf>,
    /// Only the images of this shard of a manifest: see [`ManifestPart`](crate::ManifestPart). Where the manifest has a column
    /// `split`, it is also one of the [further columns](ImageSet::columns).
    pub shard: Option<Shard>,
    /// An image may be in several sources, as for queries that are regions of one image. Without it, this is an error:
    /// among embeddings, an image that is there twice is its own best match.
    pub allow_repeats: bool,
    /// Only the first so many classes, in the order of their names.
    pub max_classes: Option<usize>,
    /// Only the first so many images (after `max_classes`).
    pub max_images: Option<usize>,
}

impl ImageSet {
    /// Opens one source: a path, or the [address](crate::AddressedSource) of a registered source.
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
    /// As [`ImageSet::open`], when `options` leave no image or ask for what the source does not have, and when two
    /// sources have the same image.
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
    /// // The layout of Market-1501 is recognised by its folders.
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
        let open = |path: &Path| -> Result<Box<dyn ImageSource>, Error> {
            match address::open(path) {
                Some(source) => source,
                None => Ok(Box::new(FileSource::open(path, options.layout, options.shard)?)),
            }
        };
        Sources::list(paths.iter().map(|path| open(path.as_ref())), options)?.into_set(options)
    }

    /// The images of a source of your own, see [`ImageSource`].
    ///
    /// # Errors
    ///
    /// Those of [`ImageSource::list`], and [`Error::NoImages`] where there are none.
    pub fn from_source(source: impl ImageSource + 'static) -> Result<ImageSet, Error> {
        ImageSet::from_sources(vec![Box::new(source)], &OpenOptions::default())
    }

    /// The images of several sources as one set, whole or in part, as [`ImageSet::open_with`].
    ///
    /// # Errors
    ///
    /// As [`ImageSet::from_source`] and [`ImageSet::open_with`].
    ///
    /// # Panics
    ///
    /// If `sources` is empty.
    pub fn from_sources(
        sources: Vec<Box<dyn ImageSource>>,
        options: &OpenOptions,
    ) -> Result<ImageSet, Error> {
        assert!(!sources.is_empty(), "no source to make an image set of");
        Sources::list(sources.into_iter().map(Ok), options)?.into_set(options)
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

/// Sources with their images, before these make a set.
#[derive(Default)]
struct Sources {
    sources: Vec<Arc<dyn ImageSource>>,
    /// The images, each with the number of its source.
    records: Vec<(u32, ImageRecord)>,
    /// The further columns of each source.
    columns: Vec<Vec<ListedColumn>>,
    skipped: usize,
    notes: Vec<String>,
    missing: Vec<String>,
    left_out: Vec<(String, usize)>,
}

impl Sources {
    /// Lists the images of the chosen split.
    fn list(
        sources: impl Iterator<Item = Result<Box<dyn ImageSource>, Error>>,
        options: &OpenOptions,
    ) -> Result<Sources, Error> {
        let mut all = Sources::default();
        let mut corrections = Corrections::read(&options.relabel)?;
        for source in sources {
            let mut source = source?;
            let mut listing = list_split(&mut *source, options, &mut corrections)?;
            let number = all.sources.len() as u32;
            all.sources.push(Arc::from(source));
            all.columns.push(std::mem::take(&mut listing.columns));
            all.skipped += listing.skipped;
            all.notes.append(&mut listing.notes);
            all.missing.append(&mut listing.missing);
            all.left_out.append(&mut listing.left_out);
            all.records.extend(listing.records.into_iter().map(|record| (number, record)));
        }
        let is_corrected = !options.relabel.is_empty();
        all.notes.extend(corrections.finish(&all.name())?);
        if is_corrected && all.records.is_empty() {
            return Err(Error::NoImages {
                path: all.name(),
                problem: Some("the corrections of labels leave every image out".to_owned()),
                hint: Some("remove rows with the action `drop` from the files of `data.relabel`".to_owned()),
            });
        }
        if all.records.is_empty() {
            return Err(Error::no_images(&all.name(), all.skipped, None));
        }
        Ok(all)
    }

    /// The first source and the number of the others, for messages.
    fn name(&self) -> String {
        let mut name = self.sources[0].name().to_owned();
        if self.sources.len() > 1 {
            name.push_str(&format!(" and {} more", self.sources.len() - 1));
        }
        name
    }

    fn into_set(mut self, options: &OpenOptions) -> Result<ImageSet, Error> {
        let name = self.name();
        check_count(&name, self.records.len())?;
        if !options.allow_repeats {
            repeats::refuse(&self.sources, &self.records)?;
        }
        let labels = all_or_none(&name, "labels", self.records.iter_mut().map(|(_, r)| r.label.take()))?;
        let cameras = all_or_none(&name, "cameras", self.records.iter_mut().map(|(_, r)| r.camera.take()))?;
        let labels = labels.map(|labels| labels::normalized(labels, &mut self.notes));
        let is_corrected: Vec<bool> = self.records.iter().map(|(_, record)| record.is_corrected).collect();
        let labels = labels.map(|labels| options.label_from.apply(labels, &is_corrected, &mut self.notes));
        let (labels, class_names, label_sets) = match labels {
            None => (None, Vec::new(), None),
            Some(mut labels) => {
                let sets = LabelSets::parse(&mut labels, &name)?;
                let (ids, names) = labels::encode(&labels);
                (Some(ids), names, sets)
            }
        };
        let (items, split_names) = items(self.records);
        let layout = self.sources[0].layout();
        let set = ImageSet {
            name: name.into(),
            layout: layout.filter(|_| self.sources.iter().all(|source| source.layout() == layout)),
            sources: self.sources.into(),
            items,
            labels,
            class_names,
            label_sets,
            cameras,
            columns: self.columns.into(),
            split_names: split_names.into(),
            cropped: false,
            skipped: self.skipped,
            notes: self.notes.into(),
            missing: self.missing.into(),
            left_out: self.left_out.into(),
            turned: false,
        };
        if !options.crop_boxes {
            return set.limited(options);
        }
        let path = set.name.to_string();
        let cropped = set.cropped_to_boxes().ok_or_else(|| Error::Selection {
            path,
            problem: "wanted images cut to their bounding boxes, found no boxes".to_owned(),
            hint: Some("of the known layouts, CUB-200-2011, Cars196 and DeepFashion have boxes".to_owned()),
        })?;
        cropped.limited(options)
    }
}

/// The images of a set, and the names of their splits.
fn items(records: Vec<(u32, ImageRecord)>) -> (Vec<Item>, Vec<String>) {
    let mut splits = HashMap::new();
    let mut split_names = Vec::new();
    let mut number_of = |split: Cow<'static, str>| {
        *splits.entry(split).or_insert_with_key(|split| {
            split_names.push(split.to_string());
            split_names.len() as u32 - 1
        })
    };
    let items = records
        .into_iter()
        .map(|(source, record)| Item {
            source,
            number: record.number,
            path: record.path.into(),
            turn: 0,
            split: record.split.map(&mut number_of),
            bounding_box: record.bounding_box,
            region: None,
        })
        .collect();
    (items, split_names)
}

/// Lists a source, keeps the images of the split that `options` choose, and corrects their labels.
fn list_split(
    source: &mut dyn ImageSource,
    options: &OpenOptions,
    corrections: &mut Corrections,
) -> Result<ImageListing, Error> {
    let mut listing = source.list()?;
    check_count(source.name(), listing.records.len())?;
    if let Some(column) = listing.columns.iter().find(|column| column.values.len() != listing.records.len()) {
        let (name, values, images) = (&column.name, column.values.len(), listing.records.len());
        return Err(Error::Layout {
            path: source.name().to_owned(),
            problem: format!("the column `{name}` has {values} values for {images} images"),
            hint: "list one value per image, empty where it is missing",
        });
    }
    for (number, record) in (0..).zip(&mut listing.records) {
        record.number = number;
        if let Some(split) = record.split.as_deref().and_then(split_name) {
            record.split = Some(Cow::Borrowed(split));
        }
    }
    if let Some(lone) = listing.lone_split.take().filter(|_| options.split.is_some()) {
        lone.apply(&mut listing.records);
    }
    corrections.find(&listing.records, source.name(), options.label_from)?;
    let members = |split| source.layout().map_or(vec![split], |layout| layout.members(split));
    let by_default = options.default_split.as_deref().filter(|split| {
        source.layout().is_none_or(|layout| layout.has_own_splits())
            && has_split(&listing.records, &members(split))
    });
    let split = options.split.as_deref().or(by_default).map(|split| split_name(split).unwrap_or(split));
    if let Some(split) = split {
        let members = members(split);
        // A shard may have no image of the split.
        if !has_split(&listing.records, &members) && options.shard.is_none() {
            return Err(no_such_split(source.name(), &listing.records, split));
        }
        listing.records.retain(|record| is_of(record, &members));
        if options.shard.is_some() {
            // The column of a manifest's splits, which is now of one value.
            listing.columns.retain(|column| column.name != "split");
        }
    }
    source.check(&mut listing, split)?;
    // Files are checked by the reader of their layout.
    if source.layout().is_none() {
        check_records(source.name(), &listing.records)?;
    }
    if listing.records.is_empty() {
        return Err(Error::no_images(source.name(), listing.skipped, None));
    }
    corrections.apply(&mut listing.records, options.label_from);
    Ok(listing)
}

/// Refuses empty labels and repeated paths of a source.
fn check_records(name: &str, records: &[ImageRecord]) -> Result<(), Error> {
    let fault = |problem: String, hint: &str| {
        Err(Error::Source { name: name.to_owned(), problem, hint: Some(hint.to_owned()) })
    };
    let has_empty_label =
        |record: &&ImageRecord| record.label.as_ref().is_some_and(|label| label.trim().is_empty());
    let mut unlabelled = records.iter().filter(has_empty_label);
    if let Some(first) = unlabelled.next() {
        let (count, images) = (unlabelled.count() + 1, counted(records.len(), "image", "images"));
        let problem = format!("the label is empty for {count} of {images}, `{}` for one", first.path);
        return fault(problem, "leave these images out, or give none of the images a label");
    }
    let mut paths = HashSet::with_capacity(records.len());
    let mut repeated = records.iter().filter(|record| !paths.insert(record.path.as_str()));
    if let Some(first) = repeated.next() {
        let (count, images) = (repeated.count() + 1, counted(records.len(), "image", "images"));
        let problem = format!(
            "{count} of {images} have the path of an earlier one in the list, `{}` for one",
            first.path
        );
        return fault(problem, "give every image a path of its own; it names the image in all files");
    }
    Ok(())
}

/// Whether an image belongs to one of these splits.
fn is_of(record: &ImageRecord, splits: &[&str]) -> bool {
    record.split.as_deref().is_some_and(|split| splits.contains(&split))
}

fn has_split(records: &[ImageRecord], splits: &[&str]) -> bool {
    records.iter().any(|record| is_of(record, splits))
}

fn no_such_split(source: &str, records: &[ImageRecord], split: &str) -> Error {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *known.entry(record.split.as_deref().unwrap_or("")).or_default() += 1;
    }
    let none = known.remove("").is_some() && known.is_empty();
    let known: Vec<String> = known.iter().map(|(s, n)| format!("`{s}` ({n})")).collect();
    Error::Selection {
        path: source.to_owned(),
        problem: if none {
            format!("wanted the split `{split}`, found no splits")
        } else {
            format!("no image has the split `{split}`; there are {}", known.join(", "))
        },
        hint: none.then(|| {
            "a manifest has splits in its column `split`, class folders below `train`, `test` and \
             the like, and published data sets by their layout"
                .to_owned()
        }),
    }
}

/// Images are numbered with 32 bits.
fn check_count(name: &str, images: usize) -> Result<(), Error> {
    u32::try_from(images).map(drop).map_err(|_| Error::Selection {
        path: name.to_owned(),
        problem: format!("{images} images are more than 2^32"),
        hint: None,
    })
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
