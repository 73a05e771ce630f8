//! The folder layouts of published data sets, one file each, and the list of them.
//!
//! To add one, write its file with a `SPEC` and add a line to the list below.

mod cars196;
mod consumer_to_shop;
mod cub200_2010;
mod cub200_2011;
mod cuhk03_np;
mod deepfashion;
mod dukemtmc;
mod folders;
mod inshop;
mod manifest;
mod market1501;
mod missing;
mod mnist;
mod omniglot;
mod person;
mod published;
mod sop;
mod spec;

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Error;

pub use spec::DatasetLayout;

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident: $spec:path;)*) => {
        impl DatasetLayout {
            $($(#[$doc])* pub const $name: DatasetLayout = DatasetLayout(&$spec);)*
        }

        /// All layouts, in the order in which they are looked for.
        static LAYOUTS: &[DatasetLayout] = &[$(DatasetLayout::$name),*];
    };
}

layouts! {
    /// `manifest`: a CSV manifest.
    MANIFEST: manifest::SPEC;
    /// `cub200_2011`: `images.txt`, `image_class_labels.txt`; classes 1-100 train, 101-200 test.
    CUB200_2011: cub200_2011::SPEC;
    /// `cars196`: `cars_annos.mat`, or the devkit's files; classes 1-98 train, 99-196 test.
    CARS196: cars196::SPEC;
    /// `sop`: Stanford Online Products, `Ebay_train.txt` and `Ebay_test.txt`.
    ONLINE_PRODUCTS: sop::SPEC;
    /// `inshop`: DeepFashion In-shop, `list_eval_partition.txt` with train, query and gallery.
    IN_SHOP: inshop::SPEC;
    /// `consumer_to_shop`: DeepFashion consumer-to-shop, `list_eval_partition.txt` of pairs.
    CONSUMER_TO_SHOP: consumer_to_shop::SPEC;
    /// `market1501`: `bounding_box_train`, `query`, `bounding_box_test`.
    MARKET1501: market1501::SPEC;
    /// `dukemtmc`: DukeMTMC-reID, the same folders.
    DUKE_MTMC: dukemtmc::SPEC;
    /// `cuhk03_np_detected`: CUHK03-NP, the same folders, boxes of a detector.
    CUHK03_DETECTED: cuhk03_np::DETECTED;
    /// `cuhk03_np_labeled`: CUHK03-NP, the same folders, boxes drawn by hand.
    CUHK03_LABELED: cuhk03_np::LABELED;
    /// `mnist`: the four IDX files, packed with gzip or not.
    MNIST: mnist::SPEC;
    /// `omniglot`: `images_background` (train) and `images_evaluation` (test).
    OMNIGLOT: omniglot::SPEC;
    /// `cub200_2010`: 200 folders `001.Black_footed_Albatross` …; classes 1-100 train, 101-200 test.
    CUB200_2010: cub200_2010::SPEC;
    /// `folders`: class folders, or one flat folder without classes. Every folder fits, so it is the last.
    FOLDERS: folders::SPEC;
}

impl DatasetLayout {
    /// All layouts, in the order in which they are looked for.
    pub fn all() -> impl Iterator<Item = DatasetLayout> {
        LAYOUTS.iter().copied()
    }
}

impl FromStr for DatasetLayout {
    type Err = Error;

    fn from_str(name: &str) -> Result<DatasetLayout, Error> {
        DatasetLayout::all().find(|layout| layout.name() == name).ok_or_else(|| Error::UnknownLayout {
            name: name.to_owned(),
            known: LAYOUTS.iter().map(|layout| format!("`{layout}`")).collect::<Vec<_>>().join(", "),
        })
    }
}

impl Serialize for DatasetLayout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DatasetLayout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DatasetLayout, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_layouts_and_run_files_write_them() {
        for layout in DatasetLayout::all() {
            assert_eq!(layout.name().parse::<DatasetLayout>().unwrap(), layout);
            assert!(!layout.title().is_empty());
        }
        #[derive(Serialize, Deserialize)]
        struct Data {
            layout: DatasetLayout,
        }
        let text = toml::to_string(&Data { layout: DatasetLayout::CUB200_2011 }).unwrap();
        assert_eq!(text, "layout = \"cub200_2011\"\n");
        assert_eq!(toml::from_str::<Data>(&text).unwrap().layout, DatasetLayout::CUB200_2011);
        assert!(toml::from_str::<Data>("layout = \"cub\"").is_err());
    }
}
