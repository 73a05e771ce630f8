//! Columns of results.

use datafusion::arrow::array::{
    Array, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray, StringArray,
};
use datafusion::arrow::record_batch::RecordBatch;

use crate::{Error, Result};

fn column<'a, T: 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a T> {
    let column = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref());
    column.ok_or_else(|| {
        let problem = format!("the result of a job has no column `{name}` of the wanted type");
        Error::input(problem, Some("run client, scheduler and executors of one version"))
    })
}

pub(super) fn numbers<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    column(batch, name)
}

pub(super) fn truths<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray> {
    column(batch, name)
}

pub(super) fn texts<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    column(batch, name)
}

/// The text of a row, where it has one.
pub(super) fn text(texts: &StringArray, row: usize) -> Option<String> {
    texts.is_valid(row).then(|| texts.value(row).to_owned())
}

/// The lists of numbers of each row.
pub(super) fn lists(batch: &RecordBatch, name: &str) -> Result<Vec<Vec<f32>>> {
    let lists: &datafusion::arrow::array::ListArray = column(batch, name)?;
    let list = |list: Option<datafusion::arrow::array::ArrayRef>| match list {
        Some(list) => list.as_primitive::<datafusion::arrow::datatypes::Float32Type>().values().to_vec(),
        None => Vec::new(),
    };
    Ok(lists.iter().map(list).collect())
}
