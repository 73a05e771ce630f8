//! What is computed once, after the start, while requests are answered: which queries fail, which classes are confused,
//! which items are near-duplicates, the map.
//!
//! It covers the items that the server started with. Answers leave out items that have been removed since.

mod clusters;
mod compare;
mod failures;
mod map;
mod pairs;
mod run;
mod slot;
mod snapshot;
mod turn;

pub(crate) use clusters::{WIDTHS, clusters};
pub(crate) use compare::Other;
pub(crate) use failures::{Failure, QueryOrder};
pub(crate) use pairs::{Pair, Pairs};
pub(crate) use run::{Analysis, AnalysisInput};
pub(crate) use turn::Turn;
