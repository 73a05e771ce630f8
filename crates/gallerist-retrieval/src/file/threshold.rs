//! The threshold of a match in a file that exists.

use std::path::Path;

use safetensors::SafeTensors;
use serde_json::{Map, Value};

use super::map::FileMap;
use super::sealed::{CHECKSUM_DIGITS, write_sealed};
use super::shards::JoinedShards;
use super::tensors::{self, match_rule_text, verify};
use crate::eval::MatchRule;
use crate::{Error, Result};

/// Writes a threshold into an embeddings file in f32, bf16 or int8, a list of shards, or an index: only the metadata change. False for
/// a file of another program, without a checksum; it stays as it is.
///
/// # Errors
/// [`Error::Io`], and [`Error::Format`] for a file that is damaged.
pub fn write_threshold(path: impl AsRef<Path>, rule: &MatchRule) -> Result<bool> {
    let path = path.as_ref();
    if is_list(path) {
        let mut list = JoinedShards::read(path)?;
        list.threshold = Some(rule.clone());
        list.write(path)?;
        return Ok(true);
    }
    let map = FileMap::open(path)?;
    let bytes: &[u8] = &map;
    if !verify(path, bytes)? {
        return Ok(false);
    }
    let (size, _) = SafeTensors::read_metadata(bytes).expect("the header was read");
    let (header, values) = bytes[8..].split_at(size);
    let damaged =
        |problem: String| Error::Format { path: path.to_owned(), format: "safetensors", problem, hint: None };
    let mut header: Map<String, Value> = serde_json::from_slice(header)
        .map_err(|error| damaged(format!("its header is damaged ({error})")))?;
    let metadata = header.get_mut("__metadata__").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| damaged("its header has no metadata".to_owned()))?;
    metadata.insert("threshold".to_owned(), match_rule_text(rule).into());
    metadata.insert("sha256".to_owned(), "0".repeat(CHECKSUM_DIGITS).into());
    write_sealed(path, &header, |take| {
        values.chunks(1 << 20).try_for_each(&mut *take)?;
        // The bytes are those of the file that was opened.
        map.check().map_err(std::io::Error::other)
    })?;
    Ok(true)
}

/// Whether [`write_threshold`] can write into an embeddings file or an index: it has a checksum, or is a list of shards. Only the
/// header is read.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] for a file whose header is damaged, and [`Error::Changed`].
pub fn has_checksum(path: impl AsRef<Path>) -> Result<bool> {
    let path = path.as_ref();
    if is_list(path) {
        return Ok(true);
    }
    let map = FileMap::open(path)?;
    let found = tensors::has_checksum(path, &map);
    map.check()?;
    found
}

/// Whether a file is a list of shards, by its name.
fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// The threshold of a `.safetensors` file of embeddings or a list of shards, if it has one. Only the header is read: the checksum of the file
/// is not compared.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] for a file that is cut short or whose header is damaged, and [`Error::Changed`].
pub fn read_threshold(path: impl AsRef<Path>) -> Result<Option<MatchRule>> {
    let path = path.as_ref();
    if is_list(path) {
        return Ok(JoinedShards::read(path)?.threshold);
    }
    let map = FileMap::open(path)?;
    let found = tensors::open(path, &map).and_then(|(_, metadata)| tensors::threshold(path, &metadata));
    map.check()?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::FalseRate;
    use crate::file::MappedCompact;
    use crate::index::{IndexSettings, Items, create_index, index_kinds, open_index};
    use crate::search::Metric;
    use crate::{Code, EmbeddingSet, Matrix};

    #[test]
    fn only_the_threshold_of_a_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        let rule = MatchRule {
            metric: Metric::Cosine,
            threshold: 0.5,
            near: 0.25,
            rate: FalseRate::Comparison,
            target: 0.001,
            measured: 0.0005,
            bound: 0.01,
            confidence: 0.95,
            miss_rate: Some(0.25),
            gallery: None,
            model: None,
        };
        let values = (0..24).map(|i| (i as f32).sin()).collect();
        let set = EmbeddingSet {
            labels: Some((0..6).map(|i| format!("ü{i}")).collect()),
            ..Matrix::new(6, 4, values).unwrap().into()
        };
        for code in [None, Some(Code::Bf16), Some(Code::Int8)] {
            match code {
                None => set.save(&path).unwrap(),
                Some(code) => set.save_compact(&path, code).unwrap(),
            }
            assert_eq!(read_threshold(&path).unwrap(), None);
            let before = EmbeddingSet::load(&path).unwrap();
            assert!(write_threshold(&path, &rule).unwrap());
            let after = EmbeddingSet::load(&path).unwrap();
            assert_eq!(after, EmbeddingSet { threshold: Some(rule.clone()), ..before });
            assert_eq!(read_threshold(&path).unwrap().as_ref(), Some(&rule));
            if code.is_some() {
                MappedCompact::open(&path).unwrap().verify().unwrap();
            }
        }
        for kind in index_kinds() {
            let mut index = create_index(kind, 4, Metric::Cosine, &IndexSettings::default()).unwrap();
            index.upsert(&Items::from_set(set.clone()).unwrap()).unwrap();
            index.save(&path).unwrap();
            assert!(write_threshold(&path, &rule).unwrap());
            let read = open_index(&path, true).unwrap();
            assert_eq!(read.origin().unwrap().threshold.as_ref(), Some(&rule));
            assert_eq!(read.info().unwrap().count, 6);
        }
        let tensor =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1, 1], &[0; 4]).unwrap();
        safetensors::serialize_to_file([("embeddings", tensor)], None, &path).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(!write_threshold(&path, &rule).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_threshold_is_read_without_the_values_but_not_from_a_file_that_is_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.safetensors");
        let set: EmbeddingSet = Matrix::new(2, 2, vec![1.0, 2.0, 3.0, 4.0]).unwrap().into();
        set.save(&path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // A value that changed is found by `load` only.
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(EmbeddingSet::load(&path).is_err());
        assert_eq!(read_threshold(&path).unwrap(), None);
        for length in [0, 4, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(matches!(read_threshold(&path), Err(Error::Format { .. })), "{length}");
        }
        assert!(matches!(read_threshold(folder.path().join("none.safetensors")), Err(Error::Io { .. })));
    }
}
