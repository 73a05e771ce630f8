//! The columns of a set in a `.safetensors` file.
//!
//! The metadata `columns` is a JSON list of names and kinds. Column `i` of numbers is the tensor `column.i`, f64
//! `[rows]`, NaN where a value is missing; every other one is `column.i`, u32 `[rows]`, and `column.i.values`, u8: a
//! JSON list of the distinct texts. The u32 is the place of the row's text in that list, 2^32 - 1 where it is missing.

use std::io;

use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::sealed::{Take, encode};
use crate::columns::{Column, ColumnKind, Columns, MISSING};

/// One entry of the metadata `columns`.
#[derive(Serialize, Deserialize)]
struct Entry<N> {
    name: N,
    kind: ColumnKind,
}

/// The columns as they are written.
pub(crate) struct Tensors<'a> {
    columns: &'a Columns,
    /// The distinct texts of each column, as JSON; empty for numbers.
    texts: Vec<Vec<u8>>,
}

impl<'a> Tensors<'a> {
    pub(crate) fn new(columns: &'a Columns) -> Self {
        let json = |column: &Column| {
            let texts = column.as_texts();
            texts.map(|(distinct, _)| serde_json::to_vec(distinct).expect("strings are valid JSON"))
        };
        Self { columns, texts: columns.iter().map(|column| json(column).unwrap_or_default()).collect() }
    }

    /// Adds the tensors, which begin at byte `end`, to a header, and returns the byte after them.
    pub(crate) fn describe(&self, header: &mut Map<String, Value>, mut end: usize) -> usize {
        let mut tensor = |name: String, dtype: &str, length: usize, bytes: usize| {
            let offsets = [end, end + bytes];
            end += bytes;
            header.insert(name, json!({"dtype": dtype, "shape": [length], "data_offsets": offsets}));
        };
        for (i, column) in self.columns.iter().enumerate() {
            let rows = column.len();
            match column.as_numbers() {
                Some(numbers) => tensor(format!("column.{i}"), "F64", rows, size_of_val(numbers)),
                None => tensor(format!("column.{i}"), "U32", rows, rows * size_of::<u32>()),
            }
        }
        for (i, text) in self.texts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            tensor(format!("column.{i}.values"), "U8", text.len(), text.len());
        }
        end
    }

    /// The metadata; `None` without columns.
    pub(crate) fn metadata(&self) -> Option<String> {
        let entry = |column: &'a Column| Entry { name: column.name(), kind: column.kind() };
        let entries: Vec<_> = self.columns.iter().map(entry).collect();
        (!entries.is_empty()).then(|| serde_json::to_string(&entries).expect("names are valid JSON"))
    }

    /// Hands the bytes of the tensors to `take`, in the order of [`describe`](Self::describe).
    pub(crate) fn encode(&self, take: &mut Take) -> io::Result<()> {
        for column in self.columns.iter() {
            match (column.as_numbers(), column.as_texts()) {
                (Some(numbers), _) => encode(numbers, f64::to_le_bytes, take)?,
                (None, Some((_, places))) => encode(places, u32::to_le_bytes, take)?,
                (None, None) => {}
            }
        }
        self.texts.iter().try_for_each(|text| take(text))
    }
}

/// The names of the tensors of the columns that this metadata lists; none if it cannot be read.
pub(super) fn tensor_names(metadata: &str) -> Vec<String> {
    let entries: Vec<Entry<String>> = serde_json::from_str(metadata).unwrap_or_default();
    let of_entry = |(i, Entry { kind, .. }): (usize, Entry<String>)| {
        let values = (kind != ColumnKind::Number).then(|| format!("column.{i}.values"));
        [format!("column.{i}")].into_iter().chain(values)
    };
    entries.into_iter().enumerate().flat_map(of_entry).collect()
}

/// Reads the columns of a file of `rows` rows, or those of `selected` rows; else what is wrong with them.
pub(crate) fn read(
    tensors: &SafeTensors,
    metadata: &str,
    rows: usize,
    selected: Option<&[usize]>,
) -> Result<Columns, String> {
    let entries: Vec<Entry<String>> = serde_json::from_str(metadata)
        .map_err(|error| format!("its list of columns cannot be read: {error}"))?;
    let read =
        |(i, Entry { name, kind }): (usize, Entry<String>)| column(tensors, i, name, kind, rows, selected);
    let list = entries.into_iter().enumerate().map(read).collect::<Result<Vec<_>, String>>()?;
    Columns::new(list).map_err(|error| error.to_string())
}

fn column(
    tensors: &SafeTensors,
    i: usize,
    name: String,
    kind: ColumnKind,
    rows: usize,
    selected: Option<&[usize]>,
) -> Result<Column, String> {
    let bytes = |tensor: &str, dtype: Dtype, length: Option<usize>| {
        let found = tensors
            .tensor(tensor)
            .map_err(|_| format!("wanted a tensor `{tensor}` for the column `{name}`"))?;
        let fits = found.dtype() == dtype && length.is_none_or(|length| found.shape() == [length]);
        match fits {
            true => Ok(found.data()),
            false => {
                let shape = length.map_or(String::new(), |length| format!(" and shape [{length}]"));
                let (other, found) = (found.dtype(), found.shape());
                Err(format!("wanted `{tensor}` of type {dtype}{shape}, found {other} {found:?}"))
            }
        }
    };
    let places = |count| selected.map_or_else(|| (0..count).collect(), <[usize]>::to_vec);
    let main = format!("column.{i}");
    if kind == ColumnKind::Number {
        let numbers = bytes(&main, Dtype::F64, Some(rows))?.as_chunks().0;
        let value = |row: usize| Some(f64::from_le_bytes(numbers[row])).filter(|number| !number.is_nan());
        return Column::numbers(name.clone(), places(rows).into_iter().map(value)).map_err(|e| e.to_string());
    }
    let values = format!("{main}.values");
    let distinct: Vec<String> = serde_json::from_slice(bytes(&values, Dtype::U8, None)?)
        .map_err(|error| format!("`{values}` is no JSON list of strings: {error}"))?;
    let of_rows = bytes(&main, Dtype::U32, Some(rows))?.as_chunks().0;
    let place = |row: usize| match u32::from_le_bytes(of_rows[row]) {
        place if place == MISSING || (place as usize) < distinct.len() => Ok(place),
        place => Err(format!("row {row} of the column `{name}` has the value {place} of {}", distinct.len())),
    };
    let places = places(rows).into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
    Column::of_places(name, kind, distinct, places).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::MappedCompact;
    use crate::{Code, EmbeddingSet, Matrix};

    fn set() -> EmbeddingSet {
        let columns = vec![
            Column::infer("price", ["12.5", "", "-3"]).unwrap(),
            Column::infer("day", ["2024-05-01", "2024-05-01T10:00Z", ""]).unwrap(),
            Column::infer("shop", ["x", "y", "x"]).unwrap(),
            Column::infer("colour", ["red|blue", "", "red"]).unwrap(),
            Column::infer("empty", ["", "", ""]).unwrap(),
        ];
        EmbeddingSet {
            columns: Columns::new(columns).unwrap(),
            ..Matrix::new(3, 2, vec![1.0, 0.0, 0.0, 1.0, 0.5, 0.5]).unwrap().into()
        }
    }

    #[test]
    fn columns_come_back_in_every_precision_and_of_selected_rows() {
        let (folder, set) = (tempfile::tempdir().unwrap(), set());
        let path = folder.path().join("set.safetensors");
        set.save(&path).unwrap();
        assert_eq!(EmbeddingSet::load(&path).unwrap(), set);
        for code in [Code::Bf16, Code::Int8] {
            set.save_compact(&path, code).unwrap();
            assert_eq!(EmbeddingSet::load(&path).unwrap().columns, set.columns);
            let mapped = MappedCompact::open(&path).unwrap();
            assert_eq!(mapped.select(&[2, 0]).unwrap().columns, set.select(&[2, 0]).columns);
            assert_eq!(mapped.without_embeddings().unwrap().columns, set.columns);
        }
    }

    #[test]
    fn a_file_without_columns_is_of_the_version_that_older_programs_read() {
        let (folder, set) = (tempfile::tempdir().unwrap(), set());
        let path = folder.path().join("set.safetensors");
        let header = |set: &EmbeddingSet| {
            set.save(&path).unwrap();
            String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
        };
        assert!(header(&set).contains("\"format_version\":\"3\""));
        let without = EmbeddingSet { columns: Columns::default(), ..set };
        assert!(header(&without).contains("\"format_version\":\"2\""));
    }

    /// A file of two rows with the columns of another program.
    fn other(metadata: &str, tensors: &[(&str, &str, &str, &[u8])]) -> Result<Columns, String> {
        let mut header = Map::new();
        let mut bytes = Vec::new();
        for (name, dtype, shape, content) in tensors {
            let shape: Value = serde_json::from_str(shape).unwrap();
            let offsets = [bytes.len(), bytes.len() + content.len()];
            header
                .insert((*name).to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
            bytes.extend_from_slice(content);
        }
        let header = serde_json::to_vec(&header).unwrap();
        let file = [&(header.len() as u64).to_le_bytes(), &header[..], &bytes].concat();
        read(&SafeTensors::deserialize(&file).unwrap(), metadata, 2, None)
    }

    #[test]
    fn a_file_of_another_program_has_columns_if_it_has_their_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        let write = |metadata: &str, with_tensor: bool| {
            let mut header = json!({
                "__metadata__": { "columns": metadata },
                "embeddings": { "dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8] },
            });
            if with_tensor {
                header["column.0"] = json!({ "dtype": "F64", "shape": [2], "data_offsets": [8, 24] });
            }
            let header = serde_json::to_vec(&header).unwrap();
            let mut file = [&(header.len() as u64).to_le_bytes(), &header[..]].concat();
            [1.0_f32, 2.0].iter().for_each(|value| file.extend(value.to_le_bytes()));
            [5.0_f64, f64::NAN]
                .iter()
                .take(if with_tensor { 2 } else { 0 })
                .for_each(|value| file.extend(value.to_le_bytes()));
            std::fs::write(&path, file).unwrap();
            EmbeddingSet::load(&path).map(|set| set.columns)
        };
        let price = Column::numbers("price".to_owned(), [Some(5.0), None]).unwrap();
        let list = r#"[{"name":"price","kind":"number"}]"#;
        assert_eq!(write(list, true).unwrap(), Columns::new(vec![price]).unwrap());
        assert!(write("[", true).unwrap_err().to_string().contains("its list of columns cannot be read"));
        // Metadata with another meaning.
        assert_eq!(write("a, b", false).unwrap(), Columns::default());
    }

    #[test]
    fn columns_that_contradict_themselves_are_refused() {
        let number = r#"[{"name":"a","kind":"number"}]"#;
        let text = r#"[{"name":"a","kind":"text"}]"#;
        let day = r#"[{"name":"a","kind":"date"}]"#;
        let infinite = [1.0f64, f64::INFINITY].map(f64::to_le_bytes).concat();
        let values = ("column.0.values", "U8", "[5]", &b"[\"x\"]"[..]);
        for (metadata, tensors, message) in [
            ("[", &[][..], "its list of columns cannot be read"),
            (r#"[{"name":"a","kind":"colour"}]"#, &[], "its list of columns cannot be read"),
            (number, &[], "wanted a tensor `column.0` for the column `a`"),
            (number, &[("column.0", "F64", "[1]", &[0; 8][..])], "shape [2], found F64 [1]"),
            (number, &[("column.0", "F32", "[2]", &[0; 8])], "of type F64 and shape [2], found F32 [2]"),
            (number, &[("column.0", "F64", "[2]", &infinite)], "numbers must be finite"),
            (text, &[("column.0", "U32", "[2]", &[0; 8])], "wanted a tensor `column.0.values`"),
            (
                text,
                &[("column.0", "U32", "[2]", &[0, 0, 0, 0, 1, 0, 0, 0]), values],
                "row 1 of the column `a` has the value 1 of 1",
            ),
            (
                text,
                &[("column.0", "U32", "[2]", &[0; 8]), ("column.0.values", "U8", "[1]", b"x")],
                "no JSON list",
            ),
            (day, &[("column.0", "U32", "[2]", &[0; 8]), values], "column `a`: `x` is no date"),
            (
                r#"[{"name":"path","kind":"text"}]"#,
                &[("column.0", "U32", "[2]", &[0; 8]), values],
                "its name is reserved",
            ),
        ] {
            let error = other(metadata, tensors).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        let found =
            other(text, &[("column.0", "U32", "[2]", &[255, 255, 255, 255, 0, 0, 0, 0]), values]).unwrap();
        assert_eq!(found, Columns::new(vec![Column::infer("a", ["", "x"]).unwrap()]).unwrap());
    }
}
