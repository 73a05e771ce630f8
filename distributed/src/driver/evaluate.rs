//! Retrieval metrics over shards.

use std::path::{Path, PathBuf};

use datafusion::arrow::datatypes::{UInt32Type, UInt64Type};
use gallerist_retrieval::eval::{
    EvalOptions, EvaluationReport, Measure, OneSet, PlaceCount, Plan, QueryCounts, QueryValues,
    ShardedEvaluation, Totals,
};
use gallerist_retrieval::labels::empty_labels;
use gallerist_retrieval::search::{Metric, RankKey};

use super::columns::{numbers, text, texts};
use super::gallery::{Gallery, check_pair};
use super::hash::ResultHash;
use super::search::{keys_by_query, list_of};
use super::{Progress, QUERIES_PER_JOB};
use crate::engine::LARGEST_MESSAGE;
use crate::job::{Block, Job, Rules, Work, protocol};
use crate::{Engine, Error, Result};

/// As the name of a protocol, means that there is none, as in `gallerist evaluate`.
pub const NO_PROTOCOL: &str = "none";

/// Keys of relevant items that one job carries to every shard: 8 MiB.
const KEYS_PER_JOB: usize = 1 << 20;

/// Keys of one query. Plans carry them, and a plan is a message.
const MOST_KEYS: usize = LARGEST_MESSAGE / 16;

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct EvaluateOptions {
    /// A folder of shards, or one file.
    pub gallery: PathBuf,
    /// The queries, in the same form; by default every row of the gallery against the others.
    pub queries: Option<PathBuf>,
    /// A benchmark's protocol, or `none`; by default the one that queries and gallery both name.
    pub protocol: Option<String>,
    /// The names of the metrics; by default those of the protocol, else Recall@1, 2, 4, 8, precision@1, MAP@R and
    /// R-precision.
    pub metrics: Vec<String>,
    /// How rows are compared; by default as the files declare, else by the cosine.
    pub metric: Option<Metric>,
    /// Within one set, skips images with the query's label from the query's own camera.
    pub across_cameras: bool,
    /// Accepts rows of different networks.
    pub force: bool,
}

/// The result of [`evaluate`].
#[derive(Debug)]
pub struct Evaluated {
    /// The report of `gallerist evaluate`.
    pub report: EvaluationReport,
    /// The values of each query.
    pub values: QueryValues,
    /// The hash of the report as JSON, and of the values of each query, little-endian.
    pub sha256: String,
}

/// Measures every query against the gallery: the report of [`Plan::run`] on the whole sets, to the last bit.
///
/// For each block of queries two jobs: the keys of the relevant items in each shard, and the irrelevant items of each
/// shard between them, whose sums over the shards are computed by DataFusion.
///
/// # Errors
/// [`Error::Input`] and [`Error::Retrieval`] for files and rules that do not fit together, and [`Error::Job`].
pub async fn evaluate(
    engine: &Engine,
    options: &EvaluateOptions,
    progress: &mut dyn Progress,
) -> Result<Evaluated> {
    let gallery = Gallery::open(engine, &options.gallery, options.force).await?;
    let queries = match &options.queries {
        Some(path) => Some(Gallery::open(engine, path, options.force).await?),
        None => None,
    };
    if let Some(queries) = &queries {
        check_pair(queries, &gallery, options.metric, options.force)?;
    }
    let (plan, rules) = plan(options, queries.as_ref(), &gallery)?;
    if rules.one_set && options.protocol.is_none() {
        check_one_set(&options.gallery, &gallery, progress)?;
    }
    let has_junk = !rules.one_set && plan.protocol.is_some_and(|protocol| protocol.junk.is_some());
    let junk = if has_junk { gallery.junk } else { 0 };
    let queries = queries.as_ref().unwrap_or(&gallery);
    let mut evaluation = ShardedEvaluation::new(&plan, totals(queries, &gallery, junk, rules.one_set))?;
    let mut done = 0;
    for block in Block::of(&queries.files, QUERIES_PER_JOB) {
        let job = Job {
            gallery: gallery.files.clone(),
            work: Work::Relevant { queries: block.clone(), rules: rules.clone() },
            relevant: Vec::new(),
        };
        let keys = keys_by_query(&engine.run(job, "SELECT query, key FROM found").await?, &block)?;
        for (part, keys) in parts(&block, keys) {
            for counts in count(engine, &gallery, &part, &rules, keys).await? {
                evaluation.push(&counts);
            }
            done += part.rows.len();
            progress.done(done, queries.rows);
        }
    }
    let unmatched: Vec<u32> = evaluation.unmatched().map(|query| query as u32).collect();
    let labels = labels(engine, queries, unmatched).await?;
    let (report, values) = evaluation.finish(&labels)?;
    let json = serde_json::to_vec(&report).expect("a report is valid JSON");
    let mut hash = ResultHash::default();
    hash.add(&json);
    (0..values.len())
        .flat_map(|query| values.of(query))
        .for_each(|value| hash.add(&value.to_bits().to_le_bytes()));
    Ok(Evaluated { report, values, sha256: hash.digits() })
}

/// Refuses one set of which some rows are junk by the protocol that its files name, and warns as [`OneSet`] does.
fn check_one_set(path: &Path, gallery: &Gallery, progress: &mut dyn Progress) -> Result<()> {
    let one = OneSet::of(gallery.protocol.as_deref());
    if let Some(warning) = one.check(&path.display().to_string(), gallery.junk, OneSet::COMMAND_HINT)? {
        progress.warning(&warning);
    }
    Ok(())
}

/// The plan of `gallerist evaluate` for these files and options.
fn plan(options: &EvaluateOptions, queries: Option<&Gallery>, gallery: &Gallery) -> Result<(Plan, Rules)> {
    let named = queries.map(|queries| (queries, "the queries"));
    for (set, name) in named.into_iter().chain([(gallery, "the gallery")]) {
        if !set.labels {
            let problem = "an evaluation needs a label for each row, and the shards have none";
            return Err(Error::input(problem, Some("write the shards with labels (`gallerist embed`)")));
        }
        if let Some(problem) = empty_labels(set.without_label, name) {
            return Err(Error::input(
                problem,
                Some("write the shards without these rows, or give them labels"),
            ));
        }
        if set.side.label_sets {
            let problem = "an evaluation over shards needs one class per row, and some rows have several labels (`a|b`)";
            return Err(Error::input(problem, Some("join the shards and run `gallerist evaluate`")));
        }
    }
    let common = queries
        .and_then(|queries| queries.protocol.as_ref())
        .filter(|name| gallery.protocol.as_ref() == Some(name));
    let name = options.protocol.as_ref().or(common);
    let none = name.is_some_and(|name| name == NO_PROTOCOL);
    let mut plan = match name.filter(|_| !none) {
        Some(name) => Plan::of(protocol(name)?),
        None => Plan { options: EvalOptions::default(), ignore_cameras: none, ..Plan::default() },
    };
    plan.ignore_unusable_cameras((queries.unwrap_or(gallery).side, queries.map(|_| gallery.side)));
    if queries.is_none() && options.across_cameras {
        if !gallery.side.cameras {
            let problem =
                "an evaluation across cameras needs the camera of each row, and the shards have none";
            return Err(Error::input(problem, Some("leave out --across-cameras")));
        }
        plan.ignore_cameras = false;
    }
    if !options.metrics.is_empty() {
        let measures: std::result::Result<Vec<Measure>, _> =
            options.metrics.iter().map(|name| name.parse()).collect();
        plan.options.measures = measures?;
    }
    let declared = gallery.metric.or_else(|| queries.and_then(|queries| queries.metric));
    plan.options.metric = options.metric.or(declared).unwrap_or_default();
    plan.fits(queries.unwrap_or(gallery).side, queries.map(|_| gallery.side))?;
    let rules = Rules {
        protocol: plan.protocol.map(|protocol| protocol.name.to_owned()),
        ignore_cameras: plan.ignore_cameras,
        metric: plan.options.metric,
        one_set: queries.is_none(),
    };
    Ok((plan, rules))
}

fn totals(queries: &Gallery, gallery: &Gallery, junk: usize, one_set: bool) -> Totals {
    let of_queries = if one_set { 0 } else { queries.zero_rows };
    Totals {
        queries: queries.rows,
        gallery: gallery.rows - junk,
        junk,
        zero_rows: gallery.zero_rows + of_queries,
        one_set,
        cameras: queries.side.cameras && gallery.side.cameras,
        only_label: queries.only_label.clone().filter(|label| gallery.only_label.as_ref() == Some(label)),
    }
}

/// Parts of a block whose keys fit one job.
fn parts(block: &Block, keys: Vec<Vec<RankKey>>) -> Vec<(Block, Vec<Vec<RankKey>>)> {
    let mut parts: Vec<(Block, Vec<Vec<RankKey>>)> = Vec::new();
    let mut total = 0;
    for (row, keys) in block.rows.clone().zip(keys) {
        total += keys.len();
        match parts.last_mut() {
            Some((part, lists)) if total <= KEYS_PER_JOB => {
                part.rows.end = row + 1;
                lists.push(keys);
            }
            _ => {
                total = keys.len();
                parts.push((Block { rows: row..row + 1, ..block.clone() }, vec![keys]));
            }
        }
    }
    parts
}

/// The irrelevant items of all shards between the relevant items of each query.
async fn count(
    engine: &Engine,
    gallery: &Gallery,
    block: &Block,
    rules: &Rules,
    keys: Vec<Vec<RankKey>>,
) -> Result<Vec<QueryCounts>> {
    if let Some(keys) = keys.iter().find(|keys| keys.len() > MOST_KEYS) {
        let problem =
            format!("a query has {} relevant items, and at most {MOST_KEYS} can be counted", keys.len());
        return Err(Error::input(problem, Some("evaluate classes of fewer images")));
    }
    let mut counts: Vec<QueryCounts> = keys.into_iter().map(QueryCounts::new).collect();
    let relevant = counts.iter().map(|counts| counts.relevant().map(RankKey::to_bits).collect()).collect();
    let work = Work::Count { queries: block.clone(), rules: rules.clone() };
    let job = Job { gallery: gallery.files.clone(), work, relevant };
    let sums = "SELECT query, place, SUM(between) AS between, SUM(tied) AS tied, SUM(tied_ahead) AS tied_ahead \
                FROM found GROUP BY query, place";
    for batch in engine.run(job, sums).await? {
        let queries = numbers::<UInt32Type>(&batch, "query")?.values();
        let places = numbers::<UInt32Type>(&batch, "place")?.values();
        let sums = |name| Ok::<_, Error>(numbers::<UInt64Type>(&batch, name)?.values());
        let (between, tied, ahead) = (sums("between")?, sums("tied")?, sums("tied_ahead")?);
        for (at, &query) in queries.iter().enumerate() {
            let counts = list_of(&mut counts, block, query)?;
            let place = places[at];
            // A sum over rows whose numbers fit 32 bits.
            let [between, tied, tied_ahead] = [between[at], tied[at], ahead[at]].map(|sum| sum as u32);
            if place as usize >= counts.relevant().len() {
                let problem =
                    format!("a job counted items before place {place} of query {query}, which has none");
                return Err(Error::input(problem, None));
            }
            counts.add(PlaceCount { place, between, tied, tied_ahead });
        }
    }
    Ok(counts)
}

/// The labels of some rows, in their order.
async fn labels(engine: &Engine, set: &Gallery, rows: Vec<u32>) -> Result<Vec<String>> {
    let mut labels = vec![String::new(); rows.len()];
    if rows.is_empty() {
        return Ok(labels);
    }
    let work = Work::Rows { rows: rows.clone(), metric: None };
    let job = Job { gallery: set.files.clone(), work, relevant: Vec::new() };
    for batch in engine.run(job, "SELECT row, label FROM found").await? {
        let found = numbers::<UInt32Type>(&batch, "row")?.values();
        let names = texts(&batch, "label")?;
        for (at, row) in found.iter().enumerate() {
            if let (Ok(place), Some(name)) = (rows.binary_search(row), text(names, at)) {
                labels[place] = name;
            }
        }
    }
    Ok(labels)
}
