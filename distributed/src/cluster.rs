//! The processes of a cluster: a scheduler, and executors that work on shards.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;

use crate::Result;
use crate::engine::{LARGEST_MESSAGE, session_config};
use crate::job::{ClusterLogicalCodec, ClusterPhysicalCodec, set_shards_at_once};

/// How a scheduler runs.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// The address that it listens at.
    pub bind: IpAddr,
    /// The port that it listens at.
    pub port: u16,
    /// The name under which executors reach it.
    pub host: String,
    /// Seconds without a sign of life after which the work of an executor is given to others.
    pub executor_timeout: u64,
}

/// Runs a scheduler until the process is stopped.
///
/// # Errors
/// [`Error::Cluster`](crate::Error::Cluster) when it cannot listen at the port.
pub async fn run_scheduler(options: &SchedulerOptions) -> Result<()> {
    let config = SchedulerConfig {
        bind_host: options.bind.to_string(),
        external_host: options.host.clone(),
        bind_port: options.port,
        grpc_server_max_decoding_message_size: LARGEST_MESSAGE as u32,
        grpc_server_max_encoding_message_size: LARGEST_MESSAGE as u32,
        grpc_client_max_message_size: LARGEST_MESSAGE as u32,
        executor_timeout_seconds: options.executor_timeout,
        expire_dead_executor_interval_seconds: (options.executor_timeout / 4).max(1),
        no_executors_grace_period_seconds: options.executor_timeout,
        override_config_producer: Some(Arc::new(session_config)),
        override_logical_codec: Some(Arc::new(ClusterLogicalCodec::default())),
        override_physical_codec: Some(Arc::new(ClusterPhysicalCodec::default())),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let address = SocketAddr::new(options.bind, options.port);
    Ok(start_server(cluster, address, Arc::new(config)).await?)
}

/// How an executor runs.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// The scheduler's host.
    pub scheduler_host: String,
    /// The scheduler's port.
    pub scheduler_port: u16,
    /// The address that it listens at.
    pub bind: IpAddr,
    /// The name under which the scheduler, clients and other executors reach it.
    pub host: Option<String>,
    /// The port of its results.
    pub port: u16,
    /// The port of its tasks.
    pub grpc_port: u16,
    /// Shards that it works on at the same time. If a process runs several executors, the number of the first holds for all.
    pub slots: usize,
    /// The folder of results that other tasks read. Removed when the executor ends.
    pub work_dir: PathBuf,
    /// Seconds between signs of life.
    pub heartbeat: u64,
}

/// Runs an executor until the process is stopped.
///
/// # Errors
/// [`Error::Cluster`](crate::Error::Cluster) when it cannot reach the scheduler or listen at its ports.
pub async fn run_executor(options: &ExecutorOptions) -> Result<()> {
    set_shards_at_once(options.slots);
    let config = ExecutorProcessConfig {
        bind_host: options.bind.to_string(),
        external_host: options.host.clone(),
        port: options.port,
        grpc_port: options.grpc_port,
        scheduler_host: options.scheduler_host.clone(),
        scheduler_port: options.scheduler_port,
        scheduler_connect_timeout_seconds: 30,
        vcores: options.slots,
        work_dir: Some(options.work_dir.to_string_lossy().into_owned()),
        executor_heartbeat_interval_seconds: options.heartbeat,
        grpc_max_decoding_message_size: LARGEST_MESSAGE as u32,
        grpc_max_encoding_message_size: LARGEST_MESSAGE as u32,
        // Results of finished jobs are removed after an hour.
        job_data_ttl_seconds: 3600,
        job_data_clean_up_interval_seconds: 600,
        override_config_producer: Some(Arc::new(session_config)),
        override_logical_codec: Some(Arc::new(ClusterLogicalCodec::default())),
        override_physical_codec: Some(Arc::new(ClusterPhysicalCodec::default())),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(config)).await?)
}
