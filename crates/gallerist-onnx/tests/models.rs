//! Small models against onnxruntime (`bench/onnx/fixtures.py`), and files that cannot be used.

mod common;

use std::path::{Path, PathBuf};

use common::engines;
use gallerist_onnx::{Engine, Inspection, Model, Rows};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// `[n, channels, height, width]` and the numbers of the images of `expected.json`.
fn images(shape: [usize; 4]) -> Vec<f32> {
    (0..shape.iter().product::<usize>()).map(|i| (0.37 * i as f64).sin() as f32).collect()
}

/// Shape of the images, and shape and numbers of an output.
fn expected(model: &str, output: &str) -> ([usize; 4], Vec<usize>, Vec<f32>) {
    let all: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file("expected.json")).unwrap()).unwrap();
    let of = &all["models"][model];
    let take = |value: &serde_json::Value| serde_json::from_value::<Vec<usize>>(value.clone()).unwrap();
    let output = &of["outputs"][output];
    let values = serde_json::from_value(output["values"].clone()).unwrap();
    (take(&of["shape"]).try_into().unwrap(), take(&output["shape"]), values)
}

fn assert_close(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    let largest = wanted.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!(
            (found - wanted).abs() <= 1e-5 * largest,
            "number {i}: {found} where onnxruntime has {wanted}"
        );
    }
}

#[test]
fn rows_agree_with_onnxruntime() {
    for engine in engines() {
        for name in ["rows", "two", "last", "outside"] {
            let (shape, _, wanted) = expected(if name == "outside" { "rows" } else { name }, "features");
            let model = Model::open(&file(&format!("{name}.onnx")), None, Rows::default(), engine).unwrap();
            let found = model.extract(&images(shape), shape).unwrap();
            assert_close(&found, &wanted);
            assert_eq!(model.features([shape[1], shape[2], shape[3]]).unwrap(), 5, "{name}");
            assert_eq!(model.engine(), engine);
        }
    }
}

#[test]
fn cubic_resizing_agrees_with_onnxruntime() {
    for engine in engines() {
        let of_17 = ["features", "half_pixel", "corners", "asymmetric", "outside", "pytorch", "twice"];
        let of_18 = ["axes", "smaller", "larger"];
        for (name, numbers, outputs) in [
            ("cubic", "cubic", &of_17[..]),
            ("cubic_outside", "cubic", &of_17),
            ("cubic18", "cubic18", &of_18),
        ] {
            for output in outputs {
                let (shape, _, wanted) = expected(numbers, output);
                let path = file(&format!("{name}.onnx"));
                let model = Model::open(&path, Some(output), Rows::default(), engine).unwrap();
                assert_eq!(model.image_shape(), [Some(3), None, None]);
                for _ in 0..2 {
                    assert_close(&model.extract(&images(shape), shape).unwrap(), &wanted);
                }
            }
        }
        assert_eq!(Inspection::of_file(&file("cubic.onnx"), engine).unwrap().missing, []);
    }
}

#[test]
fn a_model_for_two_images_computes_any_number() {
    for engine in engines() {
        let model = Model::open(&file("two.onnx"), None, Rows::default(), engine).unwrap();
        let any = Model::open(&file("rows.onnx"), None, Rows::default(), engine).unwrap();
        assert_eq!(model.image_shape(), [Some(3), Some(8), Some(6)]);
        assert_eq!(any.image_shape(), [Some(3), None, None]);
        for n in [0, 1, 2, 3, 5] {
            let shape = [n, 3, 8, 6];
            let found = model.extract(&images(shape), shape).unwrap();
            assert_eq!(found.len(), 5 * n);
            let (of_two, _, wanted) = expected("two", "features");
            assert_eq!(of_two, [2, 3, 8, 6]);
            assert_close(&found[..found.len().min(10)], &wanted[..found.len().min(10)]);
            assert_close(&any.extract(&images(shape), shape).unwrap(), &found);
        }
    }
}

#[test]
fn threads_that_compute_at_the_same_time_get_the_rows_of_one() {
    for engine in engines() {
        let model = Model::open(&file("rows.onnx"), None, Rows::default(), engine).unwrap();
        let alone = |n: usize| model.extract(&images([n, 3, 8, 6]), [n, 3, 8, 6]).unwrap();
        let wanted: Vec<_> = (1..5).map(alone).collect();
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..5).map(|n| scope.spawn(move || alone(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(found, wanted);
    }
}

#[test]
fn maps_and_tokens_become_rows() {
    engines().into_iter().for_each(maps_and_tokens_become_rows_of);
}

fn maps_and_tokens_become_rows_of(engine: Engine) {
    let (shape, maps, values) = expected("rows", "active");
    let model = Model::open(&file("rows.onnx"), Some("active"), Rows::default(), engine).unwrap();
    let area = maps[2] * maps[3];
    let means: Vec<f32> = values.chunks(area).map(|map| map.iter().sum::<f32>() / area as f32).collect();
    assert_close(&model.extract(&images(shape), shape).unwrap(), &means);

    let (shape, tokens, values) = expected("tokens", "last_hidden_state");
    let [n, count, width] = tokens[..] else { panic!("tokens have three sides") };
    for (rows, first, last) in [(Rows::First, 0, 1), (Rows::Mean, 0, count), (Rows::MeanOfPatches, 1, count)]
    {
        let model = Model::open(&file("tokens.onnx"), None, rows, engine).unwrap();
        let mut wanted = Vec::new();
        for image in 0..n {
            for d in 0..width {
                let sum: f32 = (first..last).map(|token| values[(image * count + token) * width + d]).sum();
                wanted.push(sum / (last - first) as f32);
            }
        }
        assert_close(&model.extract(&images(shape), shape).unwrap(), &wanted);
    }
}

#[test]
fn maps_with_channels_last_become_the_rows_of_those_with_channels_first() {
    for engine in engines() {
        let shape = [2, 3, 24, 20];
        let rows = |output: &str| {
            let model = Model::open(&file("last_maps.onnx"), Some(output), Rows::default(), engine).unwrap();
            assert_eq!(model.features([3, 24, 20]).unwrap(), 5, "{output}");
            model.extract(&images(shape), shape).unwrap()
        };
        let wanted = rows("features");
        for output in ["last", "one", "active"] {
            assert_close(&rows(output), &wanted);
        }
    }
}

#[test]
fn a_model_whose_rows_depend_on_the_number_of_images_is_refused() {
    for engine in engines() {
        let open = |name: &str| Model::open(&file(name), None, Rows::default(), engine).unwrap();
        let folded = open("folded.onnx");
        for error in [folded.features([3, 8, 6]), folded.checked_features([3, 8, 6])] {
            let error = error.unwrap_err();
            assert!(error.to_string().contains("one image, but not two together"), "{error}");
            assert!(error.hint().unwrap().contains("dynamic_axes"));
        }
        let mixed = open("mixed.onnx");
        assert_eq!(mixed.features([3, 8, 6]).unwrap(), 144);
        let error = mixed.checked_features([3, 8, 6]).unwrap_err();
        assert!(error.to_string().contains("other features if a second image"), "{error}");
        assert!(error.hint().unwrap().contains("evaluation mode"));
        for name in ["rows.onnx", "two.onnx", "last.onnx"] {
            assert_eq!(open(name).checked_features([3, 8, 6]).unwrap(), 5, "{name}");
        }
        // An image of another shape is the error, not their number.
        let error = folded.features([3, 8, 8]).unwrap_err().to_string();
        assert!(error.contains("3 x 8 x 6"), "{error}");
    }
}

#[test]
fn missing_operators_are_named_all() {
    for engine in engines() {
        let error = Model::open(&file("unknown.onnx"), None, Rows::default(), engine).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("Gargle (2 x)") && text.contains("example.org.Hum (1 x)"), "{text}");
        assert!(!text.contains("Conv"), "{text}");
        let inspection = Inspection::of_file(&file("unknown.onnx"), engine).unwrap();
        assert_eq!(inspection.missing.len(), 2);
        assert_eq!(inspection.operators["Gargle"], 2);
    }
}

#[cfg(not(feature = "onnxruntime"))]
#[test]
fn a_build_without_onnxruntime_says_so() {
    let error = Model::open(&file("rows.onnx"), None, Rows::default(), Engine::Onnxruntime).unwrap_err();
    assert!(error.to_string().contains("built without the engine onnxruntime"), "{error}");
    assert!(error.hint().unwrap().contains("--features onnxruntime"));
    assert!(Inspection::of_file(&file("rows.onnx"), Engine::Onnxruntime).is_err());
}

#[test]
fn files_that_cannot_be_used_say_why() {
    engines().into_iter().for_each(files_that_cannot_be_used_say_why_to);
}

fn files_that_cannot_be_used_say_why_to(engine: Engine) {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, output| Model::open(path, output, Rows::default(), engine);
    let of = |path: &Path| open(path, None).unwrap_err().to_string();
    let text = of(&file("words.onnx"));
    assert!(text.contains("no input of images") && text.contains("ids"), "{text}");
    assert!(of(&folder.path().join("no.onnx")).contains("cannot read it"));
    let bad = folder.path().join("bad.onnx");
    std::fs::write(&bad, b"not a model").unwrap();
    assert!(of(&bad).contains("ONNX"), "{}", of(&bad));
    // Weights in another file, which is gone.
    let outside = folder.path().join("outside.onnx");
    std::fs::copy(file("outside.onnx"), &outside).unwrap();
    assert!(of(&outside).contains("outside.data"), "{}", of(&outside));
    let error = open(&file("rows.onnx"), Some("feature")).unwrap_err().to_string();
    assert!(error.contains("`feature`") && error.contains("`features`, `active`"), "{error}");
    let model = open(&file("two.onnx"), None).unwrap();
    let error = model.extract(&images([1, 3, 4, 4]), [1, 3, 4, 4]).unwrap_err().to_string();
    assert!(error.contains("3 x 8 x 6") && error.contains("3 x 4 x 4"), "{error}");
    // Every truncation of a model is an error, not a crash.
    let whole = std::fs::read(file("rows.onnx")).unwrap();
    for length in (0..whole.len()).step_by(7) {
        std::fs::write(&bad, &whole[..length]).unwrap();
        let _ = open(&bad, None).map(|model| model.features([3, 8, 8]));
        let _ = Inspection::of_file(&bad, engine);
    }
}

#[test]
fn a_file_is_described() {
    let of = |engine| Inspection::of_file(&file("outside.onnx"), engine).unwrap();
    let inspection = of(Engine::default());
    assert!(engines().into_iter().all(|engine| of(engine) == inspection));
    assert_eq!(inspection.producer.as_deref(), Some("fixtures.py"));
    assert_eq!(inspection.opsets["ai.onnx"], 17);
    assert_eq!(inspection.parameters, 5 * 27 + 5);
    assert_eq!(inspection.external_files.iter().collect::<Vec<_>>(), ["outside.data"]);
    assert!(inspection.bytes > 4 * inspection.parameters && inspection.missing.is_empty());
    assert_eq!(inspection.inputs[0].shape, ["batch", "3", "height", "width"]);
    assert_eq!(
        (inspection.outputs[1].name.as_str(), inspection.outputs[1].dtype.as_str()),
        ("active", "FLOAT")
    );
}

#[test]
fn the_fingerprint_is_of_the_file_and_its_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outside.onnx");
    for name in ["outside.onnx", "outside.data"] {
        std::fs::copy(file(name), folder.path().join(name)).unwrap();
    }
    let of = || Model::open(&path, None, Rows::default(), Engine::default()).unwrap().sha256().to_owned();
    let before = of();
    for engine in engines() {
        let model = Model::open(&file("outside.onnx"), None, Rows::default(), engine).unwrap();
        assert_eq!(model.sha256(), before);
    }
    let data = folder.path().join("outside.data");
    let mut bytes = std::fs::read(&data).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&data, bytes).unwrap();
    assert_ne!(of(), before);
}
