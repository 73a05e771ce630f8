//! Embeddings on disk: `.safetensors` with everything that belongs to them, `.npy` with the
//! numbers alone. [`MappedMatrix`] leaves them there.

mod atomic;
mod label_list;
mod mapped;
pub mod npy;
mod tensors;

use std::path::Path;

use crate::{Error, Matrix, Result};

pub use atomic::{sweep_stray_files, write_atomically};
pub use label_list::load_labels;
pub use mapped::MappedMatrix;

/// Embeddings and what is known about each row.
///
/// # The `.safetensors` file
/// - tensor `embeddings`, f32 `[rows, dimension]` (f64 is read too and rounded to f32);
/// - tensors `labels`, `paths`, `cameras`, each optional: u8 `[bytes]`, a JSON list with one
///   string per row;
/// - metadata `format` = `gallerist-embeddings`, `format_version` = `1`, and, where known, `model`
///   `source` and `run`;
/// - metadata `sha256`: of the header (these digits as zeros) and the tensor bytes. A file of which
///   a bit changed is refused. Files of other programs carry no such entry and are read without
///   that check.
///
/// # The `.npy` file
/// The embeddings alone: saving as `.npy` leaves everything else out.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSet {
    /// One embedding per row.
    pub embeddings: Matrix,
    /// The class of each row.
    pub labels: Option<Vec<String>>,
    /// The image of each row, relative to [`source`](Self::source).
    pub paths: Option<Vec<String>>,
    /// The camera of each row.
    pub cameras: Option<Vec<String>>,
    /// The fingerprint of the model that made the embeddings.
    pub model: Option<String>,
    /// Where the images were read from.
    pub source: Option<String>,
    /// The run directory of the model that made the embeddings, where it was at the time.
    pub run: Option<String>,
}

impl From<Matrix> for EmbeddingSet {
    fn from(embeddings: Matrix) -> Self {
        Self { embeddings, labels: None, paths: None, cameras: None, model: None, source: None, run: None }
    }
}

enum Format {
    Npy,
    Safetensors,
}

fn format_of(path: &Path) -> Result<Format> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => Ok(Format::Npy),
        Some("safetensors") => Ok(Format::Safetensors),
        _ => Err(Error::Extension { path: path.to_owned(), wanted: "`.npy` or `.safetensors`" }),
    }
}

impl EmbeddingSet {
    /// Reads a `.npy` or `.safetensors` file. Values are not looked at: a NaN is found by
    /// [`Matrix::check_finite`], which search and evaluation call.
    ///
    /// # Errors
    /// [`Error::Extension`], [`Error::Io`], and [`Error::Format`] for a file that is cut short,
    /// damaged or of a type that is not read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match format_of(path)? {
            Format::Npy => Ok(npy::read_matrix(path)?.into()),
            Format::Safetensors => tensors::load(path),
        }
    }

    /// Writes a `.npy` or `.safetensors` file through [`write_atomically`]. A `.npy` file holds
    /// the embeddings only.
    ///
    /// # Errors
    /// [`Error::Count`] when a list has not one entry per row, [`Error::Extension`] and
    /// [`Error::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let format = format_of(path)?;
        self.check_counts()?;
        match format {
            Format::Npy => npy::write_f32(path, &self.embeddings),
            Format::Safetensors => tensors::save(path, self),
        }
    }

    /// Refuses a set whose labels, paths or cameras are not one per embedding.
    ///
    /// # Errors
    /// [`Error::Count`].
    pub fn check_counts(&self) -> Result<()> {
        let lists = [("labels", &self.labels), ("paths", &self.paths), ("cameras", &self.cameras)];
        for (what, list) in lists {
            if let Some(list) = list
                && list.len() != self.embeddings.rows()
            {
                return Err(Error::Count {
                    what,
                    rows: "embeddings",
                    wanted: self.embeddings.rows(),
                    found: list.len(),
                });
            }
        }
        Ok(())
    }
}
