//! A calibrated threshold as galleries keep it.

use serde::{Deserialize, Serialize};

use crate::search::Metric;

gallerist_util::named_values! {
    /// The false match rate that a threshold keeps.
    #[derive(Default)]
    pub enum FalseRate {
        /// False match rate (FMR, also called FAR) of verification: the share of comparisons of images of two
        /// identities that are accepted.
        #[default]
        Comparison = "comparison", "False matches per comparison of two images (FMR, FAR)";
        /// False positive identification rate (FPIR) of open-set identification: the share of searches with an image of
        /// an unknown identity that return at least one match.
        Search = "search", "Searches of a gallery that return a match although there is none (FPIR)";
    }
}

gallerist_util::named_values! {
    /// What a threshold says about a result.
    pub enum Decision {
        /// Within the threshold.
        Match = "match", "Within the threshold";
        /// Beyond the threshold, within that of ten times the false match rate.
        Near = "near", "Within the threshold of ten times the false match rate";
        /// Beyond both.
        NoMatch = "no_match", "Beyond both thresholds";
    }
}

/// A calibrated threshold, and what is known of it: embeddings files and indexes keep it, and searches mark their results
/// by it.
///
/// ```
/// use gallerist_retrieval::eval::{Decision, FalseRate, MatchRule};
/// use gallerist_retrieval::search::Metric;
///
/// let rule = MatchRule {
///     metric: Metric::Cosine, threshold: 0.875, near: 0.5, rate: FalseRate::Comparison, target: 0.001,
///     measured: 0.00099, bound: 0.005, confidence: 0.95, miss_rate: Some(0.2), gallery: None, model: None,
/// };
/// // The Euclidean distance of rows of length 1 whose cosine is 0.875 is 0.5.
/// assert_eq!(rule.distance(), 0.5);
/// assert_eq!([0.49, 0.7, 1.1].map(|d| rule.decide_distance(d)), [Decision::Match, Decision::Near, Decision::NoMatch]);
/// assert_eq!(rule.decide(0.9), Decision::Match);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchRule {
    /// How rows are compared.
    pub metric: Metric,
    /// Results with this similarity or a larger one, this distance or a smaller one, are matches.
    pub threshold: f32,
    /// The same for [`Decision::Near`]: the threshold of ten times the target, at most of one half.
    pub near: f32,
    /// What `target`, `measured` and `bound` are rates of.
    pub rate: FalseRate,
    /// The rate that was asked for.
    pub target: f64,
    /// The rate of the images that the threshold was calibrated on: at most the target.
    pub measured: f64,
    /// The rate among all identities like these is at most this one, with the probability `confidence`.
    pub bound: f64,
    /// The confidence of the bound.
    pub confidence: f64,
    /// The miss rate at the threshold: per comparison the share of pairs of one identity that are refused (FNMR); per
    /// search the share of searches for an identity in the gallery whose nearest item is of another one, or is refused
    /// (FNIR). `None` without such pairs or searches.
    pub miss_rate: Option<f64>,
    /// Per search: the images of the gallery that was searched. Larger galleries have more false matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gallery: Option<usize>,
    /// The fingerprint of the network whose embeddings were compared, where it is known. A threshold holds for
    /// embeddings of this network only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl MatchRule {
    /// The different ones of these rules. Sets of one network with a single rule among them share it: it holds for the embeddings of
    /// its network, also for those of a file that does not have it.
    pub fn distinct<'a>(rules: impl IntoIterator<Item = &'a Self>) -> Vec<&'a Self> {
        let mut distinct: Vec<&Self> = Vec::new();
        for rule in rules {
            if !distinct.contains(&rule) {
                distinct.push(rule);
            }
        }
        distinct
    }

    /// What the rule says about a result of this similarity or distance, in terms of its metric.
    pub fn decide(&self, score: f32) -> Decision {
        let within = |threshold: f32| match self.metric {
            Metric::Euclidean => score <= threshold,
            Metric::Cosine | Metric::InnerProduct => score >= threshold,
        };
        self.decision(within(self.threshold), within(self.near))
    }

    /// What the rule says about a result at this Euclidean distance: of rows of length 1 where rows are compared by the
    /// cosine, as image searches show it.
    ///
    /// # Panics
    /// For a rule of the inner product, which determines no distance.
    pub fn decide_distance(&self, distance: f32) -> Decision {
        self.decision(distance <= self.distance(), distance <= self.near_distance())
    }

    fn decision(&self, within: bool, near: bool) -> Decision {
        match (within, near) {
            (true, _) => Decision::Match,
            (false, true) => Decision::Near,
            (false, false) => Decision::NoMatch,
        }
    }

    /// The threshold as a distance, as [`decide_distance`](Self::decide_distance) compares it.
    ///
    /// # Panics
    /// As [`decide_distance`](Self::decide_distance).
    pub fn distance(&self) -> f32 {
        self.as_distance(self.threshold)
    }

    /// The threshold of [`Decision::Near`] as a distance.
    ///
    /// # Panics
    /// As [`decide_distance`](Self::decide_distance).
    pub fn near_distance(&self) -> f32 {
        self.as_distance(self.near)
    }

    fn as_distance(&self, threshold: f32) -> f32 {
        match self.metric {
            Metric::Euclidean => threshold,
            // A threshold above 1 refuses images of two identities that have equal embeddings; so does a distance below 0.
            Metric::Cosine => {
                let square = 2.0 - 2.0 * f64::from(threshold);
                (square.signum() * square.abs().sqrt()) as f32
            }
            Metric::InnerProduct => panic!("a threshold of inner products is no distance"),
        }
    }
}
