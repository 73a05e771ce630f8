//! What must be known of all shards before the work begins.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, StringArray, UInt32Array, UInt64Array};
use gallerist_retrieval::labels;
use gallerist_retrieval::search::Metric;

use crate::Result;
use crate::shards::{LoadedShard, ShardFile};

pub(super) fn inspect(file: &ShardFile, at: usize, junk: Option<&str>) -> Result<Vec<ArrayRef>> {
    let shard = LoadedShard::load(file)?;
    let set = shard.set();
    let labels = set.labels.as_deref().unwrap_or_default();
    let junk_rows = labels.iter().filter(|label| Some(label.as_str()) == junk).count();
    let is_zero = |row: &usize| set.embeddings.row(*row).iter().all(|&value| value == 0.0);
    let zero_rows = (0..set.embeddings.rows()).filter(is_zero).count();
    let without_label = labels::without_label(labels);
    let only_label = labels.first().filter(|first| labels.iter().all(|label| label == *first));
    let number = |value: usize| Arc::new(UInt64Array::from(vec![value as u64])) as ArrayRef;
    let truth = |value: bool| Arc::new(BooleanArray::from(vec![value])) as ArrayRef;
    let text = |value: Option<&str>| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    Ok(vec![
        Arc::new(UInt32Array::from(vec![at as u32])),
        number(set.embeddings.rows()),
        number(set.embeddings.cols()),
        number(junk_rows),
        number(zero_rows),
        number(without_label),
        truth(set.labels.is_some()),
        truth(labels::are_sets(labels)),
        truth(set.cameras.is_some()),
        text(only_label.map(String::as_str)),
        text(set.model.as_deref()),
        text(set.metric.map(Metric::name)),
        text(set.protocol.as_deref()),
    ])
}
