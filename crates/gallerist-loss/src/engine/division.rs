//! The lists of a large batch, divided among the ranks of a distributed run.
//!
//! Every rank has the embeddings of the whole batch. It computes the lists of its part of the queries, and what these
//! give to the gradient of every embedding; the sums over the ranks are the gradient. All ranks get the same bits.

use std::ops::Range;

use gallerist_collective::{Shared, bytes_of, numbers_of, part};

use super::gradients::{Gradients, Part};
use super::list::{Counts, ListValue};
use super::real::Real;

/// The ranks that divide a batch of `n` queries.
pub(super) struct Division<'a> {
    ranks: &'a Shared,
    n: usize,
}

impl<'a> Division<'a> {
    /// Of `n` queries that fill more than one block of `block` queries. A single block is multiplied with itself at half
    /// the cost of a product, which leaves little to divide.
    pub(super) fn of(ranks: &'a Shared, n: usize, block: usize) -> Option<Self> {
        (ranks.size() > 1 && n > block).then_some(Division { ranks, n })
    }

    /// The queries whose lists this rank computes.
    pub(super) fn queries(&self) -> Range<usize> {
        part(self.n, self.ranks.rank(), self.ranks.size())
    }

    /// The values of all lists and the sums of the counts. After a failed exchange they mean nothing.
    pub(super) fn join(&self, seen: &[ListValue], kept: Counts) -> (Vec<ListValue>, Counts) {
        let own = [bytes_of(&[kept]), bytes_of(seen)].concat();
        let size = self.ranks.size();
        let lengths: Vec<usize> = (0..size)
            .map(|rank| size_of::<Counts>() + part(self.n, rank, size).len() * size_of::<ListValue>())
            .collect();
        let Some(all) = self.ranks.exchange(|ranks| ranks.all_gather(&own, &lengths)) else {
            return (vec![ListValue::default(); self.n], kept);
        };
        let (mut values, mut sums, mut rest) = (Vec::with_capacity(self.n), Counts::default(), &all[..]);
        for length in lengths {
            let (of_rank, others) = rest.split_at(length);
            let (kept, seen) = of_rank.split_at(size_of::<Counts>());
            sums += numbers_of(kept)[0];
            values.extend(numbers_of::<ListValue>(seen));
            rest = others;
        }
        (values, sums)
    }

    /// Replaces the parts of the samples by their sums over the ranks.
    pub(super) fn add_parts(&self, parts: &mut [Part]) {
        let all = self.ranks.gather(parts.to_vec());
        parts.fill(Part::default());
        for of_rank in all {
            for (part, other) in parts.iter_mut().zip(of_rank) {
                part.loss += other.loss;
                part.mined_positives += other.mined_positives;
                part.mined_negatives += other.mined_negatives;
            }
        }
    }

    /// Replaces the gradients by their sums over the ranks.
    pub(super) fn add_gradients<F: Real>(&self, gradients: &mut Gradients<'_, F>) {
        for gradient in [&mut gradients.queries, &mut gradients.gallery].into_iter().flatten() {
            self.ranks.exchange(|ranks| F::add_over(ranks, gradient.rows));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_counts_come_back() {
        let value = ListValue {
            loss: 0.1,
            by_own: -0.2,
            weight: 3.0,
            mined_positives: 4,
            mined_negatives: u32::MAX,
            terms: 6,
            dead_terms: 5,
            log_mass: f64::NEG_INFINITY,
            loss_per_derivative: [7.0, -8.0],
        };
        assert_eq!(format!("{:?}", numbers_of::<ListValue>(bytes_of(&[value]))), format!("{:?}", [value]));
        let counts = Counts {
            queries: 1,
            both: 2,
            with_positives: 3,
            positive_pairs: 4,
            pairs: 5,
            positive_pairs_of_both: 6,
            triplets: u64::MAX,
        };
        assert_eq!(numbers_of::<Counts>(bytes_of(&[counts])), [counts]);
    }
}
