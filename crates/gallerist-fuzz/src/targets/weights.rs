//! Files of weights: PyTorch's formats with their pickles, and safetensors.

use std::io::{Cursor, Write};

use gallerist::weights;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::{repair, scratch};

/// A pickle can name the same storage in many tensors, each of which has values of its own: their number is limited by the
/// reader, not by the bytes.
const PICKLE: Limit = Limit { memory: 64 << 20, ..Limit::TEXT };

/// What becomes of a file of weights.
fn read(bytes: &[u8], limit: Limit) {
    let path = scratch::file("input.pth", bytes);
    let found = within(limit, bytes, || weights::read(&path));
    let _ = within(limit, bytes, || weights::network_of(&path));
    let Ok(found) = found else { return };
    if !found.tensors.is_empty() {
        reached(if bytes.get(8) == Some(&b'{') { "safetensors" } else { "tensors" });
    }
    for (name, data) in &found.tensors {
        let values = data.as_slice::<f32>().unwrap_or_else(|error| panic!("`{name}` is not f32: {error:?}"));
        assert_eq!(values.len(), data.shape().iter().product::<usize>(), "`{name}`");
    }
}

/// Any file.
pub(super) fn file(bytes: &[u8]) {
    let repaired = if bytes.get(8) == Some(&b'{') { repair::safetensors(bytes) } else { bytes.to_vec() };
    read(&repaired, PICKLE);
}

/// A pickle in the archive that `torch.save` writes, with 64 bytes of storage.
pub(super) fn pickle(bytes: &[u8]) {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let storage: Vec<u8> = (0..64).collect();
    let files: [(&str, &[u8]); 5] = [
        ("archive/data.pkl", bytes),
        ("archive/byteorder", b"little"),
        ("archive/data/0", &storage),
        ("archive/data/1", &storage),
        ("archive/version", b"3\n"),
    ];
    for (name, content) in files {
        writer.start_file(name, options).expect("a new name");
        writer.write_all(content).expect("memory");
    }
    read(&writer.finish().expect("memory").into_inner(), PICKLE);
}

/// `preprocessor_config.json`, and the same as `config.json`.
pub(super) fn preprocessor(bytes: &[u8]) {
    let model = scratch::file("prepared/model.onnx", b"");
    for name in ["preprocessor_config.json", "config.json"] {
        scratch::file(&format!("prepared/{name}"), bytes);
        let read =
            within(Limit::TEXT, bytes, || weights::Preprocessing::of_model(&model, &Default::default(), 224));
        if read.is_some() {
            reached("read");
        }
        std::fs::remove_file(scratch::path("prepared").join(name)).expect("a file that was written");
    }
}
