//! ONNX models and tokenizers: what `gallerist model` says of a file, and opening. The engine asserts what it expects of a
//! model, and Gallerist catches its panics; those of other code must not be caught, which the readers show by an error that
//! is not a panic's.

use std::path::{Path, PathBuf};

use gallerist_onnx::{Engine, Inspection, Model, Rows, TextModel};

use super::quiet::quiet;
use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

/// A graph is checked node by node, each in a model of its own, with the buffers of the engine.
const GRAPH: Limit = Limit { memory: 64 << 20, memory_of_byte: 20_000, ns_of_byte: 200_000, ..Limit::TEXT };

/// The length of the text tower's texts.
const TOKENS: usize = 16;

pub(super) fn model(bytes: &[u8]) {
    let path = scratch::file("input.onnx", bytes);
    let inspection = quiet(|| within(GRAPH, bytes, || Inspection::of_file(&path, Engine::default())));
    let model =
        quiet(|| within(GRAPH, bytes, || Model::open(&path, None, Rows::default(), Engine::default())));
    if inspection.is_ok() {
        reached("inspected");
    }
    if let Ok(model) = model {
        reached("opened");
        let inspection = inspection.expect("a model that is opened can be described");
        assert_eq!(inspection.metadata, *model.metadata());
        assert_eq!(model.sha256().len(), 64);
    }
}

/// `tokenizer.json` of a text tower.
pub(super) fn tokenizer(bytes: &[u8]) {
    let tower = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gallerist-onnx/fixtures/text/clip.onnx");
    let path: PathBuf = scratch::file("tokenizer.json", bytes);
    let model = quiet(|| {
        within(GRAPH, bytes, || TextModel::open(&tower, &path, None, Some(TOKENS), Engine::default()))
    });
    if let Ok(model) = model {
        reached("opened");
        for text in ["a bird", "Ünïcode 漢字 \u{1F426}", "1 + 1"] {
            if quiet(|| within(GRAPH, bytes, || model.embed(text))).is_ok() {
                reached("embedded");
            }
        }
    }
}
