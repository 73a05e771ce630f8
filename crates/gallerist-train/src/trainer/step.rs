//! One step: forward and backward of its batches, then the optimiser.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Tensor};
use gallerist_collective::Shared;
use gallerist_data::Batch;
use gallerist_loss::{BatchStatistics, Labels, Progress, Queries};
use gallerist_nn::{Draw, check_outputs};
use gallerist_tensor::pairwise::host;
use gallerist_util::random::Random;

use super::nonfinite::Trouble;
use super::state::Trainer;
use crate::Result;
use crate::crossing::Crossing;
use crate::gradient_sums::GradientSums;
use crate::log::Step;
use crate::nonfinite::{GradientNorms, Place, SeenBatch, norms_of};
use crate::observer::Observer;
use crate::optim::{Part, clip_by_global_norm, multiply};
use crate::precision::LossScale;
use crate::ranks::{self, Rows};
use gallerist_tensor::device::{on_device, uploaded};

/// How a step came out.
enum Taken {
    Done(Step),
    /// A number is not finite. Weights and statistics may have changed.
    Nonfinite(Trouble),
}

/// What the objective says of a batch.
struct Forward {
    record: Step,
    value: Tensor<1>,
    crossing: Crossing,
    /// Sums the gradients over the ranks during the backward pass; nothing where they are summed after it.
    sums: Option<GradientSums>,
    /// Whether the loss is finite on all ranks.
    is_finite: bool,
    /// Whether the losses count a pair that gives a gradient.
    counts_pairs: bool,
}

impl Trainer {
    /// Forward and backward of every batch of a step, and one optimiser step.
    pub(super) fn train_on(
        &mut self,
        next: &mut dyn FnMut() -> Result<Batch>,
        observer: &mut dyn Observer,
    ) -> Result<Step> {
        if self.config.loss.change_in(self.state.step + 1) {
            // Gradients of two losses differ in size by orders of magnitude: AdamW would divide those of the new loss
            // by the mean of those of the former. First of all, because the step may be skipped or left out.
            self.optimizer.forget_network();
        }
        let before = self.before_step();
        match self.take_step(next, observer)? {
            Taken::Done(step) => {
                self.state.skipped.in_succession = 0;
                Ok(step)
            }
            Taken::Nonfinite(trouble) => self.take_trouble(trouble, before, observer),
        }
    }

    fn take_step(
        &mut self,
        next: &mut dyn FnMut() -> Result<Batch>,
        observer: &mut dyn Observer,
    ) -> Result<Taken> {
        let step = self.state.step + 1;
        let count = self.config.train.accumulate;
        let mut network_gradients = GradientsAccumulator::new();
        let mut objective_gradients = GradientsAccumulator::new();
        let mut records = Vec::with_capacity(count);
        let mut batches = Vec::with_capacity(count);
        let (mut summed, mut counts_pairs) = (false, false);
        let scale = self.loss_scale.map_or(1.0, LossScale::factor);
        let learning_rate = self.config.optimizer.learning_rate
            * self.config.schedule.factor(self.state.step, self.config.train.steps);
        for number in 0..count {
            let Forward { record, value, crossing, sums, is_finite, counts_pairs: counted } =
                self.forward(next()?, number, &mut batches, observer)?;
            counts_pairs |= counted;
            let loss = record.loss;
            records.push(record);
            if !is_finite {
                // The batches of the next step are the ones after all of this.
                for _ in number + 1..count {
                    next()?;
                }
                let record = Step { learning_rate, ..Step::mean(&records) };
                let (place, gradients) = (Place::Loss(loss), GradientNorms::new());
                return Ok(Taken::Nonfinite(Trouble { place, record, batches, gradients }));
            }
            // The gradient of a single batch is unchanged, bit for bit.
            let value = if count == 1 { value } else { value.mul_scalar(1.0 / count as f64) };
            let (mut of_network, of_objective) =
                self.config.train.precision.run(&self.devices.opened, || {
                    crossing.backward(value, &self.network, &self.objective, scale)
                });
            self.check_shared()?;
            if let Some(sums) = sums {
                let order = &mut self.gradient_order;
                sums.finish(&*self.ranks, &self.network, &mut of_network, order)?;
                summed = true;
            }
            network_gradients.accumulate(&self.network, of_network);
            objective_gradients.accumulate(&self.objective, of_objective);
        }
        let (mut of_network, mut of_objective) = (network_gradients.grads(), objective_gradients.grads());
        if !summed {
            ranks::sum_gradients(&*self.ranks, &self.network, &mut of_network)?;
        }
        if scale != 1.0 {
            multiply(&mut of_network, &self.network, 1.0 / scale);
        }
        let clip_norm = self.config.optimizer.clip_norm;
        let gradient_norm = clip_by_global_norm(&mut of_network, &self.network, clip_norm) as f32;
        let loss_norm = clip_by_global_norm(&mut of_objective, &self.objective, None) as f32;
        let finite = gradient_norm.is_finite();
        let scaled = self.loss_scale.as_mut().is_some_and(|scale| scale.update(finite));
        let record = Step { gradient_norm, learning_rate, ..Step::mean(&records) };
        if !finite && scaled {
            return Ok(Taken::Done(Step { gradient_norm: 0.0, left_out: true, ..record }));
        }
        if self.ranks.any(!finite || !loss_norm.is_finite())? {
            let gradients = self.gradient_norms(&of_network, &of_objective);
            let first = gradients.iter().find(|(_, (_, nonfinite))| *nonfinite > 0);
            let place = match first {
                Some((name, _)) => Place::Gradient(name.clone()),
                None => Place::Norm(if finite { loss_norm } else { gradient_norm }),
            };
            return Ok(Taken::Nonfinite(Trouble { place, record, batches, gradients }));
        }
        self.watch_gradient(step, gradient_norm == 0.0 && !counts_pairs, observer)?;
        self.network = on_device(self.devices.opened.device(), || {
            self.optimizer.step(learning_rate, Part::Network, self.network.clone(), of_network)
        });
        self.objective = self.optimizer.step(learning_rate, Part::Loss, self.objective.clone(), of_objective);
        if !self.config.distributed.sync_batch_norm {
            self.network = ranks::average_statistics(&*self.ranks, self.network.clone())?;
        }
        let changed = self.first_nonfinite();
        if self.ranks.any(changed.is_some())? {
            let place = Place::Update(changed.unwrap_or_default());
            return Ok(Taken::Nonfinite(Trouble { place, record, batches, gradients: GradientNorms::new() }));
        }
        if let Some(average) = &mut self.average {
            average.update(step, &self.network);
        }
        Ok(Taken::Done(record))
    }

    /// The norms of all gradients by parameter.
    fn gradient_norms(&self, of_network: &GradientsParams, of_objective: &GradientsParams) -> GradientNorms {
        let of_loss = norms_of(&self.objective, of_objective).into_iter();
        let mut norms = norms_of(&self.network, of_network);
        norms.extend(of_loss.map(|(name, norm)| (format!("loss.{name}"), norm)));
        norms
    }

    /// What the objective says of batch `number` of a step, its value, and the way back to the network. The embeddings are
    /// added to `seen_batches`. If the loss is not finite, nothing of the batch is kept in memories and statistics.
    fn forward(
        &mut self,
        batch: Batch,
        number: usize,
        seen_batches: &mut Vec<SeenBatch>,
        observer: &mut dyn Observer,
    ) -> Result<Forward> {
        let step = self.state.step + 1;
        let of_ranks = Rows::gather(&*self.ranks, &batch.items)?;
        let seed = self.config.train.seed;
        let draw = Draw { seed, step: step as u64, batch: number as u64, first: of_ranks.first as u64 };
        self.devices.network.seed(seed_of_engine(draw));
        let shape = batch.shape();
        let images = uploaded(batch.images, shape, &self.devices.network);
        let precision = self.config.train.precision;
        let images = match precision.of_maps(&self.devices.opened) {
            DType::F32 => images,
            smaller => images.cast(smaller),
        };
        // Of several batches, the sum is exchanged; so are gradients of several passes.
        let checkpointing = self.config.train.gradient_checkpointing;
        let mut sums = match self.config.train.accumulate {
            1 if !checkpointing => {
                GradientSums::start(&*self.ranks, &self.devices.network, &self.gradient_order)
            }
            _ => None,
        };
        let network = sums.as_mut().map(|sums| sums.tapped(self.network.clone()));
        let network = network.as_ref().unwrap_or(&self.network);
        let of_statistics = self.shared.clone().filter(|_| self.config.distributed.sync_batch_norm);
        let crossing = if checkpointing {
            let forward = || network.forward_checkpointed(images, draw);
            let (outputs, checkpoints) = precision
                .run(&self.devices.opened, forward)
                .expect("the start has checked that the network can");
            Crossing::checkpointed(outputs, checkpoints, &self.devices.host)
        } else {
            let forward = || {
                let outputs = network.forward_training(images, draw);
                if network.graph().is_none() {
                    // Running statistics of Burn's own layers wait for the thread that has updated them, and the next
                    // pass may run on another one. This applies those of all threads.
                    self.network.valid();
                }
                outputs
            };
            let outputs = precision.run(&self.devices.opened, || Shared::scope(of_statistics, forward));
            self.check_shared()?;
            let heads = self.config.network.heads();
            let name = self.config.network.name();
            check_outputs(name, &heads, shape[0], &outputs)?;
            if !outputs.iter().any(Tensor::is_tracked) {
                return Err(unconnected(
                    format!("the outputs of the network `{name}` are not connected to its parameters"),
                    "compute them from the images and the parameters of the module, without `detach`",
                ));
            }
            Crossing::new(outputs, &self.devices.host)
        };
        let outputs = of_ranks.whole(&*self.ranks, crossing.outputs())?;
        let (outputs, items) = (&outputs[..], &of_ranks.items);
        seen_batches.push(SeenBatch {
            epoch: batch.epoch,
            items: items.clone(),
            outputs: outputs.iter().map(|output| output.clone().without_autodiff()).collect(),
        });
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
        // All ranks compute the loss of the whole batch.
        self.devices.host.seed(seed_of_engine(Draw { first: 0, ..draw }));
        let output = Shared::scope(self.shared.clone(), || {
            self.objective.forward(outputs, labels, &self.memories, progress)
        });
        self.check_shared()?;
        let output = output?;
        let problem = output.queries.iter().find_map(|queries| queries.problem.clone());
        if self.ranks.any(problem.is_some())? {
            return Err(gallerist_tensor::Error::Conflict {
                message: problem.unwrap_or_else(|| "a miner on another rank chose a wrong pair".into()),
                hint: "a miner chooses positives and negatives from those that its candidates list".into(),
            }
            .into());
        }
        if !output.value.is_tracked() {
            let of_step = self.config.loss.0.iter().filter(|term| term.steps().contains(&step));
            let names: Vec<_> = of_step.map(|term| format!("`{}`", term.loss.name())).collect();
            return Err(unconnected(
                format!("the value of the loss {} is not connected to the embeddings", names.join(", ")),
                "compute it from the embeddings with tensor operations, without `detach`",
            ));
        }
        let loss = output.value.clone().into_scalar::<f32>();
        if self.ranks.any(!loss.is_finite())? {
            let losses = if output.values.len() > 1 { output.values } else { Vec::new() };
            let epoch = batch.epoch as usize;
            let waited = batch.waited.as_secs_f64();
            let record = Step { step, epoch, loss, losses, embedding_norm, waited, ..Step::default() };
            return Ok(Forward {
                record,
                value: output.value,
                crossing,
                sums: None,
                is_finite: false,
                counts_pairs: false,
            });
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
        let counts_pairs = output
            .queries
            .iter()
            .flat_map(|q| q.mined_positives.iter().chain(&q.mined_negatives))
            .any(|&n| n > 0);
        Ok(Forward { record, value: output.value, crossing, sums, is_finite: true, counts_pairs })
    }

    /// Whether all exchanges within the network have worked.
    fn check_shared(&self) -> Result<()> {
        Ok(self.shared.as_ref().map_or(Ok(()), |shared| shared.check())?)
    }
}

/// The seed of the tensor engine's random generator for one batch. Parts of a program draw from it, such as Burn's dropout;
/// its state is not in the checkpoint.
fn seed_of_engine(draw: Draw) -> u64 {
    Random::new(draw.seed, &format!("engine/{}/{}", draw.batch, draw.first), draw.step, 0).below(usize::MAX)
        as u64
}

/// The error of a part without gradients.
fn unconnected(message: String, hint: &str) -> crate::Error {
    gallerist_tensor::Error::Conflict { message, hint: hint.into() }.into()
}

/// Mean length of the rows.
fn mean_norm(x: &Tensor<2>) -> f32 {
    let [n, d] = x.dims();
    let values = host(x);
    let norms = values.chunks(d.max(1)).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt());
    (norms.sum::<f64>() / n.max(1) as f64) as f32
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::RunConfig;

    #[test]
    fn a_step_that_is_left_out_forgets_the_state_of_the_former_loss() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let images = root.join("data/omniglot/omniglot_images_background.zip");
        let train = format!("data.train=[{:?}]", images.to_str().unwrap());
        // Gradients of the second loss overflow f32 when they are scaled. Without checkpointing, they are scaled on GPUs only.
        let losses = "loss=[{name=\"rll\", until_step=2}, {name=\"rll\", weight=1e37, from_step=3}]";
        let network = "network={kind=\"vit\", width=16, depth=1, attention_heads=2, patch=7, dimensions=8}";
        let settings = [
            losses,
            network,
            &train,
            "train.gradient_checkpointing=true",
            "data.test=[]",
            "validation.fraction=0.0",
            "train.device=cpu",
            "train.checkpoint_every=0",
            "train.steps=3",
            "optimizer={kind=\"adamw\", learning_rate=0.001}",
        ];
        let settings: Vec<String> = settings.iter().map(|setting| setting.to_string()).collect();
        let config = RunConfig::load(&root.join("configs/smoke.toml"), &settings).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut trainer = Trainer::start(&config, &folder.path().join("run")).unwrap();
        trainer.loss_scale = Some(LossScale::default());
        trainer.run(&mut (), &AtomicBool::new(false)).unwrap();
        // The scale is halved by the third step alone.
        assert_eq!(trainer.loss_scale.unwrap().factor() * 2.0, LossScale::default().factor());
        assert!(trainer.optimizer.state().tensors.is_empty());
    }
}
