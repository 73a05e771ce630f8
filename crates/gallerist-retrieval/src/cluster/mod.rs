//! k-means, and how well clusters agree with classes.
//!
//! The literature of metric learning reports NMI over a k-means clustering of the test set into
//! as many clusters as there are classes. The number depends on the k-means, so its preset and
//! its seed belong to the report.

mod agreement;
mod kmeans;

use serde::{Deserialize, Serialize};

use crate::search::Metric;
use crate::{Error, Matrix, Result, labels};

pub use agreement::{adjusted_mutual_information, normalized_mutual_information, pair_f1};
pub use kmeans::{Clustering, KMeans, Preset, Start, kmeans};

/// How well a k-means clustering agrees with the classes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// [`normalized_mutual_information`].
    pub nmi: f64,
    /// [`adjusted_mutual_information`].
    pub ami: f64,
    /// [`pair_f1`].
    pub pair_f1: f64,
    /// The mean squared distance of a row to its centre.
    pub mean_squared_distance: f64,
    /// The k-means that was run: one cluster per class.
    pub kmeans: KMeans,
}

/// Clusters the rows into as many clusters as there are labels, and compares.
///
/// For [`Metric::Cosine`] the rows are normalised first; the distance of k-means is the
/// Euclidean one in any case. `preset` is called with the number of classes, as
/// [`KMeans::faiss20`] is.
///
/// # Errors
/// As [`kmeans`], and [`Error::Count`] when there is not one label per row.
pub fn agreement(
    embeddings: &Matrix,
    labels: &[u32],
    metric: Metric,
    preset: impl Fn(usize) -> KMeans,
) -> Result<Agreement> {
    if labels.len() != embeddings.rows() {
        return Err(Error::Count {
            what: "labels",
            rows: "embeddings",
            wanted: embeddings.rows(),
            found: labels.len(),
        });
    }
    let names: Vec<String> = labels.iter().map(u32::to_string).collect();
    let kmeans_options = preset(labels::encode(&names).names.len());
    embeddings.check_finite("embeddings")?;
    let clustering = match metric {
        Metric::Cosine => kmeans(&embeddings.l2_normalized().0, &kmeans_options)?,
        Metric::InnerProduct | Metric::Euclidean => kmeans(embeddings, &kmeans_options)?,
    };
    let clusters = &clustering.assignments;
    Ok(Agreement {
        nmi: normalized_mutual_information(labels, clusters),
        ami: adjusted_mutual_information(labels, clusters),
        pair_f1: pair_f1(labels, clusters),
        mean_squared_distance: clustering.mean_squared_distance,
        kmeans: kmeans_options,
    })
}
