//! One file a reader, and the list of all.

mod cache;
mod condition;
#[cfg(any(feature = "milvus", feature = "qdrant"))]
mod databases;
mod embeddings;
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
}

const fn of(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

static TARGETS: &[Target] = &[
    #[cfg(feature = "server")]
    of("api", server::api),
    #[cfg(feature = "arrow")]
    of("arrow", table::arrow),
    of("bmp", pictures::bmp),
    of("cache", cache::run),
    #[cfg(feature = "engine")]
    of("checkpoint", runs::checkpoint),
    of("condition", condition::run),
    of("embeddings", embeddings::run),
    #[cfg(feature = "engine")]
    of("experiment", runs::experiment),
    of("gif", pictures::gif),
    #[cfg(feature = "server")]
    of("http", server::http),
    of("idx", sources::idx),
    of("index", index::run),
    #[cfg(feature = "engine")]
    of("info", runs::info),
    #[cfg(feature = "engine")]
    of("job", runs::job),
    of("jpeg", jpeg::run),
    of("labels", labels::run),
    #[cfg(feature = "engine")]
    of("log", runs::log),
    of("manifest", sources::manifest),
    of("mat", sources::mat),
    #[cfg(feature = "milvus")]
    of("milvus", databases::milvus),
    #[cfg(feature = "server")]
    of("multipart", server::multipart),
    of("npy", npy::run),
    #[cfg(feature = "onnx")]
    of("onnx", onnx::model),
    #[cfg(feature = "arrow")]
    of("parquet", table::parquet),
    #[cfg(feature = "engine")]
    of("pickle", weights::pickle),
    of("png", pictures::png),
    #[cfg(feature = "engine")]
    of("preprocessor", weights::preprocessor),
    #[cfg(feature = "qdrant")]
    of("qdrant", databases::qdrant),
    #[cfg(feature = "engine")]
    of("ranges", runs::ranges),
    of("relabel", sources::relabel),
    #[cfg(feature = "engine")]
    of("run_file", runs::run_file),
    #[cfg(feature = "engine")]
    of("setting", runs::setting),
    of("shards", shards::run),
    #[cfg(feature = "engine")]
    of("space", runs::space),
    #[cfg(feature = "server")]
    of("tags", server::tags),
    of("tar", sources::tar),
    of("tiff", pictures::tiff),
    #[cfg(feature = "onnx")]
    of("tokenizer", onnx::tokenizer),
    of("tree", sources::tree),
    of("webp", pictures::webp),
    #[cfg(feature = "engine")]
    of("weights", weights::file),
    of("zip", sources::zip),
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
