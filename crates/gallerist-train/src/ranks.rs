//! What the processes of a distributed run give each other.
//!
//! Every rank computes the embeddings of its part of a batch. The embeddings are gathered, and every rank computes the
//! loss of the whole batch and its gradient with respect to its own embeddings. The sum of the network's gradients over
//! the ranks is then the gradient of the whole batch, without a factor. Losses, miners, cross-batch memories and learned
//! proxies see the whole batch in the order of the plan, as on one process.

use std::collections::HashMap;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};
use gallerist_collective::{Collective, bytes_of, numbers_of};
use gallerist_data::Broken;
use gallerist_tensor::params;

use crate::Result;
use crate::config::threads;

/// The rows of a batch on all ranks.
pub(super) struct Rows {
    /// The images of the whole batch.
    pub(super) items: Vec<u32>,
    /// The place of this rank's first image.
    pub(super) first: usize,
    /// Images of every rank.
    counts: Vec<usize>,
}

impl Rows {
    /// From the images of this rank.
    pub(super) fn gather(ranks: &dyn Collective, items: &[u32]) -> Result<Self> {
        if ranks.size() == 1 {
            return Ok(Rows { items: items.to_vec(), first: 0, counts: vec![items.len()] });
        }
        let all = ranks.all_gather_any(bytes_of(items))?;
        let counts: Vec<usize> = all.iter().map(|of_rank| of_rank.len() / 4).collect();
        let first = counts[..ranks.rank()].iter().sum();
        Ok(Rows { items: numbers_of(&all.concat()), first, counts })
    }

    /// The outputs for the whole batch, one tensor per head. The rows of this rank are connected to `own`.
    pub(super) fn whole(&self, ranks: &dyn Collective, own: &[Tensor<2>]) -> Result<Vec<Tensor<2>>> {
        if ranks.size() == 1 {
            return Ok(own.to_vec());
        }
        own.iter().map(|own| self.whole_head(ranks, own)).collect()
    }

    fn whole_head(&self, ranks: &dyn Collective, own: &Tensor<2>) -> Result<Tensor<2>> {
        let [n, d] = own.dims();
        let values = own.clone().detach().into_data().try_into_vec::<f32>().expect("outputs are f32");
        let lengths: Vec<usize> = self.counts.iter().map(|count| count * d * 4).collect();
        let all: Vec<f32> = numbers_of(&ranks.all_gather(bytes_of(&values), &lengths)?);
        let device = own.device().inner();
        let rows = |from: usize, to: usize| -> Tensor<2> {
            let data = TensorData::new(all[from * d..to * d].to_vec(), [to - from, d]);
            Tensor::from_inner(Tensor::from_data(data, &device))
        };
        let (end, total) = (self.first + n, self.items.len());
        let parts = [(0, self.first), (end, total)].map(|(from, to)| (from < to).then(|| rows(from, to)));
        let [before, after] = parts;
        Ok(Tensor::cat(before.into_iter().chain([own.clone()]).chain(after).collect(), 0))
    }
}

/// Replaces the gradients of a module by their sums over the ranks, accumulated in the order of the ranks.
pub(super) fn sum_gradients<M: Module>(
    ranks: &dyn Collective,
    module: &M,
    gradients: &mut GradientsParams,
) -> Result<()> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let mut collect = Collect { gradients, values: Vec::new(), parts: Vec::new() };
    module.visit(&mut collect);
    let Collect { mut values, parts, .. } = collect;
    ranks.all_reduce(&mut values)?;
    let mut rest = &values[..];
    let part = |(id, length)| {
        let (values, others) = rest.split_at(length);
        rest = others;
        (id, values.to_vec())
    };
    replace_gradients(module, gradients, parts.into_iter().map(part).collect());
    Ok(())
}

/// Replaces the gradients of these parameters.
pub(super) fn replace_gradients<M: Module>(
    module: &M,
    gradients: &mut GradientsParams,
    values: HashMap<ParamId, Vec<f32>>,
) {
    module.visit(&mut Replace { gradients, values });
}

/// All gradients of a module, in the order of its parameters.
struct Collect<'a> {
    gradients: &'a GradientsParams,
    values: Vec<f32>,
    /// Parameters and their numbers of values.
    parts: Vec<(ParamId, usize)>,
}

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.get::<D>(param.id) {
            let values = gradient.into_data().try_into_vec::<f32>().expect("gradients are f32");
            self.parts.push((param.id, values.len()));
            self.values.extend(values);
        }
    }
}

/// Takes gradients from values.
struct Replace<'a> {
    gradients: &'a mut GradientsParams,
    values: HashMap<ParamId, Vec<f32>>,
}

impl ModuleVisitor for Replace<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(values) = self.values.remove(&param.id) else { return };
        let old = self.gradients.remove::<D>(param.id).expect("a sum replaces a gradient");
        let sum = Tensor::<D>::from_data(TensorData::new(values, old.dims()), &old.device());
        self.gradients.register(param.id, sum);
    }
}

/// The network with the means over the ranks of the running statistics of batch norm, where every rank has its own.
pub(super) fn average_statistics<M: Module>(ranks: &dyn Collective, network: M) -> Result<M> {
    if ranks.size() == 1 {
        return Ok(network);
    }
    let mut tensors = params::collect(&network);
    tensors.retain(|name, _| name.ends_with("running_mean") || name.ends_with("running_var"));
    let values = |data: &TensorData| data.clone().try_into_vec::<f32>().expect("parameters are f32");
    let mut all: Vec<f32> = tensors.values().flat_map(values).collect();
    ranks.all_reduce(&mut all)?;
    let mut rest = &all[..];
    for data in tensors.values_mut() {
        let (sums, others) = rest.split_at(data.num_elements());
        let means = sums.iter().map(|sum| sum / ranks.size() as f32).collect();
        *data = TensorData::new(means, data.shape().clone());
        rest = others;
    }
    Ok(params::load(network, tensors).0)
}

/// The rows of all ranks.
pub(super) fn gather_rows(ranks: &dyn Collective, rows: &[f32]) -> Result<Vec<f32>> {
    Ok(numbers_of(&ranks.all_gather_any(bytes_of(rows))?.concat()))
}

/// The images of all ranks.
pub(super) fn gather_items(ranks: &dyn Collective, items: &[u32]) -> Result<Vec<u32>> {
    Ok(numbers_of(&ranks.all_gather_any(bytes_of(items))?.concat()))
}

/// The images that any rank could not read.
pub(super) fn gather_broken(ranks: &dyn Collective, own: Vec<Broken>) -> Result<Vec<Broken>> {
    if ranks.size() == 1 {
        return Ok(own);
    }
    let texts: Vec<(u32, String)> = own.iter().map(|one| (one.item, one.to_string())).collect();
    let all = ranks.all_gather_any(&serde_json::to_vec(&texts).expect("numbers and texts"))?;
    let of_rank = |text: Vec<u8>| -> Vec<(u32, String)> {
        serde_json::from_slice(&text).expect("a rank sends what this function has written")
    };
    let broken = |(item, message)| {
        let error = gallerist_data::Error::OfRank { message };
        Broken { item, error: Arc::new(error) }
    };
    Ok(all.into_iter().flat_map(of_rank).map(broken).collect())
}

/// A number of rank 0.
pub(super) fn broadcast(ranks: &dyn Collective, value: f64) -> Result<f64> {
    let mut bytes = value.to_ne_bytes().to_vec();
    ranks.broadcast(&mut bytes)?;
    Ok(f64::from_ne_bytes(bytes.try_into().expect("8 bytes")))
}

/// Threads for loading; 0: one per core that this rank has for itself.
pub(super) fn loader_threads(ranks: &dyn Collective, wanted: usize) -> Result<usize> {
    if wanted == 0 && ranks.size() > 1 { Ok(ranks.threads()?) } else { Ok(threads(wanted)) }
}
