//! Cars196 (Stanford Cars), in either form in which it is distributed:
//!
//! * `cars_annos.mat` next to `car_ims/`, all images in one list;
//! * the devkit: `devkit/cars_train_annos.mat` and `devkit/cars_test_annos.mat`, the images in
//!   `cars_train/` and `cars_test/`. The latter list has no classes;
//!   `cars_test_annos_withlabels.mat`, next to it or next to the devkit, has them.
//!
//! The split of metric learning: classes 1 to 98 for training, 99 to 196 for test, whichever part of
//! the original split an image belongs to.

use super::missing;
use super::spec::{Published, Spec};
use crate::error::Error;
use crate::source::bounding_box::BoundingBox;
use crate::source::mat::{MatFile, Structs, Value};
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "cars196",
    title: "Cars196",
    wants: "`cars_annos.mat`, nor a devkit with `cars_train_annos.mat`",
    find: |tree| {
        let single = tree.folder_with(SINGLE).map(|folder| format!("{folder}{SINGLE}"));
        single.or_else(|| Some(format!("{}{TRAIN}", tree.folder_with(TRAIN)?)))
    },
    read,
    check_files: missing::leave_out,
    splits: &["train", "test"],
    unions: &[],
    protocol: Some("cars196"),
    published: &[Published::new("train", 8054, 98), Published::new("test", 8131, 98)],
};

const SINGLE: &str = "cars_annos.mat";
const TRAIN: &str = "cars_train_annos.mat";
const TEST: &str = "cars_test_annos.mat";
const TEST_LABELED: &str = "cars_test_annos_withlabels.mat";

fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let (folder, file) = at.rsplit_once('/').map_or(("", at), |(folder, file)| (&at[..=folder.len()], file));
    let mut listing = ImageListing::default();
    if file == SINGLE {
        let file = Annotations::open(tree, at)?;
        let names = file.class_names()?;
        file.records("relative_im_path", folder, &names, &mut listing.records)?;
        return Ok(listing);
    }
    let parent = folder.trim_end_matches('/').rsplit_once('/').map_or("", |(p, _)| &folder[..=p.len()]);
    let find = |names: &[&str]| {
        let places = names.iter().flat_map(|n| [format!("{folder}{n}"), format!("{parent}{n}")]);
        places.into_iter().find(|place| tree.contains(place))
    };
    let names = match find(&["cars_meta.mat"]) {
        Some(meta) => Annotations::open(tree, &meta)?.class_names()?,
        None => Vec::new(),
    };
    for (part, list) in [("cars_train", Some(at.to_owned())), ("cars_test", find(&[TEST_LABELED, TEST]))] {
        let Some(list) = list else { continue };
        let file = Annotations::open(tree, &list)?;
        let annotations = file.structs()?;
        if annotations.column("class").is_none() {
            listing.notes.push(format!(
                "`{}` gives no classes, and its {} images are left out; `{TEST_LABELED}` has them",
                file.0.name,
                annotations.len()
            ));
            continue;
        }
        let images = [parent, folder].map(|p| format!("{p}{part}/"));
        let images = images.iter().find(|p| !tree.below(p).is_empty()).unwrap_or(&images[0]);
        file.records("fname", images, &names, &mut listing.records)?;
    }
    Ok(listing)
}

/// The annotations in a file.
struct Annotations(MatFile);

impl Annotations {
    fn open(tree: &Tree, path: &str) -> Result<Annotations, Error> {
        MatFile::open(tree, path).map(Annotations)
    }

    fn structs(&self) -> Result<&Structs, Error> {
        self.0.structs("annotations")
    }

    /// The names of the classes, where the file has them.
    fn class_names(&self) -> Result<Vec<String>, Error> {
        let Some(Value::Cells(cells)) = self.0.variable("class_names") else { return Ok(Vec::new()) };
        let names: Option<Vec<String>> = cells.iter().map(|c| Some(c.text()?.to_owned())).collect();
        names.ok_or_else(|| self.0.fault("`class_names` holds something that is no text".to_owned()))
    }

    /// The images that it lists in `field`, relative to `folder`.
    fn records(
        &self,
        field: &str,
        folder: &str,
        names: &[String],
        out: &mut Vec<ImageRecord>,
    ) -> Result<(), Error> {
        let annotations = self.structs()?;
        let column = |field: &str| {
            annotations
                .column(field)
                .ok_or_else(|| self.0.fault(format!("`annotations` has no field `{field}`")))
        };
        let (path, class) = (column(field)?, column("class")?);
        let corners = [column("bbox_x1")?, column("bbox_y1")?, column("bbox_x2")?, column("bbox_y2")?];
        for i in 0..annotations.len() {
            let fault = |problem: &str| self.0.fault(format!("annotation {}: {problem}", i + 1));
            let path = annotations.get(i, path).text().ok_or_else(|| fault("its path is no text"))?;
            let class = annotations.get(i, class).number().filter(|c| (1.0..=196.0).contains(c));
            let class = class.ok_or_else(|| fault("its class is not one of 1 to 196"))? as usize;
            let corners = corners.map(|c| annotations.get(i, c).number().map(|v| v as f32));
            let [Some(x1), Some(y1), Some(x2), Some(y2)] = corners else {
                return Err(fault("its bounding box is not of four numbers"));
            };
            let name = names.get(class - 1).map_or(String::new(), |name| format!(".{name}"));
            out.push(ImageRecord {
                path: format!("{folder}{path}"),
                label: Some(format!("{class:03}{name}")),
                split: Some(if class <= 98 { "train" } else { "test" }.into()),
                bounding_box: Some(BoundingBox::inclusive([x1, y1, x2, y2], 1.0)),
                ..ImageRecord::default()
            });
        }
        Ok(())
    }
}
