//! `gallerist evaluate --gallery INDEX` (or `milvus://…`): the metrics of the lists that an index or a
//! collection returns.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;

use crate::retrieval::EmbeddingSet;
use crate::retrieval::eval::{self, Further, Listed, Plan, Report};
use crate::retrieval::index::{Index, ItemFilter, Items, open_index, stable_id};
use crate::retrieval::search::Metric;

use super::super::remote::{self, is_remote};
use super::super::{Failure, Outcome, labels_of};
use super::{Printed, input, table, warn_of_notes};
use crate::cli::args::Evaluate;
use crate::cli::printer;

pub(super) fn run(args: &Evaluate, gallery: &Path, plan: Plan) -> Outcome {
    refuse_what_needs_embeddings(args, &plan)?;
    let (file, labels, option) = match (&args.embeddings, &args.query) {
        (Some(file), _) => (file, &args.labels, "--labels"),
        (None, Some(file)) => (file, &args.query_labels, "--query-labels"),
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let set = EmbeddingSet::load(file)?;
    let name = file.display().to_string();
    let labels = labels_of(labels.as_deref(), set.labels.clone(), "evaluation", &name, option)?;
    if labels.iter().any(|label| label.contains('|')) {
        return Err(Failure::new(
            format!("`{name}` has label sets (a|b), which lists are not measured by"),
            Some("evaluate the file of the gallery"),
        ));
    }
    if let Some(protocol) = &set.protocol {
        printer::warning(&format!(
            "`{name}` names the protocol `{protocol}`, by which an index is not measured: cameras do not count, and \
             junk counts as wrong; for the protocol's figures give --gallery FILE"
        ));
    } else if args.embeddings.is_none() && set.cameras.is_some() {
        printer::note(&format!(
            "cameras of `{name}` do not count in the lists of an index; for queries across cameras give --gallery FILE"
        ));
    }
    let Opened { index, items, metric: of_rows } = open(gallery)?;
    let info = index.info()?;
    input::same_model((file, set.model.clone()), (gallery, info.model), args.force)?;
    if info.metric != Metric::Cosine {
        input::same_metric((file, set.metric), (gallery, of_rows), args.force)?;
    }

    let mut options = plan.options;
    if args.metric.is_none() {
        options.metric = info.metric;
    }
    eval::check_rows(set.embeddings.view(), info.metric, "queries")?;
    // Queries that are items of the index are excluded from their own lists.
    let own = args.embeddings.is_some().then(|| own_ids(&set, &items, &name)).transpose()?;
    let listed =
        Listed { queries: set.embeddings.view(), labels: &labels, own: own.as_deref(), gallery: &items };
    let evaluation = eval::evaluate_index(index.as_ref(), &listed, &options)?.evaluation;
    let report = Report { evaluation, further: Further::default() };
    if args.json {
        printer::json(&Printed { report: &report, one_shot: None })?;
    } else {
        printer::out(&table(&report.evaluation, &report.further))?;
    }
    warn_of_notes(&report.evaluation);
    Ok(ExitCode::SUCCESS)
}

/// The index or collection.
struct Opened {
    index: Box<dyn Index>,
    /// Id and label of each of its items.
    items: Vec<(u64, Option<String>)>,
    /// The metric that its rows declare.
    metric: Option<Metric>,
}

fn open(gallery: &Path) -> Result<Opened, Failure> {
    let index =
        if is_remote(gallery) { remote::open(gallery, None)?.index } else { open_index(gallery, true)? };
    let (items, metric) = (index.labels(&ItemFilter::default())?, index.origin()?.metric);
    Ok(Opened { index, items, metric })
}

/// The ids of the rows of `set`: from sources and paths, from paths only if the index has no
/// sources, or row numbers.
fn own_ids(set: &EmbeddingSet, gallery: &[(u64, Option<String>)], name: &str) -> Result<Vec<u64>, Failure> {
    let there: HashSet<u64> = gallery.iter().map(|&(id, _)| id).collect();
    let by_source = Items::ids_by_path(set)?;
    let by_path = set.paths.as_ref().map(|paths| paths.iter().map(|path| stable_id(path)).collect());
    let by_row = (0..set.embeddings.rows() as u64).collect();
    let mut missing = 0;
    for ids in by_source.into_iter().chain(by_path).chain([by_row]) {
        let ids: Vec<u64> = ids;
        missing = ids.iter().filter(|id| !there.contains(id)).count();
        if missing == 0 {
            return Ok(ids);
        }
    }
    Err(Failure::new(
        format!("{} of `{name}` are not in the gallery", printer::count(missing, "row")),
        Some("add the file first, or give it as --query FILE if its images are others"),
    ))
}

/// Returns an error for measurements that ranked lists do not suffice for.
fn refuse_what_needs_embeddings(args: &Evaluate, plan: &Plan) -> Result<(), Failure> {
    let asked = [
        ("--protocol", plan.protocol.is_some()),
        ("--across-cameras", args.across_cameras),
        ("--gallery-labels", args.gallery_labels.is_some()),
        ("--gallery-cameras", args.gallery_cameras.is_some()),
        ("--query-cameras", args.query_cameras.is_some()),
        ("--cameras", args.cameras.is_some()),
        ("--rerank", plan.rerank.is_some()),
        ("--query-expansion", plan.expansion.is_some()),
        ("--multi-query", plan.multi_query.is_some()),
        ("--cluster", plan.cluster.is_some()),
        ("--verification", plan.verification.is_some()),
        ("--few-shot", plan.few_shot.is_some()),
        ("--bootstrap", plan.bootstrap.is_some()),
        ("--html", args.html.is_some()),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::new(
            format!("{option} is not for an index: it is measured by its lists and its own labels"),
            Some("evaluate the embeddings it was made of: --gallery FILE"),
        )),
    }
}
