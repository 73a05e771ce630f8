//! The choice of a miner for a whole batch, as tensors.

use burn::tensor::{Int, Tensor, TensorData};
use gallerist_tensor::pairwise::{distances, host};
use rayon::prelude::*;

use super::config::MinerConfig;
use super::rule::{Candidates, Choice, Miner, checked};
use crate::labels::Labels;
use crate::lists::Lists;
use crate::ranking::Progress;
use crate::toolbox::Pairs;

/// What a miner selected.
#[derive(Clone, Debug)]
pub struct Mined {
    /// `[n, m]`: how often each pair of a query and one of its positives is selected; 0 or 1.
    pub positives: Tensor<2>,
    /// `[n, m]`: how often each pair of a query and one of its negatives is selected.
    pub negatives: Tensor<2>,
    /// `[n, m]`: at a selected positive the negative that makes a triplet with it, 0 elsewhere. Absent:
    /// each positive of a query makes one with each negative.
    pub partners: Option<Tensor<2, Int>>,
    /// A choice that is not among the candidates ([`Miner::choose`]); nothing is selected for its query.
    pub problem: Option<String>,
}

impl Mined {
    /// The selected pairs, each once.
    pub(crate) fn pairs(&self) -> Pairs {
        Pairs { positives: self.positives.clone(), negatives: self.negatives.clone().clamp_max(1.0) }
    }
}

/// The pairs that a loss looks at: those of its miner, or all.
pub(crate) fn in_force(
    miner: Option<&MinerConfig>,
    pairs: &Pairs,
    lists: &Lists<'_>,
    progress: Progress,
) -> Mined {
    match miner {
        Some(miner) if !miner.keeps_all() => run(&**miner, pairs, lists, progress),
        _ => Mined {
            positives: pairs.positives.clone(),
            negatives: pairs.negatives.clone(),
            partners: None,
            problem: None,
        },
    }
}

fn run(miner: &dyn Miner, pairs: &Pairs, lists: &Lists<'_>, progress: Progress) -> Mined {
    let [n, m] = lists.dims();
    let [_, dimensions] = lists.embeddings().dims();
    let (queries, gallery) = (lists.embeddings().clone().detach(), lists.gallery().detach());
    let values = match miner.reads_similarities() {
        true => queries.matmul(gallery.transpose()),
        false => distances(&queries, &gallery),
    };
    let values = host(&values);
    let (positives, negatives) = (host(&pairs.positives), host(&pairs.negatives));
    let choose = |query: usize| {
        let row = query * m..(query + 1) * m;
        let among = |mask: &[f64]| -> Vec<usize> { (0..m).filter(|&j| mask[row.start + j] != 0.0).collect() };
        let candidates = Candidates {
            query,
            values: &values[row.clone()],
            positives: &among(&positives),
            negatives: &among(&negatives),
            dimensions,
            step: progress.step,
        };
        checked(miner, &candidates)
    };
    let choices: Vec<(Choice, Option<String>)> = (0..n).into_par_iter().map(choose).collect();

    let mut positives = vec![0f32; n * m];
    let mut negatives = vec![0f32; n * m];
    let mut partners = vec![0i64; if miner.gives_triplets() { n * m } else { 0 }];
    let mut first_problem = None;
    for (query, (choice, problem)) in choices.into_iter().enumerate() {
        first_problem = first_problem.or(problem);
        let at = |j: usize| query * m + j;
        match choice {
            Choice::Product { positives: p, negatives: n } => {
                p.into_iter().for_each(|p| positives[at(p)] = 1.0);
                n.into_iter().for_each(|n| negatives[at(n)] = 1.0);
            }
            Choice::Triplets(triplets) => {
                for (p, n) in triplets {
                    positives[at(p)] = 1.0;
                    negatives[at(n)] += 1.0;
                    partners[at(p)] = n as i64;
                }
            }
        }
    }
    let (device, dtype) = (pairs.positives.device(), pairs.positives.dtype());
    let tensor = |weights: Vec<f32>| Tensor::from_data(TensorData::new(weights, [n, m]), (&device, dtype));
    Mined {
        positives: tensor(positives),
        negatives: tensor(negatives),
        partners: miner
            .gives_triplets()
            .then(|| Tensor::from_data(TensorData::new(partners, [n, m]), &device)),
        problem: first_problem,
    }
}

impl MinerConfig {
    /// The selected pairs of a batch.
    ///
    /// # Shapes
    ///
    /// `embeddings` `[n, d]`, `labels` of `n` samples; the result is `[n, n]`, on the device and of the
    /// type of `embeddings`. Memory and time: `O(n^2)` and `O(n^2 d)`.
    ///
    /// # Panics
    ///
    /// If `embeddings` and `labels` disagree about `n`.
    pub fn mine(&self, embeddings: &Tensor<2>, labels: Labels<'_>, progress: Progress) -> Mined {
        let lists = Lists::new(embeddings.clone(), labels, None);
        in_force(Some(self), &Pairs::new(&lists), &lists, progress)
    }
}
