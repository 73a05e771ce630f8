//! A job as a table.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::{Job, ShardExec};

/// The results of a job as a table with a partition per shard.
#[derive(Debug)]
pub struct ShardTable {
    pub(super) job: Arc<Job>,
}

impl ShardTable {
    /// The table of `job`. Nothing is computed before it is read.
    pub fn new(job: Job) -> Self {
        Self { job: Arc::new(job) }
    }
}

#[async_trait]
impl TableProvider for ShardTable {
    fn schema(&self) -> SchemaRef {
        self.job.work.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(ShardExec::new(self.job.clone(), projection.cloned())?))
    }
}
