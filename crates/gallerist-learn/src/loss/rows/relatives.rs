//! Who is whose positive, as lists.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::loss::Labels;

/// The samples that carry each label, and the labels of each sample.
pub(super) struct Relatives {
    /// Per label its samples, ascending.
    members: Vec<Vec<u32>>,
    /// Per sample the labels it carries, as indices into `members`.
    labels: Vec<Vec<u32>>,
    /// Number of positives of each sample.
    counts: Vec<u32>,
}

impl Relatives {
    pub(super) fn new(labels: Labels<'_>) -> Self {
        let mut index = HashMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        let mut carry = |sample: usize, label: u32| {
            let at = *index.entry(label).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            // A set that names a label twice carries it once.
            if members[at].last() != Some(&(sample as u32)) {
                members[at].push(sample as u32);
            }
            at as u32
        };
        let labels: Vec<Vec<u32>> = match labels {
            Labels::Classes(classes) => {
                classes.iter().enumerate().map(|(i, &class)| vec![carry(i, class)]).collect()
            }
            Labels::Sets(sets) => sets
                .iter()
                .enumerate()
                .map(|(i, set)| set.iter().map(|&label| carry(i, label)).collect())
                .collect(),
        };
        let mut relatives = Relatives { members, labels, counts: Vec::new() };
        relatives.counts = (0..relatives.labels.len())
            .into_par_iter()
            .map_init(Vec::new, |list, i| {
                relatives.positives(i, list);
                list.len() as u32
            })
            .collect();
        relatives
    }

    /// Fills `list` with the positives of sample `i`, ascending, itself left out.
    pub(super) fn positives(&self, i: usize, list: &mut Vec<u32>) {
        list.clear();
        for &label in &self.labels[i] {
            list.extend_from_slice(&self.members[label as usize]);
        }
        if self.labels[i].len() > 1 {
            list.sort_unstable();
            list.dedup();
        }
        if let Ok(at) = list.binary_search(&(i as u32)) {
            list.remove(at);
        }
    }

    /// Number of positives of each sample.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positives_are_those_that_share_a_label() {
        let sets = [vec![1, 2], vec![2, 2, 3], vec![4], vec![], vec![3, 1, 2]];
        let classes = [7, 3, 7, 7, 3];
        for labels in [Labels::Sets(&sets), Labels::Classes(&classes)] {
            let relatives = Relatives::new(labels);
            let mut list = Vec::new();
            for i in 0..5 {
                relatives.positives(i, &mut list);
                let wanted: Vec<u32> =
                    (0..5).filter(|&j| j != i && labels.related(i, j)).map(|j| j as u32).collect();
                assert_eq!(list, wanted);
                assert_eq!(relatives.counts()[i], wanted.len() as u32);
            }
        }
    }
}
