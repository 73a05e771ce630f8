//! Walks the blocks of lists: products, derivatives, gradients.

use std::sync::{Mutex, PoisonError};

use gallerist_collective::Shared;
use gallerist_kernels::project_row;
use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use super::batch::Batch;
use super::differentiate::{Job, RowSums, differentiate};
use super::division::Division;
use super::gradients::{self, Gradient, Gradients, Part, Weights};
use super::lanes;
use super::list::{Counts, ListFunction, ListValue, Sides};
use super::product;
use super::real::Real;
use crate::ranking::Progress;

/// Bytes of a block of lists.
pub(super) const BLOCK_BYTES: usize = 32 << 20;

/// Rows of a block however long they are, so that the products keep some of their speed.
const FEWEST_ROWS: usize = 8;

/// A block whose share of derivatives other than 0 is at most `1 / SPARSE` is summed pair by pair.
const SPARSE: usize = 10;

/// The result of a batch.
pub(super) struct Outcome {
    pub(super) value: f64,
    pub(super) seen: Vec<ListValue>,
    /// Of each sample of the gallery, with [`ListLoss::PROXY_QUERIES`](super::list::ListLoss::PROXY_QUERIES).
    pub(super) parts: Vec<Part>,
    /// A choice of the miner that is not among its candidates. Value and gradients are NaN.
    pub(super) problem: Option<String>,
}

/// Where the gradients are written that are wanted.
pub(super) struct Targets<'a, F> {
    /// That of the queries, `n x d`.
    pub(super) queries: Option<&'a mut [F]>,
    /// That of a gallery of other rows, `g x d`.
    pub(super) gallery: Option<&'a mut [F]>,
    /// The factors that scaled the queries to length 1, if they were: the gradient is that by the rows before.
    pub(super) scaled_by: Option<&'a [F]>,
}

impl<F: Real> Targets<'_, F> {
    /// Writes the same value everywhere.
    pub(super) fn fill(self, value: F) {
        for target in [self.queries, self.gallery].into_iter().flatten() {
            target.fill(value);
        }
    }
}

/// Value, diagnostics and gradient, in blocks of about `block_values` values; by the ranks of the calling thread.
pub(super) fn run<F: Real>(
    loss: &dyn ListFunction<F>,
    batch: &Batch<'_, F>,
    progress: Progress,
    targets: Targets<'_, F>,
    block_values: usize,
) -> Outcome {
    // Taken, not borrowed: while this thread waits for others it may start on another batch.
    let mut memory = F::take_block();
    let ranks = Shared::current();
    // Handed to the pool once, not once for each of the steps below.
    let outcome = rayon::scope(|_| {
        in_blocks(loss, batch, progress, targets, block_values, ranks.as_deref(), &mut memory)
    });
    F::keep_block(memory);
    outcome
}

fn in_blocks<F: Real>(
    loss: &dyn ListFunction<F>,
    batch: &Batch<'_, F>,
    progress: Progress,
    targets: Targets<'_, F>,
    block_values: usize,
    ranks: Option<&Shared>,
    memory: &mut Vec<F>,
) -> Outcome {
    let (n, g, d) = (batch.n, batch.g, batch.d);
    let (step, form) = (batch.step(), loss.form());
    let miner = loss.miner().filter(|miner| !miner.keeps_all());
    // What a miner keeps is counted on the way; the factor then comes last.
    let counts = all_pairs(batch.relatives.counts(), batch.candidates());
    let factor = loss.factor(&counts);
    let mut to = Gradients {
        queries: targets.queries.map(|rows| Gradient::new(rows, d)),
        gallery: targets.gallery.filter(|_| batch.shared == 0).map(|rows| Gradient::new(rows, d)),
    };
    let want_gradient = to.queries.is_some() || to.gallery.is_some();
    // The parts of the samples are computed from the derivatives.
    let mut parts = vec![Part::default(); if form.proxy_queries { g } else { 0 }];
    let job = Job {
        loss,
        form,
        batch,
        miner: miner.map(|miner| &**miner),
        problem: Mutex::new(None),
        progress,
        counts,
        factor: (want_gradient || form.proxy_queries)
            .then(|| if miner.is_some() { F::ONE } else { F::of(factor) }),
    };
    let block = (block_values / step).max(FEWEST_ROWS).min(n);
    let division = ranks.and_then(|ranks| Division::of(ranks, n, block));
    let queries = division.as_ref().map_or(0..n, Division::queries);
    let mut seen = Vec::with_capacity(queries.len());
    let mut kept = Counts::default();
    if memory.len() < block * step {
        memory.resize(block * step, F::ZERO);
    }
    for first in queries.clone().step_by(block) {
        let count = block.min(queries.end - first);
        let values = &mut memory[..count * step];
        multiply(batch, first, count, values);
        let sums = differentiate(&job, first, values);
        seen.extend(sums.iter().map(|sums| sums.seen));
        if let Some(miner) = miner {
            for RowSums { kept: [positives, negatives, repeats], .. } in &sums {
                let [positives, negatives, repeats] =
                    [positives, negatives, repeats].map(|&count| u64::from(count));
                kept.add(positives, negatives, repeats, miner.gives_triplets());
            }
        }
        if form.proxy_queries {
            gradients::add_parts(values, step, &sums, &mut parts);
        }
        if let Some(Gradient { own, .. }) = &mut to.queries {
            // The derivative of a squared norm is twice the row.
            for (own, sums) in own[first..].iter_mut().zip(&sums) {
                *own += 2.0 * sums.seen.by_own * job.factor.map_or(0.0, F::wide);
            }
        }
        if want_gradient {
            let pairs = sums.iter().map(|sums| sums.weights as usize).sum::<usize>();
            let weights =
                Weights { measure: form.measure, sides: form.sides, first, count, step, values, sums };
            if pairs <= count * g / SPARSE {
                weights.add_sparse(batch, &mut to);
            } else {
                weights.add_dense(batch, &mut to);
            }
        }
    }
    if let Some(division) = &division {
        (seen, kept) = division.join(&seen, kept);
        if form.proxy_queries {
            division.add_parts(&mut parts);
        }
    }
    let problem =
        job.problem.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, problem)| problem);
    let factor = match (miner, &problem) {
        (None, _) => factor,
        (Some(_), None) => loss.factor(&kept),
        (Some(_), Some(_)) => f64::NAN,
    };
    let shares = loss.shares(&seen);
    debug_assert!(shares.is_none() || form.sides == Sides::Query, "shares scale the query's gradient alone");
    let last = miner.map(|_| F::of(factor));
    if let Some(gradient) = &mut to.queries {
        let share = |i: usize| shares.as_ref().map(|shares| F::of(shares[i])).or(last);
        finish(gradient, d, |i| batch.query(i), share, targets.scaled_by);
    }
    if let Some(gradient) = &mut to.gallery {
        finish(gradient, d, |j| batch.vector(j), |_| last, None);
    }
    if let Some(division) = &division {
        division.add_gradients(&mut to);
    }
    let value = match &shares {
        Some(shares) => {
            seen.iter().zip(shares).map(|(seen, share)| seen.loss * seen.weight * share).sum::<f64>()
        }
        None => seen.iter().map(|seen| seen.loss * seen.weight).sum(),
    };
    Outcome { value: factor * value, seen, parts, problem }
}

/// The inner products of some queries with the gallery.
fn multiply<F: Real>(batch: &Batch<'_, F>, first: usize, count: usize, values: &mut [F]) {
    let (shared, step) = (batch.shared, batch.step());
    let queries = batch.rows(first, count);
    if count == shared {
        product::symmetric_product(values, step, batch.rows(0, shared));
    } else if shared > 0 {
        product::product(values, step, false, F::ONE, queries, batch.rows(0, shared).transposed());
    }
    if batch.g > shared {
        let others = batch.other_rows().transposed();
        product::product(&mut values[shared..], step, false, F::ONE, queries, others);
    }
}

/// Completes the rows of a gradient: adds what multiplies the rows themselves, scales, and undoes the scaling of the rows
/// to length 1.
fn finish<'a, F: Real>(
    gradient: &mut Gradient<'_, F>,
    d: usize,
    row: impl Fn(usize) -> &'a [F] + Sync,
    share: impl Fn(usize) -> Option<F> + Sync,
    scaled_by: Option<&[F]>,
) {
    let Gradient { rows, own } = gradient;
    rows.par_chunks_mut(d).enumerate().for_each(|(i, to)| {
        let scaled_by = scaled_by.map(|factors| factors[i]);
        let own_weight = F::of(own[i]);
        vectorize(FinishRow { row: to, own: row(i), own_weight, share: share(i), scaled_by });
    });
}

/// Completes a row of a gradient.
struct FinishRow<'a, F> {
    row: &'a mut [F],
    own: &'a [F],
    own_weight: F,
    share: Option<F>,
    scaled_by: Option<F>,
}

impl<F: Real> Work for FinishRow<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if self.own_weight != F::ZERO {
            lanes::add_scaled(self.row, self.own_weight, self.own);
        }
        if let Some(share) = self.share {
            lanes::scale(self.row, share);
        }
        if let Some(factor) = self.scaled_by {
            project_row(self.row, self.own, factor);
        }
    }
}

/// The counts of a batch without a miner, from the queries' numbers of positives among `candidates`.
fn all_pairs(positives: &[u32], candidates: usize) -> Counts {
    let mut counts = Counts::default();
    for &positives in positives {
        let negatives = candidates as u64 - u64::from(positives);
        counts.add(u64::from(positives), negatives, negatives, false);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use gallerist_testkit::ranks::with_ranks;

    use crate::contrastive::ContrastiveConfig;
    use crate::engine::relatives::Relatives;
    use crate::ice::{IceConfig, IceGradient};
    use crate::labels::Labels;
    use crate::miner::{DistanceWeightedConfig, SemiHardConfig};
    use crate::nra::NraConfig;
    use crate::proxy_anchor::ProxyAnchorConfig;
    use crate::rll::{QueryWeighting, RllConfig};
    use crate::triplet_all::TripletAllConfig;
    use crate::triplet_batch_hard::TripletBatchHardConfig;

    fn rows(n: usize, d: usize) -> Vec<f32> {
        let mut state = 7u32;
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut rows: Vec<f32> = (0..n * d).map(|_| uniform()).collect();
        for row in rows.chunks_mut(d) {
            let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            row.iter_mut().for_each(|v| *v /= norm);
        }
        rows
    }

    /// What is compared.
    struct Found {
        value: f64,
        gradients: Vec<f32>,
        /// The loss of every query, or of every sample of the gallery.
        losses: Vec<f64>,
    }

    /// A batch of `n` and a memory of `m`, or, if `apart`, queries in a gallery of `m` others.
    fn run_in_blocks(
        loss: &dyn ListFunction<f32>,
        n: usize,
        (m, apart): (usize, bool),
        block_rows: usize,
    ) -> Found {
        let d = 9;
        let labels: Vec<u32> = (0..(n + m) as u32).map(|i| i * 7 % 5).collect();
        let (of_batch, of_memory) = labels.split_at(n);
        let (of_batch, of_memory) = (Labels::Classes(of_batch), Labels::Classes(of_memory));
        let relatives = match apart {
            true => Relatives::among(of_batch, of_memory),
            false => Relatives::new(of_batch, Some(of_memory)),
        };
        let rows = rows(n + m, d);
        let (x, memory) = rows.split_at(n * d);
        let batch = Batch::new(x, memory, d, &relatives).expect("the norms are finite");
        let (mut gradient, mut gallery) =
            (vec![f32::NAN; n * d], vec![f32::NAN; if apart { m * d } else { 0 }]);
        let targets = Targets {
            queries: Some(&mut gradient),
            gallery: apart.then_some(&mut gallery[..]),
            scaled_by: None,
        };
        let outcome = run(loss, &batch, Progress::default(), targets, block_rows * batch.step());
        gradient.extend(gallery);
        let losses = match outcome.parts.is_empty() {
            true => outcome.seen.iter().map(|seen| seen.loss).collect(),
            false => outcome.parts.iter().map(|part| part.loss).collect(),
        };
        Found { value: outcome.value, gradients: gradient, losses }
    }

    /// The engine's ways: dense and sparse, one side and both, in one block and in many, with a memory and
    /// without, in a gallery of other rows.
    fn with_every_kind_of_loss(check: impl Fn(&(dyn Fn(usize, usize) -> Found + Sync))) {
        let rll =
            RllConfig { alpha: Some(1.2), query_weighting: QueryWeighting::Mass, ..RllConfig::simpler() };
        for m in [(0, false), (1, false), (37, false), (1, true), (37, true), (1100, true)] {
            check(&|n, block| run_in_blocks(&rll, n, m, block));
            check(&|n, block| run_in_blocks(&NraConfig { alpha: 4.0, eps: 1e-4 }, n, m, block));
            check(&|n, block| {
                run_in_blocks(&IceConfig { scale: 8.0, gradient: IceGradient::Paper }, n, m, block)
            });
            check(&|n, block| {
                run_in_blocks(&IceConfig { scale: 8.0, gradient: IceGradient::Autodiff }, n, m, block)
            });
            check(&|n, block| run_in_blocks(&ContrastiveConfig { margin: 1.0, miner: None }, n, m, block));
            check(&|n, block| {
                run_in_blocks(&TripletBatchHardConfig { margin: 0.3, soft: false }, n, m, block)
            });
            check(&|n, block| run_in_blocks(&TripletAllConfig { margin: 0.3, miner: None }, n, m, block));
            let miner = Some(SemiHardConfig::default().into());
            check(&|n, block| {
                run_in_blocks(&TripletAllConfig { margin: 0.3, miner: miner.clone() }, n, m, block)
            });
            let miner = Some(DistanceWeightedConfig::default().into());
            check(&|n, block| {
                run_in_blocks(&ContrastiveConfig { margin: 1.0, miner: miner.clone() }, n, m, block)
            });
            if m.1 {
                check(&|n, block| run_in_blocks(&ProxyAnchorConfig::default(), n, m, block));
            }
        }
    }

    fn within_rounding(found: &Found, wanted: &Found, what: &str) {
        let largest = wanted.gradients.iter().fold(0f32, |a, g| a.max(g.abs()));
        assert!((found.value - wanted.value).abs() <= 1e-5 * wanted.value.abs(), "{what}");
        for (a, b) in found.gradients.iter().zip(&wanted.gradients) {
            assert!((a - b).abs() <= 1e-5 * largest, "{what}: {a} {b}");
        }
        assert_eq!(found.losses.len(), wanted.losses.len(), "{what}");
        for (a, b) in found.losses.iter().zip(&wanted.losses) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(0.1), "{what}: {a} {b}");
        }
    }

    #[test]
    fn the_size_of_the_blocks_changes_the_rounding_alone() {
        with_every_kind_of_loss(|run| {
            for n in [1, 7, 8, 9, 65, 130] {
                let whole = run(n, n);
                for rows in [8, 9, 64, 129] {
                    within_rounding(&run(n, rows), &whole, &format!("{n} in blocks of {rows}"));
                }
            }
        });
    }

    #[test]
    fn ranks_that_divide_the_lists_find_what_one_finds() {
        with_every_kind_of_loss(|run| {
            for (n, size) in [(9, 2), (65, 4), (130, 3)] {
                let whole = run(n, n);
                let all = with_ranks(size, |ranks| {
                    // The operations of a rank wait for those of the others: they must not share threads.
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
                    let shared = Shared::new(ranks);
                    let found = pool.install(|| shared.within(|| run(n, 8)));
                    shared.check().unwrap();
                    found
                });
                for found in &all {
                    within_rounding(found, &whole, &format!("{n} by {size} ranks"));
                    assert_eq!(found.value.to_bits(), all[0].value.to_bits(), "{n} by {size} ranks");
                    assert_eq!(found.gradients, all[0].gradients, "{n} by {size} ranks");
                    assert_eq!(found.losses, all[0].losses, "{n} by {size} ranks");
                }
            }
        });
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        with_every_kind_of_loss(|run| {
            // One block, and blocks that leave a rest.
            for (n, rows) in [(200, 200), (150, 64)] {
                let bits = |threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let outcome = pool.install(|| run(n, rows));
                    let gradient: Vec<u32> = outcome.gradients.iter().map(|v| v.to_bits()).collect();
                    (outcome.value.to_bits(), gradient)
                };
                let one = bits(1);
                assert!(bits(2) == one && bits(5) == one, "{n}");
            }
        });
    }

    #[test]
    fn norms_that_overflow_are_refused() {
        let relatives = Relatives::new(Labels::Classes(&[0]), Some(Labels::Classes(&[0])));
        assert!(Batch::new(&[1.0, 0.0], &[1.0, 0.0], 2, &relatives).is_some());
        for value in [1e20, f32::NAN, f32::INFINITY] {
            assert!(Batch::new(&[value, 0.0], &[1.0, 0.0], 2, &relatives).is_none(), "{value}");
            assert!(Batch::new(&[1.0, 0.0], &[value, 0.0], 2, &relatives).is_none(), "{value}");
        }
    }
}
