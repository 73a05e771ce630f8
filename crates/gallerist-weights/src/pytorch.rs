//! PyTorch's two file formats: a zip archive with a pickle and one entry per storage (since 1.6), and the older format,
//! pickles followed by the storages.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use burn::tensor::DType;
use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

use super::pickle::{Fault, Pickle, StorageOf, TensorOf, Value};
use super::tensors::{Weights, bad, floats};
use crate::{Error, Result};

/// Nesting of dictionaries that are looked into (`checkpoint["model"]["state_dict"]`).
const DEPTH: usize = 8;

/// The magic number of the older format, as Python writes it.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

fn refuse(path: &Path, fault: Fault) -> Error {
    match fault {
        Fault::Foreign(name) => bad(
            path,
            format!(
                "it wants `{name}` of Python to be run; only tensors are taken from a file, nothing is run"
            ),
            Some("save tensors alone: torch.save(model.state_dict(), FILE), or as safetensors".into()),
        ),
        Fault::Damaged(reason) => damaged(path, format!("its pickle cannot be read: {reason}")),
    }
}

fn damaged(path: &Path, reason: String) -> Error {
    bad(path, reason, Some("the file may be damaged; fetch or write it again".into()))
}

/// Type and size of a storage's elements; `None` for a type that is no floating point.
fn element(name: &str) -> (Option<DType>, usize) {
    match name {
        "f64" => (Some(DType::F64), 8),
        "f32" => (Some(DType::F32), 4),
        "f16" => (Some(DType::F16), 2),
        "bf16" => (Some(DType::BF16), 2),
        "i64" => (None, 8),
        "i32" => (None, 4),
        "i16" => (None, 2),
        _ => (None, 1),
    }
}

/// Bytes of a storage, or none where they would be more than memory can hold.
fn byte_count(storage: &StorageOf) -> Option<usize> {
    storage.count.checked_mul(element(storage.element).1)
}

pub(super) fn read_zip(path: &Path, file: File) -> Result<Weights> {
    let io = |source| Error::Io { action: "read", path: path.into(), source };
    let length = file.metadata().map_err(io)?.len();
    let zip = |e: zip::result::ZipError| damaged(path, format!("it is no whole zip file: {e}"));
    // PyTorch writes nothing before its archives. Found by the size of the directory, the start may be wrong, because PyTorch writes
    // the records of zip64 in between.
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let mut archive = ZipArchive::with_config(config, file).map_err(zip)?;
    let mut entries: HashMap<String, usize> = HashMap::new();
    let mut root = None;
    for i in 0..archive.len() {
        let name = archive
            .name_for_index(i)
            .and_then(std::result::Result::ok)
            .map_or_else(String::new, std::borrow::Cow::into_owned);
        if let Some(folder) = name.strip_suffix("data.pkl") {
            root = Some(folder.to_string());
        }
        entries.insert(name, i);
    }
    let Some(root) = root else {
        return Err(bad(path, "it is a zip file without `data.pkl`, so none of PyTorch's".into(), None));
    };
    if entries.contains_key(&format!("{root}code/__torch__.py"))
        || entries.contains_key(&format!("{root}constants.pkl"))
    {
        let reason = "it is a TorchScript program, which would have to be run";
        let hint = "save tensors alone: torch.save(model.state_dict(), FILE)";
        return Err(bad(path, reason.into(), Some(hint.into())));
    }
    let mut bytes_of = |name: &str, wanted: Option<usize>| -> Result<Vec<u8>> {
        let Some(&index) = entries.get(name) else {
            return Err(damaged(path, format!("the entry `{name}` is missing")));
        };
        let mut entry = archive.by_index(index).map_err(zip)?;
        // PyTorch does not compress. So no entry is larger than the file, and none can be blown up.
        let size = entry.size();
        if entry.compression() != CompressionMethod::Stored || size > length {
            return Err(damaged(path, format!("the entry `{name}` is compressed or larger than the file")));
        }
        if wanted.is_some_and(|wanted| wanted as u64 != size) {
            let wanted = wanted.unwrap_or(0);
            return Err(damaged(path, format!("the entry `{name}` has {size} bytes, {wanted} are wanted")));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        entry.read_to_end(&mut bytes).map_err(io)?;
        // The directory of the archive has two sizes, of which a damaged one can differ from the other.
        if bytes.len() as u64 != size {
            return Err(damaged(
                path,
                format!("the entry `{name}` has {} bytes instead of {size}", bytes.len()),
            ));
        }
        Ok(bytes)
    };
    let order = format!("{root}byteorder");
    if entries.contains_key(&order) && bytes_of(&order, None)? != b"little" {
        return Err(bad(path, "its numbers are big endian, which is not read".into(), None));
    }
    let program = bytes_of(&format!("{root}data.pkl"), None)?;
    let mut pickle = Pickle::new(&program);
    let top = pickle.load().map_err(|fault| refuse(path, fault))?;
    let storages = pickle
        .storages
        .iter()
        .map(|storage| {
            let wanted = byte_count(storage).ok_or_else(|| damaged(path, too_large(storage)))?;
            bytes_of(&format!("{root}data/{}", storage.key), Some(wanted))
        })
        .collect::<Result<Vec<_>>>()?;
    collect(path, &pickle, &top, &storages.iter().map(Vec::as_slice).collect::<Vec<_>>(), length)
}

fn too_large(storage: &StorageOf) -> String {
    format!("a storage of {} elements is more than memory can hold", storage.count)
}

pub(super) fn read_legacy(path: &Path, bytes: &[u8]) -> Result<Weights> {
    let fault = |fault| refuse(path, fault);
    let mut pickle = Pickle::new(bytes);
    // Magic number, version of the format, sizes of the writer's types, then the data.
    let magic = pickle.load().map_err(fault)?;
    if !matches!(&magic, Value::Long(long) if long[..] == MAGIC) {
        let reason = "it is a Python pickle, but none of PyTorch's";
        return Err(bad(path, reason.into(), Some("write it with torch.save, or as safetensors".into())));
    }
    pickle.load().map_err(fault)?;
    let system = pickle.load().map_err(fault)?;
    let little = pickle
        .dict(&system)
        .is_some_and(|entries| entries.contains(&(Value::Text("little_endian".into()), Value::Bool(true))));
    if !little {
        return Err(bad(path, "its numbers are not little endian, which is not read".into(), None));
    }
    let top = pickle.load().map_err(fault)?;
    let keys = pickle.load().map_err(fault)?;
    let mut rest = &bytes[pickle.position()..];
    let mut places: HashMap<&str, &[u8]> = HashMap::new();
    let mut of_keys: HashMap<&str, &StorageOf> = HashMap::new();
    for storage in &pickle.storages {
        of_keys.entry(&storage.key).or_insert(storage);
    }
    for key in pickle.sequence(&keys).unwrap_or(&[]) {
        let Value::Text(key) = key else { return Err(damaged(path, "a storage without a name".into())) };
        let Some(storage) = of_keys.get(&**key) else {
            return Err(damaged(path, format!("the storage `{key}` is not referred to")));
        };
        let wanted = byte_count(storage).and_then(|count| count.checked_add(8));
        let Some((whole, behind)) = wanted.and_then(|wanted| rest.split_at_checked(wanted)) else {
            return Err(damaged(path, format!("it is cut short in the storage `{key}`")));
        };
        let (count, data) = whole.split_first_chunk::<8>().expect("8 bytes were added");
        if u64::from_le_bytes(*count) != storage.count as u64 {
            return Err(damaged(
                path,
                format!("the storage `{key}` has another length than the pickle says"),
            ));
        }
        places.insert(key, data);
        rest = behind;
    }
    let storages = pickle
        .storages
        .iter()
        .map(|storage| match places.get(&*storage.key) {
            Some(data) if Some(data.len()) == byte_count(storage) => Ok(*data),
            _ => Err(damaged(path, format!("the storage `{}` is missing", storage.key))),
        })
        .collect::<Result<Vec<_>>>()?;
    collect(path, &pickle, &top, &storages, bytes.len() as u64)
}

/// All tensors in the nested dictionaries of a pickle; names joined by dots.
fn collect(
    path: &Path,
    pickle: &Pickle<'_>,
    top: &Value,
    storages: &[&[u8]],
    length: u64,
) -> Result<Weights> {
    let mut weights = Weights { path: path.into(), ..Default::default() };
    // Tensors may share a storage. That must not make more of a file than it can be meant to hold.
    let mut room = length.saturating_mul(8);
    let mut open = vec![(String::new(), top, 0)];
    while let Some((name, value, depth)) = open.pop() {
        if let Some(entries) = pickle.dict(value).filter(|_| depth < DEPTH) {
            for (key, value) in entries.iter().rev() {
                let key = match key {
                    Value::Text(key) => key.to_string(),
                    Value::Int(key) => key.to_string(),
                    _ => continue,
                };
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                // A cycle of dictionaries would have exponentially many names, so each step reduces a budget, also one by an
                // empty key.
                room = room.checked_sub(name.len() as u64 + 1).ok_or_else(|| damaged(path, too_much()))?;
                open.push((name, value, depth + 1));
            }
        } else if let Value::Tensor(tensor) = value {
            let tensor = &pickle.tensors[*tensor];
            let storage = &pickle.storages[tensor.storage];
            let (dtype, size) = element(storage.element);
            let count = elements(tensor, storage.count).ok_or_else(|| {
                let TensorOf { shape, strides, offset, .. } = tensor;
                damaged(path, format!(
                    "`{name}`, {shape:?} with strides {strides:?} from {offset}, reaches beyond its storage of {}",
                    storage.count
                ))
            })?;
            let Some(dtype) = dtype else {
                weights.others.push((name, storage.element.into(), tensor.shape.clone()));
                continue;
            };
            room = room.checked_sub(4 * count as u64).ok_or_else(|| damaged(path, too_much()))?;
            let bytes = gather(tensor, storages[tensor.storage], size, count);
            weights.tensors.insert(name, floats(bytes, tensor.shape.clone(), dtype));
        }
    }
    if weights.tensors.is_empty() {
        return Err(bad(path, "there is no tensor in it".into(), None));
    }
    Ok(weights)
}

fn too_much() -> String {
    "its tensors are many times as large as the file".into()
}

/// Number of elements, where every one of them is in the storage and none is there more often than the
/// storage is long.
fn elements(tensor: &TensorOf, storage: usize) -> Option<usize> {
    let count = tensor.shape.iter().try_fold(1usize, |count, &side| count.checked_mul(side))?;
    if count == 0 {
        return Some(0);
    }
    let last =
        tensor.shape.iter().zip(&tensor.strides).try_fold(tensor.offset, |last, (&side, &stride)| {
            last.checked_add((side - 1).checked_mul(stride)?)
        })?;
    (last < storage && count <= storage).then_some(count)
}

/// The bytes of a tensor's elements in the order of its dimensions.
fn gather(tensor: &TensorOf, storage: &[u8], size: usize, count: usize) -> Vec<u8> {
    let TensorOf { offset, shape, strides, .. } = tensor;
    if count == 0 {
        return Vec::new();
    }
    let mut dense = 1;
    let contiguous = shape.iter().zip(strides).rev().all(|(&side, &stride)| {
        let fits = side == 1 || stride == dense;
        dense *= side;
        fits
    });
    if contiguous {
        return storage[offset * size..][..count * size].to_vec();
    }
    let mut bytes = Vec::with_capacity(count * size);
    let mut index = vec![0; shape.len()];
    for _ in 0..count {
        let at = offset + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        bytes.extend_from_slice(&storage[at * size..][..size]);
        for (i, &side) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < side {
                break;
            }
            *i = 0;
        }
    }
    bytes
}
