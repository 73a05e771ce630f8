//! Searches of a gallery for known and unknown identities: open-set identification.

use std::collections::{HashMap, HashSet};

use super::super::allowed;
use super::super::classes::RowClasses;
use super::super::ranks::Problem;
use super::pairs::{WHOLE, key_of};
use crate::Result;
use crate::random::{different, generator};
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, pack_rows};

/// A query's best scores in the gallery, as keys of which a greater one is closer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Searched {
    /// The query's identity.
    pub(crate) identity: u32,
    /// Whether the gallery has images of this identity.
    pub(crate) known: bool,
    /// The best image of the identity that counts for the query.
    pub(crate) own: Option<u32>,
    /// The best image of another identity.
    pub(crate) other: Option<u32>,
}

impl Searched {
    /// The highest key at which the nearest item is of the query's identity and a match; `None` if the nearest item is of
    /// another identity. Where items of both are exactly as close, it is not decided which comes first: a miss.
    pub(crate) fn identified_to(&self) -> Option<u32> {
        self.own.filter(|&own| self.other.is_none_or(|other| own > other))
    }

    /// Whether that is so at this key.
    pub(crate) fn identified(&self, key: u32) -> bool {
        self.identified_to().is_some_and(|own| own >= key)
    }
}

/// The searches of a set.
pub(crate) struct Searches {
    /// Those of unknown identities, and those that have an image to find.
    pub(crate) queries: Vec<Searched>,
    /// Images of the gallery that were searched.
    pub(crate) gallery: usize,
    /// Identities that were taken out of the gallery to be unknown.
    pub(crate) taken_out: usize,
}

/// Searches the gallery for every query. Where no query is of an identity without images in the gallery, or the queries
/// are the gallery, half of the queries' identities, drawn with `seed`, are taken out of the gallery.
pub(crate) fn search(problem: &Problem, metric: Metric, seed: u64) -> Result<Searches> {
    let (queries, gallery) = (&problem.queries, &problem.gallery);
    let counts = |label: u32| Some(label) != problem.junk;
    let classes = RowClasses { queries: queries.labels, gallery: Some(gallery.labels), junk: problem.junk };
    let taken_out = taken_out(&classes, seed);
    let kept = |label: &u32| counts(*label) && !taken_out.contains(label);
    let mut items: Vec<usize> = (0..gallery.labels.len()).filter(|&row| kept(&gallery.labels[row])).collect();
    items.sort_by_key(|&row| gallery.labels[row]);
    let rows: Vec<usize> = (0..queries.labels.len()).filter(|&row| counts(queries.labels[row])).collect();
    let packed_items = pack_rows(gallery.embeddings, &items, "gallery", metric)?;
    let packed_queries = pack_rows(queries.embeddings, &rows, "queries", metric)?;
    let mut found = score_rows(metric, (&packed_queries, &packed_items), Against::All, |at, scores| {
        let query = rows[at];
        let identity = queries.labels[query];
        let start = items.partition_point(|&item| gallery.labels[item] < identity);
        let end = start + items[start..].partition_point(|&item| gallery.labels[item] == identity);
        let best = |scores: &[f32]| scores.iter().map(|&score| key_of(score)).max();
        let counted = (start..end).filter(|&place| !problem.skips(query, items[place]));
        Searched {
            identity,
            known: start < end,
            own: counted.map(|place| key_of(scores[place])).max(),
            other: best(&scores[..start]).max(best(&scores[end..])),
        }
    });
    // A known identity without another image has nothing to find.
    found.retain(|searched| !searched.known || searched.own.is_some());
    Ok(Searches { queries: found, gallery: items.len(), taken_out: taken_out.len() })
}

/// The identities that are taken out of the gallery to be unknown: none if some query is of an identity without images in
/// the gallery, else half of the queries' identities, drawn with `seed`.
fn taken_out(classes: &RowClasses, seed: u64) -> HashSet<u32> {
    let searched = classes.searched().iter().copied();
    let enrolled: HashSet<u32> = searched.filter(|&label| Some(label) != classes.junk).collect();
    let mut identities = classes.sorted();
    identities.dedup();
    if identities.iter().any(|identity| !enrolled.contains(identity)) {
        return HashSet::new();
    }
    let drawn = different(identities.len(), identities.len() / 2, &mut generator(seed, u64::MAX));
    drawn.into_iter().map(|at| identities[at]).collect()
}

/// The numbers of searches that [`search`] makes at most, from the classes alone.
pub(super) struct Expected {
    /// Searches for identities in the gallery that have an image to find. Cameras are not regarded.
    pub(super) known: usize,
    /// Searches for unknown identities.
    pub(super) unknown: usize,
    /// Unknown identities.
    pub(super) unknown_identities: usize,
}

impl Expected {
    pub(super) fn new(classes: &RowClasses, seed: u64) -> Self {
        let taken_out = taken_out(classes, seed);
        let is_kept = |label: &u32| Some(*label) != classes.junk && !taken_out.contains(label);
        let images = sizes(classes.searched().iter().copied().filter(is_kept));
        let least = if classes.gallery.is_none() { 2 } else { 1 };
        let mut unknown: Vec<u32> = Vec::new();
        let mut known = 0;
        for label in classes.sorted() {
            match images.get(&label) {
                Some(&images) => known += usize::from(images >= least),
                None => unknown.push(label),
            }
        }
        // The classes are sorted.
        let identities = unknown.chunk_by(|a, b| a == b).count();
        Self { known, unknown: unknown.len(), unknown_identities: identities }
    }
}

/// Searches of some identities, of which each has the same weight.
pub(super) struct Weighed {
    /// The best keys of the searches of unknown identities, falling, with their weights.
    alarms: Vec<(Option<u32>, u64)>,
    total: u128,
}

impl Weighed {
    /// The searches of the unknown identities in `kept`.
    pub(super) fn new(searches: &Searches, kept: impl Fn(u32) -> bool) -> Self {
        let of: Vec<&Searched> =
            searches.queries.iter().filter(|search| !search.known && kept(search.identity)).collect();
        let sizes = sizes(of.iter().map(|search| search.identity));
        let mut alarms: Vec<(Option<u32>, u64)> =
            of.iter().map(|search| (search.other, WHOLE / sizes[&search.identity])).collect();
        alarms.sort_unstable_by(|a, b| b.cmp(a));
        let total = alarms.iter().map(|&(_, weight)| u128::from(weight)).sum();
        Self { alarms, total }
    }

    pub(super) fn len(&self) -> usize {
        self.alarms.len()
    }

    /// For each rate the lowest key at which at most this share of the searches returns a match.
    pub(super) fn keys_at(&self, rates: &[f64]) -> Vec<u32> {
        let key = |rate: &f64| {
            let limit = allowed(*rate, self.total as f64) as u128;
            let mut sum = 0;
            let refused = self.alarms.iter().find(|&&(_, weight)| {
                sum += u128::from(weight);
                sum > limit
            });
            refused.and_then(|&(key, _)| key).map_or(0, |key| key + 1)
        };
        rates.iter().map(key).collect()
    }

    /// The share of the searches that returns a match at each key.
    pub(super) fn rates(&self, keys: &[u32]) -> Vec<f64> {
        let rate = |&key: &u32| {
            let accepted = self.alarms.iter().filter(|(best, _)| best.is_some_and(|best| best >= key));
            accepted.map(|&(_, weight)| u128::from(weight)).sum::<u128>() as f64 / self.total as f64
        };
        keys.iter().map(rate).collect()
    }
}

/// The share of the searches of known identities that miss at each key, every identity with the same weight.
pub(super) fn miss_rates(searches: &Searches, keys: &[u32]) -> Vec<Option<f64>> {
    let known: Vec<&Searched> = searches.queries.iter().filter(|search| search.known).collect();
    let sizes = sizes(known.iter().map(|search| search.identity));
    let weight = |search: &&&Searched| u128::from(WHOLE / sizes[&search.identity]);
    let all: u128 = known.iter().map(|search| weight(&search)).sum();
    let rate = |&key: &u32| {
        let hits = known.iter().filter(|search| search.identified(key));
        let sum: u128 = hits.map(|search| weight(&search)).sum();
        (all > 0).then(|| 1.0 - sum as f64 / all as f64)
    };
    keys.iter().map(rate).collect()
}

fn sizes(identities: impl Iterator<Item = u32>) -> HashMap<u32, u64> {
    let mut sizes = HashMap::new();
    identities.for_each(|identity| *sizes.entry(identity).or_default() += 1);
    sizes
}
