//! What the requests share.

use std::sync::Arc;

use crate::batch::Batcher;
use crate::embedder::Embedder;
use crate::gallery::Gallery;
use crate::gate::Gate;
use crate::images::Images;
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
}

pub(crate) struct State {
    pub(crate) gallery: Arc<Gallery>,
    pub(crate) images: Option<Arc<Images>>,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    pub(crate) search: Batcher,
    /// For uploads.
    pub(crate) work: Gate,
    /// For reading and reducing images, of which a page asks for hundreds at a time.
    pub(crate) reading: Gate,
    pub(crate) options: Options,
}

impl State {
    pub(crate) fn new(contents: Contents, options: Options) -> Result<Arc<Self>> {
        let Contents { gallery, images, embedder } = contents;
        if let Some(embedder) = &embedder {
            check_network(&gallery, embedder.as_ref())?;
        }
        if let Some(images) = &images {
            images.check(&gallery.read().catalog)?;
        }
        if options.token.is_some() && !gallery.is_index() {
            return Err(Error::Option {
                problem: format!("`{}` is a file of embeddings; only an index can be changed", gallery.name()),
                hint: Some("make one with `gallerist index build FILE --out FILE.index`".to_owned()),
            });
        }
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let gallery = Arc::new(gallery);
        Ok(Arc::new(Self {
            search: Batcher::start(Arc::clone(&gallery))?,
            gallery,
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
            let short = |fingerprint: &str| fingerprint.chars().take(16).collect::<String>();
            format!(
                "`{}` was embedded with the network {}, and {} is given",
                gallery.name(),
                short(model),
                short(embedder.fingerprint())
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
