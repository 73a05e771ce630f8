//! The pages people look at: the report of a run, the result of a search.
//!
//! These functions gather what [`gallerist_report`] draws: curves from a run's log, metrics, and
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

use std::collections::HashMap;
use std::path::Path;

use gallerist_data::{Image, ImageSet, Random, Size};
use gallerist_learn::train::log::{self, Record};
use gallerist_learn::train::{RunConfig, RunDirectory};
use gallerist_learn::{Error, Result};
use gallerist_report::{
    Chart, Hit, Item, Metric, Picture, RankedList, RankedSection, Report, Scale, SearchPage, Series,
};
use gallerist_retrieval::eval::{Evaluation, Further};
use gallerist_retrieval::search::{self, RankedLists, SearchOptions, self_search};
use gallerist_retrieval::{EmbeddingSet, labels};
use serde::{Deserialize, Serialize};

pub use gallerist_learn::train::open_test;

/// Longer side of a picture on a page, in pixels.
const PICTURE_SIDE: usize = 128;

/// Results among which a query's average precision is taken for the list of failures.
const DEPTH: usize = 100;

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
    let config = RunConfig::load(&run.config(), &[])?;
    let records = log::read(&run.log())?;
    let name = run.path().file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
    let mut report = Report {
        title: name,
        facts: facts(&config),
        charts: charts(&records),
        configuration: Some(config.to_toml()),
        ..Report::default()
    };
    let warnings = records.iter().filter_map(|record| match record {
        Record::Warning { step, message } => Some(format!("step {step}: {message}")),
        _ => None,
    });
    report.notices = warnings.take(5).collect();
    if run.metrics().exists() {
        let metrics = RunMetrics::load(&run.metrics())?;
        report.summary = Some(format!(
            "{} trained with {} for {} steps; weights of step {}.",
            network_name(&config),
            config.loss,
            config.train.steps,
            metrics.step
        ));
        report.facts.extend([
            ("training time".into(), format!("{:.0} s", metrics.training_seconds)),
            ("images per second".into(), format!("{:.0}", metrics.images_per_second)),
            ("time waiting for images".into(), format!("{:.1} %", 100.0 * metrics.waited_share)),
            ("model fingerprint".into(), metrics.model.chars().take(16).collect()),
        ]);
        if metrics.broken_images > 0 {
            report
                .notices
                .push(format!("{} images could not be read and are left out.", metrics.broken_images));
        }
        if ties_matter(&metrics.evaluation) {
            report.notices.extend(metrics.evaluation.notes.iter().cloned());
        }
        report.evaluations.push(evaluation("test classes", &metrics.evaluation));
        for (name, row) in metrics.further.rows() {
            report.evaluations.push(evaluation(&format!("test classes, {name}"), &row.evaluation));
        }
    }
    if run.embeddings().exists() {
        let set = EmbeddingSet::load(run.embeddings())?;
        let images = open_test(&config)?;
        report.ranked_lists = ranked_sections(&config, &set, images.as_ref())?;
    }
    Ok(report)
}

fn network_name(config: &RunConfig) -> String {
    format!("{} ({} dimensions)", config.network.name(), config.network.dimensions())
}

fn facts(config: &RunConfig) -> Vec<(String, String)> {
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

fn charts(records: &[Record]) -> Vec<Chart> {
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
            Record::Validation { step, metrics } => metrics.get(name).map(|&value| (*step as u64, value)),
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
fn evaluation(name: &str, evaluation: &Evaluation) -> gallerist_report::Evaluation {
    let recall = evaluation
        .metrics
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("recall@")?.parse().ok()?, value)));
    gallerist_report::Evaluation {
        name: name.into(),
        protocol: evaluation.protocol.clone(),
        metrics: evaluation.metrics.iter().map(|(name, value)| Metric::share(name, value)).collect(),
        recall_at: recall.collect(),
        queries: evaluation.queries as u64,
        gallery: (evaluation.gallery != evaluation.queries).then_some(evaluation.gallery as u64),
        queries_without_match: evaluation.queries_without_match as u64,
        ties: Some(evaluation.ties as u64),
    }
}

fn ranked_sections(
    config: &RunConfig,
    set: &EmbeddingSet,
    images: Option<&ImageSet>,
) -> Result<Vec<RankedSection>> {
    let Some(names) = &set.labels else { return Ok(Vec::new()) };
    let (n, results) = (set.embeddings.rows(), config.report.results);
    if n < 2 || results == 0 {
        return Ok(Vec::new());
    }
    let ids = labels::encode(names).ids;
    let options = SearchOptions {
        metric: search::Metric::Euclidean,
        exclude_self: true,
        ..SearchOptions::new(results.max(DEPTH).min(n - 1))
    };
    let lists = self_search(&set.embeddings, &options)?;
    let sizes = ids.iter().fold(HashMap::new(), |mut sizes: HashMap<u32, usize>, &id| {
        *sizes.entry(id).or_default() += 1;
        sizes
    });
    let precision: Vec<f64> =
        (0..n).map(|i| average_precision(&lists, &ids, i, sizes[&ids[i]] - 1)).collect();

    let mut drawn: Vec<usize> = (0..n).collect();
    Random::new(config.train.seed, "report/queries", 0, 0).shuffle(&mut drawn);
    drawn.truncate(config.report.queries);
    let mut worst: Vec<usize> = (0..n).filter(|&i| sizes[&ids[i]] > 1).collect();
    worst.sort_by(|&a, &b| precision[a].total_cmp(&precision[b]).then(a.cmp(&b)));
    worst.truncate(config.report.failures);

    let pictures = Pictures::new(set, images);
    let section = |title: &str, note: &str, queries: &[usize]| RankedSection {
        title: title.into(),
        note: Some(note.into()),
        measure: "Euclidean distance of the normalised embeddings".into(),
        lists: queries
            .iter()
            .map(|&query| RankedList {
                query: pictures.item(query),
                scores: vec![Metric::share("average precision", precision[query])],
                note: None,
                results: lists
                    .indices(query)
                    .iter()
                    .zip(lists.scores(query))
                    .take(results)
                    .map(|(&index, &distance)| Hit {
                        item: pictures.item(index as usize),
                        distance: f64::from(distance),
                        correct: Some(ids[index as usize] == ids[query]),
                    })
                    .collect(),
            })
            .collect(),
    };
    let mut sections = Vec::new();
    if !drawn.is_empty() {
        sections.push(section("Queries drawn at random", "What a typical search looks like.", &drawn));
    }
    if !worst.is_empty() {
        let note =
            format!("The queries with the lowest average precision among their first {DEPTH} results.");
        sections.push(section("Failures", &note, &worst));
    }
    Ok(sections)
}

/// Average precision over the first `min(relevant, depth)` results (MAP@R's form).
fn average_precision(lists: &RankedLists, ids: &[u32], query: usize, relevant: usize) -> f64 {
    let indices = lists.indices(query);
    let depth = relevant.min(indices.len());
    let (mut hits, mut sum) = (0usize, 0.0);
    for (rank, &index) in indices.iter().take(depth).enumerate() {
        if ids[index as usize] == ids[query] {
            hits += 1;
            sum += hits as f64 / (rank + 1) as f64;
        }
    }
    if depth == 0 { 0.0 } else { sum / depth as f64 }
}

/// The pictures behind the rows of an embeddings file.
struct Pictures<'a> {
    set: &'a EmbeddingSet,
    images: Option<(&'a ImageSet, HashMap<&'a str, usize>)>,
}

impl<'a> Pictures<'a> {
    fn new(set: &'a EmbeddingSet, images: Option<&'a ImageSet>) -> Self {
        let images = images.map(|images| {
            let places = (0..images.len()).map(|i| (images.path(i), i)).collect();
            (images, places)
        });
        Pictures { set, images }
    }

    fn item(&self, row: usize) -> Item {
        let path = self.set.paths.as_ref().map(|paths| paths[row].clone());
        let picture = self.images.as_ref().zip(path.as_deref()).and_then(|((images, places), path)| {
            let i = *places.get(path)?;
            picture(images, i)
        });
        Item { picture, label: self.set.labels.as_ref().map(|labels| labels[row].clone()), path }
    }
}

/// An image small enough for a page; `None` where it cannot be read.
fn picture(images: &ImageSet, i: usize) -> Option<Picture> {
    const SMALL_FILE: usize = 4096;
    let bytes = images.read(i).ok()?;
    if bytes.len() <= SMALL_FILE
        && images.quarter_turns(i) == 0
        && let Ok(picture) = Picture::from_encoded(bytes)
    {
        return Some(picture);
    }
    let image = shrunk(images.decode(i).ok()?);
    Picture::from_pixels(image.width() as u32, image.height() as u32, image.channels() as u8, image.pixels())
        .ok()
}

fn shrunk(image: Image) -> Image {
    let longer = image.width().max(image.height());
    if longer <= PICTURE_SIDE {
        return image;
    }
    let side = |s: usize| (s * PICTURE_SIDE / longer).max(1);
    image.resize(Size { height: side(image.height()), width: side(image.width()) })
}

/// The page of a search: `queries` were embedded from `query_images`, `lists` hold rows of `gallery`.
///
/// Pictures of the gallery are shown where its images can still be found at
/// [`EmbeddingSet::source`].
pub fn search_page(
    query_images: &ImageSet,
    queries: &EmbeddingSet,
    gallery: &EmbeddingSet,
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
        measure: "Euclidean distance of the normalised embeddings".into(),
        lists,
    }
}
