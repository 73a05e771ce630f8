//! What counts as an issue.

use serde::{Deserialize, Serialize};

use crate::search::Metric;
use crate::{Error, Result};

/// What counts as an issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IssueOptions {
    /// How rows are compared: [`Metric::Cosine`] or [`Metric::Euclidean`].
    pub metric: Metric,
    /// Nearest neighbours for outliers. Default 10.
    pub k: usize,
    /// Nearest images of a class that define the distance to it. Default 5.
    pub per_class: usize,
    /// A label is reported if it is wrong with at least this probability, 0 to 1. Default 0.5; 0 reports all rows,
    /// ranked.
    pub probability: f64,
    /// Two rows are near-duplicates if their distance is at most this share of the median distance of a row to its
    /// nearest neighbour. Default 0.5.
    pub duplicates: f64,
    /// A row is an outlier if its modified z-score is above this. Default 3.5 (Iglewicz and Hoaglin, 1993).
    pub outliers: f64,
    /// Two classes are reported as one from this [mixing](super::SameClass::mixing) on, 0 to 1. Default 0.8.
    pub mixing: f64,
}

impl Default for IssueOptions {
    fn default() -> Self {
        Self {
            metric: Metric::Cosine,
            k: 10,
            per_class: 5,
            probability: 0.5,
            duplicates: 0.5,
            outliers: 3.5,
            mixing: 0.8,
        }
    }
}

impl IssueOptions {
    /// Refuses values out of their ranges.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |option, wanted, found: String| Err(Error::Option { option, wanted, found });
        if self.metric == Metric::InnerProduct {
            return refuse("the metric", "cosine or euclidean", self.metric.name().to_owned());
        }
        for (option, value) in [("k", self.k), ("per_class", self.per_class)] {
            if value == 0 {
                return refuse(option, "at least 1", "0".to_owned());
            }
        }
        for (option, value) in [("probability", self.probability), ("mixing", self.mixing)] {
            if !(0.0..=1.0).contains(&value) {
                return refuse(option, "from 0 to 1", value.to_string());
            }
        }
        for (option, value) in [("duplicates", self.duplicates), ("outliers", self.outliers)] {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(option, "a number from 0 on", value.to_string());
            }
        }
        Ok(())
    }
}
