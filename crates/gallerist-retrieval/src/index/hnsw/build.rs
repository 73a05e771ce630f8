//! New nodes for the graph (Malkov and Yashunin, 2018, algorithms 1 and 4), many at a time.
//!
//! Nodes are added in batches: every node of a batch looks for its neighbours in the graph as it
//! was before the batch, all threads at once; then the lists of all nodes that got a new neighbour
//! are written, in the order of their numbers. No lock is needed, and the graph is the same for
//! any number of threads (Manohar et al., ParlayANN, PPoPP 2024). Nodes of one batch do not see
//! each other, so a batch is small against the graph and against what is added, and drawn from
//! all of it.

use std::sync::Mutex;

use rayon::prelude::*;

use super::graph::Graph;
use super::space::Space;
use super::walk::{Near, Quest, Walk, closeness_of, node_of};
use crate::search::rank_key;

/// The level of a node: geometric, a factor of `m` fewer nodes from level to level.
pub(super) fn level_of(node: u32, m: usize, seed: u64) -> u8 {
    // 53 bits, never 0.
    let uniform = ((mix(seed ^ mix(u64::from(node))) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-uniform.ln() / (m.max(2) as f64).ln()).min(f64::from(super::graph::TOP)) as u8
}

/// SplitMix64 (Steele et al., 2014): a bijection that spreads neighbouring numbers.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// A node that becomes a neighbour: of which node, on which level.
type Edge = (u8, u32, u32);

/// Links the nodes from `first` on into the graph, with `breadth` candidates each; tells `progress`
/// how many are done. Ends between two batches when `ends` says so, and returns the nodes that are not linked.
pub(super) fn link(
    graph: &mut Graph,
    space: Space,
    (first, breadth, seed): (u32, usize, u64),
    walks: &Mutex<Vec<Walk>>,
    ends: impl Fn() -> bool,
    progress: &mut dyn FnMut(usize),
) -> Vec<u32> {
    let mut order: Vec<u32> = (first..graph.levels.len() as u32).collect();
    order.par_sort_unstable_by_key(|&node| mix(seed.wrapping_add(1) ^ mix(u64::from(node))));
    let most = (order.len() / 50).max(1);
    let mut done = 0;
    while done < order.len() && !ends() {
        let inside = first as usize + done;
        let size = (inside / 8).clamp(1, most).min(order.len() - done);
        batch(graph, space, &order[done..done + size], breadth, walks);
        done += size;
        progress(done);
    }
    order.split_off(done)
}

fn batch(graph: &mut Graph, space: Space, nodes: &[u32], breadth: usize, walks: &Mutex<Vec<Walk>>) {
    let frozen = &*graph;
    let neighbours: Vec<Vec<(u8, Vec<u32>)>> = nodes
        .par_iter()
        .map(|&node| {
            let mut walk = walks.lock().expect("no walk panics").pop().unwrap_or_default();
            let found = find_neighbours(frozen, space, node, breadth, &mut walk);
            walks.lock().expect("no walk panics").push(walk);
            found
        })
        .collect();

    let mut edges: Vec<Edge> = Vec::new();
    for (&node, levels) in nodes.iter().zip(&neighbours) {
        for (level, list) in levels {
            graph.set(*level, node, list);
            edges.extend(list.iter().map(|&neighbour| (*level, neighbour, node)));
        }
    }
    edges.par_sort_unstable();
    let groups: Vec<&[Edge]> = edges.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).collect();
    let frozen = &*graph;
    let lists: Vec<Vec<u32>> = groups.par_iter().map(|group| with_new(frozen, space, group)).collect();
    for (group, list) in groups.iter().zip(&lists) {
        graph.set(group[0].0, group[0].1, list);
    }

    for &node in nodes {
        let higher = |entry: u32| graph.levels[node as usize] > graph.levels[entry as usize];
        if graph.entry.is_none_or(higher) {
            graph.entry = Some(node);
        }
    }
}

/// The neighbours of a node that is not linked yet, on each of its levels.
fn find_neighbours(
    graph: &Graph,
    space: Space,
    node: u32,
    breadth: usize,
    walk: &mut Walk,
) -> Vec<(u8, Vec<u32>)> {
    let view = graph.view();
    let Some(entry) = view.entry else { return Vec::new() };
    let quest = Quest { graph: view, space, row: space.row(node), inverse: space.inverse_of(node) };
    let (own, top) = (view.level(node), view.level(entry));
    let mut near = quest.near(entry);
    for level in (own + 1..=top).rev() {
        near = Walk::descend(&quest, near, level);
    }
    let mut starts = vec![near];
    let mut found = Vec::new();
    for level in (0..=own.min(top)).rev() {
        let candidates = walk.beam(&quest, &starts, level, breadth, |_| true);
        found.push((level, select(space, &candidates, graph.m)));
        starts = candidates;
    }
    found
}

/// The list of a node with new neighbours, cut to the room there is.
fn with_new(graph: &Graph, space: Space, group: &[Edge]) -> Vec<u32> {
    let (level, node, _) = group[0];
    let new = group.iter().map(|&(_, _, neighbour)| neighbour);
    let mut list: Vec<u32> = graph.view().neighbours(level, node).chain(new).collect();
    let room = graph.room(level);
    if list.len() > room {
        list.iter().for_each(|&other| space.prefetch(other));
        let (row, inverse) = (space.row(node), space.inverse_of(node));
        let mut candidates: Vec<Near> =
            list.iter().map(|&other| rank_key(space.closeness(row, inverse, other), other)).collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        list = select(space, &candidates, room);
    }
    list
}

/// Of candidates, the closest first, those that are closer to the node than to any that was
/// taken before: neighbours in every direction (algorithm 4).
fn select(space: Space, candidates: &[Near], room: usize) -> Vec<u32> {
    let mut taken: Vec<u32> = Vec::with_capacity(room);
    for &candidate in candidates {
        if taken.len() == room {
            break;
        }
        let node = node_of(candidate);
        let (row, inverse) = (space.row(node), space.inverse_of(node));
        if taken.iter().all(|&other| space.closeness(row, inverse, other) <= closeness_of(candidate)) {
            taken.push(node);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_thin_out_by_a_factor_of_m() {
        let counts = (0..100_000).fold([0usize; 4], |mut counts, node| {
            counts[usize::from(level_of(node, 16, 7)).min(3)] += 1;
            counts
        });
        // Binomial: 6,250 +- 77 on level 1 or above, 391 +- 20 on level 2 or above.
        let above = |level: usize| counts[level..].iter().sum::<usize>();
        assert!((5_900..6_600).contains(&above(1)), "{counts:?}");
        assert!((300..480).contains(&above(2)), "{counts:?}");
    }
}
