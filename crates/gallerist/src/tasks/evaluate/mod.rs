//! Measuring a run, files of embeddings, or an index.

mod files;
mod index;
mod options;
mod run;

use std::path::Path;

use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::eval::EvaluationReport;
use gallerist_retrieval::index::is_index;
use gallerist_retrieval::prepare_to_write;
use gallerist_retrieval::search::Metric;
use gallerist_train::ReportConfig;

use super::database::is_remote;
use crate::compatible::check_one_set;
use crate::measured::{Measured, declared_metric};
use crate::narrow::{Narrowed, WITH_LABELS};
use crate::observer::working;
use crate::plots::{self, Source};
use crate::{Error, Observer, Result, pages};
pub(super) use files::{check_classes, check_rows, labelled};
pub use options::{EmbeddingsFile, EvaluateInput, EvaluateOptions, EvaluateRun, Evaluated, ImagePart};

/// Measures retrieval: the test images of a run, files of embeddings, or the ranked lists of an index.
///
/// # Example
///
/// ```no_run
/// use gallerist::{EvaluateInput, EvaluateOptions};
///
/// let input = EvaluateInput::Pair { queries: "query.safetensors".into(), gallery: "gallery.safetensors".into() };
/// let options = EvaluateOptions { protocol: Some("market1501".into()), ..EvaluateOptions::default() };
/// let measured = gallerist::evaluate(&input, &options, &mut ())?;
/// println!("CMC@1 {:.3}", measured.report.evaluation.metrics["cmc@1"]);
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// For unknown metrics and protocols, for files that cannot be read or do not fit each other, and for measurements that
/// the images or labels do not allow.
pub fn evaluate(
    input: &EvaluateInput,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<Evaluated> {
    if let Some(page) = &options.page {
        prepare_to_write(page)?;
    }
    if options.recall_at.contains(&0) {
        return Err(Error::new("--recall-at must be numbers of 1 or more, not 0", None));
    }
    // Unknown names are reported before anything is read.
    let plan = options.plan(options.evaluation(None).plan()?)?;
    let is_index = |gallery: &Path| is_remote(gallery) || is_index(gallery);
    match input {
        EvaluateInput::Run(of) => {
            let (model, mut measured, broken) = run::measure(of, options, observer)?;
            let narrowed = narrow(&mut measured, options, observer)?;
            let (report, metric) = finish(input, measured, "the run", options, observer)?;
            let one_shot = of.one_shot.as_ref().map(|path| run::one_shot(path, &model, metric, observer));
            Ok(Evaluated { report, one_shot: one_shot.transpose()?, broken_images: broken, narrowed })
        }
        EvaluateInput::Pair { queries, gallery } if is_index(&gallery.path) => {
            index::measure((queries, false), gallery, plan, options, observer)
        }
        EvaluateInput::Items { embeddings, index } if is_index(&index.path) => {
            index::measure((embeddings, true), index, plan, options, observer)
        }
        EvaluateInput::Items { .. } => Err(Error::new(
            "--embeddings are compared with each other and have no --gallery",
            Some("give the queries as --query FILE"),
        )),
        EvaluateInput::Embeddings(file) => {
            let mut measured = files::one(file, options, observer)?;
            let narrowed = narrow(&mut measured, options, observer)?;
            let (report, _) = finish(input, measured, "their file", options, observer)?;
            Ok(Evaluated { report, one_shot: None, broken_images: Vec::new(), narrowed })
        }
        EvaluateInput::Pair { queries, gallery } => {
            let mut measured = files::pair(queries, gallery, options, observer)?;
            let narrowed = narrow(&mut measured, options, observer)?;
            let (report, _) = finish(input, measured, "their file", options, observer)?;
            Ok(Evaluated { report, one_shot: None, broken_images: Vec::new(), narrowed })
        }
    }
}

/// Leaves out what does not meet the conditions, and says how many images take part.
fn narrow(
    measured: &mut Measured,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<Vec<Narrowed>> {
    measured.narrow(&options.conditions())?;
    measured.narrowed.iter().for_each(|part| observer.note(&part.to_string()));
    Ok(measured.narrowed.clone())
}

/// Measures embeddings by the plan of the options, and writes the page. Also returns how rows were compared; `who` may
/// have declared it.
fn finish(
    input: &EvaluateInput,
    mut measured: Measured,
    who: &str,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<(EvaluationReport, Metric)> {
    let declared = declared_metric(&measured.queries, measured.gallery.as_ref());
    measured.plan = options.plan(measured.plan)?;
    let metric = measured.plan.options.metric;
    if let Some(declared) = declared.filter(|&declared| metric != declared) {
        observer.note(&format!("rows are compared by {metric}; {who} declares {declared}"));
    }
    match (input, &measured.gallery) {
        (EvaluateInput::Embeddings(file), _) => {
            check_one_set((&file.path, &measured.queries), options.protocol.as_deref(), observer)?;
            check_classes(measured.queries.labels.as_deref(), &file.path, WITH_LABELS)?;
            check_rows(&measured.queries, metric, ("embeddings", &file.path))?;
        }
        (EvaluateInput::Pair { queries, gallery }, Some(images)) => {
            check_classes(measured.queries.labels.as_deref(), &queries.path, WITH_LABELS)?;
            check_classes(images.labels.as_deref(), &gallery.path, WITH_LABELS)?;
            check_rows(&measured.queries, metric, ("queries", &queries.path))?;
            check_rows(images, metric, ("gallery", &gallery.path))?;
        }
        _ => {}
    }
    let report = working(observer, "measuring", || match &options.page {
        None => Ok::<_, Error>(measured.report()?),
        Some(page) => write_page(measured, name_of(input, options), page),
    })?;
    if let Some(page) = &options.page {
        observer.note(&format!("report: {}", page.display()));
    }
    Ok((report, metric))
}

/// The files and directories of the input, as the page names them.
fn name_of(input: &EvaluateInput, options: &EvaluateOptions) -> String {
    let files = match input {
        EvaluateInput::Run(EvaluateRun { run, images: Some((queries, gallery)), .. }) => {
            vec![run, &queries.path, &gallery.path]
        }
        EvaluateInput::Run(EvaluateRun { run, images: None, .. }) => vec![run],
        EvaluateInput::Embeddings(file) => vec![&file.path],
        EvaluateInput::Pair { queries, gallery } => vec![&queries.path, &gallery.path],
        EvaluateInput::Items { embeddings, index } => vec![&embeddings.path, &index.path],
    };
    let name = plots::names_of(&files).join(" against ");
    match (&options.query_condition, &options.gallery_condition) {
        (None, None) => name,
        (Some(a), Some(b)) if a == b => format!("{name} where {a}"),
        (a, b) => {
            let of = |set: &str, condition: &Option<Condition>| {
                condition.as_ref().map(|condition| format!(", {set} where {condition}")).unwrap_or_default()
            };
            format!("{name}{}{}", of("queries", a), of("gallery", b))
        }
    }
}

/// Evaluates, and writes the report as an HTML page.
fn write_page(measured: Measured, name: String, page: &Path) -> Result<EvaluationReport> {
    let source = Source::new(name, measured, None)?;
    let report = source.report()?;
    pages::evaluation_report(&source, &report, &ReportConfig::default())?.write(page)?;
    Ok(report)
}
