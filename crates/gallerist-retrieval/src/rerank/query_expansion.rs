//! Queries moved towards their nearest neighbours.

use std::fmt;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{check, check_metric};
use crate::search::{Metric, SearchOptions, search, self_search};
use crate::{Error, Matrix, MatrixView, Result};

/// Query expansion: each query becomes the weighted mean of itself, with weight 1, and its nearest
/// gallery rows.
///
/// With `alpha` 0 all weights are 1: average query expansion (AQE; Chum et al., Total Recall, 2007).
/// Else a neighbour of similarity s has the weight `max(s, 0)^alpha` (alpha-QE; Radenović, Tolias,
/// Chum, Fine-tuning CNN Image Retrieval with No Human Annotation, 2018, equation 9, where alpha is 3).
/// Under the cosine rows are normalised before they are averaged. A query that is a row of the
/// gallery is not its own neighbour. Sums are in f64.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueryExpansion {
    /// Neighbours taken in; 10 by default. A smaller gallery gives fewer.
    pub neighbours: usize,
    /// The power of the similarity; 0 by default.
    pub alpha: f64,
}

impl Default for QueryExpansion {
    fn default() -> Self {
        Self { neighbours: 10, alpha: 0.0 }
    }
}

impl fmt::Display for QueryExpansion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} neighbours", self.neighbours)?;
        if self.alpha == 0.0 { Ok(()) } else { write!(f, " (alpha {})", self.alpha) }
    }
}

impl QueryExpansion {
    /// The expanded queries, one row each: of `queries`, or of the gallery's own rows.
    ///
    /// # Errors
    /// [`Error::Option`] for no neighbours, for a negative alpha, for an alpha with Euclidean
    /// distances and for the inner product; and as [`search`](crate::search::search()).
    pub fn expand(&self, queries: Option<MatrixView>, gallery: MatrixView, metric: Metric) -> Result<Matrix> {
        let refuse = |option, wanted, found: String| Err(Error::Option { option, wanted, found });
        if self.neighbours == 0 {
            return refuse("the neighbours of query expansion", "at least 1", "0".to_owned());
        }
        if !self.alpha.is_finite() || self.alpha < 0.0 {
            return refuse("alpha", "at least 0", self.alpha.to_string());
        }
        if self.alpha != 0.0 && metric != Metric::Cosine {
            return refuse("alpha", "0 where rows are not compared by the cosine", self.alpha.to_string());
        }
        check_metric(metric)?;
        check(queries, gallery)?;
        let options = SearchOptions { metric, ..SearchOptions::new(self.neighbours) };
        let lists = match queries {
            Some(queries) => search(queries, gallery, &options)?,
            None => self_search(gallery, &options)?,
        };
        let form = |rows: MatrixView| match metric {
            Metric::Cosine => rows.to_matrix().l2_normalized().0,
            _ => rows.to_matrix(),
        };
        let rows = form(gallery);
        let starts = queries.map(form);
        let starts = starts.as_ref().unwrap_or(&rows);
        let expanded: Vec<Vec<f32>> = (0..starts.rows())
            .into_par_iter()
            .map(|query| {
                let mut sum: Vec<f64> = starts.row(query).iter().map(|&value| f64::from(value)).collect();
                let mut weights = 1.0;
                for (&item, &score) in lists.indices(query).iter().zip(lists.scores(query)) {
                    let weight = match self.alpha {
                        0.0 => 1.0,
                        alpha => f64::from(score).max(0.0).powf(alpha),
                    };
                    weights += weight;
                    for (sum, &value) in sum.iter_mut().zip(rows.row(item as usize)) {
                        *sum += weight * f64::from(value);
                    }
                }
                sum.into_iter().map(|sum| (sum / weights) as f32).collect()
            })
            .collect();
        Matrix::new(starts.rows(), starts.cols(), expanded.concat())
    }
}
