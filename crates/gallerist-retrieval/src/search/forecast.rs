//! Floors for long lists, estimated from a sample of the gallery before the search.
//!
//! A list of k that starts empty accepts about `k (1 + ln(n / k))` of n candidates and drops most of
//! them later. The scores of a few random rows give an estimate of the k-th best score: a
//! floor a little below it admits hardly more than k. The estimate may be too high, for one list in a
//! million; then fewer than k are found, and that list is computed again without it. So lists are exact
//! for every sample.

use super::best::Best;
use super::metric::Metric;
use super::options::SearchOptions;
use super::scorer::Scorer;
use super::split::scan;
use crate::product::{Kernel, LANES, Panels};
use crate::random::{different, generator};

/// The expected place, in the sample, of a list's last item.
const PLACE: usize = 32;
/// The distance of the floor from that place, in standard deviations of the place (a Poisson variable).
const DEVIATIONS: usize = 5;
/// Galleries of fewer rows per wanted result gain nothing.
const LEAST_ROWS_PER_RESULT: usize = 16;
/// Shorter lists gain nothing.
const LEAST_K: usize = 256;

/// Rows of a gallery drawn at random, packed.
pub(super) struct Forecast {
    metric: Metric,
    sample: Panels,
    /// The place in the sample whose score is the floor.
    pub(super) place: usize,
}

impl Forecast {
    /// `None` where it saves no time, or where a filter selects the results.
    pub(super) fn new(gallery: &Panels, k: usize, options: &SearchOptions) -> Option<Self> {
        let pays = k >= LEAST_K && gallery.rows() / k >= LEAST_ROWS_PER_RESULT;
        if !pays || options.filter.is_some() {
            return None;
        }
        let rows = different(gallery.rows(), PLACE * gallery.rows() / k, &mut generator(0, 0));
        let read =
            |i: usize, to: &mut [f32]| to.iter_mut().zip(gallery.row(rows[i])).for_each(|(to, v)| *to = v);
        let sample = Panels::gather(gallery.depth(), rows.len(), read, |row| options.metric.bias(row));
        // The sample may contain the query's own row.
        let place = PLACE + DEVIATIONS * PLACE.isqrt() + 1;
        Some(Self { metric: options.metric, sample, place })
    }

    /// Raises the floors of the lists of `panels`' rows.
    pub(super) fn raise(
        &self,
        kernel: Kernel,
        queries: &Panels,
        panels: std::ops::Range<usize>,
        best: &mut Best,
    ) {
        let scorer = Scorer::new(self.metric, queries, &self.sample);
        let options = SearchOptions { metric: self.metric, ..SearchOptions::new(self.place) };
        let rows = queries.rows().min(panels.end * LANES) - panels.start * LANES;
        let mut sampled = Best::new(rows, self.place);
        scan(kernel, &scorer, panels, (0, 0..self.sample.panels()), &options, &mut sampled);
        for row in 0..rows {
            if let Some(floor) = sampled.worst(row) {
                best.raise(row, floor);
            }
        }
    }
}
