//! Curves of open-set identification.

use std::borrow::Borrow;

use gallerist_report::figure::{self, Figure, OpenSetCurve};
use gallerist_retrieval::eval::OpenSetOptions;
use gallerist_train::Result;

use super::source::Source;
use super::text::joined;
use crate::text::open_set_searches;

/// Detection and identification rate against false alarm rate, for each source. `seed` decides which classes are taken out
/// of the gallery if no query is without a match.
///
/// # Errors
///
/// When there are no labels, or too few of them.
pub fn open_set<S: Borrow<Source>>(sources: &[S], seed: u64) -> Result<Figure> {
    let (mut notes, mut runs) = (Vec::new(), Vec::new());
    for source in sources {
        let source: &Source = source.borrow();
        let found = source.open_set(&OpenSetOptions { seed, ..OpenSetOptions::default() })?;
        notes.push((source.name.clone(), format!("{}.{}", open_set_searches(&found), source.part())));
        runs.push(OpenSetCurve { name: source.name.clone(), points: found.curve });
    }
    let title = "Known classes identified at a false alarm rate of unknown ones (DIR), %";
    Ok(figure::open_set(title, &joined(&notes), &runs))
}
