//! Struct Clust: make the clustering by facility location find the classes, by a margin that grows with how
//! far a clustering is from them.
//!
//! Song et al., "Deep Metric Learning via Facility Location", CVPR 2017 (Eqs. 1-7, Algorithms 1 and 2). Normalised
//! embeddings. With `d_ij` the Euclidean distance and `K` the number of classes in the batch:
//!
//! ```text
//! F(S)    = - sum over i of min over j in S of d_ij                         S: K medoids out of the batch
//! F(y)    = sum over classes c of max over j in c of - sum over i in c of d_ij
//! A(S)    = F(S) + gamma (1 - NMI(y, g(S)))                                 g: to the nearest medoid
//! L       = [ max over S of A(S) - F(y) ]_+
//! NMI     = I(y, g) / sqrt(H(y) H(g)), 1 where both are one cluster, 0 where one of them is
//! ```
//!
//! The maximum is searched for as in the paper: medoids are added greedily, then, up to `refinements` times,
//! each cluster's medoid is swapped for the member that makes `A` largest. It is a lower bound of the
//! maximum over all sets.
//!
//! **Held constant**: the medoids and who belongs to them (a subgradient): every sample is pulled to the
//! medoid of its class and pushed from its medoid in `S`, both ends of the distance moving.
//!
//! The loss of a query is `n` times the difference of its two distances plus the batch's `gamma (1 - NMI)`,
//! so that the mean over the queries is the value. A query's mined positive is its class's medoid, its mined
//! negative the medoid of another class it is pushed from.
//!
//! # Corner cases
//!
//! - One class, or only classes of one: the two clusterings are equal, loss 0.
//! - A distance of 0 has no gradient. In a collapsed batch the value is what the margin says, without gradient.
//! - Ties: the lower index, among medoids to go to as among candidates.
//! - Label sets: samples with the same set form a class.
//!
//! Memory: `O(n (n + d))`, and `O(n K)` per thread. Time: `O(n^2 d + n^2 K + refinements (n^2 + n K^2))`; the candidates
//! are tried in parallel, the choice among them does not depend on the number of threads.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, Queries, RankingLoss};
use crate::spec::{Limit, LossShape, LossSpec, in_range};
use crate::toolbox::with_gradient;
use gallerist_tensor::pairwise::{distances, host};

/// Parameters of [`StructClust`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, StructClustConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = StructClustConfig { gamma: 0.5, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StructClustConfig {
    /// Weight of the margin `1 - NMI`. 1 in the authors' released layer.
    pub gamma: f64,
    /// Largest number of rounds of medoid swaps. 5 in the paper.
    pub refinements: usize,
}

impl Default for StructClustConfig {
    fn default() -> Self {
        StructClustConfig { gamma: 8.2, refinements: 5 }
    }
}

impl StructClustConfig {
    /// The loss.
    pub fn init(&self) -> StructClust {
        StructClust { config: self.clone() }
    }
}

impl Named for StructClustConfig {
    const NAME: &'static str = "struct_clust";
}

impl LossSpec for StructClustConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn limits(&self, _: usize) -> Vec<Limit> {
        vec![Limit::Count { key: "loss.refinements", found: self.refinements, most: 1000 }]
    }

    fn validate(&self) -> Result<()> {
        in_range("gamma", self.gamma, self.gamma >= 0.0, "0 or more")
    }
}

/// Struct Clust; see [`StructClustConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct StructClust {
    #[module(skip)]
    config: StructClustConfig,
}

/// The class of each sample as a number from 0 on, in the order of first appearance, and how many there are.
/// Samples with the same set of labels form a class.
pub(super) fn partition(labels: Labels<'_>) -> (Vec<usize>, usize) {
    let mut seen = std::collections::HashMap::new();
    let classes = (0..labels.len())
        .map(|i| {
            let mut key = match labels {
                Labels::Classes(classes) => vec![classes[i]],
                Labels::Sets(sets) => sets[i].clone(),
            };
            key.sort_unstable();
            key.dedup();
            let next = seen.len();
            *seen.entry(key).or_insert(next)
        })
        .collect();
    (classes, seen.len())
}

/// A clustering problem: distances, classes, and the weight of the margin.
struct Problem<'a> {
    n: usize,
    /// `[n, n]`, symmetric to the last bit, so that a tie is a tie.
    distances: Vec<f64>,
    classes: &'a [usize],
    class_count: usize,
    gamma: f64,
    /// `c ln c` for every count there can be.
    c_ln_c: Vec<f64>,
    /// The sum of `c ln c` over the classes.
    by_class: f64,
}

/// The medoid of each sample and how far it is.
struct Assignment {
    medoids: Vec<usize>,
    distances: Vec<f64>,
}

/// Working memory of one thread. The counts of a clustering by cluster and by (cluster, class) are 0 between
/// two uses.
struct Scratch {
    trial: Assignment,
    clusters: Vec<u32>,
    cells: Vec<u32>,
}

impl<'a> Problem<'a> {
    fn new(mut distances: Vec<f64>, classes: &'a [usize], class_count: usize, gamma: f64) -> Self {
        let n = classes.len();
        // The two triangles of a matrix product may differ in the last place.
        (0..n).for_each(|i| (0..i).for_each(|j| distances[i * n + j] = distances[j * n + i]));
        let c_ln_c: Vec<f64> =
            (0..=n).map(|c| if c == 0 { 0.0 } else { c as f64 * (c as f64).ln() }).collect();
        let mut sizes = vec![0; class_count];
        classes.iter().for_each(|&class| sizes[class] += 1);
        let by_class = sizes.iter().map(|&size: &usize| c_ln_c[size]).sum();
        Problem { n, distances, classes, class_count, gamma, c_ln_c, by_class }
    }

    /// Every sample's distance to sample `j`.
    fn to(&self, j: usize) -> &[f64] {
        &self.distances[j * self.n..][..self.n]
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            trial: Assignment { medoids: vec![0; self.n], distances: vec![0.0; self.n] },
            clusters: vec![0; self.n],
            cells: vec![0; self.n * self.class_count],
        }
    }

    /// Normalised mutual information of the classes and a clustering, its clusters numbered below `n`.
    fn nmi(&self, clustering: &[usize], clusters: &mut [u32], cells: &mut [u32]) -> f64 {
        for (&cluster, &class) in clustering.iter().zip(self.classes) {
            clusters[cluster] += 1;
            cells[cluster * self.class_count + class] += 1;
        }
        // n H = n ln n - sum of c ln c; a count is taken once and set back to 0.
        let (mut by_cluster, mut by_cell) = (0.0, 0.0);
        for (&cluster, &class) in clustering.iter().zip(self.classes) {
            by_cluster += self.c_ln_c[std::mem::take(&mut clusters[cluster]) as usize];
            by_cell += self.c_ln_c[std::mem::take(&mut cells[cluster * self.class_count + class]) as usize];
        }
        let all = self.c_ln_c[self.n];
        // Relative to n ln n: what is left of equal sums is rounding.
        let entropy = |sum: f64| if all - sum > 1e-12 * all { all - sum } else { 0.0 };
        let (h_class, h_cluster, h_joint) = (entropy(self.by_class), entropy(by_cluster), entropy(by_cell));
        match (h_class == 0.0, h_cluster == 0.0) {
            (true, true) => 1.0,
            (false, false) => {
                ((h_class + h_cluster - h_joint) / (h_class * h_cluster).sqrt()).clamp(0.0, 1.0)
            }
            _ => 0.0,
        }
    }

    /// `gamma (1 - NMI)` of an assignment.
    fn margin(&self, assignment: &Assignment, scratch: &mut Scratch) -> f64 {
        self.gamma * (1.0 - self.nmi(&assignment.medoids, &mut scratch.clusters, &mut scratch.cells))
    }

    /// `A` of what `base` becomes when `candidate` is one more medoid.
    fn score_with(&self, base: &Assignment, candidate: usize, scratch: &mut Scratch) -> f64 {
        let Scratch { trial, clusters, cells } = scratch;
        trial.medoids.copy_from_slice(&base.medoids);
        trial.distances.copy_from_slice(&base.distances);
        self.offer(trial, candidate);
        self.gamma * (1.0 - self.nmi(&trial.medoids, clusters, cells)) - trial.distances.iter().sum::<f64>()
    }

    /// Moves every sample to `candidate` that is nearer to it, or as near and it has the lower index.
    fn offer(&self, assignment: &mut Assignment, candidate: usize) {
        let Assignment { medoids, distances } = assignment;
        for ((medoid, old), &new) in medoids.iter_mut().zip(distances).zip(self.to(candidate)) {
            if new < *old || (new == *old && candidate < *medoid) {
                (*medoid, *old) = (candidate, new);
            }
        }
    }

    /// The nearest of `set` to each sample; nowhere, infinitely far, where the set is empty.
    fn assign(&self, set: impl IntoIterator<Item = usize>) -> Assignment {
        let mut nowhere = Assignment { medoids: vec![0; self.n], distances: vec![f64::INFINITY; self.n] };
        set.into_iter().for_each(|medoid| self.offer(&mut nowhere, medoid));
        nowhere
    }

    /// The first of `candidates` whose addition to `base` makes `A` largest, and that `A`.
    fn best(&self, base: &Assignment, candidates: &[usize]) -> Option<(f64, usize)> {
        let scores: Vec<f64> = candidates
            .par_iter()
            .with_min_len(16)
            .map_init(|| self.scratch(), |scratch, &candidate| self.score_with(base, candidate, scratch))
            .collect();
        let first = |best: (f64, usize), next: (f64, usize)| if higher(next.0, best.0) { next } else { best };
        scores.into_iter().zip(candidates.iter().copied()).reduce(first)
    }

    /// The medoid of each sample's class.
    fn class_medoids(&self) -> Vec<usize> {
        let mut members = vec![Vec::new(); self.class_count];
        self.classes.iter().enumerate().for_each(|(i, &class)| members[class].push(i));
        let medoid = |members: &Vec<usize>| {
            let cost = |j: usize| members.iter().map(|&i| self.to(j)[i]).sum::<f64>();
            let lower = |best: usize, next: usize| if higher(cost(best), cost(next)) { next } else { best };
            members.iter().copied().reduce(lower).expect("a class has a member")
        };
        let medoids: Vec<usize> = members.iter().map(medoid).collect();
        self.classes.iter().map(|&class| medoids[class]).collect()
    }

    /// Algorithm 1: adds the medoid that makes `A` largest, `K` times.
    fn greedy(&self) -> Vec<usize> {
        let mut set: Vec<usize> = Vec::with_capacity(self.class_count);
        let mut assignment = self.assign([]);
        while set.len() < self.class_count {
            let free: Vec<usize> = (0..self.n).filter(|candidate| !set.contains(candidate)).collect();
            let (_, chosen) =
                self.best(&assignment, &free).expect("there are at least as many samples as classes");
            self.offer(&mut assignment, chosen);
            set.push(chosen);
        }
        set
    }

    /// Algorithm 2: swaps each cluster's medoid for the member that makes `A` largest, until nothing changes.
    fn refine(&self, mut set: Vec<usize>, rounds: usize) -> Vec<usize> {
        for _ in 0..rounds {
            let before = set.clone();
            let clusters = self.assign(set.iter().copied()).medoids;
            for k in 0..set.len() {
                let others = self.assign(set.iter().copied().filter(|&medoid| medoid != set[k]));
                let members = (0..self.n).filter(|&i| clusters[i] == before[k] && !set.contains(&i));
                // The present medoid is the first candidate: it stays unless another one is better.
                let candidates: Vec<usize> = std::iter::once(set[k]).chain(members).collect();
                if let Some((_, chosen)) = self.best(&others, &candidates) {
                    set[k] = chosen;
                }
            }
            if set == before {
                break;
            }
        }
        set
    }
}

/// Whether one score is above another by more than the rounding of their sums: a cluster of two costs the
/// same with either as its medoid.
fn higher(score: f64, than: f64) -> bool {
    score > than + 1e-12 * (1.0 + than.abs())
}

impl RankingLoss for StructClust {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let StructClustConfig { gamma, refinements } = self.config;
        let [n, _] = embeddings.dims();
        let (classes, class_count) = partition(labels);
        let tracked = distances(&embeddings, &embeddings);
        let values = host(&tracked);
        let problem = Problem::new(values, &classes, class_count, gamma);
        let found = problem.assign(problem.refine(problem.greedy(), refinements));
        let wanted = problem.class_medoids();
        let margin = if n == 0 { 0.0 } else { problem.margin(&found, &mut problem.scratch()) };
        let (found, nearest) = (found.medoids, found.distances);
        let gap = |i: usize| problem.to(wanted[i])[i] - nearest[i];
        let hinge = (0..n).map(gap).sum::<f64>() + margin;
        let active = hinge > 0.0;

        let mut coefficients = vec![0.0; n * n];
        let mut per_query = vec![0.0; n];
        let (mut pulled, mut pushed) = (vec![0; n], vec![0; n]);
        for i in (0..n).filter(|_| active) {
            per_query[i] = (n as f64 * gap(i) + margin) as f32;
            if wanted[i] == found[i] {
                continue;
            }
            coefficients[i * n + wanted[i]] += 1.0;
            coefficients[i * n + found[i]] -= 1.0;
            pulled[i] = (problem.to(wanted[i])[i] > 0.0) as u32;
            pushed[i] = (classes[i] != classes[found[i]] && nearest[i] > 0.0) as u32;
        }
        let options = (embeddings.device(), embeddings.dtype());
        let coefficients =
            Tensor::<2>::from_data(TensorData::new(coefficients, [n, n]), (&options.0, options.1));
        let hinge = Tensor::<1>::from_data([hinge.max(0.0)].as_slice(), (&options.0, options.1));
        let value = with_gradient(hinge, &tracked, coefficients);
        let related = |i: usize| (0..n).filter(|&j| j != i && classes[i] == classes[j]).count() as u32;
        let positives: Vec<u32> = (0..n).map(related).collect();
        let queries = Queries {
            loss: per_query,
            negatives: positives.iter().map(|&count| n as u32 - 1 - count).collect(),
            positives,
            mined_positives: pulled,
            mined_negatives: pushed,
            ..Queries::default()
        };
        LossOutput { value, queries }
    }
}
