//! Parquet and Arrow files. Their libraries panic for some damage, of which the reader makes an error.

use gallerist_retrieval::EmbeddingSet;

use super::quiet::quiet;
use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

/// Columns may be compressed, by the algorithms of zstd and lz4 among others, and by runs and dictionaries: a limit by the
/// bytes of the file would be meaningless. What remains is a bound for files as small as those here.
const TABLE: Limit = Limit { memory: 1 << 30, memory_of_byte: 0, ..Limit::DEFLATED };

fn read(bytes: &[u8], name: &str) {
    let path = scratch::file(name, bytes);
    let Ok(set) = quiet(|| within(TABLE, bytes, || EmbeddingSet::load(&path))) else { return };
    reached(if bytes.starts_with(&[0xFF; 4]) { "a stream" } else { "loaded" });
    if set.labels.is_some() {
        reached("labels");
    }
    if !set.columns.is_empty() {
        reached("columns");
    }
    set.check_counts().expect("the columns of a table have a value for each row");
    let again = scratch::path("again.safetensors");
    set.save(&again).expect("a set that was loaded is written");
    let read = EmbeddingSet::load(&again).expect("a set that was written is loaded");
    assert_eq!((&read.labels, &read.paths), (&set.labels, &set.paths));
    assert_eq!(read.columns, set.columns, "columns change when they are written");
}

pub(super) fn parquet(bytes: &[u8]) {
    read(bytes, "input.parquet");
}

pub(super) fn arrow(bytes: &[u8]) {
    read(bytes, "input.arrow");
}
