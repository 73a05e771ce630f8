//! A gallery on this machine, opened from a file of any format.

use std::path::Path;

use crate::file::MappedCompact;
use crate::index::{Index, is_index, open_index};
use crate::{EmbeddingSet, Result, prepare_to_write};

/// A gallery as its file stores it.
///
/// # Example
///
/// ```no_run
/// use std::path::Path;
/// use gallerist_retrieval::GalleryFile;
///
/// match GalleryFile::open(Path::new("photos.safetensors"), false)? {
///     GalleryFile::Embeddings(set) => println!("{} rows of f32", set.embeddings.rows()),
///     GalleryFile::Compact(rows) => println!("{} rows of bf16 or int8", rows.view().rows()),
///     GalleryFile::Index(index) => println!("an index of {} items", index.info()?.count),
/// }
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
pub enum GalleryFile {
    /// Embeddings in f32, in memory.
    Embeddings(Box<EmbeddingSet>),
    /// Embeddings in bf16 or int8, mapped. The checksum of the file is not verified yet.
    Compact(MappedCompact),
    /// An index.
    Index(Box<dyn Index>),
}

impl GalleryFile {
    /// Opens a file of embeddings (`.npy`, `.safetensors`) or an index. A `writable` index is read into memory; any
    /// other is mapped.
    ///
    /// # Errors
    /// Those of [`EmbeddingSet::load`] and [`open_index`]; for a writable index also those of [`prepare_to_write`].
    pub fn open(path: &Path, writable: bool) -> Result<Self> {
        if is_index(path) {
            if writable {
                // Removes the temporary files of a process that was killed while it wrote.
                prepare_to_write(path)?;
            }
            return Ok(Self::Index(open_index(path, !writable)?));
        }
        match MappedCompact::open(path) {
            Ok(compact) => Ok(Self::Compact(compact)),
            Err(_) => Ok(Self::Embeddings(Box::new(EmbeddingSet::load(path)?))),
        }
    }
}
