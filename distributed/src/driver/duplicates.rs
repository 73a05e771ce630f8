//! Near-duplicates over shards.

use std::collections::HashMap;
use std::path::PathBuf;

use datafusion::arrow::datatypes::{Float32Type, UInt32Type};
use gallerist_retrieval::issues::{
    DuplicateGroup, DuplicatePair, IssueOptions, join_duplicates, largest_duplicate_distance, row_distance,
};
use gallerist_retrieval::search::Metric;
use serde::Serialize;

use super::Progress;
use super::columns::{lists, numbers, text, texts};
use super::gallery::Gallery;
use super::hash::ResultHash;
use crate::job::{Job, Work};
use crate::{Engine, Error, Result};

/// What counts as a near-duplicate.
#[derive(Clone, Debug)]
pub struct DuplicatesOptions {
    /// A folder of shards, or one file.
    pub gallery: PathBuf,
    /// Two rows are near-duplicates if their distance is at most this share of the median distance of a row to its
    /// nearest neighbour.
    pub share: f64,
    /// [`Metric::Cosine`] or [`Metric::Euclidean`]; by default as the files declare, else the cosine.
    pub metric: Option<Metric>,
    /// Accepts rows of different networks.
    pub force: bool,
}

/// The near-duplicates of a set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Duplicates {
    /// The number of rows.
    pub rows: usize,
    /// How they were compared.
    pub metric: Metric,
    /// The largest distance of near-duplicates.
    pub duplicate_distance: f64,
    /// Groups of near-duplicates, by rising smallest distance. Rows are numbered over all shards.
    pub duplicates: Vec<DuplicateGroup>,
    /// The paths of the images in the groups, by row, where the shards have paths.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub paths: std::collections::BTreeMap<u32, String>,
    /// The hash of the distance and the groups as JSON.
    pub sha256: String,
}

/// Finds near-duplicates: the groups of [`find_issues`](gallerist_retrieval::issues::find_issues) on the whole set.
///
/// # Errors
/// [`Error::Input`] and [`Error::Retrieval`] for files and options that do not fit together, and [`Error::Job`].
pub async fn duplicates(
    engine: &Engine,
    options: &DuplicatesOptions,
    progress: &mut dyn Progress,
) -> Result<Duplicates> {
    const STEPS: usize = 4;
    let gallery = Gallery::open(engine, &options.gallery, options.force).await?;
    progress.done(1, STEPS);
    if gallery.rows < 2 {
        return Err(Error::input("duplicates are pairs, and the set has one row", None));
    }
    let metric = options.metric.or(gallery.metric).unwrap_or_default();
    let issues = IssueOptions { metric, duplicates: options.share, ..IssueOptions::default() };
    let job = |work| Job { gallery: gallery.files.clone(), work, relevant: Vec::new() };

    let mut nearest = Vec::with_capacity(gallery.rows);
    for batch in engine.run(job(Work::Nearest { metric }), "SELECT distance FROM found").await? {
        nearest.extend(
            numbers::<Float32Type>(&batch, "distance")?.values().iter().map(|&value| f64::from(value)),
        );
    }
    if nearest.len() != gallery.rows {
        let problem = format!("a job gave distances of {} of {} rows", nearest.len(), gallery.rows);
        return Err(Error::input(problem, Some("run the command again")));
    }
    let largest = largest_duplicate_distance(&mut nearest, &issues);
    progress.done(2, STEPS);

    let mut pairs = Vec::new();
    let query = "SELECT a, b, distance FROM found";
    for batch in engine.run(job(Work::Pairs { metric, largest }), query).await? {
        let rows = |name| Ok::<_, Error>(numbers::<UInt32Type>(&batch, name)?.values());
        let (a, b) = (rows("a")?, rows("b")?);
        let distances = numbers::<Float32Type>(&batch, "distance")?.values();
        pairs.extend(a.iter().zip(b).zip(distances).map(|((&a, &b), &distance)| DuplicatePair {
            a,
            b,
            distance,
        }));
    }
    progress.done(3, STEPS);

    let mut rows: Vec<u32> = pairs.iter().flat_map(|pair| [pair.a, pair.b]).collect();
    rows.sort_unstable();
    rows.dedup();
    let (mut values, mut paths) = (HashMap::new(), std::collections::BTreeMap::new());
    if !rows.is_empty() {
        let work = Work::Rows { rows: rows.clone(), metric: Some(metric) };
        for batch in engine.run(job(work), "SELECT row, path, \"values\" FROM found").await? {
            let found = numbers::<UInt32Type>(&batch, "row")?.values();
            let names = texts(&batch, "path")?;
            for (at, (&row, list)) in found.iter().zip(lists(&batch, "values")?).enumerate() {
                values.insert(row as usize, list);
                paths.extend(text(names, at).map(|path| (row, path)));
            }
        }
    }
    if values.len() != rows.len() {
        let problem = format!("a job gave {} of {} rows", values.len(), rows.len());
        return Err(Error::input(problem, Some("run the command again")));
    }
    let groups = join_duplicates(&pairs, |a, b| row_distance(&values[&a], &values[&b]));
    progress.done(STEPS, STEPS);
    let mut hash = ResultHash::default();
    hash.add(&serde_json::to_vec(&(largest, &groups)).expect("groups are valid JSON"));
    Ok(Duplicates {
        rows: gallery.rows,
        metric,
        duplicate_distance: largest,
        duplicates: groups,
        paths,
        sha256: hash.digits(),
    })
}
