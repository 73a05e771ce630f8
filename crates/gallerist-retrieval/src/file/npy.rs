//! NumPy's `.npy` files, versions 1 to 3. Sizes are checked against the size of the file
//! before memory is allocated.
//!
//! Source: `numpy.lib.format`. A header names the element type, the order and the shape; the
//! values follow without padding.
//!
//! The crate `npyz` is no replacement: it allocates as many bytes for a header as the file claims, up to
//! 4 GiB, does not tell where the values start, which a mapped file needs, and depends on 28 crates, among them
//! a parser generator and C code.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use super::atomic::write_atomically;
use super::shape::check_values;
use crate::{Error, Matrix, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy itself refuses longer headers (`max_header_size`).
const MAX_HEADER: usize = 10_000;

/// An array in f64, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayF64 {
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// The values, the last dimension running fastest.
    pub values: Vec<f64>,
    /// Whether the file has f64, not f32.
    pub wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Float,
    Signed,
    Unsigned,
}

struct Header {
    kind: Kind,
    size: usize,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// Writes f32 `[rows, cols]`, little-endian, in C order.
///
/// # Errors
/// [`Error::Io`].
pub fn write_f32(path: impl AsRef<Path>, matrix: &Matrix) -> Result<()> {
    let shape = [matrix.rows(), matrix.cols()];
    write(path.as_ref(), "<f4", &shape, matrix.as_slice(), f32::to_le_bytes)
}

/// Writes f64 of any shape, little-endian, in C order.
///
/// # Errors
/// [`Error::Io`].
///
/// # Panics
/// When `values` does not fill `shape`.
pub fn write_f64(path: impl AsRef<Path>, shape: &[usize], values: &[f64]) -> Result<()> {
    write(path.as_ref(), "<f8", shape, values, f64::to_le_bytes)
}

/// Writes i64 of any shape, little-endian, in C order: labels, for one.
///
/// # Errors
/// [`Error::Io`].
///
/// # Panics
/// When `values` does not fill `shape`.
pub fn write_i64(path: impl AsRef<Path>, shape: &[usize], values: &[i64]) -> Result<()> {
    write(path.as_ref(), "<i8", shape, values, i64::to_le_bytes)
}

fn write<T: Copy, const N: usize>(
    path: &Path,
    descr: &str,
    shape: &[usize],
    values: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
) -> Result<()> {
    assert_eq!(
        shape.iter().product::<usize>(),
        values.len(),
        "an array of shape {shape:?} with {} values",
        values.len()
    );
    let dimensions: Vec<_> = shape.iter().map(usize::to_string).collect();
    let tuple = match dimensions.as_slice() {
        [one] => format!("({one},)"),
        more => format!("({})", more.join(", ")),
    };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple}, }}");
    // The values start at a multiple of 64 bytes; 10 bytes precede the header.
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("a header of a few dimensions is short");
    write_atomically(path, |file| {
        file.write_all(MAGIC)?;
        file.write_all(&[1, 0])?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        for &value in values {
            file.write_all(&to_bytes(value))?;
        }
        Ok(())
    })
}

/// Reads a matrix of f32 or f64 (rounded to f32) in two dimensions.
///
/// # Errors
/// [`Error::Io`] and [`Error::Format`].
pub fn read_matrix(path: impl AsRef<Path>) -> Result<Matrix> {
    let path = path.as_ref();
    let (header, bytes) = open(path)?;
    let [rows, cols] = header.shape[..] else {
        let dimensions = header.shape.len();
        let problem = format!("wanted 2 dimensions (rows x values), found {dimensions}");
        return Err(refuse(path, problem, None));
    };
    check_values(rows, cols)?;
    let values = match (header.kind, header.size) {
        (Kind::Float, 4) => decode(&header, &bytes, f32::from_le_bytes, f32::from_be_bytes),
        (Kind::Float, 8) => {
            let values = decode(&header, &bytes, f64::from_le_bytes, f64::from_be_bytes);
            to_f32(&values, cols, 0).map_err(|problem| refuse(path, problem, Some(OUT_OF_RANGE_OF_F32)))?
        }
        _ => return Err(refuse_type(path, &header, "f32 or f64", "numpy.float32")),
    };
    Matrix::new(rows, cols, values)
}

/// Reads f32 or f64 of any shape, in full precision.
///
/// # Errors
/// [`Error::Io`] and [`Error::Format`].
pub fn read_f64(path: impl AsRef<Path>) -> Result<ArrayF64> {
    let path = path.as_ref();
    let (header, bytes) = open(path)?;
    let values = match (header.kind, header.size) {
        (Kind::Float, 4) => decode(
            &header,
            &bytes,
            |bytes| f64::from(f32::from_le_bytes(bytes)),
            |bytes| f64::from(f32::from_be_bytes(bytes)),
        ),
        (Kind::Float, 8) => decode(&header, &bytes, f64::from_le_bytes, f64::from_be_bytes),
        _ => return Err(refuse_type(path, &header, "f32 or f64", "numpy.float64")),
    };
    Ok(ArrayF64 { wide: header.size == 8, shape: header.shape, values })
}

/// Reads labels: one dimension (or a single column) of any integer type, as decimal text.
///
/// # Errors
/// [`Error::Io`] and [`Error::Format`].
pub fn read_labels(path: impl AsRef<Path>) -> Result<Vec<String>> {
    let path = path.as_ref();
    let (header, bytes) = open(path)?;
    match header.shape[..] {
        [_] | [_, 1] => {}
        _ => {
            let dimensions = header.shape.len();
            let problem = format!("wanted one label per row, found {dimensions} dimensions");
            return Err(refuse(path, problem, None));
        }
    }
    // Every integer of up to 64 bits, of either sign, fits i128.
    let values: Vec<i128> = match (header.kind, header.size) {
        (Kind::Signed, 1) => {
            decode(&header, &bytes, |b| i8::from_le_bytes(b).into(), |b| i8::from_be_bytes(b).into())
        }
        (Kind::Signed, 2) => {
            decode(&header, &bytes, |b| i16::from_le_bytes(b).into(), |b| i16::from_be_bytes(b).into())
        }
        (Kind::Signed, 4) => {
            decode(&header, &bytes, |b| i32::from_le_bytes(b).into(), |b| i32::from_be_bytes(b).into())
        }
        (Kind::Signed, 8) => {
            decode(&header, &bytes, |b| i64::from_le_bytes(b).into(), |b| i64::from_be_bytes(b).into())
        }
        (Kind::Unsigned, 1) => {
            decode(&header, &bytes, |b| u8::from_le_bytes(b).into(), |b| u8::from_be_bytes(b).into())
        }
        (Kind::Unsigned, 2) => {
            decode(&header, &bytes, |b| u16::from_le_bytes(b).into(), |b| u16::from_be_bytes(b).into())
        }
        (Kind::Unsigned, 4) => {
            decode(&header, &bytes, |b| u32::from_le_bytes(b).into(), |b| u32::from_be_bytes(b).into())
        }
        (Kind::Unsigned, 8) => {
            decode(&header, &bytes, |b| u64::from_le_bytes(b).into(), |b| u64::from_be_bytes(b).into())
        }
        _ => return Err(refuse_type(path, &header, "integer labels", "numpy.int64")),
    };
    Ok(values.iter().map(i128::to_string).collect())
}

pub(super) const OUT_OF_RANGE_OF_F32: &str = "divide all values by one constant";

/// The values rounded to f32; what is wrong where a finite one would become an infinity, or a row that is not zero would
/// become zero. `first`: the number of the first row.
pub(super) fn to_f32(values: &[f64], cols: usize, first: usize) -> std::result::Result<Vec<f32>, String> {
    let lost = |value: &f64| value.is_finite() && (*value as f32).is_infinite();
    if let Some(at) = values.iter().position(lost) {
        let (row, column) = (first + at / cols, at % cols);
        return Err(format!("row {row}, column {column} is {:e}; f32 holds values up to 3.4e38", values[at]));
    }
    let vanishes =
        |row: &[f64]| row.iter().all(|&value| value as f32 == 0.0) && row.iter().any(|&value| value != 0.0);
    if let Some(row) = values.chunks(cols.max(1)).position(vanishes) {
        let largest =
            values[row * cols..][..cols].iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        return Err(format!(
            "row {} has values up to {largest:e} and would be zero; f32 holds values down to 1.4e-45",
            first + row
        ));
    }
    Ok(values.iter().map(|&value| value as f32).collect())
}

/// The header and exactly the bytes of the values.
fn open(path: &Path) -> Result<(Header, Vec<u8>)> {
    let failed = |source| Error::io("read", path, source);
    let mut file = gallerist_util::files::open_regular(path).map_err(failed)?;
    let (header, values) = open_header(path, &mut file)?;
    let mut bytes = vec![0; values.len()];
    file.read_exact(&mut bytes).map_err(failed)?;
    Ok((header, bytes))
}

/// The shape of a matrix of little-endian f32 in C order, and where its values are.
pub(super) fn locate(path: &Path, file: &mut File) -> Result<(usize, usize, Range<usize>)> {
    let (header, values) = open_header(path, file)?;
    if (header.kind, header.size) != (Kind::Float, 4) {
        return Err(refuse_type(path, &header, "f32", "numpy.float32"));
    }
    match header.shape[..] {
        [rows, cols] if !header.big_endian && !header.fortran_order => {
            check_values(rows, cols)?;
            Ok((rows, cols, values))
        }
        [_, _] => {
            let problem = "wanted little-endian values in C order, found another order".to_owned();
            Err(refuse(path, problem, Some("load the file instead of mapping it")))
        }
        _ => {
            let problem = format!("wanted 2 dimensions (rows x values), found {}", header.shape.len());
            Err(refuse(path, problem, None))
        }
    }
}

/// The header, and where in the file the values are: exactly to its end.
fn open_header(path: &Path, file: &mut File) -> Result<(Header, Range<usize>)> {
    let failed = |source| Error::io("read", path, source);
    let file_size = file.metadata().map_err(failed)?.len();

    let mut start = [0; 8];
    read_start(path, file, &mut start)?;
    if &start[..6] != MAGIC {
        return Err(refuse(path, "it does not start as a `.npy` file does".to_owned(), None));
    }
    let header_size = match start[6] {
        1 => {
            let mut size = [0; 2];
            read_start(path, file, &mut size)?;
            usize::from(u16::from_le_bytes(size))
        }
        2 | 3 => {
            let mut size = [0; 4];
            read_start(path, file, &mut size)?;
            u32::from_le_bytes(size) as usize
        }
        version => {
            let problem = format!("wanted version 1, 2 or 3, found {version}");
            return Err(refuse(path, problem, None));
        }
    };
    if header_size > MAX_HEADER {
        let problem = format!("wanted a header of at most {MAX_HEADER} bytes, found {header_size}");
        return Err(refuse(path, problem, None));
    }
    let mut text = vec![0; header_size];
    read_start(path, file, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    let header = parse_header(&text).map_err(|problem| refuse(path, problem, None))?;

    let header_end = (if start[6] == 1 { 10 } else { 12 }) + header_size as u64;
    let found = file_size.saturating_sub(header_end);
    let wanted =
        header.shape.iter().try_fold(header.size as u64, |size, &length| size.checked_mul(length as u64));
    if wanted != Some(found) {
        let wanted = wanted.map_or("more than 2^64".to_owned(), |wanted| wanted.to_string());
        let problem = format!("shape {:?} needs {wanted} bytes of values, found {found}", header.shape);
        return Err(refuse(path, problem, Some("copy or write the file again")));
    }
    let position = |at: u64| {
        usize::try_from(at).map_err(|_| {
            refuse(path, format!("its {file_size} bytes cannot be addressed on this machine"), None)
        })
    };
    Ok((header, position(header_end)?..position(file_size)?))
}

fn read_start(path: &Path, file: &mut File, into: &mut [u8]) -> Result<()> {
    file.read_exact(into).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            refuse(path, "it ends inside its header".to_owned(), Some("copy or write the file again"))
        }
        _ => Error::io("read", path, source),
    })
}

fn refuse(path: &Path, problem: String, hint: Option<&str>) -> Error {
    let hint = hint.map(str::to_owned);
    Error::Format { path: path.to_owned(), format: "a NumPy array", problem, hint }
}

fn refuse_type(path: &Path, header: &Header, wanted: &str, cast: &str) -> Error {
    let letter = match header.kind {
        Kind::Float => 'f',
        Kind::Signed => 'i',
        Kind::Unsigned => 'u',
    };
    let problem = format!("wanted {wanted}, found {letter}{}", header.size * 8);
    refuse(path, problem, Some(&format!("save `array.astype({cast})` instead")))
}

/// Decodes the values in C order, whichever order they are stored in.
fn decode<T: Copy + Default, const N: usize>(
    header: &Header,
    bytes: &[u8],
    little: impl Fn([u8; N]) -> T,
    big: impl Fn([u8; N]) -> T,
) -> Vec<T> {
    assert_eq!(header.size, N, "elements of {} bytes read as {N}", header.size);
    let stored = bytes.as_chunks::<N>().0.iter();
    let stored: Vec<T> = if header.big_endian {
        stored.map(|&bytes| big(bytes)).collect()
    } else {
        stored.map(|&bytes| little(bytes)).collect()
    };
    if !header.fortran_order || header.shape.len() < 2 {
        return stored;
    }
    // Walk the stored values, the first dimension running fastest, and keep the C offset.
    let mut strides = vec![1; header.shape.len()];
    for axis in (0..strides.len() - 1).rev() {
        strides[axis] = strides[axis + 1] * header.shape[axis + 1];
    }
    let mut values = vec![T::default(); stored.len()];
    let mut position = vec![0; strides.len()];
    let mut offset = 0;
    for value in stored {
        values[offset] = value;
        for axis in 0..strides.len() {
            position[axis] += 1;
            offset += strides[axis];
            if position[axis] < header.shape[axis] {
                break;
            }
            offset -= strides[axis] * header.shape[axis];
            position[axis] = 0;
        }
    }
    values
}

/// Reads the Python dictionary `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse_header(text: &str) -> std::result::Result<Header, String> {
    let broken = || format!("its header `{}` is not understood", text.trim().escape_debug());
    let inside = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(broken)?;
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    let mut rest = inside.trim();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or_else(broken)?;
        let value = after.trim_start().strip_prefix(':').ok_or_else(broken)?.trim_start();
        rest = match key {
            "descr" if value.starts_with('[') => {
                return Err("wanted plain numbers, found records".to_owned());
            }
            "descr" => {
                let (value, rest) = quoted(value).ok_or_else(broken)?;
                descr = Some(value);
                rest
            }
            "fortran_order" => {
                if let Some(rest) = value.strip_prefix("False") {
                    fortran_order = Some(false);
                    rest
                } else {
                    fortran_order = Some(true);
                    value.strip_prefix("True").ok_or_else(broken)?
                }
            }
            "shape" => {
                let (tuple, rest) =
                    value.strip_prefix('(').and_then(|value| value.split_once(')')).ok_or_else(broken)?;
                let lengths = tuple.trim().trim_end_matches(',');
                shape = Some(if lengths.is_empty() {
                    Vec::new()
                } else {
                    lengths
                        .split(',')
                        // Python 2 wrote long integers with a trailing L.
                        .map(|length| length.trim().trim_end_matches('L').parse().ok())
                        .collect::<Option<Vec<usize>>>()
                        .ok_or_else(broken)?
                });
                rest
            }
            _ => return Err(broken()),
        };
        rest = rest.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    let (Some(descr), Some(fortran_order), Some(shape)) = (descr, fortran_order, shape) else {
        return Err(broken());
    };
    let unknown = || format!("its element type `{}` is not read", descr.escape_debug());
    let mut letters = descr.chars();
    let big_endian = match letters.next() {
        Some('<' | '|') => false,
        Some('>') => true,
        Some('=') => cfg!(target_endian = "big"),
        _ => return Err(unknown()),
    };
    let kind = match letters.next() {
        Some('f') => Kind::Float,
        Some('i') => Kind::Signed,
        Some('u') => Kind::Unsigned,
        _ => return Err(unknown()),
    };
    let size = letters.as_str().parse().map_err(|_| unknown())?;
    if ![1, 2, 4, 8, 12, 16].contains(&size) {
        return Err(unknown());
    }
    Ok(Header { kind, size, big_endian, fortran_order, shape })
}

/// A quoted word at the start of `text`, and what follows it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(version: u8, header: &str, values: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(values);
        bytes
    }

    fn with_file<T>(bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("array.npy");
        fs::write(&path, bytes).unwrap();
        read(&path)
    }

    fn matrix(bytes: &[u8]) -> Result<Matrix> {
        with_file(bytes, |path| read_matrix(path))
    }

    fn values<const N: usize, T: Copy>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&value| bytes(value)).collect()
    }

    #[test]
    fn every_version_order_and_float_type_reads_the_same_matrix() {
        let wanted = Matrix::new(2, 3, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let c = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let fortran = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
        for version in [1, 2, 3] {
            for (order, stored) in [("False", c), ("True", fortran)] {
                let single = stored.map(|value| value as f32);
                for (descr, bytes) in [
                    ("<f8", values(&stored, f64::to_le_bytes)),
                    (">f8", values(&stored, f64::to_be_bytes)),
                    ("<f4", values(&single, f32::to_le_bytes)),
                    (">f4", values(&single, f32::to_be_bytes)),
                ] {
                    let header =
                        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': (2, 3), }}\n");
                    assert_eq!(matrix(&file(version, &header, &bytes)).unwrap(), wanted);
                }
            }
        }
    }

    #[test]
    fn three_dimensions_in_fortran_order_come_back_in_c_order() {
        // numpy: np.asfortranarray(np.arange(24.).reshape(2, 3, 4)) stored by its first axis.
        let stored: Vec<f64> = (0..24)
            .map(|at| {
                let (i, j, k) = (at % 2, at / 2 % 3, at / 6);
                f64::from(i * 12 + j * 4 + k)
            })
            .collect();
        let header = "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3, 4), }";
        let bytes = file(1, header, &values(&stored, f64::to_le_bytes));
        let array = with_file(&bytes, |path| read_f64(path)).unwrap();
        assert_eq!(array.shape, [2, 3, 4]);
        assert_eq!(array.values, (0..24).map(f64::from).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let wanted = Matrix::new(3, 2, vec![0.1, -2.0, 1e-40, f32::MAX, 0.0, 6.0]).unwrap();
        write_f32(&path, &wanted).unwrap();
        assert_eq!(read_matrix(&path).unwrap(), wanted);
        assert_eq!(fs::read(&path).unwrap().len() % 64, 24, "the values start at a multiple of 64");

        write_f64(&path, &[1, 3], &[0.1, 0.2, 1e300]).unwrap();
        let error = read_matrix(&path).unwrap_err();
        assert!(
            error.to_string().ends_with("row 0, column 2 is 1e300; f32 holds values up to 3.4e38"),
            "{error}"
        );
        write_f64(&path, &[2, 2], &[0.0, 0.0, -1e-60, 1e-70]).unwrap();
        let error = read_matrix(&path).unwrap_err();
        let wanted = "row 1 has values up to 1e-60 and would be zero; f32 holds values down to 1.4e-45";
        assert!(error.to_string().ends_with(wanted), "{error}");
        write_f64(&path, &[1, 2], &[1e-60, 1.0]).unwrap();
        assert_eq!(read_matrix(&path).unwrap().as_slice(), [0.0, 1.0]);
        write_f64(&path, &[1, 1], &[f64::NEG_INFINITY]).unwrap();
        assert_eq!(read_matrix(&path).unwrap().as_slice(), [f32::NEG_INFINITY]);
        write_f64(&path, &[3], &[0.1, 0.2, 1e300]).unwrap();
        assert_eq!(read_f64(&path).unwrap().values, [0.1, 0.2, 1e300]);
        write_i64(&path, &[2], &[-7, i64::MAX]).unwrap();
        assert_eq!(read_labels(&path).unwrap(), ["-7", "9223372036854775807"]);
        write_f32(&path, &Matrix::new(0, 4, vec![]).unwrap()).unwrap();
        assert_eq!(read_matrix(&path).unwrap().cols(), 4);
    }

    #[test]
    fn labels_of_every_integer_type_are_read() {
        for (descr, bytes) in [
            ("|i1", vec![3, 255]),
            ("|u1", vec![3, 255]),
            (">i2", vec![0, 3, 255, 255]),
            ("<u4", vec![3, 0, 0, 0, 255, 0, 0, 0]),
        ] {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}");
            let labels = with_file(&file(1, &header, &bytes), |path| read_labels(path)).unwrap();
            let second = if descr.contains('i') { "-1" } else { "255" };
            assert_eq!(labels, ["3", second]);
        }
    }

    #[test]
    fn other_types_and_shapes_are_refused_with_what_was_found() {
        let header =
            |descr, shape| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        for (descr, shape, message) in [
            ("<f2", "(1, 2)", "wanted f32 or f64, found f16"),
            ("<i4", "(1, 1)", "wanted f32 or f64, found i32"),
            ("<f4", "(1,)", "wanted 2 dimensions (rows x values), found 1"),
            ("<U1", "(1, 1)", "its element type `<U1` is not read"),
            ("|O", "(1, 1)", "its element type `|O` is not read"),
        ] {
            let error = matrix(&file(1, &header(descr, shape), &[0; 4])).unwrap_err().to_string();
            assert!(error.ends_with(message), "{error}");
        }
        let records = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 1), }";
        let error = matrix(&file(1, records, &[0; 4])).unwrap_err().to_string();
        assert!(error.ends_with("wanted plain numbers, found records"), "{error}");
    }

    #[test]
    fn a_shape_larger_than_the_file_takes_no_memory() {
        for shape in ["(4000000000, 4000000000)", "(1000000000, 1000)", "(2, 2)", "(0, 5)"] {
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            let error = matrix(&file(1, &header, &[0; 12])).unwrap_err();
            assert!(error.to_string().ends_with("bytes of values, found 12"), "{error}");
        }
        let mut long = MAGIC.to_vec();
        long.extend([2, 0, 255, 255, 255, 255]);
        assert!(matrix(&long).unwrap_err().to_string().contains("wanted a header of at most 10000 bytes"));
    }

    #[test]
    fn no_damage_to_the_file_panics_and_no_cut_is_accepted() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
        let whole = file(1, header, &[7; 24]);
        assert!(matrix(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(matrix(&whole[..length]).is_err(), "cut to {length} bytes");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                // A flipped value or a flipped order still is a valid file.
                let _ = matrix(&damaged);
            }
        }
    }
}
