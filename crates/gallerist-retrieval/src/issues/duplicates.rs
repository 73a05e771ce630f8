//! Near-duplicates: pairs of rows below a distance, joined into groups.
//!
//! The largest distance of a pair is a share of the median distance of a row to its nearest neighbour, because the
//! scale of distances differs between networks. With MobileNetV2 features of CUB-200 (2010), all 53 pairs below a share
//! of 0.55 show the same photograph, mirrored, cropped or recoloured, or two photographs of one moment; the nearest two
//! images of different classes are at 0.68. With drawings of simple shapes, different drawings are that close, too: see
//! `docs/clean-data.md`.

use gallerist_util::disjoint::components;
use serde::{Deserialize, Serialize};

/// Rows that are near-duplicates, directly or through other rows of the group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DuplicateGroup {
    /// The rows, rising; at least two.
    pub rows: Vec<usize>,
    /// The smallest distance of two of them.
    pub distance: f64,
    /// The distance of each row to the first.
    pub to_first: Vec<f64>,
}

/// A pair of rows and their distance.
pub(super) type Pair = (u32, u32, f32);

/// The connected components of the pairs, by rising smallest distance, then by the first row. `distance` compares two
/// rows.
pub(super) fn groups(
    rows: usize,
    pairs: Vec<Pair>,
    distance: impl Fn(usize, usize) -> f64,
) -> Vec<DuplicateGroup> {
    let root = components(rows, pairs.iter().map(|&(a, b, _)| (a as usize, b as usize)));
    let mut members = vec![Vec::new(); rows];
    for row in 0..rows {
        members[root[row]].push(row);
    }
    let mut closest = vec![f64::INFINITY; rows];
    for (a, _, distance) in pairs {
        let closest = &mut closest[root[a as usize]];
        *closest = closest.min(f64::from(distance));
    }
    let mut groups: Vec<DuplicateGroup> = members
        .into_iter()
        .zip(closest)
        .filter(|(rows, _)| rows.len() > 1)
        .map(|(rows, closest)| {
            let to_first = rows.iter().map(|&row| distance(rows[0], row)).collect();
            DuplicateGroup { rows, distance: closest, to_first }
        })
        .collect();
    groups.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.rows[0].cmp(&b.rows[0])));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_share_a_row_are_one_group_and_the_closest_group_is_first() {
        let found = groups(7, vec![(5, 2, 0.5), (6, 5, 0.75), (0, 4, 0.25)], |a, b| a.abs_diff(b) as f64);
        assert_eq!(
            found,
            [
                DuplicateGroup { rows: vec![0, 4], distance: 0.25, to_first: vec![0.0, 4.0] },
                DuplicateGroup { rows: vec![2, 5, 6], distance: 0.5, to_first: vec![0.0, 3.0, 4.0] },
            ]
        );
        assert!(groups(3, Vec::new(), |_, _| 0.0).is_empty());
    }
}
