//! An opened table, whatever its format.

use arrow_array::RecordBatchReader;
use arrow_schema::Schema;

use super::fault::Fault;

/// A result, or what is wrong with the file.
pub(super) type OrFault<T> = Result<T, Fault>;
/// As [`OrFault`], or why the file was not read.
pub(super) type Read<T> = crate::Result<OrFault<T>>;

/// A table whose schema was read.
pub(super) trait Table {
    fn schema(&self) -> &Schema;

    /// The rows that the file says it has.
    fn rows(&self) -> OrFault<usize>;

    /// The most bytes that its rows may take.
    fn limit(&self) -> usize;

    /// The batches of some columns of the schema, by their rising numbers. A file whose sizes are wrong or too large is refused
    /// before memory is taken for them.
    fn batches(&self, columns: &[usize]) -> OrFault<Box<dyn RecordBatchReader + '_>>;
}
