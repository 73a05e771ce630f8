//! Embedding sets from `.safetensors` files.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::columns;
use super::map::FileMap;
use super::npy;
use super::sealed::{AGAIN, checksum_holds};
use super::set::EmbeddingSet;
use super::shape::check_values;
use super::sources::{NONE as NO_SOURCE, Source, Sources};
use crate::columns::Columns;
use crate::compact::Values;
use crate::eval::MatchRule;
use crate::search::Metric;
use crate::{CompactMatrix, Error, Matrix, Result};

pub(super) const FORMAT: &str = "gallerist-embeddings";
pub(super) const VERSION: &str = "2";
/// The version of a file with columns, which older programs would leave out without a word.
pub(super) const VERSION_WITH_COLUMNS: &str = "3";
/// The versions that are read.
const VERSIONS: [&str; 3] = ["1", VERSION, VERSION_WITH_COLUMNS];
/// How a list of labels is written.
const LIST_FORMAT: &str =
    "write one integer a row (int32, int64), or the bytes of a JSON list of strings; see docs/embeddings.md";

fn refuse(path: &Path, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Format {
        path: path.to_owned(),
        format: "safetensors",
        problem: problem.into(),
        hint: hint.map(str::to_owned),
    }
}

/// The tensors and the metadata of a file that is whole, as far as it says.
pub(super) fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<(SafeTensors<'a>, HashMap<String, String>)> {
    // `deserialize` checks every offset and shape against the bytes that are there.
    let tensors = SafeTensors::deserialize(bytes)
        .map_err(|error| refuse(path, format!("it is cut short or damaged ({error})"), Some(AGAIN)))?;
    let (_, metadata) = header(path, bytes)?;
    if is_ours(&metadata) {
        let found = metadata.get("format_version").map_or("none", String::as_str);
        if !VERSIONS.contains(&found) {
            let problem = format!("wanted format version {}, found {found}", VERSIONS.join(", "));
            return Err(refuse(
                path,
                problem,
                Some("a newer version of Gallerist wrote it: update this program"),
            ));
        }
    }
    Ok((tensors, metadata))
}

pub(super) fn is_ours(metadata: &HashMap<String, String>) -> bool {
    metadata.get("format").is_some_and(|format| format == FORMAT)
}

/// The length of the header and its metadata.
fn header(path: &Path, bytes: &[u8]) -> Result<(usize, HashMap<String, String>)> {
    let (size, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|error| refuse(path, format!("its header is damaged ({error})"), Some(AGAIN)))?;
    Ok((size, metadata.metadata().clone().unwrap_or_default()))
}

fn carries_checksum(metadata: &HashMap<String, String>) -> bool {
    is_ours(metadata) || metadata.contains_key("sha256")
}

/// Whether a file carries a checksum.
pub(super) fn has_checksum(path: &Path, bytes: &[u8]) -> Result<bool> {
    Ok(carries_checksum(&header(path, bytes)?.1))
}

/// Refuses a file that is not the one it was written as; false when it carries no checksum.
pub(super) fn verify(path: &Path, bytes: &[u8]) -> Result<bool> {
    let (header_size, metadata) = header(path, bytes)?;
    if !carries_checksum(&metadata) {
        return Ok(false);
    }
    let (header, values) = bytes[8..].split_at(header_size);
    if !checksum_holds(header, values, metadata.get("sha256")) {
        let problem = "its checksum is not the one it was written with";
        return Err(refuse(path, problem, Some(AGAIN)));
    }
    Ok(true)
}

/// Where the embeddings of an opened file are.
pub(super) enum Stored<'a> {
    F32(&'a [u8]),
    F64(&'a [u8]),
    Bf16(&'a [u8]),
    Int8 { values: &'a [u8], scales: &'a [u8] },
}

/// Rows, columns and bytes of the embeddings.
pub(super) fn embeddings<'a>(path: &Path, tensors: &SafeTensors<'a>) -> Result<(usize, usize, Stored<'a>)> {
    let tensor = tensors.tensor("embeddings").map_err(|_| {
        let names = tensors.names().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        refuse(path, format!("wanted a tensor `embeddings`, found {found}"), None)
    })?;
    let [rows, cols] = tensor.shape()[..] else {
        let found = tensor.shape().len();
        return Err(refuse(path, format!("wanted `embeddings` of 2 dimensions, found {found}"), None));
    };
    check_values(rows, cols)?;
    let stored = match tensor.dtype() {
        Dtype::F32 => Stored::F32(tensor.data()),
        Dtype::F64 => Stored::F64(tensor.data()),
        Dtype::BF16 => Stored::Bf16(tensor.data()),
        Dtype::I8 => {
            let problem = "wanted a tensor `scales`, which `embeddings` of type I8 need, found none";
            let scales = tensors.tensor("scales").map_err(|_| refuse(path, problem, None))?;
            if scales.dtype() != Dtype::F32 || scales.shape() != [rows] {
                let (dtype, shape) = (scales.dtype(), scales.shape());
                let problem =
                    format!("wanted `scales` of type F32 and shape [{rows}], found {dtype} {shape:?}");
                return Err(refuse(path, problem, None));
            }
            Stored::Int8 { values: tensor.data(), scales: scales.data() }
        }
        other => {
            return Err(refuse(
                path,
                format!("wanted `embeddings` of type F32, F64, BF16 or I8, found {other}"),
                Some("save them in single precision"),
            ));
        }
    };
    Ok((rows, cols, stored))
}

/// The columns of a file. The embeddings are not read, and the checksum is not compared.
pub(super) fn columns_of(path: &Path) -> Result<Columns> {
    let map = FileMap::open(path)?;
    let set = open(path, &map).and_then(|(tensors, metadata)| {
        let (rows, ..) = embeddings(path, &tensors)?;
        with_lists((path, &tensors), &metadata, Matrix::new(rows, 0, Vec::new())?, None)
    });
    map.check()?;
    Ok(set?.columns)
}

pub(super) fn load(path: &Path) -> Result<EmbeddingSet> {
    let bytes =
        gallerist_util::files::read_regular(path).map_err(|source| Error::io("read", path, source))?;
    parse_verified(path, &bytes)
}

/// The file with this SHA-256, 64 hexadecimal digits. Its own checksum, which is then right, too, is not compared.
pub(super) fn load_known(path: &Path, sha256: &str) -> Result<EmbeddingSet> {
    let bytes =
        gallerist_util::files::read_regular(path).map_err(|source| Error::io("read", path, source))?;
    if gallerist_util::hex::sha256(&bytes) != sha256 {
        return Err(refuse(path, "it is not the file that was listed: its SHA-256 differs", Some(AGAIN)));
    }
    parse(path, &bytes)
}

/// The set in the bytes of the file `path`, whose checksum is compared.
fn parse_verified(path: &Path, bytes: &[u8]) -> Result<EmbeddingSet> {
    // First, that what is cut short is called that.
    open(path, bytes)?;
    verify(path, bytes)?;
    parse(path, bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<EmbeddingSet> {
    let (tensors, metadata) = open(path, bytes)?;
    let (rows, cols, stored) = embeddings(path, &tensors)?;
    let f32s = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    };
    let embeddings = match stored {
        Stored::F32(bytes) => Matrix::new(rows, cols, f32s(bytes))?,
        Stored::F64(bytes) => {
            let values: Vec<f64> =
                bytes.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
            let values = npy::to_f32(&values, cols, 0)
                .map_err(|problem| refuse(path, problem, Some(npy::OUT_OF_RANGE_OF_F32)))?;
            Matrix::new(rows, cols, values)?
        }
        Stored::Bf16(bytes) => {
            let values = bytes.as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes)).collect();
            CompactMatrix::new(rows, cols, Values::Bf16(values))?.decode()
        }
        Stored::Int8 { values, scales } => {
            let values = values.iter().map(|&byte| byte as i8).collect();
            let values = Values::Int8 { values, scales: f32s(scales).into() };
            CompactMatrix::new(rows, cols, values)?.decode()
        }
    };
    with_lists((path, &tensors), &metadata, embeddings, None)
}

/// The embeddings of a file of `all` rows with their labels, paths and other lists: of all rows, or of the
/// selected ones.
pub(super) fn with_lists(
    (path, tensors): (&Path, &SafeTensors),
    metadata: &HashMap<String, String>,
    embeddings: Matrix,
    selected: Option<(&[usize], usize)>,
) -> Result<EmbeddingSet> {
    let all = selected.map_or(embeddings.rows(), |(_, all)| all);
    let list = |name: &str| -> Result<Option<Vec<String>>> {
        let Some((name, tensor)) = list_tensor(tensors, name) else { return Ok(None) };
        let list = strings(path, name, &tensor, all)?;
        if list.len() != all {
            return Err(refuse(path, format!("{} {name} for {all} embeddings", list.len()), None));
        }
        Ok(Some(match selected {
            None => list,
            Some((rows, _)) => rows.iter().map(|&row| list[row].clone()).collect(),
        }))
    };
    let sources = sources(path, tensors, metadata, all)?;
    let columns = match column_list(tensors, metadata) {
        None => Columns::default(),
        Some(text) => columns::read(tensors, text, all, selected.map(|(rows, _)| rows))
            .map_err(|problem| refuse(path, problem, None))?,
    };
    let set = EmbeddingSet {
        embeddings,
        labels: list("labels")?,
        paths: list("paths")?,
        cameras: list("cameras")?,
        columns,
        model: metadata.get("model").cloned(),
        source: metadata.get("source").cloned(),
        sources: match selected {
            None => sources,
            Some((rows, _)) => sources.and_then(|sources| sources.select(rows).or_none()),
        },
        run: metadata.get("run").and_then(|run| located(path, run)),
        metric: metadata.get("metric").map(|name| metric(path, name)).transpose()?,
        protocol: metadata.get("protocol").cloned(),
        threshold: threshold(path, metadata)?,
    };
    set.check_counts().map_err(|error| refuse(path, error.to_string(), None))?;
    Ok(set)
}

/// The tensor of the labels, paths or cameras, and its name.
pub(super) fn list_tensor<'a, 'n>(
    tensors: &SafeTensors<'a>,
    name: &'n str,
) -> Option<(&'n str, TensorView<'a>)> {
    // `label`, as tables name it.
    let names = [name, name.strip_suffix('s').unwrap_or(name)];
    names.into_iter().find_map(|name| Some((name, tensors.tensor(name).ok()?)))
}

/// The list of the columns of a file that has them.
pub(super) fn column_list<'m>(
    tensors: &SafeTensors,
    metadata: &'m HashMap<String, String>,
) -> Option<&'m String> {
    // Another program may have metadata of this name with another meaning.
    let has_columns = is_ours(metadata) || tensors.tensor("column.0").is_ok();
    metadata.get("columns").filter(|_| has_columns)
}

/// The place of a run; `.` is the folder of the file that names it. `None` where that folder is no run: the file is a copy.
fn located(file: &Path, run: &str) -> Option<String> {
    if run != "." {
        return Some(run.to_owned());
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.join("config.toml").exists() {
        return None;
    }
    Some(gallerist_util::text::absolute(folder).to_string_lossy().into_owned())
}

/// The threshold in the metadata of a file.
pub(super) fn threshold(path: &Path, metadata: &HashMap<String, String>) -> Result<Option<MatchRule>> {
    let text = metadata.get("threshold");
    text.map(|text| match_rule(text).map_err(|problem| refuse(path, problem, None))).transpose()
}

/// One text per row: our JSON list of strings, or integers as other programs write them.
///
/// The two cannot be confused: a JSON list of n strings has more than n bytes, so that u8 of
/// `[rows]` is a list of integers.
fn strings(path: &Path, name: &str, tensor: &TensorView, rows: usize) -> Result<Vec<String>> {
    fn decimal<T: ToString, const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> T) -> Vec<String> {
        bytes.as_chunks().0.iter().map(|&bytes| value(bytes).to_string()).collect()
    }
    let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape(), tensor.data());
    let one_a_row = matches!(shape, [n] | [n, 1] if *n == rows) && rows > 0;
    let integers = match dtype {
        Dtype::U8 if one_a_row => decimal(bytes, u8::from_le_bytes),
        Dtype::U8 => {
            return serde_json::from_slice(bytes).map_err(|error| {
                let problem = format!("`{name}` is no JSON list of strings: {error}");
                refuse(path, problem, Some(LIST_FORMAT))
            });
        }
        Dtype::I8 => decimal(bytes, i8::from_le_bytes),
        Dtype::I16 => decimal(bytes, i16::from_le_bytes),
        Dtype::U16 => decimal(bytes, u16::from_le_bytes),
        Dtype::I32 => decimal(bytes, i32::from_le_bytes),
        Dtype::U32 => decimal(bytes, u32::from_le_bytes),
        Dtype::I64 => decimal(bytes, i64::from_le_bytes),
        Dtype::U64 => decimal(bytes, u64::from_le_bytes),
        other => {
            let problem = format!("wanted `{name}` of integers or of type U8, a JSON list, found {other}");
            return Err(refuse(path, problem, Some(LIST_FORMAT)));
        }
    };
    if !matches!(shape, [_] | [_, 1]) {
        let problem = format!("wanted `{name}` of one integer a row, found the shape {shape:?}");
        return Err(refuse(path, problem, Some(LIST_FORMAT)));
    }
    Ok(integers)
}

/// The source of each row, where the file keeps them.
fn sources(
    path: &Path,
    tensors: &SafeTensors,
    metadata: &HashMap<String, String>,
    rows: usize,
) -> Result<Option<Sources>> {
    let Some(text) = metadata.get("sources") else { return Ok(None) };
    if !is_ours(metadata) {
        return Ok(None);
    }
    let places = match tensors.tensor("sources") {
        Err(_) => None,
        Ok(tensor) if tensor.dtype() == Dtype::U32 && tensor.shape() == [rows] => {
            Some(tensor.data().as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect())
        }
        Ok(tensor) => {
            let (dtype, shape) = (tensor.dtype(), tensor.shape());
            let problem = format!("wanted `sources` of type U32 and shape [{rows}], found {dtype} {shape:?}");
            return Err(refuse(path, problem, None));
        }
    };
    parse_sources(text, places, rows).map(Some).map_err(|problem| refuse(path, problem, None))
}

/// Reads sources from their JSON list and the place of each row's in it; without places all rows
/// have the first.
pub(crate) fn parse_sources(
    text: &str,
    places: Option<Vec<u32>>,
    rows: usize,
) -> std::result::Result<Sources, String> {
    let list: Vec<Source> =
        serde_json::from_str(text).map_err(|error| format!("its list of sources cannot be read: {error}"))?;
    let places = places.unwrap_or_else(|| vec![0; rows]);
    let places = places.into_iter().map(|place| (place != NO_SOURCE).then_some(place as usize));
    Sources::new(list, places).map_err(|error| error.to_string())
}

/// The text that [`parse_sources`] reads.
pub(crate) fn sources_text(list: &[Source]) -> String {
    serde_json::to_string(list).expect("a list of strings is valid JSON")
}

/// The metadata `threshold` of files and indexes, or what is wrong with it.
pub(crate) fn match_rule(text: &str) -> std::result::Result<MatchRule, String> {
    serde_json::from_str(text).map_err(|error| format!("its threshold is unknown: {error}"))
}

/// The text that [`match_rule`] reads.
pub(crate) fn match_rule_text(rule: &MatchRule) -> String {
    serde_json::to_string(rule).expect("finite numbers and names")
}

fn metric(path: &Path, name: &str) -> Result<Metric> {
    Metric::of_file(name).map_err(|problem| refuse(path, problem, None))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Code;
    use crate::columns::Column;
    use crate::eval::FalseRate;

    fn example() -> EmbeddingSet {
        EmbeddingSet {
            embeddings: Matrix::new(2, 3, vec![1.0, -2.0, 0.5, 1e-40, 0.0, 3.0]).unwrap(),
            labels: Some(vec!["heron".into(), "grey \"wren\"\n".into()]),
            paths: Some(vec!["a/1.jpg".into(), "b/ü.jpg".into()]),
            cameras: None,
            columns: Columns::new(vec![
                Column::infer("price", ["1.5", ""]).unwrap(),
                Column::infer("shop \"x\"", ["", "ü|a"]).unwrap(),
            ])
            .unwrap(),
            model: Some("sha256:12ab".into()),
            source: Some("data/test".into()),
            sources: Some(Sources::one(Source { name: "/data/test".into(), images: None }, 2)),
            run: Some("runs/one".into()),
            metric: Some(Metric::Euclidean),
            protocol: Some("market1501".into()),
            threshold: Some(MatchRule {
                metric: Metric::Euclidean,
                threshold: 0.3,
                near: 1.0 / 3.0,
                rate: FalseRate::Search,
                target: 0.01,
                measured: 0.1 / 12.0,
                bound: 0.0375,
                confidence: 0.95,
                miss_rate: None,
                gallery: Some(750),
                model: Some("sha256:12ab".into()),
            }),
        }
    }

    const CODES: [Option<Code>; 3] = [None, Some(Code::Bf16), Some(Code::Int8)];

    fn saved(set: &EmbeddingSet) -> Vec<u8> {
        saved_as(set, None)
    }

    fn saved_as(set: &EmbeddingSet, code: Option<Code>) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        match code {
            None => set.save(&path).unwrap(),
            Some(code) => set.save_compact(&path, code).unwrap(),
        }
        fs::read(path).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<EmbeddingSet> {
        parse_verified(Path::new("set.safetensors"), bytes)
    }

    fn foreign(dtype: &str, shape: &str, values: &[u8]) -> Vec<u8> {
        let header = format!(
            "{{\"embeddings\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[0,{}]}}}}",
            values.len()
        );
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(values);
        bytes
    }

    #[test]
    fn a_set_comes_back_as_it_was_and_the_same_set_gives_the_same_bytes() {
        let set = example();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        set.save(&path).unwrap();
        assert_eq!(EmbeddingSet::load(&path).unwrap(), set);
        assert_eq!(saved(&set), saved(&set));
        let bare = EmbeddingSet::from(Matrix::new(0, 5, vec![]).unwrap());
        assert_eq!(read(&saved(&bare)).unwrap(), bare);
    }

    #[test]
    fn rows_of_several_sources_and_of_none_come_back_with_them_in_every_precision() {
        let named =
            |name: &str, images: Option<&str>| Source { name: name.into(), images: images.map(Into::into) };
        let list = || vec![named("/data/\"test\"", None), named("train", Some("/data/train"))];
        let embeddings = Matrix::new(3, 1, vec![1.0, -2.0, 0.0]).unwrap();
        for rows in [[Some(1), Some(0), Some(1)], [None, Some(0), None]] {
            let sources = Some(Sources::new(list(), rows).unwrap());
            let set = EmbeddingSet { sources, ..embeddings.clone().into() };
            for code in CODES {
                let back = read(&saved_as(&set, code)).unwrap();
                assert_eq!(back.sources, set.sources, "{code:?}");
            }
        }
    }

    /// A file with `embeddings` of two rows and a tensor `labels`, as other programs write it.
    fn labelled(dtype: &str, shape: &str, labels: &[u8]) -> Vec<u8> {
        let end = 8 + labels.len();
        let header = format!(
            "{{\"embeddings\":{{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}},\
             \"labels\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[8,{end}]}}}}"
        );
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 8], labels].concat()
    }

    #[test]
    fn labels_of_every_integer_type_and_json_lists_are_read() {
        let labels = |dtype: &str, shape: &str, bytes: &[u8]| {
            read(&labelled(dtype, shape, bytes)).map(|set| set.labels.unwrap())
        };
        for (dtype, bytes) in [
            ("I8", vec![7, 253]),
            ("I16", vec![7, 0, 253, 255]),
            ("I32", [7i32, -3].map(i32::to_le_bytes).concat()),
            ("I64", [7i64, -3].map(i64::to_le_bytes).concat()),
        ] {
            assert_eq!(labels(dtype, "[2]", &bytes).unwrap(), ["7", "-3"], "{dtype}");
            assert_eq!(labels(dtype, "[2,1]", &bytes).unwrap(), ["7", "-3"], "{dtype}, a column");
        }
        assert_eq!(labels("U64", "[2]", &[255; 16]).unwrap(), [u64::MAX.to_string(), u64::MAX.to_string()]);
        assert_eq!(labels("U16", "[2]", &[1, 0, 255, 255]).unwrap(), ["1", "65535"]);
        assert_eq!(labels("U32", "[2]", &[1, 0, 0, 0, 0, 0, 0, 128]).unwrap(), ["1", "2147483648"]);
        // `[]` as text: two labels all the same, since the tensor has one value a row.
        assert_eq!(labels("U8", "[2]", b"[]").unwrap(), ["91", "93"]);
        let json = br#"["heron","wren"]"#;
        assert_eq!(labels("U8", "[16]", json).unwrap(), ["heron", "wren"]);
    }

    #[test]
    fn the_names_of_tables_are_read_as_well() {
        let mut file = labelled("I8", "[2]", &[3, 5]);
        let name = file.windows(8).position(|bytes| bytes == b"\"labels\"").unwrap();
        // The space keeps the length of the header.
        file[name..name + 8].copy_from_slice(b"\"label\" ");
        assert_eq!(read(&file).unwrap().labels.unwrap(), ["3", "5"]);
    }

    #[test]
    fn labels_of_other_types_and_numbers_are_refused_with_what_was_found() {
        for (dtype, shape, bytes, message) in [
            ("F32", "[2]", vec![0; 8], "wanted `labels` of integers or of type U8, a JSON list, found F32"),
            ("I64", "[3]", vec![0; 24], "3 labels for 2 embeddings"),
            ("I32", "[1,2]", vec![0; 8], "wanted `labels` of one integer a row, found the shape [1, 2]"),
            ("U8", "[5]", b"[\"a\"]".to_vec(), "1 labels for 2 embeddings"),
        ] {
            let error = read(&labelled(dtype, shape, &bytes)).unwrap_err();
            assert!(error.to_string().ends_with(message), "{error}");
        }
        let error = read(&labelled("U8", "[3]", b"abc")).unwrap_err();
        assert!(error.to_string().contains("`labels` is no JSON list of strings"), "{error}");
        assert!(error.hint().unwrap().contains("docs/embeddings.md"));
    }

    #[test]
    fn a_finite_f64_that_no_f32_holds_is_named_as_it_is() {
        let bytes: Vec<u8> =
            [1.0, 2.0, 3.0, -1e300f64].iter().flat_map(|value| value.to_le_bytes()).collect();
        let error = read(&foreign("F64", "[2,2]", &bytes)).unwrap_err();
        assert!(
            error.to_string().ends_with("row 1, column 1 is -1e300; f32 holds values up to 3.4e38"),
            "{error}"
        );
        assert!(!error.hint().unwrap().contains("network"));
        let infinite: Vec<u8> =
            [f64::INFINITY, f64::NAN].iter().flat_map(|value| value.to_le_bytes()).collect();
        let read = read(&foreign("F64", "[1,2]", &infinite)).unwrap();
        assert!(read.embeddings.check_finite("embeddings").is_err(), "an infinity is not finite");
    }

    #[test]
    fn files_of_other_programs_are_read() {
        let single: Vec<u8> = [1.5f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let double: Vec<u8> = [1.5f64, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let wanted = EmbeddingSet::from(Matrix::new(1, 2, vec![1.5, 2.0]).unwrap());
        assert_eq!(read(&foreign("F32", "[1,2]", &single)).unwrap(), wanted);
        assert_eq!(read(&foreign("F64", "[1,2]", &double)).unwrap(), wanted);
    }

    #[test]
    fn what_cannot_be_embeddings_is_refused_with_what_was_found() {
        for (bytes, message) in [
            (foreign("F16", "[1,2]", &[0; 4]), "wanted `embeddings` of type F32, F64, BF16 or I8, found F16"),
            (foreign("F32", "[2]", &[0; 8]), "wanted `embeddings` of 2 dimensions, found 1"),
            (b"\x02\0\0\0\0\0\0\0{}".to_vec(), "wanted a tensor `embeddings`, found none"),
        ] {
            let error = read(&bytes).unwrap_err().to_string();
            assert!(error.ends_with(message), "{error}");
        }
        assert!(read(&[255; 16]).is_err(), "a header of 2^64 bytes");
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_refused() {
        for code in CODES {
            let whole = saved_as(&example(), code);
            for length in 0..whole.len() {
                assert!(read(&whole[..length]).is_err(), "cut to {length} bytes");
            }
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 1;
                assert!(read(&damaged).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_compact_set_comes_back_decoded_and_takes_a_half_or_a_quarter() {
        let values = (0..64 * 100).map(|i| (i as f32).sin()).collect();
        let set = EmbeddingSet { embeddings: Matrix::new(64, 100, values).unwrap(), ..example() };
        let set = EmbeddingSet { labels: None, paths: None, sources: None, threshold: None, ..set };
        let set = EmbeddingSet { columns: Columns::default(), ..set };
        let whole = saved(&set).len();
        for (code, most) in [(Code::Bf16, whole / 2 + 300), (Code::Int8, whole / 4 + 600)] {
            let bytes = saved_as(&set, Some(code));
            assert!(bytes.len() <= most, "{code}: {} of {whole} bytes", bytes.len());
            let decoded = CompactMatrix::encode(&set.embeddings, code).unwrap().decode();
            assert_eq!(read(&bytes).unwrap(), EmbeddingSet { embeddings: decoded, ..set.clone() });
        }
        let nan = EmbeddingSet::from(Matrix::new(1, 1, vec![f32::NAN]).unwrap());
        assert!(nan.save_compact("unwritten.safetensors", Code::Bf16).is_err());
    }

    #[test]
    fn int8_of_other_programs_needs_a_scale_for_each_row() {
        let error = read(&foreign("I8", "[2,2]", &[1, 2, 3, 4])).unwrap_err().to_string();
        assert!(error.ends_with("wanted a tensor `scales`, which `embeddings` of type I8 need, found none"));
        let bf16 = read(&foreign("BF16", "[1,2]", &[0x80, 0x3f, 0, 0xc0])).unwrap();
        assert_eq!(bf16.embeddings.as_slice(), [1.0, -2.0]);
    }

    #[test]
    fn a_list_of_another_length_is_neither_written_nor_read() {
        let set = EmbeddingSet { labels: Some(vec!["one".into()]), ..example() };
        let folder = tempfile::tempdir().unwrap();
        let error = set.save(folder.path().join("set.safetensors")).unwrap_err();
        assert_eq!(error.to_string(), "1 labels for 2 embeddings");
        let error = set.save(folder.path().join("set.txt")).unwrap_err().to_string();
        assert!(error.contains("wanted `.npy`"), "{error}");
    }
}
