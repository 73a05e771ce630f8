//! The metrics of the ranked lists of an index or of a collection.

use std::collections::HashSet;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{self, EvaluationReport, Further, Listed, Plan};
use gallerist_retrieval::index::{Index, ItemFilter, Items, open_index, stable_id};
use gallerist_retrieval::search::Metric;

use super::super::database::{self, is_remote};
use super::super::embed::labels_of;

use super::compatible::{same_metric, same_model};
use super::options::{EmbeddingsFile, EvaluateOptions, Evaluated};
use crate::text::count;
use crate::{Error, Observer, Result};

/// Measures the lists of an index for queries; `are_items`: the queries are its items, and each is left out of its own
/// list.
pub(super) fn measure(
    (file, are_items): (&EmbeddingsFile, bool),
    gallery: &EmbeddingsFile,
    plan: Plan,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<Evaluated> {
    refuse_what_needs_embeddings((file, are_items), gallery, &plan, options)?;
    let option = if are_items { "--labels" } else { "--query-labels" };
    let set = EmbeddingSet::load(&file.path)?;
    let name = file.path.display().to_string();
    let labels = labels_of(file.labels.as_deref(), set.labels.clone(), "evaluation", &name, option)?;
    if labels.iter().any(|label| label.contains('|')) {
        return Err(Error::new(
            format!("`{name}` has label sets (a|b), which lists are not measured by"),
            Some("evaluate the file of the gallery"),
        ));
    }
    if let Some(protocol) = &set.protocol {
        observer.warning(&format!(
            "`{name}` names the protocol `{protocol}`, by which an index is not measured: cameras do not count, and \
             junk counts as wrong; for the protocol's figures give --gallery FILE"
        ));
    } else if !are_items && set.cameras.is_some() {
        observer.note(&format!(
            "cameras of `{name}` do not count in the lists of an index; for queries across cameras give --gallery FILE"
        ));
    }
    let index: Box<dyn Index> = match is_remote(&gallery.path) {
        true => database::open(&gallery.path, None, observer.warner())?.index,
        false => open_index(&gallery.path, true)?,
    };
    let (items, of_rows) = (index.labels(&ItemFilter::default())?, index.origin()?.metric);
    let info = index.info()?;
    let (queries, images) = (&*file.path, &*gallery.path);
    same_model((queries, set.model.as_deref()), (images, info.model.as_deref()), options.force, observer)?;
    if info.metric != Metric::Cosine {
        same_metric((queries, set.metric), (images, of_rows), options.force, observer)?;
    }
    let mut measures = plan.options;
    if options.metric.is_none() {
        measures.metric = info.metric;
    }
    eval::check_rows(set.embeddings.view(), info.metric, "queries")?;
    let own = are_items.then(|| own_ids(&set, &items, &name)).transpose()?;
    let listed =
        Listed { queries: set.embeddings.view(), labels: &labels, own: own.as_deref(), gallery: &items };
    let evaluation = eval::evaluate_index(index.as_ref(), &listed, &measures)?.evaluation;
    let report = EvaluationReport { evaluation, further: Further::default() };
    Ok(Evaluated { report, one_shot: None, broken_images: Vec::new(), narrowed: Vec::new() })
}

/// The ids under which the rows of `set` were added: by their sources and paths, by their paths alone if the index
/// was built before sources were stored, or by their numbers.
fn own_ids(set: &EmbeddingSet, gallery: &[(u64, Option<String>)], name: &str) -> Result<Vec<u64>> {
    let in_gallery: HashSet<u64> = gallery.iter().map(|&(id, _)| id).collect();
    let by_source = Items::ids_by_path(set)?;
    let by_path = set.paths.as_ref().map(|paths| paths.iter().map(|path| stable_id(path)).collect());
    let by_row = (0..set.embeddings.rows() as u64).collect();
    let mut missing = 0;
    for ids in by_source.into_iter().chain(by_path).chain([by_row]) {
        let ids: Vec<u64> = ids;
        missing = ids.iter().filter(|id| !in_gallery.contains(id)).count();
        if missing == 0 {
            return Ok(ids);
        }
    }
    Err(Error::new(
        format!("{} of `{name}` are not in the gallery", count(missing, "row")),
        Some("add the file first, or give it as --query FILE if its images are others"),
    ))
}

/// Refuses what cannot be measured from ranked lists.
fn refuse_what_needs_embeddings(
    (file, are_items): (&EmbeddingsFile, bool),
    gallery: &EmbeddingsFile,
    plan: &Plan,
    options: &EvaluateOptions,
) -> Result<()> {
    let asked = [
        ("--protocol", plan.protocol.is_some()),
        ("--across-cameras", options.across_cameras),
        ("--where", options.query_condition.is_some() || options.gallery_condition.is_some()),
        ("--gallery-labels", gallery.labels.is_some()),
        ("--gallery-cameras", gallery.cameras.is_some()),
        (if are_items { "--cameras" } else { "--query-cameras" }, file.cameras.is_some()),
        ("--rerank", plan.rerank.is_some()),
        ("--query-expansion", plan.expansion.is_some()),
        ("--multi-query", plan.multi_query.is_some()),
        ("--cluster", plan.cluster.is_some()),
        ("--verification", plan.verification.is_some()),
        ("--open-set", plan.open_set.is_some()),
        ("--few-shot", plan.few_shot.is_some()),
        ("--bootstrap", plan.bootstrap.is_some()),
        ("--html", options.page.is_some()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((option, _)) => Err(Error::new(
            format!("{option} is not for an index: it is measured by its lists and its own labels"),
            Some("evaluate the embeddings it was made of: --gallery FILE"),
        )),
    }
}
