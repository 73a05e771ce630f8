//! `[loss]`, or several `[[loss]]`.

use gallerist_loss::LossConfig;
use gallerist_loss::cross_batch::XbmConfig;
use gallerist_nn::{Head, place};
use gallerist_util::registry::reserved_parameter;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Result;

/// One `[loss]`: a loss, its weight in the sum, and the head of the network that it uses.
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
}

impl From<LossConfig> for LossTerm {
    fn from(loss: LossConfig) -> Self {
        LossTerm { weight: 1.0, head: None, loss }
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
        for (i, LossTerm { weight, head, loss }) in self.0.iter().enumerate() {
            let plus = if i == 0 { "" } else { " + " };
            let weight = if *weight == 1.0 { String::new() } else { format!("{weight} ") };
            let head = head.as_ref().map_or(String::new(), |head| format!(" on {head}"));
            write!(f, "{plus}{weight}{}{head}", loss.name())?;
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
const RESERVED: [&str; 2] = ["weight", "head"];

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
    /// Checks weights, heads and the losses' parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] naming the key; no loss at all is refused, too. [`Conflict`](gallerist_tensor::Error::Conflict) where `xbm` is
    /// given and none of the losses takes a memory.
    pub fn validate(&self, heads: &[Head], xbm: Option<&XbmConfig>) -> Result<()> {
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
        if let Some(xbm) = xbm {
            let takes = self.0.iter().find(|term| term.loss.takes_memory());
            xbm.validate(&takes.unwrap_or(&self.0[0]).loss)?;
        }
        Ok(())
    }
}
