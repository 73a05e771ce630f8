//! Files written by PyTorch (`bench/networks/files.py`), by others, and damaged ones.

use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use gallerist_weights::Error;
use gallerist_weights::{self as weights, Weights};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};

use crate::formula;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/weights").join(name)
}

fn read(name: &str) -> Weights {
    weights::read(&fixture(name)).unwrap()
}

/// Message and hint of a file that is refused.
fn refusal(path: &Path) -> (String, String) {
    let error = weights::read(path).unwrap_err();
    assert!(matches!(error, Error::Weights { .. }), "{error}");
    (error.to_string(), error.hint().unwrap_or_default())
}

fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// The tensors of the fixtures, each name after `prefix`.
fn check(weights: &Weights, prefix: &str) {
    let tensor = |name: &str| &weights.tensors[&format!("{prefix}{name}")];
    let close = |name: &str, wanted: &TensorData, tolerance: f32| {
        let found = tensor(name);
        assert_eq!(found.shape(), wanted.shape(), "{name}");
        let pairs = found.as_slice::<f32>().unwrap().iter().zip(wanted.as_slice::<f32>().unwrap());
        for (f, w) in pairs {
            assert!((f - w).abs() <= tolerance * w.abs().max(1e-3), "{name}: {f} instead of {w}");
        }
    };
    close("conv.weight", &formula::tensor("conv.weight", &[4, 3, 3, 3]), 0.0);
    close("half.weight", &formula::tensor("half.weight", &[5, 7]), 1e-3);
    close("brain.weight", &formula::tensor("brain.weight", &[5, 7]), 8e-3);
    close("double.bias", &formula::tensor("double.bias", &[6]), 0.0);
    close("transposed.weight", &formula::tensor("transposed.weight", &[6, 8]), 0.0);
    let whole = formula::tensor("whole.weight", &[10, 4]);
    close("whole.weight", &whole, 0.0);
    let rows = whole.as_slice::<f32>().unwrap()[8..20].to_vec();
    close("rows.weight", &TensorData::new(rows, [3, 4]), 0.0);
    assert_eq!(tensor("scalar").shape().to_vec(), Vec::<usize>::new());
    assert_eq!(tensor("empty").shape().to_vec(), [0, 3]);
    assert_eq!(weights.tensors.len(), 9);
    assert_eq!(weights.others, [(format!("{prefix}bn.num_batches_tracked"), "i64".into(), Vec::new())]);
}

#[test]
fn both_formats_of_pytorch_give_the_values_that_were_written() {
    check(&read("zip.pth"), "");
    check(&read("legacy.pth"), "");
    check(&read("nested.pth"), "state_dict.");
}

#[test]
fn a_pickle_that_wants_to_run_code_is_refused_by_name() {
    for name in ["code-zip.pth", "code-legacy.pth"] {
        let (message, hint) = refusal(&fixture(name));
        assert!(message.contains("`posix.system`") && message.contains("nothing is run"), "{message}");
        assert!(hint.contains("state_dict"), "{hint}");
    }
    let (message, _) = refusal(&fixture("module.pth"));
    assert!(message.contains("`torch.nn.modules.linear.Linear`"), "{message}");
}

#[test]
fn files_of_other_kinds_are_refused() {
    assert!(refusal(&fixture("plain.pkl")).0.contains("none of PyTorch's"));
    assert!(refusal(&fixture("foreign.zip")).0.contains("without `data.pkl`"));
    for bytes in [&b""[..], b"x", b"\x89PNG\r\n\x1a\n", b"weights of a network, in words"] {
        let (_folder, path) = written(bytes);
        assert!(refusal(&path).0.contains("of no format that is read"));
    }
    assert!(matches!(weights::read(Path::new("/no/such/file")), Err(Error::Io { .. })));
}

#[test]
fn a_header_of_four_gigabytes_in_a_small_file_takes_no_memory() {
    for length in [u64::from(u32::MAX), u64::MAX, 1 << 40] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{\"a\":{\"dtype\":\"F32\",\"shape\":[1073741824],\"data_offsets\":[0,4294967296]}}");
        let (_folder, path) = written(&bytes);
        assert!(refusal(&path).0.contains("no whole safetensors file"));
    }
    let header = b"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967295,4294967295],\"data_offsets\":[0,4]}}";
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([0; 4]);
    let (_folder, path) = written(&bytes);
    assert!(refusal(&path).0.contains("no whole safetensors file"));
}

#[test]
fn a_cut_file_is_refused_wherever_it_is_cut() {
    for name in ["zip.pth", "legacy.pth"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        for cut in (0..whole.len()).step_by(23).chain([whole.len() - 1]) {
            let (_folder, path) = written(&whole[..cut]);
            refusal(&path);
        }
    }
}

#[test]
fn half_precision_in_safetensors_becomes_f32() {
    let (half, brain): (Vec<u8>, Vec<u8>) =
        ([0x00, 0x3e, 0x00, 0xc0].into(), [0xc0, 0x3f, 0x00, 0xc0].into());
    let counter = [3, 0, 0, 0, 0, 0, 0, 0];
    let views = [
        ("half", TensorView::new(Dtype::F16, vec![2], &half).unwrap()),
        ("brain", TensorView::new(Dtype::BF16, vec![2], &brain).unwrap()),
        ("count", TensorView::new(Dtype::I64, vec![], &counter).unwrap()),
    ];
    let (_folder, path) = written(&safetensors::serialize(views, None).unwrap());
    let weights = weights::read(&path).unwrap();
    for name in ["half", "brain"] {
        assert_eq!(weights.tensors[name].as_slice::<f32>().unwrap(), [1.5, -2.0], "{name}");
    }
    assert_eq!(weights.others, [("count".into(), "I64".into(), Vec::new())]);
}

/// A legacy file around a pickle written by hand, with one storage of four numbers.
fn legacy(data: &[u8]) -> Vec<u8> {
    let whole = std::fs::read(fixture("legacy.pth")).unwrap();
    // Magic number, version and system information, each a pickle.
    let start = 137;
    assert_eq!(&whole[start - 3..start], b"uu.");
    let mut bytes = whole[..start].to_vec();
    bytes.extend(data);
    bytes.extend(b"\x80\x02](X\x01\x00\x00\x000e.");
    bytes.extend(4u64.to_le_bytes());
    bytes.extend([0u8; 16]);
    bytes
}

fn tensor_pickle(count: u8, shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let mut data = b"\x80\x02}X\x01\x00\x00\x00ac".to_vec();
    data.extend(b"torch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n");
    data.extend(b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK");
    data.push(count);
    data.extend(b"NtQK\x00(");
    shape.iter().for_each(|&side| data.extend([b'K', side]));
    data.extend(b"t(");
    strides.iter().for_each(|&stride| data.extend([b'K', stride]));
    data.extend(b"t\x89NtRs.");
    data
}

#[test]
fn a_tensor_that_reaches_beyond_its_storage_is_refused() {
    let read = |pickle: Vec<u8>| {
        let (_folder, path) = written(&legacy(&pickle));
        weights::read(&path).map_err(|e| e.to_string())
    };
    assert_eq!(read(tensor_pickle(4, &[2, 2], &[2, 1])).unwrap().tensors["a"].shape().to_vec(), [2, 2]);
    for (shape, strides) in [(&[5][..], &[1][..]), (&[2, 2], &[3, 1]), (&[200, 200], &[0, 0]), (&[2], &[4])] {
        let message = read(tensor_pickle(4, shape, strides)).unwrap_err();
        assert!(message.contains("reaches beyond its storage of 4"), "{message}");
    }
    // Nothing is in an empty tensor, wherever it starts.
    assert_eq!(read(tensor_pickle(4, &[0, 9], &[9, 1])).unwrap().tensors["a"].shape().to_vec(), [0, 9]);
    assert!(read(tensor_pickle(9, &[2], &[1])).unwrap_err().contains("cut short in the storage"));
    assert!(read(tensor_pickle(3, &[2], &[1])).unwrap_err().contains("another length"));
}

#[test]
fn deep_nesting_and_cycles_neither_overflow_nor_run_forever() {
    let mut deep = b"\x80\x02".to_vec();
    deep.extend(std::iter::repeat_n(b']', 200_000));
    deep.extend(std::iter::repeat_n(b'a', 199_999));
    deep.push(b'.');
    let (_folder, path) = written(&legacy(&deep));
    refusal(&path);
    // A dictionary that has itself under two keys.
    let cycle = with_itself(b"X\x01\x00\x00\x00ch\x00X\x01\x00\x00\x00bh\x00");
    let (_folder, path) = written(&legacy(&cycle));
    assert!(refusal(&path).0.contains("many times as large as the file"));
}

/// A dictionary with the tensor `a`, number 0 of the memo, and further entries.
fn with_itself(entries: &[u8]) -> Vec<u8> {
    let mut pickle = tensor_pickle(4, &[2], &[1]);
    pickle.splice(3..3, *b"q\x00");
    pickle.pop();
    [&pickle[..], b"(", entries, b"u."].concat()
}

#[test]
fn a_dictionary_with_itself_under_many_empty_keys_is_refused() {
    // Names stay empty at every level: 200^8 paths.
    let cycle = with_itself(&b"X\x00\x00\x00\x00h\x00".repeat(200));
    let (_folder, path) = written(&legacy(&cycle));
    assert!(refusal(&path).0.contains("many times as large as the file"));
}

#[test]
fn a_list_that_is_recalled_for_many_dictionaries_is_refused() {
    // A list of 20,000 pairs, then 20,000 dictionaries of it.
    let mut recalled = b"\x80\x02]q\x00(".to_vec();
    recalled.extend(b"K\x01K\x02\x86".repeat(20_000));
    recalled.extend(b"e\x85q\x01ccollections\nOrderedDict\nq\x02");
    recalled.extend(b"h\x02h\x01R0".repeat(20_000));
    recalled.push(b'.');
    let (_folder, path) = written(&legacy(&recalled));
    let (message, _) = refusal(&path);
    assert!(message.contains("its calls copy many times as many values as it has"), "{message}");
}

#[test]
fn a_tensor_of_too_many_sides_is_refused() {
    let (_folder, path) = written(&legacy(&tensor_pickle(4, &[1; 65], &[1; 65])));
    assert!(refusal(&path).0.contains("a tensor of 65 sides"));
    let (_folder, path) = written(&legacy(&tensor_pickle(4, &[1; 64], &[1; 64])));
    assert_eq!(weights::read(&path).unwrap().tensors["a"].shape().len(), 64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_file_is_read_or_refused_but_never_more(
        legacy in any::<bool>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let name = if legacy { "legacy.pth" } else { "zip.pth" };
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let (_folder, path) = written(&bytes);
        let _ = weights::read(&path);
    }
}
