//! Gradients of f64 embeddings have the digits of f64: they agree to 1e-9 with differences of the value
//! of eighth order. (A derivative rounded to f32 on its way fails at some 1e-8.)

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{AnyLoss, Labels, LossConfig, LossShape, Progress};
use serde_json::{Value, json};

const CLASSES: u32 = 3;
const DIMENSIONS: usize = 4;

/// Smooth losses whose gradient is the derivative of the value, with parameters that f32 cannot hold.
fn losses() -> Vec<Value> {
    vec![
        json!({"name": "srt", "soft": true, "temperature": 0.7, "balance": 0.3}),
        json!({"name": "ice", "gradient": "autodiff", "scale": 3.3}),
        json!({"name": "contrastive", "margin": 2.3}),
        json!({"name": "triplet_all", "margin": 4.1}),
        json!({"name": "triplet_batch_hard", "soft": true}),
        json!({"name": "triplet_adaptive", "margin": 2.3}),
        json!({"name": "multi_similarity", "alpha": 2.1, "beta": 3.3, "base": 0.3}),
        json!({"name": "margin", "margin": 2.1, "nu": 0.1, "miner": {"name": "all"}}),
        json!({"name": "n_pair", "l2": 0.07}),
        json!({"name": "lifted", "alpha": 1.3}),
        json!({"name": "angular", "angle": 40.0}),
        json!({"name": "sup_con", "temperature": 0.7}),
        json!({"name": "sup_con", "temperature": 0.7, "form": "nt_xent"}),
        json!({"name": "smooth_ap", "temperature": 0.7}),
        json!({"name": "recall_at_k", "temperature": 0.7, "rank_temperature": 1.1, "include_query": true}),
        json!({"name": "recall_at_k", "temperature": 0.7, "simix": true, "mix": 0.3}),
        json!({"name": "roadmap", "temperature": 0.7, "delta": 50.0, "start": 0.3, "lambda": 0.3, "positive_margin": 9.0, "negative_margin": -9.0}),
        json!({"name": "potential_field", "alpha": 1.1, "delta": 4.1, "proxies": 0}),
        json!({"name": "potential_field", "alpha": 1.1, "delta": 0.1, "closest": 0.1, "proxies": 2}),
        json!({"name": "hyperbolic", "curvature": 0.3, "temperature": 0.7, "clip": 0.9}),
        json!({"name": "hyperbolic", "curvature": 0.3, "temperature": 0.7, "clip": 0.0}),
        json!({"name": "spectral_clust", "gradient": "autodiff"}),
        json!({"name": "proxy_nca", "scale": 1.1}),
        json!({"name": "softmax"}),
        json!({"name": "norm_softmax", "temperature": 0.3}),
        json!({"name": "soft_triple", "gamma": 0.7, "lambda": 3.3, "centers": 2}),
        json!({"name": "proxy_anchor", "alpha": 3.3, "delta": 0.1}),
        json!({"name": "arc_face", "scale": 3.3}),
        json!({"name": "cos_face", "scale": 3.3}),
        json!({"name": "hist", "tau": 2.3, "alpha": 0.7, "lambda": 0.9, "hidden": 6}),
    ]
}

fn tensor(values: &[f64]) -> Tensor<2> {
    let data = TensorData::new(values.to_vec(), [values.len() / DIMENSIONS, DIMENSIONS]);
    Tensor::<2>::from_data(data, (&Device::flex().autodiff(), DType::F64)).require_grad()
}

fn host(data: TensorData) -> Vec<f64> {
    data.try_into_vec().expect("f64 in, f64 out")
}

fn forward(loss: &AnyLoss, values: &[f64], labels: &[u32]) -> (f64, Vec<f64>) {
    let x = tensor(values);
    let value = loss.forward(x.clone(), Labels::Classes(labels), Progress::default()).value;
    let gradient = x.grad(&value.backward()).expect("the value is connected to the embeddings");
    (host(value.into_data())[0], host(gradient.into_data()))
}

#[test]
fn gradients_of_f64_embeddings_keep_their_digits() {
    // Rows of a length of about 1, in general position.
    let values: Vec<f64> = (0..9 * DIMENSIONS as i32)
        .map(|i| 0.75 * f64::sin(1.0 + 2.7 * f64::from(i) + 0.37 * f64::from(i * i)))
        .collect();
    let labels: Vec<u32> = (0..9).map(|i| i % CLASSES).collect();
    for json in losses() {
        let config: LossConfig = serde_json::from_value(json.clone()).unwrap();
        let shape = LossShape { classes: CLASSES as usize, dimensions: DIMENSIONS };
        let loss = config.init(shape, 1, &Device::flex().autodiff());
        let (_, gradient) = forward(&loss, &values, &labels);
        let largest = gradient.iter().fold(0f64, |a, g| a.max(g.abs()));
        assert!(largest > 1e-3, "{json}");
        for at in [0, 5, 17, 34] {
            let moved = |by: f64| {
                let mut values = values.clone();
                values[at] += by;
                forward(&loss, &values, &labels).0
            };
            let step = 1e-3;
            let difference = |k: f64| (moved(k * step) - moved(-k * step)) / step;
            let wanted = 4.0 / 5.0 * difference(1.0) - 1.0 / 5.0 * difference(2.0)
                + 4.0 / 105.0 * difference(3.0)
                - 1.0 / 280.0 * difference(4.0);
            let error = (gradient[at] - wanted).abs();
            assert!(error <= 1e-9 * largest, "{json}[{at}]: {} {wanted}", gradient[at]);
        }
    }
}
