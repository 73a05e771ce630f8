//! Sets of embeddings, one after the other.

use super::set::EmbeddingSet;
use super::sources::Sources;
use crate::columns::Columns;
use crate::eval::MatchRule;
use crate::{Error, Matrix, Result};

/// Sets that are joined: see [`EmbeddingSet::concat`].
pub(super) struct Join {
    /// What the sets have in common. Without embeddings, sources, columns and threshold.
    all: EmbeddingSet,
    rows: usize,
    cols: usize,
    values: Vec<f32>,
    sources: Vec<(Option<Sources>, usize)>,
    columns: Vec<(Columns, usize)>,
    /// The thresholds of the sets.
    thresholds: Vec<MatchRule>,
    mix_models: bool,
    /// Whether there were different models or metrics.
    is_mixed: bool,
}

impl Join {
    /// Begins with a set. Memory is taken for `capacity` values in all.
    pub(super) fn new(mut first: EmbeddingSet, mix_models: bool, capacity: usize) -> Result<Self> {
        first.check_counts()?;
        let (rows, cols) = (first.embeddings.rows(), first.embeddings.cols());
        let embeddings = std::mem::replace(&mut first.embeddings, Matrix::new(0, cols, Vec::new())?);
        let mut values = embeddings.into_vec();
        values.reserve_exact(capacity.saturating_sub(values.len()));
        let sources = vec![(first.sources.take(), rows)];
        let columns = vec![(std::mem::take(&mut first.columns), rows)];
        let thresholds = first.threshold.take().into_iter().collect();
        Ok(Self { all: first, rows, cols, values, sources, columns, thresholds, mix_models, is_mixed: false })
    }

    /// Adds the rows of a set.
    pub(super) fn push(&mut self, set: EmbeddingSet) -> Result<()> {
        let (all, mix_models) = (&mut self.all, self.mix_models);
        set.check_counts()?;
        if set.embeddings.cols() != self.cols {
            return Err(Error::Dimensions { queries: set.embeddings.cols(), gallery: self.cols });
        }
        if set.model != all.model {
            if !mix_models {
                return Err(Error::Models { first: all.model.take(), other: set.model });
            }
            all.model = None;
            self.is_mixed = true;
        }
        let join = |all: &mut Option<Vec<String>>, more: Option<Vec<String>>| match (&mut *all, more) {
            (Some(all), Some(more)) => all.extend(more),
            _ => *all = None,
        };
        join(&mut all.labels, set.labels);
        join(&mut all.paths, set.paths);
        join(&mut all.cameras, set.cameras);
        all.source = all.source.take().filter(|source| set.source.as_ref() == Some(source));
        all.run = all.run.take().filter(|run| set.run.as_ref() == Some(run));
        let [first, other] = [all.metric, set.metric].map(Option::unwrap_or_default);
        if first != other && !mix_models {
            return Err(Error::Metrics { first, other });
        }
        self.is_mixed |= first != other;
        all.metric = all.metric.filter(|&metric| set.metric == Some(metric));
        all.protocol = all.protocol.take().filter(|protocol| set.protocol.as_ref() == Some(protocol));
        self.thresholds.extend(set.threshold);
        let rows = set.embeddings.rows();
        self.sources.push((set.sources, rows));
        self.columns.push((set.columns, rows));
        self.rows += rows;
        self.values.extend(set.embeddings.into_vec());
        Ok(())
    }

    /// The joined set.
    pub(super) fn finish(self) -> Result<EmbeddingSet> {
        let Self { mut all, rows, cols, values, sources, mut columns, thresholds, is_mixed, .. } = self;
        // Rows of an unknown network may be of another one than those that the threshold was calibrated on.
        let holds = !is_mixed && (all.model.is_some() || thresholds.len() == sources.len());
        all.threshold = match MatchRule::distinct(&thresholds)[..] {
            [rule] if holds => Some(rule.clone()),
            _ => None,
        };
        let sources = Sources::concat(sources.iter().map(|(sources, rows)| (sources.as_ref(), *rows)));
        let columns = match columns.len() {
            // Joining copies every value.
            1 => columns.remove(0).0,
            _ => Columns::concat(columns.iter().map(|(columns, rows)| (columns, *rows))),
        };
        columns.check_joined(&Columns::default())?;
        Ok(EmbeddingSet { embeddings: Matrix::new(rows, cols, values)?, sources, columns, ..all })
    }
}
