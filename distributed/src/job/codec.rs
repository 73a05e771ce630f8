//! How plans with jobs travel between the processes of a cluster.

use std::sync::Arc;

use ballista_core::serde::{BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{Result, TableReference};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Extension, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use super::{Job, ShardExec, ShardTable};

/// Tables of jobs in logical plans; everything else as Ballista does.
#[derive(Debug, Default)]
pub struct ClusterLogicalCodec(BallistaLogicalExtensionCodec);

impl LogicalExtensionCodec for ClusterLogicalCodec {
    fn try_decode(&self, bytes: &[u8], inputs: &[LogicalPlan], context: &TaskContext) -> Result<Extension> {
        self.0.try_decode(bytes, inputs, context)
    }

    fn try_encode(&self, node: &Extension, bytes: &mut Vec<u8>) -> Result<()> {
        self.0.try_encode(node, bytes)
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(ShardTable::new(Job::from_bytes(bytes)?)))
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        match (table.as_ref() as &dyn std::any::Any).downcast_ref::<ShardTable>() {
            Some(table) => {
                bytes.extend(table.job.to_bytes()?);
                Ok(())
            }
            None => self.0.try_encode_table_provider(name, table, bytes),
        }
    }

    fn try_decode_file_format(
        &self,
        bytes: &[u8],
        context: &TaskContext,
    ) -> Result<Arc<dyn FileFormatFactory>> {
        self.0.try_decode_file_format(bytes, context)
    }

    fn try_encode_file_format(&self, bytes: &mut Vec<u8>, node: Arc<dyn FileFormatFactory>) -> Result<()> {
        self.0.try_encode_file_format(bytes, node)
    }
}

/// The first byte of an operator in a physical plan: ours, or one of Ballista.
const JOB: u8 = 1;
const BALLISTA: u8 = 0;
/// In place of the number of columns: all of them.
const ALL_COLUMNS: u8 = u8::MAX;

/// [`ShardExec`] in physical plans; everything else as Ballista does.
#[derive(Debug, Default)]
pub struct ClusterPhysicalCodec(BallistaPhysicalExtensionCodec);

impl PhysicalExtensionCodec for ClusterPhysicalCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let damaged = || crate::Error::input("these bytes are no operator of a plan", None);
        match bytes.split_first() {
            Some((&JOB, rest)) => {
                let (&columns, rest) = rest.split_first().ok_or_else(damaged)?;
                let (projection, rest) = match columns {
                    ALL_COLUMNS => (None, rest),
                    count => {
                        let (columns, rest) = rest.split_at_checked(count.into()).ok_or_else(damaged)?;
                        (Some(columns.iter().map(|&column| column.into()).collect()), rest)
                    }
                };
                let input = inputs.first().ok_or_else(damaged)?.clone();
                Ok(Arc::new(ShardExec::over(Arc::new(Job::from_bytes(rest)?), projection, input)?))
            }
            Some((&BALLISTA, rest)) => self.0.try_decode(rest, inputs, context, converter),
            _ => Err(damaged().into()),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(exec) = node.downcast_ref::<ShardExec>() else {
            bytes.push(BALLISTA);
            return self.0.try_encode(node, bytes, converter);
        };
        bytes.push(JOB);
        match &exec.projection {
            None => bytes.push(ALL_COLUMNS),
            // No work has more than a dozen columns.
            Some(columns) => bytes.extend([columns.len()].iter().chain(columns).map(|&number| number as u8)),
        }
        bytes.extend(exec.job.to_bytes()?);
        Ok(())
    }
}
