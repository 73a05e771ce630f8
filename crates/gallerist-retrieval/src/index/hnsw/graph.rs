//! The graph: who is whose neighbour, level by level.

use super::super::values::Values;
use gallerist_util::memory::{Cache, prefer_large_pages, prefetch};

/// The end of a list of neighbours that is not full.
pub(super) const END: u32 = u32::MAX;
/// The highest level a node is given. With 16 neighbours one node in 2^60 would pass it.
pub(super) const TOP: u8 = 15;

/// Lists of neighbours: `2 m` per node on level 0, `m` on each of the levels above that the node
/// is on.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) m: usize,
    /// The highest level of each node.
    pub(super) levels: Vec<u8>,
    /// `2 m` entries a node.
    pub(super) base: Values<u32>,
    /// `m` entries for each level above 0 of each node, the nodes in order.
    pub(super) upper: Values<u32>,
    /// Where the lists of a node start in `upper`, in lists.
    starts: Vec<u32>,
    /// Where every walk starts: a node on the highest level.
    pub(super) entry: Option<u32>,
}

/// A graph to walk in.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    m: usize,
    levels: &'a [u8],
    base: &'a [u32],
    upper: &'a [u32],
    starts: &'a [u32],
    pub(super) entry: Option<u32>,
}

impl Graph {
    pub(super) fn new(m: usize) -> Self {
        Self { m, ..Self::default() }
    }

    /// A graph from its parts, or the reason why they are not valid.
    pub(super) fn from_parts(
        m: usize,
        levels: Vec<u8>,
        base: Values<u32>,
        upper: Values<u32>,
        entry: Option<u32>,
    ) -> Result<Self, String> {
        let mut graph = Self { m, levels: Vec::new(), base, upper, starts: Vec::new(), entry };
        graph.set_levels(levels);
        graph.check()?;
        Ok(graph)
    }

    fn set_levels(&mut self, levels: Vec<u8>) {
        let mut next: u32 = 0;
        self.starts = levels
            .iter()
            .map(|&level| {
                let start = next;
                next = next.saturating_add(u32::from(level));
                start
            })
            .collect();
        self.levels = levels;
    }

    /// Every neighbour must be a node, and on the level on which it is one.
    fn check(&self) -> Result<(), String> {
        let nodes = self.levels.len();
        let lists: usize = self.levels.iter().map(|&level| usize::from(level)).sum();
        let (base, upper) = (self.base.as_slice(), self.upper.as_slice());
        if base.len() != nodes * 2 * self.m || upper.len() != lists * self.m {
            return Err(format!("the lists of neighbours do not fit {nodes} nodes"));
        }
        if self.levels.iter().any(|&level| level > TOP) {
            return Err(format!("a node is on a level above {TOP}"));
        }
        let highest = self.levels.iter().max();
        match self.entry {
            None if nodes == 0 => {}
            Some(entry) if self.levels.get(entry as usize) == highest && nodes > 0 => {}
            _ => return Err("the entry is not a node of the highest level".to_owned()),
        }
        let view = self.view();
        for (node, &top) in (0..).zip(&self.levels) {
            for level in 0..=top {
                for &neighbour in view.list(level, node) {
                    if neighbour != END && self.levels.get(neighbour as usize).is_none_or(|&on| on < level) {
                        return Err(format!("node {node} has the neighbour {neighbour} on level {level}"));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            m: self.m,
            levels: &self.levels,
            base: self.base.as_slice(),
            upper: self.upper.as_slice(),
            starts: &self.starts,
            entry: self.entry,
        }
    }

    /// Adds nodes with these levels and without neighbours.
    pub(super) fn extend(&mut self, levels: impl IntoIterator<Item = u8>) {
        let mut all = std::mem::take(&mut self.levels);
        all.extend(levels);
        let lists: usize = all.iter().map(|&level| usize::from(level)).sum();
        let base = self.base.owned();
        base.reserve(all.len() * 2 * self.m - base.len());
        prefer_large_pages(base);
        base.resize(all.len() * 2 * self.m, END);
        self.upper.owned().resize(lists * self.m, END);
        self.set_levels(all);
    }

    /// The graph of these nodes, numbered by their place in the list, which rises. The other nodes are no neighbours of
    /// theirs and not the entry.
    pub(super) fn keep(&self, nodes: &[u32]) -> Self {
        let mut kept = Self::new(self.m);
        kept.extend(nodes.iter().map(|&node| self.levels[node as usize]));
        let number = |node: u32| nodes.binary_search(&node).expect("a neighbour that is kept") as u32;
        for (new, &node) in (0..).zip(nodes) {
            for level in 0..=self.levels[node as usize] {
                let list: Vec<u32> = self.view().neighbours(level, node).map(number).collect();
                kept.set(level, new, &list);
            }
        }
        kept.entry = self.entry.map(number);
        kept
    }

    /// Replaces a node's list of neighbours.
    pub(super) fn set(&mut self, level: u8, node: u32, neighbours: &[u32]) {
        let (start, length) = place(self.m, &self.starts, level, node);
        let all = if level == 0 { self.base.owned() } else { self.upper.owned() };
        let list = &mut all[start..start + length];
        list.fill(END);
        list[..neighbours.len()].copy_from_slice(neighbours);
    }

    /// Neighbours a node may have on a level.
    pub(super) fn room(&self, level: u8) -> usize {
        if level == 0 { 2 * self.m } else { self.m }
    }
}

fn place(m: usize, starts: &[u32], level: u8, node: u32) -> (usize, usize) {
    match level {
        0 => (node as usize * 2 * m, 2 * m),
        _ => ((starts[node as usize] as usize + usize::from(level) - 1) * m, m),
    }
}

impl<'a> View<'a> {
    /// The whole list, empty places included.
    #[inline]
    fn list(&self, level: u8, node: u32) -> &'a [u32] {
        let (start, length) = place(self.m, self.starts, level, node);
        let all = if level == 0 { self.base } else { self.upper };
        // Of a node that is not on the level there may be no list: in a mapped file that somebody
        // writes to. The search notices it at its end.
        all.get(start..start + length).unwrap_or_default()
    }

    /// The neighbours of a node on a level it is on.
    #[inline]
    pub(super) fn neighbours(&self, level: u8, node: u32) -> impl Iterator<Item = u32> + 'a {
        // The end of a list is no node. A mapped file that another program changes may contain any number.
        let nodes = self.levels.len();
        self.list(level, node).iter().copied().take_while(move |&neighbour| (neighbour as usize) < nodes)
    }

    /// Prefetches the list of a node.
    #[inline]
    pub(super) fn prefetch(&self, level: u8, node: u32) {
        prefetch(self.list(level, node), Cache::First);
    }

    pub(super) fn level(&self, node: u32) -> u8 {
        self.levels[node as usize]
    }

    pub(super) fn nodes(&self) -> usize {
        self.levels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> (Vec<u8>, Vec<u32>, Vec<u32>) {
        let base = [[1, 2, END, END], [0, END, END, END], [0, 1, END, END]].concat();
        (vec![1, 0, 1], base, vec![2, END, 0, END])
    }

    fn build(levels: Vec<u8>, base: Vec<u32>, upper: Vec<u32>, entry: Option<u32>) -> Result<Graph, String> {
        Graph::from_parts(2, levels, Values::Owned(base), Values::Owned(upper), entry)
    }

    #[test]
    fn lists_are_found_level_by_level() {
        let (levels, base, upper) = parts();
        let graph = build(levels, base, upper, Some(2)).unwrap();
        let view = graph.view();
        assert_eq!(view.neighbours(0, 0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(view.neighbours(1, 2).collect::<Vec<_>>(), [0]);
        let mut grown = Graph::new(2);
        grown.extend([1, 0]);
        grown.extend([1]);
        grown.set(1, 2, &[0]);
        grown.set(0, 1, &[0, 2]);
        assert_eq!(grown.view().neighbours(1, 2).collect::<Vec<_>>(), [0]);
        assert_eq!(grown.view().neighbours(0, 1).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(grown.view().neighbours(1, 0).count(), 0);
    }

    #[test]
    fn a_graph_that_leads_nowhere_is_refused() {
        let (levels, base, upper) = parts();
        let refused = |levels: &[u8], base: &[u32], upper: &[u32], entry| {
            build(levels.to_vec(), base.to_vec(), upper.to_vec(), entry).is_err()
        };
        let with = |list: &[u32], at: usize, value: u32| {
            let mut list = list.to_vec();
            list[at] = value;
            list
        };
        assert!(!refused(&levels, &base, &upper, Some(0)));
        assert!(refused(&levels, &with(&base, 0, 3), &upper, Some(0)), "no such node");
        assert!(refused(&levels, &base, &with(&upper, 0, 1), Some(0)), "a node that is not on the level");
        assert!(refused(&levels, &base[1..], &upper, Some(0)));
        assert!(refused(&levels, &base, &upper[1..], Some(0)));
        assert!(refused(&[1, 200, 1], &base, &upper, Some(0)));
        for entry in [Some(1), Some(9), None] {
            assert!(refused(&levels, &base, &upper, entry), "entry {entry:?}");
        }
        assert!(!refused(&[], &[], &[], None));
    }
}
