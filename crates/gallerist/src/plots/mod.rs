//! Figures of one or several runs, as SVG or PNG.
//!
//! A [`Source`] is the test embeddings of a run, or other embeddings: one set, or queries and a gallery.
//! The functions compute the data that [`gallerist_report::figure`] draws, with the same rules as the metrics.
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use gallerist::plots::{self, Source};
//!
//! let runs = [Source::of_run(Path::new("runs/rll"))?, Source::of_run(Path::new("runs/ice"))?];
//! plots::distances(&runs, 1)?.write("distances.svg", None)?;
//!
//! let method = plots::MapMethod::Tsne(plots::Tsne::default());
//! let (map, notes) = plots::map(&runs[0], &method, true, &mut |_done, _total| ())?;
//! map.write("map.png", None)?;
//! notes.iter().for_each(|note| eprintln!("{note}"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod charts;
mod clusters;
mod curves;
mod distances;
mod map;
mod open_set;
mod ranked;
mod rates;
mod source;
mod sprite;
mod text;

pub use clusters::clusters;
pub(crate) use curves::charts_of_runs;
pub use curves::curves;
pub use distances::distances;
pub use gallerist_map::{MapMethod, Tsne};
pub(crate) use map::PageMap;
pub use map::map;
pub use open_set::open_set;
pub use ranked::{Queries, ranked};
pub use rates::{cmc, pr};
pub use source::{File, Source};
pub(crate) use source::{Point, Points, Side};
pub(crate) use sprite::sprite;
pub(crate) use text::{joined, measure};
pub use text::{name_of, names_of};
