//! The metrics of the ranked lists of an index or of a collection.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{self, EvaluationReport, Further, Listed, Plan};
use gallerist_retrieval::file::TableColumns;
use gallerist_retrieval::index::{Index, Item, ItemFilter, Items, open_index, stable_id};
use gallerist_retrieval::labels::are_sets;
use gallerist_retrieval::search::Metric;

use super::super::database::{self, is_remote};
use super::super::embed::labels_of;

use super::files::{check_classes, check_rows};
use super::options::{EmbeddingsFile, EvaluateOptions, Evaluated};
use crate::compatible::{same_metric, same_model};
use crate::repeats;
use crate::text::count;
use crate::unread::warn_of_unread;
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
    warn_of_unread(&file.path, &TableColumns::default(), |warning| observer.warning(warning))?;
    let name = file.path.display().to_string();
    let labels = labels_of(file.labels.as_deref(), set.labels.clone(), "evaluation", &name, option)?;
    refuse_label_sets(&labels, &file.path)?;
    check_classes(Some(&labels), &file.path, CONVERT)?;
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
    if !items.is_empty() && items.iter().all(|(_, label)| label.is_none()) {
        return Err(Error::new(
            format!("evaluation needs labels, and the items of `{}` have none", gallery.path.display()),
            Some("build the index again with --labels FILE, or from embeddings with labels"),
        ));
    }
    let of_items: Vec<String> = items.iter().filter_map(|(_, label)| label.clone()).collect();
    refuse_label_sets(&of_items, &gallery.path)?;
    check_classes(Some(&of_items), &gallery.path, REMOVE)?;
    let info = index.info()?;
    let (queries, images) = (&*file.path, &*gallery.path);
    let models = ((queries, set.model.as_deref()), (images, info.model.as_deref()));
    same_model(models.0, models.1, info.metric, options.force, observer)?;
    if info.metric != Metric::Cosine {
        same_metric((queries, set.metric), (images, of_rows), options.force, observer)?;
    }
    let mut measures = plan.options;
    if options.metric.is_none() {
        measures.metric = info.metric;
    }
    check_rows(&set, info.metric, (if are_items { "embeddings" } else { "queries" }, &file.path))?;
    let own = are_items.then(|| own_ids(&set, &items, &name)).transpose()?;
    match &own {
        Some(own) => {
            check_own_labels((&labels, own), &items, file, &gallery.path)?;
            check_own_rows((&set, own), index.as_ref(), info.metric, file, &gallery.path)?;
        }
        None => warn_of_shared(&set, &items, observer)?,
    }
    let listed =
        Listed { queries: set.embeddings.view(), labels: &labels, own: own.as_deref(), gallery: &items };
    let evaluation = eval::evaluate_index(index.as_ref(), &listed, &measures)?.evaluation;
    let report = EvaluationReport { evaluation, further: Further::default() };
    Ok(Evaluated { report, one_shot: None, broken_images: Vec::new(), narrowed: Vec::new() })
}

/// What to do with rows and items of an empty label: no condition narrows the lists of an index.
const CONVERT: &str = "leave them out: gallerist convert --where 'label is not missing'";
const REMOVE: &str = "leave them out: gallerist index remove INDEX --where 'label is missing'";

/// The ids under which the rows of `set` were added: by their sources and paths, by their paths alone if the index
/// was built before sources were stored, or by their numbers.
fn own_ids(set: &EmbeddingSet, gallery: &[(u64, Option<String>)], name: &str) -> Result<Vec<u64>> {
    let in_gallery: HashSet<u64> = gallery.iter().map(|&(id, _)| id).collect();
    let by_source = Items::ids_by_path(set)?;
    let by_path = set.paths.as_ref().map(|paths| paths.iter().map(|path| stable_id(path)).collect());
    let by_row = (0..set.embeddings.rows() as u64).collect();
    let mut fewest = usize::MAX;
    for ids in by_source.into_iter().chain(by_path).chain([by_row]) {
        let ids: Vec<u64> = ids;
        let missing = ids.iter().filter(|id| !in_gallery.contains(id)).count();
        if missing == 0 {
            return Ok(ids);
        }
        fewest = fewest.min(missing);
    }
    let rows = set.embeddings.rows();
    Err(Error::new(
        format!("{fewest} of {} of `{name}` are not in the gallery", count(rows, "row")),
        Some(match fewest == rows {
            true => "add the file first, or give it as --query FILE if its images are others",
            false => {
                "add the file again (`gallerist index add`), or leave these rows out of it (`gallerist convert --where`)"
            }
        }),
    ))
}

/// Refuses label sets: an item is relevant to a query if their labels are equal.
fn refuse_label_sets(labels: &[String], file: &Path) -> Result<()> {
    if !are_sets(labels) {
        return Ok(());
    }
    Err(Error::new(
        format!("`{}` has label sets (a|b), which lists are not measured by", file.display()),
        Some("evaluate the file of the gallery"),
    ))
}

/// Warns of queries that are items of the index: they are in their own lists.
fn warn_of_shared(
    queries: &EmbeddingSet,
    items: &[(u64, Option<String>)],
    observer: &mut dyn Observer,
) -> Result<()> {
    let rows = queries.embeddings.rows();
    let shared = repeats::shared_with_items(queries, items.iter().map(|&(id, _)| id))?;
    if shared == 0 {
        return Ok(());
    }
    let mut warning = repeats::warning_of_shared(shared, rows);
    if shared == rows {
        warning += "\n  with --embeddings FILE --gallery INDEX, each is left out of its own list";
    }
    observer.warning(&warning);
    Ok(())
}

/// Refuses labels that are not those of the items: the metrics compare the labels of the one with those of the other.
fn check_own_labels(
    (labels, own): (&[String], &[u64]),
    items: &[(u64, Option<String>)],
    file: &EmbeddingsFile,
    index: &Path,
) -> Result<()> {
    let of_item: HashMap<u64, Option<&str>> =
        items.iter().map(|(id, label)| (*id, label.as_deref())).collect();
    let label_of = |row: &usize| of_item.get(&own[*row]).copied().flatten();
    let mut others = (0..labels.len()).filter(|row| label_of(row) != Some(&*labels[*row]));
    let Some(first) = others.next() else { return Ok(()) };
    let list = file.labels.as_deref().unwrap_or(&file.path);
    let of_index = label_of(&first).map_or("no label".to_owned(), |label| format!("the label `{label}`"));
    Err(Error::new(
        format!(
            "{} of `{}` differ from those of `{}`\n  row {first} has the label `{}`, its item has {of_index}",
            count(1 + others.count(), "label"),
            list.display(),
            index.display(),
            labels[first]
        ),
        Some("build the index again with these labels"),
    ))
}

/// The largest difference of a row from its item, as a fraction of its length. Rows in int8 differ by up to 0.03.
const ROUNDING: f64 = 0.05;

/// Items that are read from an index at a time.
const ITEMS_AT_A_TIME: usize = 4096;

/// Refuses rows that are not those of the items, apart from their rounding.
fn check_own_rows(
    (set, own): (&EmbeddingSet, &[u64]),
    index: &dyn Index,
    metric: Metric,
    file: &EmbeddingsFile,
    gallery: &Path,
) -> Result<()> {
    let (mut others, mut first) = (0, None);
    for (part, ids) in own.chunks(ITEMS_AT_A_TIME).enumerate() {
        for (at, item) in index.get(ids)?.into_iter().enumerate() {
            let row = part * ITEMS_AT_A_TIME + at;
            let is_same = |item: &Item| is_same_row(set.embeddings.row(row), &item.embedding, metric);
            if !item.as_ref().is_some_and(is_same) {
                others += 1;
                first.get_or_insert(row);
            }
        }
    }
    let Some(first) = first else { return Ok(()) };
    Err(Error::new(
        format!(
            "{} of `{}` differ from the items of `{}`, the first is row {first}",
            count(others, "row"),
            file.path.display(),
            gallery.display()
        ),
        Some("give the file that the index was built from, or build the index again"),
    ))
}

/// Whether a row is that of an item, apart from its rounding; by the cosine also apart from its length.
fn is_same_row(row: &[f32], item: &[f32], metric: Metric) -> bool {
    let dot =
        |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let (a, b, ab) = (dot(row, row), dot(item, item), dot(row, item));
    match metric {
        // |a/|a| - b/|b||^2 = 2 - 2 cos.
        Metric::Cosine if a > 0.0 && b > 0.0 => 2.0 - 2.0 * ab / (a * b).sqrt() <= ROUNDING * ROUNDING,
        _ => a + b - 2.0 * ab <= ROUNDING * ROUNDING * a.max(b),
    }
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
