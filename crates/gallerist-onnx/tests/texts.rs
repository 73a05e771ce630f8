//! Small text towers against onnxruntime and Hugging Face's tokenizers (`bench/onnx/text_fixtures.py`), and files that
//! cannot be used.

mod common;

use std::path::{Path, PathBuf};

use common::engines;
use gallerist_onnx::{Engine, MAX_TEXT_BYTES, TextModel};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/text").join(name)
}

fn open(tower: &str) -> TextModel {
    open_with(tower, Engine::default())
}

fn open_with(tower: &str, engine: Engine) -> TextModel {
    TextModel::open(&file(tower), &file("tokenizer.json"), None, None, engine).unwrap()
}

#[test]
fn rows_agree_with_onnxruntime_and_hugging_faces_tokenizers() {
    let text = std::fs::read_to_string(file("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let towers = [("clip", 16, "text_embeds"), ("siglip", 8, "pooler_output")];
    for (engine, (tower, length, output)) in
        engines().into_iter().flat_map(|engine| towers.map(|tower| (engine, tower)))
    {
        let model = open_with(&format!("{tower}.onnx"), engine);
        assert_eq!((model.length(), model.output()), (length, output));
        let entries = expected["towers"][tower].as_array().unwrap();
        assert_eq!(entries.len(), 4);
        for entry in entries {
            let found = model.embed(entry["text"].as_str().unwrap()).unwrap();
            assert_eq!(found.cut_to.is_some(), entry["cut"].as_bool().unwrap(), "{entry}");
            let wanted: Vec<f32> = serde_json::from_value(entry["row"].clone()).unwrap();
            assert_eq!(found.row.len(), wanted.len());
            for (found, wanted) in found.row.iter().zip(&wanted) {
                assert!((found - wanted).abs() < 1e-5, "{tower}: {found} where onnxruntime has {wanted}");
            }
        }
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_and_says_so() {
    let model = open("clip.onnx");
    let words = |count: usize| "leather ".repeat(count);
    assert_eq!(model.embed("a red shoe").unwrap().cut_to, None);
    let cut = model.embed(&words(100)).unwrap();
    assert_eq!(cut.cut_to, Some(16));
    assert_eq!(cut.row, model.embed(&words(101)).unwrap().row);
    let error = model.embed(&"x".repeat(MAX_TEXT_BYTES + 1)).unwrap_err().to_string();
    assert!(error.contains("65537 bytes"), "{error}");
    for empty in ["", "  \n"] {
        assert_eq!(model.embed(empty).unwrap_err().to_string(), "the text is empty");
    }
}

#[test]
fn the_length_is_of_the_model_or_given_or_published() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("tokenizer.json");
    std::fs::copy(file("tokenizer.json"), &alone).unwrap();
    let of = |tower: &str, length| TextModel::open(&file(tower), &alone, None, length, Engine::default());
    assert_eq!(of("siglip.onnx", None).unwrap().length(), 8);
    let error = of("siglip.onnx", Some(16)).unwrap_err();
    assert!(error.to_string().contains("texts of 8 tokens, not 16"), "{error}");
    let error = of("clip.onnx", None).unwrap_err();
    assert!(error.hint().unwrap().contains("text.length"), "{error}");
    // The last token of CLIP's texts is also its padding.
    let given = of("clip.onnx", Some(16)).unwrap();
    assert_eq!(given.embed("a red shoe").unwrap(), open("clip.onnx").embed("a red shoe").unwrap());
    assert_ne!(given.sha256(), open("clip.onnx").sha256(), "the configuration counts");
    let error = of("clip.onnx", Some(12)).unwrap().embed("a red shoe").unwrap_err();
    assert!(error.to_string().contains("cannot be computed"), "{error}");
    // The begin and the end of a text leave no room for a word.
    let error = of("clip.onnx", Some(2)).unwrap_err();
    assert!(error.to_string().contains("adds 2 tokens to every text, and a text is 2 long"), "{error}");
}

#[test]
fn files_that_cannot_be_used_say_why() {
    engines().into_iter().for_each(files_that_cannot_be_used_say_why_to);
}

fn files_that_cannot_be_used_say_why_to(engine: Engine) {
    let folder = tempfile::tempdir().unwrap();
    let open =
        |tower: &Path, tokenizer: &Path, output| TextModel::open(tower, tokenizer, output, None, engine);
    let of = |tower: &Path, tokenizer: &Path, output| open(tower, tokenizer, output).unwrap_err();
    let (clip, tokenizer) = (file("clip.onnx"), file("tokenizer.json"));
    let error = of(&clip, &folder.path().join("tokenizer.json"), None);
    assert!(error.to_string().contains("cannot read it") && error.hint().unwrap().contains("text.tokenizer"));
    let error = of(&clip, &file("expected.json"), None);
    assert!(error.to_string().contains("it is no tokenizer"), "{error}");
    let error = of(&file("../rows.onnx"), &tokenizer, None);
    assert!(error.to_string().contains("no text tower") && error.to_string().contains("images"), "{error}");
    let error = of(&clip, &tokenizer, Some("embeds"));
    assert!(error.to_string().contains("`last_hidden_state`, `text_embeds`"), "{error}");
    let tokens = open(&clip, &tokenizer, Some("last_hidden_state")).unwrap();
    let error = tokens.embed("a red shoe").unwrap_err();
    assert!(
        error.to_string().contains("[1, 16, 6]") && error.hint().unwrap().contains("text.output"),
        "{error}"
    );
    // A template names a token that is not there.
    let bad = folder.path().join("bad.json");
    let whole = std::fs::read(&tokenizer).unwrap();
    let mut without: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    let tokens = without["post_processor"]["special_tokens"].as_object_mut().unwrap();
    tokens.remove("<|endoftext|>").unwrap();
    std::fs::write(&bad, without.to_string()).unwrap();
    let error = TextModel::open(&clip, &bad, None, Some(16), engine).unwrap_err().to_string();
    assert!(error.contains("it is no tokenizer: it panics at a text"), "{error}");
    // Every truncation of a tokenizer is an error, not a crash.
    for length in (0..whole.len() - 1).step_by(61) {
        std::fs::write(&bad, &whole[..length]).unwrap();
        of(&clip, &bad, None);
    }
}
