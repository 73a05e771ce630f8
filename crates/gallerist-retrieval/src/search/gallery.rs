//! A gallery packed once for many searches.

use std::borrow::Cow;

use super::lists::RankedLists;
use super::metric::Metric;
use super::options::SearchOptions;
use super::prepare::{check_query, pack};
use super::split;
use crate::product::Panels;
use crate::{Error, MatrixView, Result};

/// A gallery checked and packed once, for searches that come one query at a time.
///
/// It holds a copy of the rows, in the order in which the kernels read them.
///
/// ```
/// use gallerist_retrieval::{Matrix, search::{Gallery, Metric, SearchOptions}};
///
/// let rows = Matrix::new(2, 2, vec![1.0, 0.0, 0.0, 1.0])?;
/// let gallery = Gallery::new(&rows, Metric::Cosine)?;
/// let query = Matrix::new(1, 2, vec![0.2, 0.9])?;
/// assert_eq!(gallery.search(&query, &SearchOptions::new(1))?.indices(0), [1]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
pub struct Gallery {
    panels: Panels,
    metric: Metric,
}

impl Gallery {
    /// Packs `rows` for `metric`.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::NonFinite`], [`Error::TooLong`], [`Error::TooManyRows`].
    pub fn new<'a>(rows: impl Into<MatrixView<'a>>, metric: Metric) -> Result<Self> {
        let rows = rows.into();
        if rows.rows() == 0 {
            return Err(Error::Empty { what: "the gallery" });
        }
        Ok(Self { panels: pack(rows, "gallery", metric)?, metric })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.panels.rows()
    }

    /// The dimension of the embeddings.
    pub fn cols(&self) -> usize {
        self.panels.depth()
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Ranks the gallery for each of `queries`: the same lists, to the last bit, as
    /// [`search`](super::search()).
    ///
    /// # Errors
    /// As [`search`](super::search()), and [`Error::Option`] when `options` name another metric
    /// than the gallery was packed for.
    pub fn search<'a>(
        &self,
        queries: impl Into<MatrixView<'a>>,
        options: &SearchOptions,
    ) -> Result<RankedLists> {
        let queries = queries.into();
        check_query(queries, self.cols(), options.k)?;
        self.metric.check_same(options.metric)?;
        let queries = pack(queries, "queries", self.metric)?;
        let whole = std::iter::once(Ok((0, Cow::Borrowed(&self.panels))));
        split::search(&queries, self.rows(), whole, options)
    }
}
