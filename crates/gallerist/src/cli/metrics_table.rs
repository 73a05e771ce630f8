//! The metrics as text.

use crate::retrieval::eval::{
    Calibration, Evaluation, FalseRate, Further, Intervals, MatchRule, OneShot, OpenSet, Over,
};
use crate::retrieval::search::Metric;

use crate::cli::printer::{self, Table, count, grouped};
use crate::text::open_set_searches;

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
    if let Some(found) = &further.open_set {
        text += &format!("\n{}", open_set_table(found, evaluation.metric));
    }
    if let Some(found) = &further.threshold {
        text += &format!("\n{}", threshold_table(found));
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

/// Detection and identification rates.
fn open_set_table(found: &OpenSet, metric: Metric) -> String {
    let distance = if metric == Metric::Euclidean { "largest distance" } else { "least similarity" };
    let mut table = Table::new(&["open-set", "value", distance], &[false, true, true]);
    for point in &found.dir_at_far {
        let threshold = point.threshold.map_or("-".into(), |threshold| format!("{threshold:.4}"));
        table.row(vec![format!("dir at far {}", point.far), share(point.dir), threshold]);
    }
    format!("{table}\n  {}\n", open_set_searches(found))
}

/// The threshold and its rates.
pub(crate) fn threshold_table(found: &Calibration) -> String {
    let rule = &found.rule;
    let sign = if rule.metric == Metric::Euclidean { "<=" } else { ">=" };
    let score = |threshold: f32, distance: fn(&MatchRule) -> f32| {
        // Only the cosine is shown as a distance, too.
        let distance = match rule.metric {
            Metric::Cosine => format!(" (distance <= {:.4})", distance(rule)),
            Metric::Euclidean | Metric::InnerProduct => String::new(),
        };
        format!("{} {sign} {threshold:.4}{distance}", rule.metric.score())
    };
    let (errors, misses) = match rule.rate {
        FalseRate::Comparison => ("false match rate (FMR)", "false non-match rate (FNMR)"),
        FalseRate::Search => {
            ("false positive identification rate (FPIR)", "false negative rate (FNIR, rank 1)")
        }
    };
    let mut table = Table::new(&["threshold", "value"], &[false, false]);
    let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
    row("match", score(rule.threshold, MatchRule::distance));
    row("near", score(rule.near, MatchRule::near_distance));
    row(errors, small_share(rule.measured));
    row(&format!("  bound, confidence {}", rule.confidence), small_share(rule.bound));
    if let Some(held_out) = &found.held_out {
        let low = held_out.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let high = held_out.rates.iter().copied().fold(0.0, f64::max);
        let splits = count(held_out.rates.len(), "split");
        let value = format!(
            "{}, mean of {splits} ({} to {})",
            small_share(held_out.mean),
            small_share(low),
            small_share(high)
        );
        row("  held out", value);
    }
    row(misses, rule.miss_rate.map_or("-".into(), small_share));
    if let Some(miss) = found.held_out.as_ref().and_then(|held_out| held_out.miss_rate) {
        row("  held out", small_share(miss));
    }
    let (impostors, genuine) = (grouped(found.impostors as usize), grouped(found.genuine as usize));
    let data = match rule.rate {
        FalseRate::Comparison => format!(
            "{} images of {} identities: {impostors} impostor and {genuine} genuine pairs",
            grouped(found.images),
            grouped(found.identities)
        ),
        FalseRate::Search => format!(
            "{impostors} searches for {} unknown and {genuine} for {} known identities in a gallery of {} images",
            grouped(found.identities),
            grouped(found.genuine_identities),
            grouped(rule.gallery.unwrap_or_default())
        ),
    };
    format!("{table}\n  {data}\n")
}

/// Four digits after the decimal point, or three significant ones of a small rate.
fn small_share(rate: f64) -> String {
    if rate == 0.0 || rate >= 0.1 {
        return format!("{rate:.4}");
    }
    let digits = (2 - rate.log10().floor() as i32) as usize;
    format!("{rate:.digits$}")
}
