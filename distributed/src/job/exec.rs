//! A job as an operator of DataFusion.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::UInt32Array;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, project_schema};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

use super::Job;

/// Shards that a process without slots works on at the same time. The products of one shard use all threads; while they
/// run, the next shard is read.
const SHARDS_AT_ONCE: usize = 2;

/// A permit for each shard that this process works on at the same time.
static PERMITS: OnceLock<Semaphore> = OnceLock::new();

fn permits() -> &'static Semaphore {
    PERMITS.get_or_init(|| Semaphore::new(SHARDS_AT_ONCE))
}

/// Sets the number of shards that this process works on at the same time. It has no effect once the process has worked
/// on a shard: the first call wins.
pub(crate) fn set_shards_at_once(shards: usize) {
    // Fails only where there are permits already.
    let _ = PERMITS.set(Semaphore::new(shards));
}

/// Works on the shards of a job, a partition each.
///
/// Its input is a table in memory with a partition per shard, which has the number of the shard. Ballista gives a task
/// some partitions of a plan by leaving out partitions of such tables, which it knows, and not of other operators
/// without input.
#[derive(Debug)]
pub struct ShardExec {
    pub(super) job: Arc<Job>,
    pub(super) projection: Option<Vec<usize>>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl ShardExec {
    /// The operator that gives the columns `projection` of a job, or all, for all shards.
    ///
    /// # Errors
    /// For a column that the work does not give.
    pub fn new(job: Arc<Job>, projection: Option<Vec<usize>>) -> Result<Self> {
        let schema = Arc::new(Schema::new(vec![Field::new("shard", DataType::UInt32, false)]));
        let partition = |shard: u32| {
            let numbers = Arc::new(UInt32Array::from(vec![shard]));
            Ok(vec![RecordBatch::try_new(schema.clone(), vec![numbers])?])
        };
        let partitions = (0..job.gallery.len() as u32).map(partition).collect::<Result<Vec<_>>>()?;
        let input = MemorySourceConfig::try_new_exec(&partitions, schema.clone(), None)?;
        Self::over(job, projection, input)
    }

    /// The operator for the shards whose numbers `input` gives.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(
        job: Arc<Job>,
        projection: Option<Vec<usize>>,
        input: Arc<dyn ExecutionPlan>,
    ) -> Result<Self> {
        let schema = project_schema(&job.work.schema(), projection.as_ref())?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(input.properties().output_partitioning().partition_count()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self { job, projection, input, properties: Arc::new(properties) })
    }
}

/// The results of one shard.
async fn work_on(job: Arc<Job>, projection: Option<Vec<usize>>, shard: usize) -> Result<RecordBatch> {
    let _permit = permits().acquire().await.expect("the semaphore is never closed");
    let work = move || -> Result<RecordBatch> {
        let batch = crate::work::run(&job, shard)?;
        Ok(projection.map_or(Ok(batch.clone()), |columns| batch.project(&columns))?)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| DataFusionError::Execution(format!("a shard was not finished: {error}")))?
}

/// The numbers in a batch of the input.
fn shard_numbers(batch: &RecordBatch) -> Result<Vec<usize>> {
    let numbers = batch.columns().first().and_then(|column| column.as_any().downcast_ref::<UInt32Array>());
    let numbers = numbers.ok_or_else(|| crate::Error::input("the plan has no numbers of shards", None))?;
    Ok(numbers.values().iter().map(|&number| number as usize).collect())
}

impl DisplayAs for ShardExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "ShardExec: {} shards", self.job.gallery.len())
    }
}

impl ExecutionPlan for ShardExec {
    fn name(&self) -> &str {
        "ShardExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                Ok(Arc::new(Self::over(self.job.clone(), self.projection.clone(), input)?))
            }
            _ => Err(DataFusionError::Internal("ShardExec has one input".to_owned())),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (job, projection) = (self.job.clone(), self.projection.clone());
        let numbers = self.input.execute(partition, context)?;
        let shards = numbers.map(|batch| {
            Ok::<_, DataFusionError>(futures::stream::iter(shard_numbers(&batch?)?.into_iter().map(Ok)))
        });
        let batches =
            shards.try_flatten().and_then(move |shard| work_on(job.clone(), projection.clone(), shard));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_works_on_as_many_shards_as_it_has_slots() {
        // No other test of this program works on a shard.
        set_shards_at_once(5);
        assert_eq!(permits().available_permits(), 5);
        set_shards_at_once(3);
        assert_eq!(permits().available_permits(), 5, "the first call wins");
    }
}
