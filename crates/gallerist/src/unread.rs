//! Columns and tensors of embeddings files that are not read.

use std::path::Path;

use gallerist_retrieval::Result;
use gallerist_retrieval::file::{TableColumns, unread_of};
use gallerist_retrieval::index::is_index;

use crate::text::{count, grouped};

/// The most names in a warning.
const SHOWN: usize = 5;

/// Sends a warning that names what is not read of a file, if there is anything. An index has nothing that is not read.
pub(crate) fn warn_of_unread(file: &Path, columns: &TableColumns, warn: impl FnOnce(&str)) -> Result<()> {
    let unread = if is_index(file) { Vec::new() } else { unread_of(file, columns)? };
    if unread.is_empty() {
        return Ok(());
    }
    let is_table = file.extension().is_none_or(|extension| extension != "safetensors");
    let what = count(unread.len(), if is_table { "column" } else { "tensor" });
    let verb = if unread.len() == 1 { "is" } else { "are" };
    let mut names = unread.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if unread.len() > SHOWN {
        names += &format!(" and {} more", grouped(unread.len() - SHOWN));
    }
    warn(&format!(
        "`{}`: {what} {verb} not read: {names} (docs/embeddings.md has the names and types that are read)",
        file.display()
    ));
    Ok(())
}
