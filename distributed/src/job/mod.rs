//! What a job does with each shard.

mod codec;
mod exec;
mod schema;
mod table;
mod wire;

use std::ops::Range;

use gallerist_retrieval::eval::{EvalOptions, Plan, Protocol};
use gallerist_retrieval::search::Metric;
use serde::{Deserialize, Serialize};

use crate::shards::{MOST_ROWS, ShardFile};
use crate::{Error, Result};

pub use codec::{ClusterLogicalCodec, ClusterPhysicalCodec};
pub use exec::ShardExec;
pub(crate) use exec::set_shards_at_once;
pub use table::ShardTable;

/// Work on each shard of a gallery: a table with a partition per shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The shards.
    pub gallery: Vec<ShardFile>,
    /// What is done with each of them.
    pub work: Work,
    /// For [`Work::Count`]: the keys of the relevant items of each query, the best first. Kept out of the JSON, in
    /// which they would be twice as long.
    #[serde(skip)]
    pub relevant: Vec<Vec<u64>>,
}

impl Job {
    /// Whether all rows that it names can be numbered, and its queries are rows of their file.
    fn has_its_rows(&self) -> bool {
        let queries = match &self.work {
            Work::Search { queries, .. } | Work::Relevant { queries, .. } | Work::Count { queries, .. } => {
                Some(queries)
            }
            Work::Inspect { .. } | Work::Nearest { .. } | Work::Pairs { .. } | Work::Rows { .. } => None,
        };
        let are_numbered =
            |file: &ShardFile| file.first.checked_add(file.rows).is_some_and(|end| end <= MOST_ROWS);
        self.gallery.iter().chain(queries.map(|block| &block.file)).all(are_numbered)
            && queries
                .is_none_or(|block| block.rows.start <= block.rows.end && block.rows.end <= block.file.rows)
    }
}

/// What is done with a shard, and the columns that it gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    /// Counts rows and looks at labels: one row per shard.
    Inspect {
        /// The label of rows that are skipped for every query.
        junk: Option<String>,
    },
    /// The best rows for each query: `query`, `key`.
    Search {
        /// The queries.
        queries: Block,
        /// How rows are compared.
        metric: Metric,
        /// Rows per query.
        k: usize,
        /// The queries are rows of the gallery, which do not find themselves.
        one_set: bool,
    },
    /// The rows that are relevant to each query: `query`, `key`.
    Relevant {
        /// The queries.
        queries: Block,
        /// What is relevant.
        rules: Rules,
    },
    /// Irrelevant rows between the relevant ones: `query`, `place`, `between`, `tied`, `tied_ahead`.
    Count {
        /// The queries.
        queries: Block,
        /// What is relevant.
        rules: Rules,
    },
    /// The distance of each row to its nearest neighbour: `distance`.
    Nearest {
        /// How rows are compared.
        metric: Metric,
    },
    /// Pairs that are near-duplicates: `a`, `b`, `distance`. Each shard is compared with itself and with the half of
    /// the other shards that follows it, in a circle.
    Pairs {
        /// How rows are compared.
        metric: Metric,
        /// The largest distance of near-duplicates.
        largest: f64,
    },
    /// Chosen rows: `row`, `label`, `path`, and with a metric `values`, in the form in which duplicates are compared.
    Rows {
        /// Their numbers, rising.
        rows: Vec<u32>,
        /// How rows are compared, where values are wanted.
        metric: Option<Metric>,
    },
}

/// Queries: some rows of one file, which every executor reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The file.
    pub file: ShardFile,
    /// The rows of the file.
    pub rows: Range<usize>,
}

impl Block {
    /// Blocks of at most `size` rows that make up the files, in their order.
    pub fn of(files: &[ShardFile], size: usize) -> impl Iterator<Item = Self> {
        files.iter().flat_map(move |file| {
            (0..file.rows)
                .step_by(size)
                .map(move |start| Self { file: file.clone(), rows: start..file.rows.min(start + size) })
        })
    }

    /// The number of the first query in the whole set.
    pub fn first(&self) -> usize {
        self.file.first + self.rows.start
    }
}

/// What is relevant to what, and how rows are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The name of a benchmark's protocol.
    pub protocol: Option<String>,
    /// Cameras do not count.
    pub ignore_cameras: bool,
    /// How rows are compared.
    pub metric: Metric,
    /// Queries are the gallery.
    pub one_set: bool,
}

impl Rules {
    /// The rules as a plan that measures nothing.
    ///
    /// # Errors
    /// [`Error::Input`] for an unknown protocol.
    pub fn plan(&self) -> Result<Plan> {
        let options = EvalOptions { metric: self.metric, measures: Vec::new() };
        let protocol = self.protocol.as_deref().map(protocol).transpose()?;
        Ok(Plan { protocol, ignore_cameras: self.ignore_cameras, options, ..Plan::default() })
    }
}

/// The protocol called `name`.
///
/// # Errors
/// [`Error::Input`] when there is none.
pub fn protocol(name: &str) -> Result<&'static Protocol> {
    Protocol::named(name).ok_or_else(|| {
        let known: Vec<&str> =
            gallerist_retrieval::eval::PROTOCOLS.iter().map(|protocol| protocol.name).collect();
        Error::input(format!("no protocol is called `{name}`"), Some(&format!("known: {}", known.join(", "))))
    })
}

/// The other shards that shard `at` of `count` is compared with, so that each two shards meet once and each shard has
/// the same number of meetings, to within one.
pub(crate) fn partners(at: usize, count: usize) -> impl Iterator<Item = usize> {
    let half = count / 2;
    // With an even number, opposite shards meet at the first of them.
    let last = if count.is_multiple_of(2) && at >= half { half.saturating_sub(1) } else { half };
    (1..=last).map(move |step| (at + step) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_two_shards_meet_once_and_no_shard_has_two_meetings_more_than_another() {
        for count in 0..20 {
            let mut met: Vec<(usize, usize)> = (0..count)
                .flat_map(|at| partners(at, count).map(move |other| (at.min(other), at.max(other))))
                .collect();
            met.sort_unstable();
            let wanted: Vec<_> = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect();
            assert_eq!(met, wanted, "{count} shards");
            let meetings: Vec<usize> = (0..count).map(|at| partners(at, count).count()).collect();
            let spread = meetings.iter().max().unwrap_or(&0) - meetings.iter().min().unwrap_or(&0);
            assert!(spread <= 1, "{count} shards: {meetings:?}");
        }
    }

    #[test]
    fn blocks_cover_the_files_in_their_order() {
        let file = |first, rows| ShardFile { path: format!("{first}").into(), first, rows };
        let blocks: Vec<_> = Block::of(&[file(0, 5), file(5, 0), file(5, 4)], 4)
            .map(|block| (block.first(), block.rows))
            .collect();
        assert_eq!(blocks, [(0, 0..4), (4, 4..5), (5, 0..4)]);
    }
}
