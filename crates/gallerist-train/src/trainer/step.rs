//! One step: forward and backward of its batches, then the optimiser.

use burn::optim::GradientsAccumulator;
use burn::tensor::{DType, Tensor, TensorData};
use gallerist_data::Batch;
use gallerist_loss::{BatchStatistics, Labels, Progress, Queries};
use gallerist_nn::Draw;
use gallerist_tensor::pairwise::host;

use super::state::Trainer;
use crate::crossing::Crossing;
use crate::log::Step;
use crate::observer::Observer;
use crate::optim::{Part, clip_by_global_norm, multiply};
use crate::precision::LossScale;
use crate::ranks::{self, Rows};
use crate::{Error, Result};
use gallerist_tensor::device::on_device;

impl Trainer {
    /// Forward and backward of every batch of a step, and one optimiser step.
    pub(super) fn train_on(
        &mut self,
        next: &mut dyn FnMut() -> Result<Batch>,
        observer: &mut dyn Observer,
    ) -> Result<Step> {
        let step = self.state.step + 1;
        let count = self.config.train.accumulate;
        let mut network_gradients = GradientsAccumulator::new();
        let mut objective_gradients = GradientsAccumulator::new();
        let mut records = Vec::with_capacity(count);
        let scale = self.loss_scale.map_or(1.0, LossScale::factor);
        for number in 0..count {
            let (record, value, crossing) = self.forward(next()?, number, observer)?;
            records.push(record);
            // The gradient of a single batch is unchanged, bit for bit.
            let value = if count == 1 { value } else { value.mul_scalar(1.0 / count as f64) };
            let (of_network, of_objective) = self.config.train.precision.run(&self.devices.opened, || {
                crossing.backward(value, &self.network, &self.objective, scale)
            });
            self.check_shared()?;
            network_gradients.accumulate(&self.network, of_network);
            objective_gradients.accumulate(&self.objective, of_objective);
        }
        let (mut of_network, of_objective) = (network_gradients.grads(), objective_gradients.grads());
        ranks::sum_gradients(&*self.ranks, &self.network, &mut of_network)?;
        if scale != 1.0 {
            multiply(&mut of_network, &self.network, 1.0 / scale);
        }
        let gradient_norm =
            clip_by_global_norm(&mut of_network, &self.network, self.config.optimizer.clip_norm) as f32;
        let finite = gradient_norm.is_finite();
        let scaled = self.loss_scale.as_mut().is_some_and(|scale| scale.update(finite));
        let rate = self.config.optimizer.learning_rate
            * self.config.schedule.factor(self.state.step, self.config.train.steps);
        if !finite {
            return match scaled {
                true => Ok(Step { left_out: true, learning_rate: rate, ..Step::mean(&records) }),
                false => Err(self.diverged(step, gradient_norm)),
            };
        }
        if self.config.loss.change_in(step) {
            // Gradients of two losses differ in size by orders of magnitude: AdamW would divide those of the new loss
            // by the mean of those of the former.
            self.optimizer.forget_network();
        }
        self.network = on_device(self.devices.opened.device(), || {
            self.optimizer.step(rate, Part::Network, self.network.clone(), of_network)
        });
        self.objective = self.optimizer.step(rate, Part::Loss, self.objective.clone(), of_objective);
        if self.shared.is_none() {
            self.network = ranks::average_statistics(&*self.ranks, self.network.clone())?;
        }
        if let Some(average) = &mut self.average {
            average.update(step, &self.network);
        }
        Ok(Step { gradient_norm, learning_rate: rate, ..Step::mean(&records) })
    }

    /// What the objective says of batch `number` of a step, its value, and the way back to the network.
    fn forward(
        &mut self,
        batch: Batch,
        number: usize,
        observer: &mut dyn Observer,
    ) -> Result<(Step, Tensor<1>, Crossing)> {
        let step = self.state.step + 1;
        let of_ranks = Rows::gather(&*self.ranks, &batch.items)?;
        let seed = self.config.train.seed;
        let draw = Draw { seed, step: step as u64, batch: number as u64, first: of_ranks.first as u64 };
        let shape = batch.shape();
        let images = Tensor::<4>::from_data(TensorData::new(batch.images, shape), &self.devices.network);
        let precision = self.config.train.precision;
        let images = match precision.of_maps(&self.devices.opened) {
            DType::F32 => images,
            smaller => images.cast(smaller),
        };
        let forward = || self.network.forward_training(images, draw);
        let outputs = precision.run(&self.devices.opened, || match &self.shared {
            Some(shared) => shared.within(forward),
            None => forward(),
        });
        self.check_shared()?;
        let crossing = Crossing::new(outputs, &self.devices.host);
        let outputs = of_ranks.whole(&*self.ranks, crossing.outputs())?;
        let (outputs, items) = (&outputs[..], &of_ranks.items);
        let embedding_norm = outputs.iter().map(mean_norm).sum::<f32>() / outputs.len() as f32;
        let sets: Option<Vec<Vec<u32>>> = self
            .store
            .set()
            .label_sets()
            .map(|sets| items.iter().map(|&item| sets[item as usize].clone()).collect());
        let classes: Vec<u32> = match self.store.set().labels() {
            Some(labels) => items.iter().map(|&item| labels[item as usize]).collect(),
            None => Vec::new(),
        };
        let labels = sets.as_deref().map_or(Labels::Classes(&classes), Labels::Sets);
        let progress = Progress { step: self.state.step, steps: self.config.train.steps };
        let output = self.objective.forward(outputs, labels, &self.memories, progress);
        let loss = output.value.clone().into_scalar::<f32>();
        if !loss.is_finite() {
            return Err(self.diverged(step, loss));
        }
        self.memories.push(self.state.step, &output.embeddings, labels);
        let seen = BatchStatistics::of(&output.embeddings[0], labels);
        self.watch(step, &seen, &output.queries, observer)?;
        let mean = |of: &dyn Fn(&Queries) -> f32| {
            output.queries.iter().map(of).sum::<f32>() / output.queries.len() as f32
        };
        let per_query = |counts: &[u32]| counts.iter().sum::<u32>() as f32 / counts.len().max(1) as f32;
        let record = Step {
            step,
            epoch: batch.epoch as usize,
            loss,
            positive_share: mean(&Queries::positive_share),
            negative_share: mean(&Queries::negative_share),
            mined_positives: mean(&|queries| per_query(&queries.mined_positives)),
            mined_negatives: mean(&|queries| per_query(&queries.mined_negatives)),
            dead_share: mean(&Queries::dead_share),
            losses: if output.values.len() > 1 { output.values } else { Vec::new() },
            positive_distance: seen.positive_distance,
            negative_distance: seen.negative_distance,
            rank: seen.rank,
            embedding_norm,
            waited: batch.waited.as_secs_f64(),
            ..Step::default()
        };
        Ok((record, output.value, crossing))
    }

    /// Whether all exchanges within the network have worked.
    fn check_shared(&self) -> Result<()> {
        Ok(self.shared.as_ref().map_or(Ok(()), |shared| shared.check())?)
    }

    fn diverged(&self, step: usize, value: f32) -> Error {
        let hint = format!(
            "lower optimizer.learning_rate (it is {}) or set schedule.warmup_steps; the checkpoints are of earlier \
             steps and still good",
            self.config.optimizer.learning_rate
        );
        Error::Diverged { step, value, hint }
    }
}

/// Mean length of the rows.
fn mean_norm(x: &Tensor<2>) -> f32 {
    let [n, d] = x.dims();
    let values = host(x);
    let norms = values.chunks(d.max(1)).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt());
    (norms.sum::<f64>() / n.max(1) as f64) as f32
}
