//! `gallerist serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use gallerist::train::limits::MAX_THREADS;

use super::limits::count;
use super::{DeviceArgs, Which};

/// Show a gallery to people, in the browser, and to programs.
///
/// The page searches by upload and by item, shows the map, the queries that fail, confused classes and
/// near-duplicates. The same is there for programs: the address with /api shows examples. Ctrl-C ends the
/// server; requests that have begun are finished. docs/serve.md has the limits, and how to stand behind a
/// reverse proxy.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Embeddings of the gallery, as written by `embed` or `train` (.safetensors), an index,
    /// milvus://HOST[:PORT]/COLLECTION, or a run directory: its test images, with its queries where it has some
    #[arg(long, value_name = "FILE")]
    pub(crate) gallery: PathBuf,
    /// Embeddings of queries: failures, confusions and metrics are then those of the queries against the gallery
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: Option<PathBuf>,
    /// Which items count for a query: a protocol of `evaluate`, or none [default: the one that queries and gallery
    /// name; without one, images of a query's label from its own camera are left out]
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Option<String>,
    /// Run directory of the network [default: the one that embedded the gallery]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Which of the run's checkpoints [default: the one that embedded the gallery]
    #[arg(long, value_enum)]
    pub(crate) checkpoint: Option<Which>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The gallery's images: a folder, a zip or a data set [default: where the gallery was embedded from]
    #[arg(long, value_name = "PATH")]
    pub(crate) images: Option<PathBuf>,
    /// The images of the queries [default: where they were embedded from]
    #[arg(long, value_name = "PATH")]
    pub(crate) query_images: Option<PathBuf>,
    /// The same images embedded by another network, or its run directory: which queries gain, which lose
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// The queries embedded by that network
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub(crate) compare_queries: Option<PathBuf>,
    /// The training images embedded by the gallery's network: are there any in the gallery?
    #[arg(long, value_name = "FILE")]
    pub(crate) training: Option<PathBuf>,
    /// The training images [default: where they were embedded from]
    #[arg(long, value_name = "PATH", requires = "training")]
    pub(crate) training_images: Option<PathBuf>,

    /// Address to listen on; 0.0.0.0 lets everybody in who reaches this machine
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", help_heading = SERVER)]
    pub(crate) host: IpAddr,
    /// Port to listen on; 0: any that is free
    #[arg(long, value_name = "N", default_value_t = 8080, help_heading = SERVER)]
    pub(crate) port: u16,
    /// A name under which the server is asked, beside localhost and its address (repeatable)
    #[arg(long, value_name = "NAME", help_heading = SERVER)]
    pub(crate) host_name: Vec<String>,
    /// Images decoded and embedded at a time, and threads of a search; 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count::<MAX_THREADS>, help_heading = SERVER)]
    pub(crate) threads: usize,
    /// Keep thumbnails in this folder for the next start
    #[arg(long, value_name = "DIR", help_heading = SERVER)]
    pub(crate) thumbnails: Option<PathBuf>,

    /// Let items be added and removed by who knows the token; the gallery must be an index
    #[arg(long, help_heading = LIMITS)]
    pub(crate) writable: bool,
    /// The token; better in the environment as GALLERIST_TOKEN, where other users do not see it
    #[arg(long, value_name = "TOKEN", requires = "writable", help_heading = LIMITS)]
    pub(crate) token: Option<String>,
    /// Most results of a search
    #[arg(long, value_name = "K", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) k_max: u32,
    /// Most MiB of an upload
    #[arg(long, value_name = "MIB", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) upload_limit: u32,
    /// Most seconds for decoding an uploaded image
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..), help_heading = LIMITS)]
    pub(crate) decode_limit: u32,
    /// Most items for which failures, confusions and near-duplicates are computed after the start: the time
    /// grows with the square
    #[arg(long, value_name = "N", default_value_t = 200_000, help_heading = LIMITS)]
    pub(crate) analysis_limit: usize,
}

const SERVER: &str = "Server";
const LIMITS: &str = "Limits";
