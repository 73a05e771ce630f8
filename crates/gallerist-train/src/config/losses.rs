//! `[loss]`, or several `[[loss]]`.

use std::ops::RangeInclusive;

use gallerist_loss::LossConfig;
use gallerist_loss::cross_batch::XbmConfig;
use gallerist_nn::{Head, place};
use gallerist_util::registry::reserved_parameter;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Result;

/// One `[loss]`: a loss, its weight in the sum, the steps in which it counts, and the head of the network that it uses.
///
/// # Example
///
/// ```
/// use gallerist_train::RunConfig;
///
/// let text = "[[loss]]\nname = \"rll\"\n[[loss]]\nname = \"softmax\"\nweight = 0.5";
/// let config = RunConfig::parse(text, "example", &["loss.1.weight=0.25".into()]).unwrap();
/// assert_eq!(config.loss.to_string(), "rll + 0.25 softmax");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossTerm {
    /// Factor on its value; 1 unless given.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: f64,
    /// The head of the network that it uses; absent: every head, each with a separate loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The first step in which it counts, from 1; absent: the first of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_step: Option<usize>,
    /// The last step in which it counts; absent: the last of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_step: Option<usize>,
    /// The loss and its parameters.
    #[serde(flatten)]
    pub loss: LossConfig,
}

fn one() -> f64 {
    1.0
}

fn is_one(weight: &f64) -> bool {
    *weight == 1.0
}

impl LossTerm {
    /// Whether the loss gets rows of length 1: `normalize` of `[train]`, or as in the paper of the loss.
    pub(crate) fn normalizes(&self, normalize: Option<bool>) -> bool {
        normalize.unwrap_or(self.loss.normalized())
    }

    /// The steps in which it counts, from 1; both ends included.
    pub(crate) fn steps(&self) -> RangeInclusive<usize> {
        self.from_step.unwrap_or(1)..=self.until_step.unwrap_or(usize::MAX)
    }
}

impl From<LossConfig> for LossTerm {
    fn from(loss: LossConfig) -> Self {
        LossTerm { weight: 1.0, head: None, from_step: None, until_step: None, loss }
    }
}

/// The losses whose weighted sum a run minimises: one table `[loss]`, or several `[[loss]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LossTerms(pub Vec<LossTerm>);

impl Default for LossTerms {
    fn default() -> Self {
        LossTerms(vec![LossConfig::default().into()])
    }
}

impl std::fmt::Display for LossTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, term) in self.0.iter().enumerate() {
            let plus = if i == 0 { "" } else { " + " };
            let weight = if term.weight == 1.0 { String::new() } else { format!("{} ", term.weight) };
            let head = term.head.as_ref().map_or(String::new(), |head| format!(" on {head}"));
            let steps = match (term.from_step, term.until_step) {
                (None, None) => String::new(),
                (Some(from), None) => format!(" from step {from}"),
                (None, Some(until)) => format!(" until step {until}"),
                (Some(from), Some(until)) => format!(" in steps {from} to {until}"),
            };
            write!(f, "{plus}{weight}{}{head}{steps}", term.loss.name())?;
        }
        Ok(())
    }
}

impl Serialize for LossTerms {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => only.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LossTerms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct TableOrTables;
        impl<'de> serde::de::Visitor<'de> for TableOrTables {
            type Value = LossTerms;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("[loss], or [[loss]] for each of several losses")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                map: A,
            ) -> std::result::Result<LossTerms, A::Error> {
                Ok(LossTerms(vec![LossTerm::deserialize(MapAccessDeserializer::new(map))?]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                seq: A,
            ) -> std::result::Result<LossTerms, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(LossTerms)
            }
        }
        deserializer.deserialize_any(TableOrTables)
    }
}

/// The keys of `[loss]` that belong to the term, whatever its loss.
const RESERVED: [&str; 4] = ["weight", "head", "from_step", "until_step"];

/// Refuses a loss of a program with a parameter that has the name of a key of the term.
fn check_reserved(term: &LossTerm) -> Result<()> {
    match reserved_parameter(&term.loss, &RESERVED) {
        None => Ok(()),
        Some(key) => Err(gallerist_tensor::Error::Conflict {
            message: format!(
                "the loss `{}` has a parameter `{key}`, which is a key of every [loss]",
                term.loss.name()
            ),
            hint: "give the parameter of the loss another name".into(),
        }
        .into()),
    }
}

impl LossTerms {
    /// Checks weights, heads, steps and the losses' parameters. Each of the `steps` of the run needs a loss.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](gallerist_tensor::Error::Value) naming the key; no loss at all is refused, too. [`Conflict`](gallerist_tensor::Error::Conflict)
    /// where no loss counts in a step, and where `xbm` is given and none of the losses takes a memory.
    pub fn validate(&self, heads: &[Head], xbm: Option<&XbmConfig>, steps: usize) -> Result<()> {
        if self.0.is_empty() {
            return Err(gallerist_tensor::Error::Value {
                key: "loss".into(),
                wanted: "one loss or more".into(),
                found: "an empty list".into(),
            }
            .into());
        }
        for term in &self.0 {
            gallerist_tensor::Error::require(
                "loss.weight".into(),
                term.weight,
                term.weight > 0.0,
                "above 0",
            )?;
            if let Some(head) = &term.head {
                place(head, heads, "loss.head")?;
            }
            term.loss.validate()?;
            check_reserved(term)?;
        }
        self.check_steps(steps)?;
        if let Some(xbm) = xbm {
            let takes = self.0.iter().find(|term| term.loss.takes_memory());
            xbm.validate(&takes.unwrap_or(&self.0[0]).loss)?;
        }
        Ok(())
    }

    /// The first loss that counts in the last of the `steps` of the run.
    pub(crate) fn last(&self, steps: usize) -> Option<&LossTerm> {
        self.0.iter().find(|term| term.steps().contains(&steps))
    }

    /// Whether a loss begins or ceases to count in this step, the first of the run not being meant.
    pub(crate) fn change_in(&self, step: usize) -> bool {
        let counts = |term: &LossTerm, step: usize| term.steps().contains(&step);
        step > 1 && self.0.iter().any(|term| counts(term, step) != counts(term, step - 1))
    }

    /// Refuses steps in which no loss counts, and losses that count in no step.
    fn check_steps(&self, steps: usize) -> Result<()> {
        for term in &self.0 {
            let (first, last) = term.steps().into_inner();
            let value = |key: &str, wanted: String, found: usize| gallerist_tensor::Error::Value {
                key: key.into(),
                wanted,
                found: found.to_string(),
            };
            if first == 0 || first > steps {
                let wanted = format!("from 1 to {steps} (train.steps)");
                return Err(value("loss.from_step", wanted, first).into());
            }
            if last < first {
                return Err(
                    value("loss.until_step", format!("{first} (loss.from_step) or more"), last).into()
                );
            }
        }
        // The first step without a loss is the first of the run, or follows the last step of a loss.
        let after = self.0.iter().filter_map(|term| term.until_step).map(|step| step.saturating_add(1));
        let covered = |step: usize| self.0.iter().any(|term| term.steps().contains(&step));
        match std::iter::once(1).chain(after).filter(|&step| step <= steps && !covered(step)).min() {
            None => Ok(()),
            Some(step) => Err(gallerist_tensor::Error::Conflict {
                message: format!("no loss counts in step {step}"),
                hint: format!(
                    "loss.from_step of one of them must be {step} or less, or loss.until_step larger"
                ),
            }
            .into()),
        }
    }
}
