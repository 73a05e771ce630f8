//! Market-1501: names like `0002_c1s1_000451_03.jpg`.
//!
//! In the gallery the identity -1 is junk and 0000 a distractor; both stay in the list, for the
//! protocol to treat them.

use super::spec::{Published, Spec};
use super::{missing, person};

pub(super) static SPEC: Spec = Spec {
    name: "market1501",
    title: "Market-1501",
    wants: "`bounding_box_train`, `query` and `bounding_box_test` with names like `0002_c1s1_000451_03.jpg`",
    find: |tree| person::find(tree, |rest| rest.starts_with('s')).first().map(|at| (*at).to_owned()),
    read: person::read,
    check_files: missing::leave_out,
    splits: person::SPLITS,
    unions: person::UNIONS,
    protocol: Some("market1501"),
    published: &[
        Published::new("train", 12_936, 751),
        Published::new("query", 3368, 750),
        Published::new("gallery", 19_732, 750),
    ],
};
