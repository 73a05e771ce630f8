//! Galleries that change: items are added and removed, and lists name items by stable ids.
//!
//! [`Index`] is the interface of exact search, approximate search and vector databases. Every
//! implementation keeps the same promises: an id names one item; a list is ordered by score, then by
//! the lower id; a score is what exact search computes, up to rounding; a row that is not finite is
//! refused, and the error names it.
//!
//! ```
//! use gallerist_retrieval::index::{ExactIndex, Index, ItemFilter, Items};
//! use gallerist_retrieval::{EmbeddingSet, Matrix, search::Metric};
//!
//! let rows = Matrix::new(3, 2, vec![1.0, 0.0, 0.8, 0.6, 0.0, 1.0])?;
//! let labels = ["heron", "wren", "wren"].map(String::from).to_vec();
//! let set = EmbeddingSet { labels: Some(labels), ..rows.into() };
//!
//! let mut index = ExactIndex::new(2, Metric::Cosine)?;
//! index.upsert(&Items::new(vec![10, 20, 30], set)?)?;
//! let query = Matrix::new(1, 2, vec![1.0, 0.1])?;
//! let lists = index.search(query.view(), 2, &ItemFilter::default())?;
//! assert_eq!(lists.ids(0), [10, 20]);
//! let wrens = ItemFilter::default().label_in(["wren"]);
//! assert_eq!(index.search(query.view(), 2, &wrens)?.ids(0), [20, 30]);
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

mod catalog;
mod contract;
mod exact;
mod file;
mod filter;
mod hnsw;
mod info;
mod item_name;
mod items;
mod list;
mod lists;
mod local;
mod origin;
mod store;
mod values;

pub use contract::{Added, Addition, Index, Replaced, check_path_ids, rows_of_other_sources};
pub use exact::ExactIndex;
pub use file::is_index;
pub use filter::{Among, ItemFilter};
pub use hnsw::{HnswIndex, HnswOptions};
pub use info::{IndexInfo, IndexKind, check_queries};
pub use item_name::ItemName;
pub use items::{Item, Items, MAX_ID, check_id_of_path, item_id, stable_id};
pub use list::{IndexSettings, create_index, index_kinds, open_index};
pub use lists::IdLists;
pub use origin::Origin;
