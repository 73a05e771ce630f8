//! The ranges of a run file's values.

use gallerist_data::Transform;
use gallerist_loss::Limit;
use gallerist_nn::Combine;
use gallerist_retrieval::search::Metric;

use super::schema::RunConfig;
use crate::Result;
use crate::evaluation::measure;
use crate::limits::{MAX_BATCH, MAX_REPEATS, MAX_THREADS, at_most, tensor};

impl RunConfig {
    /// Checks every range.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](gallerist_tensor::Error::Value) naming the key, what it may be and what was found; [`Error::Retrieval`](crate::Error::Retrieval) for an
    /// evaluation that cannot be run.
    pub fn validate(&self) -> Result<()> {
        let error = |key: &str, wanted: &str, found: String| {
            Err(gallerist_tensor::Error::Value { key: key.into(), wanted: wanted.into(), found }.into())
        };
        if self.train.steps == 0 {
            return error("train.steps", "1 or more", "0".into());
        }
        if self.train.accumulate == 0 {
            return error("train.accumulate", "1 or more", "0".into());
        }
        if let Some(decay) = self.train.average_decay {
            let fits = (0.0..1.0).contains(&decay);
            gallerist_tensor::Error::require("train.average_decay".into(), decay, fits, "from 0 to below 1")?;
        }
        if self.train.prefetch == 0 {
            return error("train.prefetch", "1 or more", "0".into());
        }
        if !(0.0..1.0).contains(&self.validation.fraction) {
            return error("validation.fraction", "from 0 to below 1", self.validation.fraction.to_string());
        }
        if let Some(fold) = self.validation.fold {
            if fold.of < 2 {
                return error("validation.fold.of", "2 or more", fold.of.to_string());
            }
            if !(1..=fold.of).contains(&fold.number) {
                return error(
                    "validation.fold.number",
                    &format!("from 1 to {}", fold.of),
                    fold.number.to_string(),
                );
            }
        }
        if self.distributed.timeout_seconds == 0 {
            return error("distributed.timeout_seconds", "1 or more", "0".into());
        }
        if self.validation.every == 0 {
            return error("validation.every", "1 or more", "0".into());
        }
        measure(&self.validation.metric, "validation (`validation.metric`)")?;
        if self.evaluation.recall_at.is_empty() || self.evaluation.recall_at.contains(&0) {
            return error(
                "evaluation.recall_at",
                "a list of numbers of 1 or more",
                format!("{:?}", self.evaluation.recall_at),
            );
        }
        self.data.validate()?;
        if let Some(metric) = self.evaluation.metric {
            if metric == Metric::InnerProduct {
                return error("evaluation.metric", "`cosine` or `euclidean`", format!("`{}`", metric.name()));
            }
            if metric == Metric::Euclidean && self.evaluation.combine == Combine::NormalizeThenConcat {
                let wanted = "`cosine` where evaluation.combine = \"normalize_then_concat\" scales the rows";
                return error("evaluation.metric", wanted, "`euclidean`".into());
            }
        }
        self.network.validate()?;
        self.check_text()?;
        check_limits(self)?;
        self.evaluation.plan()?;
        self.evaluation.head_choice().places(&self.network.heads())?;
        self.loss.validate(&self.network.heads(), self.xbm.as_ref(), self.train.steps)?;
        self.optimizer.validate()?;
        self.schedule.validate()?;
        Transform::training(&self.image, &self.augment)?;
        Ok(())
    }
}

/// Refuses a count of a run file that is above its limit.
fn check_limits(config: &RunConfig) -> Result<()> {
    let (train, evaluation) = (&config.train, &config.evaluation);
    let few_shot = evaluation.few_shot.as_ref();
    let counts = [
        ("train.steps", train.steps, 1_000_000_000),
        ("train.threads", train.threads, MAX_THREADS),
        ("train.loader_threads", train.loader_threads, MAX_THREADS),
        ("train.prefetch", train.prefetch, 1024),
        ("train.accumulate", train.accumulate, 65_536),
        ("data.cache_mib", config.data.cache_mib, 1 << 30),
        ("evaluation.batch_size", evaluation.batch_size, MAX_BATCH),
        ("evaluation.bootstrap.resamples", evaluation.bootstrap.map_or(0, |of| of.resamples), MAX_REPEATS),
        ("evaluation.few_shot.episodes", few_shot.map_or(0, |of| of.episodes), MAX_REPEATS),
        ("evaluation.threshold.splits", evaluation.threshold.map_or(0, |of| of.splits), MAX_REPEATS),
        ("report.queries", config.report.queries, 10_000),
        ("report.failures", config.report.failures, 10_000),
        ("report.results", config.report.results, 1000),
    ];
    for (key, found, limit) in counts {
        at_most(key, found, limit)?;
    }
    evaluation.threshold.map_or(Ok(()), |options| options.check())?;
    let (key, images) = (config.sampler.batch_size_keys(), config.sampler.batch_size());
    at_most(key, images, MAX_BATCH)?;
    let size = config.image.size;
    tensor("the images of a batch", key, &[images, config.image.channels, size.height, size.width])?;
    if let Some(xbm) = &config.xbm {
        tensor("the cross-batch memory", "xbm.size", &[xbm.size, config.network.dimensions()])?;
        tensor("the similarities of a batch and the memory", "xbm.size", &[xbm.size, images])?;
    }
    for term in &config.loss.0 {
        for limit in term.loss.limits(config.network.dimensions()) {
            match limit {
                Limit::Count { key, found, most } => at_most(key, found, most)?,
                Limit::Tensor { what, key, sides } => tensor(what, key, &sides)?,
            }
        }
    }
    Ok(())
}
