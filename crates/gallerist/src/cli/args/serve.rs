//! `gallerist serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::serve::Network;
use crate::train::CheckpointKind;
use crate::train::limits::MAX_THREADS;
use clap::Args;

use super::limits::count;
use super::named::named;
use super::shared::ComputeArgs;

/// Serve a gallery as a web page and an HTTP API.
///
/// The page searches by uploaded image and by item, and shows the map, failed queries, confused classes and
/// near-duplicates. The API offers the same; the path /api shows examples. Ctrl-C stops the server after the
/// requests in progress are finished. SIGHUP opens galleries again whose files have changed, and the certificate. docs/serve.md describes the limits and the use with a reverse proxy.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Embeddings of the gallery, as written by `embed` or `train` (.safetensors), an index,
    /// milvus://HOST[:PORT]/COLLECTION, qdrant://HOST[:PORT]/COLLECTION, or a run directory: its test images, and its
    /// queries if there are any. Repeat it to serve several galleries, each under NAME [default: the name of the file or of the run directory]; the
    /// options below then apply to all of them, or with NAME= before their value to one
    #[arg(long, value_name = "[NAME=]FILE", required = true)]
    pub(crate) gallery: Vec<String>,
    /// Embeddings of queries: failures, confusions and metrics are computed for them against the gallery
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: Vec<String>,
    /// Protocol, as in `evaluate`, or none [default: the one named in queries and gallery; without one, images with
    /// the query's label from its own camera are skipped]
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Vec<String>,
    /// Run directory of the network [default: the one that embedded the gallery]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Vec<String>,
    /// Which of the run's checkpoints [default: the one that embedded the gallery; evaluation.checkpoint of the run if the
    /// gallery does not say which network embedded it]
    #[arg(long, value_parser = named::<CheckpointKind>())]
    pub(crate) checkpoint: Option<CheckpointKind>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
    /// Images of the gallery: a folder, a zip or tar archive, or a data set. For items of several sources repeat it, with the name
    /// of each source before its path [default: the path they were embedded from]
    #[arg(long, value_name = "[SOURCE=]PATH")]
    pub(crate) images: Vec<String>,
    /// Images of the queries [default: the path they were embedded from]
    #[arg(long, value_name = "PATH")]
    pub(crate) query_images: Vec<String>,
    /// The same images embedded by another network, or its run directory: compares the results of both per query
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Vec<String>,
    /// The queries embedded by the other network
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub(crate) compare_queries: Vec<String>,
    /// Training images embedded by the gallery's network: reports near-duplicates of them in the gallery
    #[arg(long, value_name = "FILE")]
    pub(crate) training: Vec<String>,
    /// Training images [default: the path they were embedded from]
    #[arg(long, value_name = "PATH", requires = "training")]
    pub(crate) training_images: Vec<String>,

    /// Address to listen on; 0.0.0.0 accepts connections from other machines
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", help_heading = SERVER)]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0: any free port
    #[arg(long, value_name = "N", default_value_t = 8080, help_heading = SERVER)]
    pub(crate) port: u16,
    /// Additional host name to accept in requests; localhost and the address are always accepted (repeatable)
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    pub(crate) host_name: Vec<String>,
    /// Certificate of the server in PEM, followed by those of its issuers: https instead of http. SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = SERVER)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = SERVER)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Images decoded and embedded concurrently, and threads of a search; 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count::<MAX_THREADS>, help_heading = SERVER)]
    pub(crate) threads: usize,
    /// Folder that caches thumbnails between starts
    #[arg(long, value_name = "DIR", help_heading = SERVER)]
    pub(crate) thumbnails: Option<PathBuf>,

    /// Allow clients with the token to save tags and selections, and to add and remove items of an index
    #[arg(long, help_heading = LIMITS)]
    pub(crate) writable: bool,
    /// Token that permits changes, with a name for it (repeatable); prefer the environment variable GALLERIST_TOKEN, which
    /// other users cannot see and which has one or several of them, separated by spaces. Without --writable these permit
    /// reading, where reading needs a token
    #[arg(long, value_name = "[NAME:]TOKEN", requires = "writable", help_heading = LIMITS)]
    pub(crate) token: Vec<String>,
    /// Token that permits reading (repeatable); also GALLERIST_READ_TOKEN. With one, every request except /health, /ready
    /// and the files of the page needs a token of either kind, and the page asks for it; without one, everybody who reaches
    /// the server may read
    #[arg(long, value_name = "[NAME:]TOKEN", help_heading = LIMITS)]
    pub(crate) read_token: Vec<String>,
    /// File to which every change by a client is appended before it is made: time, client, name of the token and what changes,
    /// one JSON object per line
    #[arg(long, value_name = "FILE", requires = "writable", help_heading = LIMITS)]
    pub(crate) audit: Option<PathBuf>,
    /// Maximum number of results of a search
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) k_max: u32,
    /// Maximum size of an upload in MiB
    #[arg(long, value_name = "MIB", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) upload_limit: u32,
    /// Maximum time to decode an uploaded image in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) decode_limit: u32,
    /// Maximum number of requests of one client (by its address) per second, in bursts of five times as many; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=MAX_RATE), help_heading = LIMITS)]
    pub(crate) client_requests: u32,
    /// Maximum number of uploads and other requests that run the network of one client per second, in bursts of five times
    /// as many; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=MAX_RATE), help_heading = LIMITS)]
    pub(crate) client_uploads: u32,
    /// Maximum number of open connections of one client: an IPv4 address, or the first 64 bits of an IPv6 address
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) client_connections: u32,
    /// Memory in MiB above which /ready answers 503, so that a load balancer sends requests elsewhere (Linux)
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40), help_heading = LIMITS)]
    pub(crate) ready_memory: Option<u64>,
    /// Reverse proxy whose header X-Forwarded-For names the client (repeatable); without it, all clients of a proxy count as
    /// one
    #[arg(long, value_name = "IP[/BITS]", value_parser = str::parse::<Network>, help_heading = SERVER)]
    pub(crate) trusted_proxy: Vec<Network>,
    /// Maximum number of items for which failures, confusions and near-duplicates, also of training images, are computed
    /// after the start; the time is quadratic in this number
    #[arg(long, value_name = "N", default_value_t = 200_000, help_heading = LIMITS)]
    pub(crate) analysis_limit: usize,
}

/// The largest rate, per second.
const MAX_RATE: i64 = 1_000_000;

const SERVER: &str = "Server";
const LIMITS: &str = "Limits";
