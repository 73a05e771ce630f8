//! The tags and the selections that users make, in a file next to the gallery: `GALLERY.tags.json`.
//!
//! They name items by their ids, so they survive changes of the gallery. Each change reads the file, changes one list and
//! replaces the file; changes of one server come one after the other, so that none is lost.

mod file;
mod lists;

use std::path::{Path, PathBuf};

use gallerist_util::sync::{Arc, Mutex, PoisonError, RwLock};

pub(crate) use lists::{Change, Fault, ITEMS, Kind, Lists};

/// The tags and selections of a gallery.
pub(crate) struct Saved {
    /// `None` if they are not stored.
    path: Option<PathBuf>,
    /// Held during a change.
    turn: Mutex<()>,
    now: RwLock<Arc<Lists>>,
}

impl Saved {
    /// Reads the file next to `gallery`, if there is one. A file that cannot be read is reported, and stays as it is:
    /// changes are refused until it can be read.
    pub(crate) fn open(gallery: Option<&Path>, note: fn(&str)) -> Self {
        let path = gallery.map(|gallery| {
            let mut path = gallery.as_os_str().to_owned();
            path.push(".tags.json");
            PathBuf::from(path)
        });
        let saved = Self { path, turn: Mutex::default(), now: RwLock::default() };
        if let Err(fault) = saved.read_again() {
            note(&format!("tags and selections are not shown: {fault}"));
        }
        saved
    }

    /// The file, whether or not it exists.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The lists at this moment.
    pub(crate) fn now(&self) -> Arc<Lists> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file, which another program may have changed.
    pub(crate) fn read_again(&self) -> Result<(), Fault> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path {
            self.become_lists(file::read(path)?);
        }
        Ok(())
    }

    /// Changes a list and returns when that is stored durably.
    pub(crate) fn change(&self, kind: Kind, name: &str, change: &Change) -> Result<Arc<Lists>, Fault> {
        let path = self.path.as_deref().ok_or(Fault::NoFile)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lists = file::read(path)?;
        let before = lists.clone();
        lists.change(kind, name, change)?;
        if lists != before {
            file::write(path, &lists)?;
        }
        self.become_lists(lists);
        Ok(self.now())
    }

    fn become_lists(&self, lists: Lists) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(lists);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(ids: &[u64]) -> Change {
        Change { add: ids.to_vec(), ..Change::default() }
    }

    #[test]
    fn changes_of_several_threads_and_of_two_servers_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let gallery = folder.path().join("g.index");
        let saved = Saved::open(Some(&gallery), |_| ());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let saved = &saved;
                scope.spawn(move || {
                    for at in 0..25 {
                        saved.change(Kind::Tags, "all", &add(&[100 * thread + at])).unwrap();
                    }
                });
            }
        });
        assert_eq!(saved.now().ids(Kind::Tags, "all").unwrap().len(), 100);
        let other = Saved::open(Some(&gallery), |_| ());
        other.change(Kind::Selections, "other", &add(&[u64::MAX])).unwrap();
        saved.change(Kind::Tags, "more", &add(&[1])).unwrap();
        let lists = Saved::open(Some(&gallery), |_| ()).now();
        assert_eq!(lists.ids(Kind::Selections, "other").unwrap(), [u64::MAX]);
        assert_eq!(lists.tags_of(1), ["all", "more"]);
        assert_eq!(lists, saved.now());
    }

    #[test]
    fn a_broken_file_is_reported_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let gallery = folder.path().join("g.index");
        let file = folder.path().join("g.index.tags.json");
        let broken = [
            ("{", "no JSON of tags"),
            (r#"{"version": 2}"#, "version 2"),
            (r#"{"version": 1, "tags": {"a": ["-1"]}}"#, "no id"),
            (r#"{"version": 1, "tags": {"": ["1"]}}"#, "a name has"),
            (r#"{"version": 1, "tags": {}, "colours": {}}"#, "colours"),
        ];
        for (text, words) in broken {
            std::fs::write(&file, text).unwrap();
            let saved = Saved::open(Some(&gallery), |_| ());
            let fault = saved.change(Kind::Tags, "a", &add(&[1])).unwrap_err().to_string();
            assert!(fault.contains(words) && fault.contains("g.index.tags.json"), "{fault}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        std::fs::write(&file, r#"{"version": 1, "tags": {"b": ["2", "2"]}, "selections": {}}"#).unwrap();
        let saved = Saved::open(Some(&gallery), |_| ());
        assert_eq!(saved.change(Kind::Tags, "a", &add(&[2])).unwrap().tags_of(2), ["a", "b"]);
    }

    #[test]
    fn a_gallery_that_is_no_file_stores_nothing() {
        let saved = Saved::open(None, |_| ());
        assert_eq!(saved.change(Kind::Tags, "a", &add(&[1])), Err(Fault::NoFile));
    }
}
