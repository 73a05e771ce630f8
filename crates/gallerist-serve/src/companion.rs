//! Image sets that accompany the gallery: queries, and the training set.

use std::path::Path;

use gallerist_retrieval::index::{Items, stable_id};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix, fingerprint};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gallery::{Catalog, Entry, Gallery, as_compared};
use crate::images::Images;
use crate::stamp::Stamp;
use crate::{Error, Result};

/// Images that accompany the gallery, embedded by the gallery's network: queries, or a training set.
#[derive(Clone)]
pub struct Companion {
    name: String,
    set: EmbeddingSet,
    images: Option<Images>,
    stamp: Option<Stamp>,
}

impl Companion {
    /// Reads a file of embeddings.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let stamp = Some(Stamp::of(path));
        Ok(Self { stamp, ..Self::from_set(path.display().to_string(), EmbeddingSet::load(path)?) })
    }

    /// Embeddings in memory.
    pub fn from_set(name: impl Into<String>, set: EmbeddingSet) -> Self {
        Self { name: name.into(), set, images: None, stamp: None }
    }

    /// Adds the images of the embeddings.
    #[must_use]
    pub fn with_images(self, images: Option<Images>) -> Self {
        Self { images, ..self }
    }

    /// Its file when it was read.
    pub(crate) fn stamp(&self) -> Option<&Stamp> {
        self.stamp.as_ref()
    }

    /// The embeddings and their metadata.
    pub fn set(&self) -> &EmbeddingSet {
        &self.set
    }
}

/// The set of images that an item belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Set {
    /// The images that are searched.
    #[default]
    Gallery,
    /// The queries that the gallery is measured with.
    Query,
    /// The images that the network was trained on.
    Training,
}

impl Set {
    /// Its name in messages.
    fn words(self) -> &'static str {
        match self {
            Self::Gallery => "gallery",
            Self::Query => "query set",
            Self::Training => "training set",
        }
    }
}

/// A companion, prepared: its items can be shown and used as queries, but are never results.
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) catalog: Catalog,
    /// The rows as they are compared with the gallery's, in the order of the catalog.
    pub(crate) rows: Matrix,
    /// How the gallery's rows are compared.
    pub(crate) metric: Metric,
    pub(crate) images: Option<Images>,
    /// The evaluation protocol of the data set, if the file names it.
    pub(crate) protocol: Option<String>,
}

impl Side {
    /// Refuses images that were embedded by another network than the gallery.
    pub(crate) fn new(of: Set, companion: Companion, gallery: &Gallery) -> Result<Self> {
        let Companion { name, set, images, .. } = companion;
        check(of, &name, &set, gallery)?;
        let metric = gallery.metric();
        let rows = as_compared(metric, &set.embeddings);
        let protocol = set.protocol.clone();
        let sources = set.sources.as_ref().map_or(&[][..], |sources| sources.list());
        let images = images.map(|images| images.of_sources(sources));
        let items = Items::from_set(set)?;
        let mut catalog = Catalog::default();
        for row in 0..items.len() {
            let item = items.item(row);
            // The same image may also be in the gallery: the ids of the two differ.
            let id = stable_id(&format!("{of:?} {}", item.id));
            catalog.push(id, Entry::from(&item));
        }
        let catalog = catalog.with_columns(items.set().columns.clone());
        Ok(Self { name, catalog, rows, metric, images, protocol })
    }
}

fn check(of: Set, name: &str, set: &EmbeddingSet, gallery: &Gallery) -> Result<()> {
    let metrics = [gallery.origin().metric, set.metric].map(Option::unwrap_or_default);
    if gallery.metric() != Metric::Cosine && metrics[0] != metrics[1] {
        let [first, other] = metrics;
        return Err(gallerist_retrieval::Error::Metrics { first, other }.into());
    }
    let (of, dimensions) = (of.words(), gallery.dimensions());
    let (rows, cols) = (set.embeddings.rows(), set.embeddings.cols());
    let problem = match (&gallery.origin().model, &set.model) {
        (Some(model), Some(other)) if !fingerprint::comparable(model, other, gallery.metric()) => format!(
            "the {of} `{name}` was embedded with the network {}, the gallery with {}",
            fingerprint::shown(other),
            fingerprint::shown(model)
        ),
        _ if cols != dimensions || rows == 0 => {
            format!("the {of} `{name}` has {rows} rows of {cols} values, the gallery's have {dimensions}")
        }
        _ => return Ok(set.embeddings.check_finite("the embeddings")?),
    };
    Err(Error::Option { problem, hint: Some(format!("embed the {of} with the gallery's network")) })
}
