//! What a list loss is: a function of one query's list.

use std::ops::AddAssign;

use bytemuck::{Pod, Zeroable};
use gallerist_util::simd::Work;

use super::real::Real;
use crate::miner::MinerConfig;
use crate::ranking::Progress;

/// What the values of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Euclidean distances, computed from the differences where two rows are near; exactly 0 for coincident ones.
    Distance,
    /// Inner products.
    Similarity,
}

impl Measure {
    /// The value at the places of a list that hold no negative: farther than any negative.
    #[inline]
    pub(crate) fn absent_negative<F: Real>(self) -> F {
        match self {
            Measure::Distance => F::INFINITY,
            Measure::Similarity => F::NEG_INFINITY,
        }
    }
}

/// Who gets a gradient from the pair of a query and a sample of its list.
///
/// A gallery of other rows than the batch, such as proxies, is no memory: its samples are not constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// The query; its list is held constant.
    Query,
    /// The samples of the list; the query is held constant. For a sample of the memory, which is a constant, the query
    /// gets the gradient: the roles are exchanged.
    Gallery,
    /// Both: the true derivative.
    Both,
}

/// Numbers of queries, pairs and triplets of a batch; with a miner, of what it kept.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Counts {
    /// Queries.
    pub queries: u64,
    /// Queries that have a positive and a negative.
    pub both: u64,
    /// Queries that have a positive.
    pub with_positives: u64,
    /// Pairs of a query and a positive.
    pub positive_pairs: u64,
    /// Pairs of a query and a sample of its list. A negative that a miner chose several times counts as often.
    pub pairs: u64,
    /// Pairs of a query and a positive, over the queries that have both.
    pub positive_pairs_of_both: u64,
    /// Triplets: each positive with its partner, or with each negative.
    pub triplets: u64,
}

impl Counts {
    pub(super) fn add(&mut self, positives: u64, negatives: u64, repeats: u64, partners: bool) {
        self.queries += 1;
        self.with_positives += u64::from(positives > 0);
        self.positive_pairs += positives;
        self.pairs += positives + repeats;
        self.triplets += if partners { positives } else { positives * negatives };
        if positives > 0 && negatives > 0 {
            self.both += 1;
            self.positive_pairs_of_both += positives;
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let (sums, others): (&mut [u64], &[u64]) = (
            bytemuck::cast_slice_mut(std::slice::from_mut(self)),
            bytemuck::cast_slice(std::slice::from_ref(&other)),
        );
        sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
    }
}

/// One query's list: the batch without the query, then the memory; or other samples, such as proxies
/// ([`Listed::forward_among`](super::Listed::forward_among)). With a miner, the pairs that it kept.
#[derive(Debug)]
pub struct List<'a, F> {
    /// The values of the positives, in the order of their indices.
    pub positives: &'a [F],
    /// The values of the whole gallery, padded to a multiple of [`LANES`](super::lanes::LANES). A place that
    /// holds no negative (a positive, the query itself, padding, what a miner left out) has the value infinity for a
    /// distance, minus infinity for a similarity.
    pub negatives: &'a [F],
    /// Number of negatives.
    pub negative_count: usize,
    /// The value of the query and itself: 0 for a distance, its squared norm for a similarity.
    pub own: F,
    /// The distances of the positives, computed from the differences; only with [`ListLoss::POSITIVE_DISTANCES`].
    pub distances: &'a [F],
    /// Numbers of all queries and pairs, before a miner.
    pub counts: &'a Counts,
    /// How often each place of `negatives` counts, where a miner may choose a negative several times; `None`: once.
    pub repeats: Option<&'a [F]>,
    /// For each positive the place in `negatives` of the negative that makes a triplet with it, where a miner gives
    /// triplets; `None`: each positive makes one with each negative.
    pub partners: Option<&'a [u32]>,
    /// The derivatives of the loss times its weight by the positives, to be written; zeros at the start.
    pub by_positives: &'a mut [F],
    /// The derivatives by the negatives, to be written; zeros at the start. They must stay 0 where there is no
    /// negative.
    pub by_negatives: &'a mut [F],
    /// How far training has come.
    pub progress: Progress,
}

impl<F> List<'_, F> {
    /// Whether the query has a positive and a negative.
    #[inline]
    pub fn has_both(&self) -> bool {
        !self.positives.is_empty() && self.negative_count > 0
    }

    /// Number of pairs, repeated negatives counted as often.
    #[inline]
    pub fn pairs(&self) -> usize
    where
        F: Real,
    {
        let repeats = |repeats: &[F]| repeats.iter().map(|of| of.wide()).sum::<f64>() as usize;
        self.positives.len() + self.repeats.map_or(self.negative_count, repeats)
    }
}

/// What a list loss returns for one query, besides the derivatives that it writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ListValue {
    /// The query's loss.
    pub loss: f64,
    /// The derivative of the loss times its weight by [`List::own`]; only for [`Measure::Similarity`].
    pub by_own: f64,
    /// How often it counts in the batch's value, times [`ListLoss::factor`]. The derivatives in the list are those of
    /// the loss times this weight.
    pub weight: f64,
    /// Positives that got a derivative.
    pub mined_positives: u32,
    /// Negatives that got a derivative.
    pub mined_negatives: u32,
    /// Terms that can be dead: cost something and have no gradient.
    pub terms: u32,
    /// Terms that are dead.
    pub dead_terms: u32,
    /// Logarithm of the query's mass, for [`ListLoss::shares`].
    pub log_mass: f64,
    /// The loss per derivative, of positives (whose derivatives are below 0) and of negatives (above 0): a sample's
    /// part of this list's loss is its derivative times this. Only with [`ListLoss::PROXY_QUERIES`].
    pub loss_per_derivative: [f64; 2],
}

impl Default for ListValue {
    fn default() -> Self {
        ListValue {
            loss: 0.0,
            by_own: 0.0,
            weight: 1.0,
            mined_positives: 0,
            mined_negatives: 0,
            terms: 0,
            dead_terms: 0,
            log_mass: f64::NEG_INFINITY,
            loss_per_derivative: [0.0; 2],
        }
    }
}

/// A loss that is a sum over queries of a function of the query's list.
///
/// The engine gives it everything else: the products, memory of `O(n d)`, blocks of lists in parallel, f32 and f64,
/// miners, sets of labels, cross-batch memory and tensors on a GPU, which are copied to the host. The result depends
/// on the input alone, not on the number of threads.
///
/// # Example: a loss of one's own
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::engine::{List, ListLoss, ListValue, Listed, Measure, Real, lanes};
/// use gallerist_loss::{Labels, Progress, RankingLoss};
///
/// /// The mean distance to the positives, minus that to the negatives within a radius.
/// #[derive(Clone, Debug)]
/// struct Pull {
///     radius: f64,
/// }
///
/// impl ListLoss for Pull {
///     const MEASURE: Measure = Measure::Distance;
///
///     #[inline(always)]
///     fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
///         let radius = F::of(self.radius);
///         let pull = lanes::map_sum(list.positives, list.by_positives, |d| (F::ONE, d));
///         let push = lanes::map_sum(list.negatives, list.by_negatives, |d| {
///             if d < radius { (-F::ONE, radius - d) } else { (F::ZERO, F::ZERO) }
///         });
///         ListValue {
///             loss: pull.wide() + push.wide(),
///             mined_positives: list.positives.len() as u32,
///             mined_negatives: lanes::count(list.negatives, |d| d < radius),
///             ..ListValue::default()
///         }
///     }
/// }
///
/// let x = Tensor::<2>::random([6, 8], Distribution::Default, &Device::flex().autodiff()).require_grad();
/// let loss = Listed::new(Pull { radius: 0.5 });
/// let output = loss.forward(x.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// assert_eq!(x.grad(&output.value.backward()).unwrap().dims(), [6, 8]);
/// ```
pub trait ListLoss: Sync {
    /// What the lists hold.
    const MEASURE: Measure;

    /// Whether the loss has terms that can be dead.
    const DEAD_TERMS: bool = false;

    /// Whether [`List::distances`] is needed besides similarities.
    const POSITIVE_DISTANCES: bool = false;

    /// Whether the queries are proxies and the samples of the batch are the gallery. The diagnostics are then those of
    /// the samples: their parts of the losses of all lists ([`ListValue::loss_per_derivative`]), and in how many lists
    /// they are positives and negatives. Only with [`Measure::Similarity`].
    const PROXY_QUERIES: bool = false;

    /// Who gets a gradient.
    fn sides(&self) -> Sides {
        Sides::Both
    }

    /// The weight of every query in the batch's value: the mean over the queries, unless overridden. The gradients are
    /// multiplied by it, too.
    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.queries as f64
    }

    /// The miner that chooses the pairs; `None`: all pairs.
    fn miner(&self) -> Option<&MinerConfig> {
        None
    }

    /// The loss of a query and its derivatives by the values of its list.
    ///
    /// It is fast where it is `#[inline(always)]` and loops by the functions of [`lanes`](super::lanes): it is then
    /// compiled for the widest instruction set of the processor.
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue;

    /// Weights of the queries that depend on the results of all queries; multiplied by the factor. Only for losses
    /// whose gradient goes to the query ([`Sides::Query`]).
    fn shares(&self, _seen: &[ListValue]) -> Option<Vec<f64>> {
        None
    }
}

/// The constants of a [`ListLoss`] and its sides.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) measure: Measure,
    pub(super) dead_terms: bool,
    pub(super) positive_distances: bool,
    pub(super) proxy_queries: bool,
    pub(super) sides: Sides,
}

/// A [`ListLoss`] as the engine sees it. As an object, so that the engine is compiled once and not for every loss: of a
/// loss only its function of a list is.
pub(super) trait ListFunction<F>: Sync {
    fn form(&self) -> Form;
    fn factor(&self, counts: &Counts) -> f64;
    fn miner(&self) -> Option<&MinerConfig>;
    fn list(&self, list: &mut List<'_, F>) -> ListValue;
    fn shares(&self, seen: &[ListValue]) -> Option<Vec<f64>>;
}

impl<L: ListLoss, F: Real> ListFunction<F> for L {
    fn form(&self) -> Form {
        Form {
            measure: L::MEASURE,
            dead_terms: L::DEAD_TERMS,
            positive_distances: L::POSITIVE_DISTANCES,
            proxy_queries: L::PROXY_QUERIES,
            sides: self.sides(),
        }
    }

    fn factor(&self, counts: &Counts) -> f64 {
        ListLoss::factor(self, counts)
    }

    fn miner(&self) -> Option<&MinerConfig> {
        ListLoss::miner(self)
    }

    fn list(&self, list: &mut List<'_, F>) -> ListValue {
        F::run(Call { loss: self, list })
    }

    fn shares(&self, seen: &[ListValue]) -> Option<Vec<f64>> {
        ListLoss::shares(self, seen)
    }
}

/// The function of a list, compiled for every instruction set.
struct Call<'a, 'b, L, F> {
    loss: &'a L,
    list: &'a mut List<'b, F>,
}

impl<L: ListLoss, F: Real> Work for Call<'_, '_, L, F> {
    type Output = ListValue;

    #[inline(always)]
    fn run(self) -> ListValue {
        self.loss.list(self.list)
    }
}
