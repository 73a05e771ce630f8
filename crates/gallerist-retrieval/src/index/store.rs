//! What every kind of index on this machine keeps.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::catalog::Catalog;
use super::lists::IdLists;
use super::origin::Origin;
use super::values::Values;
use crate::file::map::Version;
use crate::search::{Metric, RankedLists};
use crate::{Error, MatrixView, Result};

/// Rows with their labels, paths and other information, in memory or in a mapped file.
pub(crate) struct Store {
    pub(super) metric: Metric,
    pub(super) dimensions: usize,
    pub(super) origin: Origin,
    /// A row per slot.
    pub(super) rows: Values<f32>,
    pub(super) catalog: Catalog,
    /// The number after the largest id of the items that were removed; 0 if none was.
    pub(super) next_id: u64,
    /// The file it was read from or saved to.
    pub(super) path: Option<PathBuf>,
    /// The version of that file.
    pub(super) version: Option<Version>,
    /// Whether it differs from its file.
    pub(super) changed: bool,
}

impl Store {
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.rows, Values::Mapped(..))
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match &self.path {
            Some(path) if self.is_mapped() => Err(Error::ReadOnly { path: path.clone() }),
            _ => Ok(()),
        }
    }

    /// Before the file at `path` is replaced: if it is the store's own and another program has changed it since, it is an error, because
    /// the changes of that program would be lost. Programs that write at the same time do so one after the other while they hold
    /// what is returned.
    pub(super) fn hold(&self, path: &Path) -> Result<Option<File>> {
        if self.path.as_deref() != Some(path) {
            return Ok(None);
        }
        let file = File::open(path).ok();
        // On file systems without locks the comparison is all there is.
        let _ = file.as_ref().map(File::lock);
        match (&self.version, version_of(path)) {
            (Some(known), Some(now)) if *known != now => Err(Error::Changed { path: path.to_owned() }),
            _ => Ok(file),
        }
    }

    /// After the file at `path` was replaced.
    pub(super) fn written(&mut self, path: &Path) {
        self.path = Some(path.to_owned());
        self.version = version_of(path);
        self.changed = false;
    }

    pub(super) fn view(&self) -> MatrixView<'_> {
        MatrixView::new(self.catalog.len(), self.dimensions, self.rows.as_slice()).expect("a row per slot")
    }

    /// Keeps these slots, in this order.
    pub(super) fn keep(&mut self, slots: &[usize]) {
        let mut rows = Vec::with_capacity(slots.len() * self.dimensions);
        slots.iter().for_each(|&slot| rows.extend_from_slice(self.view().row(slot)));
        self.rows = Values::Owned(rows);
        self.catalog = self.catalog.select(slots);
    }

    /// Lists of rows as lists of ids; `slot` is the slot of each row.
    pub(super) fn named(&self, lists: &RankedLists, slot: impl Fn(u32) -> usize) -> IdLists {
        let mut named = IdLists::default();
        for (rows, scores) in lists.iter() {
            let ids = rows.iter().map(|&row| self.catalog.ids()[slot(row)]);
            named.push(ids.zip(scores.iter().copied()));
        }
        named
    }
}

fn version_of(path: &Path) -> Option<Version> {
    std::fs::metadata(path).ok().map(|about| Version::of(&about))
}
