//! Who is whose positive, as lists.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::labels::Labels;

/// The samples of the gallery that carry each label of a query, and the labels of each query.
pub(crate) struct Relatives {
    /// Per label its samples, ascending.
    members: Vec<Vec<u32>>,
    /// Per query the labels it carries, as indices into `members`.
    labels: Vec<Vec<u32>>,
    /// Number of positives of each query.
    counts: Vec<u32>,
    /// Whether no query is a sample of the gallery.
    apart: bool,
}

impl Relatives {
    /// Of queries with `labels`, whose gallery is themselves and then the samples of `memory`.
    pub(crate) fn new(labels: Labels<'_>, memory: Option<Labels<'_>>) -> Self {
        Self::of(labels, memory, false)
    }

    /// Of queries with `labels`, whose gallery is other samples.
    pub(super) fn among(labels: Labels<'_>, gallery: Labels<'_>) -> Self {
        Self::of(labels, Some(gallery), true)
    }

    fn of(labels: Labels<'_>, others: Option<Labels<'_>>, apart: bool) -> Self {
        let mut index = HashMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        // A set that names a label twice carries it once.
        let carry = |members: &mut Vec<u32>, sample: usize| {
            if members.last() != Some(&(sample as u32)) {
                members.push(sample as u32);
            }
        };
        let n = labels.len();
        let labels: Vec<Vec<u32>> = (0..n)
            .map(|i| {
                let of_label = |&label: &u32| {
                    let at = *index.entry(label).or_insert(members.len());
                    if at == members.len() {
                        members.push(Vec::new());
                    }
                    if !apart {
                        carry(&mut members[at], i);
                    }
                    at as u32
                };
                labels.of(i).iter().map(of_label).collect()
            })
            .collect();
        if let Some(others) = others {
            let first = if apart { 0 } else { n };
            for j in 0..others.len() {
                for label in others.of(j) {
                    // A label that no query has makes no positive.
                    if let Some(&at) = index.get(label) {
                        carry(&mut members[at], first + j);
                    }
                }
            }
        }
        let mut relatives = Relatives { members, labels, counts: Vec::new(), apart };
        relatives.counts = (0..relatives.labels.len())
            .into_par_iter()
            .with_min_len(256)
            .map_init(Vec::new, |list, i| {
                relatives.positives(i, list);
                list.len() as u32
            })
            .collect();
        relatives
    }

    /// Fills `list` with the positives of query `i`, ascending, itself left out.
    pub(super) fn positives(&self, i: usize, list: &mut Vec<u32>) {
        list.clear();
        for &label in &self.labels[i] {
            list.extend_from_slice(&self.members[label as usize]);
        }
        if self.labels[i].len() > 1 {
            list.sort_unstable();
            list.dedup();
        }
        if !self.apart
            && let Ok(at) = list.binary_search(&(i as u32))
        {
            list.remove(at);
        }
    }

    /// Whether the gallery is other samples than the queries.
    pub(super) fn are_apart(&self) -> bool {
        self.apart
    }

    /// Number of positives of each query.
    pub(crate) fn counts(&self) -> &[u32] {
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
        for n in [5, 3] {
            let split = [
                (Labels::Sets(&sets), Labels::Sets(&sets[..n]), Labels::Sets(&sets[n..])),
                (Labels::Classes(&classes), Labels::Classes(&classes[..n]), Labels::Classes(&classes[n..])),
            ];
            for (all, queries, memory) in split {
                let relatives = Relatives::new(queries, Some(memory));
                assert_eq!(relatives.counts().len(), n);
                let mut list = Vec::new();
                for i in 0..n {
                    relatives.positives(i, &mut list);
                    let wanted: Vec<u32> =
                        (0..5).filter(|&j| j != i && all.related(i, j)).map(|j| j as u32).collect();
                    assert_eq!(list, wanted);
                    assert_eq!(relatives.counts()[i], wanted.len() as u32);
                }
                let apart = Relatives::among(queries, memory);
                for i in 0..n {
                    apart.positives(i, &mut list);
                    let wanted: Vec<u32> =
                        (n..5).filter(|&j| all.related(i, j)).map(|j| (j - n) as u32).collect();
                    assert_eq!(list, wanted);
                    assert_eq!(apart.counts()[i], wanted.len() as u32);
                }
            }
        }
    }
}
