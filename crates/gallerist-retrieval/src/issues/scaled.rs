//! Rows in the form in which they are compared.

use crate::eval::check_rows;
use crate::search::Metric;
use crate::{Matrix, Result};

/// The rows scaled to length 1 where they are compared by the cosine; `None` where they stay as they are.
pub(super) fn scaled(embeddings: &Matrix, metric: Metric) -> Result<Option<Matrix>> {
    if metric != Metric::Cosine {
        return Ok(None);
    }
    embeddings.check_finite("embeddings")?;
    check_rows(embeddings.view(), metric, "embeddings")?;
    Ok(Some(embeddings.l2_normalized().0))
}
