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

use std::collections::BTreeSet;
use std::path::Path;

use gallerist_data::ImageSet;
use gallerist_report::figure::Figure;
use gallerist_report::{Hit, Metric, RankedList, RankedSection, Report, SearchPage};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{self, Evaluation, Intervals, Over};
use gallerist_retrieval::search::{self, RankedLists};
use gallerist_train::log::{self, Record};
use gallerist_train::{BrokenImage, Error, Result, Timing};
use gallerist_train::{ReportConfig, RunConfig, RunDirectory};

use crate::image_places::ImagePlaces;
use crate::narrow::Conditions;
use crate::pictures::Pictures;
use crate::plots::{self, PageMap, Source, joined, names_of};
use crate::ranking::Ranking;
use crate::run_metrics::RunMetrics;
use crate::text::count;

pub use gallerist_train::open_test;

/// Ranks of the CMC curve.
const RANKS: usize = 50;

/// The report of a run, from the files of its directory.
///
/// Parts that need `metrics.json` or `embeddings.safetensors` are omitted if the file is missing. It has no times, which
/// are in `timing.json`.
///
/// # Errors
///
/// When an existing file cannot be read.
pub fn run_report(run: &RunDirectory) -> Result<Report> {
    comparison(std::slice::from_ref(run))
}

/// The comparison of several runs: their metrics in one table, their curves in the same
/// charts, and the map and ranked lists of each run.
///
/// # Errors
///
/// As [`run_report`].
pub fn comparison(runs: &[RunDirectory]) -> Result<Report> {
    comparison_where(runs, &Conditions::default())
}

/// [`comparison`] on the test images that meet the conditions: metrics, figures, map and lists are computed from their
/// embeddings, and the page says how many took part. Training curves are unchanged.
///
/// # Errors
///
/// As [`comparison`], when a run has no embeddings, and as
/// [`Measured::narrow`](crate::measured::Measured::narrow).
pub fn comparison_where(runs: &[RunDirectory], conditions: &Conditions) -> Result<Report> {
    let several = runs.len() > 1;
    let names = names_of(&runs.iter().map(RunDirectory::path).collect::<Vec<_>>());
    let mut report = Report { title: names.join(" compared with "), ..Report::default() };
    let (mut logs, mut sources, mut facts, mut configurations) = (vec![], vec![], vec![], vec![]);
    let mut intervals: Vec<(String, String)> = Vec::new();
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
        let has_embeddings = run.embeddings().exists() || run.query().exists() && run.gallery().exists();
        let mut source = (has_embeddings || !conditions.is_empty())
            .then(|| Source::of_run_where(run.path(), conditions))
            .transpose()?;
        if let Some(source) = &mut source {
            source.name.clone_from(name);
        }
        let metrics = run.metrics().exists().then(|| RunMetrics::load(&run.metrics())).transpose()?;
        if several {
            let timing = match &metrics {
                Some(metrics) => Some(metrics.timing(run)?),
                // The file may be that of fewer steps.
                None => Timing::load(&run.timing())?.filter(|timing| timing.step >= config.train.steps),
            };
            of_run.extend(timing.iter().flat_map(facts_of_timing));
        }
        if let Some(mut metrics) = metrics {
            if let Some(source) = source.as_ref().filter(|_| !conditions.is_empty()) {
                let of_part = source.report()?;
                (metrics.evaluation, metrics.further) = (of_part.evaluation, of_part.further);
                let part = source.part();
                report.notices.push(said(format!("Metrics, figures and lists are those of a part.{part}")));
            }
            // Without embeddings, what the run file and the counts say.
            let of = &metrics.evaluation;
            let has_gallery = source.as_ref().map_or_else(
                || !config.data.query.is_empty() || of.gallery != of.queries,
                |source| source.gallery.is_some(),
            );
            let run = several.then_some(name);
            add_metrics(&mut report, &config, &metrics, (run, has_gallery), &mut of_run);
            let found = metrics.further.intervals.as_ref();
            intervals.extend(found.map(|found| (name.clone(), intervals_are(found))));
        }
        let broken = BrokenImage::load(&run.broken_images())?.into_iter();
        report
            .broken_images
            .extend(broken.map(|BrokenImage { set, image, reason }| [said(set), image, reason]));
        if let Some(source) = source {
            add_lists_and_map(&mut report, &source, &config.report, config.train.seed, &said)?;
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
    report.intervals = intervals_of(&intervals);
    report.configuration = Some(configurations.join("\n"));
    add_figures(&mut report, &sources)?;
    Ok(report)
}

/// The report of any embeddings: metrics, histograms, curves, a map and ranked lists,
/// all by the rules of the source's plan.
///
/// The lists show pictures if the images are available, else paths, else row numbers.
///
/// ```no_run
/// use std::path::Path;
/// use gallerist::plots::Source;
/// use gallerist::train::{EvaluationConfig, ReportConfig};
///
/// let by = EvaluationConfig { protocol: Some("market1501".into()), ..EvaluationConfig::default() };
/// let [queries, gallery] = ["query.safetensors", "gallery.safetensors"].map(Path::new);
/// let source = Source::of_files(queries.into(), gallery.into(), &by)?;
/// let page = gallerist::pages::evaluation_report(&source, &source.report()?, &ReportConfig::default())?;
/// page.write("market1501.html")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// When there are no labels.
pub fn evaluation_report(
    source: &Source,
    measured: &eval::EvaluationReport,
    options: &ReportConfig,
) -> Result<Report> {
    let of = &measured.evaluation;
    let mut report = Report {
        title: format!("Evaluation of {}", source.name),
        summary: Some(source.described(of)),
        notices: of.notes.clone(),
        ..Report::default()
    };
    for (side, what) in [(Some(&source.queries), "queries"), (source.gallery.as_ref(), "gallery")] {
        let what = if source.gallery.is_some() { format!(" of the {what}") } else { String::new() };
        if side.is_some_and(|side| !side.has_images()) {
            report.notices.push(format!(
                "The pictures{what} cannot be found; the page shows paths or row numbers instead."
            ));
        }
    }
    let intervals = measured.further.intervals.as_ref();
    let has_gallery = source.gallery.is_some();
    let label = if has_gallery { "queries" } else { "images" };
    report.evaluations.push(evaluation(label, of, has_gallery, intervals));
    for (name, row) in measured.further.rows() {
        report.evaluations.push(evaluation(name, &row.evaluation, has_gallery, row.intervals.as_ref()));
    }
    report.intervals =
        intervals.and_then(|found| intervals_of(&[(source.name.clone(), intervals_are(found))]));
    report.facts = vec![
        ("queries".into(), of.queries.to_string()),
        (
            "compared with".into(),
            match &source.gallery {
                None => "the other images".into(),
                Some(_) => format!("a gallery of {} images", of.gallery),
            },
        ),
        ("compared by".into(), source.score_is().into()),
        ("dimensions".into(), source.queries.rows.embeddings.cols().to_string()),
    ];
    const SEED: u64 = 1;
    add_lists_and_map(&mut report, source, options, SEED, &|title| title)?;
    add_figures(&mut report, std::slice::from_ref(source))?;
    Ok(report)
}

/// The map and the ranked lists of a source; `said` is its name in titles.
fn add_lists_and_map(
    report: &mut Report,
    source: &Source,
    options: &ReportConfig,
    seed: u64,
    said: &dyn Fn(String) -> String,
) -> Result<()> {
    for mut section in ranked_sections(options, seed, source)? {
        section.title = said(section.title);
        report.ranked_lists.push(section);
    }
    if options.map {
        report.maps.push(PageMap::new(source, seed, None)?.atlas());
    }
    Ok(())
}

/// Draws a figure of several sources.
type Draw<'a> = &'a dyn Fn(&[&Source]) -> Result<Figure>;

/// Histograms and curves of all sources.
fn add_figures(report: &mut Report, sources: &[Source]) -> Result<()> {
    const SEED: u64 = 1;
    let draws: [Draw<'_>; 4] = [
        &|of: &[&Source]| plots::distances(of, SEED),
        &|of: &[&Source]| plots::cmc(of, RANKS),
        &|of: &[&Source]| plots::pr(of),
        &|of: &[&Source]| plots::open_set(of, SEED),
    ];
    let all: Vec<&Source> = sources.iter().collect();
    if all.is_empty() {
        return Ok(());
    }
    draws.into_iter().try_for_each(|draw| add_figure(report, &all, draw))
}

/// A figure of the sources that can have it, and a notice for each of the others. It is left out if no source can have it.
fn add_figure(report: &mut Report, sources: &[&Source], draw: Draw<'_>) -> Result<()> {
    match (fault_of(draw(sources))?, sources) {
        (Ok(figure), _) => {
            report.figures.push(figure);
            return Ok(());
        }
        // There is no other source that can have it.
        (Err(_), [_]) => return Ok(()),
        (Err(_), _) => {}
    }
    let (mut able, mut notices) = (Vec::new(), Vec::new());
    for &source in sources {
        match fault_of(draw(&[source]))? {
            Ok(_) => able.push(source),
            Err(fault) => notices.push(format!("{}: {fault}.", source.name)),
        }
    }
    if !able.is_empty() {
        report.figures.push(draw(&able)?);
        report.notices.extend(notices);
    }
    Ok(())
}

/// Separates the fault that a source cannot have a figure, such as embeddings without labels or of one class, from other
/// errors.
fn fault_of(drawn: Result<Figure>) -> Result<std::result::Result<Figure, gallerist_retrieval::Error>> {
    match drawn {
        Ok(figure) => Ok(Ok(figure)),
        Err(Error::Retrieval(fault @ gallerist_retrieval::Error::Protocol { .. })) => Ok(Err(fault)),
        Err(error) => Err(error),
    }
}

/// The part of a report that comes from `metrics.json`, except for the description of its intervals. `run` is the name of the
/// run, if there are several.
fn add_metrics(
    report: &mut Report,
    config: &RunConfig,
    metrics: &RunMetrics,
    (run, has_gallery): (Option<&String>, bool),
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
    facts.push(("model fingerprint".into(), metrics.model.chars().take(16).collect()));
    if metrics.broken_images > 0 {
        let images = count(metrics.broken_images, "image");
        report.notices.push(said(format!("{images} could not be read and are left out.")));
    }
    if metrics.skipped_steps > 0 {
        let steps = count(metrics.skipped_steps, "step");
        report.notices.push(said(format!(
            "{steps} skipped, because loss, gradient or weights were not finite (nonfinite/ in the run directory)."
        )));
    }
    if let Some(overlap) = metrics.class_overlap.filter(|overlap| overlap.shared > 0) {
        report.notices.push(said(format!(
            "Test classes that were trained on: {overlap}. The metrics say how well known classes are found, not new \
             ones."
        )));
    }
    report.notices.extend(metrics.evaluation.notes.iter().cloned().map(said));
    let label = run.map_or(if has_gallery { "test queries" } else { "test classes" }, String::as_str);
    let intervals = metrics.further.intervals.as_ref();
    report.evaluations.push(evaluation(label, &metrics.evaluation, has_gallery, intervals));
    for (name, row) in metrics.further.rows() {
        let name = format!("{label}, {name}");
        report.evaluations.push(evaluation(&name, &row.evaluation, has_gallery, row.intervals.as_ref()));
    }
}

/// Times of a run, which the report of one run leaves out: the reports of two runs of one run file are equal.
fn facts_of_timing(timing: &Timing) -> Vec<(String, String)> {
    let mut facts = vec![("training time".to_owned(), format!("{:.0} s", timing.training_seconds))];
    facts.extend(timing.images_per_second.map(|pace| ("images per second".into(), format!("{pace:.0}"))));
    let waited = timing.waited_share.map(|share| format!("{:.1} %", 100.0 * share));
    facts.extend(waited.map(|waited| ("time waiting for images".into(), waited)));
    facts
}

/// The description of the intervals of each run, given with its name; `None` if no run has any.
fn intervals_of(runs: &[(String, String)]) -> Option<String> {
    (!runs.is_empty()).then(|| format!("Small: {}", joined(runs)))
}

/// Describes the confidence intervals in a sentence.
fn intervals_are(intervals: &Intervals) -> String {
    format!(
        "{:.0} % bootstrap intervals, {} resamples over {}.",
        100.0 * intervals.level,
        intervals.bootstrap.resamples,
        match intervals.bootstrap.over {
            Over::Queries => "queries",
            Over::Classes => "classes",
        }
    )
}

/// The facts of several runs: common facts once, others per run.
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
    let test = match (config.data.query.is_empty(), config.data.test_fraction) {
        _ if !config.data.has_test() => Vec::new(),
        (true, Some(fraction)) => {
            vec![("test images".into(), format!("{} % of the classes", (100.0 * fraction).round()))]
        }
        (true, None) => vec![("test images".into(), paths(&config.data.test))],
        (false, _) => vec![
            ("queries".into(), paths(&config.data.query)),
            ("gallery".into(), paths(&config.data.gallery)),
        ],
    };
    let mut facts = vec![("training images".into(), paths(&config.data.train))];
    facts.extend(test);
    facts.extend([
        ("network".into(), network_name(config)),
        ("loss".into(), config.loss.to_string()),
        ("steps".into(), config.train.steps.to_string()),
        ("learning rate".into(), config.optimizer.learning_rate.to_string()),
        ("seed".into(), config.train.seed.to_string()),
    ]);
    facts
}

/// An evaluation in the form of the report.
fn evaluation(
    name: &str,
    evaluation: &Evaluation,
    has_gallery: bool,
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
        gallery: has_gallery.then_some(evaluation.gallery as u64),
        junk: evaluation.junk as u64,
        queries_without_match: evaluation.queries_without_match as u64,
        ties: Some(evaluation.ties as u64),
    }
}

fn ranked_sections(options: &ReportConfig, seed: u64, source: &Source) -> Result<Vec<RankedSection>> {
    if options.results == 0 || source.check_labels("ranked lists").is_err() {
        return Ok(Vec::new());
    }
    let ranking = Ranking::new(source, options.results)?;
    let (of_queries, of_items) = (source.queries.pictures(), source.items().pictures());
    let (query, item) = (|row| of_queries.item(row), |row| of_items.item(row));
    let (described, precision) = (ranking.described(), ranking.precision_is());
    let drawn = ranking.drawn(seed, options.queries);
    let worst = ranking.worst(options.failures);
    let mut sections = Vec::new();
    if !drawn.is_empty() {
        let note = format!("What a typical search looks like. {described} {precision}");
        sections.push(ranking.section("Queries drawn at random", &note, &drawn, (&query, &item))?);
    }
    if !worst.is_empty() {
        let note = format!("The queries with the lowest average precision. {described} {precision}");
        sections.push(ranking.section("Failures", &note, &worst, (&query, &item))?);
    }
    Ok(sections)
}

/// The notice of results whose pictures are missing; `None` if there are none.
fn missing_pictures(
    places: &ImagePlaces<'_>,
    pictures: &Pictures<'_>,
    are_open: bool,
    lists: &RankedLists,
) -> Option<String> {
    if !are_open {
        return Some(format!("The gallery's pictures cannot be found at {places}."));
    }
    let rows = lists.iter().flat_map(|(rows, _)| rows);
    let all: BTreeSet<usize> = rows.map(|&row| row as usize).collect();
    let without = all.iter().filter(|&&row| !pictures.has(row)).count();
    (without > 0).then(|| format!("The images of {without} of {} results are not at {places}.", all.len()))
}

/// The page of a search: `lists` contains rows of `gallery`, which are compared by `metric`. `query_images` has one image for
/// each of the first rows of `queries`, in their order; further queries, such as texts, have no picture.
///
/// Pictures of the gallery are shown if its images are available at `gallery_images`. Without it, at the places of the
/// gallery's [sources](EmbeddingSet::sources), or at their common [`EmbeddingSet::source`].
pub fn search_page(
    query_images: Option<&ImageSet>,
    queries: &EmbeddingSet,
    gallery_images: Option<&Path>,
    gallery: &EmbeddingSet,
    metric: search::Metric,
    lists: &RankedLists,
) -> SearchPage {
    let given = gallery_images.map(|images| images.display().to_string());
    let places = match &given {
        Some(place) => ImagePlaces::given(place, gallery),
        None => ImagePlaces::of_set(gallery),
    };
    let images = places.open();
    let of_queries = Pictures::of_items(queries.labels.as_deref(), queries.paths.as_deref(), query_images);
    let of_gallery = Pictures::of_set(gallery, images.as_ref());
    let notices = missing_pictures(&places, &of_gallery, images.is_some(), lists).into_iter().collect();
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
