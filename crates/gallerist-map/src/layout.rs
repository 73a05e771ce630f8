//! The choice between the methods.

use gallerist_retrieval::Matrix;

use crate::error::MapError;
use crate::map::EmbeddingMap;
use crate::tsne::Tsne;
use crate::{pca, tsne};

/// How rows become points.
#[derive(Clone, Debug, PartialEq)]
pub enum MapMethod {
    /// t-SNE keeps neighbours together; distances between far groups mean little.
    Tsne(Tsne),
    /// The first two principal components. Distances are those within the plane of largest variance.
    Pca,
}

/// Computes a point in the plane for each row of `rows`, `[n, dimensions]`.
///
/// `progress(done, total)` is called on the calling thread. Rows of one or two columns are points already: they are
/// returned unchanged for every method.
///
/// # Errors
/// [`MapError::Rows`] for a value that is not finite, [`MapError::TooFew`] for t-SNE of fewer than 4
/// rows, [`MapError::Option`] for a perplexity below 1 or no steps.
pub fn layout(
    rows: &Matrix,
    method: &MapMethod,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<EmbeddingMap, MapError> {
    rows.check_finite("embeddings")?;
    if rows.cols() <= 2 {
        return Ok(EmbeddingMap {
            points: (0..rows.rows()).map(|i| point(rows.row(i))).collect(),
            method: format!("the embeddings themselves, {}-dimensional", rows.cols()),
            notes: Vec::new(),
        });
    }
    match method {
        MapMethod::Pca => {
            let components = pca::principal(rows, progress);
            let share = |i: usize| components.variance_share[i] * 100.0;
            Ok(EmbeddingMap {
                points: components.points,
                method: format!(
                    "principal components, {:.1} and {:.1} % of the variance",
                    share(0),
                    share(1)
                ),
                notes: Vec::new(),
            })
        }
        MapMethod::Tsne(options) => tsne::layout(rows, options, progress),
    }
}

fn point(row: &[f32]) -> [f32; 2] {
    [row.first().copied().unwrap_or(0.0), row.get(1).copied().unwrap_or(0.0)]
}
