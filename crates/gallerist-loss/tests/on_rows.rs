//! List losses on rows in memory: the values and gradients of the tensor path.

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::engine::RowBatch;
use gallerist_loss::{CrossBatchRows, Labels, LossConfig, LossShape, Progress};
use gallerist_tensor::pairwise::{host, l2_normalize};

const D: usize = 24;

fn rows(n: usize, seed: u32) -> Vec<f64> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    };
    (0..n * D).map(|i| uniform() + ((i / D % 7) as f64 * 0.9).sin()).collect()
}

fn classes(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i % 7).collect()
}

/// Compares a batch of `n` rows and a memory of `m` with the tensor path, in both precisions.
fn compare(config: &LossConfig, n: usize, m: usize, normalize: bool) {
    let device = Device::flex().autodiff();
    let loss = config.init(LossShape { classes: 7, dimensions: D }, 1, &device);
    let Some(on_rows) = loss.on_rows() else { return };
    let (x, memory) = (rows(n, 3), rows(m, 5));
    let (labels, memory_labels) = (classes(n), classes(m));
    let name = format!("{}, {n} rows, memory {m}, normalize {normalize}", config.name());
    let prepared = |x: Tensor<2>| if normalize { l2_normalize(x) } else { x };
    let tensor = |values: &[f64], rows: usize, dtype: DType| {
        Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, D]), (&device, dtype))
    };
    let reference = |dtype: DType| {
        let x = tensor(&x, n, dtype).require_grad();
        let memory = (m > 0).then(|| CrossBatchRows {
            embeddings: prepared(tensor(&memory, m, dtype)),
            labels: Labels::Classes(&memory_labels),
        });
        let output =
            loss.forward_against(prepared(x.clone()), Labels::Classes(&labels), memory, Progress::default());
        let value = output.value.clone().into_data().convert::<f64>().try_into_vec::<f64>().unwrap()[0];
        let gradients = output.value.backward();
        let gradient = x.grad(&gradients).map_or(vec![0.0; n * D], |gradient| host(&gradient));
        (value, gradient, output.queries)
    };
    let close = |a: f64, b: f64, bound: f64| (a - b).abs() <= bound * (1.0 + b.abs());

    let (value, gradient, queries) = reference(DType::F64);
    let mut found = vec![f64::NAN; n * D];
    let batch = RowBatch {
        rows: &x,
        dimensions: D,
        labels: Labels::Classes(&labels),
        memory: Some((&memory[..], Labels::Classes(&memory_labels))),
        normalize,
    };
    let (found_value, found_queries) = on_rows.forward_f64(&batch, Progress::default(), Some(&mut found));
    assert!(close(found_value, value, 1e-12), "{name}: {found_value} and {value}");
    let largest = gradient.iter().fold(0f64, |a, g| a.max(g.abs()));
    for (found, wanted) in found.iter().zip(&gradient) {
        assert!((found - wanted).abs() <= 1e-11 * (largest + 1e-9), "{name}: {found} and {wanted}");
    }
    assert_eq!(found_queries.positives, queries.positives, "{name}");
    let (without, _) = on_rows.forward_f64(&batch, Progress::default(), None);
    assert_eq!(without.to_bits(), found_value.to_bits(), "{name}");

    let narrow = |x: &[f64]| x.iter().map(|&value| value as f32).collect::<Vec<f32>>();
    let (x, memory) = (narrow(&x), narrow(&memory));
    let (value, gradient, _) = reference(DType::F32);
    let mut found = vec![f32::NAN; n * D];
    let batch = RowBatch {
        rows: &x,
        dimensions: D,
        labels: Labels::Classes(&labels),
        memory: Some((&memory[..], Labels::Classes(&memory_labels))),
        normalize,
    };
    let (found_value, _) = on_rows.forward_f32(&batch, Progress::default(), Some(&mut found));
    assert_eq!(found_value as f32, value as f32, "{name}");
    let largest = gradient.iter().fold(0f64, |a, g| a.max(g.abs()));
    for (&found, wanted) in found.iter().zip(&gradient) {
        assert!((f64::from(found) - wanted).abs() <= 1e-6 * (largest + 1e-9), "{name}: {found} and {wanted}");
    }
}

#[test]
fn value_and_gradient_are_those_of_the_tensor_path() {
    let mut list_losses = 0;
    for config in LossConfig::all_defaults() {
        let loss = config.init(LossShape { classes: 7, dimensions: D }, 1, &Device::flex());
        list_losses += usize::from(loss.on_rows().is_some());
        for (n, m) in [(1, 0), (40, 0), (40, 33), (131, 0)] {
            if m > 0 && !config.takes_memory() {
                continue;
            }
            for normalize in [true, false] {
                compare(&config, n, m, normalize);
            }
        }
    }
    assert!(list_losses >= 15, "{list_losses} list losses");
}

#[test]
fn rows_of_zeros_and_norms_that_overflow_keep_their_gradients_finite() {
    let config = LossConfig::all_defaults().into_iter().find(|loss| loss.name() == "contrastive").unwrap();
    let loss = config.init(LossShape { classes: 2, dimensions: 2 }, 1, &Device::flex());
    let on_rows = loss.on_rows().unwrap();
    let labels = Labels::Classes(&[0, 0, 1]);
    for (rows, normalize) in [
        ([0.0, 0.0, 1.0, 0.0, 1.0, 0.1], true),
        ([1e30, 0.0, 0.0, 1e30, 1e30, 1e30], true),
        ([1e30, 0.0, 0.0, 1e30, 1e30, 1e30], false),
    ] {
        let batch = RowBatch { rows: &rows, dimensions: 2, labels, memory: None, normalize };
        let mut gradient = [f32::NAN; 6];
        let (value, _) = on_rows.forward_f32(&batch, Progress::default(), Some(&mut gradient));
        assert!(value.is_finite() && gradient.iter().all(|value| value.is_finite()), "{value} {gradient:?}");
    }
    let rows = [f32::NAN, 0.0, 1.0, 0.0, 1.0, 0.1];
    for normalize in [true, false] {
        let batch = RowBatch { rows: &rows, dimensions: 2, labels, memory: None, normalize };
        let mut gradient = [0.0; 6];
        let (value, _) = on_rows.forward_f32(&batch, Progress::default(), Some(&mut gradient));
        assert!(value.is_nan() && gradient.iter().all(|value| value.is_nan()));
    }
}
