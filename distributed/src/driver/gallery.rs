//! A set that is stored in shards, and what is known of all of them.

use std::path::Path;

use datafusion::arrow::datatypes::{UInt32Type, UInt64Type};
use gallerist_retrieval::eval::{JUNK, SideInfo};
use gallerist_retrieval::fingerprint::comparable;
use gallerist_retrieval::search::Metric;

use super::columns::{numbers, text, texts, truths};
use crate::job::{Job, Work};
use crate::shards::{self, ShardFile, name};
use crate::{Engine, Error, Result};

/// The shards of a set, and what is known of all of them.
#[derive(Clone, Debug)]
pub struct Gallery {
    /// The files, with the numbers of their rows.
    pub files: Vec<ShardFile>,
    /// The number of rows.
    pub rows: usize,
    /// The length of a row.
    pub dimensions: usize,
    /// Rows that are all zeros.
    pub zero_rows: usize,
    /// How the rows are to be compared, as the files declare it.
    pub metric: Option<Metric>,
    /// The protocol that the files name.
    pub protocol: Option<String>,
    /// The fingerprint of the network, where all files name one.
    pub model: Option<String>,
    /// Rows with the label of junk, whatever the protocol.
    pub(super) junk: usize,
    /// Rows whose label is empty.
    pub(super) without_label: usize,
    pub(super) labels: bool,
    pub(super) side: SideInfo,
    pub(super) only_label: Option<String>,
}

/// What an inspection finds in one shard.
struct Found {
    rows: usize,
    dimensions: usize,
    junk: usize,
    zero_rows: usize,
    without_label: usize,
    labels: bool,
    side: SideInfo,
    only_label: Option<String>,
    model: Option<String>,
    metric: Option<String>,
    protocol: Option<String>,
}

impl Gallery {
    /// Reads every shard once. `path` is a folder of shards, or one file; `force` accepts shards of different networks.
    ///
    /// # Errors
    /// As [`shards::list`], for a file that cannot be read, and [`Error::Input`] for shards that do not belong together.
    pub async fn open(engine: &Engine, path: &Path, force: bool) -> Result<Self> {
        let mut files = shards::list(path)?;
        let found = inspect(engine, &files).await?;
        let rows = shards::number_rows(&mut files, found.iter().map(|shard| shard.rows))?;
        Self::join(files, rows, &found, force)
    }

    fn join(files: Vec<ShardFile>, rows: usize, found: &[Found], force: bool) -> Result<Self> {
        let with_rows: Vec<(&ShardFile, &Found)> =
            files.iter().zip(found).filter(|(_, shard)| shard.rows > 0).collect();
        let Some(&(first_file, first)) = with_rows.first() else {
            return Err(Error::input("the shards have no rows", Some("embed some images first")));
        };
        let differ = |what: &str, differs: &dyn Fn(&Found) -> bool, hint: &str| match with_rows
            .iter()
            .find(|(_, shard)| differs(shard))
        {
            None => Ok(()),
            Some((file, _)) => Err(Error::input(
                format!("`{}` and `{}` {what}", name(&first_file.path), name(&file.path)),
                Some(hint),
            )),
        };
        let again = "write all shards with the same command";
        differ("have rows of different lengths", &|shard| shard.dimensions != first.dimensions, again)?;
        differ("differ: one has labels", &|shard| shard.labels != first.labels, again)?;
        differ("differ: one has cameras", &|shard| shard.side.cameras != first.side.cameras, again)?;
        if !force {
            let hint = "embed all of them with the same network, or compare them all the same with --force";
            differ("were embedded with different networks", &|shard| shard.model != first.model, hint)?;
            differ(
                "are made to be compared by different metrics",
                &|shard| shard.metric != first.metric,
                hint,
            )?;
        }
        let same = |of: fn(&Found) -> &Option<String>| {
            let value = of(first).clone()?;
            with_rows.iter().all(|(_, shard)| of(shard).as_ref() == Some(&value)).then_some(value)
        };
        Ok(Self {
            rows,
            dimensions: first.dimensions,
            zero_rows: found.iter().map(|shard| shard.zero_rows).sum(),
            metric: same(|shard| &shard.metric).as_deref().and_then(Metric::named),
            protocol: same(|shard| &shard.protocol),
            model: same(|shard| &shard.model),
            junk: found.iter().map(|shard| shard.junk).sum(),
            without_label: found.iter().map(|shard| shard.without_label).sum(),
            labels: first.labels,
            side: SideInfo {
                cameras: first.side.cameras,
                label_sets: with_rows.iter().any(|(_, shard)| shard.side.label_sets),
            },
            only_label: same(|shard| &shard.only_label),
            files,
        })
    }

    /// The file of a row, and its place in the file.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn place(&self, row: usize) -> (&ShardFile, usize) {
        let after = self.files.partition_point(|file| file.first + file.rows <= row);
        let file = &self.files[after];
        (file, row - file.first)
    }
}

/// Looks at each of the files.
async fn inspect(engine: &Engine, files: &[ShardFile]) -> Result<Vec<Found>> {
    let work = Work::Inspect { junk: Some(JUNK.to_owned()) };
    let job = Job { gallery: files.to_vec(), work, relevant: Vec::new() };
    let mut found: Vec<Option<Found>> = files.iter().map(|_| None).collect();
    for batch in engine.run(job, "SELECT * FROM found").await? {
        let count = |name: &str, row: usize| -> Result<usize> {
            Ok(numbers::<UInt64Type>(&batch, name)?.value(row) as usize)
        };
        let truth = |name: &str, row: usize| -> Result<bool> { Ok(truths(&batch, name)?.value(row)) };
        let word = |name: &str, row: usize| -> Result<Option<String>> { Ok(text(texts(&batch, name)?, row)) };
        let places = numbers::<UInt32Type>(&batch, "shard")?;
        for (row, &place) in places.values().iter().enumerate() {
            let shard = Found {
                rows: count("rows", row)?,
                dimensions: count("dimensions", row)?,
                junk: count("junk", row)?,
                zero_rows: count("zero_rows", row)?,
                without_label: count("without_label", row)?,
                labels: truth("labels", row)?,
                side: SideInfo { cameras: truth("cameras", row)?, label_sets: truth("label_sets", row)? },
                only_label: word("only_label", row)?,
                model: word("model", row)?,
                metric: word("metric", row)?,
                protocol: word("protocol", row)?,
            };
            if let Some(found) = found.get_mut(place as usize) {
                *found = Some(shard);
            }
        }
    }
    let missing =
        || Error::input("a job gave no result for some of the shards", Some("run the command again"));
    found.into_iter().map(|shard| shard.ok_or_else(missing)).collect()
}

/// Refuses queries and a gallery that cannot be compared.
pub(super) fn check_pair(
    queries: &Gallery,
    gallery: &Gallery,
    metric: Option<Metric>,
    force: bool,
) -> Result<()> {
    if queries.dimensions != gallery.dimensions {
        return Err(gallerist_retrieval::Error::Dimensions {
            queries: queries.dimensions,
            gallery: gallery.dimensions,
        }
        .into());
    }
    if force {
        return Ok(());
    }
    let [first, other] = [queries, gallery].map(|set| set.metric.unwrap_or_default());
    if let (Some(a), Some(b)) = (&queries.model, &gallery.model)
        && !comparable(a, b, metric.unwrap_or(other))
    {
        let (first, other) = (Some(a.clone()), Some(b.clone()));
        return Err(gallerist_retrieval::Error::Models { first, other }.into());
    }
    if metric.is_none() && first != other {
        return Err(gallerist_retrieval::Error::Metrics { first, other }.into());
    }
    Ok(())
}
