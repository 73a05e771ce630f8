//! Queries that wait are searched for together.
//!
//! A search reads the whole gallery once, whether for one query or for sixty, and memory bandwidth limits it. One
//! thread takes all queries that arrived while it was busy and searches for them in one pass. Two searches never
//! compete for the caches, and when too many queries wait, further ones are refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gallerist_util::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use gallerist_util::sync::{Arc, thread};
use tokio::sync::oneshot;

use crate::gallery::{Gallery, Listed, Query};
use crate::{Error, Result};

/// The largest number of queries in one pass.
const AT_ONCE: usize = 64;

/// A list of more results than this is long.
const LONG: usize = 4096;

/// The largest number of queries that wait.
const WAITING: usize = 1024;

struct Job {
    query: Query,
    answer: oneshot::Sender<Result<Listed>>,
}

/// Sends queries to the search thread of a gallery.
pub(crate) struct Batcher {
    jobs: SyncSender<Job>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Too many queries wait.
    Busy,
    /// The search panicked.
    Broken,
    /// The search failed.
    Failed(Error),
}

impl Batcher {
    pub(crate) fn start(gallery: Arc<Gallery>) -> Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING);
        let thread = thread::Builder::new().name("search".to_owned());
        thread
            .spawn(move || run(&gallery, &waiting))
            .map_err(|source| Error::Io { action: "start the thread of the search".to_owned(), source })?;
        Ok(Self { jobs })
    }

    pub(crate) async fn search(&self, query: Query) -> std::result::Result<Listed, Refused> {
        let (answer, found) = oneshot::channel();
        match self.jobs.try_send(Job { query, answer }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(Refused::Busy),
        }
        found.await.map_err(|_| Refused::Broken)?.map_err(Refused::Failed)
    }
}

/// Answers until every [`Batcher`] of the channel is dropped.
fn run(gallery: &Gallery, waiting: &Receiver<Job>) {
    while let Ok(first) = waiting.recv() {
        let more = waiting.try_iter().take(AT_ONCE - 1);
        // A client that has disconnected needs no answer.
        let mut jobs: Vec<Job> =
            std::iter::once(first).chain(more).filter(|job| !job.answer.is_closed()).collect();
        if jobs.is_empty() {
            continue;
        }
        // An index searches queries of the same filter together.
        jobs.sort_by_key(|job| !job.query.filter.is_empty());
        // Long lists are searched for alone: the lists of one pass have the same length in memory.
        let (long, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.query.k > LONG);
        for Job { query, answer } in long {
            if let Some(found) = together(gallery, &[query]) {
                drop(answer.send(found.map(|mut lists| lists.pop().expect("a list for each query"))));
            }
        }
        if jobs.is_empty() {
            continue;
        }
        let (queries, answers): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.query, job.answer)).unzip();
        match together(gallery, &queries) {
            Some(Ok(lists)) => {
                answers.into_iter().zip(lists).for_each(|(answer, list)| drop(answer.send(Ok(list))))
            }
            // One failing query must not fail the others: search for each alone.
            Some(Err(_)) | None => {
                for (query, answer) in queries.into_iter().zip(answers) {
                    // After a panic the sender is dropped, which the receiver sees as `Refused::Broken`.
                    if let Some(found) = together(gallery, &[query]) {
                        drop(answer.send(found.map(|mut lists| lists.pop().expect("a list for each query"))));
                    }
                }
            }
        }
    }
}

/// Searches for all queries. `None` if the search panicked: the thread must survive that.
fn together(gallery: &Gallery, queries: &[Query]) -> Option<Result<Vec<Listed>>> {
    catch_unwind(AssertUnwindSafe(|| gallery.search(queries))).ok()
}
