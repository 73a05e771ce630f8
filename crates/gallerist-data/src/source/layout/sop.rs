//! Stanford Online Products: `Ebay_train.txt` and `Ebay_test.txt`, each with the columns `image_id
//! class_id super_class_id path`.

use super::missing;
use super::spec::{Published, Spec};
use crate::error::Error;
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::table::Table;
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "sop",
    title: "Stanford Online Products",
    wants: "`Ebay_train.txt` or `Ebay_test.txt`",
    find: |tree| FILES.iter().find_map(|(_, file)| tree.folder_with(file)).map(str::to_owned),
    read,
    check_files: missing::leave_out,
    splits: &["train", "test"],
    unions: &[],
    protocol: Some("sop"),
    published: &[Published::new("train", 59_551, 11_318), Published::new("test", 60_502, 11_316)],
};

const FILES: [(&str, &str); 2] = [("train", "Ebay_train.txt"), ("test", "Ebay_test.txt")];

fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let mut records = Vec::new();
    for (split, file) in FILES {
        let file = format!("{at}{file}");
        if !tree.contains(&file) {
            continue;
        }
        let bytes = tree.read(&file)?;
        // The first line names the columns.
        for line in Table::new(&bytes, tree.location(&file))?.lines().skip(1) {
            let [_, class, _, path] = line.fields()?;
            let class: u32 = line.parse(class, "the class")?;
            records.push(ImageRecord {
                path: format!("{at}{path}"),
                label: Some(format!("{class:05}")),
                split: Some(split.into()),
                ..ImageRecord::default()
            });
        }
    }
    Ok(ImageListing { records, ..ImageListing::default() })
}
