//! The map of the gallery.

use std::path::Path;

use gallerist_map::{MapMethod, Tsne, layout};
use gallerist_retrieval::labels::encode;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_util::sync::atomic::{AtomicBool, Ordering};
use gallerist_util::{hex, interrupt};
use sha2::{Digest, Sha256};

use super::snapshot::Snapshot;
use crate::{Error, Options, Result};

/// The label number of a point without a label.
const NONE: u32 = u32::MAX;

/// A point for each item, encoded for the page.
pub(crate) struct GalleryMap {
    /// The method: `t-SNE, perplexity 30`.
    pub(crate) method: String,
    pub(crate) count: usize,
    pub(crate) labels: Vec<String>,
    /// Little-endian: ids (u64), x (f32), y (f32), label numbers (u32), one list after the other.
    pub(crate) bytes: Vec<u8>,
}

impl GalleryMap {
    /// The map stored in the file `kept` if it was made from these rows; otherwise a new one, which is stored there.
    /// Ends without a map when `stopped` is set.
    pub(super) fn new(
        snapshot: &Snapshot,
        kept: Option<&Path>,
        options: &Options,
        stopped: &AtomicBool,
    ) -> Result<Self> {
        let fingerprint = fingerprint(snapshot, options);
        if let Some(set) = kept.and_then(|path| EmbeddingSet::load(path).ok())
            && set.model.as_ref() == Some(&fingerprint)
            && (set.embeddings.rows(), set.embeddings.cols()) == (snapshot.ids.len(), 2)
        {
            let method = set.source.unwrap_or_default();
            return Ok(Self::of(snapshot, &set.embeddings, method));
        }
        let method = method(snapshot, options);
        let mut progress = |_, _| {
            if stopped.load(Ordering::Relaxed) {
                interrupt::throw();
            }
        };
        let found = layout(&snapshot.rows, &method, &mut progress)
            .map_err(|error| Error::Option { problem: error.to_string(), hint: error.hint() })?;
        let points = Matrix::new(found.points.len(), 2, found.points.concat())?;
        if let Some(path) = kept {
            let set = EmbeddingSet {
                model: Some(fingerprint),
                source: Some(found.method.clone()),
                ..points.clone().into()
            };
            if let Err(error) = set.save(path) {
                (options.note)(&format!("the map is not kept: {error}"));
            }
        }
        Ok(Self::of(snapshot, &points, found.method))
    }

    /// The ids, x and y of the points.
    pub(crate) fn points(&self) -> (Vec<u64>, Vec<f32>, Vec<f32>) {
        let (ids, rest) = self.bytes.split_at(8 * self.count);
        let (xs, rest) = rest.split_at(4 * self.count);
        let ids = ids.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let floats =
            |bytes: &[u8]| bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        (ids, floats(xs), floats(&rest[..4 * self.count]))
    }

    fn of(snapshot: &Snapshot, points: &Matrix, method: String) -> Self {
        let encoded = encode(&snapshot.labels);
        let mut bytes = Vec::with_capacity(snapshot.ids.len() * 20);
        snapshot.ids.iter().for_each(|id| bytes.extend(id.to_le_bytes()));
        for axis in 0..2 {
            (0..points.rows()).for_each(|row| bytes.extend(points.row(row)[axis].to_le_bytes()));
        }
        for (class, label) in encoded.ids.iter().zip(&snapshot.labels) {
            let class = if label.is_empty() { NONE } else { *class };
            bytes.extend(class.to_le_bytes());
        }
        Self { method, count: snapshot.ids.len(), labels: encoded.names, bytes }
    }
}

/// t-SNE for galleries of up to [`Options::tsne_items`], principal components for larger ones.
fn method(snapshot: &Snapshot, options: &Options) -> MapMethod {
    match snapshot.ids.len() {
        4.. if snapshot.ids.len() <= options.tsne_items => MapMethod::Tsne(Tsne::default()),
        _ => MapMethod::Pca,
    }
}

/// A digest of the rows, their order and the method.
fn fingerprint(snapshot: &Snapshot, options: &Options) -> String {
    let mut digest = Sha256::new();
    digest.update(format!("{:?}", method(snapshot, options)));
    snapshot.ids.iter().for_each(|id| digest.update(id.to_le_bytes()));
    snapshot.rows.as_slice().iter().for_each(|value| digest.update(value.to_le_bytes()));
    hex::encode(&digest.finalize())
}
