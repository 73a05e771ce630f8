//! Questions that wait are answered together: searches, and images that the network embeds.
//!
//! A search reads the whole gallery once, whether for one query or for sixty, and memory bandwidth limits it. A network
//! embeds several images in less time than one after the other. One thread takes all questions that arrived while it was
//! busy and answers them in one pass. Two passes never compete for the caches, and when too many questions wait, further
//! ones are refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gallerist_util::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use gallerist_util::sync::{Arc, thread};
use tokio::sync::oneshot;

use crate::gallery::{Gallery, Listed, Query};
use crate::{Error, Result};

/// The largest number of questions that wait.
const WAITING: usize = 1024;

/// How questions are answered together.
pub(crate) trait Work: Send + 'static {
    type Question: Send + 'static;
    type Answer: Send + 'static;
    type Problem: Send + 'static;

    /// The largest number of questions in one pass.
    const AT_ONCE: usize;

    /// The name of the thread.
    const NAME: &'static str;

    /// The questions of each pass. Questions without a client are not asked.
    fn passes(jobs: Vec<Job<Self>>) -> Vec<Vec<Job<Self>>> {
        vec![jobs]
    }

    /// The answers to all questions, in their order.
    fn answers(&self, questions: &[Self::Question]) -> std::result::Result<Vec<Self::Answer>, Self::Problem>;
}

/// A question and where its answer is sent.
pub(crate) struct Job<W: Work + ?Sized> {
    question: W::Question,
    answer: oneshot::Sender<std::result::Result<W::Answer, W::Problem>>,
}

/// Sends questions to the thread that answers them.
pub(crate) struct Batcher<W: Work> {
    jobs: SyncSender<Job<W>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Refused<P> {
    /// Too many questions wait.
    Busy,
    /// The pass panicked.
    Broken,
    /// The pass failed.
    Failed(P),
}

impl<W: Work> Batcher<W> {
    pub(crate) fn start(work: W) -> Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING);
        let thread = thread::Builder::new().name(W::NAME.to_owned());
        thread.spawn(move || run(&work, &waiting)).map_err(|source| {
            let action = format!("start the thread `{}`", W::NAME);
            Error::Io { action, source }
        })?;
        Ok(Self { jobs })
    }

    pub(crate) async fn ask(
        &self,
        question: W::Question,
    ) -> std::result::Result<W::Answer, Refused<W::Problem>> {
        let (answer, found) = oneshot::channel();
        match self.jobs.try_send(Job { question, answer }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(Refused::Busy),
        }
        found.await.map_err(|_| Refused::Broken)?.map_err(Refused::Failed)
    }
}

/// Answers until every [`Batcher`] of the channel is dropped.
fn run<W: Work>(work: &W, waiting: &Receiver<Job<W>>) {
    while let Ok(first) = waiting.recv() {
        let more = waiting.try_iter().take(W::AT_ONCE - 1);
        // A client that has disconnected needs no answer.
        let jobs = std::iter::once(first).chain(more).filter(|job| !job.answer.is_closed()).collect();
        W::passes(jobs).into_iter().filter(|jobs| !jobs.is_empty()).for_each(|jobs| pass(work, jobs));
    }
}

fn pass<W: Work>(work: &W, jobs: Vec<Job<W>>) {
    let (questions, answers): (Vec<_>, Vec<_>) =
        jobs.into_iter().map(|job| (job.question, job.answer)).unzip();
    match together(work, &questions) {
        Some(Ok(found)) => {
            answers.into_iter().zip(found).for_each(|(answer, found)| drop(answer.send(Ok(found))));
        }
        Some(Err(problem)) if questions.len() == 1 => {
            answers.into_iter().next().map(|answer| answer.send(Err(problem)));
        }
        // The sender is dropped, which the receiver sees as `Refused::Broken`.
        None if questions.len() == 1 => {}
        // One failing question must not fail the others: each is answered alone.
        Some(Err(_)) | None => {
            let jobs = questions.into_iter().zip(answers).map(|(question, answer)| Job { question, answer });
            jobs.for_each(|job| pass(work, vec![job]));
        }
    }
}

/// The answers. `None` if the pass panicked: the thread must survive that.
fn together<W: Work>(
    work: &W,
    questions: &[W::Question],
) -> Option<std::result::Result<Vec<W::Answer>, W::Problem>> {
    catch_unwind(AssertUnwindSafe(|| work.answers(questions))).ok()
}

/// The searches of a gallery.
pub(crate) struct Searches(pub(crate) Arc<Gallery>);

impl Work for Searches {
    type Question = Query;
    type Answer = Listed;
    type Problem = Error;

    const AT_ONCE: usize = 64;
    const NAME: &'static str = "search";

    fn passes(mut jobs: Vec<Job<Self>>) -> Vec<Vec<Job<Self>>> {
        /// A list of more results than this is long.
        const LONG: usize = 4096;
        // An index searches queries of the same filter together.
        jobs.sort_by_key(|job| !job.question.filter.is_empty());
        // Long lists are searched for alone: the lists of one pass have the same length in memory.
        let (long, jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.question.k > LONG);
        long.into_iter().map(|job| vec![job]).chain([jobs]).collect()
    }

    fn answers(&self, queries: &[Query]) -> Result<Vec<Listed>> {
        self.0.search(queries)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Doubles numbers; 7 fails, 8 panics.
    struct Double(&'static Mutex<Vec<Vec<u32>>>);

    impl Work for Double {
        type Question = u32;
        type Answer = u32;
        type Problem = &'static str;

        const AT_ONCE: usize = 4;
        const NAME: &'static str = "double";

        fn answers(&self, questions: &[u32]) -> std::result::Result<Vec<u32>, &'static str> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(questions.to_vec());
            assert!(!questions.contains(&8), "eight");
            if questions.contains(&7) { Err("seven") } else { Ok(questions.iter().map(|n| 2 * n).collect()) }
        }
    }

    #[test]
    fn what_waits_is_answered_in_one_pass_and_alone_where_that_fails() {
        static PASSES: Mutex<Vec<Vec<u32>>> = Mutex::new(Vec::new());
        let (jobs, waiting) = sync_channel(WAITING);
        let mut answers: Vec<_> = [1, 2, 3, 4, 5, 7, 6, 8]
            .map(|question| {
                let (answer, found) = oneshot::channel();
                jobs.send(Job { question, answer }).unwrap();
                (question, found)
            })
            .into();
        // The client of 2 gives up.
        answers.remove(1);
        drop(jobs);
        run(&Double(&PASSES), &waiting);
        for (question, mut found) in answers {
            let found = found.try_recv();
            match question {
                7 => assert_eq!(found, Ok(Err("seven"))),
                8 => assert!(found.is_err(), "{found:?}"),
                _ => assert_eq!(found, Ok(Ok(2 * question))),
            }
        }
        let wanted: &[&[u32]] = &[&[1, 3, 4], &[5, 7, 6, 8], &[5], &[7], &[6], &[8]];
        assert_eq!(*PASSES.lock().unwrap(), wanted);
    }
}
