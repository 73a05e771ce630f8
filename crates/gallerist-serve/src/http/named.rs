//! The items of tags and selections, and items by their ids, as a filter.

use std::collections::HashSet;

use gallerist_retrieval::index::ItemFilter;

use super::error::{Answer, Refusal};
use super::extract::Id;
use crate::saved::Kind;
use crate::state::State;

/// The largest number of items that the parameter `only` names.
const ONLY: usize = 1000;

/// The items that tags, selections and a list of ids leave.
#[derive(Default)]
pub(super) struct Chosen {
    ids: Option<HashSet<u64>>,
}

impl Chosen {
    /// Items with one of the tags, of one of the selections, and among `only`. An empty list is no condition.
    pub(super) fn new(state: &State, tags: &[String], selections: &[String], only: &[Id]) -> Answer<Self> {
        if only.len() > ONLY {
            return Err(Refusal::bad(format!(
                "{} items in `only`, and at most {ONLY} may be given",
                only.len()
            )));
        }
        let lists = state.saved.now();
        let mut all = Self::default();
        for (kind, names) in [(Kind::Tags, tags), (Kind::Selections, selections)] {
            if names.is_empty() {
                continue;
            }
            let mut ids = HashSet::new();
            for name in names {
                ids.extend(lists.ids(kind, name)?);
            }
            all.keep(ids);
        }
        if !only.is_empty() {
            all.keep(only.iter().map(|id| id.0).collect());
        }
        Ok(all)
    }

    fn keep(&mut self, ids: HashSet<u64>) {
        self.ids = Some(match self.ids.take() {
            Some(before) => before.intersection(&ids).copied().collect(),
            None => ids,
        });
    }

    pub(super) fn is_all(&self) -> bool {
        self.ids.is_none()
    }

    pub(super) fn admits(&self, id: u64) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(&id))
    }

    /// The same as a filter of an index.
    pub(super) fn filter(self, filter: ItemFilter) -> ItemFilter {
        match self.ids {
            Some(ids) => {
                let mut ids: Vec<u64> = ids.into_iter().collect();
                ids.sort_unstable();
                filter.id_in(ids)
            }
            None => filter,
        }
    }
}
