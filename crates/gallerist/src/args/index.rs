//! `gallerist index`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use gallerist::train::limits::{MAX_REPEATS, MAX_THREADS};

use super::Metric;
use super::limits::count;

/// Keep a gallery that changes: build, search, add, remove.
///
/// An index is one file with embeddings, ids, labels, paths and cameras. `hnsw` finds nearly all of
/// the nearest items through a graph of neighbours, for galleries of hundreds of thousands and more;
/// `exact` compares every item. `gallerist search --gallery INDEX` searches it with images.
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
/// The graph is the same, to the last bit, for any number of threads.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// Embeddings (.safetensors with labels, paths and cameras, or .npy; n x d)
    #[arg(value_name = "EMBEDDINGS", required = true)]
    pub(crate) embeddings: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// Where the index goes
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// How it finds the nearest items
    #[arg(long, value_enum, default_value_t = Kind::Hnsw)]
    pub(crate) kind: Kind,
    /// How rows are compared [default: as the file says, else cosine]
    #[arg(long, value_enum)]
    pub(crate) metric: Option<Metric>,
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Of the graph; `exact` has none.
#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// hnsw: links a new item gets per level; memory is 8 bytes x M an item
    #[arg(long, value_name = "M", default_value_t = 16)]
    pub(crate) m: usize,
    /// hnsw: candidates among which links are chosen; more find more and build slower
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) ef_construction: usize,
    /// hnsw: candidates a search keeps; more find more and search slower
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) ef: usize,
    /// hnsw: seed of the levels and of the order in which items are linked
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Say what an index holds.
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// The index, or a collection: milvus://HOST[:PORT]/COLLECTION
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Print it as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Search an index with embeddings.
///
/// Prints, for each row of the queries, the K best items: rank, id, score, label, path. Equal scores
/// come in the order of ids.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// The index, or a collection: milvus://HOST[:PORT]/COLLECTION
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Embeddings of the queries (.safetensors or .npy, n x d)
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: PathBuf,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = count::<1_000_000_000>)]
    pub(crate) k: usize,
    /// hnsw: candidates a search keeps [default: what the index was built with]
    #[arg(long, value_name = "N")]
    pub(crate) ef: Option<usize>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Leave rows and links in the file instead of reading them into memory
    #[arg(long)]
    pub(crate) mapped: bool,
    /// Take queries of another model than the index's
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Measure an index: recall against exact search, and queries per second.
///
/// Recall@K is the share of the K truly nearest items that the lists hold. A search is timed as a
/// whole batch on all threads, the median of several.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Embeddings of the queries (.safetensors or .npy, n x d)
    #[arg(long, value_name = "FILE")]
    pub(crate) queries: PathBuf,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = count::<1_000_000_000>)]
    pub(crate) k: usize,
    /// hnsw: the numbers of candidates to measure
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "16,32,64,128,256")]
    pub(crate) ef: Vec<usize>,
    /// Times each batch is searched
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count::<MAX_REPEATS>)]
    pub(crate) repeats: usize,
    /// Leave rows and links in the file instead of reading them into memory
    #[arg(long)]
    pub(crate) mapped: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Add embeddings to an index.
///
/// Items that are there unchanged are counted and left as they are. An item that would replace another, with the
/// same source and path and another embedding, label or camera, is refused; --replace does it.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The index; it is replaced when all of it is written
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Embeddings (.safetensors with labels, paths and cameras, or .npy; n x d)
    #[arg(value_name = "EMBEDDINGS", required = true)]
    pub(crate) embeddings: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// hnsw: then build the graph anew without replaced and removed items
    #[arg(long)]
    pub(crate) compact: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Remove items from an index: those that pass every condition given.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The index, which is replaced when all of it is written; or a collection: milvus://HOST[:PORT]/COLLECTION
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// hnsw: then build the graph anew without replaced and removed items
    #[arg(long)]
    pub(crate) compact: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Bring embeddings into a collection of the vector database Milvus.
///
/// The collection is made where there is none. A push that was interrupted is resumed by the same
/// command: what is there unchanged is recognised and not sent again. Items that are there and not in
/// the files stay; one that would replace another is refused, unless --replace. While the server is away the push waits for it, see --patience.
///
/// `index info`, `index search`, `index remove`, `search` and `evaluate` take the address of the
/// collection in place of a file. MILVUS_TOKEN=USER:PASSWORD in the environment logs in.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// Embeddings (.safetensors with labels, paths and cameras, or .npy; n x d)
    #[arg(value_name = "EMBEDDINGS", required = true)]
    pub(crate) embeddings: Vec<PathBuf>,
    /// The collection: milvus://HOST[:PORT]/COLLECTION; the port is 19530 unless given
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gallery: PathBuf,
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// A new collection: how it finds the nearest items (Milvus' FLAT or HNSW)
    #[arg(long, value_enum, default_value_t = Kind::Hnsw)]
    pub(crate) kind: Kind,
    /// A new collection: how rows are compared [default: as the file says, else cosine]
    #[arg(long, value_enum)]
    pub(crate) metric: Option<Metric>,
    /// A new collection, hnsw: links of an item per level, 2 to 2048
    #[arg(long, value_name = "M", default_value_t = 16)]
    pub(crate) m: usize,
    /// A new collection, hnsw: candidates among which links are chosen
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) ef_construction: usize,
    /// How long to wait for a server that is away, starting or busy, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 90)]
    pub(crate) patience: u64,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// How rows of files become items.
#[derive(Debug, Args)]
pub(crate) struct ItemArgs {
    /// Labels of all rows in turn: .npy of integers, or text, one label a line [default: those in the files]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Where ids come from [default: paths where every file has them, else rows]
    #[arg(long, value_enum)]
    pub(crate) ids: Option<Ids>,
    /// Put items in the place of those that are there under the same source and path
    #[arg(long)]
    pub(crate) replace: bool,
    /// Mix embeddings of two models, whose distances mean nothing to each other
    #[arg(long)]
    pub(crate) force: bool,
}

/// Which items.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only items of these labels; `Fruit` or `Fruit/*` selects all labels that begin with `Fruit/` (repeatable)
    #[arg(long, value_name = "LABEL", conflicts_with = "not_label")]
    pub(crate) label: Vec<String>,
    /// No items of these labels, written in the same way (repeatable)
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
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Compute threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = count::<MAX_THREADS>)]
    pub(crate) threads: usize,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// Compare every item
    Exact,
    /// Walk a graph of neighbours
    Hnsw,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Ids {
    /// From the hash of source and path: the same image has the same id everywhere
    Paths,
    /// The number of the row: in build and push from 0, in add from the largest id on
    Rows,
}
