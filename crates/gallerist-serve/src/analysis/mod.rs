//! What is computed once, after the start, beside the requests: which queries fail, which classes are
//! confused, what is there twice, the map.
//!
//! It is that of the items the server started with; items that have gone since are left out of the
//! answers.

mod compare;
mod failures;
mod map;
mod pairs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use gallerist_retrieval::Matrix;
use gallerist_retrieval::search::{Metric, SearchOptions, self_search};

pub(crate) use compare::{Changes, Other};
use failures::Quality;
pub(crate) use failures::{Confusions, Failures};
pub(crate) use map::Map;
pub(crate) use pairs::{Leaks, Pair, Pairs, check_training};

use crate::gallery::Gallery;
use crate::{Error, Options, Result};

/// Something that is there, will be there, or will not.
pub(crate) struct Slot<T> {
    wanted: bool,
    value: OnceLock<Option<T>>,
}

impl<T> Slot<T> {
    fn new(wanted: bool) -> Self {
        Self { wanted, value: OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get().and_then(Option::as_ref)
    }

    /// `ready`, `computing` or `none`.
    pub(crate) fn state(&self) -> &'static str {
        match self.value.get() {
            Some(Some(_)) => "ready",
            None if self.wanted => "computing",
            _ => "none",
        }
    }

    /// Computes the value; a failure is noted, and there is none.
    fn fill(&self, what: &str, note: fn(&str), compute: impl FnOnce() -> Result<T>) {
        if !self.wanted {
            return;
        }
        let value = match catch_unwind(AssertUnwindSafe(compute)) {
            Ok(Ok(value)) => Some(value),
            Ok(Err(error)) => {
                note(&format!("no {what}: {error}"));
                None
            }
            Err(_) => {
                note(&format!("no {what}: the computation broke off"));
                None
            }
        };
        let _ = self.value.set(value);
    }
}

/// The items of a gallery as they were at the start.
pub(crate) struct Snapshot {
    pub(crate) ids: Vec<u64>,
    /// The label of each, empty where it has none.
    pub(crate) labels: Vec<String>,
    /// Rows as they are compared.
    pub(crate) rows: Arc<Matrix>,
    /// How the gallery's items are compared.
    pub(crate) metric: Metric,
}

impl Snapshot {
    pub(crate) fn of(gallery: &Gallery) -> Result<Self> {
        let inside = gallery.read();
        let catalog = &inside.catalog;
        let labels = (0..catalog.len()).map(|row| catalog.labels.get(row).unwrap_or_default().to_owned());
        Ok(Self {
            ids: catalog.ids().to_vec(),
            labels: labels.collect(),
            rows: inside.searcher.all(catalog)?,
            metric: gallery.metric(),
        })
    }
}

/// All that is computed after the start.
pub(crate) struct Analysis {
    pub(crate) failures: Slot<Failures>,
    pub(crate) confusions: Slot<Confusions>,
    pub(crate) duplicates: Slot<Pairs>,
    pub(crate) leaks: Slot<Leaks>,
    pub(crate) changes: Slot<Changes>,
    pub(crate) map: Slot<Map>,
}

/// What is looked at beside the gallery.
pub(crate) struct Beside {
    pub(crate) other: Option<Arc<Other>>,
    pub(crate) training: Option<gallerist_retrieval::EmbeddingSet>,
    /// Where the map is kept.
    pub(crate) map: Option<PathBuf>,
}

impl Analysis {
    /// Begins, on a thread of its own.
    pub(crate) fn start(gallery: &Arc<Gallery>, beside: Beside, options: &Options) -> Result<Arc<Self>> {
        let (labelled, count) = {
            let catalog = &gallery.read().catalog;
            (catalog.labels.counts().next().is_some(), catalog.len())
        };
        let small = (2..=options.analysis_items).contains(&count);
        let analysis = Arc::new(Self {
            failures: Slot::new(small && labelled),
            confusions: Slot::new(small && labelled),
            duplicates: Slot::new(small),
            leaks: Slot::new(count > 0 && beside.training.is_some()),
            changes: Slot::new(small && labelled && beside.other.is_some()),
            map: Slot::new(count > 1),
        });
        // A pool of its own: a search must not wait behind it. Half of the cores is what it may take.
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        let failed = |source| Error::Io { action: "start the threads of the analysis".to_owned(), source };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| failed(std::io::Error::other(error)))?;
        let (gallery, options) = (Arc::clone(gallery), options.clone());
        let begun = Arc::clone(&analysis);
        let thread = std::thread::Builder::new().name("analysis".to_owned());
        thread.spawn(move || pool.install(|| begun.run(&gallery, &beside, &options))).map_err(failed)?;
        Ok(analysis)
    }

    fn run(&self, gallery: &Gallery, beside: &Beside, options: &Options) {
        let note = options.note;
        let snapshot = match Snapshot::of(gallery) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                note(&format!("no analysis: {error}"));
                self.give_up();
                return;
            }
        };
        let nearest = Slot::new(self.duplicates.wanted);
        nearest.fill("near-duplicates", note, || nearest_of(&snapshot));
        if let Some(nearest) = nearest.get() {
            self.duplicates.fill("near-duplicates", note, || Ok(Pairs::new(&snapshot, nearest)));
            self.confusions.fill("confusions", note, || Ok(Confusions::new(&snapshot, nearest)));
            self.failures.fill("failures", note, || Failures::new(&snapshot, nearest));
        }
        if let Some(other) = &beside.other {
            self.changes.fill("comparison", note, || Changes::new(&snapshot, other));
        }
        if let Some(training) = &beside.training {
            self.leaks.fill("leaks", note, || Leaks::new(&snapshot, training));
        }
        self.map.fill("map", note, || Map::new(&snapshot, beside.map.as_deref(), options));
        self.give_up();
    }

    /// Nothing more comes.
    fn give_up(&self) {
        let _ = self.failures.value.set(None);
        let _ = self.confusions.value.set(None);
        let _ = self.duplicates.value.set(None);
        let _ = self.leaks.value.set(None);
        let _ = self.changes.value.set(None);
        let _ = self.map.value.set(None);
    }
}

/// For each row the nearest other row, and how far it is.
pub(crate) type Nearest = Vec<(usize, f32)>;

fn nearest_of(snapshot: &Snapshot) -> Result<Nearest> {
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(1) };
    let lists = self_search(snapshot.rows.as_ref(), &options)?;
    Ok(lists.iter().map(|(rows, distances)| (rows[0] as usize, distances[0])).collect())
}
