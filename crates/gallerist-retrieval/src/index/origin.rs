//! Where the embeddings of an index come from.

use crate::EmbeddingSet;
use crate::eval::MatchRule;
use crate::search::Metric;

/// Where the embeddings of an index come from.
///
/// The first items set the values. Items that name none change nothing. Items of another
/// run change nothing either: [`IndexInfo::check_items`](super::IndexInfo::check_items) makes sure that the model is the same. When items of
/// another model are added on purpose ([`Items::of_any_model`](super::Items::of_any_model)), there is no common model any more, and so no run and no
/// threshold; if no item of the old model remains, the values are those of the new items. When
/// items of another place are added, there is no common place any more; the
/// [source](super::Item::source) of each item then tells where its image is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// The fingerprint of the model that made the embeddings.
    pub model: Option<String>,
    /// Where the images were read from.
    pub source: Option<String>,
    /// The run directory of the model, where it was at the time.
    pub run: Option<String>,
    /// How the model's run compares its embeddings. It also determines the length of the rows: length 1 for the
    /// cosine, as the network gives them for the Euclidean distance. `None` in indices made before files named it.
    pub metric: Option<Metric>,
    /// The threshold at which a result is a match, where one was calibrated: that of the first items that have one.
    pub threshold: Option<MatchRule>,
}

impl From<&EmbeddingSet> for Origin {
    fn from(set: &EmbeddingSet) -> Self {
        Self {
            model: set.model.clone(),
            source: set.source.clone(),
            run: set.run.clone(),
            metric: set.metric,
            threshold: set.threshold.clone(),
        }
    }
}

impl Origin {
    /// The metric that the rows were made for: files that name none have rows of length 1.
    pub fn metric_of_rows(&self) -> Metric {
        self.metric.unwrap_or_default()
    }

    /// The threshold at which a result is a match, if it holds for rows that are compared by `metric`.
    pub fn threshold_of(&self, metric: Metric) -> Option<&MatchRule> {
        self.threshold.as_ref().filter(|rule| rule.metric == metric)
    }
}
