//! Rankings made again: [`KReciprocal`] changes the distances, [`QueryExpansion`] the queries.
//!
//! Both look at the gallery as a whole, so a figure that they helped to is not comparable with one
//! that they did not: reports give it a row of its own. They never see a label or a camera.
//!
//! ```
//! use gallerist_retrieval::{Matrix, rerank::{KReciprocal, QueryExpansion}, search::Metric};
//!
//! let gallery = Matrix::new(5, 1, vec![0.0, 1.0, 2.0, 10.0, 11.0])?;
//! let queries = Matrix::new(1, 1, vec![6.2])?;
//! let options = KReciprocal { k1: 2, k2: 1, ..KReciprocal::default() };
//! let reranker = options.prepare(Some(queries.view()), gallery.view(), Metric::Euclidean)?;
//! let lists = reranker.search(&queries, &gallery, 2)?;
//! // 2.0 is nearer to the query than 11.0, which is a mutual neighbour of 10.0.
//! assert_eq!(lists.indices(0), [3, 4]);
//!
//! let expansion = QueryExpansion { neighbours: 1, alpha: 0.0 };
//! let moved = expansion.expand(Some(queries.view()), gallery.view(), Metric::Euclidean)?;
//! assert_eq!(moved.row(0), [(6.2 + 10.0) / 2.0]);
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

mod k_reciprocal;
mod query_expansion;
mod sparse;

pub use k_reciprocal::{KReciprocal, Reranker};
pub use query_expansion::QueryExpansion;

use crate::search::Metric;
use crate::{Error, MatrixView, Result};

/// Refuses sides that cannot be compared.
fn check(queries: Option<MatrixView>, gallery: MatrixView) -> Result<()> {
    if gallery.rows() == 0 {
        return Err(Error::Empty { what: "the gallery" });
    }
    if let Some(queries) = queries
        && queries.cols() != gallery.cols()
    {
        return Err(Error::Dimensions { queries: queries.cols(), gallery: gallery.cols() });
    }
    Ok(())
}

/// The inner product in f64.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    sums.iter().sum::<f64>() + rest
}

/// Refuses the inner product, under which a row need not be its own nearest neighbour.
fn check_metric(metric: Metric) -> Result<()> {
    match metric {
        Metric::Cosine | Metric::Euclidean => Ok(()),
        Metric::InnerProduct => Err(Error::Option {
            option: "the metric",
            wanted: "the cosine or the Euclidean distance for re-ranking",
            found: "the inner product".to_owned(),
        }),
    }
}
