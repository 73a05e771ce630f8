//! What the samples of a batch show: one class each, or a set of labels each.

/// The labels of the samples; they decide what a query's positives are.
#[derive(Clone, Copy, Debug)]
pub enum Labels<'a> {
    /// One class per sample; the positives of a query are the other samples of its class.
    Classes(&'a [u32]),
    /// A set of labels per sample; two samples that share one are positives of each other.
    Sets(&'a [Vec<u32>]),
}

impl Labels<'_> {
    /// Number of samples.
    pub fn len(&self) -> usize {
        match self {
            Labels::Classes(classes) => classes.len(),
            Labels::Sets(sets) => sets.len(),
        }
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each sample shares one of `labels`. One call for a row of pairs is much faster than [`related`](Self::related)
    /// for each of them.
    ///
    /// # Panics
    ///
    /// If `related` does not have a place for each sample.
    pub(crate) fn relate(&self, labels: &[u32], related: &mut [bool]) {
        assert_eq!(self.len(), related.len(), "{} samples and {} places", self.len(), related.len());
        match (self, labels) {
            (Labels::Classes(classes), &[label]) => {
                for j in 0..related.len() {
                    related[j] = classes[j] == label;
                }
            }
            _ => {
                for j in 0..related.len() {
                    related[j] = share_a_label(labels, self.of(j));
                }
            }
        }
    }

    /// Whether samples `i` and `j` share a class or a label.
    #[inline]
    pub fn related(&self, i: usize, j: usize) -> bool {
        share_a_label(self.of(i), self.of(j))
    }
}

impl<'a> Labels<'a> {
    /// The labels of sample `i`.
    #[inline]
    pub fn of(self, i: usize) -> &'a [u32] {
        match self {
            Labels::Classes(classes) => &classes[i..=i],
            Labels::Sets(sets) => &sets[i],
        }
    }
}

/// Labels of one's own, for batches that a loss extends.
#[derive(Clone, Debug)]
pub(crate) enum OwnedLabels {
    Classes(Vec<u32>),
    Sets(Vec<Vec<u32>>),
}

impl OwnedLabels {
    pub(crate) fn borrowed(&self) -> Labels<'_> {
        match self {
            OwnedLabels::Classes(classes) => Labels::Classes(classes),
            OwnedLabels::Sets(sets) => Labels::Sets(sets),
        }
    }
}

impl From<Labels<'_>> for OwnedLabels {
    fn from(labels: Labels<'_>) -> Self {
        match labels {
            Labels::Classes(classes) => OwnedLabels::Classes(classes.to_vec()),
            Labels::Sets(sets) => OwnedLabels::Sets(sets.to_vec()),
        }
    }
}

#[inline]
pub(crate) fn share_a_label(a: &[u32], b: &[u32]) -> bool {
    match (a, b) {
        ([a], [b]) => a == b,
        _ => a.iter().any(|label| b.contains(label)),
    }
}
