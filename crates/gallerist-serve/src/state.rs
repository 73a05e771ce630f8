//! The state that all requests share.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use gallerist_retrieval::fingerprint;
use gallerist_util::sync::{Mutex, PoisonError};

use crate::access;
use crate::analysis::{Analysis, AnalysisInput, Other, Turn};
use crate::audit::Audit;
use crate::batch::{Batcher, Searches};
use crate::companion::{Companion, Set, Side};
use crate::embedder::{BatchEmbedder, Embedder};
use crate::embeddings::Embeddings;
use crate::gallery::Gallery;
use crate::gate::Gate;
use crate::images::Images;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::protocol::Rules;
use crate::reloaded::Reloaded;
use crate::saved::Saved;
use crate::stamp::Stamp;
use crate::tls::Certificate;
use crate::{Error, Result};

/// The contents of a server: a gallery, its images, the network that embedded it. `gallery.into()` fills everything but
/// the gallery with `None`.
pub struct Contents {
    /// The gallery.
    pub gallery: Gallery,
    /// Its images, if they are available.
    pub images: Option<Images>,
    /// The network that embedded it, for uploads and heat maps.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The queries of the evaluation. Without them every item is a query against all others.
    pub queries: Option<Companion>,
    /// The name of the evaluation [protocol](gallerist_retrieval::eval::Protocol), or `none`. Without a name, the
    /// protocol that queries and gallery both name.
    pub protocol: Option<String>,
    /// A file of the same images embedded by another network, for comparison.
    pub compare: Option<PathBuf>,
    /// A file of the queries embedded by that network.
    pub compare_queries: Option<PathBuf>,
    /// The training images embedded by the gallery's network. The server reports gallery images that are near one.
    pub training: Option<Companion>,
}

impl From<Gallery> for Contents {
    fn from(gallery: Gallery) -> Self {
        Self {
            gallery,
            images: None,
            embedder: None,
            queries: None,
            protocol: None,
            compare: None,
            compare_queries: None,
            training: None,
        }
    }
}

/// Opens the galleries of the server again, or the one of a name: if its files have changed, or in any case.
pub(crate) type ReloadCall = Arc<dyn Fn(bool, Option<&str>) -> Vec<Reloaded> + Send + Sync>;

/// The galleries of a server by their names, to count their items. A gallery that was replaced is released.
type Answering = Mutex<BTreeMap<Arc<str>, Weak<Gallery>>>;

pub(crate) struct State {
    /// The name of the gallery on this server, and the names of all.
    pub(crate) name: Arc<str>,
    pub(crate) names: Arc<[String]>,
    pub(crate) gallery: Arc<Gallery>,
    pub(crate) images: Option<Images>,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    /// The embedder as one that embeds images together, if it can, and those that wait for it.
    pub(crate) batched: Option<(Arc<dyn BatchEmbedder>, Batcher<Embeddings>)>,
    pub(crate) search: Batcher<Searches>,
    pub(crate) other: Option<Arc<Other>>,
    pub(crate) queries: Option<Arc<Side>>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) training: Option<Arc<Side>>,
    pub(crate) analysis: Arc<Analysis>,
    /// The tags and selections of users.
    pub(crate) saved: Arc<Saved>,
    /// The files that it was opened from, other than that of the gallery.
    stamps: Vec<Stamp>,
    /// Empty if galleries cannot be opened again.
    pub(crate) reload: Arc<OnceLock<ReloadCall>>,
    pub(crate) metrics: Arc<Metrics>,
    answering: Arc<Answering>,
    pub(crate) limits: Limits,
    pub(crate) audit: Arc<Audit>,
    /// Limits the work on uploads.
    pub(crate) work: Gate,
    /// Limits reading and reducing images, of which a page requests hundreds at a time.
    pub(crate) reading: Gate,
    /// Changes of the gallery, one at a time: those that wait take no thread, and no place of an upload.
    pub(crate) changing: Gate,
    /// Limits the threads that wait for the gallery's index, other than those of searches.
    pub(crate) asking: Gate,
    pub(crate) options: Options,
}

/// What the galleries of a server share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) reload: Arc<OnceLock<ReloadCall>>,
    names: Arc<[String]>,
    pub(crate) metrics: Arc<Metrics>,
    answering: Arc<Answering>,
    limits: Limits,
    audit: Arc<Audit>,
    pub(crate) certificate: Option<Arc<Certificate>>,
    work: Gate,
    reading: Gate,
    /// Held by the gallery that is analysed.
    turn: Arc<Turn>,
    /// The tags and selections of each file. Two of one file would lose each other's changes.
    saved: Arc<Mutex<HashMap<PathBuf, Arc<Saved>>>>,
}

impl Shared {
    fn new(names: Arc<[String]>, options: &Options) -> Result<Self> {
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let certificate = options.tls.clone().map(Certificate::open).transpose()?.map(Arc::new);
        let audit = Arc::new(Audit::open(options.audit.clone(), options.note)?);
        Ok(Self {
            names,
            reload: Arc::default(),
            metrics: Arc::new(Metrics::new()),
            answering: Arc::default(),
            limits: Limits::new(options),
            audit,
            certificate,
            work: Gate::new(threads, options.waiting),
            reading: Gate::new(threads, 16 * options.waiting),
            turn: Arc::default(),
            saved: Arc::default(),
        })
    }

    /// The tags and selections of a gallery. Galleries of one file share them, and a reload has read them before.
    fn saved(&self, file: Option<&Path>, note: fn(&str)) -> Arc<Saved> {
        let Some(file) = file else { return Arc::new(Saved::open(None, note)) };
        let mut known = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        // Tags are stored next to the name of the file, which may be a link.
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let place = folder.join(file.file_name().unwrap_or_default());
        if let Some(saved) = known.get(&place) {
            return Arc::clone(saved);
        }
        let saved = Arc::new(Saved::open(Some(file), note));
        known.insert(place, Arc::clone(&saved));
        saved
    }
}

/// Refuses two galleries of one index, if clients may change it: each would overwrite what the other stored.
fn check_files(galleries: &[(String, Contents)]) -> Result<()> {
    let mut known = HashMap::new();
    for (name, Contents { gallery, .. }) in
        galleries.iter().filter(|(_, contents)| contents.gallery.is_index())
    {
        let Some(place) = gallery.file().and_then(|file| file.canonicalize().ok()) else { continue };
        if let Some(other) = known.insert(place, name) {
            return Err(Error::Option {
                problem: format!(
                    "the galleries `{other}` and `{name}` are the same index, and clients may change it"
                ),
                hint: Some("serve it under one name, or without --writable".to_owned()),
            });
        }
    }
    Ok(())
}

impl State {
    /// The states of several galleries, which share the limits of the server.
    pub(crate) fn all(
        galleries: Vec<(String, Contents)>,
        options: &Options,
    ) -> Result<(Vec<Arc<Self>>, Shared)> {
        let names: Arc<[String]> = galleries.iter().map(|(name, _)| name.clone()).collect();
        let refused = |problem: &str, hint: &str| {
            Err(Error::Option { problem: problem.to_owned(), hint: Some(hint.to_owned()) })
        };
        if names.is_empty() {
            return refused("there is no gallery to serve", "give one: --gallery FILE");
        }
        for (at, name) in names.iter().enumerate() {
            if name.is_empty() || names[..at].contains(name) {
                return refused(
                    &format!("two galleries have the name `{name}`, or it is empty"),
                    "choose names: --gallery NAME=FILE",
                );
            }
        }
        access::check(&options.tokens, &options.read_tokens)?;
        if options.is_writable() {
            check_files(&galleries)?;
        }
        let shared = Shared::new(names, options)?;
        let several = shared.names.len() > 1;
        let states = galleries.into_iter().map(|(name, contents)| {
            Self::new(&name, contents, options, &shared).map_err(|error| match several {
                true => Error::Option {
                    problem: format!("the gallery `{name}`: {error}"),
                    hint: error.hint().map(|hint| hint.to_string()),
                },
                false => error,
            })
        });
        Ok((states.collect::<Result<_>>()?, shared))
    }

    /// The state of a gallery.
    pub(crate) fn new(
        name: &str,
        contents: Contents,
        options: &Options,
        shared: &Shared,
    ) -> Result<Arc<Self>> {
        let Contents { gallery, images, embedder, queries, protocol, compare, compare_queries, training } =
            contents;
        if let Some(embedder) = &embedder {
            check_network(&gallery, embedder.as_ref())?;
        }
        if let Some(images) = &images {
            images.check(&gallery)?;
        }
        let images = images.map(|images| images.of_sources(gallery.sources()));
        if options.is_writable() && !gallery.is_index() {
            (options.note)(&format!(
                "`{}` is a file of embeddings: clients with the token can save tags and selections, but not add or \
                 remove items; for these, make an index with `gallerist index build FILE --out FILE.index`",
                gallery.name()
            ));
        }
        if options.is_writable() && gallery.is_index() && compare.is_some() {
            (options.note)(&format!(
                "`{}` is compared with another network, which must have the same images: clients cannot add or remove \
                 items",
                gallery.name()
            ));
        }
        if compare.is_some() && queries.is_some() != compare_queries.is_some() {
            return Err(Error::Option {
                problem: match &queries {
                    Some(_) => {
                        "two networks are compared by their queries, and those of the other are missing"
                    }
                    None => "there are queries of the other network, and none of the gallery's",
                }
                .to_owned(),
                hint: Some("give the queries of both: --queries FILE --compare-queries FILE".to_owned()),
            });
        }
        let companions = [&queries, &training].into_iter().flatten().filter_map(Companion::stamp);
        let others = [&compare, &compare_queries].into_iter().flatten().map(|path| Stamp::of(path));
        let stamps = companions.cloned().chain(others).collect();
        let side = |of: Set, companion: Option<Companion>| {
            companion.map(|companion| Side::new(of, companion, &gallery).map(Arc::new)).transpose()
        };
        let queries = side(Set::Query, queries)?;
        let training = side(Set::Training, training)?;
        let rules = Rules::new(protocol.as_deref(), &gallery, queries.as_deref(), options.note)?;
        let rules = Arc::new(rules);
        let of_queries = compare_queries.as_deref().zip(queries.as_deref());
        let other = compare.map(|path| Other::open(&path, of_queries, &gallery).map(Arc::new));
        let other = other.transpose()?;
        let saved = shared.saved(gallery.file(), options.note);
        let gallery = Arc::new(gallery);
        let input = AnalysisInput {
            queries: queries.clone(),
            rules: Arc::clone(&rules),
            other: other.clone(),
            training: training.clone(),
            map: gallery.map_file(),
        };
        let batched = embedder.clone().and_then(Embedder::batched);
        let batched = match batched {
            Some(network) => Some((Arc::clone(&network), Batcher::start(Embeddings(network))?)),
            None => None,
        };
        let analysis = Analysis::start(&gallery, input, options, Arc::clone(&shared.turn))?;
        let state = Arc::new(Self {
            name: name.into(),
            names: Arc::clone(&shared.names),
            batched,
            search: Batcher::start(Searches(Arc::clone(&gallery)))?,
            gallery,
            other,
            queries,
            rules,
            training,
            analysis,
            saved,
            stamps,
            reload: Arc::clone(&shared.reload),
            metrics: Arc::clone(&shared.metrics),
            answering: Arc::clone(&shared.answering),
            limits: shared.limits.clone(),
            audit: Arc::clone(&shared.audit),
            images,
            embedder,
            work: shared.work.clone(),
            reading: shared.reading.clone(),
            changing: Gate::new(1, 256),
            asking: Gate::new(64, 1024),
            options: options.clone(),
        });
        let mut answering = shared.answering.lock().unwrap_or_else(PoisonError::into_inner);
        answering.insert(Arc::clone(&state.name), Arc::downgrade(&state.gallery));
        Ok(state)
    }
}

impl State {
    /// Whether one of its files is not the one that was read. A gallery without a file may always have changed.
    pub(crate) fn is_outdated(&self) -> bool {
        self.gallery.is_outdated() || self.stamps.iter().any(Stamp::is_outdated)
    }

    /// The names of all galleries of the server, and how many items each has.
    pub(crate) fn counts(&self) -> Vec<(Arc<str>, usize)> {
        let answering = self.answering.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let count = |(name, gallery): (Arc<str>, Weak<Gallery>)| Some((name, gallery.upgrade()?.count()));
        answering.into_iter().filter_map(count).collect()
    }

    /// The sets that accompany the gallery.
    fn sides(&self) -> impl Iterator<Item = (Set, &Arc<Side>)> {
        let sides = [(Set::Query, &self.queries), (Set::Training, &self.training)];
        sides.into_iter().filter_map(|(set, side)| Some((set, side.as_ref()?)))
    }

    /// An item that is not in the gallery: its set and its row there.
    pub(crate) fn companion_item(&self, id: u64) -> Option<(Set, &Arc<Side>, usize)> {
        self.sides().find_map(|(set, side)| Some((set, side, side.catalog.row(id)?)))
    }
}

/// Refuses a network other than the one that embedded the gallery.
fn check_network(gallery: &Gallery, embedder: &dyn Embedder) -> Result<()> {
    let hint = Some("give the run directory of the network that embedded the gallery: --run DIR".to_owned());
    let problem = match &gallery.origin().model {
        Some(model) if model != embedder.fingerprint() => {
            format!(
                "`{}` was embedded with the network {}, and {} is given",
                gallery.name(),
                fingerprint::shown(model),
                fingerprint::shown(embedder.fingerprint())
            )
        }
        _ if gallery.dimensions() != embedder.dimensions() => format!(
            "`{}` has {} dimensions, the network gives {}",
            gallery.name(),
            gallery.dimensions(),
            embedder.dimensions()
        ),
        _ => return Ok(()),
    };
    Err(Error::Option { problem, hint })
}
