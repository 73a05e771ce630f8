//! A reader of MATLAB's MAT-files, version 5, for annotations.
//!
//! It reads numeric arrays, text, cell arrays and structure arrays of little-endian files, compressed or not. It skips
//! other arrays (sparse, complex, objects). Every size is checked against the length of the data before memory is
//! allocated. (MathWorks, MAT-File Format, "Level 5".)

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::tree::Tree;
use crate::decode::MAX_FILE_BYTES;
use crate::error::Error;

/// An array of a MAT-file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Numbers(Vec<f64>),
    Text(String),
    Cells(Vec<Value>),
    /// A structure array.
    Structs(Structs),
    /// An array of a kind that this module does not read.
    Other,
}

/// A structure array: the values of one element after those of the one before, one value per field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Structs {
    fields: Vec<String>,
    values: Vec<Value>,
}

impl Value {
    /// The number of an array that has exactly one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Numbers(values) if values.len() == 1 => Some(values[0]),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Structs {
    pub(super) fn len(&self) -> usize {
        self.values.len().checked_div(self.fields.len()).unwrap_or(0)
    }

    /// The column of a field, for [`Structs::get`].
    pub(super) fn column(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|f| f == field)
    }

    pub(super) fn get(&self, element: usize, column: usize) -> &Value {
        &self.values[element * self.fields.len() + column]
    }
}

/// The variables of a file.
pub(super) struct MatFile {
    /// Its name in error messages.
    pub(super) name: String,
    variables: Vec<(String, Value)>,
}

impl MatFile {
    pub(super) fn open(tree: &Tree, path: &str) -> Result<MatFile, Error> {
        MatFile::read(tree, path, None)
    }

    /// Reads up to the variable `last`: those after it may be large.
    pub(super) fn open_for(tree: &Tree, path: &str, last: &str) -> Result<MatFile, Error> {
        MatFile::read(tree, path, Some(last))
    }

    fn read(tree: &Tree, path: &str, last: Option<&str>) -> Result<MatFile, Error> {
        let name = tree.location(path);
        match parse(&tree.read(path)?, last) {
            Ok(variables) => Ok(MatFile { name, variables }),
            Err(problem) => Err(Error::Annotation { path: name, line: None, problem }),
        }
    }

    pub(super) fn fault(&self, problem: String) -> Error {
        Error::Annotation { path: self.name.clone(), line: None, problem }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&Value> {
        self.variables.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The structure array `name`, or an error.
    pub(super) fn structs(&self, name: &str) -> Result<&Structs, Error> {
        match self.variable(name) {
            Some(Value::Structs(structs)) => Ok(structs),
            _ => Err(self.fault(format!("it has no structure array `{name}`"))),
        }
    }
}

/// The variables of a file by name, up to the one called `last`.
fn parse(bytes: &[u8], last: Option<&str>) -> Result<Vec<(String, Value)>, String> {
    let header = bytes.get(..128).ok_or_else(|| format!("{} bytes are no MAT-file", bytes.len()))?;
    match &header[124..] {
        [0x00, 0x01, b'I', b'M'] => {}
        [0x01, 0x00, b'M', b'I'] => {
            return Err("a big-endian MAT-file; save it again on a little-endian computer".to_owned());
        }
        _ if bytes.starts_with(b"MATLAB 7.3") => {
            return Err("a MAT-file of version 7.3 (HDF5); save it with `-v7`".to_owned());
        }
        _ => return Err("it does not have the header of a MAT-file of version 5".to_owned()),
    }
    let mut variables: Vec<(String, Value)> = Vec::new();
    let mut reader = Reader { bytes: &bytes[128..], budget: MAX_FILE_BYTES };
    while !reader.bytes.is_empty() && variables.last().is_none_or(|(name, _)| Some(&**name) != last) {
        let (kind, data) = reader.element()?;
        match kind {
            MATRIX => variables.push(matrix(data, 0)?),
            COMPRESSED => {
                let mut unpacked = Vec::new();
                ZlibDecoder::new(data)
                    .take(reader.budget + 1)
                    .read_to_end(&mut unpacked)
                    .map_err(|e| format!("a packed variable is damaged: {e}"))?;
                reader.budget = reader.budget.checked_sub(unpacked.len() as u64).ok_or_else(|| {
                    format!("its variables unpack to more than {} MiB", MAX_FILE_BYTES >> 20)
                })?;
                let (kind, data) = Reader::new(&unpacked).element()?;
                if kind == MATRIX {
                    variables.push(matrix(data, 0)?);
                }
            }
            _ => {}
        }
    }
    Ok(variables)
}

const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// Arrays within arrays; annotations need 3.
const MAX_DEPTH: usize = 16;

struct Reader<'a> {
    bytes: &'a [u8],
    /// Bytes that packed variables may still unpack to.
    budget: u64,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, budget: 0 }
    }

    /// The next element: its type and its data.
    fn element(&mut self) -> Result<(u32, &'a [u8]), String> {
        let cut = || "it is cut short".to_owned();
        let word = |at: usize| -> Result<u32, String> {
            let word = self.bytes.get(at..at + 4).ok_or_else(cut)?;
            Ok(u32::from_le_bytes(word.try_into().expect("four bytes")))
        };
        let tag = word(0)?;
        let (kind, start, size) = match tag >> 16 {
            0 => (tag, 8, word(4)? as usize),
            // The small form: size and type in one word, at most 4 bytes of data in the next.
            size @ 1..=4 => (tag & 0xffff, 4, size as usize),
            size => return Err(format!("a short element of {size} bytes")),
        };
        let data = self.bytes.get(start..).and_then(|rest| rest.get(..size)).ok_or_else(cut)?;
        let end = match kind {
            COMPRESSED => start + size,
            _ => (start + size).next_multiple_of(8),
        };
        // The last element's padding may be missing.
        self.bytes = self.bytes.get(end..).unwrap_or(&[]);
        Ok((kind, data))
    }

    fn numbers(&mut self) -> Result<Vec<f64>, String> {
        let (kind, data) = self.element()?;
        macro_rules! read {
            ($type:ty) => {
                data.as_chunks::<{ size_of::<$type>() }>()
                    .0
                    .iter()
                    .map(|&bytes| <$type>::from_le_bytes(bytes) as f64)
                    .collect()
            };
        }
        Ok(match kind {
            1 => read!(i8),
            // 16, 17, 18: UTF-8, UTF-16, UTF-32.
            2 | 16 => read!(u8),
            3 => read!(i16),
            4 | 17 => read!(u16),
            5 => read!(i32),
            6 | 18 => read!(u32),
            7 => read!(f32),
            9 => read!(f64),
            12 => read!(i64),
            13 => read!(u64),
            kind => return Err(format!("numbers of the unknown type {kind}")),
        })
    }

    fn text(&mut self) -> Result<String, String> {
        let (kind, data) = self.element()?;
        let wide = |units: Vec<u16>| String::from_utf16_lossy(&units);
        Ok(match kind {
            1 | 2 | 16 => String::from_utf8_lossy(data).into_owned(),
            4 | 17 => wide(data.as_chunks::<2>().0.iter().map(|&b| u16::from_le_bytes(b)).collect()),
            kind => return Err(format!("text of the unknown type {kind}")),
        })
    }
}

/// An array and its name from the data of a `miMATRIX` element.
fn matrix(data: &[u8], depth: usize) -> Result<(String, Value), String> {
    if depth > MAX_DEPTH {
        return Err(format!("arrays are nested deeper than {MAX_DEPTH}"));
    }
    // The value of an unset field.
    if data.is_empty() {
        return Ok((String::new(), Value::Numbers(Vec::new())));
    }
    let mut reader = Reader::new(data);
    let flags = reader.numbers()?;
    let class = *flags.first().ok_or("an array without flags")? as u64 & 0xff;
    let complex = flags[0] as u64 & 0x800 != 0;
    let count = reader
        .numbers()?
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size as u64))
        .ok_or("an array of more than 2^64 elements")?;
    let name = reader.text()?;
    let value = match class {
        1 => Value::Cells(matrices(&mut reader, count, depth)?),
        2 => {
            let length = reader.numbers()?.first().map_or(0, |&n| n as usize);
            let (_, names) = reader.element()?;
            if length == 0 || names.len() / length > 4096 {
                return Err(format!("field names of {length} bytes each in {}", names.len()));
            }
            let fields: Vec<String> = names
                .chunks_exact(length)
                .map(|f| String::from_utf8_lossy(f.split(|&b| b == 0).next().unwrap_or(f)).into_owned())
                .collect();
            let total = count.checked_mul(fields.len() as u64).ok_or("a structure of 2^64 values")?;
            Value::Structs(Structs { values: matrices(&mut reader, total, depth)?, fields })
        }
        4 => Value::Text(reader.text()?),
        6..=15 if !complex => {
            let numbers = reader.numbers()?;
            if numbers.len() as u64 != count {
                return Err(format!("an array of {count} numbers has {}", numbers.len()));
            }
            Value::Numbers(numbers)
        }
        _ => Value::Other,
    };
    Ok((name, value))
}

fn matrices(reader: &mut Reader, count: u64, depth: usize) -> Result<Vec<Value>, String> {
    // Each array takes at least 8 bytes.
    if count > reader.bytes.len() as u64 / 8 {
        return Err(format!("an array of {count} arrays in {} bytes", reader.bytes.len()));
    }
    (0..count)
        .map(|_| match reader.element()? {
            (MATRIX, data) => Ok(matrix(data, depth + 1)?.1),
            (kind, _) => Err(format!("wanted an array, found an element of type {kind}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNOTATIONS: &[u8] = include_bytes!("../../tests/fixtures/cars/devkit/cars_train_annos.mat");
    const PLAIN: &[u8] = include_bytes!("../../tests/fixtures/cars/plain.mat");

    #[test]
    fn what_scipy_wrote_is_read_packed_and_plain() {
        let variables = parse(ANNOTATIONS, None).unwrap();
        assert_eq!(variables.len(), 1);
        let (name, Value::Structs(annotations)) = &variables[0] else { panic!("{variables:?}") };
        assert_eq!((name.as_str(), annotations.len()), ("annotations", 3));
        let column = |field| annotations.column(field).unwrap();
        assert_eq!(annotations.get(1, column("fname")).text(), Some("00002.jpg"));
        assert_eq!(annotations.get(1, column("class")).number(), Some(99.0));
        assert_eq!(annotations.get(2, column("bbox_x2")).number(), Some(7.0));

        let variables = parse(PLAIN, None).unwrap();
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["numbers", "floats", "names", "complex", "empty", "wide"]);
        assert_eq!(variables[0].1, Value::Numbers(vec![1.0, -4.0, 2.0, 5.0, 300.0, 6.0]));
        assert_eq!(variables[1].1, Value::Numbers(vec![0.5]));
        let cells = ["AM General Hummer", "Gar\u{e7}on"].map(|t| Value::Text(t.to_owned()));
        assert_eq!(variables[2].1, Value::Cells(cells.into()));
        assert_eq!(variables[3].1, Value::Other);
        assert_eq!(variables[4].1, Value::Numbers(vec![]));
        assert_eq!(variables[5].1, Value::Numbers(vec![70_000.0]));
        assert_eq!(parse(PLAIN, Some("names")).unwrap(), variables[..3]);
        assert_eq!(parse(PLAIN, Some("none")).unwrap(), variables);
    }

    #[test]
    fn any_cut_and_any_flipped_byte_is_an_error_or_a_value_but_no_panic() {
        for whole in [ANNOTATIONS, PLAIN] {
            for length in 0..whole.len() - 8 {
                let cut = &whole[..length];
                // A cut before or between variables leaves a shorter file.
                assert!(parse(cut, None).is_err() || length == 128 || whole == PLAIN, "{length}");
            }
            for at in 0..whole.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut damaged = whole.to_vec();
                    damaged[at] ^= flip;
                    let _ = parse(&damaged, None);
                }
            }
        }
    }

    #[test]
    fn a_count_beyond_the_file_is_refused_before_memory_is_taken() {
        // A 1 x 1 cell array becomes one of 2^31 - 1 x 2^31 - 1.
        let mut element = Vec::new();
        for part in [6u32, 8, 1, 0, 5, 8, 0x7fff_ffff, 0x7fff_ffff, 1, 0] {
            element.extend(part.to_le_bytes());
        }
        let mut file = vec![b' '; 124];
        file.extend([0, 1, b'I', b'M']);
        file.extend(MATRIX.to_le_bytes());
        file.extend((element.len() as u32).to_le_bytes());
        file.extend(element);
        let error = parse(&file, None).unwrap_err();
        assert_eq!(error, "an array of 4611686014132420609 arrays in 0 bytes");
    }
}
