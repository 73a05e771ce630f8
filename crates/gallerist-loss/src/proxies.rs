//! What the losses over learnt proxies share: lists of proxies, and the cross entropy of a sample's own proxies against
//! the others.
//!
//! A class weight, a centre of a class and a proxy are the same here: a row that carries the label of a class.

use burn::tensor::Tensor;

use crate::engine::{List, ListLoss, ListValue, Listed, Real, lanes};
use crate::labels::Labels;
use crate::ranking::{LossOutput, Progress};

/// Checks that every label has a proxy, for proxies of the labels `0..classes`.
///
/// # Panics
///
/// If one has none: `what` names what each class has.
pub(crate) fn check_labels(labels: Labels<'_>, classes: usize, what: &str) {
    for sample in 0..labels.len() {
        for &label in labels.of(sample) {
            assert!(
                (label as usize) < classes,
                "the label {label} of sample {sample} has no {what}: there are {classes} of them, for the labels 0..{classes}"
            );
        }
    }
}

/// The loss of samples whose lists are the proxies: `each` of every class, those of a class together. Positives and
/// negatives of a sample are counted in classes.
pub(crate) fn forward_among<L: ListLoss>(
    loss: L,
    embeddings: &Tensor<2>,
    labels: Labels<'_>,
    proxies: &Tensor<2>,
    each: usize,
    what: &str,
    progress: Progress,
) -> LossOutput {
    let classes = proxies.dims()[0] / each;
    check_labels(labels, classes, what);
    let of_proxies: Vec<u32> = (0..classes * each).map(|proxy| (proxy / each) as u32).collect();
    let of_proxies = Labels::Classes(&of_proxies);
    let mut output = Listed::new(loss).forward_among(embeddings, labels, proxies, of_proxies, progress);
    for counts in [&mut output.queries.positives, &mut output.queries.negatives] {
        counts.iter_mut().for_each(|count| *count /= each as u32);
    }
    output
}

/// Samples and proxies with one more column, so that their inner products contain the `offsets` `[classes, 1]` of the
/// proxies.
pub(crate) fn with_offsets(
    embeddings: Tensor<2>,
    proxies: Tensor<2>,
    offsets: Tensor<2>,
) -> (Tensor<2>, Tensor<2>) {
    let [n, _] = embeddings.dims();
    let ones = Tensor::ones([n, 1], (&embeddings.device(), embeddings.dtype()));
    (Tensor::cat(vec![embeddings, ones], 1), Tensor::cat(vec![proxies, offsets], 1))
}

/// Whether the sample's own class is in the denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denominator {
    /// `-log(e^z_y / (e^z_y + sum over the other classes of e^z))`: cross entropy.
    WithOwn,
    /// `-log(e^z_y / sum over the other classes of e^z)`: neighbourhood components.
    OthersOnly,
}

impl Denominator {
    /// The loss and its derivative, for the logarithm of the others' sum over the own logit.
    #[inline(always)]
    pub(crate) fn term(self, gap: f64) -> (f64, f64) {
        match self {
            Denominator::WithOwn => (lanes::softplus(gap), lanes::sigmoid(gap)),
            Denominator::OthersOnly => (gap, 1.0),
        }
    }
}

/// Mean over a sample's own proxies of the loss of each against the others', whose logits are `scale` times the
/// similarities. A sample without own proxies, or without others, has the loss 0.
///
/// `own` gives, for the index of an own proxy and its similarity, the logit and its derivative.
#[inline(always)]
pub(crate) fn cross_entropy<F: Real>(
    list: &mut List<'_, F>,
    scale: f64,
    denominator: Denominator,
    own: impl Fn(usize, f64) -> (f64, f64),
) -> ListValue {
    if !list.has_both() {
        return ListValue::default();
    }
    let (total, log_others) = lanes::exp_sum(list.negatives, list.by_negatives, scale);
    let share = 1.0 / list.positives.len() as f64;
    // The sum of the derivatives is taken from the terms, not from 1 - p.
    let (mut loss, mut pull) = (0.0, 0.0);
    for at in 0..list.positives.len() {
        let (logit, slope) = own(at, list.positives[at].wide());
        let (term, weight) = denominator.term(log_others - logit);
        loss += share * term;
        pull += share * weight;
        list.by_positives[at] = F::of(-share * weight * slope);
    }
    lanes::scale(list.by_negatives, F::of(scale * pull / total.wide()));
    ListValue {
        loss,
        mined_positives: lanes::count(list.by_positives, |by| by != F::ZERO),
        mined_negatives: lanes::count(list.by_negatives, |by| by != F::ZERO),
        ..ListValue::default()
    }
}
