//! `gallerist index`.

use std::path::PathBuf;

use crate::parse_condition;
use crate::retrieval::condition::Condition;
use crate::retrieval::index::{HnswIndex, IndexKind};
use crate::retrieval::search::Metric;
use crate::train::limits::{MAX_REPEATS, MAX_THREADS};
use clap::{Args, Subcommand, ValueEnum};

use super::limits::count;
use super::named::{kinds, metrics};

/// Build, search and update an index.
///
/// An index is one file with embeddings, ids, labels, paths, cameras and further columns. `hnsw` is an approximate search
/// on a graph of neighbours, for hundreds of thousands of items and more;
/// `exact` compares every item. `gallerist search --gallery INDEX` searches an index with images.
#[derive(Debug, Args)]
pub(crate) struct Index {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Build(Build),
    Info(Info),
    Search(Search),
    Bench(Bench),
    Add(Add),
    Remove(Remove),
    Push(Push),
}

/// Build an index from embeddings.
///
/// The result is bit-identical for any number of threads.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Embeddings (.safetensors, .parquet, .arrow, .feather or .ipc with labels, paths and cameras, or .npy; n x d)
    #[arg(value_name = "EMBEDDINGS", required = true)]
    pub(crate) embeddings: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// Output file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Kind of index
    #[arg(long, value_name = "KIND", default_value = HnswIndex::KIND.name, value_parser = kinds())]
    pub(crate) kind: IndexKind,
    /// Distance or similarity of two rows [default: from the file, else cosine]
    #[arg(long, value_name = "METRIC", value_parser = metrics())]
    pub(crate) metric: Option<Metric>,
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Parameters of the graph; `exact` has none.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// hnsw: links of a new item per level; the graph takes 8 bytes x M per item
    #[arg(long, value_name = "M", default_value_t = 16)]
    pub(crate) m: usize,
    /// hnsw: candidates considered for the links; a higher value raises recall and build time
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) ef_construction: usize,
    /// hnsw: candidates kept during a search; a higher value raises recall and search time
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) ef: usize,
    /// hnsw: seed of the levels and of the insertion order
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Show a summary of an index.
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Index, or a collection milvus://HOST[:PORT]/COLLECTION or qdrant://HOST[:PORT]/COLLECTION
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Search an index with embeddings.
///
/// Prints the K best items of each query: rank, id, score, label, path. Equal scores
/// are ordered by id.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Index, or a collection milvus://HOST[:PORT]/COLLECTION or qdrant://HOST[:PORT]/COLLECTION
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Embeddings of the queries (.safetensors, .parquet, .arrow, .feather, .ipc or .npy, n x d)
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: PathBuf,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = count::<1_000_000_000>)]
    pub(crate) k: usize,
    /// hnsw: candidates kept during a search [default: the value of the index]
    #[arg(long, value_name = "N")]
    pub(crate) ef: Option<usize>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Memory-map the file instead of reading it into memory
    #[arg(long)]
    pub(crate) mapped: bool,
    /// Allow queries of a different model than that of the index
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Benchmark an index: recall compared with exact search, and queries per second.
///
/// Recall@K is the fraction of the K nearest items that the search returns. Throughput is that of one
/// batch of all queries on all threads, the median of several repetitions.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Embeddings of the queries (.safetensors, .parquet, .arrow, .feather, .ipc or .npy, n x d)
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: PathBuf,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = count::<1_000_000_000>)]
    pub(crate) k: usize,
    /// hnsw: values of ef to measure
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "16,32,64,128,256")]
    pub(crate) ef: Vec<usize>,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count::<MAX_REPEATS>)]
    pub(crate) repeats: usize,
    /// Memory-map the file instead of reading it into memory
    #[arg(long)]
    pub(crate) mapped: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Add embeddings to an index.
///
/// Items that the index already contains unchanged are skipped and counted. An item with the same source and path
/// as an existing one but a different embedding, label, camera or column is an error, unless --replace is given.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Index; the file is replaced when the new one is complete
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Embeddings (.safetensors, .parquet, .arrow, .feather or .ipc with labels, paths and cameras, or .npy; n x d)
    #[arg(value_name = "EMBEDDINGS", required = true)]
    pub(crate) embeddings: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// hnsw: rebuild the graph without replaced and removed items
    #[arg(long)]
    pub(crate) compact: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Remove the items that match all given conditions.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Index (the file is replaced when the new one is complete), or a collection milvus://HOST[:PORT]/COLLECTION
    /// or qdrant://HOST[:PORT]/COLLECTION
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// hnsw: rebuild the graph without replaced and removed items
    #[arg(long)]
    pub(crate) compact: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Upload embeddings to a collection of a vector database (Milvus, Qdrant).
///
/// Creates the collection if it does not exist. To resume an interrupted upload, run the same command again:
/// unchanged items are not sent twice. Items of the collection that are not in the files are kept. An item that
/// would replace another is an error, unless --replace is given. While the server is unavailable the command
/// waits, see --patience. Several commands may upload different files to one collection at the same time.
///
/// `index info`, `index search`, `index remove`, `search`, `evaluate` and `serve` accept the address of the
/// collection instead of a file. Credentials: MILVUS_TOKEN=USER:PASSWORD or
/// QDRANT_API_KEY=KEY in the environment.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Embeddings (.safetensors, .parquet, .arrow, .feather or .ipc with labels, paths and cameras, or .npy; n x d)
    #[arg(value_name = "EMBEDDINGS", required = true)]
    pub(crate) embeddings: Vec<PathBuf>,
    /// Collection, milvus://HOST[:PORT]/COLLECTION (default port: 19530) or qdrant://HOST[:PORT]/COLLECTION
    /// (its gRPC port, 6334 by default); milvus+tls:// and qdrant+tls:// are encrypted
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gallery: PathBuf,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// New collections: kind of index [default: hnsw]
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    pub(crate) kind: Option<IndexKind>,
    /// New collections: distance or similarity of two rows [default: from the file, else cosine]
    #[arg(long, value_name = "METRIC", value_parser = metrics())]
    pub(crate) metric: Option<Metric>,
    /// New collections, hnsw: links of an item per level, 2 to 2048 [default: 16]
    #[arg(long, value_name = "M")]
    pub(crate) m: Option<usize>,
    /// New collections, hnsw: candidates considered for the links [default: 200]
    #[arg(long, value_name = "N")]
    pub(crate) ef_construction: Option<usize>,
    /// How long to wait for an unavailable or busy server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    pub(crate) patience: u64,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Labels and ids of the items.
#[derive(Debug, Args)]
pub(crate) struct ItemArgs {
    /// Labels of all rows in order: .npy of integers, or a text file with one label per line [default: those in the files]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Source of the ids [default: paths if every file has them, else rows]
    #[arg(long, value_enum)]
    pub(crate) ids: Option<Ids>,
    /// Replace existing items with the same source and path
    #[arg(long)]
    pub(crate) replace: bool,
    /// Allow embeddings of different models; distances between them are meaningless
    #[arg(long)]
    pub(crate) force: bool,
}

/// Filters on items.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only items with these labels; `Fruit` also selects all labels that begin with `Fruit/`, `Fruit/*` only those; of a set
    /// (`a|b`), one label is enough (repeatable)
    #[arg(long, value_name = "LABEL", conflicts_with = "not_label")]
    pub(crate) label: Vec<String>,
    /// No items with these labels; same patterns as --label (repeatable)
    #[arg(long, value_name = "LABEL")]
    pub(crate) not_label: Vec<String>,
    /// Only items of these cameras (repeatable)
    #[arg(long, value_name = "CAMERA", conflicts_with = "not_camera")]
    pub(crate) camera: Vec<String>,
    /// No items of these cameras (repeatable)
    #[arg(long, value_name = "CAMERA")]
    pub(crate) not_camera: Vec<String>,
    /// Only items with these paths (repeatable)
    #[arg(long, value_name = "PATH", conflicts_with = "not_path")]
    pub(crate) path: Vec<String>,
    /// No items with these paths (repeatable)
    #[arg(long, value_name = "PATH")]
    pub(crate) not_path: Vec<String>,
    /// Only items with these ids
    #[arg(long, value_name = "ID", value_delimiter = ',', conflicts_with = "not_id")]
    pub(crate) id: Vec<u64>,
    /// No items with these ids
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) not_id: Vec<u64>,
    /// Only items that meet a condition on their columns, such as 'price < 20 and shop = "x"'
    /// (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse_condition)]
    pub(crate) condition: Option<Condition>,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Compute threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = count::<MAX_THREADS>)]
    pub(crate) threads: usize,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Ids {
    /// Hash of source and path: an image has the same id in every index
    Paths,
    /// Row numbers: from 0 in build and push, after the largest id so far in add
    Rows,
}
