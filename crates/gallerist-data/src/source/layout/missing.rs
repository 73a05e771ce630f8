//! Annotated images whose files do not exist.

use crate::error::Error;
use crate::source::record::ImageListing;
use crate::source::tree::Tree;
use crate::text::some_of;

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
        listing.notes.push(format!(
            "{} of {} annotated images are missing and left out: {}",
            missing.len(),
            listing.records.len() + missing.len(),
            some_of(&missing)
        ));
    }
    listing.missing = missing;
    Ok(())
}

/// For images that are no files of their own.
pub(super) fn none(_: &Tree, _: &mut ImageListing) -> Result<(), Error> {
    Ok(())
}
