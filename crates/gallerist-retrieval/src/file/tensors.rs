//! Embedding sets as `.safetensors` files.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{EmbeddingSet, write_atomically};
use crate::{Error, Matrix, Result};

const FORMAT: &str = "gallerist-embeddings";
const VERSION: &str = "1";
const AGAIN: &str = "copy or write the file again";
/// What stands before the checksum in the header. Inside a JSON string the quotes would be
/// escaped, so it stands there once.
const CHECKSUM_KEY: &[u8] = b"\"sha256\":\"";
const CHECKSUM_DIGITS: usize = 64;

fn refuse(path: &Path, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Format {
        path: path.to_owned(),
        format: "safetensors",
        problem: problem.into(),
        hint: hint.map(str::to_owned),
    }
}

pub(super) fn load(path: &Path) -> Result<EmbeddingSet> {
    let bytes = fs::read(path).map_err(|source| Error::io("read", path, source))?;
    // `deserialize` checks every offset and shape against the bytes that are there.
    let tensors = SafeTensors::deserialize(&bytes)
        .map_err(|error| refuse(path, format!("it is cut short or damaged ({error})"), Some(AGAIN)))?;
    let (header_size, metadata) = SafeTensors::read_metadata(&bytes)
        .map_err(|error| refuse(path, format!("its header is damaged ({error})"), Some(AGAIN)))?;
    let metadata = metadata.metadata().clone().unwrap_or_default();

    let ours = metadata.get("format").is_some_and(|format| format == FORMAT);
    if ours || metadata.contains_key("sha256") {
        let (header, values) = bytes[8..].split_at(header_size);
        let found = checksum_span(header).map(|span| {
            let mut blank = header.to_vec();
            blank[span].fill(b'0');
            hex(&Sha256::new().chain_update(&blank).chain_update(values).finalize())
        });
        if found.is_none() || metadata.get("sha256") != found.as_ref() {
            let problem = "its checksum is not the one it was written with";
            return Err(refuse(path, problem, Some(AGAIN)));
        }
    }
    if ours {
        let found = metadata.get("format_version").map_or("none", String::as_str);
        if found != VERSION {
            let problem = format!("wanted format version {VERSION}, found {found}");
            return Err(refuse(path, problem, None));
        }
    }

    let tensor = tensors.tensor("embeddings").map_err(|_| {
        let names = tensors.names().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        refuse(path, format!("wanted a tensor `embeddings`, found {found}"), None)
    })?;
    let [rows, cols] = tensor.shape()[..] else {
        let found = tensor.shape().len();
        return Err(refuse(path, format!("wanted `embeddings` of 2 dimensions, found {found}"), None));
    };
    let values = match tensor.dtype() {
        Dtype::F32 => tensor.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        Dtype::F64 => tensor.data().as_chunks().0.iter().map(|&b| f64::from_le_bytes(b) as f32).collect(),
        other => {
            return Err(refuse(
                path,
                format!("wanted `embeddings` of type F32 or F64, found {other}"),
                Some("save them in single precision"),
            ));
        }
    };
    let list = |name: &str| -> Result<Option<Vec<String>>> {
        let Ok(tensor) = tensors.tensor(name) else { return Ok(None) };
        if tensor.dtype() != Dtype::U8 {
            let problem = format!("wanted `{name}` of type U8, found {}", tensor.dtype());
            return Err(refuse(path, problem, None));
        }
        let list = serde_json::from_slice(tensor.data())
            .map_err(|error| refuse(path, format!("`{name}` is no JSON list of strings: {error}"), None))?;
        Ok(Some(list))
    };
    let set = EmbeddingSet {
        embeddings: Matrix::new(rows, cols, values)?,
        labels: list("labels")?,
        paths: list("paths")?,
        cameras: list("cameras")?,
        model: metadata.get("model").cloned(),
        source: metadata.get("source").cloned(),
        run: metadata.get("run").cloned(),
    };
    set.check_counts().map_err(|error| refuse(path, error.to_string(), None))?;
    Ok(set)
}

/// The header is written here and not by the `safetensors` crate, whose metadata is a hash map:
/// the same set gives the same bytes.
pub(super) fn save(path: &Path, set: &EmbeddingSet) -> Result<()> {
    let matrix = &set.embeddings;
    let mut header = Map::new();
    let mut end = size_of_val(matrix.as_slice());
    header.insert(
        "embeddings".to_owned(),
        json!({"dtype": "F32", "shape": [matrix.rows(), matrix.cols()], "data_offsets": [0, end]}),
    );
    let mut lists = Vec::new();
    for (name, list) in [("labels", &set.labels), ("paths", &set.paths), ("cameras", &set.cameras)] {
        let Some(list) = list else { continue };
        let text = serde_json::to_vec(list).expect("a list of strings is valid JSON");
        let start = end;
        end += text.len();
        header.insert(
            name.to_owned(),
            json!({"dtype": "U8", "shape": [text.len()], "data_offsets": [start, end]}),
        );
        lists.push(text);
    }
    let mut metadata = Map::new();
    let mut note = |key: &str, value: &str| metadata.insert(key.to_owned(), Value::from(value));
    note("format", FORMAT);
    note("format_version", VERSION);
    note("sha256", &"0".repeat(CHECKSUM_DIGITS));
    if let Some(model) = &set.model {
        note("model", model);
    }
    if let Some(source) = &set.source {
        note("source", source);
    }
    if let Some(run) = &set.run {
        note("run", run);
    }
    header.insert("__metadata__".to_owned(), Value::Object(metadata));

    let mut header = serde_json::to_vec(&header).expect("a header is valid JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut checksum = Sha256::new_with_prefix(&header);
    encode(matrix.as_slice(), |bytes| {
        checksum.update(bytes);
        Ok(())
    })
    .expect("a checksum takes every byte");
    lists.iter().for_each(|list| checksum.update(list));
    let span = checksum_span(&header).expect("the checksum stands in the header");
    header[span].copy_from_slice(hex(&checksum.finalize()).as_bytes());
    write_atomically(path, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        encode(matrix.as_slice(), |bytes| file.write_all(bytes))?;
        lists.iter().try_for_each(|list| file.write_all(list))
    })
}

/// Hands the little-endian bytes of `values` to `take`, a block at a time.
fn encode(values: &[f32], mut take: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut block = Vec::with_capacity(1 << 16);
    for values in values.chunks(1 << 14) {
        block.clear();
        for value in values {
            block.write_all(&value.to_le_bytes())?;
        }
        take(&block)?;
    }
    Ok(())
}

/// Where the digits of the checksum stand in a header.
fn checksum_span(header: &[u8]) -> Option<Range<usize>> {
    let key = header.windows(CHECKSUM_KEY.len()).position(|window| window == CHECKSUM_KEY)?;
    let start = key + CHECKSUM_KEY.len();
    (start + CHECKSUM_DIGITS <= header.len()).then_some(start..start + CHECKSUM_DIGITS)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> EmbeddingSet {
        EmbeddingSet {
            embeddings: Matrix::new(2, 3, vec![1.0, -2.0, 0.5, 1e-40, 0.0, 3.0]).unwrap(),
            labels: Some(vec!["heron".into(), "grey \"wren\"\n".into()]),
            paths: Some(vec!["a/1.jpg".into(), "b/ü.jpg".into()]),
            cameras: None,
            model: Some("sha256:12ab".into()),
            source: Some("data/test".into()),
            run: Some("runs/one".into()),
        }
    }

    fn saved(set: &EmbeddingSet) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        set.save(&path).unwrap();
        fs::read(path).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<EmbeddingSet> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        fs::write(&path, bytes).unwrap();
        EmbeddingSet::load(path)
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
        assert_eq!(read(&saved(&set)).unwrap(), set);
        assert_eq!(saved(&set), saved(&set));
        let bare = EmbeddingSet::from(Matrix::new(0, 5, vec![]).unwrap());
        assert_eq!(read(&saved(&bare)).unwrap(), bare);
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
            (foreign("F16", "[1,2]", &[0; 4]), "wanted `embeddings` of type F32 or F64, found F16"),
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
        let whole = saved(&example());
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "cut to {length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_list_of_another_length_is_neither_written_nor_read() {
        let set = EmbeddingSet { labels: Some(vec!["one".into()]), ..example() };
        let folder = tempfile::tempdir().unwrap();
        let error = set.save(folder.path().join("set.safetensors")).unwrap_err();
        assert_eq!(error.to_string(), "1 labels for 2 embeddings");
        let error = set.save(folder.path().join("set.txt")).unwrap_err().to_string();
        assert!(error.ends_with("wanted `.npy` or `.safetensors`"), "{error}");
    }
}
