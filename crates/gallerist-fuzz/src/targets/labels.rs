//! A list of labels, one a line.

use gallerist_retrieval::load_labels;

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

pub(super) fn run(bytes: &[u8]) {
    let path = scratch::file("labels.txt", bytes);
    if let Ok(labels) = within(Limit::TEXT, bytes, || load_labels(&path)) {
        reached("loaded");
        // A byte order mark of the file, because the first label may begin with one.
        let again = scratch::file("again.txt", format!("\u{feff}{}", labels.join("\n")).as_bytes());
        assert_eq!(load_labels(&again).expect("the same labels"), labels);
    }
}
