//! Every loss against golden values and gradients in f64 (`fixtures/losses/losses.json`).

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{Labels, LossConfig, LossShape, Progress};
use serde_json::{Map, Value};

struct Case {
    loss: String,
    params: Map<String, Value>,
    labels: Vec<u32>,
    dim: usize,
    embeddings: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    name: String,
}

fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/losses/losses.json");
    let text = std::fs::read_to_string(path).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    file["cases"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(i, case)| Case {
            loss: case["loss"].as_str().unwrap().into(),
            params: case["params"].as_object().unwrap().clone(),
            labels: numbers(&case["labels"]).iter().map(|&x| x as u32).collect(),
            dim: case["dim"].as_u64().unwrap() as usize,
            embeddings: numbers(&case["embeddings"]),
            value: case["value"].as_f64().unwrap(),
            gradient: numbers(&case["gradient"]),
            name: format!("case {i}: {} {} on {}", case["loss"], case["params"], case["batch"]),
        })
        .collect()
}

/// The golden file's parameter names in ours.
fn config(case: &Case) -> Option<LossConfig> {
    let mut table = Map::new();
    table.insert("name".into(), case.loss.clone().into());
    for (key, value) in &case.params {
        let key = match (case.loss.as_str(), key.as_str()) {
            ("rll", "lam") => "lambda",
            (_, key) => key,
        };
        table.insert(key.into(), value.clone());
    }
    if !LossConfig::names().contains(&case.loss.as_str()) {
        return None;
    }
    Some(serde_json::from_value(Value::Object(table)).unwrap_or_else(|e| panic!("{}: {e}", case.name)))
}

fn value_and_gradient(config: &LossConfig, case: &Case, dtype: DType) -> (f64, Vec<f64>) {
    let n = case.labels.len();
    let classes = case.labels.iter().max().map_or(0, |&label| label as usize + 1);
    let shape = LossShape { classes, dimensions: case.dim };
    let device = Device::flex().autodiff();
    let loss = config.init(shape, 1, &device);
    let data = TensorData::new(case.embeddings.clone(), [n, case.dim]);
    let x = Tensor::<2>::from_data(data, (&device, dtype)).require_grad();
    let output = loss.forward(x.clone(), Labels::Classes(&case.labels), Progress::default());
    let host = |data: TensorData| data.convert::<f64>().try_into_vec::<f64>().unwrap();
    let gradient = x.grad(&output.value.backward()).map(|g| host(g.into_data()));
    (host(output.value.into_data())[0], gradient.unwrap_or(vec![0.0; n * case.dim]))
}

/// Compares all cases of the losses that exist; returns how many there are.
fn compare(dtype: DType, tolerance: f64) -> usize {
    let mut checked = 0;
    for case in cases() {
        let Some(config) = config(&case) else { continue };
        let (value, gradient) = value_and_gradient(&config, &case, dtype);
        let error = (value - case.value).abs();
        assert!(
            error <= tolerance * case.value.abs().max(1e-6),
            "{}: value {value}, golden {}",
            case.name,
            case.value
        );
        let largest = case.gradient.iter().fold(0.0f64, |a, g| a.max(g.abs()));
        for (i, (found, wanted)) in gradient.iter().zip(&case.gradient).enumerate() {
            let error = (found - wanted).abs();
            assert!(
                error <= tolerance * largest.max(1e-9),
                "{}: gradient[{i}] {found}, golden {wanted}",
                case.name
            );
        }
        checked += 1;
    }
    checked
}

const CASES: usize = 220;

#[test]
fn golden_values_and_gradients_in_f32() {
    assert_eq!(compare(DType::F32, 1e-4), CASES);
}

#[test]
fn golden_values_and_gradients_in_f64() {
    assert_eq!(compare(DType::F64, 1e-9), CASES);
}
