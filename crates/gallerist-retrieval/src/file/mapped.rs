//! Galleries that stay on disk.

use std::ops::Range;
use std::path::Path;

use bytemuck::AnyBitPattern;

use super::format::{Format, format_of, format_of_existing};
use super::map::{FileMap, numbers};
use super::npy;
use super::set::EmbeddingSet;
use super::tensors::{self, Stored};
use crate::compact::Values;
use crate::{CompactMatrix, Error, Matrix, MatrixView, Result};

/// The numbers in a part of the file; `None` where they cannot be used in place.
fn numbers_in<'a, T: AnyBitPattern>(file: &'a FileMap, span: &Range<usize>) -> Option<&'a [T]> {
    numbers(file.get(span.clone())?)
}

fn verify(file: &FileMap) -> Result<bool> {
    let verified = match format_of(file.path())? {
        Format::Npy | Format::Table(_) | Format::Shards => Ok(false),
        Format::Safetensors => tensors::verify(file.path(), file),
    };
    file.check()?;
    verified
}

/// The embeddings of a `.npy` or `.safetensors` file, read page by page as they are needed: the
/// file may be larger than memory.
///
/// Only little-endian f32 in C order can be mapped; [`MappedCompact`] maps bf16 and int8. The
/// checksum of a `.safetensors` file is checked by [`verify`](Self::verify) only, because that reads
/// all of it.
///
/// Files written by [`write_atomically`](super::write_atomically) are replaced, and the map keeps the
/// old content. One that is written to or cut short in place is noticed by [`check`](Self::check): ask
/// it after a search. What was cut off reads as zeros, on Unix by a handler of SIGBUS that the first
/// map installs (a SIGBUS elsewhere goes to the handler that was there before); other systems do not
/// let a mapped file be cut short.
pub struct MappedMatrix {
    file: FileMap,
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
        let format = format_of_existing(path)?;
        let file = FileMap::open(path)?;
        let (rows, cols, values) = match format {
            Format::Table(_) | Format::Shards => {
                return Err(Error::Extension {
                    path: path.to_owned(),
                    wanted: "`.npy` or `.safetensors`, which are mapped",
                });
            }
            Format::Npy => npy::locate(path, &mut file.file()?)?,
            Format::Safetensors => {
                let (tensors, _) = tensors::open(path, &file)?;
                match tensors::embeddings(path, &tensors)? {
                    (rows, cols, Stored::F32(bytes)) => (rows, cols, file.span(bytes)),
                    (_, _, other) => return Err(wanted(path, "F32", &other)),
                }
            }
        };
        let mapped = Self { file, values, rows, cols };
        if mapped.values().is_none() {
            return Err(refuse(path, "its values are not aligned to 4 bytes".to_owned()));
        }
        mapped.check()?;
        Ok(mapped)
    }

    /// Returns an error if the file was changed or truncated, so that the data read so far are invalid.
    ///
    /// # Errors
    /// [`Error::Changed`].
    pub fn check(&self) -> Result<()> {
        self.file.check()
    }

    /// The embeddings.
    pub fn view(&self) -> MatrixView<'_> {
        let values = self.values().expect("checked when the file was opened");
        MatrixView::new(self.rows, self.cols, values).expect("checked when the file was opened")
    }

    /// Reads all of the file and compares it with its checksum; false when it carries none, as a
    /// `.npy` file or a file of another program.
    ///
    /// # Errors
    /// [`Error::Format`] when a bit has changed.
    pub fn verify(&self) -> Result<bool> {
        verify(&self.file)
    }

    fn values(&self) -> Option<&[f32]> {
        let values = numbers_in(&self.file, &self.values)?;
        (Some(values.len()) == self.rows.checked_mul(self.cols)).then_some(values)
    }
}

impl<'a> From<&'a MappedMatrix> for MatrixView<'a> {
    fn from(mapped: &'a MappedMatrix) -> Self {
        mapped.view()
    }
}

/// The bf16 or int8 embeddings of a `.safetensors` file, as
/// [`save_compact`](super::EmbeddingSet::save_compact) writes it, read page by page as they are
/// needed. Changes to the file and its checksum are treated as by [`MappedMatrix`].
///
/// ```
/// use gallerist_retrieval::file::MappedCompact;
/// use gallerist_retrieval::search::{CompactGallery, Metric, SearchOptions};
/// use gallerist_retrieval::{Code, EmbeddingSet, Matrix};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("gallery.safetensors");
/// let rows = Matrix::new(2, 2, vec![1.0, 0.0, 0.0, 1.0])?;
/// EmbeddingSet::from(rows.clone()).save_compact(&path, Code::Bf16)?;
///
/// let mapped = MappedCompact::open(&path)?;
/// assert!(mapped.verify()?, "the file carries a checksum");
/// let gallery = CompactGallery::new(mapped.view(), Metric::Cosine)?;
/// assert_eq!(gallery.search(&rows, &SearchOptions::new(1))?.indices(1), [1]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
pub struct MappedCompact {
    file: FileMap,
    values: Range<usize>,
    /// Of int8 rows.
    scales: Option<Range<usize>>,
    rows: usize,
    cols: usize,
}

impl MappedCompact {
    /// Maps the embeddings of `path`.
    ///
    /// # Errors
    /// As [`MappedMatrix::open`]; the file must hold bf16 or int8.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let Format::Safetensors = format_of_existing(path)? else {
            return Err(Error::Extension { path: path.to_owned(), wanted: "`.safetensors`" });
        };
        let file = FileMap::open(path)?;
        let (tensors, _) = tensors::open(path, &file)?;
        let (rows, cols, values, scales) = match tensors::embeddings(path, &tensors)? {
            (rows, cols, Stored::Bf16(bytes)) => (rows, cols, file.span(bytes), None),
            (rows, cols, Stored::Int8 { values, scales }) => {
                (rows, cols, file.span(values), Some(file.span(scales)))
            }
            (_, _, other) => return Err(wanted(path, "BF16 or I8", &other)),
        };
        let mapped = Self { file, values, scales, rows, cols };
        let Some(stored) = mapped.values() else {
            return Err(refuse(path, "its values are not aligned to their size".to_owned()));
        };
        CompactMatrix::new(rows, cols, stored)?;
        mapped.check()?;
        Ok(mapped)
    }

    /// As [`MappedMatrix::check`].
    ///
    /// # Errors
    /// [`Error::Changed`].
    pub fn check(&self) -> Result<()> {
        self.file.check()
    }

    /// The embeddings.
    pub fn view(&self) -> CompactMatrix<'_> {
        let values = self.values().expect("checked when the file was opened");
        CompactMatrix::new(self.rows, self.cols, values).expect("checked when the file was opened")
    }

    /// Labels, paths, columns and the other lists of all rows, without the embeddings: those have no columns.
    ///
    /// # Errors
    /// As [`select`](Self::select).
    pub fn without_embeddings(&self) -> Result<EmbeddingSet> {
        let path = self.file.path();
        let set = tensors::open(path, &self.file).and_then(|(tensors, metadata)| {
            tensors::with_lists((path, &tensors), &metadata, Matrix::new(self.rows, 0, Vec::new())?, None)
        });
        self.check()?;
        set
    }

    /// The selected rows, decoded, in that order, with their labels and other lists.
    ///
    /// # Errors
    /// [`Error::Format`] for a list with fewer entries than rows, and [`Error::Changed`].
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[usize]) -> Result<EmbeddingSet> {
        let view = self.view();
        let mut values = vec![0.0; rows.len() * self.cols];
        for (&row, to) in rows.iter().zip(values.chunks_mut(self.cols.max(1))) {
            view.decode_row(row, to);
        }
        let path = self.file.path();
        let set = tensors::open(path, &self.file).and_then(|(tensors, metadata)| {
            let embeddings = Matrix::new(rows.len(), self.cols, values)?;
            tensors::with_lists((path, &tensors), &metadata, embeddings, Some((rows, self.rows)))
        });
        self.check()?;
        set
    }

    /// As [`MappedMatrix::verify`].
    ///
    /// # Errors
    /// [`Error::Format`] when a bit has changed.
    pub fn verify(&self) -> Result<bool> {
        verify(&self.file)
    }

    fn values(&self) -> Option<Values<'_>> {
        Some(match &self.scales {
            None => Values::Bf16(numbers_in(&self.file, &self.values)?.into()),
            Some(scales) => Values::Int8 {
                values: numbers_in(&self.file, &self.values)?.into(),
                scales: numbers_in(&self.file, scales)?.into(),
            },
        })
    }
}

fn refuse(path: &Path, problem: String) -> Error {
    let hint = Some("load the file instead of mapping it".to_owned());
    Error::Format { path: path.to_owned(), format: "a mapped gallery", problem, hint }
}

fn wanted(path: &Path, wanted: &str, found: &Stored) -> Error {
    let found = match found {
        Stored::F32(_) => "F32",
        Stored::F64(_) => "F64",
        Stored::Bf16(_) => "BF16",
        Stored::Int8 { .. } => "I8",
    };
    refuse(path, format!("wanted `embeddings` of type {wanted}, found {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{CompactGallery, Metric, SearchOptions, search};
    use crate::{Code, EmbeddingSet, Matrix};

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

    #[cfg(unix)]
    #[test]
    fn a_gallery_that_is_cut_short_while_it_is_searched_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        let values = (0..40_000 * 8u64).map(|i| ((i * 7919) % 1009) as f32 / 7.0).collect();
        let matrix = Matrix::new(40_000, 8, values).unwrap();
        let queries = matrix.select(&[1, 2, 3]);
        let cut = || std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(9000).unwrap();
        let set = EmbeddingSet::from(matrix);
        set.save(&path).unwrap();
        let mapped = MappedMatrix::open(&path).unwrap();
        cut();
        let _ = search(&queries, &mapped, &SearchOptions::new(3));
        assert!(matches!(mapped.check(), Err(Error::Changed { .. })));
        assert!(mapped.verify().is_err() && MappedMatrix::open(&path).is_err());
        for code in [Code::Bf16, Code::Int8] {
            set.save_compact(&path, code).unwrap();
            let mapped = MappedCompact::open(&path).unwrap();
            let gallery = CompactGallery::new(mapped.view(), Metric::Cosine).unwrap();
            cut();
            let _ = gallery.search(&queries, &SearchOptions::new(3));
            assert!(matches!(mapped.check(), Err(Error::Changed { .. })));
            assert!(matches!(mapped.select(&[39_999]), Err(Error::Changed { .. })));
        }
    }

    #[test]
    fn a_mapped_compact_gallery_is_searched_as_its_decoded_rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        let values = (0..301 * 5).map(|i| ((i * 7919) % 1009) as f32 / 7.0).collect();
        let matrix = Matrix::new(301, 5, values).unwrap();
        let set = EmbeddingSet { labels: Some(vec!["a".into(); 301]), ..matrix.clone().into() };
        let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(9) };
        for code in [Code::Bf16, Code::Int8] {
            set.save_compact(&path, code).unwrap();
            let mapped = MappedCompact::open(&path).unwrap();
            assert_eq!(mapped.view(), CompactMatrix::encode(&matrix, code).unwrap());
            assert!(mapped.verify().unwrap());
            let gallery = CompactGallery::new(mapped.view(), options.metric).unwrap();
            let wanted = search(&matrix, &EmbeddingSet::load(&path).unwrap().embeddings, &options).unwrap();
            assert_eq!(gallery.search(&matrix, &options).unwrap(), wanted);
            let error = MappedMatrix::open(&path).err().unwrap().to_string();
            assert!(error.contains("wanted `embeddings` of type F32, found"), "{error}");
        }
        set.save(&path).unwrap();
        assert!(MappedCompact::open(&path).is_err());
    }

    #[test]
    fn a_changed_bit_is_found_on_demand_and_a_cut_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        let set = EmbeddingSet::from(Matrix::new(2, 2, vec![1.0, 2.0, 3.0, 4.0]).unwrap());
        for code in [None, Some(Code::Bf16), Some(Code::Int8)] {
            match code {
                None => set.save(&path).unwrap(),
                Some(code) => set.save_compact(&path, code).unwrap(),
            }
            let verified = |path: &Path| match code {
                None => MappedMatrix::open(path).and_then(|mapped| mapped.verify()),
                Some(_) => MappedCompact::open(path).and_then(|mapped| mapped.verify()),
            };
            assert!(verified(&path).unwrap());
            let whole = std::fs::read(&path).unwrap();
            for at in (0..whole.len()).step_by(5) {
                let mut damaged = whole.clone();
                damaged[at] ^= 1;
                std::fs::write(&path, damaged).unwrap();
                assert!(verified(&path).is_err(), "byte {at}");
                std::fs::write(&path, &whole[..at]).unwrap();
                assert!(verified(&path).is_err(), "cut to {at} bytes");
            }
        }
        let array = folder.path().join("set.npy");
        set.save(&array).unwrap();
        assert!(!MappedMatrix::open(&array).unwrap().verify().unwrap(), "a .npy file has no checksum");
    }
}
