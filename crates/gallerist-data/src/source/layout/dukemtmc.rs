//! DukeMTMC-reID: names like `0001_c2_f0046182.jpg`.

use super::spec::{Published, Spec};
use super::{missing, person};

pub(super) static SPEC: Spec = Spec {
    name: "dukemtmc",
    title: "DukeMTMC-reID",
    wants: "`bounding_box_train`, `query` and `bounding_box_test` with names like `0001_c2_f0046182.jpg`",
    find: |tree| person::find(tree, |rest| rest.starts_with("_f")).first().map(|at| (*at).to_owned()),
    read: person::read,
    check_files: missing::leave_out,
    splits: person::SPLITS,
    unions: person::UNIONS,
    protocol: Some("duke"),
    published: &[
        Published::new("train", 16_522, 702),
        Published::new("query", 2228, 702),
        Published::new("gallery", 17_661, 1110),
    ],
};
