//! Maps of embeddings: every row of a matrix becomes a point in the plane.
//!
//! No tensor engine is needed here. Rows are compared by Euclidean distance; for embeddings that are
//! compared by cosine, normalise them first ([`Matrix::l2_normalized`]).
//!
//! A layout depends on the rows and the options alone: the same input gives the same bits, for any
//! number of threads.
//!
//! ```
//! use gallerist_map::{MapMethod, Tsne, layout};
//! use gallerist_retrieval::Matrix;
//!
//! // Two groups of ten rows, far apart.
//! let rows = (0..20).flat_map(|i| [(i / 10) as f32 * 9.0, (i % 3) as f32, (i % 5) as f32]).collect();
//! let rows = Matrix::new(20, 3, rows)?;
//! let method = MapMethod::Tsne(Tsne { perplexity: 5.0, ..Tsne::default() });
//! let map = layout(&rows, &method, &mut |_done, _total| ())?;
//! assert_eq!(map.points.len(), 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod pca;
mod tsne;

use gallerist_retrieval::Matrix;

pub use tsne::Tsne;

/// How rows become points.
#[derive(Clone, Debug, PartialEq)]
pub enum MapMethod {
    /// Neighbours stay neighbours; distances between far groups mean little.
    Tsne(Tsne),
    /// The two directions of largest variance: distances are true, but only in these two directions.
    Pca,
}

/// Points in the plane.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingMap {
    /// One point per row, in the order of the rows.
    pub points: Vec<[f32; 2]>,
    /// How the points came about, for a caption: `t-SNE, perplexity 30`.
    pub method: String,
    /// What was done differently from what was asked, one sentence each.
    pub notes: Vec<String>,
}

/// A fault in what the caller gave.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The rows cannot be compared: a NaN or an infinity.
    #[error(transparent)]
    Rows(#[from] gallerist_retrieval::Error),
    /// Too few rows for a neighbourhood.
    #[error("t-SNE needs at least {wanted} rows, found {found}")]
    TooFew {
        /// The least number of rows.
        wanted: usize,
        /// The rows given.
        found: usize,
    },
    /// An option outside its range.
    #[error("{option} must be {wanted}, found {found}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// Its range.
        wanted: &'static str,
        /// The value given.
        found: String,
    },
}

impl MapError {
    /// What the user can do about it, if there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Rows(error) => error.hint(),
            Self::TooFew { .. } => {
                Some("use principal components (`pca`), which need no neighbours".to_owned())
            }
            Self::Option { .. } => None,
        }
    }
}

/// Lays the rows of `rows` out in the plane.
///
/// `progress(done, total)` is called on the calling thread as the work goes on. Rows of one or two
/// columns are points already and are returned as they are, whatever the method.
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
