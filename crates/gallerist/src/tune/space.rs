//! The space file: which keys of a run file are tuned, between which bounds, and how.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use gallerist_train::{RunConfig, nearest};
use gallerist_util::files;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::sampler::Dimension;
use crate::{Error, Result};

/// A space file.
///
/// ```
/// use gallerist::tune::Space;
///
/// let space = Space::parse(
///     r#"
///     metric = "recall@1"
///     folds = 2
///
///     [space]
///     "loss.margin" = { low = 0.05, high = 1.0, log = true }
///     "sampler.images_per_class" = { low = 2, high = 6, int = true }
///     "optimizer.kind" = { choices = ["sgd", "adamw"] }
///     "#,
///     "the example",
/// )?;
/// assert_eq!(space.space.len(), 3);
/// # Ok::<(), gallerist::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// The validation metric whose mean over the folds is maximised. Default: `map@r`.
    #[serde(default = "default_metric")]
    pub metric: String,
    /// Class-disjoint folds of the training classes, 2 or more. Default: 4.
    #[serde(default = "default_folds")]
    pub folds: usize,
    /// Seed of the folds and of the choice of trials. Default: 1.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Trials that are drawn at random before trials follow the results, rounded up to whole rounds. Default: 10.
    #[serde(default = "default_startup")]
    pub startup: usize,
    /// Trials that are chosen at once. The trials do not depend on the number of jobs, but with more jobs than trials of a
    /// round, jobs are idle. Default: 4.
    #[serde(default = "default_round")]
    pub round: usize,
    /// Share of the trials that continue on further folds, above 0; 1: all are measured on every fold. Default: 0.5.
    #[serde(default = "default_keep")]
    pub keep: f64,
    /// Keys of the run file with the values that they have in every trial, such as the loss that is tuned.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
    /// The keys of the run file that are tuned, with their bounds.
    pub space: BTreeMap<String, Bounds>,
    /// Values to be tried before any others, such as those that were best on other images. A key that is left out has the
    /// value of the run file.
    #[serde(default, rename = "trial", skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<BTreeMap<String, Value>>,
}

fn default_metric() -> String {
    "map@r".into()
}

fn default_folds() -> usize {
    4
}

fn default_seed() -> u64 {
    1
}

fn default_startup() -> usize {
    10
}

fn default_round() -> usize {
    4
}

fn default_keep() -> f64 {
    0.5
}

/// The values that a key may have: from `low` to `high`, or one of `choices`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// The smallest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Draws evenly on a logarithmic scale.
    pub log: bool,
    /// Whole numbers only.
    pub int: bool,
    /// Only `low`, `low + step`, `low + 2 step`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<f64>,
    /// The values, of any kind; a table replaces a whole section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
}

/// Keys that the folds decide, or that are only for the test. A section that has one of them cannot be tuned as a whole.
const REFUSED: [&str; 9] = [
    "validation.",
    "data.test",
    "data.query",
    "data.gallery",
    "data.max_test_classes",
    "data.train",
    "data.run_directory",
    "evaluation.checkpoint",
    "log.",
];

/// Whether a key is one of [`REFUSED`], or a section that has one.
fn is_refused(key: &str) -> bool {
    let section = format!("{key}.");
    REFUSED.iter().any(|refused| key.starts_with(refused) || refused.starts_with(&section))
}

impl Space {
    /// Reads a space file.
    ///
    /// # Errors
    ///
    /// When it cannot be read; as [`parse`](Self::parse).
    pub fn load(path: &Path) -> Result<Self> {
        let origin = format!("`{}`", path.display());
        let text = files::read_regular_to_string(path).map_err(|e| {
            refused(&origin, &e.to_string(), Some("give the TOML file that has the section [space]".into()))
        })?;
        Self::parse(&text, &origin)
    }

    /// Reads the text of a space file; `origin` names it in errors.
    ///
    /// # Errors
    ///
    /// For an unknown key, with the nearest known one, and for a value out of its range.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        let space: Space = toml::from_str(text).map_err(|e| {
            let line = e.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let message = e.message().lines().collect::<Vec<_>>().join("; ");
            let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
            let hint = match quoted.split_first() {
                Some((word, _)) if message.starts_with("unknown field") && word.contains('.') => {
                    Some("keys of the run file belong to the section [space]".into())
                }
                Some((word, known)) if message.starts_with("unknown field") => {
                    nearest(word, known).map(|known| format!("did you mean `{known}`?"))
                }
                _ if message.starts_with("missing field `space`") => Some(EXAMPLE.into()),
                _ if message.contains("expected struct Bounds") => Some(EXAMPLE.into()),
                _ => None,
            };
            let place = line.map_or(String::new(), |line| format!("line {line}: "));
            refused(origin, &format!("{place}{message}"), hint)
        })?;
        space.validate(origin)?;
        Ok(space)
    }

    /// The space file with every default filled in.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a space file is plain data")
    }

    /// Checks every value that the run file does not decide.
    pub(super) fn validate(&self, origin: &str) -> Result<()> {
        let wanted = |key: &str, wanted: &str, found: String| {
            Err(refused(origin, &format!("`{key}` must be {wanted}, not {found}"), None))
        };
        if self.space.is_empty() {
            return Err(refused(origin, "the section [space] is empty", Some(EXAMPLE.into())));
        }
        if !(2..=100).contains(&self.folds) {
            return wanted("folds", "from 2 to 100", self.folds.to_string());
        }
        if !(1..=10_000).contains(&self.round) {
            return wanted("round", "from 1 to 10000", self.round.to_string());
        }
        if !(self.keep > 0.0 && self.keep <= 1.0) {
            return wanted("keep", "above 0 and at most 1", self.keep.to_string());
        }
        for (key, bounds) in &self.space {
            if is_refused(key) {
                let problem = format!("`{key}` cannot be tuned");
                let hint = "the folds of the training classes decide what is trained on and measured";
                return Err(refused(origin, &problem, Some(hint.into())));
            }
            bounds.values().map_err(|(problem, hint)| {
                refused(origin, &format!("`{key}`: {problem}"), Some(hint.into()))
            })?;
        }
        for (key, value) in self.trials.iter().flatten() {
            let bounds = self.space.get(key).ok_or_else(|| {
                let known: Vec<&str> = self.space.keys().map(String::as_str).collect();
                let meant = nearest(key, &known).map(|known| format!("did you mean `{known}`?"));
                refused(
                    origin,
                    &format!("`{key}` of a [[trial]] is not in the section [space]"),
                    Some(meant.unwrap_or_else(|| "a value that all trials have belongs to [set]".into())),
                )
            })?;
            if bounds.values().is_ok_and(|values| values.coordinate(value).is_none()) {
                let problem = format!("`{key}` = {} of a [[trial]] is not in its bounds", inline(value));
                return Err(refused(
                    origin,
                    &problem,
                    Some("widen the bounds in the section [space]".into()),
                ));
            }
        }
        Ok(())
    }

    /// The settings of every trial, `key=value`.
    pub(super) fn settings(&self) -> impl Iterator<Item = String> {
        self.set.iter().map(|(key, value)| setting(key, value))
    }

    /// Trials that do not follow results: the rounds that begin before `startup` trials.
    pub(super) fn random_trials(&self) -> usize {
        self.startup.max(1).div_ceil(self.round) * self.round
    }

    /// The tuned keys with their values, in the order of the keys: a section comes before its keys.
    pub(super) fn parameters(&self) -> Vec<(&str, Values)> {
        let values = |bounds: &Bounds| bounds.values().expect("the space was validated");
        self.space.iter().map(|(key, bounds)| (key.as_str(), values(bounds))).collect()
    }

    /// Builds run files with each bound and each choice.
    ///
    /// # Errors
    ///
    /// For a key that the run file does not have, with the nearest known one, and a value that it does not take.
    pub(super) fn check(&self, origin: &str, load: impl Fn(&[String]) -> Result<RunConfig>) -> Result<()> {
        let parameters = self.parameters();
        // A section that is replaced has other keys.
        let sections: Vec<(&str, String)> = parameters
            .iter()
            .flat_map(|(key, values)| {
                let tables = values.extremes().into_iter().filter(Value::is_table);
                tables.map(|table| (*key, setting(key, &table))).collect::<Vec<_>>()
            })
            .collect();
        for (key, values) in &parameters {
            let is_inside = |(section, _): &&(&str, String)| {
                key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
            };
            // A key of a tuned section is in no trial without one of its choices.
            let inside = sections.iter().any(|of| is_inside(&of));
            let own = (!inside).then_some(None);
            for value in values.extremes() {
                let chosen = sections
                    .iter()
                    .filter(|of| !value.is_table() && (!inside || is_inside(of)))
                    .map(|(_, of)| Some(of));
                for section in own.into_iter().chain(chosen) {
                    let settings: Vec<String> =
                        section.into_iter().cloned().chain([setting(key, &value)]).collect();
                    load(&settings).map_err(|error| {
                        let message = error.to_string();
                        let reason = message.lines().last().unwrap_or_default().trim();
                        let whole = reason.contains("whole number").then(|| "give int = true".to_string());
                        let with = section.map_or(String::new(), |section| format!(" with `{section}`"));
                        let value = inline(&value);
                        refused(
                            origin,
                            &format!("`{key}` = {value}{with} does not fit the run file: {reason}"),
                            match section {
                                Some(_) => Some(OF_ONE_SECTION.into()),
                                None => whole.or_else(|| error.hint()),
                            },
                        )
                    })?;
                }
            }
        }
        let mut config = load(&[])?;
        config.validation.metric.clone_from(&self.metric);
        Ok(config.validate()?)
    }
}

const EXAMPLE: &str =
    "for example: \"loss.margin\" = { low = 0.05, high = 1.0, log = true } in the section [space]";

const OF_ONE_SECTION: &str = "every choice of a section must have the tuned keys; put keys that only one of them has into \
     the choices, as { name = \"ice\", scale = 16 }";

fn refused(origin: &str, problem: &str, hint: Option<String>) -> Error {
    Error::Input { message: format!("cannot use the space file {origin}\n  {problem}"), hint }
}

/// The first value that is equal to one before it.
fn first_repeated(values: &[Value]) -> Option<&Value> {
    let mut before = HashSet::new();
    values.iter().find(|value| !before.insert(inline(value)))
}

/// A value as a run file has it, in one line.
pub(super) fn inline(value: &Value) -> String {
    value.to_string()
}

/// A value in a table: text without quotes.
pub(super) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| inline(value), str::to_owned)
}

/// What `--set` would take.
pub(super) fn setting(key: &str, value: &Value) -> String {
    format!("{key}={}", inline(value))
}

/// The largest bound: whole numbers up to here have coordinates of their own.
const LARGEST: f64 = 1e15;

/// The smallest step as a share of a bound: the values of a grid are rounded to twelve digits, and must differ.
const FINEST: f64 = 1e-9;

impl Bounds {
    /// The values, or the error with its hint.
    fn values(&self) -> Result<Values, (String, &'static str)> {
        const GIVE: &str = "give { low = 0.1, high = 1.0 } or { choices = [1, 2] }";
        if let Some(choices) = &self.choices {
            let plain = Bounds { choices: self.choices.clone(), ..Bounds::default() };
            return match choices.len() {
                0 | 1 => {
                    Err((format!("2 choices or more are needed, and there are {}", choices.len()), GIVE))
                }
                _ if *self != plain => Err(("choices have no low, high, log, int or step".into(), GIVE)),
                _ if let Some(twice) = first_repeated(choices) => {
                    Err((format!("the choice {} is there twice", inline(twice)), "leave out one of them"))
                }
                _ => Ok(Values::Choices(choices.clone())),
            };
        }
        let (Some(low), Some(high)) = (self.low, self.high) else {
            return Err(("there are neither low and high nor choices".into(), GIVE));
        };
        if !(low < high && low.is_finite() && high.is_finite()) {
            return Err((format!("low must be below high, and they are {low} and {high}"), GIVE));
        }
        if low < -LARGEST || high > LARGEST {
            return Err((
                format!("low and high must be from -1e15 to 1e15, and they are {low:?} and {high:?}"),
                GIVE,
            ));
        }
        if self.log && low <= 0.0 {
            return Err((
                format!("low must be above 0 on a logarithmic scale, and it is {low}"),
                "leave out log",
            ));
        }
        if self.int && [Some(low), Some(high), self.step].iter().flatten().any(|bound| bound.fract() != 0.0) {
            return Err((
                "low, high and step must be whole with int = true".into(),
                "leave out int, or round them",
            ));
        }
        match self.step {
            Some(_) if self.log => Err(("step and log exclude each other".into(), "leave out one of them")),
            Some(step) if !(step > 0.0 && step <= high - low) => Err((
                format!("step must be above 0 and at most high - low, and it is {step}"),
                "give a smaller step",
            )),
            Some(step) if !self.int && step < FINEST * low.abs().max(high.abs()) => Err((
                format!("step must be at least a billionth of low and of high, and it is {step:?}"),
                "give a larger step, or leave it out",
            )),
            Some(step) => {
                let count = ((high - low) / step + 1e-9).floor() as usize + 1;
                Ok(Values::Steps { low, step, count, whole: self.int })
            }
            None if self.int && !self.log => {
                Ok(Values::Steps { low, step: 1.0, count: (high - low) as usize + 1, whole: true })
            }
            None => Ok(Values::Range { low, high, log: self.log, whole: self.int }),
        }
    }
}

/// The values of a tuned key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    Range { low: f64, high: f64, log: bool, whole: bool },
    Steps { low: f64, step: f64, count: usize, whole: bool },
    Choices(Vec<Value>),
}

impl Values {
    pub(super) fn dimension(&self) -> Dimension {
        match self {
            Values::Choices(choices) => Dimension::Choice(choices.len()),
            _ => Dimension::Interval,
        }
    }

    pub(super) fn is_log(&self) -> bool {
        matches!(self, Values::Range { log: true, .. })
    }

    /// The ends of the range on the scale on which it is drawn. Whole numbers have half a number more on each side.
    fn ends(low: f64, high: f64, log: bool, whole: bool) -> (f64, f64) {
        let half = if whole { 0.5 } else { 0.0 };
        let scaled = |value: f64| if log { value.ln() } else { value };
        (scaled(low - half), scaled(high + half))
    }

    /// The value at a coordinate. Numbers of a range have four digits.
    pub(super) fn value(&self, coordinate: f64) -> Value {
        match *self {
            Values::Choices(ref choices) => choices[coordinate as usize].clone(),
            Values::Steps { low, step, count, whole } => {
                let value = low + step * (coordinate * count as f64).floor().min(count as f64 - 1.0);
                number(if whole { value } else { digits(value, 12) }, whole)
            }
            Values::Range { low, high, log, whole } => {
                let (start, end) = Self::ends(low, high, log, whole);
                let at = start + coordinate * (end - start);
                let value = if log { at.exp() } else { at };
                let value = if whole { value.round() } else { digits(value, 4) };
                number(value.clamp(low, high), whole)
            }
        }
    }

    /// The coordinate of a value; `None` if it is not one of these.
    pub(super) fn coordinate(&self, value: &Value) -> Option<f64> {
        if let Values::Choices(choices) = self {
            let same = |choice: &Value| {
                choice == value || as_number(choice).is_some_and(|n| as_number(value) == Some(n))
            };
            return choices.iter().position(same).map(|place| place as f64);
        }
        let value = as_number(value)?;
        match *self {
            Values::Steps { low, step, count, .. } => {
                let place = ((value - low) / step).round();
                // The value may have been rounded to twelve digits.
                let exact = (low + place * step - value).abs() <= 1e-9 * step + 1e-11 * value.abs();
                (exact && (0.0..count as f64).contains(&place)).then(|| (place + 0.5) / count as f64)
            }
            Values::Range { low, high, log, whole } => {
                let (start, end) = Self::ends(low, high, log, whole);
                let at = (if log { value.ln() } else { value } - start) / (end - start);
                // The last value is inside of the interval.
                let fits = (low..=high).contains(&value) && (!whole || value.fract() == 0.0);
                fits.then_some(at.clamp(0.0, 1.0 - f64::EPSILON))
            }
            Values::Choices(_) => None,
        }
    }

    /// The ends of the range, or every choice.
    fn extremes(&self) -> Vec<Value> {
        match self {
            Values::Choices(choices) => choices.clone(),
            Values::Range { low, high, whole, .. } => vec![number(*low, *whole), number(*high, *whole)],
            Values::Steps { .. } => vec![self.value(0.0), self.value(1.0 - f64::EPSILON)],
        }
    }

    /// Number of different values; `None` for a range.
    pub(super) fn count(&self) -> Option<usize> {
        match self {
            Values::Choices(choices) => Some(choices.len()),
            Values::Steps { count, .. } => Some(*count),
            Values::Range { low, high, whole: true, .. } => Some((high - low) as usize + 1),
            Values::Range { .. } => None,
        }
    }
}

fn number(value: f64, whole: bool) -> Value {
    if whole { Value::Integer(value as i64) } else { Value::Float(value) }
}

pub(super) fn as_number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

/// A number with so many significant digits.
fn digits(value: f64, count: usize) -> f64 {
    format!("{value:.*e}", count - 1).parse().expect("a formatted number is a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(bounds: &str) -> Values {
        let space = Space::parse(&format!("[space]\nkey = {bounds}"), "a test").unwrap();
        space.parameters()[0].1.clone()
    }

    #[test]
    fn every_value_is_inside_its_bounds_and_has_the_coordinate_that_gave_it() {
        for bounds in [
            "{ low = 0.05, high = 1.0, log = true }",
            "{ low = -1, high = 3 }",
            "{ low = 2, high = 9, int = true }",
            "{ low = 1, high = 256, int = true, log = true }",
            "{ low = 0.1, high = 0.8, step = 0.1 }",
            "{ low = -1000, high = 1000, step = 0.123456789012 }",
            "{ low = -1, high = 1, step = 1e-9 }",
            "{ low = -1e15, high = 1e15, int = true }",
            "{ choices = [1, \"a\", { name = \"rll\" }] }",
        ] {
            let values = values(bounds);
            let scale = match values.dimension() {
                Dimension::Choice(count) => count as f64,
                Dimension::Interval => 1.0,
            };
            let mut found = std::collections::BTreeSet::new();
            for i in 0..10_000 {
                let value = values.value((f64::from(i) + 0.5) / 10_000.0 * scale);
                let again = values.value(values.coordinate(&value).unwrap());
                assert_eq!(again, value, "{bounds}");
                found.insert(inline(&value));
            }
            if let Some(count) = values.count().filter(|&count| count < 1000) {
                assert_eq!(found.len(), count, "{bounds}: {found:?}");
            }
            for value in values.extremes() {
                assert!(values.coordinate(&value).is_some(), "{bounds}: {value}");
            }
        }
        assert_eq!(values("{ low = 0.1, high = 0.8, step = 0.1 }").value(0.99), Value::Float(0.8));
        assert_eq!(values("{ low = 2, high = 4, int = true }").coordinate(&Value::Integer(5)), None);
        assert_eq!(values("{ choices = [1, 2] }").coordinate(&Value::Float(2.0)), Some(1.0));
    }

    #[test]
    fn faults_name_the_key_and_what_to_do() {
        let fault = |text: &str| {
            let error = Space::parse(text, "`space.toml`").unwrap_err();
            format!("{error}\nhint: {}\n\n", error.hint().unwrap_or_default())
        };
        let all: String = [
            "fold = 4\n[space]\nkey = { low = 0, high = 1 }",
            "folds = 1\n[space]\nkey = { low = 0, high = 1 }",
            "\"loss.margin\" = { low = 0, high = 1 }\n[space]",
            "folds = 2",
            "[space]",
            "[space]\nkey = { low = 0, hihg = 1 }",
            "[space]\nkey = { low = 1, high = 0 }",
            "[space]\nkey = { low = 0 }",
            "[space]\nkey = { choices = [1] }",
            "[space]\nkey = { choices = [1, 2, 1] }",
            "[space]\nkey = 0.3",
            "[space]\n\"data\" = { choices = [{ train = [\"a\"] }, { train = [\"b\"] }] }",
            "[space]\nkey = { choices = [1, 2], log = true }",
            "[space]\nkey = { low = 0, high = 1, log = true }",
            "[space]\nkey = { low = 0.5, high = 2, int = true }",
            "[space]\nkey = { low = 1, high = 2, step = 0.5, log = true }",
            "[space]\nkey = { low = 1, high = 2, step = 3 }",
            "[space]\nkey = { low = 0, high = 1e20, int = true }",
            "[space]\nkey = { low = -1e308, high = 1e308 }",
            "[space]\nkey = { low = 1000, high = 2000, step = 1e-7 }",
            "keep = 0\n[space]\nkey = { low = 1, high = 2 }",
            "[space]\n\"validation.fraction\" = { low = 0.1, high = 0.2 }",
            "[space]\n\"loss.margin\" = { low = 0.1, high = 0.2 }\n[[trial]]\n\"loss.margn\" = 0.1",
            "[space]\n\"loss.margin\" = { low = 0.1, high = 0.2 }\n[[trial]]\n\"loss.margin\" = 0.3",
        ]
        .into_iter()
        .map(fault)
        .collect();
        insta::assert_snapshot!("space_faults", all);
    }
}
