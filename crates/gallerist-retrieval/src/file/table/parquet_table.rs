//! Parquet files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatchReader;
use arrow_schema::{DataType, FieldRef, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};

use super::TableFormat;
use super::cells::is_text;
use super::fault::damaged;
use super::guard::{Claims, limit};
use super::kind::{FIRST_BYTES, other_than};
use super::opened::{OrFault, Read, Table};
use super::pages::{check_footer, check_pages};
use crate::Error;

/// The most rows that are decoded at a time.
const BATCH: usize = 1024;

/// What `read` returns of a Parquet file.
pub(super) fn of_parquet<T>(path: &Path, read: impl FnOnce(&ParquetTable) -> OrFault<T>) -> Read<T> {
    let failed = |source| Error::io("read", path, source);
    let file = gallerist_util::files::open_regular(path).map_err(failed)?;
    let limit = limit(file.metadata().map_err(failed)?.len());
    let mut first = Vec::new();
    (&file).take(FIRST_BYTES as u64).read_to_end(&mut first).map_err(failed)?;
    Ok(match other_than(&first, TableFormat::Parquet) {
        Some(other) => Err(other),
        None => ParquetTable::new(file, limit).and_then(|table| read(&table)),
    })
}

/// A Parquet file whose footer was read.
pub(super) struct ParquetTable {
    file: Arc<File>,
    metadata: ArrowReaderMetadata,
    limit: usize,
}

impl ParquetTable {
    fn new(file: File, limit: usize) -> OrFault<Self> {
        check_footer(&file)?;
        let options = ArrowReaderOptions::new();
        let stored = ArrowReaderMetadata::load(&file, options.clone()).map_err(damaged)?;
        let schema = with_views(stored.schema());
        let options = options.with_schema(Arc::new(schema));
        let metadata = ArrowReaderMetadata::try_new(Arc::clone(stored.metadata()), options);
        Ok(Self { file: Arc::new(file), metadata: metadata.map_err(damaged)?, limit })
    }

    /// The rows of a batch: fewer where a missing list takes as much memory as one of many values.
    fn batch_rows(&self, columns: &[usize]) -> OrFault<usize> {
        /// The most bytes of a value, or of a view of a text.
        const VALUE: usize = 16;
        let list = |&column: &usize| match self.schema().field(column).data_type() {
            DataType::FixedSizeList(_, length) => usize::try_from(*length).unwrap_or(0).saturating_mul(VALUE),
            _ => 0,
        };
        let largest = columns.iter().map(list).max().unwrap_or(0).max(1);
        Claims::new(self.limit).add(largest)?;
        Ok(BATCH.min(self.limit / largest))
    }
}

impl Table for ParquetTable {
    fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    fn rows(&self) -> OrFault<usize> {
        let rows = self.metadata.metadata().file_metadata().num_rows();
        usize::try_from(rows).map_err(|_| damaged("a negative size"))
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn batches(&self, columns: &[usize]) -> OrFault<Box<dyn RecordBatchReader + '_>> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
        check_pages(&self.file, self.metadata.metadata(), &mask, self.limit)?;
        let rows = self.batch_rows(columns)?;
        let file = self.file.try_clone().map_err(damaged)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        let batches = builder.with_projection(mask).with_batch_size(rows).build();
        Ok(Box::new(batches.map_err(damaged)?))
    }
}

/// The schema with texts as views: a text that a million rows have in common is in memory once.
fn with_views(schema: &Schema) -> Schema {
    let fields: Vec<FieldRef> = schema.fields().iter().map(with_view).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn with_view(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        DataType::List(item) => DataType::List(with_view(item)),
        DataType::LargeList(item) => DataType::LargeList(with_view(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(with_view(item), *length),
        kind if is_text(kind) => DataType::Utf8View,
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}
