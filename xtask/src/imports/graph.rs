//! Which file uses what is defined in which other file, for one crate.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path as FilePath, PathBuf};

use super::parse::{Module, Path, Use, parse};

/// A use of one file by another: the path that is written, and the line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edge {
    pub path: String,
    pub line: usize,
}

/// The files of a crate, and for every file the files that it uses, each with the first use.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub files: Vec<PathBuf>,
    pub edges: Vec<BTreeMap<usize, Edge>>,
}

impl Graph {
    /// Reads the crate whose root is the file `root` (`lib.rs`, `main.rs`). `read` returns a file's text.
    pub(crate) fn of_crate(
        root: &FilePath,
        read: &dyn Fn(&FilePath) -> Option<String>,
    ) -> Result<Graph, String> {
        let mut tree = Tree::default();
        let text = read(root).ok_or_else(|| format!("cannot read {}", root.display()))?;
        let folder = root.parent().expect("a file has a parent");
        let file = tree.add_file(root);
        tree.add(parse(&text), file, None, folder, read)?;
        Ok(tree.into_graph())
    }

    /// Groups of files that use each other, directly or through others.
    pub(crate) fn cycles(&self) -> Vec<Vec<usize>> {
        let reach: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|file| self.reachable(file)).collect();
        let mut seen = BTreeSet::new();
        let mut groups = Vec::new();
        for file in 0..self.files.len() {
            if !reach[file].contains(&file) || seen.contains(&file) {
                continue;
            }
            let group: Vec<usize> =
                reach[file].iter().copied().filter(|&other| reach[other].contains(&file)).collect();
            seen.extend(group.iter().copied());
            groups.push(group);
        }
        groups
    }

    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open: Vec<usize> = self.edges[from].keys().copied().collect();
        while let Some(file) = open.pop() {
            if found.insert(file) {
                open.extend(self.edges[file].keys().copied());
            }
        }
        found
    }

    /// Up to `most` cycles inside `group`, shortest first; no two share a use. The last file of each uses its first.
    pub(crate) fn examples(&self, group: &[usize], most: usize) -> Vec<Vec<usize>> {
        let mut used = BTreeSet::new();
        let mut found = Vec::new();
        while found.len() < most {
            let cycles = group.iter().filter_map(|&file| self.shortest_cycle(file, &used));
            let Some(cycle) = cycles.min_by_key(Vec::len) else { break };
            for (i, &file) in cycle.iter().enumerate() {
                used.insert((file, cycle[(i + 1) % cycle.len()]));
            }
            found.push(cycle);
        }
        found
    }

    /// The shortest cycle through `file` without the uses in `removed`.
    fn shortest_cycle(&self, file: usize, removed: &BTreeSet<(usize, usize)>) -> Option<Vec<usize>> {
        let mut before = BTreeMap::new();
        let mut open = VecDeque::from([file]);
        while let Some(at) = open.pop_front() {
            for &next in self.edges[at].keys().filter(|&&next| !removed.contains(&(at, next))) {
                if next == file {
                    let mut cycle = vec![at];
                    while let Some(&previous) = before.get(cycle.last().expect("not empty")) {
                        cycle.push(previous);
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if let Entry::Vacant(entry) = before.entry(next) {
                    entry.insert(at);
                    open.push_back(next);
                }
            }
        }
        None
    }
}

struct Node {
    module: Module,
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
}

/// The module tree of a crate; node 0 is its root.
#[derive(Default)]
struct Tree {
    nodes: Vec<Node>,
    files: Vec<PathBuf>,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    Module(usize),
    /// Something defined in this file.
    Item(usize),
    /// Something of another crate.
    External,
}

impl Tree {
    fn add_file(&mut self, path: &FilePath) -> usize {
        self.files.push(path.to_path_buf());
        self.files.len() - 1
    }

    /// Adds a module and its children; `folder` is where the files of its children are.
    fn add(
        &mut self,
        mut module: Module,
        file: usize,
        parent: Option<usize>,
        folder: &FilePath,
        read: &dyn Fn(&FilePath) -> Option<String>,
    ) -> Result<usize, String> {
        let inline = std::mem::take(&mut module.inline);
        let files = std::mem::take(&mut module.files);
        let node = self.nodes.len();
        self.nodes.push(Node { module, file, parent, children: BTreeMap::new() });
        for child in inline {
            let name = child.name.clone();
            let inside = folder.join(&name);
            let child = self.add(child, file, Some(node), &inside, read)?;
            self.nodes[node].children.insert(name, child);
        }
        for (name, path) in files {
            let beside = self.files[file].parent().expect("a file has a parent").to_path_buf();
            let candidates = match path {
                Some(path) => vec![beside.join(path)],
                None => vec![folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")],
            };
            let found = candidates.iter().find_map(|path| read(path).map(|text| (path, text)));
            let Some((path, text)) = found else {
                return Err(format!("{}: no file for `mod {name}`", self.files[file].display()));
            };
            let child_file = self.add_file(path);
            let child = self.add(parse(&text), child_file, Some(node), &folder.join(&name), read)?;
            self.nodes[node].children.insert(name, child);
        }
        Ok(node)
    }

    fn into_graph(self) -> Graph {
        let mut edges = vec![BTreeMap::new(); self.files.len()];
        for node in 0..self.nodes.len() {
            let file = self.nodes[node].file;
            let mut add = |target: usize, path: String, line: usize| {
                if target != file {
                    edges[file].entry(target).or_insert(Edge { path, line });
                }
            };
            let module = &self.nodes[node].module;
            for used in &module.uses {
                self.add_use(node, used, &mut add);
            }
            for path in &module.paths {
                if let Some(Target::Item(target)) = self.resolve(node, path, &mut BTreeSet::new()) {
                    add(target, path.segments.join("::"), path.line);
                }
            }
        }
        Graph { files: self.files, edges }
    }

    /// An import counts; a re-export counts only if the module uses the name itself, a glob only for such names.
    fn add_use(&self, node: usize, used: &Use, add: &mut dyn FnMut(usize, String, usize)) {
        let words = &self.nodes[node].module.words;
        let written = used.path.segments.join("::");
        if used.name == "*" {
            let Some(Target::Module(from)) =
                self.resolve(node, &without_glob(&used.path), &mut BTreeSet::new())
            else {
                return;
            };
            for word in words {
                let own = self.nodes[node].module.defined.contains(word);
                if let (false, Some(Target::Item(file))) =
                    (own, self.lookup(from, word, true, &mut BTreeSet::new()))
                {
                    add(file, format!("{written}, `{word}`"), used.path.line);
                }
            }
        } else if (!used.public || words.contains(&used.name))
            && let Some(Target::Item(file)) = self.resolve(node, &used.path, &mut BTreeSet::new())
        {
            add(file, written, used.path.line);
        }
    }

    fn resolve(&self, node: usize, path: &Path, visited: &mut BTreeSet<(usize, String)>) -> Option<Target> {
        let mut segments = path.segments.as_slice();
        let mut at = node;
        let mut inside = false;
        while let Some((first, rest)) = segments.split_first() {
            match first.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.nodes[at].parent?,
                _ => break,
            }
            inside = true;
            segments = rest;
        }
        for (i, segment) in segments.iter().enumerate() {
            let last = i + 1 == segments.len();
            match self.lookup(at, segment, last, visited) {
                Some(Target::Module(next)) => (at, inside) = (next, true),
                Some(target) => return Some(target),
                // Defined by a macro that is not expanded here.
                None if inside => return Some(Target::Item(self.nodes[at].file)),
                None => return None,
            }
        }
        inside.then_some(Target::Module(at))
    }

    /// What `name` means in a module. The last name of a path is an item if there is one, others are modules.
    fn lookup(
        &self,
        node: usize,
        name: &str,
        last: bool,
        visited: &mut BTreeSet<(usize, String)>,
    ) -> Option<Target> {
        if !visited.insert((node, name.to_string())) {
            return None;
        }
        let found = self.lookup_new(node, name, last, visited);
        visited.remove(&(node, name.to_string()));
        found
    }

    fn lookup_new(
        &self,
        node: usize,
        name: &str,
        last: bool,
        visited: &mut BTreeSet<(usize, String)>,
    ) -> Option<Target> {
        let Node { module, file, children, .. } = &self.nodes[node];
        if let (Some(&child), false) = (children.get(name), last) {
            return Some(Target::Module(child));
        }
        if module.defined.contains(name) {
            return Some(Target::Item(*file));
        }
        if node == 0 {
            let exports = |other: &&Node| other.module.exported_macros.contains(name);
            if let Some(other) = self.nodes.iter().find(exports) {
                return Some(Target::Item(other.file));
            }
        }
        let mut module_found = children.get(name).map(|&child| Target::Module(child));
        for used in module.uses.iter().filter(|used| used.name == name) {
            match self.resolve(node, &used.path, visited) {
                Some(Target::Module(target)) => module_found = Some(Target::Module(target)),
                Some(target) => return Some(target),
                None => return Some(Target::External),
            }
        }
        if module_found.is_some() {
            return module_found;
        }
        module.uses.iter().filter(|used| used.name == "*").find_map(|used| {
            match self.resolve(node, &without_glob(&used.path), visited) {
                Some(Target::Module(from)) if from != node => self.lookup(from, name, last, visited),
                _ => None,
            }
        })
    }
}

fn without_glob(path: &Path) -> Path {
    let segments = path.segments[..path.segments.len() - 1].to_vec();
    Path { segments, line: path.line }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Graph;

    /// `a.rs -> b.rs` for every use, in order.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph(files);
        let mut found: Vec<String> = Vec::new();
        for (from, uses) in graph.edges.iter().enumerate() {
            for &to in uses.keys() {
                found.push(format!("{} -> {}", graph.files[from].display(), graph.files[to].display()));
            }
        }
        found.sort();
        found
    }

    fn graph(files: &[(&str, &str)]) -> Graph {
        let read = |path: &Path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| text.to_string())
        };
        Graph::of_crate(Path::new("lib.rs"), &read).unwrap()
    }

    #[test]
    fn a_re_export_counts_for_the_file_that_defines_the_name() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::One;"),
            ("a/mod.rs", "mod one; pub use one::One;"),
            ("a/one.rs", "pub struct One;"),
            ("b.rs", "use crate::One; use crate::a;\nfn f() { a::One::new() }"),
        ];
        assert_eq!(edges(&files), ["b.rs -> a/one.rs"]);
    }

    #[test]
    fn a_parent_that_uses_its_child_must_not_be_used_by_it() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod one;\nuse one::One;\npub fn f(_: One) {}"),
            ("a/one.rs", "pub struct One;\nfn g() { super::f(One) }"),
        ];
        assert_eq!(edges(&files), ["a/mod.rs -> a/one.rs", "a/one.rs -> a/mod.rs"]);
        let graph = graph(&files);
        assert_eq!(graph.cycles(), [[1, 2]]);
        assert_eq!(graph.examples(&[1, 2], 5), [[1, 2]]);
        assert_eq!(graph.edges[2][&1].line, 2);
    }

    #[test]
    fn globs_count_for_the_names_that_are_used() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub fn used() {} "),
            ("b.rs", "pub use crate::a::*; pub fn other() {}"),
            ("c.rs", "use super::b::*;\nfn f() { used() }"),
        ];
        assert_eq!(edges(&files), ["c.rs -> a.rs"]);
    }

    #[test]
    fn a_function_and_a_module_of_one_name_are_told_apart() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::a;"),
            ("a.rs", "pub fn a() {} pub fn inner() {}"),
            ("b.rs", "fn f() { crate::a::inner(); crate::a() }"),
        ];
        assert_eq!(edges(&files), ["b.rs -> a.rs"]);
    }

    #[test]
    fn exported_macros_are_found_at_the_root_and_other_crates_are_ignored() {
        let files = [
            ("lib.rs", "#[macro_use] mod a; mod b;"),
            ("a.rs", "#[macro_export] macro_rules! list { () => {} }"),
            (
                "b.rs",
                "use std::fmt; use serde::de::Error;\nfn f() { crate::list!(); fmt::write(); Error::custom() }",
            ),
        ];
        assert_eq!(edges(&files), ["b.rs -> a.rs"]);
    }

    #[test]
    fn a_cycle_of_three_files_is_shown_whole() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub struct A; use crate::b::B;"),
            ("b.rs", "pub struct B; use crate::c::C;"),
            ("c.rs", "pub struct C; use crate::a::A;"),
        ];
        let graph = graph(&files);
        let cycle: Vec<PathBuf> = graph
            .examples(&[1, 2, 3], 5)
            .remove(0)
            .into_iter()
            .map(|file| graph.files[file].clone())
            .collect();
        assert_eq!(cycle, [Path::new("a.rs"), Path::new("b.rs"), Path::new("c.rs")]);
    }
}
