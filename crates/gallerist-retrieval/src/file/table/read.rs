//! Reading tables.

use std::fs::File;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_ipc::reader::FileReader;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::build::{Builder, Fault, Selection};
use super::guard::{check_arrow, limit};
use super::{TableColumns, TableFormat, refuse};
use crate::file::EmbeddingSet;
use crate::file::map::FileMap;
use crate::file::unread_column::Unread;
use crate::{Error, Result};

/// Rows that are decoded at a time.
const BATCH: usize = 1024;

pub(in crate::file) fn load(
    path: &Path,
    format: TableFormat,
    columns: &TableColumns,
) -> Result<EmbeddingSet> {
    guarded(path, format, || match format {
        TableFormat::Parquet => parquet(path, columns),
        TableFormat::Arrow => arrow(path, columns),
    })
}

/// The columns that [`load`] does not read. Of a Parquet file, only the schema is read.
pub(in crate::file) fn unread(
    path: &Path,
    format: TableFormat,
    columns: &TableColumns,
) -> Result<Vec<Unread>> {
    guarded(path, format, || match format {
        TableFormat::Parquet => {
            let opened = open_parquet(path)?.0;
            Ok(opened.and_then(|file| Ok(Selection::of(file.schema(), columns)?.into_unread())))
        }
        TableFormat::Arrow => {
            of_arrow(path, |reader, _| Ok(Selection::of(&reader.schema(), columns)?.into_unread()))
        }
    })
}

/// The result of `read`, with errors that name the file.
fn guarded<T>(path: &Path, format: TableFormat, read: impl FnOnce() -> Read<T>) -> Result<T> {
    // The libraries are written for files that are whole; some damage makes them panic.
    let read = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Ok(Err(damaged("its content"))))?;
    read.map_err(|(problem, hint)| refuse(path, format, problem, hint))
}

fn damaged(what: impl std::fmt::Display) -> Fault {
    (format!("it is cut short or damaged ({what})"), Some("copy or write the file again".to_owned()))
}

type OrFault<T> = std::result::Result<T, Fault>;
type Read<T> = Result<OrFault<T>>;

/// A file whose metadata have been read, and the most bytes that its rows may take.
fn open_parquet(path: &Path) -> Result<(OrFault<ParquetRecordBatchReaderBuilder<File>>, usize)> {
    let failed = |source| Error::io("read", path, source);
    let file = gallerist_util::files::open_regular(path).map_err(failed)?;
    let limit = limit(file.metadata().map_err(failed)?.len());
    Ok((ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged), limit))
}

fn parquet(path: &Path, columns: &TableColumns) -> Read<EmbeddingSet> {
    let (opened, limit) = open_parquet(path)?;
    let read = || -> OrFault<EmbeddingSet> {
        let builder = opened?;
        let schema = builder.schema().as_ref().clone();
        let selection = Selection::of(&schema, columns)?;
        let places = selection.columns();
        check_parquet(builder.metadata(), limit)?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), places.iter().copied());
        let mut all = Builder::new(schema, selection, limit);
        for batch in builder.with_projection(mask).with_batch_size(BATCH).build().map_err(damaged)? {
            all.take(&batch.map_err(damaged)?, &places)?;
        }
        all.finish()
    };
    Ok(read())
}

/// Refuses a file whose metadata claim more values than the limit permits.
fn check_parquet(metadata: &parquet::file::metadata::ParquetMetaData, limit: usize) -> OrFault<()> {
    let mut bytes = 0usize;
    for chunk in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let values = usize::try_from(chunk.num_values()).map_err(|_| damaged("a negative size"))?;
        let size = usize::try_from(chunk.uncompressed_size()).map_err(|_| damaged("a negative size"))?;
        // Values may be stored in less than a byte each.
        bytes = bytes.saturating_add(size.max(values));
    }
    if bytes > limit {
        let problem = format!("its columns claim more than {} MiB, far more than the file", limit >> 20);
        return Err((problem, Some("write it without compression".to_owned())));
    }
    Ok(())
}

fn arrow(path: &Path, columns: &TableColumns) -> Read<EmbeddingSet> {
    of_arrow(path, |reader, limit| {
        let schema = reader.schema().as_ref().clone();
        let selection = Selection::of(&schema, columns)?;
        let places: Vec<usize> = (0..schema.fields().len()).collect();
        let mut all = Builder::new(schema, selection, limit);
        for batch in reader {
            all.take(&batch.map_err(damaged)?, &places)?;
        }
        all.finish()
    })
}

/// What `read` returns of the batches of a file and the most bytes that its rows may take.
fn of_arrow<T>(path: &Path, read: impl FnOnce(FileReader<Cursor<&[u8]>>, usize) -> OrFault<T>) -> Read<T> {
    let map = FileMap::open(path)?;
    let opened = || -> OrFault<T> {
        let bytes: &[u8] = &map;
        let limit = limit(bytes.len() as u64);
        check_arrow(bytes, limit)?;
        read(FileReader::try_new(Cursor::new(bytes), None).map_err(damaged)?, limit)
    };
    let read = opened();
    map.check()?;
    Ok(read)
}
