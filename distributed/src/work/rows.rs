//! Chosen rows of a shard.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Builder, ListBuilder, StringArray, UInt32Array};
use datafusion::arrow::datatypes::{DataType, Field};
use gallerist_retrieval::search::Metric;

use super::duplicates::Scaled;
use crate::Result;
use crate::shards::{LoadedShard, ShardFile};

pub(super) fn rows(file: &ShardFile, wanted: &[u32], metric: Option<Metric>) -> Result<Vec<ArrayRef>> {
    let within = file.first..file.first + file.rows;
    let wanted: Vec<usize> = wanted
        .iter()
        .map(|&row| row as usize)
        .filter(|row| within.contains(row))
        .map(|row| row - file.first)
        .collect();
    let item = Field::new_list_field(DataType::Float32, false);
    let mut values = ListBuilder::new(Float32Builder::new()).with_field(item);
    // Most files have none of the rows, and are not read.
    let loaded = match metric {
        _ if wanted.is_empty() => None,
        None => Some(LoadedShard::load_counted(file)?),
        Some(metric) => {
            let scaled = Scaled::load(file, metric)?;
            for &row in &wanted {
                values.values().append_slice(scaled.rows.row(row));
                values.append(true);
            }
            Some(scaled.shard)
        }
    };
    if metric.is_none() {
        wanted.iter().for_each(|_| values.append(false));
    }
    let texts = |of: fn(&LoadedShard) -> Option<&Vec<String>>| -> ArrayRef {
        let texts = loaded.as_ref().and_then(of);
        Arc::new(StringArray::from_iter(wanted.iter().map(|&row| texts.map(|texts| &texts[row]))))
    };
    Ok(vec![
        Arc::new(UInt32Array::from_iter_values(wanted.iter().map(|row| (file.first + row) as u32))),
        texts(|shard| shard.set().labels.as_ref()),
        texts(|shard| shard.set().paths.as_ref()),
        Arc::new(values.finish()),
    ])
}
