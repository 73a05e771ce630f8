//! Named lists of items: tags and selections.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The largest number of tags, and of selections.
const LISTS: usize = 1000;

/// The largest number of items of a list.
pub(crate) const ITEMS: usize = 100_000;

/// The largest number of items of all lists together, each counted once per list.
const ITEMS_OF_ALL: usize = 1_000_000;

/// The largest name, in bytes.
const NAME: usize = 200;

/// What a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Shown at its items. A tag without items does not exist.
    Tags,
    /// A list that is opened by its name, in the order in which its items were added.
    Selections,
}

impl Kind {
    /// One of them in messages.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tags => "tag",
            Self::Selections => "selection",
        }
    }
}

/// A change of one list, applied as a whole or not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) add: Vec<u64>,
    pub(crate) remove: Vec<u64>,
    /// Its new name.
    pub(crate) rename: Option<String>,
    /// Removes the list.
    pub(crate) delete: bool,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server does not store lists of this gallery.
    NoFile,
    /// There is no list of this name.
    Unknown(Kind, String),
    /// There is another list of the new name.
    Taken(Kind, String),
    /// A text that is no name.
    Name,
    /// More lists or items than may be stored.
    TooMany(String),
    /// The file cannot be read or written.
    File(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile => f.write_str("tags and selections of this gallery are not stored: it is no file"),
            Self::Unknown(kind, name) => write!(f, "there is no {} `{name}`", kind.word()),
            Self::Taken(kind, name) => write!(f, "there is already a {} `{name}`", kind.word()),
            Self::Name => {
                write!(f, "a name has 1 to {NAME} bytes, no control characters, and no space at its ends")
            }
            Self::TooMany(problem) | Self::File(problem) => f.write_str(problem),
        }
    }
}

/// All tags and selections of a gallery. Ids need not be in the gallery: an item that was removed may come back.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Lists {
    /// Sorted ids, so that an item is found fast.
    tags: BTreeMap<String, Arc<[u64]>>,
    /// Ids in the order in which they were added.
    selections: BTreeMap<String, Arc<[u64]>>,
}

impl Lists {
    /// The lists of one kind, by their names.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (&str, &[u64])> {
        let lists = match kind {
            Kind::Tags => &self.tags,
            Kind::Selections => &self.selections,
        };
        lists.iter().map(|(name, ids)| (name.as_str(), &**ids))
    }

    /// The ids of a list.
    pub(crate) fn ids(&self, kind: Kind, name: &str) -> Result<&[u64], Fault> {
        let lists = match kind {
            Kind::Tags => &self.tags,
            Kind::Selections => &self.selections,
        };
        lists.get(name).map(|ids| &**ids).ok_or_else(|| Fault::Unknown(kind, name.to_owned()))
    }

    /// The tags of an item, sorted.
    pub(crate) fn tags_of(&self, id: u64) -> Vec<String> {
        let has = |ids: &Arc<[u64]>| ids.binary_search(&id).is_ok();
        self.tags.iter().filter(|(_, ids)| has(ids)).map(|(name, _)| name.clone()).collect()
    }

    /// Changes a list. Items that it already has, or does not have, are no error. A list that does not exist is made,
    /// unless it is renamed or removed, or items are only removed from it.
    pub(crate) fn change(&mut self, kind: Kind, name: &str, change: &Change) -> Result<(), Fault> {
        check_name(name)?;
        let lists = match kind {
            Kind::Tags => &mut self.tags,
            Kind::Selections => &mut self.selections,
        };
        let known = lists.get(name);
        let adds = !change.add.is_empty() || change.remove.is_empty();
        let creates = !change.delete && change.rename.is_none() && adds;
        if known.is_none() && !creates {
            return Err(Fault::Unknown(kind, name.to_owned()));
        }
        let renamed = change.rename.as_deref().unwrap_or(name);
        check_name(renamed)?;
        if renamed != name && lists.contains_key(renamed) {
            return Err(Fault::Taken(kind, renamed.to_owned()));
        }
        if change.delete {
            lists.remove(name);
            return Ok(());
        }
        let ids = changed(kind, known.map_or(&[], |ids| &**ids), change);
        lists.remove(name);
        if kind == Kind::Selections || !ids.is_empty() {
            lists.insert(renamed.to_owned(), ids.into());
        }
        self.check()
    }

    /// Puts a list in, as it was stored.
    pub(super) fn insert(&mut self, kind: Kind, name: String, ids: Vec<u64>) -> Result<(), Fault> {
        check_name(&name)?;
        let ids: Arc<[u64]> = changed(kind, &[], &Change { add: ids, ..Change::default() }).into();
        match kind {
            Kind::Tags => self.tags.insert(name, ids),
            Kind::Selections => self.selections.insert(name, ids),
        };
        Ok(())
    }

    /// Refuses more than may be stored.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let mut all = 0;
        for (kind, lists) in [(Kind::Tags, &self.tags), (Kind::Selections, &self.selections)] {
            if lists.len() > LISTS {
                return Err(Fault::TooMany(format!("there may be at most {LISTS} {}s", kind.word())));
            }
            for (name, ids) in lists {
                if ids.len() > ITEMS {
                    let (word, count) = (kind.word(), ids.len());
                    let problem =
                        format!("the {word} `{name}` would have {count} items; at most {ITEMS} are stored");
                    return Err(Fault::TooMany(problem));
                }
                all += ids.len();
            }
        }
        match all > ITEMS_OF_ALL {
            true => Err(Fault::TooMany(format!(
                "tags and selections would have {all} items together; at most {ITEMS_OF_ALL} are stored"
            ))),
            false => Ok(()),
        }
    }
}

fn check_name(name: &str) -> Result<(), Fault> {
    let wrong =
        name.is_empty() || name.len() > NAME || name.trim() != name || name.chars().any(char::is_control);
    if wrong { Err(Fault::Name) } else { Ok(()) }
}

/// The ids of a list after a change, each once.
fn changed(kind: Kind, before: &[u64], change: &Change) -> Vec<u64> {
    let mut gone: HashSet<u64> = change.remove.iter().copied().collect();
    // What is both added and removed stays.
    for id in &change.add {
        gone.remove(id);
    }
    let mut known = HashSet::new();
    let all = before.iter().chain(&change.add).copied();
    let mut ids: Vec<u64> = all.filter(|id| !gone.contains(id) && known.insert(*id)).collect();
    if kind == Kind::Tags {
        ids.sort_unstable();
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(ids: &[u64]) -> Change {
        Change { add: ids.to_vec(), ..Change::default() }
    }

    #[test]
    fn a_change_adds_removes_and_renames() {
        let mut lists = Lists::default();
        lists.change(Kind::Selections, "a", &add(&[3, 1, 3, 2])).unwrap();
        lists.change(Kind::Tags, "a", &add(&[3, 1])).unwrap();
        assert_eq!(lists.ids(Kind::Selections, "a").unwrap(), [3, 1, 2]);
        assert_eq!(lists.ids(Kind::Tags, "a").unwrap(), [1, 3]);
        let change =
            Change { add: vec![9], remove: vec![1, 7], rename: Some("b".to_owned()), ..Change::default() };
        lists.change(Kind::Selections, "a", &change).unwrap();
        assert_eq!(lists.ids(Kind::Selections, "b").unwrap(), [3, 2, 9]);
        assert!(lists.ids(Kind::Selections, "a").is_err());
        assert_eq!((lists.tags_of(3), lists.tags_of(9)), (vec!["a".to_owned()], vec![]));
    }

    #[test]
    fn a_tag_without_items_is_gone_and_an_empty_selection_stays() {
        let mut lists = Lists::default();
        for kind in [Kind::Tags, Kind::Selections] {
            lists.change(kind, "a", &add(&[1])).unwrap();
            lists.change(kind, "a", &Change { remove: vec![1], ..Change::default() }).unwrap();
        }
        assert!(lists.ids(Kind::Tags, "a").is_err());
        assert_eq!(lists.ids(Kind::Selections, "a"), Ok(&[][..]));
        lists.change(Kind::Selections, "a", &Change { delete: true, ..Change::default() }).unwrap();
        assert_eq!(lists, Lists::default());
    }

    #[test]
    fn a_refused_change_is_none() {
        let mut lists = Lists::default();
        lists.change(Kind::Tags, "a", &add(&[1])).unwrap();
        lists.change(Kind::Tags, "b", &add(&[2])).unwrap();
        let rename = |to: &str| Change { rename: Some(to.to_owned()), add: vec![5], ..Change::default() };
        let refused = |name: &str, change: Change| {
            let mut after = lists.clone();
            after.change(Kind::Tags, name, &change).map_or_else(|fault| fault.to_string(), |()| String::new())
        };
        assert_eq!(refused("a", rename("b")), "there is already a tag `b`");
        assert_eq!(refused("c", rename("d")), "there is no tag `c`");
        assert_eq!(refused("c", Change { delete: true, ..Change::default() }), "there is no tag `c`");
        for name in ["", " a", "a\n", "a\u{7f}", &"x".repeat(NAME + 1)] {
            assert!(refused(name, add(&[1])).starts_with("a name has"), "{name:?}");
            assert!(refused("a", rename(name)).starts_with("a name has"), "{name:?}");
        }
        let remove = Change { remove: vec![1], ..Change::default() };
        assert_eq!(refused("c", remove.clone()), "there is no tag `c`");
        assert_eq!(refused("c", Change { add: vec![2], ..remove }), "", "items are added to a new tag");
        let many: Vec<u64> = (0..=ITEMS as u64).collect();
        assert!(refused("a", add(&many)).contains("at most 100000 are stored"));
        assert_eq!(refused("a", rename("a")), "");
    }

    #[test]
    fn the_number_of_lists_and_items_is_limited() {
        let mut lists = Lists::default();
        for at in 0..LISTS {
            lists.change(Kind::Tags, &at.to_string(), &add(&[1])).unwrap();
        }
        assert_eq!(
            lists.clone().change(Kind::Tags, "more", &add(&[1])).unwrap_err().to_string(),
            "there may be at most 1000 tags"
        );
        let ids: Vec<u64> = (0..ITEMS as u64).collect();
        let mut lists = Lists::default();
        for at in 0..10 {
            lists.change(Kind::Selections, &at.to_string(), &add(&ids)).unwrap();
        }
        assert!(lists.change(Kind::Tags, "a", &add(&[1])).unwrap_err().to_string().contains("1000001 items"));
    }
}
