//! Where jobs run: in this process, or on a cluster.

use std::sync::Arc;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::job::{ClusterLogicalCodec, ClusterPhysicalCodec, Job, ShardTable};
use crate::{Error, Result};

/// The largest message between the processes of a cluster, in bytes: plans with the keys of relevant items, and
/// batches of results.
pub const LARGEST_MESSAGE: usize = 256 << 20;

/// Runs jobs.
#[derive(Clone)]
pub struct Engine {
    context: SessionContext,
}

impl Engine {
    /// Runs jobs in this process.
    pub fn embedded() -> Self {
        Self { context: SessionContext::new() }
    }

    /// Runs jobs on the cluster of the scheduler at `address`, `HOST:PORT`.
    ///
    /// # Errors
    /// [`Error::Input`] for an address without a port, and where nothing answers.
    pub async fn cluster(address: &str) -> Result<Self> {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        if host.is_empty() || port.parse::<u16>().is_err() {
            let problem = format!("`{address}` is no address of a scheduler");
            return Err(Error::input(problem, Some("give HOST:PORT, such as 127.0.0.1:50050")));
        }
        if let Err(error) = tokio::net::TcpStream::connect(address).await {
            let problem = format!("no scheduler answers at `{address}`: {error}");
            return Err(Error::input(problem, Some("start one with `gallerist-cluster scheduler`")));
        }
        let state = SessionStateBuilder::new().with_config(session_config()).with_default_features().build();
        let context = SessionContext::remote_with_state(&format!("df://{address}"), state).await?;
        Ok(Self { context })
    }

    /// The rows that `query` selects from the table `found`, which has the results of `job`.
    ///
    /// # Errors
    /// What the work on a shard refuses, and a cluster that cannot be reached or does not finish.
    pub async fn run(&self, job: Job, query: &str) -> Result<Vec<RecordBatch>> {
        const TABLE: &str = "found";
        self.context.deregister_table(TABLE)?;
        self.context.register_table(TABLE, Arc::new(ShardTable::new(job)))?;
        Ok(self.context.sql(query).await?.collect().await?)
    }
}

/// The settings that client, scheduler and executors share.
pub(crate) fn session_config() -> SessionConfig {
    SessionConfig::new_with_ballista()
        .with_ballista_logical_extension_codec(Arc::new(ClusterLogicalCodec::default()))
        .with_ballista_physical_extension_codec(Arc::new(ClusterPhysicalCodec::default()))
        .with_ballista_grpc_client_max_message_size(LARGEST_MESSAGE)
}
