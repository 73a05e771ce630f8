//! The pages people look at: the report of a run, the result of a search.
//!
//! These functions gather what [`gallerist_report`] draws: curves from a run's log, metrics, maps, and
//! ranked lists with their pictures.
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use gallerist::train::RunDirectory;
//!
//! let run = RunDirectory::open(Path::new("runs/omniglot"))?;
//! gallerist::pages::run_report(&run)?.write(run.report())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use gallerist_data::ImageSet;
use gallerist_learn::train::log::{self, Record};
use gallerist_learn::train::{RunConfig, RunDirectory};
use gallerist_learn::{Error, Result};
use gallerist_report::{Chart, Hit, Metric, RankedList, RankedSection, Report, Scale, SearchPage, Series};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{Evaluation, Further, Intervals, Over};
use gallerist_retrieval::search::{self, RankedLists};
use serde::{Deserialize, Serialize};

use crate::pictures::Pictures;
use crate::plots::{self, Source, name_of};
use crate::ranking::{AMONG, Ranking};

pub use gallerist_learn::train::open_test;

/// Ranks of the CMC curve.
const RANKS: usize = 50;

/// A run's `metrics.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunMetrics {
    /// The test metrics: protocol, values by name, queries, ties.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// What else `[evaluation]` asks for: intervals, re-ranking, clusters, pairs.
    #[serde(flatten)]
    pub further: Further,
    /// Which checkpoint was evaluated: `best` or `last`.
    pub checkpoint: String,
    /// Its step.
    pub step: usize,
    /// The model's fingerprint.
    pub model: String,
    /// Seconds of training, validations left out.
    pub training_seconds: f64,
    /// Share of that time spent waiting for images.
    pub waited_share: f64,
    /// Trained images per second.
    pub images_per_second: f64,
    /// Images, training and test, that could not be read.
    pub broken_images: usize,
}

impl RunMetrics {
    /// Reads a run's `metrics.json`.
    ///
    /// # Errors
    ///
    /// When the file is missing or damaged.
    pub fn load(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { action: "read", path: path.into(), source };
        let text = std::fs::read_to_string(path).map_err(io)?;
        serde_json::from_str(&text).map_err(|e| io(std::io::Error::new(std::io::ErrorKind::InvalidData, e)))
    }

    /// Writes `metrics.json`.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        gallerist_retrieval::file::write_atomically(path, |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            std::io::Write::write_all(file, b"\n")
        })?;
        Ok(())
    }
}

/// The report of a run, from the files of its directory.
///
/// Without `metrics.json` or `embeddings.safetensors` the parts that need them are left out.
///
/// # Errors
///
/// When a file that is there cannot be read.
pub fn run_report(run: &RunDirectory) -> Result<Report> {
    comparison(std::slice::from_ref(run))
}

/// The report of several runs side by side: their metrics in one table, their curves in the same
/// charts, and of each its map and ranked lists.
///
/// # Errors
///
/// As [`run_report`].
pub fn comparison(runs: &[RunDirectory]) -> Result<Report> {
    let several = runs.len() > 1;
    let names: Vec<String> = runs.iter().map(|run| name_of(run.path())).collect();
    let mut report = Report { title: names.join(" beside "), ..Report::default() };
    let (mut logs, mut sources, mut facts, mut configurations) = (vec![], vec![], vec![], vec![]);
    for (run, name) in runs.iter().zip(&names) {
        let config = RunConfig::load(&run.config(), &[])?;
        let records = log::read(&run.log())?;
        let said = |text: String| if several { format!("{name}: {text}") } else { text };
        let warnings = records.iter().filter_map(|record| match record {
            Record::Warning { step, message } => Some(said(format!("step {step}: {message}"))),
            _ => None,
        });
        report.notices.extend(warnings.take(5));
        let mut of_run = facts_of(&config);
        if run.metrics().exists() {
            let metrics = RunMetrics::load(&run.metrics())?;
            add_metrics(&mut report, &config, &metrics, several.then_some(name), &mut of_run);
        }
        if run.embeddings().exists() {
            let source = Source::of_run(run.path())?;
            for mut section in ranked_sections(&config, &source)? {
                section.title = said(section.title);
                report.ranked_lists.push(section);
            }
            report.maps.push(plots::atlas(&source, config.train.seed)?);
            sources.push(source);
        }
        configurations.push(if several {
            format!("# {name}\n\n{}", config.to_toml())
        } else {
            config.to_toml()
        });
        facts.push(of_run);
        logs.push((name.clone(), records));
    }
    report.charts = plots::charts_of_runs(&logs);
    report.facts = side_by_side(&names, &facts);
    report.configuration = Some(configurations.join("\n"));
    if !sources.is_empty() {
        const SEED: u64 = 1;
        for figure in [plots::distances(&sources, SEED), plots::cmc(&sources, RANKS), plots::pr(&sources)] {
            match figure {
                Ok(figure) => report.figures.push(figure),
                // Embeddings without labels, or of one class: there is nothing to draw.
                Err(Error::Retrieval(gallerist_retrieval::Error::Protocol { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(report)
}

/// What `metrics.json` adds to a report.
fn add_metrics(
    report: &mut Report,
    config: &RunConfig,
    metrics: &RunMetrics,
    run: Option<&String>,
    facts: &mut Vec<(String, String)>,
) {
    let said = |text: String| run.map_or(text.clone(), |run| format!("{run}: {text}"));
    let summary = said(format!(
        "{} trained with {} for {} steps; weights of step {}.",
        network_name(config),
        config.loss,
        config.train.steps,
        metrics.step
    ));
    report.summary =
        Some(report.summary.take().map_or(summary.clone(), |before| format!("{before} {summary}")));
    facts.extend([
        ("training time".into(), format!("{:.0} s", metrics.training_seconds)),
        ("images per second".into(), format!("{:.0}", metrics.images_per_second)),
        ("time waiting for images".into(), format!("{:.1} %", 100.0 * metrics.waited_share)),
        ("model fingerprint".into(), metrics.model.chars().take(16).collect()),
    ]);
    if metrics.broken_images > 0 {
        report
            .notices
            .push(said(format!("{} images could not be read and are left out.", metrics.broken_images)));
    }
    if ties_matter(&metrics.evaluation) {
        report.notices.extend(metrics.evaluation.notes.iter().cloned().map(said));
    }
    let label = run.map_or("test classes", String::as_str);
    let intervals = &metrics.further.intervals;
    report.evaluations.push(evaluation(label, &metrics.evaluation, intervals.as_ref()));
    for (name, row) in metrics.further.rows() {
        let name = format!("{label}, {name}");
        report.evaluations.push(evaluation(&name, &row.evaluation, row.intervals.as_ref()));
    }
    if let Some(intervals) = intervals {
        report.intervals = Some(format!(
            "Small: {:.0} % bootstrap intervals, {} resamples over {}.",
            100.0 * intervals.level,
            intervals.bootstrap.resamples,
            match intervals.bootstrap.over {
                Over::Queries => "queries",
                Over::Classes => "classes",
            }
        ));
    }
}

/// The facts of several runs: once what they share, each run's where they differ.
fn side_by_side(names: &[String], all: &[Vec<(String, String)>]) -> Vec<(String, String)> {
    let mut keys: Vec<&String> = Vec::new();
    for (key, _) in all.iter().flatten() {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let value = |facts: &[(String, String)], key| {
        facts.iter().find(|(known, _)| known == key).map_or("–".to_string(), |(_, value)| value.clone())
    };
    (keys.into_iter())
        .map(|key| {
            let values: Vec<String> = all.iter().map(|facts| value(facts, key)).collect();
            let same = values.iter().all(|one| *one == values[0]);
            let each = names.iter().zip(&values).map(|(name, value)| format!("{name}: {value}"));
            (key.clone(), if same { values[0].clone() } else { each.collect::<Vec<_>>().join("; ") })
        })
        .collect()
}

fn network_name(config: &RunConfig) -> String {
    format!("{} ({} dimensions)", config.network.name(), config.network.dimensions())
}

fn facts_of(config: &RunConfig) -> Vec<(String, String)> {
    let paths = |paths: &[std::path::PathBuf]| {
        paths.iter().filter_map(|p| p.file_name()).map(|n| n.to_string_lossy()).collect::<Vec<_>>().join(", ")
    };
    vec![
        ("training images".into(), paths(&config.data.train)),
        ("test images".into(), paths(&config.data.test)),
        ("network".into(), network_name(config)),
        ("loss".into(), config.loss.to_string()),
        ("steps".into(), config.train.steps.to_string()),
        ("learning rate".into(), config.optimizer.learning_rate.to_string()),
        ("seed".into(), config.train.seed.to_string()),
    ]
}

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
    let validation = |name: &str| {
        let points = records.iter().filter_map(|record| match record {
            Record::Validation { step, metrics, .. } => metrics.get(name).map(|&value| (*step as u64, value)),
            _ => None,
        });
        Series::new(name, points)
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
    let validations = vec![validation("recall@1"), validation("map@r")];
    if validations.iter().any(|series| !series.points.is_empty()) {
        charts.push(chart("Validation classes", Scale::Share, false, validations));
    }
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
    charts
}

/// Whether so many queries (over 1 %) are decided by the order of the files that a reader must be told.
pub fn ties_matter(evaluation: &Evaluation) -> bool {
    evaluation.ties * 100 > evaluation.queries
}

/// An evaluation as the report shows it.
fn evaluation(
    name: &str,
    evaluation: &Evaluation,
    intervals: Option<&Intervals>,
) -> gallerist_report::Evaluation {
    let metric = |(name, value): (&str, f64)| Metric {
        interval: intervals.and_then(|all| all.metrics.get(name)).map(|found| (found.low, found.high)),
        ..Metric::share(name, value)
    };
    let recall = evaluation
        .metrics
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("recall@")?.parse().ok()?, value)));
    gallerist_report::Evaluation {
        name: name.into(),
        protocol: evaluation.protocol.clone(),
        metrics: evaluation.metrics.iter().map(metric).collect(),
        recall_at: recall.collect(),
        queries: evaluation.queries as u64,
        gallery: (evaluation.gallery != evaluation.queries).then_some(evaluation.gallery as u64),
        queries_without_match: evaluation.queries_without_match as u64,
        ties: Some(evaluation.ties as u64),
    }
}

fn ranked_sections(config: &RunConfig, source: &Source) -> Result<Vec<RankedSection>> {
    let Some(names) = &source.set.labels else { return Ok(Vec::new()) };
    let (n, results) = (source.rows.rows(), config.report.results);
    if n < 2 || results == 0 {
        return Ok(Vec::new());
    }
    let ranking = Ranking::new(&source.rows, names, results, source.measure())?;
    let pictures = Pictures::new(&source.set, source.images.as_ref());
    let item = |row| pictures.item(row);
    let drawn = ranking.drawn(config.train.seed, config.report.queries);
    let worst = ranking.worst(config.report.failures);
    let mut sections = Vec::new();
    if !drawn.is_empty() {
        sections.push(ranking.section(
            "Queries drawn at random",
            "What a typical search looks like.",
            &drawn,
            &item,
        ));
    }
    if !worst.is_empty() {
        let note = format!("The queries with the lowest average precision, each {AMONG}.");
        sections.push(ranking.section("Failures", &note, &worst, &item));
    }
    Ok(sections)
}

/// The page of a search: `queries` were embedded from `query_images`, `lists` hold rows of `gallery`, which are compared
/// by `metric`.
///
/// Pictures of the gallery are shown where its images can still be found at
/// [`EmbeddingSet::source`].
pub fn search_page(
    query_images: &ImageSet,
    queries: &EmbeddingSet,
    gallery: &EmbeddingSet,
    metric: search::Metric,
    lists: &RankedLists,
) -> SearchPage {
    let source = gallery.source.as_deref().and_then(|source| ImageSet::open(source).ok());
    let mut notices = Vec::new();
    if source.is_none() {
        let place = gallery.source.as_deref().unwrap_or("an unnamed place");
        notices.push(format!("The gallery's pictures cannot be found at {place}."));
    }
    let of_queries = Pictures::new(queries, Some(query_images));
    let of_gallery = Pictures::new(gallery, source.as_ref());
    let lists = (0..lists.len())
        .map(|query| RankedList {
            query: of_queries.item(query),
            results: lists
                .indices(query)
                .iter()
                .zip(lists.scores(query))
                .map(|(&index, &distance)| Hit {
                    item: of_gallery.item(index as usize),
                    distance: f64::from(distance),
                    correct: None,
                })
                .collect(),
            ..RankedList::default()
        })
        .collect();
    SearchPage {
        title: "Search".into(),
        summary: None,
        notices,
        facts: vec![
            ("gallery".into(), format!("{} images", gallery.embeddings.rows())),
            ("dimensions".into(), gallery.embeddings.cols().to_string()),
            (
                "model fingerprint".into(),
                gallery.model.as_deref().unwrap_or("unknown").chars().take(16).collect(),
            ),
        ],
        measure: plots::measure(metric).into(),
        lists,
    }
}
