//! The evaluation of the test images of a run.

use gallerist_data::DatasetLayout;
use gallerist_retrieval::eval::{EvalOptions, Measure, PROTOCOLS, Plan, Protocol, Setting};

use super::{EvaluationConfig, nearest};
use crate::{Error, Result};

/// The name for no protocol: junk images and cameras are ignored.
pub const NO_PROTOCOL: &str = "none";

impl EvaluationConfig {
    /// The plan of the keys of `[evaluation]`.
    ///
    /// # Errors
    ///
    /// [`Error::Retrieval`] for an unknown metric or protocol, with the nearest known one.
    ///
    /// ```
    /// use gallerist_train::EvaluationConfig;
    /// let config = EvaluationConfig { protocol: Some("sop".into()), ..EvaluationConfig::default() };
    /// assert_eq!(config.plan()?.options.measures[3].to_string(), "recall@1000");
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    pub fn plan(&self) -> Result<Plan> {
        self.plan_for(None)
    }

    /// The same for images whose data set is measured by the protocol called `published`, which holds where
    /// `[evaluation]` names none.
    ///
    /// ```
    /// use gallerist_train::EvaluationConfig;
    /// let config = EvaluationConfig::default();
    /// assert_eq!(config.plan_for(Some("market1501"))?.protocol.unwrap().name, "market1501");
    /// let config = EvaluationConfig { protocol: Some("none".into()), ..config };
    /// assert!(config.plan_for(Some("market1501"))?.protocol.is_none());
    /// # Ok::<(), gallerist_train::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`plan`](Self::plan).
    pub fn plan_for(&self, published: Option<&str>) -> Result<Plan> {
        let name = self.protocol.as_deref().or(published);
        let mut plan = match name.filter(|name| *name != NO_PROTOCOL) {
            None => Plan { options: EvalOptions::recall_at(&self.recall_at), ..Plan::default() },
            Some(name) => Plan::of(protocol(name)?),
        };
        plan.ignore_cameras = name == Some(NO_PROTOCOL);
        if !self.metrics.is_empty() {
            plan.options.measures = measures(&self.metrics)?;
        }
        Ok(Plan {
            rerank: self.rerank,
            expansion: self.query_expansion,
            cluster: self.cluster,
            verification: self.verification.clone(),
            open_set: self.open_set.clone(),
            threshold: self.threshold,
            few_shot: self.few_shot,
            bootstrap: self.bootstrap,
            ..plan
        })
    }
}

/// The protocol of queries and a gallery that a layout's data set is measured by; `None` where every image
/// is compared with the others, or where there is no published protocol.
pub fn published_protocol(layout: DatasetLayout) -> Option<&'static str> {
    let name = layout.protocol()?;
    Protocol::named(name).filter(|protocol| protocol.setting != Setting::EveryImage).map(|_| name)
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
        refused(
            "evaluation".into(),
            format!("knows no protocol `{name}`, only {} and {NO_PROTOCOL}", known.join(", ")),
            hint,
        )
    })
}

/// The metrics called `names`.
///
/// # Errors
///
/// [`Error::Retrieval`] with the nearest known name, or with the values that K can have.
///
/// ```
/// use gallerist_train::measures;
/// let error = measures(&["recal@10".into()]).unwrap_err();
/// assert_eq!(error.hint().unwrap(), "did you mean `recall@10`?");
/// ```
pub fn measures(names: &[String]) -> Result<Vec<Measure>> {
    names.iter().map(|name| measure(name, "evaluation")).collect()
}

/// The metric called `name`, as [`measures`] reads it; `what` is to measure it.
pub(crate) fn measure(name: &str, what: &str) -> Result<Measure> {
    name.parse::<Measure>().map_err(|error| {
        let (word, k) = name.split_once('@').map_or((name, None), |(word, k)| (word, Some(k)));
        let number = k.filter(|k| k.parse::<usize>().is_ok_and(|k| k > 0));
        if let (gallerist_retrieval::Error::Option { option, wanted, .. }, Some(k)) = (&error, number) {
            let problem = format!("cannot measure `{name}`: {option} must be {wanted}, not {k}");
            return refused(what.into(), problem, None);
        }
        let asked = if number.is_some() { format!("{word}@K") } else { name.to_owned() };
        let names = Measure::names();
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = nearest(&asked, &known).map(|known| known.replace('K', number.unwrap_or("10")));
        refused(
            what.into(),
            format!("knows no metric `{name}`, only {} with K a number of 1 or more", names.join(", ")),
            found.map(|known| format!("did you mean `{known}`?")),
        )
    })
}

fn refused(what: String, problem: String, hint: Option<String>) -> Error {
    gallerist_retrieval::Error::Protocol { what, problem, hint }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_the_range_of_its_metric_is_refused_with_the_range() {
        let error = measures(&["precision_at_recall@150".into()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "evaluation cannot measure `precision_at_recall@150`: the recall of a metric, in per cent, must be from 1 to 100, \
             not 150"
        );
        assert_eq!(error.hint(), None);
    }

    #[test]
    fn every_layout_names_a_protocol_that_exists() {
        for name in DatasetLayout::all().filter_map(DatasetLayout::protocol) {
            assert!(Protocol::named(name).is_some(), "{name}");
        }
        let of = |name: &str| published_protocol(name.parse().unwrap());
        for (layout, protocol) in [
            ("market1501", "market1501"),
            ("dukemtmc", "duke"),
            ("cuhk03_np_detected", "cuhk03"),
            ("cuhk03_np_labeled", "cuhk03"),
            ("inshop", "inshop"),
            ("consumer_to_shop", "consumer_to_shop"),
        ] {
            assert_eq!(of(layout), Some(protocol));
        }
        // Every image is compared with the others: the run file decides what is measured.
        for layout in ["cub200_2011", "cars196", "sop", "omniglot", "mnist", "folders", "manifest"] {
            assert_eq!(of(layout), None, "{layout}");
        }
    }
}
