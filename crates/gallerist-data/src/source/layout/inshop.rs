//! DeepFashion In-shop Clothes Retrieval: `list_eval_partition.txt` with the columns `image_name
//! item_id evaluation_status`, and the boxes of `list_bbox_inshop.txt`.

use super::spec::{Published, Spec};
use super::{deepfashion, missing};
use crate::error::Error;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::table::Table;
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "inshop",
    title: "DeepFashion In-shop",
    wants: "`list_eval_partition.txt` with a column `image_name`",
    find: |tree| deepfashion::find(tree, "image_name"),
    read,
    check_files: missing::leave_out,
    splits: &["train", "query", "gallery"],
    unions: &[("test", &["query", "gallery"])],
    protocol: Some("inshop"),
    published: &[
        Published::new("train", 25_882, 3997),
        Published::new("query", 14_218, 3985),
        Published::new("gallery", 12_612, 3985),
    ],
};

fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let bytes = tree.read(at)?;
    let boxes = deepfashion::boxes(tree, "list_bbox_inshop.txt")?;
    let table = Table::new(&bytes, tree.location(at))?;
    let rows = table.counted_rows()?;
    let first = rows.first().map_or("", |row| row.text.split_whitespace().next().unwrap_or(""));
    let base = deepfashion::images(tree, at, first);
    let mut records = Vec::with_capacity(rows.len());
    for line in rows {
        let [path, item, status] = line.fields()?;
        let split = SPEC.splits.iter().find(|s| **s == status);
        let split = *split.ok_or_else(|| line.fault(format!("the evaluation status is `{status}`")))?;
        records.push(ImageRecord {
            path: format!("{base}{path}"),
            label: Some(item.to_owned()),
            split: Some(split.into()),
            bounding_box: boxes.get(path).copied(),
            ..ImageRecord::default()
        });
    }
    Ok(ImageListing { records, ..ImageListing::default() })
}
