//! What the requests share.

use std::path::PathBuf;
use std::sync::Arc;

use gallerist_retrieval::{EmbeddingSet, short_fingerprint};

use crate::analysis::{Analysis, Beside, Other, check_training};
use crate::batch::Batcher;
use crate::embedder::Embedder;
use crate::gallery::Gallery;
use crate::gate::Gate;
use crate::images::Images;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::{Error, Result};

/// What a server shows: a gallery, its images, the network that embedded it.
pub struct Contents {
    /// The gallery.
    pub gallery: Gallery,
    /// Its images, where they are at hand.
    pub images: Option<Images>,
    /// The network that embedded it.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The same images embedded by another network, to be compared with.
    pub compare: Option<PathBuf>,
    /// The training images embedded by the gallery's network, to be looked for in the gallery.
    pub training: Option<PathBuf>,
}

impl From<Gallery> for Contents {
    fn from(gallery: Gallery) -> Self {
        Self { gallery, images: None, embedder: None, compare: None, training: None }
    }
}

pub(crate) struct State {
    pub(crate) gallery: Arc<Gallery>,
    pub(crate) images: Option<Arc<Images>>,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    pub(crate) search: Batcher,
    pub(crate) other: Option<Arc<Other>>,
    pub(crate) training: Option<String>,
    pub(crate) analysis: Arc<Analysis>,
    pub(crate) metrics: Metrics,
    /// For uploads.
    pub(crate) work: Gate,
    /// For reading and reducing images, of which a page asks for hundreds at a time.
    pub(crate) reading: Gate,
    pub(crate) options: Options,
}

impl State {
    pub(crate) fn new(contents: Contents, options: Options) -> Result<Arc<Self>> {
        let Contents { gallery, images, embedder, compare, training } = contents;
        if let Some(embedder) = &embedder {
            check_network(&gallery, embedder.as_ref())?;
        }
        if let Some(images) = &images {
            images.check(&gallery)?;
        }
        if options.token.is_some() && !gallery.is_index() {
            return Err(Error::Option {
                problem: format!(
                    "`{}` is a file of embeddings; only an index can be changed",
                    gallery.name()
                ),
                hint: Some("make one with `gallerist index build FILE --out FILE.index`".to_owned()),
            });
        }
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let other = compare.map(|path| Other::open(&path, &gallery).map(Arc::new)).transpose()?;
        let training_name = training.as_ref().map(|path| path.display().to_string());
        let training = training.map(EmbeddingSet::load).transpose()?;
        if let Some(training) = &training {
            check_training(training, &gallery)?;
        }
        let gallery = Arc::new(gallery);
        let beside = Beside { other: other.clone(), training, map: gallery.map_file() };
        let analysis = Analysis::start(&gallery, beside, &options)?;
        Ok(Arc::new(Self {
            search: Batcher::start(Arc::clone(&gallery))?,
            gallery,
            other,
            training: training_name,
            analysis,
            metrics: Metrics::new(),
            images: images.map(Arc::new),
            embedder,
            work: Gate::new(threads, options.waiting),
            reading: Gate::new(threads, 16 * options.waiting),
            options,
        }))
    }
}

/// Refuses a network whose embeddings mean nothing among the gallery's.
fn check_network(gallery: &Gallery, embedder: &dyn Embedder) -> Result<()> {
    let hint = Some("give the run directory of the network that embedded the gallery: --run DIR".to_owned());
    let problem = match &gallery.origin().model {
        Some(model) if model != embedder.fingerprint() => {
            format!(
                "`{}` was embedded with the network {}, and {} is given",
                gallery.name(),
                short_fingerprint(model),
                short_fingerprint(embedder.fingerprint())
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
