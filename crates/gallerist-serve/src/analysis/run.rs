//! The thread that computes the analysis.

use std::path::PathBuf;

use gallerist_util::sync::atomic::{AtomicBool, Ordering};
use gallerist_util::sync::{Arc, thread};

use super::compare::{Changes, Other};
use super::failures::{Confusions, Failures, Trial};
use super::map::GalleryMap;
use super::pairs::{Leaks, Pairs, neighbours_of};
use super::slot::Slot;
use super::snapshot::Snapshot;
use super::turn::Turn;
use crate::companion::Side;
use crate::gallery::{Catalog, Gallery};
use crate::protocol::Rules;
use crate::{Error, Options, Result};

/// All results that are computed after the start.
pub(crate) struct Analysis {
    pub(crate) failures: Slot<Failures>,
    pub(crate) confusions: Slot<Confusions>,
    pub(crate) duplicates: Slot<Pairs>,
    pub(crate) leaks: Slot<Leaks>,
    pub(crate) changes: Slot<Changes>,
    pub(crate) map: Slot<GalleryMap>,
    turn: Arc<Turn>,
    /// Nobody needs its results any more.
    stopped: AtomicBool,
}

/// What is compared with the gallery.
pub(crate) struct AnalysisInput {
    pub(crate) queries: Option<Arc<Side>>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) other: Option<Arc<Other>>,
    pub(crate) training: Option<Arc<Side>>,
    /// The file that stores the map.
    pub(crate) map: Option<PathBuf>,
}

impl Analysis {
    /// Starts the computation on a thread of its own, which waits for `turn`.
    pub(crate) fn start(
        gallery: &Arc<Gallery>,
        input: AnalysisInput,
        options: &Options,
        turn: Arc<Turn>,
    ) -> Result<Arc<Self>> {
        let labelled = |catalog: &Catalog| catalog.labels.counts().next().is_some();
        let (in_gallery, count) = {
            let catalog = gallery.catalog();
            (labelled(&catalog), catalog.len())
        };
        let queries = input.queries.as_ref().map(|queries| &queries.catalog);
        let labelled = in_gallery && queries.is_none_or(labelled);
        let asked = queries.map_or(count, Catalog::len);
        // The limit is on the number of compared pairs.
        let most = options.analysis_items.saturating_mul(options.analysis_items);
        let small = count >= if queries.is_some() { 1 } else { 2 } && count.saturating_mul(asked) <= most;
        let trained = input.training.as_ref().map(|training| training.catalog.len());
        let leaks = trained.is_some_and(|trained| count > 0 && count.saturating_mul(trained) <= most);
        let analysis = Arc::new(Self {
            failures: Slot::new(small && labelled),
            confusions: Slot::new(small && labelled),
            duplicates: Slot::new((2..=options.analysis_items).contains(&count)),
            leaks: Slot::new(leaks),
            changes: Slot::new(small && labelled && input.other.is_some()),
            map: Slot::new(count > 1),
            turn: Arc::clone(&turn),
            stopped: AtomicBool::new(false),
        });
        // A separate thread pool, so that searches do not wait for the analysis. It uses half of the cores.
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let failed = |source| Error::Io { action: "start the threads of the analysis".to_owned(), source };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| failed(std::io::Error::other(error)))?;
        let (gallery, options) = (Arc::clone(gallery), options.clone());
        let begun = Arc::clone(&analysis);
        let thread = thread::Builder::new().name("analysis".to_owned());
        let work = move || {
            if let Some(_turn) = turn.wait(&begun.stopped) {
                let compute = || begun.run(&gallery, &input, &options);
                // A model controls its own threads only.
                if cfg!(shuttle) { compute() } else { pool.install(compute) }
            }
        };
        thread.spawn(work).map_err(failed)?;
        Ok(analysis)
    }

    /// Ends the computation at its next step: its results are not needed any more.
    pub(crate) fn stop(&self) {
        self.turn.stop(&self.stopped);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn run(&self, gallery: &Gallery, input: &AnalysisInput, options: &Options) {
        let note = options.note;
        let snapshot = match Snapshot::of(gallery) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                note(&format!("no analysis: {error}"));
                self.give_up();
                return;
            }
        };
        let queries = input.queries.as_ref().map(|queries| Snapshot::of_side(queries));
        // If every item is a query, the items that the protocol leaves out are not.
        let counted = match (&queries, input.rules.junk) {
            (None, Some(junk)) => &snapshot.without(junk),
            _ => &snapshot,
        };
        let trial = match &queries {
            Some(queries) => Trial { queries, gallery: Some(&snapshot), rules: &input.rules },
            None => Trial { queries: counted, gallery: None, rules: &input.rules },
        };
        let neighbours = Slot::new(self.duplicates.wanted);
        neighbours.fill("near-duplicates", note, || neighbours_of(&snapshot));
        if let Some(neighbours) = neighbours.get() {
            self.duplicates.fill("near-duplicates", note, || Ok(Pairs::new(&snapshot, neighbours)));
        }
        if self.is_stopped() {
            return self.give_up();
        }
        let nearest = Slot::new(self.failures.wanted);
        nearest.fill("failures", note, || match neighbours.get() {
            Some(neighbours) if queries.is_none() && input.rules.junk.is_none() => {
                Ok(neighbours.iter().copied().map(Some).collect())
            }
            _ => trial.nearest(),
        });
        if let Some(nearest) = nearest.get() {
            self.confusions.fill("confusions", note, || Ok(Confusions::new(trial, nearest)));
            self.failures.fill("failures", note, || Failures::new(trial, nearest));
        }
        if self.is_stopped() {
            return self.give_up();
        }
        if let Some(other) = &input.other {
            self.changes.fill("comparison", note, || Changes::new(trial, other));
        }
        if let Some(training) = &input.training {
            self.leaks.fill("leaks", note, || Leaks::new(&snapshot, training));
        }
        if self.is_stopped() {
            return self.give_up();
        }
        self.map.fill("map", note, || {
            let all = queries.as_ref().map(|queries| snapshot.and(queries)).transpose()?;
            GalleryMap::new(all.as_ref().unwrap_or(&snapshot), input.map.as_deref(), options, &self.stopped)
        });
        self.give_up();
    }

    /// Ends the state `computing` of every slot that has no value.
    fn give_up(&self) {
        self.failures.give_up();
        self.confusions.give_up();
        self.duplicates.give_up();
        self.leaks.give_up();
        self.changes.give_up();
        self.map.give_up();
    }
}
