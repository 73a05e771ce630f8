//! Similarity mixup: virtual samples between each two samples of a class.

use burn::tensor::{Int, Tensor, TensorData};
use gallerist_util::random::Random;

use crate::labels::OwnedLabels;
use crate::lists::{CrossBatchRows, Lists};

/// A batch with its virtual samples after it.
pub(crate) struct Mixed {
    /// `[n + virtual, d]`, tracked.
    rows: Tensor<2>,
    labels: OwnedLabels,
}

impl Mixed {
    /// The lists of all, the virtual samples included.
    pub(crate) fn lists<'a>(&'a self, memory: Option<&CrossBatchRows<'a>>) -> Lists<'a> {
        Lists::new(self.rows.clone(), self.labels.borrowed(), memory.cloned())
    }
}

/// Extends a batch by `a x_i + (1 - a) x_j` for each two samples `i < j` that share a label. `a` is `coefficient`, or
/// uniform in 0..1, drawn for each virtual sample from the seed and the step.
pub(crate) fn extend(lists: &Lists<'_>, coefficient: Option<f64>, seed: u64, step: usize) -> Mixed {
    let (labels, x) = (lists.labels(), lists.embeddings());
    let n = labels.len();
    let mut random = Random::new(seed, "loss/simix", step as u64, 0);
    let (mut first, mut second, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut owned = OwnedLabels::from(labels);
    for i in 0..n {
        for j in (i + 1..n).filter(|&j| labels.related(i, j)) {
            first.push(i as i64);
            second.push(j as i64);
            shares.push(coefficient.unwrap_or_else(|| random.unit()));
            match &mut owned {
                OwnedLabels::Classes(classes) => classes.push(classes[i]),
                OwnedLabels::Sets(sets) => {
                    let common = sets[i].iter().filter(|label| sets[j].contains(label));
                    sets.push(common.copied().collect());
                }
            }
        }
    }
    let count = first.len();
    if count == 0 {
        return Mixed { rows: x.clone(), labels: owned };
    }
    let device = x.device();
    let select = |at: Vec<i64>| {
        x.clone().select(0, Tensor::<1, Int>::from_data(TensorData::new(at, [count]), &device))
    };
    let share = Tensor::<2>::from_data(TensorData::new(shares, [count, 1]), (&device, x.dtype()));
    let rest = share.clone().neg().add_scalar(1.0);
    let mixed = select(first) * share + select(second) * rest;
    Mixed { rows: Tensor::cat(vec![x.clone(), mixed], 0), labels: owned }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::Labels;
    use gallerist_tensor::pairwise::host;

    #[test]
    fn each_two_samples_of_a_class_give_one_between_them() {
        let x = Tensor::<2>::from_floats([[0.0], [10.0], [4.0], [20.0]], &Device::flex());
        let lists = Lists::new(x.clone(), Labels::Classes(&[0, 1, 0, 1]), None);
        let mixed = extend(&lists, Some(0.25), 1, 0);
        assert_eq!(host(&mixed.rows), [0.0, 10.0, 4.0, 20.0, 3.0, 17.5]);
        let OwnedLabels::Classes(classes) = &mixed.labels else { panic!("classes in, classes out") };
        assert_eq!(classes[..], [0, 1, 0, 1, 0, 1]);

        let sets = [vec![1, 2], vec![2, 3], vec![4], vec![3, 2]];
        let mixed = extend(&Lists::new(x, Labels::Sets(&sets), None), Some(0.5), 1, 0);
        let OwnedLabels::Sets(sets) = &mixed.labels else { panic!("sets in, sets out") };
        assert_eq!(sets[4..], [vec![2], vec![2], vec![2, 3]]);
        assert_eq!(host(&mixed.rows)[4..], [5.0, 10.0, 15.0]);
    }

    #[test]
    fn coefficients_are_a_function_of_seed_and_step() {
        let x = Tensor::<2>::from_floats([[0.0], [1.0], [1.0]], &Device::flex());
        let lists = Lists::new(x, Labels::Classes(&[0, 0, 0]), None);
        let of = |seed, step| host(&extend(&lists, None, seed, step).rows)[3..5].to_vec();
        assert_eq!(of(1, 2), of(1, 2));
        assert_ne!(of(1, 2), of(1, 3));
        assert_ne!(of(1, 2), of(2, 2));
        assert_ne!(of(1, 2)[0], of(1, 2)[1]);
        assert!(of(1, 2).iter().all(|v| (0.0..=1.0).contains(v)));
    }

    #[test]
    fn singletons_have_no_virtual_samples() {
        let x = Tensor::<2>::from_floats([[0.0], [1.0]], &Device::flex());
        let mixed = extend(&Lists::new(x, Labels::Classes(&[0, 1]), None), None, 1, 0);
        assert_eq!(mixed.rows.dims(), [2, 1]);
    }
}
