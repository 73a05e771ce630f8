//! What is lost or doubtful of embeddings files that other programs wrote.

use std::path::Path;

use gallerist_retrieval::Result;
use gallerist_retrieval::file::{TableColumns, joined_table, unread_of};
use gallerist_retrieval::index::is_index;

use crate::text::{count, grouped};

/// The most names in a warning.
const SHOWN: usize = 5;

/// Sends a warning that names what is not read of a file, if there is anything, and a warning if another program joined tables so
/// that the file has more rows than its origin is known of. Indexes have neither.
///
/// # Errors
/// For a file that cannot be read.
pub fn warn_of_unread(file: &Path, columns: &TableColumns, mut warn: impl FnMut(&str)) -> Result<()> {
    if is_index(file) {
        return Ok(());
    }
    if let Some(joined) = joined_table(file)? {
        warn(&format!(
            "`{}` has {}, and its metadata are of {}: another program joined tables, and the network, metric, source and threshold \
             of the first one are taken for all rows (join files with `gallerist convert`)",
            file.display(),
            count(joined.rows, "row"),
            grouped(joined.described)
        ));
    }
    let unread = unread_of(file, columns)?;
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
