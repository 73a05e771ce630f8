//! The file of an experiment.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::built_in;
use crate::{Error, Result};

/// An experiment: a table or a figure of a paper, or of the user. The [module](super) explains the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name, its paper and its kind.
    #[serde(rename = "experiment")]
    pub about: About,
    /// The data sets of the table, each with its metrics and its run file at every scale.
    #[serde(default, rename = "part")]
    pub parts: Vec<Part>,
    /// The rows.
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
}

/// The head of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The name on the command line.
    pub name: String,
    /// The question that the experiment answers.
    pub title: String,
    /// The paper.
    #[serde(default)]
    pub paper: String,
    /// `table` or `figure`.
    pub kind: Kind,
    /// Its number in the paper.
    #[serde(default)]
    pub number: String,
    /// The paper's statements about the results.
    #[serde(default)]
    pub claims: Vec<String>,
    /// What the reader must know about the printed numbers and the settings.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The name of the parameter that the rows vary, whose values are `x` of the rows: the results are drawn as a
    /// curve. Absent: as bars.
    pub axis: Option<String>,
    /// For a drawing without measured values: how to make it, or why there is nothing to run.
    pub drawing: Option<String>,
    /// Maps of the embeddings: one for each row and part, of the first seed.
    pub maps: Option<Maps>,
}

/// Which embeddings the maps of an experiment show.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maps {
    /// Only images of the first classes by name; absent: of all.
    pub classes: Option<NonZeroUsize>,
}

impl About {
    /// Whether it is a table, and not a figure.
    pub fn is_table(&self) -> bool {
        self.kind == Kind::Table
    }
}

/// A table or a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A table.
    Table,
    /// A figure.
    Figure,
}

gallerist_util::named_values! {
    /// How large the runs of an experiment are.
    pub enum Scale {
        /// The data, network and steps of the paper.
        Full = "full", "The data, network and steps of the paper, for a machine with a GPU";
        /// Data and networks that two cores train in minutes.
        Small = "small", "Data and networks that two cores train in minutes: Omniglot, CUB-200 (2010), Market-1501";
        /// Seconds: to check that everything works. The numbers mean nothing.
        Smoke = "smoke", "Seconds, to check that everything works";
    }
}

/// One data set of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The data set of the paper.
    pub name: String,
    /// The columns: names of metrics (docs/metrics.md), or `nmi`.
    pub metrics: Vec<String>,
    /// The runs of the paper; absent: only printed.
    full: Option<Scaled>,
    /// Runs for two cores; absent: only printed.
    small: Option<Scaled>,
    /// Runs of seconds; absent: only printed.
    smoke: Option<Scaled>,
}

/// A part at one scale: a base, and the keys of the run file that differ.
#[derive(Clone, Debug, Deserialize)]
pub struct Scaled {
    /// A base of the program, or the path of one.
    pub base: String,
    /// The sentence about data, network and steps for the head of the table; absent: that of the base.
    pub about: Option<String>,
    /// The keys of the run file.
    #[serde(flatten)]
    pub run: toml::Table,
}

impl Part {
    /// The part at a scale.
    pub fn at(&self, scale: Scale) -> Option<&Scaled> {
        match scale {
            Scale::Full => self.full.as_ref(),
            Scale::Small => self.small.as_ref(),
            Scale::Smoke => self.smoke.as_ref(),
        }
    }
}

/// A row: one setting, on every part.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name; unique in the experiment.
    pub name: String,
    /// The value of the parameter on the axis.
    pub x: Option<f64>,
    /// The curve that the row belongs to, if there are several.
    #[serde(default)]
    pub curve: String,
    /// Which of several readings of the paper it is: absent for the printed one, else for example `released code`.
    #[serde(default)]
    pub variant: String,
    /// The keys of the run file that make the row.
    #[serde(default)]
    pub run: toml::Table,
    /// Further keys on a part, by its name.
    #[serde(default)]
    on: BTreeMap<String, toml::Table>,
    /// Further keys at this scale.
    #[serde(default)]
    full: toml::Table,
    /// Further keys at this scale.
    #[serde(default)]
    small: toml::Table,
    /// Further keys at this scale.
    #[serde(default)]
    smoke: toml::Table,
    /// Why the row is only printed.
    pub not_run: Option<String>,
    /// Why the row is only printed at a scale.
    #[serde(default)]
    pub not_at: BTreeMap<String, String>,
    /// The printed numbers by part, in the order of its metrics, in per cent; `"-"` where the paper prints none.
    #[serde(default)]
    printed: BTreeMap<String, Vec<toml::Value>>,
}

impl Row {
    /// The further keys at a scale.
    pub fn at(&self, scale: Scale) -> &toml::Table {
        match scale {
            Scale::Full => &self.full,
            Scale::Small => &self.small,
            Scale::Smoke => &self.smoke,
        }
    }

    /// The further keys on a part, if there are any.
    pub fn on(&self, part: &str) -> Option<&toml::Table> {
        self.on.get(part)
    }

    /// Why the row is not run at a scale; `None` if it is.
    pub fn reason(&self, scale: Scale) -> Option<&str> {
        self.not_run.as_deref().or_else(|| self.not_at.get(scale.name()).map(String::as_str))
    }

    /// The printed number of a metric, in per cent.
    pub fn printed(&self, part: &str, metric: usize) -> Option<f64> {
        match self.printed.get(part)?.get(metric)? {
            toml::Value::Float(value) => Some(*value),
            toml::Value::Integer(value) => Some(*value as f64),
            _ => None,
        }
    }
}

/// Where a base or an experiment was found.
pub(super) struct Found {
    pub(super) is_built_in: bool,
    pub(super) text: String,
    pub(super) origin: String,
}

/// The text of a file: one of the program by its name, or a path. `all` says in errors which names there are.
pub(super) fn find(
    name: &str,
    known: &[(&str, &'static str)],
    folder: &Path,
    (what, all): (&str, &str),
) -> Result<Found> {
    if let Some((_, text)) = known.iter().find(|(known, _)| *known == name) {
        let origin = format!("the {what} `{name}`");
        return Ok(Found { is_built_in: true, text: (*text).to_owned(), origin });
    }
    let path = folder.join(name);
    if path.is_file() {
        let text = gallerist_util::files::read_regular_to_string(&path).map_err(|e| {
            Error::Train(gallerist_train::Error::Io { action: "read", path: path.clone(), source: e })
        })?;
        return Ok(Found { is_built_in: false, text, origin: format!("`{}`", path.display()) });
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let hint = match gallerist_util::text::nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{all}; your own is given by the path of its file"),
    };
    Err(Error::new(format!("there is no {what} `{name}`, and no such file"), Some(&hint)))
}

impl Experiment {
    /// An experiment of the program by its name, or the one in a file.
    ///
    /// # Errors
    ///
    /// When there is none, or its file is wrong.
    ///
    /// ```
    /// use gallerist::experiments::Experiment;
    /// let experiment = Experiment::find("rll-cvpr-table-4")?;
    /// assert_eq!(experiment.rows[1].printed("SOP", 0), Some(79.0));
    /// # Ok::<(), gallerist::Error>(())
    /// ```
    pub fn find(name: &str) -> Result<Experiment> {
        let what = ("experiment", "`gallerist experiment list` shows all");
        let Found { text, origin, .. } = find(name, &built_in::experiments(), Path::new(""), what)?;
        Self::parse(&text, &origin)
    }

    /// The experiment in a text; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// When the text is not an experiment.
    pub fn parse(text: &str, origin: &str) -> Result<Experiment> {
        let wrong = |reason: String| {
            Error::new(
                format!("the experiment in {origin} is wrong\n  {}", reason.trim().replace('\n', "\n  ")),
                Some("docs/experiments.md explains the file"),
            )
        };
        let experiment: Experiment = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let name = &experiment.about.name;
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)) {
            return Err(wrong(format!(
                "experiment.name is `{name}`; files are named by it: letters, digits, `-` and `_` only"
            )));
        }
        let mut parts = HashMap::new();
        for part in &experiment.parts {
            if parts.insert(part.name.as_str(), part).is_some() {
                return Err(wrong(format!("two parts are called `{}`", part.name)));
            }
            let mut metrics = HashSet::new();
            if let Some(metric) = part.metrics.iter().find(|metric| !metrics.insert(*metric)) {
                return Err(wrong(format!("the part `{}` has the metric {metric} twice", part.name)));
            }
        }
        let mut names = HashSet::new();
        for row in &experiment.rows {
            if !names.insert(&row.name) {
                return Err(wrong(format!("two rows are called `{}`", row.name)));
            }
            if row.name.contains('\n') {
                return Err(wrong(format!("the name of the row `{}` has several lines", row.name)));
            }
            let unknown = |scale: &&String| Scale::ALL.iter().all(|known| known.name() != **scale);
            if let Some(scale) = row.not_at.keys().find(unknown) {
                return Err(wrong(format!(
                    "the row `{}` has not_at.{scale}, and the scales are {}",
                    row.name,
                    Scale::ALL.iter().map(|scale| scale.name()).collect::<Vec<_>>().join(", ")
                )));
            }
            if experiment.about.axis.is_some() && row.x.is_none() && row.curve.is_empty() {
                return Err(wrong(format!("the row `{}` has no x, and experiment.axis is given", row.name)));
            }
            if let Some(name) = row.on.keys().find(|name| !parts.contains_key(name.as_str())) {
                return Err(wrong(format!("the row `{}` has keys for `{name}`, which is no part", row.name)));
            }
            for (name, values) in &row.printed {
                let Some(part) = parts.get(name.as_str()) else {
                    return Err(wrong(format!(
                        "the row `{}` has numbers of `{name}`, which is no part",
                        row.name
                    )));
                };
                let is_printed = |value: &toml::Value| {
                    value.as_float().is_some_and(f64::is_finite)
                        || value.is_integer()
                        || value.as_str() == Some("-")
                };
                if let Some(value) = values.iter().find(|value| !is_printed(value)) {
                    return Err(wrong(format!(
                        "the row `{}` has {value} for a printed number of `{name}`: a number, or \"-\" for none",
                        row.name
                    )));
                }
                if values.len() != part.metrics.len() {
                    return Err(wrong(format!(
                        "the row `{}` has {} numbers of `{name}`, which has {} metrics",
                        row.name,
                        values.len(),
                        part.metrics.len()
                    )));
                }
            }
        }
        Ok(experiment)
    }

    /// All experiments of the program, the papers first.
    ///
    /// # Errors
    ///
    /// Never for the files of this version; they are tested.
    pub fn all() -> Result<Vec<Experiment>> {
        built_in::experiments().into_iter().map(|(name, _)| Self::find(name)).collect()
    }

    /// The scales at which something is run.
    pub fn scales(&self) -> Vec<Scale> {
        let runs = |scale: &Scale| {
            self.parts.iter().any(|part| part.at(*scale).is_some())
                && self.rows.iter().any(|row| row.reason(*scale).is_none())
        };
        Scale::ALL.iter().copied().filter(runs).collect()
    }
}
