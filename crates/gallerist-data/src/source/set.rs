//! A set of images with what is known of them without decoding.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::bounding_box::BoundingBox;
use super::content::ImageContent;
use super::image_source::ImageSource;
use super::labels::LabelSets;
use super::layout::DatasetLayout;
use super::names::split_name;
use super::record::ListedColumn;
use crate::decode::decode_reduced;
use crate::error::Error;
use crate::image::Image;
use crate::region::Region;
use crate::text::counted;

/// Images with their paths, labels and cameras; images are decoded on request only.
///
/// # Sources
///
/// * **A published data set** in the folders it is distributed in: see [`DatasetLayout`](crate::DatasetLayout).
/// * **A folder of class folders**, nested as deep as you like. The class of an
///   image is the path of its folder, without the leading folders that all
///   images share: `photos/2024/Greek/character07/x.png` belongs to class
///   `Greek/character07`. With [`LabelFrom::Leaf`](crate::LabelFrom) it is the last folder alone. Images both
///   in class folders and directly next to them are refused, except those of a split that is not chosen.
///
///   Folders called `train`, `training`, `val`, `valid`, `validation`, `test`, `testing`, `query` or `gallery`, in any
///   case, are *splits* and no part of the class (`training` is `train`, `testing` is `test`): where every image is in a class folder of one of them; or where
///   `train`, with class folders in it, is next to another of them. Then everything else next to them is
///   left out, with a note in [`ImageSet::notes`] and a list in [`ImageSet::left_out`]. The splits may be
///   deeper (`images/train`), in one place only. A single folder called `test` among class folders is a class. A folder
///   with the name of a split that all images share is a split only if [`OpenOptions::split`](crate::OpenOptions::split) chooses one.
/// * **A single class folder**: `photos/shoes/1.jpg` in `photos` is of the class `shoes`, with a note in
///   [`ImageSet::notes`]. A folder that names a split, the kind of its content (`images`, `photos`, `jpg`) or the set
///   itself (an archive of a folder) is no class.
/// * **A flat folder**: all images in one folder, and no labels.
/// * **A CSV manifest** with the header `path,label` and optionally `camera`,
///   `split` (whose values may be written like the names of folders) and [further columns](ImageSet::columns); paths are relative to the manifest, and a label `a|b` gives an image
///   [several](ImageSet::label_sets). A file called `manifest.csv`
///   at the top of a folder or archive is used in place of the folder layout.
/// * **A tar archive** of any of these, without compression, read in place.
/// * **An address of an object store**, such as `s3://bucket/photos` (feature `object-store`): a folder, an archive, a
///   manifest or an image. Of an archive, a temporary copy is made.
/// * **A zip archive** of any of these, read in place. Entries are stored or
///   deflated, checked against their CRC-32 and limited to
///   [`MAX_FILE_BYTES`](crate::MAX_FILE_BYTES).
/// * **A single image file**: one image without a label.
///
/// Files count as images by their extension (png, jpg, jpeg, jpe, jfif, gif, bmp,
/// webp, tif, tiff); others are counted in [`ImageSet::skipped`], and
/// [`ImageSet::notes`] name pictures of formats that are not read. Hidden files
/// and `__MACOSX` are ignored. The files of a manifest may have any name.
///
/// Labels are in the form NFC of Unicode, whatever the form of the names of folders.
///
/// # Order
///
/// Sorted by the bytes of the path; a manifest and a list of annotations keep their own order; several
/// sources follow each other as given. Labels number the classes in the byte
/// order of their names, from 0, without gaps.
#[derive(Clone)]
pub struct ImageSet {
    pub(super) name: Arc<str>,
    pub(super) sources: Arc<[Arc<dyn ImageSource>]>,
    pub(super) layout: Option<DatasetLayout>,
    pub(super) items: Vec<Item>,
    pub(super) labels: Option<Vec<u32>>,
    pub(super) class_names: Vec<String>,
    pub(super) label_sets: Option<Arc<LabelSets>>,
    pub(super) cameras: Option<Vec<String>>,
    /// The further columns of each source, with a value for every image that it lists.
    pub(super) columns: Arc<[Vec<ListedColumn>]>,
    pub(super) split_names: Arc<[String]>,
    /// Images are cut to their bounding boxes.
    pub(super) cropped: bool,
    pub(super) skipped: usize,
    pub(super) notes: Arc<[String]>,
    pub(super) missing: Arc<[String]>,
    pub(super) left_out: Arc<[(String, usize)]>,
    /// It has rotation classes.
    pub(super) turned: bool,
}

/// One image of a set.
#[derive(Clone)]
pub(super) struct Item {
    /// Number of its source.
    pub(super) source: u32,
    /// Position in the list of its source.
    pub(super) number: u32,
    pub(super) path: Arc<str>,
    /// Quarter turns, counter-clockwise.
    pub(super) turn: u8,
    /// Place of its split in the names of the splits.
    pub(super) split: Option<u32>,
    pub(super) bounding_box: Option<BoundingBox>,
    /// The part of it that is the image.
    pub(super) region: Option<Region>,
}

impl ImageSet {
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
    ///
    /// Where images have [several labels](ImageSet::label_sets), those with the same labels are a class.
    pub fn labels(&self) -> Option<&[u32]> {
        self.labels.as_deref()
    }

    /// Names of the classes by their number; empty without labels.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// The labels of each image, ascending, where a manifest gives some image several (`a|b`).
    ///
    /// Two images are of a kind when they share a label. `None` where every image has one label:
    /// then [`ImageSet::labels`] says it all.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("list.csv");
    /// # for name in ["1.png", "2.png"] { std::fs::write(folder.path().join(name), "").unwrap(); }
    /// std::fs::write(&path, "path,label\n1.png,red|dress\n2.png,red\n").unwrap();
    /// let set = gallerist_data::ImageSet::open(&path).unwrap();
    /// assert_eq!(set.label_names(), ["dress", "red"]);
    /// assert_eq!(set.label_sets().unwrap(), [vec![0, 1], vec![1]]);
    /// assert_eq!(set.class_names(), ["dress|red", "red"]);
    /// ```
    pub fn label_sets(&self) -> Option<&[Vec<u32>]> {
        self.label_sets.as_deref().map(|l| l.sets.as_slice())
    }

    /// Names of the labels by their number in [`ImageSet::label_sets`]; where images have one label
    /// each, [`ImageSet::class_names`].
    pub fn label_names(&self) -> &[String] {
        self.label_sets.as_deref().map_or(&self.class_names, |l| &l.names)
    }

    /// One camera per image, where a manifest names them.
    pub fn cameras(&self) -> Option<&[String]> {
        self.cameras.as_deref()
    }

    /// The names of further columns, of a manifest for example, in order of appearance, with one text per image, which
    /// is empty where the value is missing.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("list.csv");
    /// # for name in ["1.png", "2.png"] { std::fs::write(folder.path().join(name), "").unwrap(); }
    /// std::fs::write(&path, "path,label,price\n1.png,dress,12.50\n2.png,dress,\n").unwrap();
    /// let set = gallerist_data::ImageSet::open(&path).unwrap();
    /// assert_eq!(set.columns(), [("price", vec!["12.50", ""])]);
    /// ```
    pub fn columns(&self) -> Vec<(&str, Vec<&str>)> {
        let mut names: Vec<&str> = Vec::new();
        for column in self.columns.iter().flatten() {
            if !names.contains(&column.name.as_str()) {
                names.push(&column.name);
            }
        }
        let values = |name: &str| {
            let of_source = |columns: &'_ Vec<ListedColumn>| columns.iter().position(|c| c.name == name);
            let places: Vec<Option<usize>> = self.columns.iter().map(of_source).collect();
            let value = |item: &Item| {
                let source = item.source as usize;
                places[source].map_or("", |at| self.columns[source][at].values[item.number as usize].as_str())
            };
            self.items.iter().map(value).collect()
        };
        names.iter().map(|&name| (name, values(name))).collect()
    }

    /// The layout of the sources, where all have the same; `None` also for single images.
    pub fn layout(&self) -> Option<DatasetLayout> {
        self.layout
    }

    /// The split that image `i` belongs to, where the layout, a manifest or the folders say.
    pub fn split(&self, i: usize) -> Option<&str> {
        self.items[i].split.map(|split| self.split_names[split as usize].as_str())
    }

    /// Whether some image belongs to this split, or to a member of the union of this name in the
    /// [layout](DatasetLayout::split_names).
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # for split in ["query", "gallery"] {
    /// #     std::fs::create_dir_all(folder.path().join(split).join("wren")).unwrap();
    /// #     std::fs::write(folder.path().join(split).join("wren/1.png"), "").unwrap();
    /// # }
    /// let set = gallerist_data::ImageSet::open(&folder).unwrap(); // query/wren/1.png, gallery/wren/1.png
    /// assert!(set.has_split("query") && set.has_split("gallery") && !set.has_split("test"));
    /// ```
    pub fn has_split(&self, name: &str) -> bool {
        let name = split_name(name).unwrap_or(name);
        let members = self.layout.map_or(vec![name], |layout| layout.members(name));
        self.split_names.iter().enumerate().any(|(number, split)| {
            members.contains(&split.as_str())
                && self.items.iter().any(|item| item.split == Some(number as u32))
        })
    }

    /// The bounding box of image `i`, where the annotations have one.
    pub fn bounding_box(&self, i: usize) -> Option<BoundingBox> {
        self.items[i].bounding_box
    }

    /// What the user should know about the sources: counts that differ from the published ones,
    /// annotated images that are missing.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Paths of annotated images that are not there, and so not in the set.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Folders (or single files) with images that are no part of the set, because the folders next to them are
    /// splits; each with its number of images.
    pub fn left_out(&self) -> &[(String, usize)] {
        &self.left_out
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

    /// Number of the source that image `i` comes from, in the order of opening.
    pub fn source(&self, i: usize) -> usize {
        self.items[i].source as usize
    }

    /// How many sources the set was opened from.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// What the [paths](ImageSet::path) of a source's images are relative to: a folder or an archive.
    ///
    /// # Panics
    ///
    /// If `source` is not below [`ImageSet::sources`].
    pub fn source_root(&self, source: usize) -> &Path {
        self.sources[source].root()
    }

    /// What to open to see the images of a source: the path it was given as, and the folder of a
    /// single image.
    ///
    /// # Panics
    ///
    /// If `source` is not below [`ImageSet::sources`].
    pub fn source_path(&self, source: usize) -> &Path {
        self.sources[source].address()
    }

    /// Where image `i` is, for messages: the source and the path in it.
    pub fn location(&self, i: usize) -> String {
        let item = &self.items[i];
        self.sources[item.source as usize].location(&item.path)
    }

    /// Quarter turns, counter-clockwise, that [`ImageSet::decode`] applies to
    /// image `i`: 0 but for [`ImageSet::with_rotation_classes`].
    pub fn quarter_turns(&self, i: usize) -> u8 {
        self.items[i].turn
    }

    /// The bytes of image `i`'s file; of a picture in an IDX file, its pixels.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when it cannot be read, [`Error::Decode`] when it is larger
    /// than [`MAX_FILE_BYTES`](crate::MAX_FILE_BYTES) or damaged in its archive.
    pub fn read(&self, i: usize) -> Result<Vec<u8>, Error> {
        self.load(i).map(ImageContent::into_bytes)
    }

    /// Image `i` as its source gives it.
    pub(crate) fn load(&self, i: usize) -> Result<ImageContent, Error> {
        let item = &self.items[i];
        self.sources[item.source as usize].read(item.number as usize, &item.path)
    }

    /// Image `i`, upright, with 1 or 3 channels as in its file, cut to its bounding box if
    /// [`OpenOptions::crop_boxes`](crate::OpenOptions::crop_boxes) is set and it has one (a box
    /// is cut at the edges of the upright image), and to its [region](Self::with_regions). See [`decode`](crate::decode()).
    ///
    /// # Errors
    ///
    /// As [`ImageSet::read`] and [`decode`](crate::decode()), and [`Error::Decode`] for a bounding
    /// box or a region outside the image.
    pub fn decode(&self, i: usize) -> Result<Image, Error> {
        self.decode_loaded(i, self.load(i)?, None)
    }

    /// Feeds what tells image `i` from the others of its sources to `to`: its path, the part of it that
    /// is cut out, and how it is turned.
    pub(crate) fn describe(&self, i: usize, to: &mut impl FnMut(&[u8])) {
        let item = &self.items[i];
        to(&(item.path.len() as u64).to_le_bytes());
        to(item.path.as_bytes());
        let window = item.bounding_box.filter(|_| self.cropped);
        to(&[item.turn, window.is_some().into()]);
        if let Some(BoundingBox { left, top, width, height }) = window {
            [left, top, width, height].iter().for_each(|edge| to(&edge.to_le_bytes()));
        }
        if let Some(region) = item.region {
            to(region.to_string().as_bytes());
        }
    }

    /// The part of image `i` that is cut out and its turn, in words; empty for the whole upright image.
    pub(crate) fn part(&self, i: usize) -> String {
        let item = &self.items[i];
        let window = item.bounding_box.filter(|_| self.cropped);
        let window = window
            .map(|BoundingBox { left, top, width, height }| format!("box {left} {top} {width} {height}"));
        let region = item.region.map(|region| format!("region {region}"));
        let turn = (item.turn > 0).then(|| format!("turned {}", u32::from(item.turn) * 90));
        [window, region, turn].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// A digest of image `i` that changes with the file; `None` where there is no file.
    pub(crate) fn digest(&self, i: usize) -> Option<[u8; 8]> {
        let item = &self.items[i];
        let version = self.sources[item.source as usize].version(item.number as usize, &item.path)?;
        let mut digest = Sha256::new();
        self.describe(i, &mut |bytes| digest.update(bytes));
        version.iter().for_each(|part| digest.update(part.to_le_bytes()));
        digest.finalize().first_chunk().copied()
    }

    /// Image `i` from what [`ImageSet::load`] returned, for a transform that needs sides of `least` pixels only: a large
    /// JPEG may come reduced, see [`decode_reduced`].
    pub(crate) fn decode_loaded(
        &self,
        i: usize,
        content: ImageContent,
        least: Option<usize>,
    ) -> Result<Image, Error> {
        let item = &self.items[i];
        let mut image = match content {
            ImageContent::Decoded(image) => image,
            ImageContent::Encoded(bytes) => decode_reduced(&bytes, least, &self.location(i))?,
        };
        if let Some(window) = item.bounding_box.filter(|_| self.cropped) {
            image =
                window.crop(&image).map_err(|problem| Error::Decode { path: self.location(i), problem })?;
        }
        if let Some(region) = item.region {
            image = region.of(&image).map_err(|problem| Error::Decode { path: self.location(i), problem })?;
        }
        Ok(match item.turn {
            0 => image,
            turn => image.rotate(turn),
        })
    }

    /// The images cut to their bounding boxes, as with [`OpenOptions::crop_boxes`](crate::OpenOptions::crop_boxes). Images
    /// without a box stay whole and are counted in a [note](Self::notes). `None` if no image has a box.
    pub fn cropped_to_boxes(self) -> Option<ImageSet> {
        let whole = self.items.iter().filter(|item| item.bounding_box.is_none()).count();
        if whole == self.items.len() {
            return None;
        }
        let mut notes = self.notes.to_vec();
        if whole > 0 {
            let verbs = if whole == 1 { ["has", "is"] } else { ["have", "are"] };
            notes.push(format!(
                "{whole} of {} {} no bounding box and {} used whole",
                counted(self.items.len(), "image", "images"),
                verbs[0],
                verbs[1]
            ));
        }
        Some(ImageSet { cropped: true, notes: notes.into(), ..self })
    }

    /// The same images, of which only a region each is decoded.
    ///
    /// # Panics
    ///
    /// If there is not one region per image.
    ///
    /// ```no_run
    /// use gallerist_data::{ImageSet, Region};
    ///
    /// let region: Region = "25%,10%,50%,50%".parse()?;
    /// let part = ImageSet::open("street.jpg")?.with_regions(&[region]).decode(0)?;
    /// println!("{} x {} pixels", part.width(), part.height());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_regions(mut self, regions: &[Region]) -> Self {
        assert_eq!(self.len(), regions.len(), "a region for each image");
        for (item, &region) in self.items.iter_mut().zip(regions) {
            item.region = Some(region);
        }
        self
    }

    /// The region of image `i`, if it is one of [`with_regions`](Self::with_regions).
    pub fn region(&self, i: usize) -> Option<Region> {
        self.items[i].region
    }

    /// Whether only a part of image `i` is decoded: its bounding box or its region.
    pub fn is_cropped(&self, i: usize) -> bool {
        let item = &self.items[i];
        item.region.is_some() || self.cropped && item.bounding_box.is_some()
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
