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
pub(crate) use failures::{Confusions, Failures};
use failures::{Quality, Trial};
pub(crate) use map::GalleryMap;
pub(crate) use pairs::{Leaks, Pair, Pairs};

use crate::companion::Side;
use crate::gallery::{Catalog, Gallery};
use crate::protocol::Rules;
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
    /// The camera of each, empty where it has none.
    pub(crate) cameras: Vec<String>,
    /// Rows as they are compared.
    pub(crate) rows: Arc<Matrix>,
    /// How the gallery's items are compared.
    pub(crate) metric: Metric,
}

impl Snapshot {
    pub(crate) fn of(gallery: &Gallery) -> Result<Self> {
        let inside = gallery.read();
        Ok(Self::with_rows(&inside.catalog, inside.searcher.all(&inside.catalog)?, gallery.metric()))
    }

    fn of_side(side: &Side) -> Self {
        Self::with_rows(&side.catalog, Arc::new(side.rows.clone()), side.metric)
    }

    fn with_rows(catalog: &Catalog, rows: Arc<Matrix>, metric: Metric) -> Self {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        Self {
            ids: catalog.ids().to_vec(),
            labels: (0..catalog.len()).map(|row| text(catalog.labels.get(row))).collect(),
            cameras: (0..catalog.len()).map(|row| text(catalog.cameras.get(row))).collect(),
            rows,
            metric,
        }
    }

    /// These rows.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        let text = |values: &[String]| rows.iter().map(|&row| values[row].clone()).collect();
        Self {
            ids: rows.iter().map(|&row| self.ids[row]).collect(),
            labels: text(&self.labels),
            cameras: text(&self.cameras),
            rows: Arc::new(self.rows.select(rows)),
            metric: self.metric,
        }
    }

    /// The same without the rows of a label.
    fn without(&self, label: &str) -> Self {
        let rows: Vec<usize> = (0..self.ids.len()).filter(|&row| self.labels[row] != label).collect();
        self.select(&rows)
    }

    /// These rows and then those.
    fn and(&self, other: &Self) -> Result<Self> {
        let join = |a: &[String], b: &[String]| [a, b].concat();
        let values = [self.rows.as_slice(), other.rows.as_slice()].concat();
        let count = self.ids.len() + other.ids.len();
        Ok(Self {
            ids: [&self.ids[..], &other.ids].concat(),
            labels: join(&self.labels, &other.labels),
            cameras: join(&self.cameras, &other.cameras),
            rows: Arc::new(Matrix::new(count, self.rows.cols(), values)?),
            metric: self.metric,
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
    pub(crate) map: Slot<GalleryMap>,
}

/// What is looked at beside the gallery.
pub(crate) struct Beside {
    pub(crate) queries: Option<Arc<Side>>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) other: Option<Arc<Other>>,
    pub(crate) training: Option<Arc<Side>>,
    /// Where the map is kept.
    pub(crate) map: Option<PathBuf>,
}

impl Analysis {
    /// Begins, on a thread of its own.
    pub(crate) fn start(gallery: &Arc<Gallery>, beside: Beside, options: &Options) -> Result<Arc<Self>> {
        let labelled = |catalog: &Catalog| catalog.labels.counts().next().is_some();
        let (in_gallery, count) = {
            let catalog = &gallery.read().catalog;
            (labelled(catalog), catalog.len())
        };
        let queries = beside.queries.as_ref().map(|queries| &queries.catalog);
        let labelled = in_gallery && queries.is_none_or(labelled);
        let asked = queries.map_or(count, Catalog::len);
        // Pairs that are compared.
        let most = options.analysis_items.saturating_mul(options.analysis_items);
        let small = count >= if queries.is_some() { 1 } else { 2 } && count.saturating_mul(asked) <= most;
        let analysis = Arc::new(Self {
            failures: Slot::new(small && labelled),
            confusions: Slot::new(small && labelled),
            duplicates: Slot::new((2..=options.analysis_items).contains(&count)),
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
        let queries = beside.queries.as_ref().map(|queries| Snapshot::of_side(queries));
        // Where every item is a query, what the protocol leaves out is none.
        let counted = match (&queries, beside.rules.junk) {
            (None, Some(junk)) => &snapshot.without(junk),
            _ => &snapshot,
        };
        let trial = match &queries {
            Some(queries) => Trial { queries, gallery: Some(&snapshot), rules: &beside.rules },
            None => Trial { queries: counted, gallery: None, rules: &beside.rules },
        };
        let neighbours = Slot::new(self.duplicates.wanted);
        neighbours.fill("near-duplicates", note, || nearest_of(&snapshot));
        if let Some(neighbours) = neighbours.get() {
            self.duplicates.fill("near-duplicates", note, || Ok(Pairs::new(&snapshot, neighbours)));
        }
        let nearest = Slot::new(self.failures.wanted);
        nearest.fill("failures", note, || match neighbours.get() {
            Some(neighbours) if queries.is_none() && beside.rules.junk.is_none() => {
                Ok(neighbours.iter().copied().map(Some).collect())
            }
            _ => trial.nearest(),
        });
        if let Some(nearest) = nearest.get() {
            self.confusions.fill("confusions", note, || Ok(Confusions::new(trial, nearest)));
            self.failures.fill("failures", note, || Failures::new(trial, nearest));
        }
        if let Some(other) = &beside.other {
            self.changes.fill("comparison", note, || Changes::new(trial, other));
        }
        if let Some(training) = &beside.training {
            self.leaks.fill("leaks", note, || Leaks::new(&snapshot, training));
        }
        self.map.fill("map", note, || {
            let all = queries.as_ref().map(|queries| snapshot.and(queries)).transpose()?;
            GalleryMap::new(all.as_ref().unwrap_or(&snapshot), beside.map.as_deref(), options)
        });
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
