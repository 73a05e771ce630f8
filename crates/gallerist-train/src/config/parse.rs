//! From the text of a run file and `key=value` settings to a configuration.

use std::path::Path;

use gallerist_data::{Size, Transform};
use gallerist_loss::{LossConfig, preset};
use gallerist_nn::{InputShape, OnnxConfig};
use gallerist_util::text::nearest;
use gallerist_weights as weights;

use super::explain::{self, Fault, one_line};
use super::schema::RunConfig;
use crate::{Error, Result};

/// The side of images for a model that takes images of any size.
const SIDE_OF_MODELS: usize = 224;

impl RunConfig {
    /// Reads a run file and applies `key=value` settings to it.
    ///
    /// Relative paths are resolved against the run file's directory, or left relative to the current one if nothing is
    /// found there. Those of settings start at the current directory.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] naming the line, or the unknown key and the nearest known one;
    /// [`Error::Value`](gallerist_tensor::Error::Value) for a value out of its range.
    pub fn load(path: &Path, settings: &[String]) -> Result<Self> {
        let text = gallerist_retrieval::file::read_regular_to_string(path).map_err(|e| Error::Config {
            origin: format!("`{}`", path.display()),
            reason: if e.kind() == std::io::ErrorKind::NotFound {
                "no such file".into()
            } else {
                e.to_string()
            },
            hint: Some("`gallerist config --print-defaults > run.toml` writes one with every key".into()),
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::complete(&text, &format!("`{}`", path.display()), folder, settings)
    }

    /// The text of a run file as [`load`](Self::load) takes it: `origin` names it in errors, `folder` is its directory.
    ///
    /// # Errors
    ///
    /// As [`RunConfig::load`].
    pub fn complete(text: &str, origin: &str, folder: &Path, settings: &[String]) -> Result<Self> {
        let mut config = Self::parse(text, origin, settings)?;
        config.find_files(folder, settings);
        config.suit_weights(&given(text, settings))?;
        config.suit_model(&given(text, settings))?;
        config.suit_text()?;
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
    /// use gallerist_train::RunConfig;
    /// let config = RunConfig::parse("[train]\nsteps = 10", "example", &["loss.margin=0.2".into()]).unwrap();
    /// assert_eq!(config.train.steps, 10);
    /// let error = RunConfig::parse("[train]\nstep = 10", "example", &[]).unwrap_err();
    /// assert_eq!(error.hint().unwrap(), "did you mean `steps`?");
    /// ```
    pub fn parse(text: &str, origin: &str, settings: &[String]) -> Result<Self> {
        let error =
            |reason: String, hint: Option<String>| Error::Config { origin: origin.into(), reason, hint };
        let mut table: toml::Table = toml::from_str(text).map_err(|e| error(at_line(text, &e), None))?;
        forget_old_batch_size(&mut table);
        // First the file alone, because its errors have a line. A missing key may come from a setting.
        if let Err(Fault { key, reason, hint, missing: false, .. }) = resolve(table.clone()) {
            let line = key.and_then(|key| explain::line_of(text, &key));
            return Err(error(line.map_or(String::new(), |line| format!("line {line}: ")) + &reason, hint));
        }
        for setting in settings {
            set(&mut table, setting).map_err(|(reason, hint)| Error::Config {
                origin: format!("{origin} with `--set {setting}`"),
                reason,
                hint: Some(hint),
            })?;
        }
        resolve(table).map_err(|Fault { reason, hint, setting, .. }| Error::Config {
            origin: match settings {
                [] => origin.into(),
                _ => format!("{origin} with `--set {}`", settings.join(" --set ")),
            },
            reason,
            hint: match (hint, setting) {
                (Some(hint), Some(setting)) => Some(format!("{hint}, or {setting}")),
                (hint, _) => hint,
            },
        })
    }

    /// Takes the values that the run file, as `given`, does not set from the file of `network.weights`: the parameters of
    /// networks with several variants, and the preparation of images.
    fn suit_weights(&mut self, given: &toml::Table) -> Result<()> {
        let Some(path) = self.network.weights.clone().filter(|path| path.is_file()) else { return Ok(()) };
        let says = |section: &str, keys: &[&str]| {
            let section = given.get(section).and_then(toml::Value::as_table);
            keys.iter().any(|key| section.is_some_and(|section| section.contains_key(*key)))
        };
        if weights::OF_SEVERAL_VARIANTS.contains(&self.network.name()) {
            self.suit_network(&path, given)?;
        }
        // These keys belong together: a run file that sets one of them sets all.
        let values = says("image", &["channels", "mean", "std", "range", "bgr", "invert"]);
        let size = says("image", &["size"]);
        // The file is not read for what the run file has, as that of a run does.
        if values && size {
            return Ok(());
        }
        let Some(known) = self.preprocessing_of_weights() else { return Ok(()) };
        if !values {
            known.apply(&mut self.image);
        }
        if !size {
            self.image.size = known.size;
        }
        Ok(())
    }

    /// The preparation of images that the file of `network.weights` wants, if it is known.
    pub(crate) fn preprocessing_of_weights(&self) -> Option<weights::Preprocessing> {
        let keys = toml::Table::try_from(&self.network.architecture).expect("a network is plain data");
        let layout = keys.get("layout").and_then(toml::Value::as_str);
        weights::Preprocessing::of_weights(self.network.weights.as_ref()?, self.network.name(), layout)
    }

    /// Takes the values that the run file, as `given`, does not set from the ONNX model in `network.file`: size and
    /// preparation of images, length of the features, SHA-256.
    fn suit_model(&mut self, given: &toml::Table) -> Result<()> {
        let Some(network) = self.network.architecture.downcast_ref::<OnnxConfig>().cloned() else {
            return Ok(());
        };
        let Some(path) = self.network.file.clone().filter(|path| path.is_file()) else { return Ok(()) };
        if network.features > 0 && !network.sha256.is_empty() {
            return Ok(());
        }
        let model = network.open(&path)?;
        let [channels, height, width] = model.image_shape();
        let image = given.get("image").and_then(toml::Value::as_table);
        let says = |keys: &[&str]| keys.iter().any(|key| image.is_some_and(|image| image.contains_key(*key)));
        let known =
            weights::Preprocessing::of_model(&path, model.metadata(), height.unwrap_or(SIDE_OF_MODELS));
        if let Some(known) = &known
            && !says(&["channels", "mean", "std", "range", "bgr", "invert"])
        {
            known.apply(&mut self.image);
        }
        if !says(&["channels"])
            && let Some(channels) = channels
        {
            self.image.channels = channels;
        }
        if !says(&["size"]) {
            let side = Size::square(SIDE_OF_MODELS);
            let size = known.map_or(side, |known| known.size);
            self.image.size =
                Size { height: height.unwrap_or(size.height), width: width.unwrap_or(size.width) };
        }
        let [channels, height, width] = Transform::evaluation(&self.image)?.shape();
        self.network.architecture = network.of_model(&model, InputShape { channels, height, width })?.into();
        Ok(())
    }

    /// Takes the keys of the network that the run file does not set from its weights.
    fn suit_network(&mut self, path: &Path, given: &toml::Table) -> Result<()> {
        const OWN: [&str; 4] = ["dimensions", "drop_path", "freeze_blocks", "batch_norm_momentum"];
        let said = given.get("network").and_then(toml::Value::as_table);
        let says = |key: &str| said.is_some_and(|section| section.contains_key(key));
        let mut keys = toml::Table::try_from(&self.network.architecture).expect("a network is plain data");
        // The file is not read for what the run file has, as that of a run does.
        if keys.keys().all(|key| says(key)) {
            return Ok(());
        }
        let known = weights::network_of(path).ok().flatten();
        let Some(known) = known.filter(|known| known["kind"].as_str() == Some(self.network.name())) else {
            return Ok(());
        };
        if known.contains_key("layout") && !says("layout") {
            weights::check_layout(path)?;
        }
        // These keys are chosen together.
        let sized = ["size", "width", "depth"];
        let sized_by_user = sized.iter().any(|key| says(key));
        for (key, value) in known {
            let chosen = says(&key) || (sized.contains(&key.as_str()) && sized_by_user);
            if !chosen && !OWN.contains(&key.as_str()) {
                keys.insert(key, value);
            }
        }
        if let Ok(network) = keys.try_into() {
            self.network.architecture = network;
        }
        Ok(())
    }

    /// The resolved run file as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a run file is plain data")
    }
}

/// Earlier versions wrote the default of `evaluation.batch_size`, 256, into every resolved run file, and knew no
/// `evaluation.memory_mib`. It is not the user's choice, and slow. A resolved run file has every section; in the run file of
/// a user, 256 is a choice.
fn forget_old_batch_size(table: &mut toml::Table) {
    const SECTIONS: [&str; 12] = [
        "train",
        "data",
        "validation",
        "image",
        "augment",
        "sampler",
        "network",
        "loss",
        "optimizer",
        "schedule",
        "evaluation",
        "report",
    ];
    if SECTIONS.iter().any(|section| !table.contains_key(*section)) {
        return;
    }
    let Some(evaluation) = table.get_mut("evaluation").and_then(toml::Value::as_table_mut) else { return };
    let is_old = evaluation.get("batch_size").and_then(toml::Value::as_integer) == Some(256);
    if is_old && !evaluation.contains_key("memory_mib") {
        evaluation.remove("batch_size");
    }
}

/// The table of a run file that can be read, with the settings.
fn given(text: &str, settings: &[String]) -> toml::Table {
    let mut table = text.parse::<toml::Table>().unwrap_or_default();
    for setting in settings {
        // Errors of settings were reported when they were applied first.
        let _ = set(&mut table, setting);
    }
    table
}

/// The configuration of a table, with the defaults filled in.
fn resolve(mut table: toml::Table) -> std::result::Result<RunConfig, Fault> {
    for loss in losses(&mut table) {
        expand_preset(loss).and_then(|()| refuse_miner(loss)).map_err(|(reason, hint)| Fault {
            key: None,
            reason,
            hint,
            setting: None,
            missing: false,
        })?;
    }
    let known = toml::Table::try_from(RunConfig::default()).expect("a run file is plain data");
    explain::read(table, &known, |table| {
        let mut table = table.clone();
        fill_in_defaults(&mut table);
        table.try_into().map_err(|e: toml::de::Error| e.message().to_string())
    })
}

/// The tables `[loss]` or `[[loss]]`.
fn losses(table: &mut toml::Table) -> impl Iterator<Item = &mut toml::Table> {
    let losses = match table.get_mut("loss") {
        Some(toml::Value::Array(several)) => several.iter_mut().collect(),
        Some(only) => vec![only],
        None => Vec::new(),
    };
    losses.into_iter().filter_map(toml::Value::as_table_mut)
}

/// Replaces `preset = "…"` by its keys; explicit keys have precedence. The name of another loss is refused.
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
    let of = keys["name"].as_str().expect("a preset names its loss");
    if let Some(given) = loss.get("name").filter(|given| given.as_str() != Some(of)) {
        return Err((
            format!("the preset `{name}` is for the loss `{of}`, not for `name = {given}`"),
            Some(format!(
                "give only one of the two; in place of what the run file has: --set 'loss={{preset=\"{name}\"}}' or \
                 --set 'loss={{name={given}}}'"
            )),
        ));
    }
    for (key, value) in keys {
        loss.entry(key).or_insert(value);
    }
    Ok(())
}

/// Refuses a miner where the loss takes none.
fn refuse_miner(loss: &toml::Table) -> std::result::Result<(), (String, Option<String>)> {
    let name = loss.get("name").and_then(|name| name.as_str()).unwrap_or("rll");
    let takes_one = LossConfig::with_miner().contains(&name) || !LossConfig::names().contains(&name);
    if takes_one || !loss.contains_key("miner") {
        return Ok(());
    }
    let known = LossConfig::with_miner().join(", ");
    Err((format!("`{name}` takes no miner"), Some(format!("these losses do: {known}"))))
}

/// The loss of a `[loss]` with this name or preset and these `key=value` settings.
///
/// # Errors
///
/// [`Error::Config`] for an unknown loss, preset or parameter, with the nearest known one;
/// [`Error::Value`](gallerist_tensor::Error::Value) for a value out of its range.
///
/// ```
/// use gallerist_train::config::loss_from_settings;
/// let loss = loss_from_settings(Some("ice"), None, &["scale=16".into()])?;
/// assert_eq!(loss.name(), "ice");
/// let error = loss_from_settings(Some("contrastiv"), None, &[]).unwrap_err();
/// assert_eq!(error.hint().unwrap(), "did you mean `contrastive`?");
/// # Ok::<(), gallerist_train::Error>(())
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
    refuse_miner(&table).map_err(|(reason, hint)| error(reason, hint))?;
    let found = explain::read(table, &toml::Table::new(), |table| {
        table.clone().try_into().map_err(|e: toml::de::Error| e.message().to_string())
    });
    let config: LossConfig = found.map_err(|Fault { reason, hint, .. }| error(reason, hint))?;
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
    for (section, choice) in [("image", None), ("sampler", Some("kind")), ("network", Some("kind"))] {
        if let Some(toml::Value::Table(given)) = table.get_mut(section) {
            fill_in(given, &defaults[section], choice);
        }
    }
    for given in losses(table) {
        fill_in(given, &defaults["loss"], Some("name"));
    }
}

/// Gives a table the keys it lacks from `default`, where both make the same `choice`.
fn fill_in(given: &mut toml::Table, default: &toml::Value, choice: Option<&str>) {
    let default = default.as_table().expect("a section is a table");
    if choice.is_none_or(|key| given.get(key).is_none_or(|name| *name == default[key])) {
        for (key, value) in default {
            given.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// The most parts of a dotted key. Nested tables are read recursively, and the limit of the TOML parser does not apply to these keys.
const MAX_PARTS: usize = 16;

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
    if parts.len() > MAX_PARTS {
        let problem = format!("its key has {} parts, and {MAX_PARTS} at most are permitted", parts.len());
        return Err((problem, example.into()));
    }
    let (last, sections) = parts.split_last().expect("split gives one part at least");
    let mut table = table;
    let mut sections = sections.iter();
    while let Some(section) = sections.next() {
        let entry =
            table.entry(section.to_string()).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        table = match entry {
            toml::Value::Table(inner) => inner,
            toml::Value::Array(several) => {
                let count = several.len();
                let place = sections.next().and_then(|place| place.parse::<usize>().ok());
                let Some(inner) =
                    place.and_then(|place| several.get_mut(place)).and_then(toml::Value::as_table_mut)
                else {
                    let example =
                        format!("name the table by its place, e.g. --set {section}.0.{last}={value}");
                    return Err((format!("`{section}` is a list of {count}"), example));
                };
                inner
            }
            _ => return Err((format!("`{section}` is a value, not a section"), example.into())),
        };
    }
    table.insert(last.to_string(), parsed);
    Ok(())
}

fn did_you_mean(word: &str, known: &[&str]) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
}
