//! Reading tables.

use std::path::Path;

use gallerist_util::panics::caught;

use super::arrow_table::of_arrow;
use super::build::{Builder, Description, Selection};
use super::fault::damaged;
use super::further::Further;
use super::guard::Claims;
use super::opened::{OrFault, Table};
use super::parquet_table::of_parquet;
use super::{TableColumns, TableFormat, refuse};
use crate::Result;
use crate::file::EmbeddingSet;
use crate::file::unread_column::Unread;

pub(in crate::file) fn load(
    path: &Path,
    format: TableFormat,
    columns: &TableColumns,
) -> Result<EmbeddingSet> {
    of_table(path, format, |table| {
        let schema = table.schema().clone();
        let selection = Selection::of(&schema, columns)?;
        let places = selection.columns();
        let mut all = Builder::new(schema, selection, table.limit());
        for batch in table.batches(&places)? {
            all.take(&batch.map_err(damaged)?, &places)?;
        }
        all.finish()
    })
}

/// The columns that [`load`] does not read. The embeddings are not read.
pub(in crate::file) fn unread(
    path: &Path,
    format: TableFormat,
    columns: &TableColumns,
) -> Result<Vec<Unread>> {
    of_table(path, format, |table| {
        let selection = Selection::of(table.schema(), columns)?;
        let mut further = Further::new(selection.further());
        let places: Vec<usize> = selection.further().iter().map(|&(place, _)| place).collect();
        if !places.is_empty() {
            let mut claims = Claims::new(table.limit());
            for batch in table.batches(&places)? {
                further.take(&batch.map_err(damaged)?, &places, &mut claims)?;
            }
        }
        let mut unread = selection.into_unread();
        unread.extend(further.finish(table.schema()).1);
        Ok(unread)
    })
}

/// The rows that the description of a table is of, if they are known, and the rows of the table.
pub(in crate::file) fn described(path: &Path, format: TableFormat) -> Result<Option<(usize, usize)>> {
    of_table(path, format, |table| {
        let (description, rows) = (Description::of(table.schema())?, table.rows()?);
        let described = description.rows.filter(|_| description.has_origin());
        Ok(described.map(|described| (described, rows)))
    })
}

/// What `read` returns of a table, with errors that name the file.
fn of_table<T>(path: &Path, format: TableFormat, read: impl FnOnce(&dyn Table) -> OrFault<T>) -> Result<T> {
    let read = || match format {
        TableFormat::Parquet => of_parquet(path, |table| read(table)),
        TableFormat::Arrow => of_arrow(path, |table| read(table)),
    };
    // The libraries are written for files that are whole; some damage makes them panic.
    let read = caught(read).unwrap_or_else(|_| Ok(Err(damaged("its content"))))?;
    read.map_err(|(problem, hint)| refuse(path, format, problem, hint))
}
