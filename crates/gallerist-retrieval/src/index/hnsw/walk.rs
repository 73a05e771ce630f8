//! Walks through the graph towards a row (Malkov and Yashunin, 2018, algorithms 2 and 5).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::graph::View;
use super::space::Space;
use crate::search::{rank_key, unrank_key};

/// A node and how close it is, as one integer: greater is closer, then the lower node.
pub(super) type Near = u64;

pub(super) fn node_of(near: Near) -> u32 {
    unrank_key(near).1
}

/// How close, from [`Space::closeness`].
pub(super) fn closeness_of(near: Near) -> f32 {
    unrank_key(near).0
}

/// What a walk needs to remember; kept for the next one.
#[derive(Default)]
pub(super) struct Walk {
    /// The walk in which a node was last seen.
    seen: Vec<u8>,
    now: u8,
    /// Nodes whose neighbours have not been looked at, the closest first.
    open: BinaryHeap<Near>,
    /// The best so far, the farthest first.
    found: BinaryHeap<Reverse<Near>>,
    fresh: Vec<u32>,
}

/// The row that is sought, and where.
#[derive(Clone, Copy)]
pub(super) struct Quest<'a> {
    pub(super) graph: View<'a>,
    pub(super) space: Space<'a>,
    pub(super) row: &'a [f32],
    /// One over the length of the row.
    pub(super) inverse: f32,
}

impl Quest<'_> {
    pub(super) fn near(&self, node: u32) -> Near {
        rank_key(self.space.closeness(self.row, self.inverse, node), node)
    }
}

impl Walk {
    /// From `start` to a node on `level` none of whose neighbours is closer.
    pub(super) fn descend(quest: &Quest, mut best: Near, level: u8) -> Near {
        loop {
            let before = best;
            for neighbour in quest.graph.neighbours(level, node_of(before)) {
                best = best.max(quest.near(neighbour));
            }
            if best == before {
                return best;
            }
        }
    }

    /// The `breadth` closest nodes on `level` that a walk from `starts` comes by and `admits` lets
    /// pass, the closest first. Nodes that do not pass are walked through.
    pub(super) fn beam(
        &mut self,
        quest: &Quest,
        starts: &[Near],
        level: u8,
        breadth: usize,
        admits: impl Fn(u32) -> bool,
    ) -> Vec<Near> {
        self.begin(quest.graph.nodes());
        for &start in starts {
            self.seen[node_of(start) as usize] = self.now;
            self.open.push(start);
            if admits(node_of(start)) {
                self.found.push(Reverse(start));
            }
        }
        // More starts than are wanted come only from a wider walk on the level above.
        while self.found.len() > breadth {
            self.found.pop();
        }
        while let Some(next) = self.open.pop() {
            let full = self.found.len() == breadth;
            if full
                && self.found.peek().is_some_and(|&Reverse(worst)| closeness_of(next) < closeness_of(worst))
            {
                break;
            }
            self.fresh.clear();
            for neighbour in quest.graph.neighbours(level, node_of(next)) {
                let seen = &mut self.seen[neighbour as usize];
                if *seen != self.now {
                    *seen = self.now;
                    quest.space.prefetch(neighbour);
                    self.fresh.push(neighbour);
                }
            }
            // The next to be looked at, unless one of these is closer.
            if let Some(&next) = self.open.peek() {
                quest.graph.prefetch(level, node_of(next));
            }
            for &neighbour in &self.fresh {
                let near = quest.near(neighbour);
                let full = self.found.len() == breadth;
                if full && self.found.peek().is_some_and(|&Reverse(worst)| near < worst) {
                    continue;
                }
                self.open.push(near);
                if admits(neighbour) {
                    if full {
                        self.found.pop();
                    }
                    self.found.push(Reverse(near));
                }
            }
        }
        let mut list: Vec<Near> = self.found.drain().map(|Reverse(near)| near).collect();
        list.sort_unstable_by(|a, b| b.cmp(a));
        list
    }

    fn begin(&mut self, nodes: usize) {
        self.open.clear();
        self.found.clear();
        if self.seen.len() < nodes || self.now == u8::MAX {
            self.seen.clear();
            self.seen.resize(nodes, 0);
            self.now = 0;
        }
        self.now += 1;
    }
}
