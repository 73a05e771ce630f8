//! Reading tables.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::RecordBatchReader;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::Schema;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::build::{Builder, Description, Selection};
use super::cells::CellKind;
use super::fault::Fault;
use super::further::Further;
use super::guard::{CONTINUATION, check_arrow, check_stream, limit};
use super::kind::{FIRST_BYTES, check_compression, other_than};
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

/// The columns that [`load`] does not read. The embeddings are not read.
pub(in crate::file) fn unread(
    path: &Path,
    format: TableFormat,
    columns: &TableColumns,
) -> Result<Vec<Unread>> {
    guarded(path, format, || match format {
        TableFormat::Parquet => unread_parquet(path, columns),
        TableFormat::Arrow => of_arrow(path, |file| {
            let schema = file.schema()?;
            let selection = Selection::of(&schema, columns)?;
            let (mut further, places) = (Further::new(selection.further()), places(selection.further()));
            if !places.is_empty() {
                for batch in file.batches(Some(places.clone()))? {
                    further.take(&batch.map_err(damaged)?, &places)?;
                }
            }
            Ok(all_unread(selection, further, &schema))
        }),
    })
}

fn unread_parquet(path: &Path, columns: &TableColumns) -> Read<Vec<Unread>> {
    let (opened, limit) = open_parquet(path)?;
    let read = || -> OrFault<Vec<Unread>> {
        let builder = opened?;
        let schema = builder.schema().as_ref().clone();
        let selection = Selection::of(&schema, columns)?;
        let (mut further, places) = (Further::new(selection.further()), places(selection.further()));
        if !places.is_empty() {
            check_parquet(builder.metadata(), limit)?;
            for batch in batches(builder, &places)? {
                further.take(&batch.map_err(damaged)?, &places)?;
            }
        }
        Ok(all_unread(selection, further, &schema))
    };
    Ok(read())
}

fn places(columns: &[(usize, CellKind)]) -> Vec<usize> {
    columns.iter().map(|&(i, _)| i).collect()
}

fn all_unread(selection: Selection, further: Further, schema: &Schema) -> Vec<Unread> {
    let mut unread = selection.into_unread();
    unread.extend(further.finish(schema).1);
    unread
}

/// The rows that the description of a table is of, if they are known, and the rows of the table.
pub(in crate::file) fn described(path: &Path, format: TableFormat) -> Result<Option<(usize, usize)>> {
    let of = |schema: &Schema, rows: usize| {
        let description = Description::of(schema)?;
        let described = description.rows.filter(|_| description.has_origin());
        Ok(described.map(|described| (described, rows)))
    };
    guarded(path, format, || match format {
        TableFormat::Parquet => {
            let opened = open_parquet(path)?.0;
            Ok(opened.and_then(|file| {
                let rows = file.metadata().file_metadata().num_rows();
                of(file.schema(), usize::try_from(rows).map_err(|_| damaged("a negative size"))?)
            }))
        }
        TableFormat::Arrow => of_arrow(path, |file| of(&file.schema()?, file.rows)),
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
    let mut first = Vec::new();
    (&file).take(FIRST_BYTES as u64).read_to_end(&mut first).map_err(failed)?;
    if let Some(other) = other_than(&first, TableFormat::Parquet) {
        return Ok((Err(other), limit));
    }
    Ok((ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged), limit))
}

/// The batches of some columns of the schema.
fn batches(
    builder: ParquetRecordBatchReaderBuilder<File>,
    places: &[usize],
) -> OrFault<ParquetRecordBatchReader> {
    let mask = ProjectionMask::roots(builder.parquet_schema(), places.iter().copied());
    builder.with_projection(mask).with_batch_size(BATCH).build().map_err(damaged)
}

fn parquet(path: &Path, columns: &TableColumns) -> Read<EmbeddingSet> {
    let (opened, limit) = open_parquet(path)?;
    let read = || -> OrFault<EmbeddingSet> {
        let builder = opened?;
        let schema = builder.schema().as_ref().clone();
        let selection = Selection::of(&schema, columns)?;
        let places = selection.columns();
        check_parquet(builder.metadata(), limit)?;
        let mut all = Builder::new(schema, selection, limit);
        for batch in batches(builder, &places)? {
            all.take(&batch.map_err(damaged)?, &places)?;
        }
        all.finish()
    };
    Ok(read())
}

/// Refuses a file whose metadata claim more values than the limit permits, and a compression that is not read.
fn check_parquet(metadata: &parquet::file::metadata::ParquetMetaData, limit: usize) -> OrFault<()> {
    let mut bytes = 0usize;
    for chunk in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        check_compression(chunk.compression())?;
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
    of_arrow(path, |file| {
        let schema = file.schema()?;
        let selection = Selection::of(&schema, columns)?;
        let places: Vec<usize> = (0..schema.fields().len()).collect();
        let mut all = Builder::new(schema, selection, file.limit);
        for batch in file.batches(None)? {
            all.take(&batch.map_err(damaged)?, &places)?;
        }
        all.finish()
    })
}

/// An Arrow file or stream whose sizes have been checked.
struct ArrowBytes<'a> {
    bytes: &'a [u8],
    is_stream: bool,
    rows: usize,
    /// The most bytes that its rows may take.
    limit: usize,
}

impl<'a> ArrowBytes<'a> {
    fn new(bytes: &'a [u8]) -> OrFault<Self> {
        if let Some(other) = other_than(bytes, TableFormat::Arrow) {
            return Err(other);
        }
        let limit = limit(bytes.len() as u64);
        let is_stream = bytes.starts_with(CONTINUATION);
        let rows = if is_stream { check_stream(bytes, limit)? } else { check_arrow(bytes, limit)? };
        Ok(Self { bytes, is_stream, rows, limit })
    }

    fn schema(&self) -> OrFault<Schema> {
        Ok(self.batches(None)?.schema().as_ref().clone())
    }

    /// The batches of some columns of the schema, or of all.
    fn batches(&self, places: Option<Vec<usize>>) -> OrFault<Box<dyn RecordBatchReader + 'a>> {
        let bytes = Cursor::new(self.bytes);
        Ok(match self.is_stream {
            true => Box::new(StreamReader::try_new(bytes, places).map_err(damaged)?),
            false => Box::new(FileReader::try_new(bytes, places).map_err(damaged)?),
        })
    }
}

/// What `read` returns of a file.
fn of_arrow<T>(path: &Path, read: impl FnOnce(&ArrowBytes) -> OrFault<T>) -> Read<T> {
    let map = FileMap::open(path)?;
    let read = ArrowBytes::new(&map).and_then(|file| read(&file));
    map.check()?;
    Ok(read)
}
