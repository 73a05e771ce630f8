//! Metrics of the lists that any index returns.
//!
//! Elsewhere, ranks are counted over all scores. A remote or approximate index returns only
//! lists: their length is what the metrics need, and a relevant item that is not in
//! its list ranks after all that are.

use std::collections::HashMap;

use super::options::EvalOptions;
use super::ranks::{PerQuery, Query};
use super::relevant_ranks::RelevantRanks;
use super::task::Measured;
use super::task::measured;
use super::ties::Extremes;
use crate::index::{Index, ItemFilter};
use crate::search::Metric;
use crate::{Error, MatrixView, Result};

/// Queries of an index, and its content.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// One embedding per query.
    pub queries: MatrixView<'a>,
    /// The class of each query.
    pub labels: &'a [String],
    /// The id of each query's own item, which is left out of its list; `None` for queries that are
    /// not in the gallery.
    pub own: Option<&'a [u64]>,
    /// Id and class of every item of the index. Items without a class are relevant to nothing.
    pub gallery: &'a [(u64, Option<String>)],
}

/// Queries of one search.
const QUERIES: usize = 1024;

/// Measures the lists of `index`: items with the query's class are relevant to it.
///
/// Recall@K, precision@K, CMC@K and NDCG@K need lists of K items, MAP@R and R-precision as many as
/// the largest class has, the others all. Ties are those within a list; items exactly as close as its last
/// one that come after its end are not known.
///
/// ```
/// use gallerist_retrieval::eval::{EvalOptions, Listed, evaluate_index};
/// use gallerist_retrieval::index::{ExactIndex, Index, Items};
/// use gallerist_retrieval::{Matrix, search::Metric};
///
/// let rows = Matrix::new(3, 2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0])?;
/// let mut index = ExactIndex::new(2, Metric::Cosine)?;
/// index.upsert(&Items::numbered(rows.clone().into(), 0)?)?;
/// let labels = ["heron", "heron", "wren"].map(String::from);
/// let gallery: Vec<_> = (0..).zip(labels.iter().cloned().map(Some)).collect();
/// let listed =
///     Listed { queries: rows.view(), labels: &labels, own: Some(&[0, 1, 2]), gallery: &gallery };
/// let evaluation = evaluate_index(&index, &listed, &EvalOptions::recall_at(&[1]))?.evaluation;
/// assert_eq!(evaluation.metrics["map@r"], 1.0);
/// assert_eq!(evaluation.queries_without_match, 1);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Count`] when there is not one label (and id) per query, [`Error::Option`] when the
/// index compares rows otherwise than `options` says, and what [`Index::search`] refuses.
pub fn evaluate_index(index: &dyn Index, listed: &Listed, options: &EvalOptions) -> Result<Measured> {
    let queries = listed.queries.rows();
    for (what, found) in [("labels", Some(listed.labels.len())), ("ids", listed.own.map(<[u64]>::len))] {
        if let Some(found) = found.filter(|&found| found != queries) {
            return Err(Error::Count { what, rows: "queries", wanted: queries, found });
        }
    }
    for measure in &options.measures {
        measure.check()?;
    }
    let info = index.info()?;
    if info.metric != options.metric {
        let found = match options.metric {
            Metric::InnerProduct => "the inner product",
            Metric::Cosine => "the cosine",
            Metric::Euclidean => "the Euclidean distance",
        };
        return Err(Error::Option {
            option: "the metric",
            wanted: "that of the index",
            found: found.to_owned(),
        });
    }
    let gallery = Gallery::new(listed.gallery);
    let largest = listed.labels.iter().map(|label| gallery.size(label)).max().unwrap_or(0);
    let all = listed.gallery.len();
    let depth = options.measures.iter().map(|measure| measure.depth(largest).unwrap_or(all));
    let depth = depth.max().unwrap_or(1).clamp(1, listed.gallery.len().max(1));

    let mut per_query =
        PerQuery { queries: vec![], values: vec![], extremes: vec![], gallery: listed.gallery.len() };
    for start in (0..queries).step_by(QUERIES) {
        let rows = start..queries.min(start + QUERIES);
        let cols = listed.queries.cols();
        let values = &listed.queries.as_slice()[rows.start * cols..rows.end * cols];
        // One more where the query's own item may be among them.
        let k = depth + usize::from(listed.own.is_some());
        let part = MatrixView::new(rows.len(), cols, values)?;
        let lists = index.search(part, k, &ItemFilter::default())?;
        for (row, (ids, scores)) in rows.zip(lists.iter()) {
            let own = listed.own.map(|own| own[row]);
            let Places { ranks, best, worst, tied } = gallery.places(&listed.labels[row], own, ids, scores);
            per_query.queries.push(Query { has_match: !ranks.is_empty(), tied });
            let at = per_query.values.len();
            per_query.values.resize(at + options.measures.len(), 0.0);
            let fill = |ranks: &RelevantRanks, out: &mut [f64]| options.fill(ranks, out);
            fill(&RelevantRanks::new(&ranks), &mut per_query.values[at..]);
            if tied {
                let extreme = (RelevantRanks::new(&best), RelevantRanks::new(&worst));
                per_query.extremes.extend(Extremes::of(row, &per_query.values[at..], extreme, fill));
            }
        }
    }
    let kind = if info.kind.is_exact { "exact" } else { "approximate" };
    let who =
        if listed.own.is_some() { "every item against the others" } else { "queries against a gallery" };
    let protocol = format!("{who}, by the {kind} lists of an index ({})", info.place);
    let zero = |row: &usize| listed.queries.row(*row).iter().all(|&value| value == 0.0);
    let mut measured = measured(protocol, per_query, options, (0..queries).filter(zero).count())?;
    let unmatched = super::unmatched::note(&measured.queries, listed.labels);
    measured.evaluation.notes.extend(unmatched);
    Ok(measured)
}

/// The classes of a gallery.
struct Gallery<'a> {
    labels: HashMap<u64, &'a str>,
    sizes: HashMap<&'a str, usize>,
}

impl<'a> Gallery<'a> {
    fn new(items: &'a [(u64, Option<String>)]) -> Self {
        let labels: HashMap<u64, &str> =
            items.iter().filter_map(|(id, label)| Some((*id, label.as_deref()?))).collect();
        let mut sizes = HashMap::new();
        for &label in labels.values() {
            *sizes.entry(label).or_insert(0) += 1;
        }
        Self { labels, sizes }
    }

    fn size(&self, label: &str) -> usize {
        self.sizes.get(label).copied().unwrap_or(0)
    }

    /// The ranks of the items with `label` in a list; those that are missing come after its end.
    fn places(&self, label: &str, own: Option<u64>, ids: &[u64], scores: &[f32]) -> Places {
        let is_own = |id: &u64| Some(*id) == own;
        let in_class = own.is_some_and(|own| self.labels.get(&own) == Some(&label));
        let wanted = self.size(label) - usize::from(in_class);
        let list: Vec<(f32, bool)> = (ids.iter().zip(scores))
            .filter(|(id, _)| !is_own(id))
            .map(|(id, &score)| (score, self.labels.get(id) == Some(&label)))
            .collect();
        let mut places = Places::default();
        let mut before = 0;
        for run in list.chunk_by(|a, b| a.0 == b.0) {
            let (length, right) = (run.len() as u32, run.iter().filter(|(_, right)| *right).count() as u32);
            let ranks = (before + 1..).zip(run).filter(|(_, (_, right))| *right);
            places.ranks.extend(ranks.map(|(rank, _)| rank));
            places.best.extend(before + 1..=before + right);
            places.worst.extend(before + length - right + 1..=before + length);
            places.tied |= 0 < right && right < length;
            before += length;
        }
        let missing = wanted.saturating_sub(places.ranks.len());
        for ranks in [&mut places.ranks, &mut places.best, &mut places.worst] {
            ranks.extend((before + 1..).take(missing));
        }
        places
    }
}

/// The ranks of a query's relevant items.
#[derive(Default)]
struct Places {
    ranks: Vec<u32>,
    /// Those where of items exactly as close the relevant ones come first.
    best: Vec<u32>,
    /// Those where they come last.
    worst: Vec<u32>,
    /// An item of another class has exactly the score of one of them.
    tied: bool,
}
