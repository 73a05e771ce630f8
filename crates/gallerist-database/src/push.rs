//! Filling a gallery from a set of embeddings, as often as it takes.

use std::collections::{HashMap, HashSet};

use gallerist_retrieval::index::{Addition, Index, Items, Replaced, rows_of_other_sources, stable_id};
use gallerist_retrieval::{EmbeddingSet, Error as Refused};

use crate::Result;
use crate::collection::Collection;
use crate::index::DatabaseIndex;
use crate::row::digest;

/// What a push has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Items looked at: sent and acknowledged, or found unchanged.
    pub items: usize,
    /// Items sent and acknowledged.
    pub sent: usize,
    /// Items that were there, the same to the last bit.
    pub unchanged: usize,
}

impl<C: Collection> DatabaseIndex<C> {
    /// Brings `items` into the gallery; those that are there unchanged are not sent again.
    ///
    /// Several programs may push different items into one collection at the same time.
    ///
    /// A push that was interrupted is resumed by doing it again, from any machine: what was
    /// acknowledged is recognised by a digest that the collection keeps of every item. Sending an
    /// item twice does no harm. Items that are in the gallery and not among these stay.
    ///
    /// An item that would replace another, with the same id and another content, is refused before
    /// anything is sent, unless `replace`.
    ///
    /// `progress` is called after every acknowledged batch.
    ///
    /// # Errors
    /// What [`IndexInfo::check_items`](gallerist_retrieval::index::IndexInfo::check_items) refuses,
    /// [`Replaces`](gallerist_retrieval::Error::Replaces), [`Error::Text`](crate::Error::Text),
    /// [`Error::Unreachable`](crate::Error::Unreachable) when the server was away for longer than
    /// [`patience`](crate::ConnectOptions::patience), and [`Error::Refused`](crate::Error::Refused).
    pub fn push(
        &mut self,
        items: &Items,
        replace: bool,
        progress: &mut dyn FnMut(&Pushed),
    ) -> Result<Pushed> {
        let items = &*self.without_lost_sources(items)?;
        // Rows that do not belong together are more important than one that would replace another.
        self.check(items)?;
        let there = if self.collection.is_empty()? { HashMap::new() } else { self.there(items)? };
        let differ: Vec<usize> = there.iter().filter(|(_, one)| !one.same).map(|(&row, _)| row).collect();
        if !replace && !differ.is_empty() {
            self.refuse(items, &differ, &there)?;
        }
        self.admit(items)?;
        let mut pushed = Pushed::default();
        let rows: Vec<usize> = (0..items.len()).collect();
        for rows in rows.chunks(self.layout().rows_per_call()) {
            let sent: Vec<usize> =
                rows.iter().copied().filter(|row| there.get(row).is_none_or(|one| !one.same)).collect();
            if !sent.is_empty() {
                self.send(items, &sent)?;
            }
            pushed.items += rows.len();
            pushed.sent += sent.len();
            pushed.unchanged += rows.len() - sent.len();
            progress(&pushed);
        }
        // Last, so that a push that is interrupted loses none of them.
        let moved = moved(items.ids(), differ.iter().map(|row| there[row].id));
        if !moved.is_empty() {
            self.remove(&moved)?;
        }
        self.flush()?;
        // A push of other items at the same time may have replaced the list of columns by its own.
        self.collection.note(items, false)?;
        Ok(pushed)
    }

    /// For each row that exists already, by its id or, if its source was not kept, by that of its
    /// path ([`Addition::of`]): whether it is the same. Only digests are requested.
    fn there(&self, items: &Items) -> Result<HashMap<usize, There>> {
        let set = items.set();
        let mut there = HashMap::new();
        let stored = self.collection.stored(items.ids(), false)?;
        let digests: HashMap<u64, i64> = stored.into_iter().map(|one| (one.id, one.digest)).collect();
        for (row, &id) in items.ids().iter().enumerate() {
            if let Some(&known) = digests.get(&id) {
                there.insert(row, There { id, same: known == digest(set, row) });
            }
        }
        let Some(paths) = set.paths.as_ref().filter(|_| set.sources.is_some()) else { return Ok(there) };
        let missing =
            (0..items.len()).filter(|row| !there.contains_key(row) && set.source_of(*row).is_some());
        let missing: Vec<(usize, u64)> = missing.map(|row| (row, stable_id(&paths[row]))).collect();
        let ids: Vec<u64> = missing.iter().map(|&(_, id)| id).collect();
        let stored = self.collection.stored(&ids, true)?.into_iter().filter(|one| one.source.is_none());
        let by_path: HashMap<u64, _> = stored.map(|one| (one.id, (one.digest, one.path))).collect();
        let sourceless = EmbeddingSet { sources: None, ..set.clone() };
        let found = missing.into_iter().filter_map(|(row, id)| {
            let (known, path) = by_path.get(&id)?;
            (path.as_ref() == Some(&paths[row])).then(|| (row, id, *known == digest(&sourceless, row)))
        });
        let found: Vec<_> = found.collect();
        let others = rows_of_other_sources(items.ids(), &found);
        let found = found.into_iter().filter(|(row, ..)| !others.contains(row));
        there.extend(found.map(|(row, id, same)| (row, There { id, same })));
        Ok(there)
    }

    /// The error that names the first item that would be replaced.
    fn refuse(&self, items: &Items, differ: &[usize], there: &HashMap<usize, There>) -> Result<()> {
        let first = *differ.iter().min().expect("at least one differs");
        let Some(item) = self.get(&[there[&first].id])?.pop().flatten() else { return Ok(()) };
        let replaced = vec![Replaced { row: first, there: item }];
        let refused = Addition { replaced, ..Addition::default() }.check(items);
        // One item is enough for the message; each has an embedding.
        Ok(refused.map_err(|error| match error {
            Refused::Replaces { new, old, difference, .. } => {
                Refused::Replaces { count: differ.len(), new, old, difference }
            }
            error => error,
        })?)
    }
}

/// The ids of `replaced` that no item has: those of items whose source was not kept.
fn moved(ids: &[u64], replaced: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut moved: HashSet<u64> = replaced.collect();
    for id in ids {
        moved.remove(id);
    }
    let mut moved: Vec<u64> = moved.into_iter().collect();
    moved.sort_unstable();
    moved
}

/// An item of the collection that a row would replace, or is.
struct There {
    id: u64,
    same: bool,
}

#[cfg(test)]
mod tests {
    use super::moved;

    #[test]
    fn only_ids_that_no_item_has_are_removed() {
        assert_eq!(moved(&[1, 2, 3], [7, 2, 7, 5].into_iter()), [5, 7]);
        // A comparison of all pairs takes minutes.
        let ids: Vec<u64> = (0..1_000_000).collect();
        assert_eq!(moved(&ids, 1..1_000_003), [1_000_000, 1_000_001, 1_000_002]);
    }
}
