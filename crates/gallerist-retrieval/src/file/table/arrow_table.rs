//! Arrow files and streams.

use std::io::Cursor;
use std::path::Path;

use arrow_array::RecordBatchReader;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::Schema;

use super::TableFormat;
use super::fault::damaged;
use super::guard::{CONTINUATION, check_arrow, check_stream, limit};
use super::kind::other_than;
use super::opened::{OrFault, Read, Table};
use crate::file::map::FileMap;

/// What `read` returns of an Arrow file or stream.
pub(super) fn of_arrow<T>(path: &Path, read: impl FnOnce(&ArrowTable) -> OrFault<T>) -> Read<T> {
    let map = FileMap::open(path)?;
    let read = ArrowTable::new(&map).and_then(|table| read(&table));
    map.check()?;
    Ok(read)
}

/// An Arrow file or stream whose sizes have been checked.
pub(super) struct ArrowTable<'a> {
    bytes: &'a [u8],
    is_stream: bool,
    schema: Schema,
    rows: usize,
    limit: usize,
}

impl<'a> ArrowTable<'a> {
    fn new(bytes: &'a [u8]) -> OrFault<Self> {
        if let Some(other) = other_than(bytes, TableFormat::Arrow) {
            return Err(other);
        }
        let limit = limit(bytes.len() as u64);
        let is_stream = bytes.starts_with(CONTINUATION);
        let rows = if is_stream { check_stream(bytes, limit)? } else { check_arrow(bytes, limit)? };
        let schema = reader(bytes, is_stream, None)?.schema().as_ref().clone();
        Ok(Self { bytes, is_stream, schema, rows, limit })
    }
}

impl Table for ArrowTable<'_> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn rows(&self) -> OrFault<usize> {
        Ok(self.rows)
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn batches(&self, columns: &[usize]) -> OrFault<Box<dyn RecordBatchReader + '_>> {
        reader(self.bytes, self.is_stream, Some(columns.to_vec()))
    }
}

/// A reader of some columns, or of all.
fn reader(
    bytes: &[u8],
    is_stream: bool,
    columns: Option<Vec<usize>>,
) -> OrFault<Box<dyn RecordBatchReader + '_>> {
    let bytes = Cursor::new(bytes);
    Ok(match is_stream {
        true => Box::new(StreamReader::try_new(bytes, columns).map_err(damaged)?),
        false => Box::new(FileReader::try_new(bytes, columns).map_err(damaged)?),
    })
}
