//! The metrics as text.

use crate::retrieval::eval::{Evaluation, Further, Intervals, OneShot, Over};
use crate::retrieval::search::Metric;

use crate::cli::printer::{self, Table, count, grouped};

/// The published mean accuracy of Omniglot's 20 runs with the modified Hausdorff
/// distance of the strokes' pixels, an error of 38.8 % (Lake, Salakhutdinov, Tenenbaum, 2015).
const OMNIGLOT_BASELINE: f64 = 0.612;

/// Warnings about the result: metrics that depend on the order of ties, a test set of another size than the
/// benchmark's.
pub(crate) fn warn_of_notes(evaluation: &Evaluation) {
    evaluation.notes.iter().for_each(|note| printer::warning(note));
}

/// The metrics and the additional measurements.
pub(crate) fn table(evaluation: &Evaluation, further: &Further) -> String {
    let mut text = metrics(evaluation, further.intervals.as_ref());
    for (_, row) in further.rows() {
        text += &format!("\n{}", metrics(&row.evaluation, row.intervals.as_ref()));
    }
    if let Some(found) = &further.clustering {
        let rows = [("nmi", found.nmi), ("ami", found.ami), ("pair_f1", found.pair_f1)];
        text += &format!(
            "\n{}\n  {}, best of {} by k-means with at most {} iterations, seed {}\n",
            values(&rows),
            count(found.kmeans.clusters, "cluster"),
            count(found.kmeans.starts, "start"),
            found.kmeans.iterations,
            found.kmeans.seed
        );
    }
    if let Some(found) = &further.verification {
        let distance =
            if evaluation.metric == Metric::Euclidean { "largest distance" } else { "least similarity" };
        let mut table = Table::new(&["verification", "value", distance], &[false, true, true]);
        for point in &found.tar_at_far {
            let threshold = point.threshold.map_or("-".into(), |threshold| format!("{threshold:.4}"));
            table.row(vec![format!("tar at far {}", point.far), share(point.tar), threshold]);
        }
        for (name, value) in [("equal error rate", found.eer), ("area under the curve", found.auc)] {
            table.row(vec![name.into(), share(value), String::new()]);
        }
        text += &format!(
            "\n{table}\n  {} genuine and {} impostor pairs\n",
            grouped(found.genuine_pairs as usize),
            grouped(found.impostor_pairs as usize)
        );
    }
    if let Some(found) = &further.few_shot {
        let mut table = Table::new(&["few-shot", "value", "95 % interval"], &[false, true, true]);
        for (name, value, margin) in
            [("accuracy", found.accuracy, found.accuracy_margin), ("map", found.map, found.map_margin)]
        {
            table.row(vec![name.into(), share(value), format!("+-{margin:.4}")]);
        }
        let of = &found.options;
        text += &format!(
            "\n{table}\n  {}-way {}-shot, {} a class, {} from {}, seed {}\n",
            of.ways,
            of.shots,
            count(of.queries, "query"),
            count(of.episodes, "episode"),
            count(found.classes, "class"),
            of.seed
        );
    }
    text
}

/// The accuracy of each run, their mean and the published baseline.
pub(crate) fn one_shot_table(found: &OneShot) -> String {
    let mut table = Table::new(&["one-shot", "accuracy"], &[false, true]);
    for (name, accuracy) in &found.runs {
        table.row(vec![name.clone(), share(*accuracy)]);
    }
    table.row(vec!["mean".into(), share(found.accuracy)]);
    if found.ways == Some(20) && found.runs.len() == 20 && found.tests == 400 {
        table.row(vec!["modified Hausdorff distance (published)".into(), share(OMNIGLOT_BASELINE)]);
    }
    let ways = found.ways.map_or(String::new(), |ways| format!("{ways}-way, "));
    format!("\n{table}\n  {ways}{}; {} with ties\n", count(found.tests, "test image"), grouped(found.ties))
}

fn metrics(evaluation: &Evaluation, intervals: Option<&Intervals>) -> String {
    let mut table = match intervals {
        None => Table::new(&["metric", "value"], &[false, true]),
        Some(_) => Table::new(&["metric", "value", "95 % interval"], &[false, true, true]),
    };
    for (name, value) in evaluation.metrics.iter() {
        let mut cells = vec![name.to_string(), share(value)];
        cells.extend(intervals.map(|intervals| {
            let interval = intervals.metrics.get(name);
            interval.map_or("-".into(), |interval| format!("{:.4} - {:.4}", interval.low, interval.high))
        }));
        table.row(cells);
    }
    let mut text = format!("{table}\n  {}: {}", evaluation.protocol, count(evaluation.queries, "query"));
    if evaluation.gallery != evaluation.queries {
        text += &format!(" against {}", count(evaluation.gallery, "image"));
    }
    if evaluation.junk > 0 {
        text += &format!(", {} junk left out", grouped(evaluation.junk));
    }
    text += &format!(
        "; {} without a match, {} with ties\n",
        grouped(evaluation.queries_without_match),
        grouped(evaluation.ties)
    );
    if let Some(intervals) = intervals {
        let over = if intervals.bootstrap.over == Over::Classes { "class" } else { "query" };
        text += &format!(
            "  intervals: percentiles of {} over {}, seed {}\n",
            count(intervals.bootstrap.resamples, "resample"),
            count(intervals.units, over),
            intervals.bootstrap.seed
        );
    }
    text
}

fn values(rows: &[(&str, f64)]) -> String {
    let mut table = Table::new(&["clusters", "value"], &[false, true]);
    for (name, value) in rows {
        table.row(vec![name.to_string(), share(*value)]);
    }
    table.to_string()
}

fn share(value: f64) -> String {
    format!("{value:.4}")
}
