//! What a file or folder is, by its content.

use std::fs;
use std::path::{Path, PathBuf};

use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::eval::MatchRule;
use gallerist_retrieval::file::{read_regular, read_regular_to_string};
use gallerist_retrieval::index::{Index, is_index, open_index};
use gallerist_retrieval::shards::{JoinedShards, Shard, ShardRecord};
use gallerist_retrieval::{EmbeddingSet, GalleryFile};
use gallerist_serve::AUDIT_LINES;
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::log::{self, Record};
use gallerist_train::{CheckpointKind, RunConfig, RunDirectory, Timing};
use gallerist_util::text::address;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::file::io;
use crate::tasks::is_remote;
use crate::text::duration;
use crate::{Error, Result, RunMetrics, weights};

/// What a file or folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContentsKind {
    /// A folder with a run: run file, checkpoints, log, results.
    Run,
    /// A checkpoint of a run.
    Checkpoint,
    /// Embeddings, of this program or another one.
    Embeddings,
    /// A list of the shards of a gallery.
    Shards,
    /// The record of a shard.
    Shard,
    /// The places of a gallery's items on the map of `serve`.
    Map,
    /// An index.
    Index,
    /// The tags and saved selections of a gallery.
    Tags,
    /// The log of a run.
    Log,
    /// The audit log of `serve`.
    Audit,
    /// The test metrics of a run.
    Metrics,
    /// The ranges of the values of a run's network, for int8.
    Ranges,
    /// A run file.
    RunFile,
    /// An ONNX model.
    Onnx,
    /// Weights of a network: exported by this program, or of another one.
    Weights,
}

impl ContentsKind {
    /// The kind in words, with its article.
    pub fn words(self) -> &'static str {
        match self {
            Self::Run => "a run directory",
            Self::Checkpoint => "a checkpoint",
            Self::Embeddings => "embeddings",
            Self::Shards => "a list of shards of embeddings",
            Self::Shard => "the record of a shard of embeddings",
            Self::Map => "a map of a gallery",
            Self::Index => "an index",
            Self::Tags => "tags and selections of a gallery",
            Self::Log => "the log of a run",
            Self::Audit => "the audit log of a server",
            Self::Metrics => "the test metrics of a run",
            Self::Ranges => "the ranges of a network for int8",
            Self::RunFile => "a run file",
            Self::Onnx => "an ONNX model",
            Self::Weights => "weights of a network",
        }
    }
}

/// What a file or folder is and what is in it. [`contents`] finds it.
///
/// As JSON: `path`, `kind`, `bytes`, `checksum`, and `facts`, an object whose keys have `_` in place of spaces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contents {
    /// The path that was asked for.
    pub path: PathBuf,
    /// What it is.
    pub kind: ContentsKind,
    /// Bytes of the file; of a run, of all its files.
    pub bytes: u64,
    /// Whether the file carries a checksum. It was compared: a file of which a bit changed is an error.
    pub checksum: bool,
    /// What is in it. What is not known is left out.
    pub facts: Facts,
}

/// Names and values, in the order of a description.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(pub Vec<(String, Value)>);

impl Facts {
    fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.0.push((name.to_owned(), value.into()));
    }

    fn add_known(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(&name.replace(' ', "_"), value)?;
        }
        map.end()
    }
}

/// Says what a file or folder of this program is, by its content, and reads it as a whole: a file that a command would
/// refuse is an error here, too.
///
/// # Example
///
/// ```no_run
/// let found = gallerist::contents("photos.safetensors".as_ref())?;
/// println!("{}, {} bytes", found.kind.words(), found.bytes);
/// for (name, value) in &found.facts.0 {
///     println!("{name}: {value}");
/// }
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When there is nothing at `path`, it is nothing that this function describes, or it is damaged. Of a run, the checkpoints and
/// embeddings are read, too.
pub fn contents(path: &Path) -> Result<Contents> {
    if path.to_str().and_then(address).is_some() {
        let hint = match is_remote(path) {
            true => "`gallerist index info` describes a collection of a database",
            false => {
                "copy it here first; `gallerist data info` describes images of an object store where they are"
            }
        };
        return Err(Error::new(format!("`{}` is no file", path.display()), Some(hint)));
    }
    let about = fs::metadata(path).map_err(|source| io("read", path, source))?;
    let mut facts = Facts::default();
    let (kind, checksum) = match about.is_dir() {
        true => (run(path, &mut facts)?, false),
        false => file(path, &mut facts)?,
    };
    let bytes = if about.is_dir() { bytes_in(path)? } else { about.len() };
    Ok(Contents { path: path.into(), kind, bytes, checksum, facts })
}

/// Bytes of all files in a folder and its folders.
fn bytes_in(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(|source| io("read", folder, source))? {
        let entry = entry.map_err(|source| io("read", folder, source))?;
        // A file may disappear while a run goes on.
        let Ok(about) = entry.metadata() else { continue };
        bytes += if about.is_dir() { bytes_in(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

/// What a file is, and whether a checksum of it was compared.
fn file(path: &Path, facts: &mut Facts) -> Result<(ContentsKind, bool)> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let ends = |ending: &str| name.ends_with(ending);
    if let Some(header) = weights::safetensors_header(path) {
        let metadata = header.get("__metadata__").unwrap_or(&Value::Null);
        let whole = metadata["sha256"].is_string();
        return match metadata["format"].as_str() {
            Some("gallerist-index") => index(path, facts).map(|()| (ContentsKind::Index, whole)),
            _ if metadata["gallerist"].is_string() => {
                checkpoint(path, facts).map(|whole| (ContentsKind::Checkpoint, whole))
            }
            _ if header.get("embeddings").is_some() => {
                facts.add_known("format version", metadata["format_version"].as_str());
                if ends(".map.safetensors") {
                    map(path, facts)?;
                    return Ok((ContentsKind::Map, whole));
                }
                embeddings(path, facts)?;
                Ok((ContentsKind::Embeddings, whole))
            }
            _ => tensors(path, facts).map(|()| (ContentsKind::Weights, false)),
        };
    }
    refuse_part_of_run(path)?;
    let kind = if ends(".toml") {
        settings(&run_file(path)?, facts);
        ContentsKind::RunFile
    } else if is_index(path) {
        // Its header cannot be read: reading it as an index says what is wrong.
        index(path, facts)?;
        ContentsKind::Index
    } else if ends(".onnx") {
        model(path, facts)?;
        ContentsKind::Onnx
    } else if ends(".jsonl") {
        return Ok((json_lines(path, facts)?, false));
    } else if ends(".tags.json") {
        tags(path, facts)?;
        ContentsKind::Tags
    } else if ends(".json") {
        return json_file(path, facts);
    } else if [".npy", ".safetensors", ".parquet", ".arrow", ".feather", ".ipc"].into_iter().any(ends) {
        embeddings(path, facts)?;
        ContentsKind::Embeddings
    } else if [".pth", ".pt"].iter().any(|ending| ends(ending)) {
        tensors(path, facts)?;
        ContentsKind::Weights
    } else {
        return Err(not_described(path));
    };
    Ok((kind, false))
}

/// Refuses a file of a run that says nothing alone, by its name.
fn refuse_part_of_run(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let what = match &*name {
        "timing.json" => "the times of a run",
        "broken_images.json" => "the list of a run's images that could not be read",
        "place.toml" => "the place where a run directory was made",
        // Manifests may have this name, too.
        "images.csv" if path.parent().is_some_and(|folder| RunDirectory::open(folder).is_ok()) => {
            "the list of images and labels that a run was trained on"
        }
        _ => return Ok(()),
    };
    Err(Error::new(
        format!("`{}` is {what}, and is described with the run", path.display()),
        Some("give the run directory: gallerist info RUN"),
    ))
}

/// A list of shards, the record of a shard, ranges for int8, or the metrics of a run.
fn json_file(path: &Path, facts: &mut Facts) -> Result<(ContentsKind, bool)> {
    let text = read_regular_to_string(path).map_err(|source| io("read", path, source))?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    match value["format"].as_str() {
        Some("gallerist-ranges") => {
            facts.add("layers", value["ranges"].as_array().map_or(0, Vec::len));
            facts.add("measured on images", value["images"].clone());
            facts.add("model", value["model"].clone());
            Ok((ContentsKind::Ranges, false))
        }
        Some("gallerist-shards") => {
            let list = JoinedShards::read(path)?;
            list.verify(path)?;
            facts.add("embeddings", list.rows);
            facts.add("dimensions", list.dimensions);
            facts.add("shards", list.shards.len());
            facts.add("bytes of the shards", list.shards.iter().map(|shard| shard.bytes).sum::<u64>());
            facts.add("metric", list.metric.name());
            threshold(list.threshold.as_ref(), facts);
            facts.add("model", list.model);
            Ok((ContentsKind::Shards, true))
        }
        Some("gallerist-shard") => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let record = Shard::of_name(&name).ok_or_else(|| "its name is not of a shard".to_owned());
            let record = record.and_then(|shard| ShardRecord::parse(text.as_bytes(), shard));
            let record =
                record.map_err(|problem| Error::new(format!("`{}`: {problem}", path.display()), None))?;
            facts.add("shard", format!("{} of {}", record.index, record.count));
            facts.add("embeddings", record.rows);
            facts.add("dimensions", record.dimensions);
            facts.add("broken images", record.broken.len());
            facts.add_known("file", record.file.map(|file| file.name));
            facts.add("metric", record.origin.metric.name());
            facts.add("model", record.origin.model);
            facts.add("run", record.run);
            facts.add("images from", record.manifest);
            Ok((ContentsKind::Shard, false))
        }
        _ if value.get("checkpoint").is_some()
            || path.file_name().is_some_and(|name| name == "metrics.json") =>
        {
            measured(&RunMetrics::load(path)?, facts);
            Ok((ContentsKind::Metrics, false))
        }
        Some(format) if format.starts_with("gallerist") => {
            let hint = "a newer version of Gallerist may have written it: update this program";
            Err(Error::new(format!("`{}` is of the unknown format `{format}`", path.display()), Some(hint)))
        }
        _ if value.is_null() => Err(Error::new(format!("`{}` is damaged, or no JSON", path.display()), None)),
        _ => Err(not_described(path)),
    }
}

/// A run file. The other `.toml` files of this program are named in the error.
fn run_file(path: &Path) -> Result<RunConfig> {
    RunConfig::load(path, &[]).map_err(|error| {
        let text = read_regular_to_string(path).unwrap_or_default();
        let table: toml::Table = toml::from_str(&text).unwrap_or_default();
        let what = if table.contains_key("space") {
            "the space of a search"
        } else if table.contains_key("trial") {
            "the trials of a search"
        } else {
            return error.into();
        };
        Error::new(
            format!("`{}` is {what}, and nothing that `info` describes", path.display()),
            Some("`gallerist tune` writes a page of its search, tune.html"),
        )
    })
}

fn not_described(path: &Path) -> Error {
    Error::new(
        format!("`{}` is nothing that `info` describes", path.display()),
        Some("`gallerist data info` describes images, lists of images and archives"),
    )
}

fn run(path: &Path, facts: &mut Facts) -> Result<ContentsKind> {
    let Ok(directory) = RunDirectory::open(path) else {
        let hint = "`gallerist data info` describes a folder of images";
        return Err(Error::new(format!("`{}` is no run directory", path.display()), Some(hint)));
    };
    let config = RunConfig::load(&directory.config(), &[])?;
    let load = |kind| {
        let file = directory.checkpoint(kind);
        file.exists().then(|| Checkpoint::load(&file)).transpose()
    };
    let (last, best) = (load(CheckpointKind::Last)?, load(CheckpointKind::Best)?);
    for file in [directory.embeddings(), directory.query(), directory.gallery()] {
        if file.exists() {
            embeddings(&file, &mut Facts::default())?;
        }
    }
    let measures_best = config.evaluation.checkpoint == CheckpointKind::Best;
    let model = if measures_best { best.as_ref().or(last.as_ref()) } else { last.as_ref().or(best.as_ref()) };
    let model = model.map(|checkpoint| checkpoint.header.fingerprint.clone());
    let last = last.or(best);
    let steps = config.train.steps;
    let state = match &last {
        None => "no checkpoint".to_owned(),
        Some(last) if last.header.step == 0 => "not trained".to_owned(),
        Some(last) if last.header.step < steps => {
            format!("stopped after {} of {steps} steps", last.header.step)
        }
        Some(last) => format!("trained, {} steps", last.header.step),
    };
    facts.add("state", state);
    settings(&config, facts);
    if let (Some(last), Some(model)) = (&last, &model) {
        header(last, model, facts);
    }
    let timing = Timing::load(&directory.timing())?;
    facts.add_known("training time", timing.map(|timing| duration(timing.training_seconds)));
    if directory.metrics().exists() {
        measured(&RunMetrics::load(&directory.metrics())?, facts);
    }
    Ok(ContentsKind::Run)
}

/// The main settings of a run file.
fn settings(config: &RunConfig, facts: &mut Facts) {
    facts.add("network", config.network.name());
    let losses: Vec<&str> = config.loss.0.iter().map(|term| term.loss.name()).collect();
    facts.add("loss", losses.join(" + "));
    let image = &config.image;
    facts.add("images", format!("{} x {} x {}", image.channels, image.size.height, image.size.width));
    facts.add("steps", config.train.steps);
    let paths =
        |list: &[PathBuf]| list.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let data = &config.data;
    let mut images = vec![("trained on", &data.train)];
    if data.has_test() {
        images.extend([("test", &data.test), ("queries", &data.query), ("gallery", &data.gallery)]);
    }
    for (name, list) in images {
        facts.add_known(name, (!list.is_empty()).then(|| paths(list)));
    }
}

/// What the header of a checkpoint says. `model` is the fingerprint of the network that embeds.
fn header(checkpoint: &Checkpoint, model: &str, facts: &mut Facts) {
    let header = &checkpoint.header;
    let sizes = checkpoint.network.values().map(|tensor| tensor.shape().iter().product::<usize>());
    facts.add("numbers in the network", sizes.sum::<usize>());
    facts.add_known(
        "best validation",
        header.best.as_ref().map(|best| format!("{} {:.4} at step {}", best.metric, best.value, best.step)),
    );
    // Of earlier versions; now it is in timing.json.
    facts.add_known("training time", (header.seconds > 0.0).then(|| duration(header.seconds)));
    facts.add_known("skipped steps", (header.skipped.all > 0).then_some(header.skipped.all));
    facts.add_known("broken images", (!header.broken.is_empty()).then_some(header.broken.len()));
    facts.add_known("device", Some(header.device.as_str()).filter(|device| !device.is_empty()));
    facts.add("model", model);
    facts.add("format", header.format.as_str());
    facts.add("written by version", header.version.as_str());
}

/// Adds what a checkpoint says, and returns whether it has a checksum, which was compared.
fn checkpoint(path: &Path, facts: &mut Facts) -> Result<bool> {
    let checkpoint = Checkpoint::load(path)?;
    facts.add("step", checkpoint.header.step);
    let file = path.display().to_string();
    settings(&RunConfig::parse(&checkpoint.header.config, &file, &[])?, facts);
    header(&checkpoint, &checkpoint.header.fingerprint, facts);
    Ok(!checkpoint.header.sha256.is_empty())
}

/// The first metrics of a run and how they were measured.
fn measured(metrics: &RunMetrics, facts: &mut Facts) {
    let evaluation = &metrics.evaluation;
    facts.add("protocol", evaluation.protocol.as_str());
    let values = &evaluation.metrics;
    let first = if values.get("recall@1").is_some() { "recall@1" } else { "cmc@1" };
    for name in [first, "map@r", "map"] {
        facts.add_known(name, values.get(name));
    }
    facts.add("measured checkpoint", format!("{}, step {}", metrics.checkpoint, metrics.step));
}

fn embeddings(path: &Path, facts: &mut Facts) -> Result<()> {
    let (set, rows, dimensions, precision) = match GalleryFile::open(path, false)? {
        GalleryFile::Embeddings(set) => {
            let (rows, dimensions) = (set.embeddings.rows(), set.embeddings.cols());
            (*set, rows, dimensions, None)
        }
        GalleryFile::Compact(compact) => {
            compact.verify()?;
            let view = compact.view();
            let size = (view.rows(), view.cols(), view.code());
            (compact.without_embeddings()?, size.0, size.1, Some(size.2.name()))
        }
        GalleryFile::Index(_) => return index(path, facts),
    };
    facts.add("embeddings", rows);
    facts.add("dimensions", dimensions);
    facts.add_known("precision", precision);
    rows_of(&set, facts);
    Ok(())
}

/// A map is stored as embeddings of two dimensions, whose source is the method.
fn map(path: &Path, facts: &mut Facts) -> Result<()> {
    let set = EmbeddingSet::load(path)?;
    facts.add("points", set.embeddings.rows());
    facts.add_known("method", set.source);
    Ok(())
}

/// What is known of the rows of a set.
fn rows_of(set: &EmbeddingSet, facts: &mut Facts) {
    let classes = set.labels.as_ref().map(|labels| {
        let mut labels: Vec<&String> = labels.iter().collect();
        labels.sort_unstable();
        labels.dedup();
        labels.len()
    });
    facts.add_known("classes", classes);
    for (name, list) in [("paths", &set.paths), ("cameras", &set.cameras)] {
        facts.add_known(name, list.as_ref().map(|_| true));
    }
    columns(&set.columns, facts);
    facts.add_known("metric", set.metric.map(|metric| metric.name()));
    facts.add_known("protocol", set.protocol.as_deref());
    threshold(set.threshold.as_ref(), facts);
    facts.add_known("model", set.model.as_deref());
    facts.add_known("run", set.run.as_deref());
    let names = set.sources.iter().flat_map(|sources| sources.list()).map(|source| source.name.as_str());
    places(set.source.as_deref(), &names.collect::<Vec<_>>(), facts);
}

/// Where the images are from, and the names of their sources where these are others.
fn places(source: Option<&str>, names: &[&str], facts: &mut Facts) {
    let names = (!names.is_empty()).then(|| names.join(", "));
    facts.add_known("images from", source.or(names.as_deref()));
    facts.add_known("sources", names.filter(|names| source.is_some_and(|source| source != names)));
}

/// A threshold and the metric that it is one of.
fn threshold(rule: Option<&MatchRule>, facts: &mut Facts) {
    facts.add_known("threshold", rule.map(|rule| rule.threshold));
    facts.add_known("metric of the threshold", rule.map(|rule| rule.metric.name()));
}

fn columns(columns: &Columns, facts: &mut Facts) {
    let list: Vec<String> =
        columns.iter().map(|column| format!("{} ({})", column.name(), column.kind())).collect();
    facts.add_known("further columns", (!list.is_empty()).then(|| list.join(", ")));
}

fn index(path: &Path, facts: &mut Facts) -> Result<()> {
    let index = open_index(path, true)?;
    index_facts(index.as_ref(), facts)
}

/// What an index says of itself.
fn index_facts(index: &dyn Index, facts: &mut Facts) -> Result<()> {
    let (info, origin) = (index.info()?, index.origin()?);
    facts.add("kind", info.kind.name);
    facts.add("compared by", info.metric.score());
    facts.add("items", info.count);
    facts.add("dimensions", info.dimensions);
    for (name, value) in info.settings {
        facts.add(&name.replace('_', " "), value);
    }
    facts.add_known("dead in the graph", info.dead);
    threshold(origin.threshold.as_ref(), facts);
    facts.add_known("model", origin.model);
    facts.add_known("run", origin.run);
    let sources = index.sources()?;
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    places(origin.source.as_deref(), &names, facts);
    let list: Vec<String> = index.columns()?.iter().map(|(name, kind)| format!("{name} ({kind})")).collect();
    facts.add_known("further columns", (!list.is_empty()).then(|| list.join(", ")));
    Ok(())
}

fn tensors(path: &Path, facts: &mut Facts) -> Result<()> {
    let file = weights::read(path)?;
    let network = weights::network_of(path)?;
    let keys =
        network.map(|keys| keys.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>());
    facts.add_known("network", keys.map(|keys| keys.join(", ")));
    facts.add("tensors", file.tensors.len() + file.others.len());
    let sizes = file.tensors.values().map(|tensor| tensor.shape().iter().product::<usize>());
    facts.add("numbers", sizes.sum::<usize>());
    Ok(())
}

fn model(path: &Path, facts: &mut Facts) -> Result<()> {
    let found = crate::onnx::Inspection::of_file(path, crate::onnx::Engine::default())
        .map_err(|error| Error::new(error.to_string(), error.hint().as_deref()))?;
    facts.add_known("written by", found.producer);
    let ports = |ports: &[crate::onnx::Port]| {
        ports
            .iter()
            .map(|port| format!("{} {}", port.name, port.shape.join(" x ")))
            .collect::<Vec<_>>()
            .join(", ")
    };
    facts.add("inputs", ports(&found.inputs));
    facts.add("outputs", ports(&found.outputs));
    facts.add("parameters", found.parameters);
    let missing: Vec<String> = found.missing.iter().map(ToString::to_string).collect();
    facts.add_known("operators that are not supported", (!missing.is_empty()).then(|| missing.join(", ")));
    Ok(())
}

/// The log of a run, or the audit log of a server.
fn json_lines(path: &Path, facts: &mut Facts) -> Result<ContentsKind> {
    let bytes = read_regular(path).map_err(|source| io("read", path, source))?;
    let lines = || bytes.split(|&byte| byte == b'\n');
    let [entries, failed] = AUDIT_LINES.map(|start| lines().filter(|line| line.starts_with(start)).count());
    if entries + failed > 0 {
        facts.add("changes", entries);
        facts.add("failed", failed);
        return Ok(ContentsKind::Audit);
    }
    let records = log::read(path)?;
    // A run that was just started has an empty log, and a killed one perhaps a part of a line.
    if records.is_empty() && !bytes.is_empty() && !bytes.starts_with(b"{\"event\":") {
        return Err(not_described(path));
    }
    log_facts(&records, facts);
    Ok(ContentsKind::Log)
}

fn log_facts(records: &[Record], facts: &mut Facts) {
    facts.add("records", records.len());
    facts.add("steps", records.iter().map(Record::step).max().unwrap_or(0));
    let count = |wanted: fn(&Record) -> bool| records.iter().filter(|record| wanted(record)).count();
    facts.add("validations", count(|record| matches!(record, Record::Validation { .. })));
    facts.add("warnings", count(|record| matches!(record, Record::Warning { .. })));
    facts.add("times resumed", count(|record| matches!(record, Record::Resumed { .. })));
}

fn tags(path: &Path, facts: &mut Facts) -> Result<()> {
    let text = read_regular_to_string(path).map_err(|source| io("read", path, source))?;
    let lists: Value = serde_json::from_str(&text)
        .map_err(|error| Error::new(format!("`{}` is no file of tags: {error}", path.display()), None))?;
    facts.add("format version", lists["version"].clone());
    for name in ["tags", "selections"] {
        let names: Vec<&String> = lists[name].as_object().into_iter().flat_map(|map| map.keys()).collect();
        facts.add_known(name, (!names.is_empty()).then(|| json!(names)));
    }
    Ok(())
}
