//! Cross entropy as tensor code, for logits that are no inner products with proxies (those are lists: `proxies.rs`):
//! which classes a sample belongs to, log-sum-exp over a masked row, and the cross entropy of a sample's own classes
//! against the classes it does not belong to.

use burn::tensor::{Bool, Int, Tensor, TensorData, activation};

use crate::labels::Labels;
use crate::ranking::{LossOutput, Queries};
use crate::toolbox::softplus;
use gallerist_tensor::pairwise::host;

/// The classes of every sample of a batch, as pairs (sample, class).
pub(crate) struct Targets {
    /// Sample of each pair, `[m]`.
    pub(crate) samples: Tensor<1, Int>,
    /// Class of each pair, `[m]`.
    pub(crate) classes: Tensor<1, Int>,
    /// Position of each pair in a row-major `[n, classes]` matrix, `[m]`.
    flat: Tensor<1, Int>,
    /// One over the sample's number of classes, `[m, 1]`.
    weights: Tensor<2>,
    /// Whether a sample belongs to a class, `[n, classes]`.
    pub(crate) own: Tensor<2, Bool>,
    /// Sample of each pair, on the host.
    rows: Vec<usize>,
    /// Number of classes of each sample.
    pub(crate) counts: Vec<u32>,
    /// Number of classes.
    pub(crate) total: usize,
}

impl Targets {
    /// The targets of a batch, for logits of the type and on the device of `like`.
    ///
    /// # Panics
    ///
    /// If a label is not below `total`: `what` names the thing of which each class has one.
    pub(crate) fn new(labels: Labels<'_>, total: usize, what: &str, like: &Tensor<2>) -> Self {
        let n = labels.len();
        let mut own = vec![false; n * total];
        let mut add = |sample: usize, label: u32| {
            assert!(
                (label as usize) < total,
                "the label {label} of sample {sample} has no {what}: there are {total} of them, for the labels 0..{total}"
            );
            own[sample * total + label as usize] = true;
        };
        match labels {
            Labels::Classes(classes) => classes.iter().enumerate().for_each(|(i, &label)| add(i, label)),
            Labels::Sets(sets) => {
                sets.iter().enumerate().for_each(|(i, set)| set.iter().for_each(|&label| add(i, label)))
            }
        }
        let pairs: Vec<usize> = own.iter().enumerate().filter(|(_, own)| **own).map(|(at, _)| at).collect();
        let rows: Vec<usize> = pairs.iter().map(|at| at / total).collect();
        let mut counts = vec![0u32; n];
        rows.iter().for_each(|&row| counts[row] += 1);
        let device = like.device();
        let ints = |values: &mut dyn Iterator<Item = usize>| {
            let values: Vec<i64> = values.map(|v| v as i64).collect();
            let length = values.len();
            Tensor::<1, Int>::from_data(TensorData::new(values, [length]), &device)
        };
        let weights: Vec<f64> = rows.iter().map(|&row| 1.0 / counts[row] as f64).collect();
        Targets {
            samples: ints(&mut rows.iter().copied()),
            classes: ints(&mut pairs.iter().map(|at| at % total)),
            flat: ints(&mut pairs.iter().copied()),
            weights: Tensor::from_data(TensorData::new(weights, [rows.len(), 1]), (&device, like.dtype())),
            own: Tensor::from_data(TensorData::new(own, [n, total]), &device),
            rows,
            counts,
            total,
        }
    }

    /// The classes that a sample belongs to, ascending.
    pub(crate) fn present(&self) -> Tensor<1, Int> {
        let mut present = vec![false; self.total];
        let classes = self.classes.clone().into_data().convert::<i64>();
        classes.iter::<i64>().for_each(|class| present[class as usize] = true);
        let present: Vec<i64> =
            (0..self.total).filter(|&class| present[class]).map(|class| class as i64).collect();
        let count = present.len();
        Tensor::from_data(TensorData::new(present, [count]), &self.classes.device())
    }

    /// Whether no sample belongs to a class.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The entries of `[n, classes]` at the pairs, `[m, 1]`.
    pub(crate) fn pick(&self, matrix: &Tensor<2>) -> Tensor<2> {
        let m = self.rows.len();
        matrix.clone().reshape([self.counts.len() * self.total]).select(0, self.flat.clone()).reshape([m, 1])
    }

    /// The rows of `[n, k]` at the pairs' samples, `[m, k]`.
    pub(crate) fn of_samples(&self, matrix: &Tensor<2>) -> Tensor<2> {
        matrix.clone().select(0, self.samples.clone())
    }

    /// Number of classes each sample does not belong to.
    pub(crate) fn others(&self) -> Vec<u32> {
        self.counts.iter().map(|&count| self.total as u32 - count).collect()
    }
}

/// Mean over the batch of the cross entropy of each sample's own classes against the classes it does not
/// belong to. A sample of several classes has the mean over them; a sample of none, or of all, has the
/// loss 0.
///
/// `own` `[m, 1]` are the logits of the pairs of `targets`; `logits` `[n, classes]` those of the other
/// classes (the own ones in it are not read).
pub(crate) fn classification(own: Tensor<2>, logits: Tensor<2>, targets: &Targets) -> LossOutput {
    let [n, _] = logits.dims();
    if targets.is_empty() {
        let value = logits.sum().mul_scalar(0.0);
        let zeros = || vec![0; n];
        let queries = Queries {
            loss: vec![0.0; n],
            positives: zeros(),
            negatives: targets.others(),
            mined_positives: zeros(),
            mined_negatives: zeros(),
            ..Queries::default()
        };
        return LossOutput { value, queries };
    }
    let others = log_sum_exp(logits.clone(), &targets.own);
    let alone = others.empty.clone();
    let alone_pairs = alone.clone().int().select(0, targets.samples.clone()).bool();
    let gap = targets.of_samples(&others.value) - own;
    let (loss, weight) = (softplus(gap.clone()), activation::sigmoid(gap.detach()));
    let loss = (loss * targets.weights.clone()).mask_fill(alone_pairs.clone(), 0.0);
    let value = loss.clone().sum().mul_scalar(1.0 / n as f64);

    // The derivative of the value by each logit, up to its sign: what is 0 takes no part.
    let weight = host(&(weight * targets.weights.clone()).mask_fill(alone_pairs, 0.0));
    let mut per_query = vec![0.0; n];
    let mut pull = vec![0.0; n];
    let mut mined_positives = vec![0; n];
    for ((&row, loss), weight) in targets.rows.iter().zip(host(&loss)).zip(weight) {
        per_query[row] += loss;
        pull[row] += weight;
        mined_positives[row] += (weight > 0.0) as u32;
    }
    let pull = Tensor::<1>::from_data(pull.as_slice(), (&logits.device(), logits.dtype())).reshape([n, 1]);
    let share =
        (logits.detach() - others.value.detach()).mask_fill(targets.own.clone(), f32::NEG_INFINITY).exp();
    let queries = Queries {
        loss: per_query.iter().map(|&loss| loss as f32).collect(),
        positives: targets.counts.clone(),
        negatives: targets.others(),
        mined_positives,
        mined_negatives: count_nonzero(&(share * pull)),
        ..Queries::default()
    };
    LossOutput { value, queries }
}

/// Number of entries other than 0 in each row.
pub(crate) fn count_nonzero(matrix: &Tensor<2>) -> Vec<u32> {
    let ones = matrix.clone().detach().not_equal_scalar(0.0).float();
    host(&ones.sum_dim(1)).iter().map(|&count| count as u32).collect()
}

/// Logarithms of sums of exponentials, one per row.
pub(crate) struct LogSumExp {
    /// `[n, 1]`; 0 where the row has no entry.
    pub(crate) value: Tensor<2>,
    /// `[n, 1]`: whether the row has no entry.
    pub(crate) empty: Tensor<2, Bool>,
}

/// `log sum exp` over the entries of each row that are not `absent`; finite for every finite input.
///
/// The one in `pairs` takes a mask of numbers; with tens of thousands of classes a mask of bits is worth
/// its own.
pub(crate) fn log_sum_exp(x: Tensor<2>, absent: &Tensor<2, Bool>) -> LogSumExp {
    let largest = x.clone().detach().mask_fill(absent.clone(), f32::NEG_INFINITY).max_dim(1);
    let empty = largest.clone().equal_scalar(f32::NEG_INFINITY);
    let largest = largest.mask_fill(empty.clone(), 0.0);
    let total = (x - largest.clone()).mask_fill(absent.clone(), f32::NEG_INFINITY).exp().sum_dim(1);
    let value = total.mask_fill(empty.clone(), 1.0).log() + largest;
    LogSumExp { value, empty }
}
