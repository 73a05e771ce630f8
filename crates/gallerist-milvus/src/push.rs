//! Filling a gallery from a set of embeddings, as often as it takes.

use std::collections::HashMap;

use gallerist_retrieval::index::{Index, Items};

use crate::index::MilvusIndex;
use crate::{Result, layout};

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

impl MilvusIndex {
    /// Brings `items` into the gallery; those that are there unchanged are not sent again.
    ///
    /// A push that was interrupted is resumed by doing it again, from any machine: what was
    /// acknowledged is recognised by a digest that the collection keeps of every item. Sending an
    /// item twice does no harm. Items that are in the gallery and not among these stay.
    ///
    /// `progress` is told after every batch; the batch is acknowledged then.
    ///
    /// # Errors
    /// What [`check_items`](gallerist_retrieval::index::check_items) refuses,
    /// [`Error::Text`](crate::Error::Text), [`Error::Unreachable`](crate::Error::Unreachable) when
    /// the server was away for longer than [`patience`](crate::ConnectOptions::patience), and
    /// [`Error::Refused`](crate::Error::Refused).
    pub fn push(&mut self, items: &Items, progress: &mut dyn FnMut(&Pushed)) -> Result<Pushed> {
        self.admit(items)?;
        let mut pushed = Pushed::default();
        let fresh = self.count()? == 0;
        let rows: Vec<usize> = (0..items.len()).collect();
        for rows in rows.chunks(self.rows_per_call()) {
            let mut there = HashMap::new();
            if !fresh {
                let ids: Vec<u64> = rows.iter().map(|&row| items.ids()[row]).collect();
                self.look_up(&ids, &[layout::DIGEST], |rows| {
                    there.extend(rows.ids().zip(rows.longs(layout::DIGEST)?.iter().copied()));
                    Some(())
                })?;
            }
            let digests = rows.iter().map(|&row| (row, layout::digest(items.set(), row)));
            let changed = digests.filter(|(row, digest)| there.get(&items.ids()[*row]) != Some(digest));
            let (changed, digests): (Vec<usize>, Vec<i64>) = changed.unzip();
            if !changed.is_empty() {
                self.send(items, &changed, &digests)?;
            }
            pushed.items += rows.len();
            pushed.sent += changed.len();
            pushed.unchanged += rows.len() - changed.len();
            progress(&pushed);
        }
        self.flush()?;
        Ok(pushed)
    }
}
