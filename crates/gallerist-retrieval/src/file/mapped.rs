//! Galleries that stay on disk.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use super::{Format, format_of, npy};
use crate::{Error, MatrixView, Result};

/// The embeddings of a `.npy` or `.safetensors` file, read page by page as they are needed: the
/// file may be larger than memory.
///
/// Only little-endian f32 in C order can be mapped. The checksum of a `.safetensors` file is not
/// checked, because that would read all of it.
///
/// The file must not be changed or cut short while it is mapped. Files written by
/// [`write_atomically`](super::write_atomically) are safe: they are replaced, and the map keeps the
/// old content.
pub struct MappedMatrix {
    map: Mmap,
    values: Range<usize>,
    rows: usize,
    cols: usize,
}

impl MappedMatrix {
    /// Maps the embeddings of `path`.
    ///
    /// # Errors
    /// [`Error::Extension`], [`Error::Io`], and [`Error::Format`] for a file that is cut short or
    /// whose values cannot be used where they are.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let format = format_of(path)?;
        let failed = |source| Error::io("read", path, source);
        let mut file = File::open(path).map_err(failed)?;
        let from_npy = match format {
            Format::Npy => Some(npy::locate(path, &mut file)?),
            Format::Safetensors => None,
        };
        // SAFETY: the map is read-only. That nobody changes the file meanwhile cannot be enforced;
        // the documentation asks for it, as every memory-mapped reader does. Any bytes are valid
        // f32, so that a change can give wrong numbers, or a signal when the file is cut short.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let (rows, cols, values) = match from_npy {
            Some(located) => located,
            None => locate_tensor(path, &map)?,
        };
        let mapped = Self { map, values, rows, cols };
        if mapped.values().is_none() {
            return Err(refuse(path, "its values are not aligned to 4 bytes".to_owned()));
        }
        Ok(mapped)
    }

    /// The embeddings.
    pub fn view(&self) -> MatrixView<'_> {
        let values = self.values().expect("checked when the file was opened");
        MatrixView::new(self.rows, self.cols, values).expect("checked when the file was opened")
    }

    fn values(&self) -> Option<&[f32]> {
        let bytes = self.map.get(self.values.clone())?;
        // SAFETY: every 4 bytes are a valid f32, and `align_to` takes care of alignment and length.
        let (before, values, after) = unsafe { bytes.align_to::<f32>() };
        let whole = before.is_empty() && after.is_empty();
        (whole && cfg!(target_endian = "little") && values.len() == self.rows * self.cols).then_some(values)
    }
}

impl<'a> From<&'a MappedMatrix> for MatrixView<'a> {
    fn from(mapped: &'a MappedMatrix) -> Self {
        mapped.view()
    }
}

fn refuse(path: &Path, problem: String) -> Error {
    let hint = Some("load the file instead of mapping it".to_owned());
    Error::Format { path: path.to_owned(), format: "a mapped gallery", problem, hint }
}

fn locate_tensor(path: &Path, bytes: &[u8]) -> Result<(usize, usize, Range<usize>)> {
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| refuse(path, format!("it is cut short or damaged ({error})")))?;
    let tensor = tensors
        .tensor("embeddings")
        .map_err(|_| refuse(path, "wanted a tensor `embeddings`, found none".to_owned()))?;
    match (tensor.dtype(), tensor.shape()) {
        (Dtype::F32, &[rows, cols]) => {
            let start = tensor.data().as_ptr().addr() - bytes.as_ptr().addr();
            Ok((rows, cols, start..start + tensor.data().len()))
        }
        (dtype, shape) => {
            let problem = format!("wanted F32 of 2 dimensions, found {dtype} of {}", shape.len());
            Err(refuse(path, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Metric, SearchOptions, search};
    use crate::{EmbeddingSet, Matrix};

    #[test]
    fn a_mapped_gallery_is_searched_as_one_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let values = (0..300 * 5).map(|i| ((i * 7919) % 1009) as f32).collect();
        let matrix = Matrix::new(300, 5, values).unwrap();
        let set = EmbeddingSet { labels: Some(vec!["a".into(); 300]), ..matrix.clone().into() };
        let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(9) };
        let wanted = search(&matrix, &matrix, &options).unwrap();
        for name in ["set.npy", "set.safetensors"] {
            let path = folder.path().join(name);
            set.save(&path).unwrap();
            let mapped = MappedMatrix::open(&path).unwrap();
            assert_eq!(mapped.view(), matrix.view());
            assert_eq!(search(&mapped, &mapped, &options).unwrap(), wanted);
        }
    }

    #[test]
    fn what_cannot_be_used_in_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("double.npy");
        npy::write_f64(&path, &[1, 2], &[1.0, 2.0]).unwrap();
        let error = MappedMatrix::open(&path).err().unwrap().to_string();
        assert!(error.ends_with("wanted f32, found f64"), "{error}");
        for name in ["cut.npy", "cut.safetensors"] {
            let path = folder.path().join(name);
            EmbeddingSet::from(Matrix::new(2, 2, vec![0.0; 4]).unwrap()).save(&path).unwrap();
            let whole = std::fs::read(&path).unwrap();
            for length in 0..whole.len() {
                std::fs::write(&path, &whole[..length]).unwrap();
                assert!(MappedMatrix::open(&path).is_err(), "{name} cut to {length}");
            }
        }
    }
}
