//! What a run measures of its test images.

use gallerist_retrieval::eval::{EvalOptions, Measure, PROTOCOLS, Plan, Protocol, Setting};

use super::{EvaluationConfig, nearest};
use crate::{Error, Result};

impl EvaluationConfig {
    /// What the keys of `[evaluation]` ask for.
    ///
    /// # Errors
    ///
    /// [`Error::Retrieval`] for an unknown metric or protocol, with the nearest known one, and for a
    /// protocol that compares queries with a gallery.
    ///
    /// ```
    /// use gallerist_learn::train::EvaluationConfig;
    /// let config = EvaluationConfig { protocol: Some("sop".into()), ..EvaluationConfig::default() };
    /// assert_eq!(config.plan()?.options.measures[3].to_string(), "recall@1000");
    /// # Ok::<(), gallerist_learn::Error>(())
    /// ```
    pub fn plan(&self) -> Result<Plan> {
        let mut plan = match &self.protocol {
            None => Plan { options: EvalOptions::recall_at(&self.recall_at), ..Plan::default() },
            Some(name) => Plan::of(protocol(name)?),
        };
        if let Some(protocol) = plan.protocol.filter(|protocol| protocol.setting != Setting::EveryImage) {
            return Err(refused(
                format!("the protocol `{}`", protocol.name),
                "compares queries with a gallery, and a run's test images are one set".into(),
                Some(
                    "embed queries and gallery with `gallerist embed`, then run `gallerist evaluate`".into(),
                ),
            ));
        }
        if !self.metrics.is_empty() {
            plan.options.measures = measures(&self.metrics)?;
        }
        Ok(Plan {
            rerank: self.rerank,
            expansion: self.query_expansion,
            cluster: self.cluster,
            verification: self.verification.clone(),
            few_shot: self.few_shot,
            bootstrap: self.bootstrap,
            ..plan
        })
    }
}

/// The protocol called `name`.
///
/// # Errors
///
/// [`Error::Retrieval`] with the nearest known name.
pub fn protocol(name: &str) -> Result<&'static Protocol> {
    let known: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
    Protocol::named(name).ok_or_else(|| {
        let hint = nearest(name, &known).map(|known| format!("did you mean `{known}`?"));
        refused("evaluation".into(), format!("knows no protocol `{name}`, only {}", known.join(", ")), hint)
    })
}

/// The metrics called `names`.
///
/// # Errors
///
/// [`Error::Retrieval`] with the nearest known name.
///
/// ```
/// use gallerist_learn::train::measures;
/// let error = measures(&["recal@10".into()]).unwrap_err();
/// assert_eq!(error.hint().unwrap(), "did you mean `recall@10`?");
/// ```
pub fn measures(names: &[String]) -> Result<Vec<Measure>> {
    let measure = |name: &String| {
        name.parse::<Measure>().map_err(|_| {
            let (word, k) = name.split_once('@').map_or((name.as_str(), None), |(word, k)| (word, Some(k)));
            let number = k.filter(|k| k.parse::<usize>().is_ok_and(|k| k > 0));
            let asked = if number.is_some() { format!("{word}@K") } else { name.clone() };
            let found =
                nearest(&asked, &Measure::NAMES).map(|known| known.replace('K', number.unwrap_or("10")));
            refused(
                "evaluation".into(),
                format!(
                    "knows no metric `{name}`, only {} with K a number of 1 or more",
                    Measure::NAMES.join(", ")
                ),
                found.map(|known| format!("did you mean `{known}`?")),
            )
        })
    };
    names.iter().map(measure).collect()
}

fn refused(what: String, problem: String, hint: Option<String>) -> Error {
    gallerist_retrieval::Error::Protocol { what, problem, hint }.into()
}
