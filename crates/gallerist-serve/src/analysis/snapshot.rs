//! The items of a gallery at one moment.

use std::sync::Arc;

use gallerist_retrieval::Matrix;
use gallerist_retrieval::search::Metric;

use crate::Result;
use crate::companion::Side;
use crate::gallery::{Catalog, Gallery};

/// The items of a gallery as they were at the start.
pub(crate) struct Snapshot {
    pub(crate) ids: Vec<u64>,
    /// The label of each item; empty if it has none.
    pub(crate) labels: Vec<String>,
    /// The camera of each item; empty if it has none.
    pub(crate) cameras: Vec<String>,
    /// The rows as they are compared.
    pub(crate) rows: Arc<Matrix>,
    /// How the gallery's items are compared.
    pub(crate) metric: Metric,
}

impl Snapshot {
    pub(crate) fn of(gallery: &Gallery) -> Result<Self> {
        let (catalog, there, rows) = gallery.rows()?;
        Ok(Self::with_rows(&catalog, &there, rows, gallery.metric()))
    }

    pub(super) fn of_side(side: &Side) -> Self {
        let all: Vec<usize> = (0..side.catalog.len()).collect();
        Self::with_rows(&side.catalog, &all, Arc::new(side.rows.clone()), side.metric)
    }

    /// The items at the places `there` of the catalog, whose rows are `rows`.
    fn with_rows(catalog: &Catalog, there: &[usize], rows: Arc<Matrix>, metric: Metric) -> Self {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        Self {
            ids: there.iter().map(|&row| catalog.ids()[row]).collect(),
            labels: there.iter().map(|&row| text(catalog.labels.get(row))).collect(),
            cameras: there.iter().map(|&row| text(catalog.cameras.get(row))).collect(),
            rows,
            metric,
        }
    }

    /// The items of these rows.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        let text = |values: &[String]| rows.iter().map(|&row| values[row].clone()).collect();
        Self {
            ids: rows.iter().map(|&row| self.ids[row]).collect(),
            labels: text(&self.labels),
            cameras: text(&self.cameras),
            rows: Arc::new(self.rows.select(rows)),
            metric: self.metric,
        }
    }

    /// The items without those of a label.
    pub(super) fn without(&self, label: &str) -> Self {
        let rows: Vec<usize> = (0..self.ids.len()).filter(|&row| self.labels[row] != label).collect();
        self.select(&rows)
    }

    /// These items followed by those of `other`.
    pub(super) fn and(&self, other: &Self) -> Result<Self> {
        let join = |a: &[String], b: &[String]| [a, b].concat();
        let values = [self.rows.as_slice(), other.rows.as_slice()].concat();
        let count = self.ids.len() + other.ids.len();
        Ok(Self {
            ids: [&self.ids[..], &other.ids].concat(),
            labels: join(&self.labels, &other.labels),
            cameras: join(&self.cameras, &other.cameras),
            rows: Arc::new(Matrix::new(count, self.rows.cols(), values)?),
            metric: self.metric,
        })
    }
}
