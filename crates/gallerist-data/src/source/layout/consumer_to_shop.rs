//! DeepFashion Consumer-to-shop: `list_eval_partition.txt` with the columns `image_pair_name_1
//! image_pair_name_2 item_id evaluation_status` (a consumer's photograph, the shop's picture), and the
//! boxes of `list_bbox_consumer2shop.txt`.
//!
//! `query` are the consumers' photographs of the test items. `gallery` are the shop's pictures of the
//! test *and* the validation items, as the data set's own description has it; papers that search
//! among the test items alone use `gallery_test`. Most images are named in several pairs; each is
//! listed once.

use std::collections::HashSet;

use super::spec::Spec;
use super::{deepfashion, missing};
use crate::error::Error;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::table::Table;
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "consumer_to_shop",
    title: "DeepFashion Consumer-to-shop",
    wants: "`list_eval_partition.txt` with a column `image_pair_name_1`",
    find: |tree| deepfashion::find(tree, "image_pair_name_1"),
    read,
    check_files: missing::leave_out,
    splits: &["train_consumer", "train_shop", "val_consumer", "val_shop", "query", "gallery_test"],
    unions: &[
        ("train", &["train_consumer", "train_shop"]),
        ("val", &["val_consumer", "val_shop"]),
        ("gallery", &["val_shop", "gallery_test"]),
        ("test", &["query", "gallery_test"]),
    ],
    protocol: Some("consumer_to_shop"),
    published: &[],
};

fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let bytes = tree.read(at)?;
    let boxes = deepfashion::boxes(tree, "list_bbox_consumer2shop.txt")?;
    let table = Table::new(&bytes, tree.location(at))?;
    let rows = table.counted_rows()?;
    let first = rows.first().map_or("", |row| row.text.split_whitespace().next().unwrap_or(""));
    let base = deepfashion::images(tree, at, first);
    let mut records = Vec::new();
    let mut seen = HashSet::new();
    for line in rows {
        let [consumer, shop, item, status] = line.fields()?;
        let splits = match status {
            "train" => ["train_consumer", "train_shop"],
            "val" => ["val_consumer", "val_shop"],
            "test" => ["query", "gallery_test"],
            _ => return Err(line.fault(format!("the evaluation status is `{status}`"))),
        };
        for (path, split) in [consumer, shop].into_iter().zip(splits) {
            if seen.insert(path) {
                records.push(ImageRecord {
                    path: format!("{base}{path}"),
                    label: Some(item.to_owned()),
                    split: Some(split.into()),
                    bounding_box: boxes.get(path).copied(),
                    ..ImageRecord::default()
                });
            }
        }
    }
    Ok(ImageListing { records, ..ImageListing::default() })
}
