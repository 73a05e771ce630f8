//! One file a reader, and the list of all.

mod cache;
mod condition;
#[cfg(any(feature = "milvus", feature = "qdrant"))]
mod databases;
mod embeddings;
mod given_up;
mod index;
mod jpeg;
mod labels;
mod npy;
#[cfg(feature = "onnx")]
mod onnx;
mod pictures;
#[cfg(any(feature = "arrow", feature = "onnx"))]
mod quiet;
#[cfg(feature = "engine")]
mod runs;
#[cfg(feature = "server")]
mod server;
mod shards;
mod sources;
#[cfg(feature = "arrow")]
mod table;
#[cfg(feature = "engine")]
mod weights;

/// A reader with its name, which is that of its program, its corpus and its regressions.
pub struct Target {
    /// The name.
    pub name: &'static str,
    /// Gives the reader these bytes.
    pub run: fn(&[u8]),
    /// What some input of the corpus must reach ([`take_reached`](crate::take_reached)).
    pub goals: &'static [&'static str],
}

const fn of(name: &'static str, run: fn(&[u8]), goals: &'static [&'static str]) -> Target {
    Target { name, run, goals }
}

/// What `info` must recognise: every kind of file but a list of shards, which is known when its shards are.
#[cfg(feature = "engine")]
const INFO: &[&str] = &[
    "a checkpoint",
    "embeddings",
    "the record of a shard of embeddings",
    "a map of a gallery",
    "an index",
    "tags and selections of a gallery",
    "the log of a run",
    "the test metrics of a run",
    "the ranges of a network for int8",
    "a run file",
    "an ONNX model",
    "weights of a network",
];

static TARGETS: &[Target] = &[
    #[cfg(feature = "server")]
    of("api", server::api, &["done", "refused"]),
    #[cfg(feature = "arrow")]
    of("arrow", table::arrow, &["loaded", "a stream", "columns", "labels"]),
    of("bmp", pictures::bmp, &["decoded", "compared"]),
    of("cache", cache::run, &["a row"]),
    #[cfg(feature = "engine")]
    of("checkpoint", runs::checkpoint, &["loaded", "with a checksum"]),
    of("condition", condition::run, &["applied", "negated"]),
    of("embeddings", embeddings::run, &["loaded", "mapped", "compact", "columns", "threshold"]),
    #[cfg(feature = "engine")]
    of("experiment", runs::experiment, &["parsed"]),
    of("gif", pictures::gif, &["decoded", "compared"]),
    #[cfg(feature = "server")]
    of("http", server::http, &["done", "refused"]),
    of("idx", sources::idx, &["opened", "decoded"]),
    of("index", index::run, &["exact", "hnsw", "found"]),
    #[cfg(feature = "engine")]
    of("info", runs::info, INFO),
    #[cfg(feature = "engine")]
    of("job", runs::job, &["numbers", "metrics"]),
    of("jpeg", jpeg::run, &["whole", "reduced", "compared"]),
    of("labels", labels::run, &["loaded"]),
    #[cfg(feature = "engine")]
    of("log", runs::log, &["records"]),
    of("manifest", sources::manifest, &["opened", "columns", "decoded"]),
    of("mat", sources::mat, &["opened", "decoded"]),
    #[cfg(feature = "milvus")]
    of(
        "milvus",
        databases::milvus,
        &["opened", "found", "items", "labels", "info", "columns", "removed", "filtered"],
    ),
    #[cfg(feature = "server")]
    of("multipart", server::multipart, &["search", "item"]),
    of("npy", npy::run, &["matrix", "array", "labels"]),
    #[cfg(feature = "onnx")]
    of("onnx", onnx::model, &["inspected", "opened"]),
    #[cfg(feature = "arrow")]
    of("parquet", table::parquet, &["loaded", "columns", "labels"]),
    #[cfg(feature = "engine")]
    of("pickle", weights::pickle, &["tensors"]),
    of("png", pictures::png, &["decoded", "compared"]),
    #[cfg(feature = "engine")]
    of("preprocessor", weights::preprocessor, &["read"]),
    #[cfg(feature = "qdrant")]
    of(
        "qdrant",
        databases::qdrant,
        &["opened", "found", "items", "labels", "info", "columns", "removed", "filtered"],
    ),
    #[cfg(feature = "engine")]
    of("ranges", runs::ranges, &["used"]),
    of("relabel", sources::relabel, &["opened", "decoded"]),
    #[cfg(feature = "engine")]
    of("run_file", runs::run_file, &["parsed", "valid"]),
    #[cfg(feature = "engine")]
    of("setting", runs::setting, &["parsed"]),
    of("shards", shards::run, &["record", "list"]),
    #[cfg(feature = "engine")]
    of("space", runs::space, &["parsed"]),
    #[cfg(feature = "server")]
    of("tags", server::tags, &["changed", "refused"]),
    of("tar", sources::tar, &["opened", "decoded"]),
    of("tiff", pictures::tiff, &["decoded", "compared"]),
    #[cfg(feature = "onnx")]
    of("tokenizer", onnx::tokenizer, &["opened", "embedded"]),
    of("tree", sources::tree, &["opened", "decoded", "one-shot runs"]),
    of("webp", pictures::webp, &["decoded", "compared"]),
    #[cfg(feature = "engine")]
    of("weights", weights::file, &["tensors", "safetensors"]),
    of("zip", sources::zip, &["opened", "decoded"]),
];

/// All targets that were built, in the order of their names.
pub fn targets() -> &'static [Target] {
    TARGETS
}

/// The target of this name.
///
/// # Panics
/// Where there is none.
pub fn target(name: &str) -> &'static Target {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("no target is called `{name}`"))
}
