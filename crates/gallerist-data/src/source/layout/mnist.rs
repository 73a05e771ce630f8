//! MNIST and its kin: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, and the same with `t10k`,
//! packed with gzip or not.

use super::missing;
use super::spec::{Published, Spec};
use crate::error::Error;
use crate::source::idx::{self, Pictures};
use crate::source::record::{ImageListing, ImageRecord};
use crate::source::tree::Tree;

pub(super) static SPEC: Spec = Spec {
    name: "mnist",
    title: "MNIST",
    wants: "`train-images-idx3-ubyte` or `t10k-images-idx3-ubyte` (or either with `.gz`)",
    find: |tree| {
        let images = PARTS.iter().flat_map(|(_, prefix)| spellings(prefix, "images", 3));
        images.into_iter().find_map(|file| tree.folder_with(&file)).map(str::to_owned)
    },
    read,
    check_files: missing::none,
    splits: &["train", "test"],
    unions: &[],
    protocol: Some("mnist"),
    published: &[Published::new("train", 60_000, 10), Published::new("test", 10_000, 10)],
};

const PARTS: [(&str, &str); 2] = [("train", "train"), ("test", "t10k")];

/// The names under which a file is distributed.
fn spellings(prefix: &str, what: &str, dimensions: usize) -> [String; 4] {
    [("-", ""), ("-", ".gz"), (".", ""), (".", ".gz")]
        .map(|(dash, packed)| format!("{prefix}-{what}{dash}idx{dimensions}-ubyte{packed}"))
}

fn read(tree: &Tree, at: &str) -> Result<ImageListing, Error> {
    let mut pictures = Pictures::default();
    let mut records = Vec::new();
    for (split, prefix) in PARTS {
        let file = |what, dimensions| {
            let files = spellings(prefix, what, dimensions).map(|f| format!("{at}{f}"));
            files.into_iter().find(|f| tree.contains(f))
        };
        let Some(images) = file("images", 3) else { continue };
        let labels = file("labels", 1).ok_or_else(|| Error::Layout {
            path: tree.name.clone(),
            problem: format!("there is `{images}`, and no `{prefix}-labels-idx1-ubyte`"),
            hint: "put the file with the labels into the folder of the images",
        })?;
        let count = pictures.add(split, tree.read(&images)?, &tree.location(&images))?;
        let name = tree.location(&labels);
        let (_, labels) = idx::parse(tree.read(&labels)?, 1, &name)?;
        if labels.len() != count {
            let problem = format!("{} labels for {count} images", labels.len());
            return Err(Error::Annotation { path: name, line: None, problem });
        }
        records.extend(labels.iter().enumerate().map(|(i, label)| ImageRecord {
            path: Pictures::path(split, i),
            label: Some(label.to_string()),
            split: Some(split.into()),
            ..ImageRecord::default()
        }));
    }
    Ok(ImageListing { records, pictures: Some(pictures), ..ImageListing::default() })
}
