//! Shapes that files of embeddings may have.

use crate::{Error, Result};

/// Refuses rows of no values: a file of a few bytes could have any number of them, and everything that has an entry per row
/// would not fit into memory.
pub(super) fn check_values(rows: usize, cols: usize) -> Result<()> {
    match rows > 0 && cols == 0 {
        true => Err(Error::Option { option: "dimensions", wanted: "at least 1", found: "0".to_owned() }),
        false => Ok(()),
    }
}
