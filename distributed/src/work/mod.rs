//! The work on one shard.

mod duplicates;
mod inspect;
mod queries;
mod rows;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::record_batch::RecordBatch;

use crate::job::{Job, Work};
use crate::{Error, Result};

/// Works on shard `at` of a job.
pub(crate) fn run(job: &Job, at: usize) -> Result<RecordBatch> {
    let Some(shard) = job.gallery.get(at) else {
        return Err(Error::input(format!("the job has no shard {at}"), None));
    };
    let columns = match &job.work {
        Work::Inspect { junk } => inspect::inspect(shard, at, junk.as_deref())?,
        Work::Search { queries, metric, k, one_set } => {
            queries::search(shard, queries, (*metric, *k, *one_set))?
        }
        Work::Relevant { queries, rules } => queries::relevant(shard, queries, rules)?,
        Work::Count { queries, rules } => queries::count(shard, queries, rules, &job.relevant)?,
        Work::Nearest { metric } => duplicates::nearest(&job.gallery, at, *metric)?,
        Work::Pairs { metric, largest } => duplicates::pairs(&job.gallery, at, *metric, *largest)?,
        Work::Rows { rows, metric } => rows::rows(shard, rows, *metric)?,
    };
    batch(job, columns)
}

/// The columns of a job's work as a batch.
fn batch(job: &Job, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(job.work.schema(), columns).map_err(datafusion::error::DataFusionError::from)?)
}
