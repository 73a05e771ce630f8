//! Steps that are not finite: going back to before the step, and what is kept of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::tensor::TensorData;
use gallerist_data::{Batch, Loader};
use gallerist_tensor::pairwise::host;
use gallerist_tensor::params;

use super::state::Trainer;
use crate::log::{Record, Step};
use crate::nonfinite::{
    BatchStudy, GradientNorms, ImageStudy, MOST_PIXELS, OnNonfinite, ParameterStudy, Place, SeenBatch, Study,
    ranges,
};
use crate::objective::Memories;
use crate::observer::Observer;
use crate::optim::Optimizer;
use crate::precision::LossScale;
use crate::{Error, Result};

/// What a step changes, as it was before the step.
pub(super) struct Before {
    network: BTreeMap<String, TensorData>,
    objective: BTreeMap<String, TensorData>,
    optimizer: Optimizer,
    memories: Memories,
}

/// A step that is not finite.
pub(super) struct Trouble {
    pub(super) place: Place,
    /// Its record, as far as it is known.
    pub(super) record: Step,
    pub(super) batches: Vec<SeenBatch>,
    /// By the name of the parameter; those of the loss begin with `loss.`.
    pub(super) gradients: GradientNorms,
}

/// Warnings of skipped steps that are given one by one.
const SHOWN: usize = 5;

impl Trainer {
    /// What the next step changes, where it may be skipped. A copy: the statistics of batch norm change in the forward
    /// pass, in place.
    pub(super) fn before_step(&self) -> Option<Before> {
        (self.config.train.on_nonfinite == OnNonfinite::Skip).then(|| Before {
            network: params::collect(&self.network),
            objective: params::collect(&self.objective),
            optimizer: self.optimizer.clone(),
            memories: self.memories.clone(),
        })
    }

    /// The first parameter of network and loss that is not finite.
    pub(super) fn first_nonfinite(&self) -> Option<String> {
        let of_loss = || params::first_nonfinite(&self.objective).map(|name| format!("loss.{name}"));
        params::first_nonfinite(&self.network).or_else(of_loss)
    }

    /// The record of a step that is not finite, which has changed nothing; or the error that ends the run.
    pub(super) fn take_trouble(
        &mut self,
        trouble: Trouble,
        before: Option<Before>,
        observer: &mut dyn Observer,
    ) -> Result<Step> {
        let step = self.state.step + 1;
        let in_succession = self.state.skipped.in_succession;
        let goes_on = before.is_some() && in_succession < OnNonfinite::MOST_IN_SUCCESSION;
        let (place, file) = self.study(&trouble, goes_on)?;
        let Some(before) = before.filter(|_| goes_on) else {
            return Err(self.nonfinite_error(step, &place, Some(file)));
        };
        self.network = params::load(self.network.clone(), before.network).0;
        self.objective = params::load(self.objective.clone(), before.objective).0;
        (self.optimizer, self.memories) = (before.optimizer, before.memories);
        let skipped = &mut self.state.skipped;
        (skipped.all, skipped.in_succession) = (skipped.all + 1, in_succession + 1);
        if skipped.all <= SHOWN {
            let further = if skipped.all == SHOWN { "; further skipped steps are only counted" } else { "" };
            let message = format!("{place}; the step is skipped, and kept in `{}`{further}", file.display());
            observer.warning(&format!("step {step}: {message}"));
            // The place of the run directory is no part of its log.
            let name = file.strip_prefix(self.directory.path()).unwrap_or(&file).display().to_string();
            let message = format!("{place}; the step is skipped, and kept in `{name}`{further}");
            self.log.write(&Record::Warning { step, message })?;
        }
        Ok(Step { gradient_norm: 0.0, skipped: Some(place.to_string()), ..trouble.record })
    }

    /// The error of a run that ends because something is not finite.
    pub(super) fn nonfinite_error(&self, step: usize, place: &Place, file: Option<PathBuf>) -> Error {
        let optimizer = &self.config.optimizer;
        let mut hints = vec![format!("lower optimizer.learning_rate (it is {})", optimizer.learning_rate)];
        if self.config.schedule.warmup_steps == 0 {
            hints.push("set schedule.warmup_steps".into());
        }
        if place.is_of_loss() {
            hints.push(format!("lower optimizer.loss_factor (it is {})", optimizer.loss_factor));
        } else if optimizer.clip_norm.is_none() {
            hints.push("set optimizer.clip_norm, such as 1.0".into());
        }
        match self.config.train.precision.name() {
            "f32" => {}
            name => hints.push(format!("use train.precision = \"f32\" (it is {name})")),
        }
        if self.config.train.on_nonfinite == OnNonfinite::Stop {
            hints.push("skip such steps with train.on_nonfinite = \"skip\"".into());
        }
        Error::Nonfinite {
            step,
            found: place.to_string(),
            skipped: self.state.skipped.in_succession,
            file,
            hint: format!("{}; the checkpoints are of earlier steps and still good", hints.join(", or ")),
        }
    }

    /// Keeps what there is to know of a step, and returns the place that explains it best and the file.
    fn study(&self, trouble: &Trouble, skipped: bool) -> Result<(Place, PathBuf)> {
        let step = self.state.step + 1;
        let mut place = trouble.place.clone();
        let mut tensors = BTreeMap::new();
        let mut batches = Vec::new();
        let heads = self.config.network.heads();
        let set = self.store.set();
        let mut bad_image = None;
        for (number, seen) in trouble.batches.iter().enumerate() {
            let again = self.load_again(number)?;
            let ranges = again.as_ref().map(ranges).unwrap_or_default();
            // The images of this rank within those of all.
            let own = again.as_ref().map(|batch| &batch.items[..]).unwrap_or_default();
            let first = seen.items.windows(own.len().max(1)).position(|items| items == own).unwrap_or(0);
            for (head, output) in heads.iter().zip(&seen.outputs) {
                let name = format!("batch.{number}.embeddings.{}", head.name);
                tensors.insert(name, output.clone().into_data().convert_dtype(burn::tensor::DType::F32));
            }
            if let Some(batch) = again.filter(|batch| batch.images.len() <= MOST_PIXELS) {
                let shape = batch.shape();
                tensors.insert(format!("batch.{number}.images"), TensorData::new(batch.images, shape));
            }
            let norms: Vec<Vec<f64>> = seen.outputs.iter().map(row_norms).collect();
            let images = seen.items.iter().enumerate().map(|(row, &item)| {
                let range = row.checked_sub(first).and_then(|row| ranges.get(row));
                let path = set.path(item as usize).to_owned();
                if range.is_some_and(|(nonfinite, _)| *nonfinite > 0) && bad_image.is_none() {
                    bad_image = Some(path.clone());
                }
                ImageStudy {
                    path,
                    label: set
                        .labels()
                        .map(|labels| set.class_names()[labels[item as usize] as usize].clone()),
                    embedding_norms: norms.iter().map(|norms| norms[row]).collect(),
                    nonfinite: range.map(|(nonfinite, _)| *nonfinite),
                    range: range.map(|(_, range)| *range),
                }
            });
            batches.push(BatchStudy { epoch: seen.epoch, images: images.collect() });
        }
        // What comes first in a step explains the rest.
        if matches!(place, Place::Loss(_) | Place::Gradient(_) | Place::Norm(_)) {
            let embeddings = trouble.batches.iter().any(|batch| {
                batch.outputs.iter().any(|output| row_norms(output).iter().any(|norm| !norm.is_finite()))
            });
            if let Some(name) = self.first_nonfinite() {
                place = Place::Weights(name);
            } else if let Some(path) = bad_image {
                place = Place::Image(path);
            } else if embeddings && matches!(place, Place::Loss(_)) {
                place = Place::Embeddings;
            } else if let (Place::Loss(loss), Some((length, item))) = (&place, longest(&trouble.batches))
                && length > f64::from(f32::MAX).sqrt()
            {
                place = Place::Long(*loss, set.path(item as usize).to_owned(), length);
            }
        }
        let parameters = params::collect(&self.network).into_iter();
        let of_loss = params::collect(&self.objective).into_iter();
        let parameters = parameters.chain(of_loss.map(|(name, data)| (format!("loss.{name}"), data)));
        let parameters = parameters.map(|(name, data)| {
            let (norm, nonfinite) = params::norm_and_nonfinite(&data);
            let gradient = trouble.gradients.get(&name);
            ParameterStudy {
                shape: data.shape().to_vec(),
                norm,
                nonfinite,
                gradient_norm: gradient.map(|(norm, _)| *norm),
                gradient_nonfinite: gradient.map(|(_, count)| *count),
                name,
            }
        });
        let (train, optimizer) = (&self.config.train, &self.config.optimizer);
        let study = Study {
            step,
            found: place.to_string(),
            skipped,
            seed: train.seed,
            learning_rate: trouble.record.learning_rate,
            precision: train.precision.name(),
            loss_scale: self.loss_scale.map(LossScale::factor),
            clip_norm: optimizer.clip_norm,
            loss: Some(trouble.record.loss),
            losses: trouble.record.losses.clone(),
            batches,
            parameters: parameters.collect(),
        };
        let folder = self.directory.nonfinite();
        if self.ranks.rank() != 0 {
            return Ok((place, folder));
        }
        let file = study.save(&folder, &tensors)?;
        Ok((place, file))
    }

    /// Batch `number` of this step, loaded once more; `None` where its images can no longer be read.
    fn load_again(&self, number: usize) -> Result<Option<Batch>> {
        let steps = self.state.step + 1;
        let Some(plan) = self.plan(steps).nth(number) else { return Ok(None) };
        let mut loader = Loader::new(self.store.clone(), [plan], self.loader_options()?)?;
        Ok(loader.next().and_then(std::result::Result::ok))
    }
}

/// The length of the longest embedding, and its image.
fn longest(batches: &[SeenBatch]) -> Option<(f64, u32)> {
    let rows = batches.iter().flat_map(|batch| {
        batch.outputs.iter().flat_map(|output| row_norms(output).into_iter().zip(batch.items.iter().copied()))
    });
    rows.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The length of each row.
fn row_norms(x: &burn::tensor::Tensor<2>) -> Vec<f64> {
    let [_, d] = x.dims();
    host(x).chunks(d.max(1)).map(|row| row.iter().map(|v| v * v).sum::<f64>().sqrt()).collect()
}
