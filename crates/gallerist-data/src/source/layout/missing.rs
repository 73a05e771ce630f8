//! Annotated images whose files do not exist.

use crate::error::Error;
use crate::source::record::ImageListing;
use crate::source::tree::Tree;

/// Leaves out the records whose files do not exist, with a note.
pub(super) fn leave_out(tree: &Tree, listing: &mut ImageListing) -> Result<(), Error> {
    let mut missing = Vec::new();
    listing.records.retain_mut(|record| {
        let exists = tree.contains(&record.path);
        if !exists {
            missing.push(std::mem::take(&mut record.path));
        }
        exists
    });
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().take(3).map(|m| format!("`{m}`")).collect();
        listing.notes.push(format!(
            "{} of {} annotated images are missing and left out: {}{}",
            missing.len(),
            listing.records.len() + missing.len(),
            names.join(", "),
            if missing.len() > names.len() { ", …" } else { "" }
        ));
    }
    listing.missing = missing;
    Ok(())
}

/// For images that are no files of their own.
pub(super) fn none(_: &Tree, _: &mut ImageListing) -> Result<(), Error> {
    Ok(())
}
