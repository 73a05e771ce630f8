//! The run file: TOML, every key with a default, unknown keys refused.

use std::path::{Path, PathBuf};

use gallerist_data::{
    AugmentConfig, ClassesImagesConfig, ImageConfig, SamplerConfig, SmallClasses, Transform,
};
use serde::{Deserialize, Serialize};

use crate::loss::{LossConfig, preset};
use crate::network::NetworkConfig;
use crate::optim::{OptimizerConfig, ScheduleConfig};
use crate::{Error, Result};

/// The run file with every key, its default and what it means.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// A run file, resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Steps, seed, threads.
    pub train: TrainConfig,
    /// Where the images are.
    pub data: DataConfig,
    /// Held-out classes for choosing the best checkpoint.
    pub validation: ValidationConfig,
    /// What the network is given.
    pub image: ImageConfig,
    /// Random changes of the training images.
    pub augment: AugmentConfig,
    /// How batches are put together.
    pub sampler: SamplerConfig,
    /// The network.
    pub network: NetworkConfig,
    /// The loss.
    pub loss: LossConfig,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// The learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// What is measured.
    pub evaluation: EvaluationConfig,
    /// What is shown.
    pub report: ReportConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            train: TrainConfig::default(),
            data: DataConfig::default(),
            validation: ValidationConfig::default(),
            image: ImageConfig::new(224, 3),
            augment: AugmentConfig::default(),
            sampler: SamplerConfig::ClassesImages(ClassesImagesConfig {
                classes_per_batch: 32,
                images_per_class: 4,
                small_classes: SmallClasses::Repeat,
            }),
            network: NetworkConfig::default(),
            loss: LossConfig::default(),
            optimizer: OptimizerConfig::default(),
            schedule: ScheduleConfig::default(),
            evaluation: EvaluationConfig::default(),
            report: ReportConfig::default(),
        }
    }
}

/// `[train]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimiser steps.
    pub steps: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// Compute threads; 0: one per core.
    pub threads: usize,
    /// Threads that decode and augment; 0: one per core.
    pub loader_threads: usize,
    /// Batches prepared ahead.
    pub prefetch: usize,
    /// Whether embeddings are L2-normalised before the loss; absent: as the loss's paper does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// A checkpoint is written every so many steps; 0: only at the end.
    pub checkpoint_every: usize,
}

impl Default for TrainConfig {
    fn default() -> Self {
        TrainConfig {
            steps: 2000,
            seed: 1,
            threads: 0,
            loader_threads: 0,
            prefetch: 4,
            normalize: None,
            checkpoint_every: 500,
        }
    }
}

/// Threads for loading: `0` means one per core.
pub(crate) fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

/// `[data]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Training images: folders, zips or CSV manifests; relative paths start at the run file's
    /// directory or, where nothing is found there, at the current one.
    pub train: Vec<PathBuf>,
    /// Test images, whose classes take no part in training; absent: nothing is evaluated at the end.
    pub test: Vec<PathBuf>,
    /// Of a manifest with a `split` column, the rows to train on; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_split: Option<String>,
    /// Of a manifest with a `split` column, the rows to test on; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_split: Option<String>,
    /// At most so many training classes, the first in the order of the set; 0: all.
    pub max_train_classes: usize,
    /// At most so many test classes; 0: all.
    pub max_test_classes: usize,
    /// Every training class also turned by 90, 180 and 270 degrees, as three further classes.
    pub rotation_classes: bool,
    /// Memory for decoded images, in MiB; what does not fit is decoded again when needed.
    pub cache_mib: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        DataConfig {
            train: Vec::new(),
            test: Vec::new(),
            train_split: None,
            test_split: None,
            max_train_classes: 0,
            max_test_classes: 0,
            rotation_classes: false,
            cache_mib: 1024,
        }
    }
}

/// `[validation]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// Share of the training classes that is held out for validation; 0: no validation, the last
    /// checkpoint is the best.
    pub fraction: f64,
    /// Seed of the choice of classes.
    pub seed: u64,
    /// Validation every so many steps, and at the last.
    pub every: usize,
    /// The metric by which the best checkpoint is chosen.
    pub metric: String,
}

impl Default for ValidationConfig {
    fn default() -> Self {
        ValidationConfig { fraction: 0.1, seed: 0, every: 200, metric: "map@r".into() }
    }
}

/// `[evaluation]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationConfig {
    /// The K of Recall@K.
    pub recall_at: Vec<usize>,
    /// Images embedded at once.
    pub batch_size: usize,
    /// Which weights are evaluated on the test set: `last` or `best` (on the validation classes).
    pub checkpoint: Which,
}

/// One of a run's two checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// After the last step.
    Last,
    /// With the best validation.
    #[default]
    Best,
}

impl Which {
    /// File name in the run's `checkpoints` directory.
    pub fn file_name(self) -> &'static str {
        match self {
            Which::Last => "last.safetensors",
            Which::Best => "best.safetensors",
        }
    }
}

impl Default for EvaluationConfig {
    fn default() -> Self {
        EvaluationConfig { recall_at: vec![1, 2, 4, 8], batch_size: 256, checkpoint: Which::Best }
    }
}

/// `[report]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// Ranked lists shown of queries drawn at random.
    pub queries: usize,
    /// Ranked lists shown of the queries with the lowest average precision.
    pub failures: usize,
    /// Results shown per query.
    pub results: usize,
}

impl Default for ReportConfig {
    fn default() -> Self {
        ReportConfig { queries: 16, failures: 16, results: 10 }
    }
}

impl RunConfig {
    /// Reads a run file and applies `key=value` settings to it.
    ///
    /// Relative data paths are resolved against the run file's directory, else left relative to the current
    /// one; see [`DataConfig`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the line, or the unknown key and the nearest known one;
    /// [`Error::Value`] for a value out of its range.
    pub fn load(path: &Path, settings: &[String]) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::Config {
            origin: format!("`{}`", path.display()),
            reason: if e.kind() == std::io::ErrorKind::NotFound {
                "no such file".into()
            } else {
                e.to_string()
            },
            hint: Some("`gallerist config --print-defaults > run.toml` writes one with every key".into()),
        })?;
        let mut config = Self::parse(&text, &format!("`{}`", path.display()), settings)?;
        let base = path.parent().unwrap_or(Path::new(""));
        for data in config.data.train.iter_mut().chain(&mut config.data.test) {
            let beside = base.join(&*data);
            if data.is_relative() && !data.exists() && beside.exists() {
                *data = beside;
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// Reads the text of a run file and applies settings; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] as for [`RunConfig::load`]. Ranges are checked by [`RunConfig::validate`].
    ///
    /// ```
    /// use gallerist_learn::train::RunConfig;
    /// let config = RunConfig::parse("[train]\nsteps = 10", "example", &["loss.margin=0.2".into()]).unwrap();
    /// assert_eq!(config.train.steps, 10);
    /// let error = RunConfig::parse("[train]\nstep = 10", "example", &[]).unwrap_err();
    /// assert_eq!(error.hint().unwrap(), "did you mean `steps`?");
    /// ```
    pub fn parse(text: &str, origin: &str, settings: &[String]) -> Result<Self> {
        let error =
            |reason: String, hint: Option<String>| Error::Config { origin: origin.into(), reason, hint };
        let mut table: toml::Table = toml::from_str(text).map_err(|e| error(at_line(text, &e), None))?;
        // Deserialised from the text first: its errors know the line. A preset is expanded below.
        let has_preset = table.get("loss").is_some_and(|loss| loss.get("preset").is_some());
        if !has_preset
            && let Err(e) = toml::from_str::<RunConfig>(text)
            && !e.message().starts_with("missing field")
        {
            return Err(error(at_line(text, &e), nearest_key(e.message())));
        }
        for setting in settings {
            set(&mut table, setting).map_err(|(reason, hint)| Error::Config {
                origin: format!("{origin} with `--set {setting}`"),
                reason,
                hint: Some(hint),
            })?;
        }
        if let Some(toml::Value::Table(loss)) = table.get_mut("loss") {
            expand_preset(loss).map_err(|(reason, hint)| error(reason, hint))?;
        }
        fill_in_defaults(&mut table);
        table.try_into().map_err(|e: toml::de::Error| Error::Config {
            origin: match settings {
                [] => origin.into(),
                _ => format!("{origin} with `--set {}`", settings.join(" --set ")),
            },
            reason: one_line(e.message()),
            hint: nearest_key(e.message()),
        })
    }

    /// The resolved run file as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a run file is plain data")
    }

    /// Checks every range.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] naming the key, what it may be and what was found.
    pub fn validate(&self) -> Result<()> {
        let error = |key: &str, wanted: &str, found: String| {
            Err(Error::Value { key: key.into(), wanted: wanted.into(), found })
        };
        if self.train.steps == 0 {
            return error("train.steps", "1 or more", "0".into());
        }
        if self.train.prefetch == 0 {
            return error("train.prefetch", "1 or more", "0".into());
        }
        if !(0.0..1.0).contains(&self.validation.fraction) {
            return error("validation.fraction", "from 0 to below 1", self.validation.fraction.to_string());
        }
        if self.validation.every == 0 {
            return error("validation.every", "1 or more", "0".into());
        }
        let recall = self.validation.metric.strip_prefix("recall@").and_then(|k| k.parse::<usize>().ok());
        let known = ["map@r", "r_precision"].contains(&self.validation.metric.as_str())
            || recall.is_some_and(|k| self.evaluation.recall_at.contains(&k));
        if !known {
            let wanted = "`map@r`, `r_precision`, or `recall@K` with K in evaluation.recall_at";
            return error("validation.metric", wanted, format!("`{}`", self.validation.metric));
        }
        if self.evaluation.recall_at.is_empty() || self.evaluation.recall_at.contains(&0) {
            return error(
                "evaluation.recall_at",
                "a list of numbers of 1 or more",
                format!("{:?}", self.evaluation.recall_at),
            );
        }
        if self.evaluation.batch_size == 0 {
            return error("evaluation.batch_size", "1 or more", "0".into());
        }
        self.loss.validate()?;
        self.optimizer.validate()?;
        self.schedule.validate()?;
        Transform::training(&self.image, &self.augment)?;
        Ok(())
    }

    /// Whether embeddings are normalised before the loss.
    pub fn normalize(&self) -> bool {
        self.train.normalize.unwrap_or(self.loss.normalized())
    }
}

/// Puts the keys of `preset = "…"` in its place; keys given beside it stay.
fn expand_preset(loss: &mut toml::Table) -> std::result::Result<(), (String, Option<String>)> {
    let Some(name) = loss.remove("preset") else { return Ok(()) };
    let name = name.as_str().unwrap_or_default().to_string();
    let Some(preset) = preset::find(&name) else {
        let known: Vec<&str> = preset::PRESETS.iter().map(|preset| preset.name).collect();
        let hint = did_you_mean(&name, &known);
        return Err((
            format!("unknown preset `{name}` of a loss, expected one of {}", known.join(", ")),
            hint,
        ));
    };
    let keys: toml::Table = preset.keys.parse().expect("a preset is TOML");
    for (key, value) in keys {
        loss.entry(key).or_insert(value);
    }
    Ok(())
}

/// A loss from its name or a preset, and `key=value` settings: what `[loss]` would say.
///
/// # Errors
///
/// [`Error::Config`] for an unknown loss, preset or parameter, with the nearest known one;
/// [`Error::Value`] for a value out of its range.
///
/// ```
/// use gallerist_learn::train::config::loss_from_settings;
/// let loss = loss_from_settings(Some("ice"), None, &["scale=16".into()])?;
/// assert_eq!(loss.name(), "ice");
/// let error = loss_from_settings(Some("contrastiv"), None, &[]).unwrap_err();
/// assert_eq!(error.hint().unwrap(), "did you mean `contrastive`?");
/// # Ok::<(), gallerist_learn::Error>(())
/// ```
pub fn loss_from_settings(
    name: Option<&str>,
    preset: Option<&str>,
    settings: &[String],
) -> Result<LossConfig> {
    let mut table = toml::Table::new();
    for (key, value) in [("name", name), ("preset", preset)] {
        if let Some(value) = value {
            table.insert(key.into(), value.into());
        }
    }
    let described = name.or(preset).unwrap_or("rll");
    let error = |reason, hint| Error::Config { origin: format!("for the loss `{described}`"), reason, hint };
    for setting in settings {
        set(&mut table, setting).map_err(|(reason, _)| {
            error(reason, Some("write it as key=value, e.g. --set margin=0.2".into()))
        })?;
    }
    expand_preset(&mut table).map_err(|(reason, hint)| error(reason, hint))?;
    let config: LossConfig = table
        .try_into()
        .map_err(|e: toml::de::Error| error(one_line(e.message()), nearest_key(e.message())))?;
    config.validate()?;
    Ok(config)
}

/// The message of a TOML error with its line.
fn at_line(text: &str, e: &toml::de::Error) -> String {
    let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map_or(String::new(), |line| format!("line {line}: "));
    format!("{place}{}", one_line(e.message()))
}

/// Sections whose keys depend on a choice (which network, which loss) get the keys they lack from
/// the default of the same choice; without a choice, the default's.
fn fill_in_defaults(table: &mut toml::Table) {
    let defaults = toml::Table::try_from(RunConfig::default()).expect("a run file is plain data");
    for (section, choice) in
        [("image", None), ("sampler", Some("kind")), ("network", Some("kind")), ("loss", Some("name"))]
    {
        let (Some(toml::Value::Table(given)), toml::Value::Table(default)) =
            (table.get_mut(section), &defaults[section])
        else {
            continue;
        };
        let same = choice.is_none_or(|key| given.get(key).is_none_or(|name| *name == default[key]));
        if same {
            for (key, value) in default {
                given.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

/// Applies one `dotted.key=value`; the value is TOML, or else a plain string.
fn set(table: &mut toml::Table, setting: &str) -> std::result::Result<(), (String, String)> {
    let example = "write it as section.key=value, e.g. --set train.steps=500";
    let Some((key, value)) = setting.split_once('=') else {
        return Err(("there is no `=` in it".into(), example.into()));
    };
    let (key, value) = (key.trim(), value.trim());
    let parsed = format!("v = {value}")
        .parse::<toml::Table>()
        .ok()
        .filter(|t| t.len() == 1)
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| toml::Value::String(value.into()));
    let parts: Vec<&str> = key.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err((format!("`{key}` is no key"), example.into()));
    }
    let (last, sections) = parts.split_last().expect("split gives one part at least");
    let mut table = table;
    for section in sections {
        let entry =
            table.entry(section.to_string()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = match entry {
            toml::Value::Table(inner) => inner,
            _ => return Err((format!("`{section}` is a value, not a section"), example.into())),
        };
    }
    table.insert(last.to_string(), parsed);
    Ok(())
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The known key nearest to the unknown one that serde's message names.
fn nearest_key(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if !(message.starts_with("unknown field") || message.starts_with("unknown variant")) {
        return None;
    }
    let unknown = quoted.next()?;
    let known: Vec<&str> = quoted.collect();
    did_you_mean(unknown, &known)
}

fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
}

/// The entry of `known` that is nearest to `word`, where one is near enough to be meant.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let score = |candidate: &str| strsim::jaro_winkler(word, candidate);
    known.iter().copied().filter(|k| score(k) > 0.75).max_by(|a, b| score(a).total_cmp(&score(b)))
}
