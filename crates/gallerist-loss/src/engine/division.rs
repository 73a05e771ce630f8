//! The lists of a large batch, divided among the ranks of a distributed run.
//!
//! Every rank has the embeddings of the whole batch. It computes the lists of its part of the queries, and what these
//! give to the gradient of every embedding; the sums over the ranks are the gradient. All ranks get the same bits.

use std::ops::Range;

use gallerist_collective::{Shared, bytes_of, numbers_of, part};

use super::gradients::{Gradients, Part};
use super::list::{Counts, ListValue};
use super::real::Real;

/// Words of a list's value between ranks.
const VALUE: usize = 8;
/// Words of the counts of a rank.
const COUNTS: usize = 7;
/// Words of a sample's part.
const PART: usize = 3;

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
        let mut words = count_words(kept).to_vec();
        words.extend(seen.iter().flat_map(value_words));
        let size = self.ranks.size();
        let lengths: Vec<usize> = (0..size)
            .map(|rank| (COUNTS + VALUE * part(self.n, rank, size).len()) * size_of::<u64>())
            .collect();
        let Some(all) = self.ranks.exchange(|ranks| ranks.all_gather(bytes_of(&words), &lengths)) else {
            return (vec![ListValue::default(); self.n], kept);
        };
        let all: Vec<u64> = numbers_of(&all);
        let (mut values, mut sums, mut rest) = (Vec::with_capacity(self.n), [0; COUNTS], &all[..]);
        for length in lengths {
            let (of_rank, others) = rest.split_at(length / size_of::<u64>());
            sums.iter_mut().zip(of_rank).for_each(|(sum, count)| *sum += count);
            values.extend(of_rank[COUNTS..].as_chunks::<VALUE>().0.iter().map(value_of));
            rest = others;
        }
        (values, counts_of(sums))
    }

    /// Replaces the parts of the samples by their sums over the ranks.
    pub(super) fn add_parts(&self, parts: &mut [Part]) {
        let words = parts.iter().flat_map(|part| {
            [part.loss.to_bits(), u64::from(part.mined_positives), u64::from(part.mined_negatives)]
        });
        let all = self.ranks.gather(words.collect::<Vec<u64>>());
        parts.fill(Part::default());
        for of_rank in all {
            for (part, words) in parts.iter_mut().zip(of_rank.as_chunks::<PART>().0) {
                part.loss += f64::from_bits(words[0]);
                part.mined_positives += words[1] as u32;
                part.mined_negatives += words[2] as u32;
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

fn count_words(counts: Counts) -> [u64; COUNTS] {
    let Counts { queries, both, with_positives, positive_pairs, pairs, positive_pairs_of_both, triplets } =
        counts;
    [queries, both, with_positives, positive_pairs, pairs, positive_pairs_of_both, triplets]
}

fn counts_of(words: [u64; COUNTS]) -> Counts {
    let [queries, both, with_positives, positive_pairs, pairs, positive_pairs_of_both, triplets] = words;
    Counts { queries, both, with_positives, positive_pairs, pairs, positive_pairs_of_both, triplets }
}

fn value_words(value: &ListValue) -> [u64; VALUE] {
    let ListValue {
        loss,
        by_own,
        weight,
        mined_positives,
        mined_negatives,
        terms,
        dead_terms,
        log_mass,
        loss_per_derivative: [of_positives, of_negatives],
    } = *value;
    let [loss, by_own, weight, log_mass, of_positives, of_negatives] =
        [loss, by_own, weight, log_mass, of_positives, of_negatives].map(f64::to_bits);
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let (mined, terms) = (two(mined_positives, mined_negatives), two(terms, dead_terms));
    [loss, by_own, weight, log_mass, of_positives, of_negatives, mined, terms]
}

fn value_of(words: &[u64; VALUE]) -> ListValue {
    let [loss, by_own, weight, log_mass, of_positives, of_negatives, mined, terms] = *words;
    let [loss, by_own, weight, log_mass, of_positives, of_negatives] =
        [loss, by_own, weight, log_mass, of_positives, of_negatives].map(f64::from_bits);
    let [(mined_positives, mined_negatives), (terms, dead_terms)] =
        [mined, terms].map(|two| (two as u32, (two >> 32) as u32));
    ListValue {
        loss,
        by_own,
        weight,
        mined_positives,
        mined_negatives,
        terms,
        dead_terms,
        log_mass,
        loss_per_derivative: [of_positives, of_negatives],
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
        assert_eq!(format!("{:?}", value_of(&value_words(&value))), format!("{value:?}"));
        let counts = Counts {
            queries: 1,
            both: 2,
            with_positives: 3,
            positive_pairs: 4,
            pairs: 5,
            positive_pairs_of_both: 6,
            triplets: u64::MAX,
        };
        assert_eq!(counts_of(count_words(counts)), counts);
    }
}
