//! Maps of embeddings: each row of a matrix becomes a point in the plane.
//!
//! This crate needs no tensor engine. It compares rows by Euclidean distance; for embeddings that are compared by the
//! cosine, normalise them first ([`Matrix::l2_normalized`](gallerist_retrieval::Matrix::l2_normalized)).
//!
//! A map depends only on the rows and the options: the same input gives the same bits for any number of threads.
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

mod error;
mod layout;
mod map;
mod pca;
mod tsne;

pub use error::MapError;
pub use layout::{MapMethod, layout};
pub use map::EmbeddingMap;
pub use tsne::Tsne;
