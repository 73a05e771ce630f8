//! The arguments.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use gallerist_retrieval::search::Metric;

/// Exact search, retrieval metrics and near-duplicates of a gallery that is stored in shards.
#[derive(Parser)]
#[command(name = "gallerist-cluster", version, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Find the best rows of the gallery for each query.
    Search(Search),
    /// Measure Recall@K, mAP, CMC and the other metrics of `gallerist evaluate`.
    Evaluate(Evaluate),
    /// Find near-duplicates, as `gallerist data issues` does.
    Duplicates(Duplicates),
    /// Run the scheduler of a cluster.
    Scheduler(Scheduler),
    /// Run an executor of a cluster.
    Executor(Executor),
}

/// Where the work is done.
#[derive(Args)]
pub(super) struct Where {
    /// The scheduler of a cluster; without it, everything runs in this process.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) cluster: Option<String>,
}

#[derive(Args)]
pub(super) struct Search {
    /// A folder of shards (.parquet, .safetensors, .arrow or .npy), or one file.
    #[arg(long, value_name = "PATH")]
    pub(super) gallery: PathBuf,
    /// The queries, in the same form; without them, each row of the gallery searches for the others.
    #[arg(long, value_name = "PATH")]
    pub(super) query: Option<PathBuf>,
    /// Rows per query.
    #[arg(short, value_name = "K", default_value_t = 10)]
    pub(super) k: usize,
    /// How rows are compared: cosine, euclidean or inner_product; by default as the files declare.
    #[arg(long, value_name = "NAME", value_parser = metric)]
    pub(super) metric: Option<Metric>,
    /// Compare rows of different networks.
    #[arg(long)]
    pub(super) force: bool,
    /// Write the lists to this .parquet or .csv file.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) place: Where,
}

#[derive(Args)]
pub(super) struct Evaluate {
    /// A folder of shards with labels (.parquet, .safetensors or .arrow), or one file.
    #[arg(long, value_name = "PATH")]
    pub(super) gallery: PathBuf,
    /// The queries, in the same form; without them, each row of the gallery is compared with the others.
    #[arg(long, value_name = "PATH")]
    pub(super) query: Option<PathBuf>,
    /// A benchmark's rules and metrics, such as market1501, or none; by default the protocol that both sides name.
    #[arg(long, value_name = "NAME")]
    pub(super) protocol: Option<String>,
    /// The metrics, such as recall@1,map,cmc@5; by default those of the protocol.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(super) metrics: Vec<String>,
    /// How rows are compared: cosine, euclidean or inner_product; by default as the files declare.
    #[arg(long, value_name = "NAME", value_parser = metric)]
    pub(super) metric: Option<Metric>,
    /// Without --query: skip images with the query's label from the query's own camera.
    #[arg(long, conflicts_with = "query")]
    pub(super) across_cameras: bool,
    /// Compare rows of different networks.
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

#[derive(Args)]
pub(super) struct Duplicates {
    /// A folder of shards (.parquet, .safetensors, .arrow or .npy), or one file.
    #[arg(long, value_name = "PATH")]
    pub(super) gallery: PathBuf,
    /// The largest distance of near-duplicates, as a share of the median distance to the nearest neighbour.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub(super) share: f64,
    /// How rows are compared: cosine or euclidean; by default as the files declare.
    #[arg(long, value_name = "NAME", value_parser = metric)]
    pub(super) metric: Option<Metric>,
    /// Compare rows of different networks.
    #[arg(long)]
    pub(super) force: bool,
    /// Write the groups to this JSON file instead of the standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) place: Where,
}

#[derive(Args)]
pub(super) struct Scheduler {
    /// The address to listen at. Clients are not authenticated: keep it within a trusted network.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(super) bind: IpAddr,
    /// The port to listen at.
    #[arg(long, value_name = "PORT", default_value_t = 50050)]
    pub(super) port: u16,
    /// The name under which executors reach this machine.
    #[arg(long, value_name = "NAME", default_value = "localhost")]
    pub(super) host: String,
    /// Seconds without a sign of life after which the work of an executor is given to others.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..))]
    pub(super) executor_timeout: u64,
}

#[derive(Args)]
pub(super) struct Executor {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub(super) scheduler: String,
    /// The address to listen at. Clients are not authenticated: keep it within a trusted network.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(super) bind: IpAddr,
    /// The name under which the scheduler, clients and other executors reach this machine.
    #[arg(long, value_name = "NAME")]
    pub(super) host: Option<String>,
    /// The port from which results are read; tasks come to the next port.
    #[arg(long, value_name = "PORT", default_value_t = 50051, value_parser = clap::value_parser!(u16).range(..65535))]
    pub(super) port: u16,
    /// Shards that this executor works on at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) slots: u16,
    /// The folder of results that other tasks read; by default a temporary folder.
    #[arg(long, value_name = "DIR")]
    pub(super) work_dir: Option<PathBuf>,
    /// Seconds between signs of life.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) heartbeat: u64,
}

fn metric(name: &str) -> Result<Metric, String> {
    Metric::named(&name.replace('-', "_"))
        .ok_or_else(|| format!("known: {}", Metric::ALL.map(Metric::name).join(", ")))
}
