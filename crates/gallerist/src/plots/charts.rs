//! The charts of a run's log.

use std::collections::{BTreeMap, BTreeSet};

use gallerist_report::{Chart, Scale, Series};
use gallerist_train::log::{self, Record};

/// The title of the chart of the validation metrics.
pub(super) const VALIDATION: &str = "Validation";

/// The charts of a log.
pub(crate) fn charts(records: &[Record]) -> Vec<Chart> {
    let steps: Vec<&log::Step> = records
        .iter()
        .filter_map(|record| match record {
            Record::Step(step) => Some(step),
            _ => None,
        })
        .collect();
    let series = |name: &str, value: &dyn Fn(&log::Step) -> f64| {
        Series::new(name, steps.iter().map(|step| (step.step as u64, value(step))))
    };
    let chart =
        |title: &str, scale, smooth, series| Chart { title: title.into(), note: None, scale, smooth, series };
    let mut charts = vec![
        chart("Loss", Scale::Linear, true, vec![series("loss", &|s| f64::from(s.loss))]),
        chart(
            "Share of non-trivial pairs",
            Scale::Share,
            true,
            vec![
                series("positives", &|s| f64::from(s.positive_share)),
                series("negatives", &|s| f64::from(s.negative_share)),
            ],
        ),
    ];
    charts.extend(validation_charts(records));
    charts.extend([
        chart(
            "Mean distance in a batch",
            Scale::Linear,
            true,
            vec![
                series("positive pairs", &|s| f64::from(s.positive_distance)),
                series("negative pairs", &|s| f64::from(s.negative_distance)),
            ],
        ),
        chart(
            "Dimensions that the embeddings fill (participation ratio)",
            Scale::Linear,
            true,
            vec![series("dimensions", &|s| f64::from(s.rank))],
        ),
        chart("Learning rate", Scale::Linear, false, vec![series("learning rate", &|s| s.learning_rate)]),
        chart(
            "Norm of the gradient",
            Scale::Log,
            true,
            vec![series("norm", &|s| f64::from(s.gradient_norm))],
        ),
        chart(
            "Mean norm of the embeddings before normalisation",
            Scale::Linear,
            true,
            vec![series("norm", &|s| f64::from(s.embedding_norm))],
        ),
    ]);
    // Only some losses have terms without a gradient.
    if steps.iter().any(|step| step.dead_share > 0.0) {
        let share = vec![series("dead terms", &|s| f64::from(s.dead_share))];
        charts.push(chart("Share of dead terms (loss without gradient)", Scale::Share, true, share));
    }
    charts
}

/// Curves of the validation metrics: one chart with a line for each family of metrics (for `cmc@1` and
/// `cmc@5`, the first), and one chart for each family with several members.
fn validation_charts(records: &[Record]) -> Vec<Chart> {
    let validations = || {
        records.iter().filter_map(|record| match record {
            Record::Validation { step, protocol, metrics } => Some((*step as u64, protocol, metrics)),
            _ => None,
        })
    };
    // Each family with its members, by K.
    let mut families: BTreeMap<&str, BTreeSet<(u64, &str)>> = BTreeMap::new();
    for name in validations().flat_map(|(_, _, metrics)| metrics.keys()) {
        let (family, k) =
            name.split_once('@').map_or((name.as_str(), None), |(family, k)| (family, k.parse().ok()));
        let family = if k.is_some() { family } else { name.as_str() };
        families.entry(family).or_default().insert((k.unwrap_or(0), name.as_str()));
    }
    let note = validations().map(|(_, protocol, _)| protocol).find(|protocol| !protocol.is_empty());
    let series = |name: &str| {
        let value = |(step, _, metrics): (u64, _, &BTreeMap<String, f64>)| Some((step, *metrics.get(name)?));
        Series::new(name, validations().filter_map(value))
    };
    let chart = |title: String, series| Chart {
        title,
        note: note.cloned(),
        scale: Scale::Share,
        smooth: false,
        series,
    };
    let first = |members: &BTreeSet<(u64, &str)>| members.first().map(|(_, name)| series(name));
    let firsts: Vec<Series> = families.values().filter_map(first).collect();
    if firsts.is_empty() {
        return Vec::new();
    }
    let mut charts = vec![chart(VALIDATION.into(), firsts)];
    for (family, members) in families.iter().filter(|(_, members)| members.len() > 1) {
        let all = members.iter().map(|(_, name)| series(name)).collect();
        charts.push(chart(format!("{VALIDATION}: {family}@K"), all));
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_terms_are_drawn_where_there_are_any() {
        let step = |dead: f32| {
            let line = format!(
                r#"{{"event":"step","step":1,"epoch":0,"loss":1.0,"positive_share":0.5,"negative_share":0.5,
                "mined_positives":1.0,"mined_negatives":1.0,"dead_share":{dead},"positive_distance":1.0,
                "negative_distance":1.0,"rank":2.0,"gradient_norm":1.0,"embedding_norm":1.0,"learning_rate":0.1,
                "seconds":0.1,"waited":0.0}}"#
            );
            serde_json::from_str::<Record>(&line).unwrap()
        };
        let titles = |dead| charts(&[step(dead)]).into_iter().map(|chart| chart.title).collect::<Vec<_>>();
        assert!(titles(0.25).iter().any(|title| title.starts_with("Share of dead terms")));
        assert!(!titles(0.0).iter().any(|title| title.contains("dead")));
    }

    #[test]
    fn validation_is_drawn_whatever_it_measured() {
        let record = |step: usize, metrics: &[(&str, f64)]| Record::Validation {
            step,
            protocol: "queries against the other cameras' images".into(),
            metrics: metrics.iter().map(|&(name, value)| (name.into(), value)).collect(),
        };
        let records = [
            record(10, &[("map", 0.1), ("cmc@10", 0.5), ("cmc@1", 0.2)]),
            record(20, &[("map", 0.2), ("cmc@10", 0.6), ("cmc@1", 0.3)]),
        ];
        let charts = validation_charts(&records);
        let names = |chart: &Chart| chart.series.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        assert_eq!(charts.len(), 2);
        assert_eq!(
            (charts[0].title.as_str(), names(&charts[0])),
            ("Validation", vec!["cmc@1".into(), "map".into()])
        );
        assert_eq!(
            (charts[1].title.as_str(), names(&charts[1])),
            ("Validation: cmc@K", vec!["cmc@1".into(), "cmc@10".into()])
        );
        assert_eq!(charts[0].note.as_deref(), Some("queries against the other cameras' images"));
        assert_eq!(charts[0].series[1].points.len(), 2);
        assert!(validation_charts(&[]).is_empty());
    }
}
