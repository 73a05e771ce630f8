//! A loss of power: the folders that a command may leave when it ends at any moment and what was not synced is lost.
//!
//! The recorded operations (`shim.rs`) are applied to the folder as it was before, up to any of them. Of the operations before
//! that moment, those that a sync follows are on the disk. The others may be there or not, as [`Model`] says.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, iter};

use super::Tree;

/// What a sync makes durable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Model {
    /// POSIX and no more: the bytes of a file by a sync of the file, a name by a sync of its folder. Names become durable in
    /// any order; a rename may leave both names until its folder is synced.
    Posix,
    /// A journal, as of ext4 (`data=ordered,noauto_da_alloc`) or XFS: names become durable in their order, and a sync of any
    /// file makes all earlier names durable; bytes as with POSIX, so that a renamed file may be empty or zeros.
    Journal,
}

/// What happened to bytes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bytes {
    Kept,
    Lost,
    /// The file got its length, not the bytes.
    Zeros,
    /// The first half of the last write is there.
    Torn,
    /// Any of these, of each write.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Names {
    Kept,
    Lost,
    Some,
}

/// Fixed choices that are tried at every moment, before the random ones.
const CHOICES: [(Names, Bytes); 6] = [
    (Names::Lost, Bytes::Lost),
    (Names::Kept, Bytes::Lost),
    (Names::Kept, Bytes::Zeros),
    (Names::Kept, Bytes::Torn),
    (Names::Lost, Bytes::Kept),
    (Names::Kept, Bytes::Kept),
];

/// Random choices that are tried at every moment.
const RANDOM: usize = 4;

enum Event {
    Write {
        file: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: usize,
        length: usize,
    },
    /// Of a file or folder.
    Sync {
        node: usize,
    },
    /// A file or folder gets its name.
    Link {
        folder: usize,
        path: String,
        node: usize,
    },
    Rename {
        folder: usize,
        from: String,
        to: String,
        node: usize,
    },
    Unlink {
        folder: usize,
        path: String,
    },
}

/// A file or folder.
#[derive(Clone, Default)]
struct Node {
    is_folder: bool,
    bytes: Vec<u8>,
}

/// The files and folders before a command, by inode.
pub(super) struct Before {
    names: BTreeMap<String, usize>,
    nodes: Vec<Node>,
    inodes: HashMap<u64, usize>,
}

impl Before {
    pub(super) fn of(folder: &Path) -> Self {
        let mut before = Before { names: BTreeMap::new(), nodes: Vec::new(), inodes: HashMap::new() };
        before.add(folder, String::new());
        before
    }

    fn add(&mut self, path: &Path, name: String) {
        let found = fs::metadata(path).unwrap();
        let is_folder = found.is_dir();
        let bytes = if is_folder { Vec::new() } else { fs::read(path).unwrap() };
        self.inodes.insert(found.ino(), self.nodes.len());
        self.names.insert(name.clone(), self.nodes.len());
        self.nodes.push(Node { is_folder, bytes });
        if is_folder {
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let below = entry.file_name().into_string().unwrap();
                let name = if name.is_empty() { below } else { format!("{name}/{below}") };
                self.add(&entry.path(), name);
            }
        }
    }
}

/// The operations of a command.
pub(super) struct Record {
    names: BTreeMap<String, usize>,
    nodes: Vec<Node>,
    events: Vec<Event>,
    /// Where the record of each event ends.
    ends: Vec<usize>,
}

/// A folder after a loss of power.
pub(super) struct State {
    /// The operations that were done.
    pub(super) done: usize,
    pub(super) tree: Tree,
    pub(super) what: String,
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Record {
    /// Reads the record of a command that worked in `folder`.
    pub(super) fn parse(bytes: &[u8], before: Before, folder: &Path) -> Self {
        let Before { names, mut nodes, mut inodes } = before;
        let (mut live, mut events, mut ends, mut at) = (names.clone(), Vec::new(), Vec::new(), 0);
        let local = |path: &str| {
            let path = path.strip_prefix(folder.to_str().unwrap()).unwrap_or(path);
            path.trim_start_matches("./").trim_matches('/').to_owned()
        };
        while at < bytes.len() {
            let end = at + bytes[at..].iter().position(|&byte| byte == b'\n').unwrap();
            let line = std::str::from_utf8(&bytes[at..end]).unwrap();
            at = end + 1;
            let (kind, rest) = line.split_once(' ').unwrap();
            let mut words = rest.splitn(if kind == "W" { 3 } else { 2 }, ' ');
            let mut number = || words.next().unwrap().parse::<u64>().unwrap();
            events.push(match kind {
                "W" => {
                    let (file, offset, length) = (inodes[&number()], number() as usize, number() as usize);
                    at += length;
                    Event::Write { file, at: offset, bytes: bytes[at - length..at].to_vec() }
                }
                "T" => Event::Truncate { file: inodes[&number()], length: number() as usize },
                "S" => Event::Sync { node: inodes[&number()] },
                "C" | "M" => {
                    let (inode, path) = rest.split_once(' ').unwrap();
                    let (path, node) = (local(path), nodes.len());
                    nodes.push(Node { is_folder: kind == "M", bytes: Vec::new() });
                    inodes.insert(inode.parse().unwrap(), node);
                    live.insert(path.clone(), node);
                    Event::Link { folder: live[folder_of(&path)], path, node }
                }
                "R" => {
                    let (from, to) = rest.split_once('\t').unwrap();
                    let (from, to) = (local(from), local(to));
                    let node = live.remove(&from).unwrap();
                    assert!(folder_of(&from) == folder_of(&to) && !nodes[node].is_folder, "{line}");
                    live.insert(to.clone(), node);
                    Event::Rename { folder: live[folder_of(&to)], from, to, node }
                }
                "U" => {
                    let path = local(rest);
                    live.remove(&path).unwrap();
                    Event::Unlink { folder: live[folder_of(&path)], path }
                }
                _ => panic!("{line}"),
            });
            ends.push(at);
        }
        Record { names, nodes, events, ends }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The number of operations that were recorded in this many bytes.
    pub(super) fn operations_at(&self, bytes: usize) -> usize {
        self.ends.iter().filter(|&&end| end <= bytes).count()
    }

    /// The folder after all operations.
    pub(super) fn whole(&self) -> Tree {
        self.state(self.len(), Model::Posix, (Names::Kept, Bytes::Kept), &mut iter::repeat(0))
    }

    /// All different folders that a loss of power may leave, at every moment.
    pub(super) fn states(&self) -> Vec<State> {
        let mut seen = HashSet::new();
        let mut states = Vec::new();
        let mut random = numbers(2019);
        for done in 0..=self.len() {
            for model in [Model::Posix, Model::Journal] {
                let random_choices = iter::repeat_n((Names::Some, Bytes::Any), RANDOM);
                for choice in CHOICES.into_iter().chain(random_choices) {
                    let tree = self.state(done, model, choice, &mut random);
                    let mut hasher = DefaultHasher::new();
                    // The same folder is another state when a command has ended, or changes were acknowledged.
                    (&tree, done == self.len()).hash(&mut hasher);
                    if seen.insert(hasher.finish()) {
                        let what =
                            format!("{model:?}, {choice:?}, after {done} of {} operations", self.len());
                        states.push(State { done, tree, what });
                    }
                }
            }
        }
        states
    }

    /// The folder after a loss of power when `done` operations were done.
    fn state(
        &self,
        done: usize,
        model: Model,
        (names_are, bytes_are): (Names, Bytes),
        random: &mut dyn Iterator<Item = u64>,
    ) -> Tree {
        let events = &self.events[..done];
        let synced = |at: usize, wanted: Option<usize>| {
            let of = |event: &Event| matches!(event, Event::Sync { node } if wanted.is_none_or(|wanted| *node == wanted));
            events[at + 1..].iter().any(of)
        };
        let mut any = |among: u64| random.next().unwrap() % among;
        let (mut names, mut nodes) = (self.names.clone(), self.nodes.clone());
        // With a journal, a part of the names in their order.
        let last = if names_are == Names::Some { any(done as u64 + 1) as usize } else { 0 };
        for (at, event) in events.iter().enumerate() {
            let is_synced = |folder: usize| synced(at, (model == Model::Posix).then_some(folder));
            let mut is_durable = |folder: usize| {
                is_synced(folder)
                    || match (names_are, model) {
                        (Names::Kept, _) => true,
                        (Names::Lost, _) => false,
                        (Names::Some, Model::Journal) => at < last,
                        (Names::Some, Model::Posix) => any(2) == 0,
                    }
            };
            match event {
                Event::Sync { .. } => {}
                Event::Link { folder, path, node } => {
                    if is_durable(*folder) {
                        names.insert(path.clone(), *node);
                    }
                }
                Event::Rename { folder, from, to, node } => {
                    if is_durable(*folder) {
                        names.insert(to.clone(), *node);
                        let both = model == Model::Posix
                            && names_are == Names::Some
                            && !is_synced(*folder)
                            && any(4) == 0;
                        if names.get(from) == Some(node) && !both {
                            names.remove(from);
                        }
                    }
                }
                Event::Unlink { folder, path } => {
                    if is_durable(*folder) {
                        names.remove(path);
                    }
                }
                Event::Truncate { file, length } => {
                    if synced(at, Some(*file))
                        || bytes_are == Bytes::Kept
                        || (bytes_are == Bytes::Any && any(2) == 0)
                    {
                        nodes[*file].bytes.resize(*length, 0);
                    }
                }
                Event::Write { file, at: offset, bytes } => {
                    let is_last = !events[at + 1..]
                        .iter()
                        .any(|event| matches!(event, Event::Write { file: other, .. } if other == file));
                    let now = match bytes_are {
                        _ if synced(at, Some(*file)) => Bytes::Kept,
                        Bytes::Torn if !is_last => Bytes::Kept,
                        Bytes::Any => [Bytes::Kept, Bytes::Lost, Bytes::Zeros, Bytes::Torn][any(4) as usize],
                        now => now,
                    };
                    let file = &mut nodes[*file].bytes;
                    let end = offset + bytes.len();
                    if now != Bytes::Lost && file.len() < end {
                        file.resize(end, 0);
                    }
                    let kept = match now {
                        Bytes::Kept => bytes.len(),
                        Bytes::Torn => bytes.len() / 2,
                        _ => 0,
                    };
                    if kept > 0 {
                        file[*offset..offset + kept].copy_from_slice(&bytes[..kept]);
                    }
                }
            }
        }
        // A name is found only if the folders above it are.
        let is_reached = |path: &str| {
            let mut folder = path;
            iter::from_fn(|| {
                folder = folder_of(folder);
                (!folder.is_empty()).then_some(folder)
            })
            .all(|folder| names.contains_key(folder))
        };
        let reached = names.iter().filter(|(path, _)| !path.is_empty() && is_reached(path));
        reached
            .map(|(path, &node)| match nodes[node].is_folder {
                true => (format!("{path}/"), Vec::new()),
                false => (path.clone(), nodes[node].bytes.clone()),
            })
            .collect()
    }
}

/// Random numbers; a seed always gives the same ones.
pub(super) fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    iter::from_fn(move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Some(state >> 33)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of `name` in all states of a record, or of those at its end.
    fn contents(record: &str, name: &str, at_end: bool) -> Vec<Option<String>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "old").unwrap();
        let root = fs::metadata(folder.path()).unwrap().ino();
        let record = record.replace("ROOT", &root.to_string());
        let record = Record::parse(record.as_bytes(), Before::of(folder.path()), folder.path());
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
        let states = record.states();
        let states = states.iter().filter(|state| !at_end || state.done == record.len());
        let mut all: Vec<_> = states.map(|state| state.tree.get(name).map(text)).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn a_file_that_is_synced_and_renamed_is_old_or_new_and_one_that_is_not_synced_may_be_empty() {
        let (old, new) = (Some("old".to_owned()), Some("new".to_owned()));
        let safe = "C 1 b\nW 1 0 3\nnewS 1\nR b\ta\nS ROOT\n";
        assert_eq!(contents(safe, "a", false), [new.clone(), old.clone()]);
        assert_eq!(contents(safe, "a", true), std::slice::from_ref(&new));
        let found = contents("C 1 b\nW 1 0 3\nnewR b\ta\n", "a", false);
        for wanted in [Some(String::new()), Some("\0\0\0".into()), Some("n\0\0".into()), old, new] {
            assert!(found.contains(&wanted), "{wanted:?}");
        }
    }

    #[test]
    fn without_a_sync_of_the_folder_a_file_may_be_gone() {
        let record = "M 7 f\nC 1 f/b\nW 1 0 3\nnewS 1\nS 7\n";
        assert_eq!(contents(record, "f/b", true), [None, Some("new".into())]);
        assert_eq!(contents(&format!("{record}S ROOT\n"), "f/b", true), [Some("new".into())]);
    }
}
