//! Where a gallery's embeddings come from, as texts: the properties or metadata of a collection.

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::index::Origin;
use gallerist_retrieval::search::Metric;

const MODEL: &str = "gallerist.model";
const RUN: &str = "gallerist.run";
const METRIC: &str = "gallerist.metric_of_rows";
const SOURCE: &str = "gallerist.source";
const THRESHOLD: &str = "gallerist.threshold";

/// The keys and texts of a set, as far as it says where it comes from.
pub fn origin_texts(set: &EmbeddingSet) -> Vec<(&'static str, String)> {
    let threshold =
        set.threshold.as_ref().map(|rule| serde_json::to_string(rule).expect("numbers and names"));
    let texts = [
        (MODEL, set.model.clone()),
        (RUN, set.run.clone()),
        (SOURCE, set.source.clone()),
        (METRIC, set.metric.map(|metric| metric.name().to_owned())),
        (THRESHOLD, threshold),
    ];
    texts.into_iter().filter_map(|(key, text)| Some((key, text?))).collect()
}

/// The origin that `text` of each key says. A metric or a threshold that this version does not know is none.
pub fn origin_of<'a>(text: impl Fn(&str) -> Option<&'a str>) -> Origin {
    let owned = |key| text(key).map(str::to_owned);
    Origin {
        model: owned(MODEL),
        source: owned(SOURCE),
        run: owned(RUN),
        metric: text(METRIC).and_then(Metric::named),
        threshold: text(THRESHOLD).and_then(|rule| serde_json::from_str(rule).ok()),
    }
}

#[cfg(test)]
mod tests {
    use gallerist_retrieval::Matrix;
    use gallerist_retrieval::eval::{FalseRate, MatchRule};

    use super::*;

    #[test]
    fn the_origin_of_a_set_comes_back() {
        let threshold = MatchRule {
            metric: Metric::Euclidean,
            threshold: 0.1,
            near: 0.3,
            rate: FalseRate::Search,
            target: 0.001,
            measured: 0.0007,
            bound: 0.01,
            confidence: 0.95,
            miss_rate: None,
            gallery: Some(600),
            model: Some("sha256:12ab".into()),
        };
        let set = EmbeddingSet {
            model: Some("sha256:12ab".into()),
            metric: Some(Metric::Euclidean),
            source: Some("photos".into()),
            threshold: Some(threshold),
            ..Matrix::new(1, 1, vec![0.5]).unwrap().into()
        };
        let texts = origin_texts(&set);
        let text = |key: &str| texts.iter().find(|(of, _)| *of == key).map(|(_, text)| text.as_str());
        assert_eq!(origin_of(text), Origin::from(&set));
        assert_eq!(origin_of(|_| None), Origin::default());
        assert_eq!(origin_of(|key| (key == THRESHOLD).then_some("{}")).threshold, None);
    }
}
