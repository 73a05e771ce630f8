//! How far training has come, and what a loss says of each query.

/// How far training has come; losses with a schedule read it, and random draws (miners, similarity mixup) depend on the step.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
}

impl Default for Progress {
    /// The first of one step.
    fn default() -> Self {
        Progress { step: 0, steps: 1 }
    }
}

/// Diagnostics of a loss, one entry per query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queries {
    /// The loss of each query, before the mean over the batch.
    pub loss: Vec<f32>,
    /// Number of positives of each query, in batch and memory.
    pub positives: Vec<u32>,
    /// Number of negatives of each query.
    pub negatives: Vec<u32>,
    /// Positives that contribute to the gradient (non-trivial, "mined").
    pub mined_positives: Vec<u32>,
    /// Negatives that contribute to the gradient.
    pub mined_negatives: Vec<u32>,
    /// Terms of each query's loss, where the loss can have dead ones; else empty.
    pub terms: Vec<u32>,
    /// Terms that cost something and have no gradient ("dead"); empty where the loss has none.
    pub dead_terms: Vec<u32>,
    /// A remark about the batch that the user should get once.
    pub note: Option<&'static str>,
    /// Why the value is no loss: a miner has chosen what is not among its [candidates](crate::miner::Candidates). Value and
    /// gradient are then NaN.
    pub problem: Option<String>,
}

impl Queries {
    /// Queries with these numbers of positives among `candidates` samples each; no losses and nothing mined.
    pub(crate) fn counted(positives: Vec<u32>, candidates: usize) -> Self {
        Queries {
            loss: vec![0.0; positives.len()],
            negatives: positives.iter().map(|count| candidates as u32 - count).collect(),
            mined_positives: vec![0; positives.len()],
            mined_negatives: vec![0; positives.len()],
            positives,
            ..Queries::default()
        }
    }

    /// Keeps the first `n` queries.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.loss.truncate(n);
        for counts in [
            &mut self.positives,
            &mut self.negatives,
            &mut self.mined_positives,
            &mut self.mined_negatives,
            &mut self.terms,
            &mut self.dead_terms,
        ] {
            counts.truncate(n);
        }
    }

    /// Share of all positive pairs that are non-trivial; 0 where there is none.
    pub fn positive_share(&self) -> f32 {
        share(&self.mined_positives, &self.positives)
    }

    /// Share of all negative pairs that are non-trivial; 0 where there is none.
    pub fn negative_share(&self) -> f32 {
        share(&self.mined_negatives, &self.negatives)
    }

    /// Share of all terms that are dead; 0 where the loss has no such terms.
    pub fn dead_share(&self) -> f32 {
        share(&self.dead_terms, &self.terms)
    }
}

fn share(part: &[u32], all: &[u32]) -> f32 {
    let sum = |v: &[u32]| v.iter().map(|&x| x as u64).sum::<u64>() as f32;
    if sum(all) == 0.0 { 0.0 } else { sum(part) / sum(all) }
}
