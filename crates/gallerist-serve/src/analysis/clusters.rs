//! Names of the clusters of a map: the dense places, and the labels found there.
//!
//! The density of the points is estimated on a grid with a Gaussian kernel. A cluster is a local maximum, with the points
//! whose uphill path ends there (mean shift on a grid). Three widths of the kernel give coarse, middle and fine clusters.

use std::collections::HashMap;

/// Cells along the longer side of the map.
const CELLS: usize = 192;

/// The standard deviations of the kernel as shares of the longer side, coarse to fine.
pub(crate) const WIDTHS: [f64; 3] = [1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0];

/// The fewest points of a cluster with a name.
const FEWEST: usize = 3;

/// A cluster and its names.
#[derive(Debug, PartialEq)]
pub(crate) struct Cluster {
    /// The densest place, in the units of the points.
    pub(crate) x: f32,
    pub(crate) y: f32,
    /// The number of the width in [`WIDTHS`].
    pub(crate) level: usize,
    pub(crate) count: usize,
    /// The number of the name that most points have, and the share that has it.
    pub(crate) majority: usize,
    pub(crate) share: f64,
    /// The number of the name whose points are most concentrated here: the largest `n ln(share here / share overall)`.
    pub(crate) characteristic: usize,
}

/// The clusters of points, the largest first within each level. `names` has the number of each point's name;
/// `u32::MAX` for none.
pub(crate) fn clusters(xs: &[f32], ys: &[f32], names: &[u32]) -> Vec<Cluster> {
    let range = |values: &[f32]| {
        values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
    };
    let ((x0, x1), (y0, y1)) = (range(xs), range(ys));
    let side = f64::from((x1 - x0).max(y1 - y0));
    if xs.is_empty() || side.is_nan() || side <= 0.0 {
        return Vec::new();
    }
    let cell =
        |value: f32, low: f32| ((f64::from(value - low) / side * CELLS as f64) as usize).min(CELLS - 1);
    let cells: Vec<usize> = xs.iter().zip(ys).map(|(&x, &y)| cell(y, y0) * CELLS + cell(x, x0)).collect();
    let mut overall: HashMap<u32, usize> = HashMap::new();
    names.iter().for_each(|&name| *overall.entry(name).or_default() += 1);
    let mut found = Vec::new();
    for (level, width) in WIDTHS.iter().enumerate() {
        let modes = modes(&density(&cells, width * CELLS as f64));
        let mut members: HashMap<usize, HashMap<u32, usize>> = HashMap::new();
        for (&cell, &name) in cells.iter().zip(names) {
            *members.entry(modes[cell]).or_default().entry(name).or_default() += 1;
        }
        let centre = |at: usize, low: f32| (f64::from(low) + (at as f64 + 0.5) / CELLS as f64 * side) as f32;
        let mut of_level: Vec<Cluster> = members
            .into_iter()
            .filter_map(|(mode, counts)| {
                let (x, y) = (centre(mode % CELLS, x0), centre(mode / CELLS, y0));
                named(level, (x, y), &counts, &overall, names.len())
            })
            .collect();
        of_level.sort_by(|a, b| b.count.cmp(&a.count).then(a.y.total_cmp(&b.y)).then(a.x.total_cmp(&b.x)));
        found.extend(of_level);
    }
    found
}

fn named(
    level: usize,
    (x, y): (f32, f32),
    counts: &HashMap<u32, usize>,
    overall: &HashMap<u32, usize>,
    all: usize,
) -> Option<Cluster> {
    let count: usize = counts.values().sum();
    let mut of_names: Vec<(u32, usize)> =
        counts.iter().map(|(&name, &n)| (name, n)).filter(|(name, _)| *name != u32::MAX).collect();
    // The lower number wins where two names are equally frequent.
    of_names.sort_unstable();
    let &(majority, most) = of_names.iter().rev().max_by_key(|(_, n)| *n)?;
    let weight = |&(name, n): &(u32, usize)| {
        let (here, everywhere) = (n as f64 / count as f64, overall[&name] as f64 / all as f64);
        n as f64 * (here / everywhere).ln()
    };
    let characteristic = of_names.iter().rev().max_by(|a, b| weight(a).total_cmp(&weight(b)))?.0;
    (count >= FEWEST).then_some(Cluster {
        x,
        y,
        level,
        count,
        majority: majority as usize,
        share: most as f64 / count as f64,
        characteristic: characteristic as usize,
    })
}

/// The number of points around each cell, weighted by a Gaussian of this standard deviation in cells.
fn density(cells: &[usize], deviation: f64) -> Vec<f64> {
    let mut counts = vec![0.0; CELLS * CELLS];
    cells.iter().for_each(|&cell| counts[cell] += 1.0);
    let reach = (3.0 * deviation).ceil() as usize;
    let kernel: Vec<f64> = (0..=reach).map(|step| (-0.5 * (step as f64 / deviation).powi(2)).exp()).collect();
    let blur = |values: &[f64], at: fn(usize, usize) -> usize| {
        let mut blurred = vec![0.0; CELLS * CELLS];
        for line in 0..CELLS {
            for to in 0..CELLS {
                let from = to.saturating_sub(reach)..=(to + reach).min(CELLS - 1);
                blurred[at(line, to)] =
                    from.map(|from| values[at(line, from)] * kernel[from.abs_diff(to)]).sum();
            }
        }
        blurred
    };
    let rows = blur(&counts, |line, place| line * CELLS + place);
    blur(&rows, |line, place| place * CELLS + line)
}

/// For each cell the local maximum that the steepest path from it ends at.
fn modes(density: &[f64]) -> Vec<usize> {
    let higher = |at: usize| {
        let (row, column) = (at / CELLS, at % CELLS);
        let rows = row.saturating_sub(1)..=(row + 1).min(CELLS - 1);
        let columns = column.saturating_sub(1)..=(column + 1).min(CELLS - 1);
        let around = rows.flat_map(|row| columns.clone().map(move |column| row * CELLS + column));
        // Of equal cells the first: a plateau has one maximum.
        around.fold(at, |best, other| match density[other].total_cmp(&density[best]) {
            std::cmp::Ordering::Greater => other,
            std::cmp::Ordering::Equal if other < best => other,
            _ => best,
        })
    };
    let mut order: Vec<usize> = (0..density.len()).collect();
    order.sort_by(|&a, &b| density[b].total_cmp(&density[a]).then(a.cmp(&b)));
    let mut modes = vec![0; density.len()];
    for at in order {
        let next = higher(at);
        modes[at] = if next == at { at } else { modes[next] };
    }
    modes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_of_points_is_a_cluster_at_its_place_with_its_names() {
        // Three groups of 40, 30 and 20 points; name 9 is everywhere and the majority of the last.
        let groups = [(0.0f32, 0.0f32, 40), (10.0, 0.0, 30), (0.0, 10.0, 20)];
        let (mut xs, mut ys, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (number, &(x, y, count)) in groups.iter().enumerate() {
            for i in 0..count {
                let angle = i as f32;
                xs.push(x + 0.05 * angle.cos());
                ys.push(y + 0.05 * angle.sin());
                let everywhere = if number == 2 { i % 5 < 3 } else { i % 3 == 0 };
                names.push(if everywhere { 9 } else { number as u32 });
            }
        }
        let found = clusters(&xs, &ys, &names);
        for level in 0..WIDTHS.len() {
            let of_level: Vec<_> = found.iter().filter(|cluster| cluster.level == level).collect();
            assert_eq!(of_level.iter().map(|cluster| cluster.count).collect::<Vec<_>>(), [40, 30, 20]);
            for (cluster, (x, y, _)) in of_level.iter().zip(groups) {
                assert!((cluster.x - x).abs() < 0.5 && (cluster.y - y).abs() < 0.5, "{cluster:?}");
            }
            assert_eq!(of_level.iter().map(|cluster| cluster.majority).collect::<Vec<_>>(), [0, 1, 9]);
            assert_eq!(of_level.iter().map(|cluster| cluster.characteristic).collect::<Vec<_>>(), [0, 1, 2]);
            assert!((of_level[2].share - 0.6).abs() < 1e-9);
        }
        assert_eq!(clusters(&xs, &ys, &names), found, "the order is fixed");
    }

    #[test]
    fn few_points_points_at_one_place_and_points_without_names_have_no_cluster() {
        assert!(clusters(&[], &[], &[]).is_empty());
        assert!(clusters(&[1.0; 5], &[2.0; 5], &[0; 5]).is_empty());
        assert!(clusters(&[0.0, 1.0], &[0.0, 1.0], &[0, 1]).is_empty());
        assert!(clusters(&[0.0, 0.1, 0.0, 9.0], &[0.0, 0.0, 0.1, 0.0], &[u32::MAX; 4]).is_empty());
    }
}
